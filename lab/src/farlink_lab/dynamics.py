"""The dynamics of a sustained transfer: its Poincaré map X_{i+1} = M(X_i), and the map's Lyapunov exponent.

Estimator. The map's slope at each X_i is that of a straight line, fitted by least squares to the pairs with
the nearest X (local linear regression); how many pairs is what best foretells each X_{i+1} from the others
(leave-one-out). The exponent is the mean of ln|slope| over the pairs: below 0 small disturbances fade, above
0 they grow.

Steps. What a window limits arrives as a burst a round trip, and a sample that is no whole number of round
trips has now one burst more, now one less: a scatter, even a map, of the clock that sampled it. So as many
samples make one X_i as leave that scatter below `ALIASED`.

Limits. Samples are noisy means over an interval. Noise in X flattens the slopes of neighbours that it has
mixed, and where X says nothing of the next X, slopes are noise and their logarithms mean nothing. So an
exponent is told only where the map foretells clearly more than the mean does (`FORETOLD`); else the answer is
"no map" and its reason. A constant with noise has none.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence

Array = NDArray[np.float64]

LEAST_PAIRS = 20
LEAST_NEIGHBOURS = 7
# Intervals that differ by more, relatively, are not steps of one map.
SAME_INTERVAL = 0.01
# The variance foretold must exceed this many times 1/n: fewer than 1% of sequences of independent values
# reach it by chance, with the best of all neighbourhoods (`test_noise_has_no_map`).
FORETOLD = 12.0
NO_MAP = "no map: a sample says no more of the next one than their mean does, as with noise about a constant"
# The most that the number of bursts in a step may vary, relatively.
ALIASED = 0.03
# |slope| below is none: ln of it would be −∞ and rule the mean.
LEAST_SLOPE = 1e-6


class DynamicsError(ValueError):
    """Samples that have no Poincaré map."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dynamics:
    """A Poincaré map, and what follows from it.

    Attributes:
        current: X_i, shape (n,).
        following: X_{i+1}, shape (n,).
        lyapunov: Mean ln|dM/dX|, per step; `None` where the pairs show no map.
        foretold: Share of the variance of X_{i+1} that the map foretells (leave-one-out); below 0 where the
            mean does better.
        scatter: Standard deviation of X_{i+1} about the map, or about their mean where there is none, over
            the mean of X: how far the map is from a smooth curve.
        neighbours: Pairs to each slope.
        reason: Why there is no exponent; empty where there is one.
    """

    current: Array
    following: Array
    lyapunov: float | None
    foretold: float
    scatter: float
    neighbours: int
    reason: str


def poincare_pairs(samples: Array, *, since_s: float, rtt_s: float | None) -> Array:
    """X_i and X_{i+1}: throughputs of successive steps after `since_s`, bit/s, shape (n, 2).

    Args:
        samples: Shape (m, 2): bytes that arrived in the interval that ends t seconds after the start. A short
            last interval, and any other that is not as long as most, is in no step.
        since_s: T_R: intervals that begin before are ramp-up.
        rtt_s: τ, by which samples are joined to steps (`samples_a_step`); `None` where it is unknown: then
            every sample is a step.
    """
    if len(samples) < 2:
        return np.empty((0, 2))
    ends = samples[:, 0]
    starts = np.concatenate([[0.0], ends[:-1]])
    lengths = ends - starts
    usual = np.median(lengths)
    if not usual > 0:
        return np.empty((0, 2))
    good = (np.abs(lengths / usual - 1) <= SAME_INTERVAL) & (starts >= since_s - 1e-9)
    joined = samples_a_step(float(usual), rtt_s) if rtt_s else 1
    found = [np.empty((0, 2))]
    for first, last in _stretches(good):
        steps = (last - first) // joined
        within = slice(first, first + steps * joined)
        rates = 8 * samples[within, 1].reshape(steps, joined).sum(axis=1)
        rates /= lengths[within].reshape(steps, joined).sum(axis=1)
        found.append(np.stack([rates[:-1], rates[1:]], axis=1))
    return np.concatenate(found)


def samples_a_step(interval_s: float, rtt_s: float) -> int:
    """How many samples make a step of the map.

    A step of r round trips has ⌊r⌋ or ⌈r⌉ bursts of a window. Were it drawn anew each time, their number
    would vary by √(f(1 − f)) about r, with f = r − ⌊r⌋ (Bernoulli's law); this is the least count for which
    that is at most `ALIASED` of r.

    Args:
        interval_s: Of a sample, seconds, above 0.
        rtt_s: τ, seconds, above 0.

    Raises:
        DynamicsError: where either is not.
    """
    if not (interval_s > 0 and rtt_s > 0):
        raise DynamicsError(
            f"an interval and an RTT are above 0, here they are {interval_s:g} and {rtt_s:g} s"
        )
    for count in itertools.count(1):
        trips = count * interval_s / rtt_s
        part = trips % 1
        if part * (1 - part) <= (ALIASED * trips) ** 2:
            return count
    raise AssertionError("no step is long enough")


def _stretches(good: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """First and past-the-last index of each run of good samples."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], good, [False]]).astype(np.int8)))
    return [(int(first), int(last)) for first, last in edges.reshape(-1, 2)]


def pooled_pairs(runs: Sequence[Array]) -> Array:
    """The pairs of several runs, each in units of its own mean X, shape (n, 2): their levels may differ."""
    scaled = [pairs / pairs[:, 0].mean() for pairs in runs if len(pairs) and pairs[:, 0].mean() > 0]
    return np.concatenate(scaled) if scaled else np.empty((0, 2))


def dynamics(pairs: Array) -> Dynamics:
    """The Lyapunov exponent of the map that `pairs` show.

    Args:
        pairs: X_i and X_{i+1}, shape (n, 2), n ≥ `LEAST_PAIRS`, any unit.

    Raises:
        DynamicsError: with too few pairs, values that are not finite, or none but one X.
    """
    if len(pairs) < LEAST_PAIRS:
        raise DynamicsError(
            f"a Poincaré map needs at least {LEAST_PAIRS} pairs of sustained samples, here are {len(pairs)}"
        )
    if not np.isfinite(pairs).all():
        raise DynamicsError("samples must be finite")
    order = np.argsort(pairs[:, 0], kind="stable")
    x, y = pairs[order, 0], pairs[order, 1]
    if x[-1] - x[0] <= 1e-12 * abs(x[-1]):
        raise DynamicsError("all samples are equal: a point is no map")
    n = len(x)
    total = float(((y - y.mean()) ** 2).sum()) * (n / (n - 1)) ** 2
    fits = {count: _slopes(x, y, count) for count in _neighbourhoods(n)}
    best = min(fits, key=lambda count: float((fits[count][1] ** 2).sum()))
    slopes, missed = fits[best]
    left = float((missed**2).sum())
    foretold = 1 - left / total if total > 0 else 0.0
    shows = foretold > FORETOLD / n
    spread = np.sqrt(left / n) if shows else y.std(ddof=1)
    return Dynamics(
        current=pairs[:, 0],
        following=pairs[:, 1],
        lyapunov=float(np.log(np.maximum(np.abs(slopes), LEAST_SLOPE)).mean()) if shows else None,
        foretold=foretold,
        scatter=float(spread / abs(x.mean())) if x.mean() else float("inf"),
        neighbours=best,
        reason="" if shows else NO_MAP,
    )


def _neighbourhoods(n: int) -> list[int]:
    """How many pairs may make a slope: all, half, a quarter and so on."""
    counts, count = [], n
    while count > LEAST_NEIGHBOURS:
        counts.append(count)
        count //= 2
    return [*counts, LEAST_NEIGHBOURS]


def _slopes(x: Array, y: Array, count: int) -> tuple[Array, Array]:
    """The slope at each x (sorted) from `count` pairs around it, and what they miss of y without its own."""
    n = len(x)
    first = np.clip(np.arange(n) - count // 2, 0, n - count)
    # Sums are of deviations, so that large means cost no digits.
    u, v = x - x.mean(), y - y.mean()
    sums = [np.concatenate([[0.0], np.cumsum(term)]) for term in (u, v, u * u, u * v)]
    su, sv, suu, suv = (total[first + count] - total[first] for total in sums)

    def line(size: int, a: Array, b: Array, aa: Array, ab: Array) -> tuple[Array, Array]:
        spread = aa - a * a / size
        sloped = spread > 1e-12 * np.maximum(aa, 1e-300)
        slope = np.divide(ab - a * b / size, spread, out=np.zeros(n), where=sloped)
        return slope, (b - slope * a) / size

    slope, _ = line(count, su, sv, suu, suv)
    out, offset = line(count - 1, su - u, sv - v, suu - u * u, suv - u * v)
    return slope, v - (offset + out * u)
