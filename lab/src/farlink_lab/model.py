"""What a connection allows: the limit, slow start then sustainment, and the window's limit.

Symbols as in the throughput-profile studies: τ RTT (s), C goodput capacity (bit/s), B size (bytes), T_O
duration of observation (s), n streams, w0 initial window of a stream (bytes), W window limit of a stream
(bytes), Θ throughput (bit/s). Every function takes RTTs of any shape and gives an array of that shape, and
raises `ModelError` where a value is impossible: an RTT that is not finite or below 0, anything else that is
not finite or not above 0.

Sources: slow start doubles its window every round trip (Jacobson, "Congestion avoidance and control", SIGCOMM
1988; RFC 5681, 3.1) from ten segments (RFC 6928); the two phases, and T_R from the doublings that fill the
connection, are those of Rao and others, "TCP throughput profiles using measurements over dedicated
connections", HPDC 2017. What follows from them by arithmetic is said where it stands.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

# Linux and RFC 6928: ten segments.
INITIAL_SEGMENTS = 10
# Bytes of each packet that are not payload: IPv4 header 20, TCP header 20, timestamps option 12 (RFC 7323).
TCP_IPV4_HEADERS = 52
# Bytes of the wire around each IP packet. Ethernet: preamble 8, header 14, FCS 4, gap 12; SONET: PPP in
# OC-192.
FRAMING_BYTES = {"ethernet": 38, "sonet": 9, "none": 0}


class ModelError(ValueError):
    """A value that nothing can be modelled with."""


def goodput_bps(*, rate_bps: float, mtu: int, framing: str) -> float:
    """C: payload bits per second of TCP over IPv4 with timestamps on a wire of `rate_bps`.

    Raises:
        KeyError: where `framing` is none of `FRAMING_BYTES`.
        ModelError: where the rate is impossible, or the MTU leaves nothing for payload.
    """
    _check(rate_bps=rate_bps)
    if mtu <= TCP_IPV4_HEADERS:
        raise ModelError(f"an MTU of {mtu} bytes: headers alone take {TCP_IPV4_HEADERS}")
    return rate_bps * (mtu - TCP_IPV4_HEADERS) / (mtu + FRAMING_BYTES[framing])


def initial_window_bytes(*, mtu: int) -> int:
    """w0 of one stream, bytes: ten full segments (RFC 6928)."""
    return INITIAL_SEGMENTS * (mtu - TCP_IPV4_HEADERS)


def limit_of_size_bps(rtt_s: ArrayLike, *, capacity_bps: float, size_bytes: float) -> Array:
    """The most that B bytes can average: B / (τ/2 + B/C), bit/s. No transfer beats it.

    The last byte arrives half an RTT after it left, and B bytes take B/C to leave.
    """
    rtt = _rtts(rtt_s)
    _check(capacity_bps=capacity_bps, size_bytes=size_bytes)
    return 8 * size_bytes / (rtt / 2 + 8 * size_bytes / capacity_bps)


def limit_of_duration_bps(rtt_s: ArrayLike, *, capacity_bps: float, duration_s: float) -> Array:
    """The most that can arrive within T of the first byte's leaving: C·(1 − τ/2/T), bit/s, never below 0."""
    _check(capacity_bps=capacity_bps, duration_s=duration_s)
    return capacity_bps * np.clip(1 - _rtts(rtt_s) / 2 / duration_s, 0, None)


def ramp_up_s(rtt_s: ArrayLike, *, capacity_bps: float, streams: float, window_bytes: float) -> Array:
    """T_R = τ·log₂(Cτ/(n·w0)): slow start until n windows fill the connection, seconds; at least 0.

    As departures go; that the bytes arrive takes τ/2 more. Source: Rao and others 2017 (above).
    """
    rtt = _rtts(rtt_s)
    _check(capacity_bps=capacity_bps, streams=streams, window_bytes=window_bytes)
    first = 8 * streams * window_bytes
    return rtt * np.log2(np.maximum(capacity_bps * rtt / first, 1))


def lost_time_s(rtt_s: ArrayLike, *, capacity_bps: float, streams: float, window_bytes: float) -> Array:
    """Lost time x = T_R − τ + n·w0/C: seconds at capacity that slow start costs; 0 where n·w0 ≥ Cτ.

    By T_R the doublings from n·w0 to Cτ have let Cτ − n·w0 leave, for which capacity takes τ − n·w0/C.
    """
    rtt = _rtts(rtt_s)
    _check(capacity_bps=capacity_bps, streams=streams, window_bytes=window_bytes)
    first_s = 8 * streams * window_bytes / capacity_bps
    ramp = ramp_up_s(rtt, capacity_bps=capacity_bps, streams=streams, window_bytes=window_bytes)
    return np.where(first_s >= rtt, 0.0, ramp - rtt + first_s)


def slow_start_of_size_bps(
    rtt_s: ArrayLike,
    *,
    capacity_bps: float,
    size_bytes: float,
    streams: float,
    window_bytes: float,
    arrival: bool = False,
) -> Array:
    """Θ of B bytes with slow start, then at capacity: B / (B/C + x), bit/s.

    Where all the bytes leave within slow start, n·w0·(2^{t/τ} − 1) of them have left after t: the sum of the
    windows that doubled until then. Beyond, x (`lost_time_s`) stands for what slow start did not send.

    Args:
        rtt_s: τ, any shape.
        capacity_bps: C.
        size_bytes: B.
        streams: n.
        window_bytes: w0.
        arrival: Count until the last byte has arrived, half an RTT after it left, as the records do.
    """
    rtt = _rtts(rtt_s)
    _check(size_bytes=size_bytes)
    lost = lost_time_s(rtt, capacity_bps=capacity_bps, streams=streams, window_bytes=window_bytes)
    first = streams * window_bytes
    within = rtt * np.log2(1 + size_bytes / first)
    ramp_bytes = capacity_bps * rtt / 8 - first
    time = np.where(size_bytes < ramp_bytes, within, 8 * size_bytes / capacity_bps + lost)
    return 8 * size_bytes / (time + (rtt / 2 if arrival else 0.0))


def slow_start_of_duration_bps(
    rtt_s: ArrayLike,
    *,
    capacity_bps: float,
    duration_s: float,
    streams: float,
    window_bytes: float,
    arrival: bool = False,
) -> Array:
    """Θ over T_O seconds with slow start, then at capacity: C·(1 − x/T_O), bit/s.

    Where the time is over within slow start, n·w0·(2^{T_O/τ} − 1) bytes have left, as of a fixed size.

    Args:
        rtt_s: τ, any shape.
        capacity_bps: C.
        duration_s: T_O.
        streams: n.
        window_bytes: w0.
        arrival: Count only what has arrived, half an RTT after it left, as the records do.
    """
    rtt = _rtts(rtt_s)
    _check(duration_s=duration_s)
    time = np.clip(duration_s - (rtt / 2 if arrival else 0.0), 0, None)
    ramp = ramp_up_s(rtt, capacity_bps=capacity_bps, streams=streams, window_bytes=window_bytes)
    lost = lost_time_s(rtt, capacity_bps=capacity_bps, streams=streams, window_bytes=window_bytes)
    # The exponent is bounded, before the division, so that the branch not taken cannot overflow.
    doublings = np.divide(np.minimum(time, 500 * rtt), rtt, out=np.zeros_like(rtt), where=rtt > 0)
    within = 8 * streams * window_bytes * (np.exp2(doublings) - 1)
    sent = np.where(time < ramp, within, capacity_bps * (time - lost))
    return np.clip(sent, 0, None) / duration_s


def window_limit_bps(rtt_s: ArrayLike, *, capacity_bps: float, streams: float, window_bytes: float) -> Array:
    """n·W/τ, at most C: what windows of W bytes allow, bit/s; at τ = 0 it is C.

    A stream has at most its window in flight (RFC 9293, 3.8.6; RFC 7323, 1.1).
    """
    rtt = _rtts(rtt_s)
    _check(capacity_bps=capacity_bps, streams=streams, window_bytes=window_bytes)
    allowed = np.full_like(rtt, np.inf)
    np.divide(8 * streams * window_bytes, rtt, out=allowed, where=rtt > 0)
    return np.minimum(allowed, capacity_bps)


def inflection_rtt_s(
    *,
    capacity_bps: float,
    size_bytes: float,
    streams: float,
    window_bytes: float,
    arrival: bool = False,
) -> float:
    """The RTT where the fixed-size profile of `slow_start_of_size_bps` turns from concave to convex, seconds.

    By its second derivative, and a root of that (Brent 1973, scipy's).
    With D = B/C + x, Θ'' has the sign of 2·D'² − D·D'', where D' = log₂(Cτ/(n·w0)) + 1/ln 2 − 1 and
    D'' = 1/(τ·ln 2): negative (concave) just above τ = n·w0/C where B is large, positive far out. That the
    bytes arrive adds τ/2 to D, and 1/2 to D'.

    Raises:
        ModelError: where the profile has no such point, as with sizes below a few windows, too.
    """
    _check(capacity_bps=capacity_bps, size_bytes=size_bytes, streams=streams, window_bytes=window_bytes)
    # Half a second to load, for this function alone.
    from scipy.optimize import brentq  # noqa: PLC0415

    first_s = 8 * streams * window_bytes / capacity_bps
    busy_s = 8 * size_bytes / capacity_bps

    to_arrive = 0.5 if arrival else 0.0

    def sign(rtt: float) -> float:
        doublings = math.log2(rtt / first_s)
        slope = doublings + 1 / math.log(2) - 1 + to_arrive
        total = busy_s + rtt * (doublings - 1 + to_arrive) + first_s
        return 2 * slope**2 - total / (rtt * math.log(2))

    # With L = log₂(Cτ/(n·w0)), D is τ·L at n·w0/C + B/C (τ·(L + 1/2) until arrival), and the sign is positive
    # for every L above 0. Beyond that all bytes leave within slow start, and the formula is another.
    least, most = first_s * 1.0001, first_s + busy_s
    if sign(least) >= 0:
        raise ModelError(f"{size_bytes:.0f} bytes are too few: the fixed-size profile is convex throughout")
    return float(brentq(sign, least, most))


def _rtts(rtt_s: ArrayLike) -> Array:
    rtt = np.asarray(rtt_s, dtype=np.float64)
    if not (np.isfinite(rtt).all() and (rtt >= 0).all()):
        raise ModelError("an RTT is a finite number of seconds, at least 0")
    return rtt


def _check(**values: float) -> None:
    """Refuses what is not finite or not above 0, by its name."""
    for name, value in values.items():
        if not (math.isfinite(value) and value > 0):
            raise ModelError(f"{name} of {value:g}: it must be finite and above 0")
