"""How much of a connection a profile uses over its RTTs, and how it bends: C_U, C_CC and UCC.

The utilization-concavity coefficient comes from the file-transfer studies (Liu, Rao and others). Their
formula could not be obtained: what is here is our reading of its description, and every output says so
(`READING`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from farlink_lab.quantity import show_rate, show_time

Array = NDArray[np.float64]

READING = (
    "With u = (τ − τ_min)/(τ_max − τ_min) and y = Θ/C: C_U = ∫(1 − y)du, C_CC = ∫(straight line between the "
    "ends − y)du, UCC = ½[(1 − C_U) + (½ − C_CC)], by trapezoids over the measured RTTs. "
    "C_U, C_CC and UCC are our reading of a published description, whose formula could not be obtained. They "
    "belong together: UCC alone can mislead. A flat profile at capacity scores 0.75; and with windows of "
    "256 KB ten streams are faster than one at every RTT and yet score lower, 0.038 against 0.132."
)
# Clocks of movers are good to a few parts in a thousand; what is above capacity by more was not measured
# against that capacity.
ABOVE_CAPACITY = 0.01


class UtilizationError(ValueError):
    """A profile that has no utilization."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Utilization:
    """Three coefficients that are told together.

    Attributes:
        under_utilization: C_U = ∫(1 − y)du, in [0, 1]: the share of the connection left unused.
        convexity: C_CC = ∫(linear interpolation − y)du: positive where the profile lies below the straight
            line between its ends (convex), negative above (concave).
        coefficient: UCC = ½[(1 − C_U) + (½ − C_CC)], in [0, 1].
        first_s: τ_min, the first RTT.
        last_s: τ_max, the last.
    """

    under_utilization: float
    convexity: float
    coefficient: float
    first_s: float
    last_s: float


def utilization(rtt_s: ArrayLike, throughput_bps: ArrayLike, *, capacity_bps: float) -> Utilization:
    """C_U, C_CC and UCC by trapezoids over the measured RTTs, u = (τ − τ_min)/(τ_max − τ_min), y = Θ/C.

    They depend on the RTTs that were measured: only profiles over the same RTTs can be compared.

    Args:
        rtt_s: τ, shape (k,), growing, k ≥ 3: between two, a profile is its own straight line.
        throughput_bps: Mean Θ at each, shape (k,), at least 0, bit/s. What is above C by at most
            `ABOVE_CAPACITY` counts as C.
        capacity_bps: C, above 0.

    Raises:
        UtilizationError: with fewer than three RTTs, RTTs that do not grow, a throughput that is no number,
            negative or above capacity, and where UCC would leave [0, 1], as it can where Θ rises with RTT.
    """
    rtts = np.asarray(rtt_s, dtype=np.float64)
    means = np.asarray(throughput_bps, dtype=np.float64)
    if rtts.ndim != 1 or rtts.shape != means.shape or len(rtts) < 3:
        raise UtilizationError(f"utilization needs at least three RTTs, here are {rtts.size}")
    if not np.isfinite(rtts).all() or (np.diff(rtts) <= 0).any():
        raise UtilizationError("RTTs must be finite and grow")
    if not (np.isfinite(means).all() and (means >= 0).all()):
        raise UtilizationError("throughputs must be finite and at least 0")
    if not (np.isfinite(capacity_bps) and capacity_bps > 0):
        raise UtilizationError(f"a capacity of {capacity_bps:g} bit/s: it must be finite and above 0")
    if above := above_capacity(rtts, means, capacity_bps=capacity_bps):
        raise UtilizationError(above)
    u = (rtts - rtts[0]) / (rtts[-1] - rtts[0])
    y = np.minimum(means / capacity_bps, 1.0)
    unused = float(np.trapezoid(1 - y, u))
    bow = float(convexity(rtts, y))
    coefficient = 0.5 * ((1 - unused) + (0.5 - bow))
    if not -1e-9 <= coefficient <= 1 + 1e-9:
        raise UtilizationError(
            f"UCC would be {coefficient:.3f}, outside 0 to 1: the throughput rises with RTT, which it is not "
            "made for"
        )
    return Utilization(
        under_utilization=unused,
        convexity=bow,
        coefficient=min(max(coefficient, 0.0), 1.0),
        first_s=float(rtts[0]),
        last_s=float(rtts[-1]),
    )


def above_capacity(rtt_s: ArrayLike, throughput_bps: ArrayLike, *, capacity_bps: float) -> str:
    """What of a profile lies above its capacity by more than `ABOVE_CAPACITY`, and the likely cause.

    For a person; empty where nothing does.

    Args:
        rtt_s: τ, shape (k,), s.
        throughput_bps: Θ at each, shape (k,), k ≥ 1, bit/s.
        capacity_bps: C, bit/s.
    """
    means = np.asarray(throughput_bps, dtype=np.float64)
    highest = int(np.argmax(means))
    if not means[highest] > (1 + ABOVE_CAPACITY) * capacity_bps:
        return ""
    return (
        f"{show_rate(means[highest])} at {show_time(np.asarray(rtt_s)[highest])} is above the capacity of "
        f"{show_rate(capacity_bps)}: the rate that was named is likely wrong, as by --rate at import"
    )


def convexity(rtt_s: Array, share: Array) -> Array:
    """C_CC = ∫(linear interpolation − y)du of profiles y = Θ/C over the same RTTs.

    Args:
        rtt_s: τ, shape (k,), growing, k ≥ 2, s.
        share: y, shape (..., k), finite.

    Returns:
        Shape (...); positive is convex, negative concave.

    Raises:
        UtilizationError: with fewer than two RTTs, RTTs that do not grow, or a share that is no number.
    """
    if rtt_s.ndim != 1 or len(rtt_s) < 2 or share.shape[-1:] != rtt_s.shape:
        raise UtilizationError(
            f"concavity needs at least two RTTs, each with its share; here are {rtt_s.size}"
        )
    if not np.isfinite(rtt_s).all() or (np.diff(rtt_s) <= 0).any():
        raise UtilizationError("RTTs must be finite and grow")
    if not np.isfinite(share).all():
        raise UtilizationError("shares of the capacity must be finite")
    u = (rtt_s - rtt_s[0]) / (rtt_s[-1] - rtt_s[0])
    first, last = share[..., :1], share[..., -1:]
    bow: Array = np.trapezoid(first + (last - first) * u - share, u, axis=-1)
    return bow
