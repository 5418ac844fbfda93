"""The model against the check values of the studies: 10 Gb/s, ten 1500-byte packets, one stream, no loss."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from farlink_lab import model

STUDY = {"capacity_bps": 10e9, "window_bytes": 15_000}


def test_fixed_size_throughputs():
    rtts = [0.0118, 0.0456, 0.0916, 0.183, 0.366]
    found = model.slow_start_of_size_bps(rtts, size_bytes=10e9, streams=1, **STUDY) / 1e9
    assert np.round(found, 2).tolist() == [9.87, 9.42, 8.80, 7.72, 6.11]


@pytest.mark.parametrize(
    ("size", "streams", "rtt_ms"), [(10e9, 1, 41), (10e9, 10, 67), (1e9, 1, 6.7), (100e9, 1, 271)]
)
def test_inflections(size, streams, rtt_ms):
    found = 1e3 * model.inflection_rtt_s(size_bytes=size, streams=streams, **STUDY)
    assert found == pytest.approx(rtt_ms, rel=0.01)


def test_the_inflection_is_where_the_curvature_changes_sign():
    at = model.inflection_rtt_s(size_bytes=10e9, streams=1, **STUDY)
    for factor, sign in ((0.8, -1), (1.25, 1)):
        rtts = at * factor * np.array([0.999, 1.0, 1.001])
        low, middle, high = model.slow_start_of_size_bps(rtts, size_bytes=10e9, streams=1, **STUDY)
        assert np.sign(low + high - 2 * middle) == sign


@pytest.mark.parametrize(
    ("size", "rtt_ms"), [(1e9, 9.78), (2.0 * 2**30, 17.2), (10e9, 55.8), (100e9, 352), (1e18, None)]
)
def test_until_arrival_too_it_is_where_the_numeric_second_derivative_changes_sign(size, rtt_ms):
    start = {
        "capacity_bps": model.goodput_bps(rate_bps=10e9, mtu=9000, framing="ethernet"),
        "size_bytes": size,
        "streams": 1,
        "window_bytes": model.initial_window_bytes(mtu=9000),
        "arrival": True,
    }
    at = model.inflection_rtt_s(**start)
    assert rtt_ms is None or 1e3 * at == pytest.approx(rtt_ms, rel=2e-3)
    rtts = at * np.array([0.99, 1.01])
    step = 1e-3 * rtts
    below, here, above = (model.slow_start_of_size_bps(rtts + off, **start) for off in (-step, 0, step))
    assert np.sign(below + above - 2 * here).tolist() == [-1, 1]


@pytest.mark.parametrize("size", [1e12, 1e14, 1e18, 2.0**60])
@pytest.mark.parametrize("capacity", [1e3, 0.94e9, 10e12])
def test_however_long_a_transfer_is_its_inflection_is_found(size, capacity):
    start = {"capacity_bps": capacity, "size_bytes": size, "streams": 1, "window_bytes": 15e3}
    at = model.inflection_rtt_s(**start)
    rtts = at * np.array([0.5, 0.99, 1.01, 2.0])
    step = 1e-3 * rtts
    below, here, above = (model.slow_start_of_size_bps(rtts + off, **start) for off in (-step, 0, step))
    assert np.sign(below + above - 2 * here).tolist() == [-1, -1, 1, 1]


def test_a_few_windows_have_no_inflection():
    with pytest.raises(ValueError, match="convex throughout"):
        model.inflection_rtt_s(size_bytes=1000, streams=1, **STUDY)


def test_window_limits():
    found = model.window_limit_bps([0.0118, 0.366], capacity_bps=10e9, streams=1, window_bytes=256_000)
    assert found[0] / 1e6 == pytest.approx(174, abs=0.5)
    assert found[1] / 1e6 == pytest.approx(5.6, abs=0.05)
    assert model.window_limit_bps(0.0, capacity_bps=10e9, streams=1, window_bytes=256_000) == 10e9


def test_no_time_is_lost_where_the_first_windows_fill_the_connection():
    assert model.lost_time_s(1e-6, streams=1, **STUDY) == 0
    assert model.ramp_up_s(1e-6, streams=1, **STUDY) == 0


def test_goodput_of_the_default_connection():
    assert model.goodput_bps(rate_bps=10e9, mtu=9000, framing="ethernet") == pytest.approx(9.900420447e9)


@given(
    rtt=st.floats(0, 2), size=st.floats(1e3, 1e13), seconds=st.floats(0.1, 1e4), streams=st.integers(1, 512)
)
@example(rtt=2.225073858507203e-309, size=1e3, seconds=1.0, streams=1)
def test_the_model_never_beats_the_limit(rtt, size, seconds, streams):
    slow = model.slow_start_of_size_bps(rtt, size_bytes=size, streams=streams, arrival=True, **STUDY)
    assert slow <= model.limit_of_size_bps(rtt, capacity_bps=10e9, size_bytes=size) * (1 + 1e-9)
    slow = model.slow_start_of_duration_bps(rtt, duration_s=seconds, streams=streams, arrival=True, **STUDY)
    limit = model.limit_of_duration_bps(rtt, capacity_bps=10e9, duration_s=seconds)
    assert 0 <= slow <= limit * (1 + 1e-9) + 1e-3


FUNCTIONS = {
    model.limit_of_size_bps: {"capacity_bps": 1e9, "size_bytes": 1e9},
    model.limit_of_duration_bps: {"capacity_bps": 1e9, "duration_s": 10.0},
    model.ramp_up_s: {"streams": 1, **STUDY},
    model.lost_time_s: {"streams": 1, **STUDY},
    model.slow_start_of_size_bps: {"size_bytes": 1e9, "streams": 1, **STUDY},
    model.slow_start_of_duration_bps: {"duration_s": 10.0, "streams": 1, **STUDY},
    model.window_limit_bps: {"streams": 1, **STUDY},
}


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0, 0.0])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_impossible_values_are_refused_by_their_name(function, bad):
    for name in FUNCTIONS[function]:
        with pytest.raises(model.ModelError, match=f"{name} of .*: it must be finite and above 0"):
            function(0.1, **{**FUNCTIONS[function], name: bad})
    with pytest.raises(model.ModelError, match="capacity_bps"):
        model.inflection_rtt_s(size_bytes=1e9, streams=1, window_bytes=15_000, capacity_bps=bad)
    with pytest.raises(model.ModelError, match="rate_bps"):
        model.goodput_bps(rate_bps=bad, mtu=9000, framing="ethernet")


def test_an_mtu_of_headers_alone_is_refused():
    with pytest.raises(model.ModelError, match="an MTU of 52 bytes"):
        model.goodput_bps(rate_bps=1e9, mtu=52, framing="none")


@pytest.mark.parametrize("rtt", [-1.0, float("nan"), float("inf")])
def test_impossible_rtts_are_refused(rtt):
    with pytest.raises(ValueError, match="finite number of seconds"):
        model.ramp_up_s(rtt, streams=1, **STUDY)
