"""What the model says of a profile that was measured, and how far the measurement lies from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from farlink_lab import model
from farlink_lab.response import RESPONSES, loss_limited_bps

if TYPE_CHECKING:
    from farlink_lab.profile import Profile

Array = NDArray[np.float64]

CURVE_POINTS = 200


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Curve:
    """Θ(τ) on a grid fine enough to draw: both of shape (n,)."""

    rtt_s: Array
    throughput_bps: Array


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prediction:
    """The model of one profile.

    Attributes:
        curve: For drawing.
        at_rtts_bps: At the profile's RTTs, shape (k,).
        residual: (measured median − model) / model at those, shape (k,).
    """

    curve: Curve
    at_rtts_bps: Array
    residual: Array


def grid(rtt_s: Array, *, points: int = CURVE_POINTS) -> Array:
    """RTTs for a curve over the span of `rtt_s`, dense on a linear and on a logarithmic axis."""
    low, high = max(float(rtt_s.min()), 1e-6), max(float(rtt_s.max()), 1e-6)
    if high <= low:
        return np.array([low])
    return np.unique(np.concatenate([np.geomspace(low, high, points), np.linspace(low, high, points)]))


def model_bps(profile: Profile, rtt_s: Array) -> Array | None:
    """Slow start from ten segments a stream, then what limits it first, at any RTTs.

    That is the capacity, the window's limit, or what random losses leave to the congestion control, where it
    has a response function. It counts arrivals, half an RTT after departure, as the records do. `None` where
    the capacity or the packet size is unknown.
    """
    if profile.capacity_bps is None or profile.mtu is None:
        return None
    streams = profile.streams or 1
    capacity = np.full_like(rtt_s, profile.capacity_bps)
    if profile.buffer_bytes is not None:
        capacity = model.window_limit_bps(
            rtt_s, capacity_bps=profile.capacity_bps, streams=streams, window_bytes=profile.buffer_bytes
        )
    if loss_counts(profile):
        # At no RTT at all, losses limit nothing.
        lossy = rtt_s > 0
        capacity[lossy] = np.minimum(
            capacity[lossy],
            loss_limited_bps(
                rtt_s[lossy],
                congestion=profile.congestion or "",
                loss=profile.loss,
                segment_bytes=profile.mtu - model.TCP_IPV4_HEADERS,
                streams=streams,
            ),
        )
    window = model.initial_window_bytes(mtu=profile.mtu)
    values = []
    for rtt, allowed in zip(rtt_s, capacity, strict=True):
        if profile.mode == "size":
            value = model.slow_start_of_size_bps(
                rtt,
                capacity_bps=allowed,
                size_bytes=profile.amount,
                streams=streams,
                window_bytes=window,
                arrival=True,
            )
        else:
            value = model.slow_start_of_duration_bps(
                rtt,
                capacity_bps=allowed,
                duration_s=profile.amount,
                streams=streams,
                window_bytes=window,
                arrival=True,
            )
        values.append(value.item())
    return np.array(values)


def ramp_up_curve(profile: Profile) -> tuple[Array, Array] | None:
    """T_R of slow start on a grid of RTTs, for drawing: seconds both; `None` where the model lacks a fact."""
    if profile.capacity_bps is None or profile.mtu is None:
        return None
    rtts = grid(profile.rtt_s)
    capacity = np.full_like(rtts, profile.capacity_bps)
    streams, window = profile.streams or 1, model.initial_window_bytes(mtu=profile.mtu)
    if profile.buffer_bytes is not None:
        capacity = model.window_limit_bps(
            rtts, capacity_bps=profile.capacity_bps, streams=streams, window_bytes=profile.buffer_bytes
        )
    up = [
        model.ramp_up_s(rtt, capacity_bps=most, streams=streams, window_bytes=window).item()
        for rtt, most in zip(rtts, capacity, strict=True)
    ]
    return rtts, np.array(up)


def loss_counts(profile: Profile) -> bool:
    """Whether the model counts losses: they occur, and the congestion control's response is known."""
    return 0 < profile.loss < 1 and profile.congestion in RESPONSES


def limit_bps(profile: Profile, rtt_s: Array) -> Array | None:
    """The limit that no transfer of the profile's kind beats; `None` where the capacity is unknown."""
    if profile.capacity_bps is None:
        return None
    if profile.mode == "size":
        return model.limit_of_size_bps(rtt_s, capacity_bps=profile.capacity_bps, size_bytes=profile.amount)
    return model.limit_of_duration_bps(rtt_s, capacity_bps=profile.capacity_bps, duration_s=profile.amount)


def predict(profile: Profile) -> Prediction | None:
    """The model of `profile`, for drawing and against its medians."""
    at_rtts = model_bps(profile, profile.rtt_s)
    rtts = grid(profile.rtt_s)
    curve = model_bps(profile, rtts)
    if at_rtts is None or curve is None or not (at_rtts > 0).all():
        return None
    return Prediction(
        curve=Curve(rtt_s=rtts, throughput_bps=curve),
        at_rtts_bps=at_rtts,
        residual=profile.median_bps / at_rtts - 1,
    )


def limit_curve(profile: Profile) -> Curve | None:
    """The limit of `profile`, for drawing."""
    rtts = grid(profile.rtt_s)
    values = limit_bps(profile, rtts)
    return None if values is None else Curve(rtt_s=rtts, throughput_bps=values)
