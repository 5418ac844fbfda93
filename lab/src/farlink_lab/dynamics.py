"""The dynamics of a sustained transfer: its Poincaré map X_{i+1} = M(X_i), and the map's Lyapunov exponent.

Estimator. The map's slope at each X_i is that of a straight line, fitted by least squares to the pairs with
the nearest X (local linear regression); how many pairs is what best foretells each X_{i+1} from the others
(leave-one-out). The exponent is the mean of ln|slope| over the pairs: below 0 small disturbances fade, above
0 they grow.

Limits. Samples are noisy means over an interval. Noise in X flattens the slopes of neighbours that it has
mixed, and where X says nothing of the next X, slopes are noise and their logarithms mean nothing. So an
exponent is told only where the map foretells clearly more than the mean does (`FORETOLD`); else the answer is
"no map" and its reason. A constant with noise has none.
"""

from __future__ import annotations

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


def poincare_pairs(samples: Array, *, since_s: float) -> Array:
    """X_i and X_{i+1}: throughputs of successive intervals after `since_s`, bit/s, shape (n, 2).

    Args:
        samples: Shape (m, 2): bytes that arrived in the interval that ends t seconds after the start. A short
            last interval, and any other that is not as long as most, makes no pair.
        since_s: T_R: intervals that begin before are ramp-up.
    """
    if len(samples) < 2:
        return np.empty((0, 2))
    ends = samples[:, 0]
    starts = np.concatenate([[0.0], ends[:-1]])
    lengths = ends - starts
    usual = np.abs(lengths / np.median(lengths) - 1) <= SAME_INTERVAL
    good = usual & (starts >= since_s - 1e-9)
    rates = 8 * samples[:, 1] / lengths
    paired = good[:-1] & good[1:]
    return np.stack([rates[:-1][paired], rates[1:][paired]], axis=1)


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
