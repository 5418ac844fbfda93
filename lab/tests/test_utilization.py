"""Utilization and concavity on profiles whose coefficients follow by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farlink_lab import model
from farlink_lab.utilization import READING, UtilizationError, utilization

RTTS = np.array([0.0004, 0.0118, 0.0226, 0.0456, 0.0916, 0.183, 0.366])


def test_a_flat_profile_at_capacity_scores_three_quarters():
    found = utilization(RTTS, np.full(7, 10e9), capacity_bps=10e9)
    assert (found.under_utilization, found.convexity) == pytest.approx((0, 0), abs=1e-12)
    assert found.coefficient == pytest.approx(0.75)


@pytest.mark.parametrize(("streams", "score"), [(1, 0.132), (10, 0.038)])
def test_small_windows_score_as_published(streams, score):
    limit = model.window_limit_bps(RTTS, capacity_bps=10e9, streams=streams, window_bytes=256_000)
    assert round(utilization(RTTS, limit, capacity_bps=10e9).coefficient, 3) == score


def test_faster_at_every_rtt_may_score_lower_and_the_reading_says_so():
    one, ten = (
        model.window_limit_bps(RTTS, capacity_bps=10e9, streams=streams, window_bytes=256_000)
        for streams in (1, 10)
    )
    assert (ten > one).all()
    assert (
        utilization(RTTS, ten, capacity_bps=10e9).coefficient
        < utilization(RTTS, one, capacity_bps=10e9).coefficient
    )
    assert "0.038 against 0.132" in READING
    assert "our reading" in READING


def test_a_line_from_capacity_to_nothing():
    found = utilization([0.1, 0.2, 0.3], [10e9, 5e9, 0.0], capacity_bps=10e9)
    assert (found.under_utilization, found.convexity, found.coefficient) == pytest.approx((0.5, 0, 0.5))


@given(st.lists(st.floats(0, 10e9), min_size=7, max_size=7))
def test_profiles_that_fall_score_between_0_and_1(values):
    found = utilization(RTTS, np.sort(np.array(values))[::-1], capacity_bps=10e9)
    assert 0 <= found.under_utilization <= 1
    assert 0 <= found.coefficient <= 1


def test_a_hair_above_capacity_counts_as_capacity():
    found = utilization(RTTS, np.full(7, 10.05e9), capacity_bps=10e9)
    assert found.under_utilization == 0


@pytest.mark.parametrize(
    ("rtts", "values", "capacity", "said"),
    [
        ([0.1], [1e9], 10e9, "at least three RTTs, here are 1"),
        ([0.1, 0.2], [1e9, 1e9], 10e9, "at least three RTTs, here are 2"),
        ([0.1, 0.1, 0.2], [1e9] * 3, 10e9, "finite and grow"),
        ([0.1, 0.2, 0.3], [1e9, float("nan"), 1e9], 10e9, "finite and at least 0"),
        ([0.1, 0.2, 0.3], [11e9, 1e9, 1e9], 10e9, "11.0 Gb/s at 100 ms is above the capacity of 10.0 Gb/s"),
        ([0.1, 0.2, 0.3], [1e9] * 3, 0.0, "a capacity of 0 bit/s"),
        ([0.1, 0.11, 0.39, 0.4], [10e9, 0.0, 0.0, 10e9], 10e9, "rises with RTT"),
    ],
)
def test_what_has_no_utilization_is_a_named_error(rtts, values, capacity, said):
    with pytest.raises(UtilizationError, match=said):
        utilization(rtts, values, capacity_bps=capacity)
