"""What the model says of a profile that was measured, and how far the measurement lies from it.

The formulas and their sources are those of `model` and of `response`. Functions of a profile and RTTs take
RTTs of shape (k,) in seconds, and raise `ModelError` where an RTT is not finite or below 0, or the profile
says what cannot be, as a buffer of 0 bytes; `why_unmodelled` says so beforehand, and `predict` heeds it.
"""

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
    """Θ(τ) on a grid fine enough to draw: seconds and bit/s, both of shape (n,)."""

    rtt_s: Array
    throughput_bps: Array


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prediction:
    """The model of one profile.

    Attributes:
        curve: For drawing.
        at_rtts_bps: At the profile's RTTs, shape (k,), bit/s.
        residual: (measured median − model) / model at those, shape (k,).
        ramp_up_s: T_R of the model at those, until the bytes have left, shape (k,), s.
        lost_s: x of the model at those, shape (k,), s.
    """

    curve: Curve
    at_rtts_bps: Array
    residual: Array
    ramp_up_s: Array
    lost_s: Array


def grid(rtt_s: Array, *, points: int = CURVE_POINTS) -> Array:
    """RTTs for a curve over the span of `rtt_s`, dense on a linear and on a logarithmic axis.

    Args:
        rtt_s: Shape (k,), k ≥ 1, s.
        points: On each axis.

    Returns:
        Shape (n,), n ≤ 2·points, growing, s; one RTT where the span is none.

    Raises:
        ModelError: without RTTs, or where one is not finite or below 0.
    """
    if len(rtt_s) == 0 or not (np.isfinite(rtt_s) & (rtt_s >= 0)).all():
        raise model.ModelError("a curve needs RTTs, each a finite number of seconds, at least 0")
    low, high = max(float(rtt_s.min()), 1e-6), max(float(rtt_s.max()), 1e-6)
    if high <= low:
        return np.array([low])
    return np.unique(np.concatenate([np.geomspace(low, high, points), np.linspace(low, high, points)]))


def model_bps(profile: Profile, rtt_s: Array) -> Array | None:
    """Slow start from ten segments a stream, then what limits it first (`allowed_bps`), at any RTTs.

    A declared rate is held from the first segment on: that has the limit for its model. It counts arrivals,
    half an RTT after departure, as the records do. `None` where the capacity or the packet size is unknown.

    Returns:
        Shape (k,), bit/s.

    Raises:
        ModelError: as all of this file.
    """
    allowed = allowed_bps(profile, rtt_s)
    if allowed is None or profile.mtu is None:
        return None
    window = model.initial_window_bytes(mtu=profile.mtu)
    values = []
    for rtt, rate, streams in zip(rtt_s, allowed, profile.streams_at(rtt_s), strict=True):
        if profile.declared_bps is not None:
            value = _limit_bps(profile, rtt, capacity_bps=rate)
        elif profile.mode == "size":
            value = model.slow_start_of_size_bps(
                rtt,
                capacity_bps=rate,
                size_bytes=profile.amount,
                streams=streams,
                window_bytes=window,
                arrival=True,
            )
        else:
            value = model.slow_start_of_duration_bps(
                rtt,
                capacity_bps=rate,
                duration_s=profile.amount,
                streams=streams,
                window_bytes=window,
                arrival=True,
            )
        values.append(value.item())
    return np.array(values)


def allowed_bps(profile: Profile, rtt_s: Array) -> Array | None:
    """What the model sustains at any RTTs, shape (k,), bit/s; `None` where the capacity is unknown.

    That is the least of the capacity, the windows' limit, a declared rate, and what random losses leave to
    the congestion control, where it has a response function.

    Raises:
        ModelError: as all of this file.
    """
    if profile.capacity_bps is None:
        return None
    counts = profile.streams_at(rtt_s)
    allowed = np.full_like(rtt_s, profile.capacity_bps)
    if profile.declared_bps is not None and profile.rate_bps:
        allowed *= min(profile.declared_bps / profile.rate_bps, 1.0)
    if profile.buffer_bytes is not None:
        windows = [
            model.window_limit_bps(
                rtt, capacity_bps=profile.capacity_bps, streams=streams, window_bytes=profile.buffer_bytes
            ).item()
            for rtt, streams in zip(rtt_s, counts, strict=True)
        ]
        allowed = np.minimum(allowed, windows)
    if loss_counts(profile) and profile.mtu is not None:
        controls = [profile.congestion_at(float(rtt)) for rtt in rtt_s]
        for control in RESPONSES.keys() & set(controls):
            # At no RTT at all, losses limit nothing.
            lossy = (rtt_s > 0) & np.array([one == control for one in controls])
            allowed[lossy] = np.minimum(
                allowed[lossy],
                loss_limited_bps(
                    rtt_s[lossy],
                    congestion=control,
                    loss=profile.loss,
                    segment_bytes=profile.mtu - model.TCP_IPV4_HEADERS,
                )
                * counts[lossy],
            )
    return allowed


def slow_start(profile: Profile, rtt_s: Array) -> tuple[Array, Array] | None:
    """T_R and x of slow start until the model sustains what it may, at any RTTs: seconds, each of shape (k,).

    Both are 0 where a declared rate is held; `None` where the capacity or the packet size is unknown.

    Raises:
        ModelError: as all of this file.
    """
    allowed = allowed_bps(profile, rtt_s)
    if allowed is None or profile.mtu is None:
        return None
    if profile.declared_bps is not None:
        return np.zeros_like(rtt_s), np.zeros_like(rtt_s)
    window = model.initial_window_bytes(mtu=profile.mtu)
    up, lost = (
        np.array(
            [
                function(rtt, capacity_bps=rate, streams=streams, window_bytes=window).item()
                for rtt, rate, streams in zip(rtt_s, allowed, profile.streams_at(rtt_s), strict=True)
            ]
        )
        for function in (model.ramp_up_s, model.lost_time_s)
    )
    return up, lost


def ramp_up_curve(profile: Profile) -> tuple[Array, Array] | None:
    """T_R of slow start on a grid of RTTs, for drawing, seconds both; `None` where there is none to draw.

    It counts arrivals, half an RTT after departure, as the T_R of a run's samples does (`phases`).
    """
    if profile.declared_bps is not None or why_unmodelled(profile):
        return None
    rtts = grid(profile.rtt_s)
    found = slow_start(profile, rtts)
    return None if found is None else (rtts, found[0] + rtts / 2)


def loss_counts(profile: Profile) -> bool:
    """Whether the model counts losses: they occur, and the congestion control's response is known.

    Where the sender chose by the path, that of one of its congestion controls: the model counts none at RTTs
    with others.
    """
    controls = profile.congestion_usual if profile.congestion_chosen else (profile.congestion,)
    return 0 < profile.loss < 1 and any(control in RESPONSES for control in controls)


def limit_bps(profile: Profile, rtt_s: Array) -> Array | None:
    """The limit that no transfer of the profile's kind beats, shape (k,), bit/s.

    `None` where C is unknown, or nothing moved.

    Raises:
        ModelError: as all of this file.
    """
    if profile.capacity_bps is None or profile.amount <= 0:
        return None
    return _limit_bps(profile, rtt_s, capacity_bps=profile.capacity_bps)


def _limit_bps(profile: Profile, rtt_s: Array, *, capacity_bps: float) -> Array:
    if profile.mode == "size":
        return model.limit_of_size_bps(rtt_s, capacity_bps=capacity_bps, size_bytes=profile.amount)
    return model.limit_of_duration_bps(rtt_s, capacity_bps=capacity_bps, duration_s=profile.amount)


def why_unmodelled(profile: Profile) -> str:
    """Why the model says nothing of a profile; empty where it does.

    Of a profile above its capacity it does not: that capacity is not what was measured.
    """
    if profile.above_capacity:
        return profile.above_capacity
    try:
        values = model_bps(profile, profile.rtt_s)
    except model.ModelError as error:
        return str(error)
    if values is None:
        return "the capacity or the packet size is unknown"
    if not (values > 0).all():
        return "the model says that nothing arrives at one of the RTTs: there is nothing to compare with"
    return ""


def predict(profile: Profile) -> Prediction | None:
    """The model of `profile`, for drawing and against its medians; `None` where `why_unmodelled` says why."""
    if why_unmodelled(profile):
        return None
    at_rtts = model_bps(profile, profile.rtt_s)
    rtts = grid(profile.rtt_s)
    curve = model_bps(profile, rtts)
    started = slow_start(profile, profile.rtt_s)
    if at_rtts is None or curve is None or started is None:
        return None
    return Prediction(
        curve=Curve(rtt_s=rtts, throughput_bps=curve),
        at_rtts_bps=at_rtts,
        residual=profile.median_bps / at_rtts - 1,
        ramp_up_s=started[0],
        lost_s=started[1],
    )


def limit_curve(profile: Profile) -> Curve | None:
    """The limit of `profile`, for drawing; `None` where C is unknown, or nothing moved."""
    rtts = grid(profile.rtt_s)
    values = limit_bps(profile, rtts)
    return None if values is None else Curve(rtt_s=rtts, throughput_bps=values)
