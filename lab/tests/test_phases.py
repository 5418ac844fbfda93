"""Ramp-up and sustainment of courses whose phases are known."""

from __future__ import annotations

import numpy as np
import pytest

from farlink_lab.phases import phases, rates_bps
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


def test_rates_are_bits_over_the_interval():
    starts, ends, rates = rates_bps(np.array([[0.1, 1000.0], [0.3, 1000.0]]))
    assert starts.tolist() == [0.0, 0.1]
    assert ends.tolist() == [0.1, 0.3]
    assert rates == pytest.approx([80_000, 40_000])
