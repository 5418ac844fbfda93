"""What the model expects of a choice before anything is measured, and which limit makes it so.

The formulas and their sources are those of `model` and `response`. Choices, tasks and wires that cannot be
are refused where they are made.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypedDict

import numpy as np
from numpy.typing import NDArray

from farlink_lab import model
from farlink_lab.response import RESPONSES, loss_limited_bps

if TYPE_CHECKING:
    from farlink_lab.choice import Choice, Task

Array = NDArray[np.float64]


class _Facts(TypedDict):
    capacity_bps: float
    streams: float
    window_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """The connection, whatever its length.

    Attributes:
        rate_bps: Of the wire.
        capacity_bps: C, what is left of it for payload.
        mtu: Largest IP packet, bytes.
        loss: Probability that a segment is lost, at least 0 and less than 1.

    Raises:
        ModelError: where one of them is not finite, impossible, or the MTU leaves nothing for payload.
    """

    rate_bps: float
    capacity_bps: float
    mtu: int
    loss: float = 0.0

    def __post_init__(self) -> None:
        for name, rate in (("rate", self.rate_bps), ("capacity", self.capacity_bps)):
            if not (math.isfinite(rate) and rate > 0):
                raise model.ModelError(f"a {name} of {rate:g} bit/s: it must be finite and above 0")
        if self.mtu <= model.TCP_IPV4_HEADERS:
            raise model.ModelError(f"an MTU of {self.mtu} bytes: headers alone take {model.TCP_IPV4_HEADERS}")
        if not 0 <= self.loss < 1:
            raise model.ModelError(f"a loss of {self.loss:g}: it must be at least 0 and less than 1")


def expected_bps(choice: Choice, rtt_s: Array, *, task: Task, wire: Wire) -> Array:
    """Θ by the model: slow start, then the least of capacity, window's limit and losses' limit, bit/s.

    A declared rate is held from the first segment on: nothing but half a round trip is lost.

    Args:
        choice: What is chosen.
        rtt_s: τ, shape (k,), seconds, above 0.
        task: What is done.
        wire: Over which connection.

    Returns:
        Shape (k,), at least 1.

    Raises:
        ModelError: where an RTT is not finite or not above 0.
    """
    for rtt in rtt_s:
        _check(float(rtt))
    return np.array([_expected_bps(choice, float(rtt), task=task, wire=wire) for rtt in rtt_s])


def limit_bps(rtt_s: float, *, task: Task, wire: Wire) -> float:
    """The limit that no transfer beats, bit/s, at an RTT of at least 0 s; 0 where nothing can arrive.

    Raises:
        ModelError: where the RTT is not finite or below 0.
    """
    if task.mode == "size":
        limit = model.limit_of_size_bps(rtt_s, capacity_bps=wire.capacity_bps, size_bytes=task.amount)
    else:
        limit = model.limit_of_duration_bps(rtt_s, capacity_bps=wire.capacity_bps, duration_s=task.amount)
    return float(limit)


def most_bps(choice: Choice, rtt_s: float, *, task: Task, wire: Wire) -> float:
    """What a prediction may say at most, bit/s: the limit, and of a fixed buffer the model without it.

    Windows hold more than was asked for, by a share that shows only where they bind.

    Raises:
        ModelError: where the RTT (s) is not finite or not above 0.
    """
    _check(rtt_s)
    limit = max(limit_bps(rtt_s, task=task, wire=wire), 1.0)
    if choice.buffer_bytes is None or (choice.streams is None and not choice.streams_seen):
        return limit
    return min(limit, _expected_bps(replace(choice, buffer_bytes=None), rtt_s, task=task, wire=wire))


def window_binds_s(choice: Choice, *, wire: Wire) -> float | None:
    """The RTT from which n windows of W bytes hold less than the connection, n·W/C, seconds.

    `None` where the kernel tunes the buffers, or the path decides how many windows there are.
    """
    if choice.buffer_bytes is None or choice.streams is None:
        return None
    return 8 * choice.streams * choice.buffer_bytes / wire.capacity_bps


def loss_limit_bps(choice: Choice, rtt_s: float, *, wire: Wire) -> float | None:
    """What losses leave by the published response of the congestion control, bit/s; `None` where unknown.

    Raises:
        ModelError: where the RTT (s) is not finite or not above 0.
    """
    _check(rtt_s)
    congestion = choice.congestion_at(rtt_s)
    if not 0 < wire.loss < 1 or congestion not in RESPONSES:
        return None
    return float(
        loss_limited_bps(
            rtt_s,
            congestion=congestion,
            loss=wire.loss,
            segment_bytes=wire.mtu - model.TCP_IPV4_HEADERS,
            streams=choice.streams_at(rtt_s),
        )
    )


def knows_losses(choice: Choice) -> bool:
    """Whether the model knows what a loss does to it, wherever it was measured."""
    seen = [name for _, name in choice.congestion_seen] or [choice.congestion]
    return all(name in RESPONSES for name in seen)


def lost_s(choice: Choice, rtt_s: float, *, wire: Wire) -> float:
    """Seconds at capacity that slow start costs, by the model; 0 where a declared rate is held.

    Raises:
        ModelError: where the RTT (s) is not finite or not above 0.
    """
    _check(rtt_s)
    if choice.declared_bps is not None:
        return 0.0
    window = model.initial_window_bytes(mtu=wire.mtu)
    allowed, streams = _allowed_bps(choice, rtt_s, wire=wire), choice.streams_at(rtt_s)
    return float(model.lost_time_s(rtt_s, capacity_bps=allowed, streams=streams, window_bytes=window))


def _check(rtt_s: float) -> None:
    if not (math.isfinite(rtt_s) and rtt_s > 0):
        raise model.ModelError(f"an RTT of {rtt_s:g} s: it must be finite and above 0")


def _allowed_bps(choice: Choice, rtt_s: float, *, wire: Wire) -> float:
    allowed = wire.capacity_bps
    if choice.declared_bps is not None:
        allowed *= min(choice.declared_bps / wire.rate_bps, 1.0)
    if choice.buffer_bytes is not None:
        allowed = model.window_limit_bps(
            rtt_s,
            capacity_bps=allowed,
            streams=choice.streams_at(rtt_s),
            window_bytes=choice.buffer_bytes,
        ).item()
    losses = loss_limit_bps(choice, rtt_s, wire=wire)
    return allowed if losses is None else min(allowed, losses)


def _expected_bps(choice: Choice, rtt_s: float, *, task: Task, wire: Wire) -> float:
    allowed = _allowed_bps(choice, rtt_s, wire=wire)
    if choice.declared_bps is not None:
        held = Wire(rate_bps=wire.rate_bps, capacity_bps=allowed, mtu=wire.mtu)
        return max(limit_bps(rtt_s, task=task, wire=held), 1.0)
    facts: _Facts = {
        "capacity_bps": allowed,
        "streams": choice.streams_at(rtt_s),
        "window_bytes": model.initial_window_bytes(mtu=wire.mtu),
    }
    if task.mode == "size":
        value = model.slow_start_of_size_bps(rtt_s, size_bytes=task.amount, arrival=True, **facts)
    else:
        value = model.slow_start_of_duration_bps(rtt_s, duration_s=task.amount, arrival=True, **facts)
    # A duration below half an RTT lets nothing arrive, which has no logarithm.
    return max(float(value), 1.0)
