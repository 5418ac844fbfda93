"""Ramp-up and sustainment of courses whose phases are known."""

from __future__ import annotations

import numpy as np
import pytest

from farlink_lab.phases import Phases, PhasesError, phases, phases_at, rates_bps
from synthetic import samples


@pytest.mark.parametrize(("ramp_s", "tau_s"), [(4.5, 0.366), (2.0, 0.183), (1.0, 0.0916)])
def test_slow_start_ends_at_the_knee(ramp_s, tau_s):
    course = np.array(samples(ramp_s=ramp_s, rate_bps=9.9e9, seconds=10, tau_s=tau_s, noise=0.02))
    found = phases(course)
    assert found.ramp_up_s == pytest.approx(ramp_s, abs=max(0.15, tau_s))
    assert found.sustained_bps == pytest.approx(9.9e9, rel=0.03)


def test_the_phases_rebuild_the_mean():
    course = np.array(samples(ramp_s=4.5, rate_bps=9.9e9, seconds=10, tau_s=0.366, noise=0.05))
    mean = 8 * course[:, 1].sum() / course[-1, 0]
    assert phases(course).rebuilt_bps == pytest.approx(mean, rel=1e-9)


def test_any_split_rebuilds_the_mean_so_that_says_nothing_for_it():
    course = np.array(samples(ramp_s=4.5, rate_bps=9.9e9, seconds=10, tau_s=0.366, noise=0.05))
    mean = 8 * course[:, 1].sum() / course[-1, 0]
    _, _, rates = rates_bps(course)
    for split in (3, 20, 70):
        wrong = Phases(
            ramp_up_s=course[split - 1, 0],
            ramp_up_bps=rates[:split].mean(),
            sustained_bps=rates[split:].mean(),
            end_s=course[-1, 0],
        )
        assert wrong.rebuilt_bps == pytest.approx(mean, rel=1e-9)


def test_runs_alike_foretell_each_other_within_two_per_cent_and_others_do_not():
    def run(ramp_s, seed):
        course = np.array(samples(ramp_s=ramp_s, rate_bps=9.9e9, seconds=10, tau_s=0.366))
        course[:, 1] *= 1 + 0.05 * np.random.default_rng(seed).standard_normal(len(course))
        return phases(course), 8 * course[:, 1].sum() / course[-1, 0]

    for ramps, alike in (((4.5,) * 6, True), ((1.0, 2.5, 4.0, 5.5, 7.0, 8.0), False)):
        split, means = zip(*(run(ramp, seed) for seed, ramp in enumerate(ramps)), strict=True)
        found = phases_at(0.366, split, means)
        assert (found.foretold_error <= 0.02) is alike
        assert found.rebuilt_error < 1e-9
    assert phases_at(0.366, split[:1], means[:1]).foretold_error is None


def test_beside_its_error_stands_what_the_spread_of_the_runs_leaves():
    whole = Phases(ramp_up_s=2.0, ramp_up_bps=4e9, sustained_bps=9e9, end_s=10.0)
    means = [whole.rebuilt_bps * by for by in (0.9, 1.0, 1.1)]
    found = phases_at(0.183, [whole] * 3, means)
    # From the other two: 1.05, 1 and 0.95 of it.
    assert found.spread_error == pytest.approx(0.15 / 1.1)
    assert found.foretold_error == pytest.approx(0.1 / 1.1)


def test_a_run_without_ramp_up_does_not_halve_that_of_the_others():
    # Of runs alike, one whose noise hid the ramp: all have the same mean.
    ramped = Phases(ramp_up_s=2.0, ramp_up_bps=4e9, sustained_bps=9e9, end_s=10.0)
    hidden = Phases(ramp_up_s=0.0, ramp_up_bps=0.0, sustained_bps=ramped.rebuilt_bps, end_s=10.0)
    found = phases_at(0.183, [ramped, ramped, hidden], [ramped.rebuilt_bps] * 3)
    assert found.spread_error == 0
    assert found.foretold_error <= 0.04


def test_samples_that_miss_a_tenth_of_the_bytes_do_not_rebuild_the_mean():
    course = np.array(samples(ramp_s=4.5, rate_bps=9.9e9, seconds=10, tau_s=0.366))
    mean = 8 * course[:, 1].sum() / course[-1, 0]
    assert phases_at(0.366, [phases(course)], [mean / 0.9]).rebuilt_error == pytest.approx(0.1)


def test_noise_alone_is_no_ramp_up():
    claims = 0
    for seed in range(200):
        noise = np.random.default_rng(seed).standard_normal(100)
        course = np.stack([np.arange(1, 101) / 10, 1e8 * (1 + 0.05 * noise)], axis=1)
        claims += phases(course).ramp_up_s > 0
    assert claims <= 2


def test_a_constant_has_no_ramp_up():
    course = np.array(samples(ramp_s=-10, rate_bps=1e9, seconds=5, tau_s=0.1, noise=0.03))
    found = phases(course)
    assert found.ramp_up_s == 0
    assert found.sustained_bps == pytest.approx(1e9, rel=0.02)


def test_a_short_last_interval_weighs_little():
    course = samples(ramp_s=-10, rate_bps=1e9, seconds=2, tau_s=0.1)
    course.append([2.001, 10])
    assert phases(np.array(course)).sustained_bps == pytest.approx(1e9, rel=0.01)


@pytest.mark.parametrize(
    "course", [np.empty((0, 2)), np.array([[0.1, 5.0]]), np.array([[0.1 * k, 0.0] for k in range(1, 20)])]
)
def test_too_little_is_nothing(course):
    assert phases(course) is None


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ((3, 1), float("nan"), "finite numbers, at least 0"),
        ((3, 0), float("nan"), "finite numbers, at least 0"),
        ((3, 1), float("inf"), "finite numbers, at least 0"),
        ((3, 1), -1.0, "finite numbers, at least 0"),
        ((3, 0), 0.3, "an interval without length"),
        ((3, 0), 0.1, "an interval without length"),
    ],
)
def test_impossible_samples_are_a_named_error(place, value, said):
    course = np.array([[0.1 * k, 1e6] for k in range(1, 20)])
    course[2, 0] = 0.3
    course[place] = value
    with pytest.raises(PhasesError, match=said):
        phases(course)


@pytest.mark.parametrize(("rtt", "rate"), [(float("nan"), 1e9), (0.1, float("nan")), (0.1, 0.0)])
def test_impossible_runs_are_a_named_error(rtt, rate):
    whole = Phases(ramp_up_s=2.0, ramp_up_bps=4e9, sustained_bps=9e9, end_s=10.0)
    with pytest.raises(PhasesError):
        phases_at(rtt, [whole], [rate])


def test_rates_are_bits_over_the_interval():
    starts, ends, rates = rates_bps(np.array([[0.1, 1000.0], [0.3, 1000.0]]))
    assert starts.tolist() == [0.0, 0.1]
    assert ends.tolist() == [0.1, 0.3]
    assert rates == pytest.approx([80_000, 40_000])
