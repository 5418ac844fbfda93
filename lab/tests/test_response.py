"""Response functions against the values that their sources print, and against a sawtooth stepped by hand."""

from __future__ import annotations

import numpy as np
import pytest

from farlink_lab.response import (
    RESPONSES,
    ResponseError,
    cubic_window,
    htcp_window,
    loss_limited_bps,
    reno_window,
    scalable_window,
)


@pytest.mark.parametrize(
    ("rtt", "loss", "window"),
    [(0.1, 1e-5, 1054), (0.1, 1e-6, 5926), (0.1, 1e-8, 187400), (0.01, 1e-7, 5926), (0.01, 1e-8, 33325)],
)
def test_cubic_is_the_table_of_its_standard(rtt, loss, window):
    # RFC 9438, tables 1 and 2, for C = 0.4.
    assert cubic_window(np.array([rtt]), loss)[0] == pytest.approx(window, rel=0.002)


def test_cubic_is_never_below_reno():
    rtts = np.array([0.001, 0.01, 0.1])
    for loss in (1e-2, 1e-4, 1e-6):
        assert (cubic_window(rtts, loss) >= reno_window(rtts, loss)).all()
    assert cubic_window(np.array([0.01]), 1e-3)[0] == reno_window(np.array([0.01]), 1e-3)[0]


def test_reno_is_the_square_root_law():
    # RFC 3649, 2: 1.2/√p; at p = 10⁻² it is 12 segments.
    assert reno_window(np.array([0.1]), 1e-2)[0] == pytest.approx(12.2, abs=0.1)


def test_scalable_falls_with_one_over_p():
    windows = [scalable_window(np.array([0.1]), loss)[0] for loss in (1e-4, 1e-5)]
    assert windows == pytest.approx([800, 8000])


@pytest.mark.parametrize(("rtt", "loss"), [(0.0456, 1e-4), (0.1, 1e-6), (0.366, 1e-5)])
def test_htcp_is_its_sawtooth_stepped_round_trip_by_round_trip(rtt, loss):
    scaling = min(max(10 * rtt, 0.1), 2.0)
    window, sent, since, losses = 100.0, 0.0, 0.0, []
    total, began = 0.0, 0.0
    clock = 0.0
    while len(losses) < 60:
        step = rtt / 20
        beyond = max(since - 1, 0.0)
        window += max(1.0, scaling * (1 + 10 * beyond + (beyond / 2) ** 2)) * step / rtt
        sent += window * step / rtt
        total += window * step / rtt
        since += step
        clock += step
        if sent >= 1 / loss:
            sent, since = 0.0, 0.0
            window *= 0.5
            losses.append(clock)
            if len(losses) == 30:
                total, began = 0.0, clock
    stepped = total / (clock - began) * rtt
    assert htcp_window(np.array([rtt]), loss)[0] == pytest.approx(stepped, rel=0.03)


def test_htcp_that_loses_each_second_is_reno():
    rtts = np.array([0.05])
    assert htcp_window(rtts, 1e-2)[0] == pytest.approx(reno_window(rtts, 1e-2)[0], rel=0.01)


def test_rates_are_windows_over_round_trips_and_streams_add_up():
    one = loss_limited_bps([0.1, 0.2], congestion="reno", loss=1e-4, segment_bytes=1448)
    assert one[0] == pytest.approx(8 * 1448 * np.sqrt(1.5e4) / 0.1)
    assert one[1] == pytest.approx(one[0] / 2)
    ten = loss_limited_bps([0.1, 0.2], congestion="reno", loss=1e-4, segment_bytes=1448, streams=10)
    assert ten == pytest.approx(10 * one)


@pytest.mark.parametrize("congestion", sorted(RESPONSES))
def test_rates_fall_with_rtt_and_with_loss(congestion):
    rtts = [0.0004, 0.0118, 0.0456, 0.183, 0.366]
    rates = [
        loss_limited_bps(rtts, congestion=congestion, loss=loss, segment_bytes=1448)
        for loss in (1e-3, 1e-5, 1e-7)
    ]
    # H-TCP's growth per second does not depend on RTT between its bounds: its rate then hardly does.
    assert all((np.diff(rate) <= 0.15 * rate[:-1]).all() for rate in rates)
    assert (rates[0] < rates[1]).all()
    assert (rates[1] < rates[2]).all()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"congestion": "bbr"}, "no response function for 'bbr'"),
        ({"loss": 0.0}, "a loss probability of 0"),
        ({"loss": 1.0}, "between 0 and 1"),
        ({"loss": float("nan")}, "between 0 and 1"),
        ({"rtt_s": 0.0}, "finite and above 0"),
        ({"rtt_s": float("nan")}, "finite and above 0"),
    ],
)
def test_what_has_no_rate_is_a_named_error(changes, said):
    good = {"rtt_s": 0.1, "congestion": "cubic", "loss": 1e-4, "segment_bytes": 1448}
    with pytest.raises(ResponseError, match=said):
        loss_limited_bps(**{**good, **changes})
