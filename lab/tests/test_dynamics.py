"""The Lyapunov exponent of maps that are known, and of noise, which has none."""

from __future__ import annotations

import math

import numpy as np
import pytest

from farlink_lab.dynamics import DynamicsError, dynamics, poincare_pairs, pooled_pairs, samples_a_step


def pairs(values):
    values = np.asarray(values)
    return np.stack([values[:-1], values[1:]], axis=1)


def logistic(steps):
    values = [0.3]
    for _ in range(steps):
        values.append(4 * values[-1] * (1 - values[-1]))
    return values


@pytest.mark.parametrize(("steps", "off"), [(200, 0.06), (2000, 0.01)])
def test_the_logistic_map_has_ln_2(steps, off):
    found = dynamics(pairs(logistic(steps)))
    assert found.lyapunov == pytest.approx(math.log(2), abs=off)
    assert found.scatter < 0.01


def test_noise_flattens_the_logistic_map():
    noise = np.random.default_rng(1).standard_normal(2001)
    flattened = [dynamics(pairs(np.array(logistic(2000)) + share * noise)).lyapunov for share in (0.01, 0.05)]
    assert flattened == pytest.approx([0.51, 0.21], abs=0.05)


def test_a_noisy_constant_has_no_map():
    noise = np.random.default_rng(2).standard_normal(100)
    found = dynamics(pairs(9e9 * (1 + 0.05 * noise)))
    assert found.lyapunov is None
    assert "no map" in found.reason
    assert found.scatter == pytest.approx(0.05, abs=0.01)


def test_noise_has_no_map():
    claims = sum(
        dynamics(pairs(5 + np.random.default_rng(seed).standard_normal(101))).lyapunov is not None
        for seed in range(500)
    )
    assert claims <= 5


def test_a_sequence_that_returns_to_its_mean_is_stable():
    random, values = np.random.default_rng(0), [0.0]
    for _ in range(300):
        values.append(0.5 * values[-1] + random.standard_normal())
    assert dynamics(pairs(10 + np.array(values))).lyapunov == pytest.approx(math.log(0.5), abs=0.2)


def test_the_exponent_has_no_unit():
    assert dynamics(1e9 * pairs(logistic(300))).lyapunov == pytest.approx(
        dynamics(pairs(logistic(300))).lyapunov
    )


def test_pairs_are_of_sustained_whole_intervals():
    samples = np.array([[0.1, 1.0], [0.2, 2.0], [0.3, 3.0], [0.4, 4.0], [0.43, 1.0]])
    pairs_found = poincare_pairs(samples, since_s=0.1, rtt_s=None)
    assert pairs_found == pytest.approx(np.array([[160, 240], [240, 320]]))
    assert len(poincare_pairs(samples[:1], since_s=0.0, rtt_s=None)) == 0


def test_a_hole_in_the_samples_is_in_no_step():
    ends = np.array([0.1, 0.2, 0.3, 0.4, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4])
    samples = np.stack([ends, np.arange(10.0)], axis=1)
    # Two samples make a step: the hole is skipped, and the last sample has none to join.
    found = poincare_pairs(samples, since_s=0.0, rtt_s=0.2)
    assert found == pytest.approx(np.array([[40, 200], [440, 600]]))


@pytest.mark.parametrize("rtt_s", [0.0004, 0.0118, 0.0226, 0.0456, 0.0916, 0.183, 0.366])
def test_a_metronome_does_not_scatter(rtt_s):
    ends = np.arange(1, 1001) / 10
    bursts = np.floor(ends / rtt_s)
    samples = np.stack([ends, 1e6 * np.diff(bursts, prepend=0.0)], axis=1)
    found = dynamics(pooled_pairs([poincare_pairs(samples, since_s=1.0, rtt_s=rtt_s)]))
    assert found.scatter < 0.04


def test_a_step_is_no_shorter_than_it_must_be():
    assert samples_a_step(0.1, 0.0004) == 1
    assert samples_a_step(0.1, 0.366) == 11
    with pytest.raises(DynamicsError, match="above 0"):
        samples_a_step(0.1, 0.0)


def test_runs_at_different_levels_are_not_one_map():
    random = np.random.default_rng(4)
    levels = [pairs(level * (1 + 0.05 * random.standard_normal(60))) for level in (1e9, 5e9, 9e9)]
    assert dynamics(pooled_pairs(levels)).lyapunov is None
    assert pooled_pairs([]).shape == (0, 2)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([1.0] * 10, "at least 20 pairs of sustained samples, here are 9"),
        ([5.0] * 40, "all samples are equal"),
        ([0.0] * 40, "all samples are equal"),
        ([1.0] * 30 + [float("nan")] * 5, "must be finite"),
    ],
)
def test_what_has_no_map_is_a_named_error(values, said):
    with pytest.raises(DynamicsError, match=said):
        dynamics(pairs(values))
