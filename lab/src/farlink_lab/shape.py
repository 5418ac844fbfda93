"""Where a measured profile is concave and where convex, and how sure that is.

At an inner RTT the profile is concave where it lies above the straight line between its neighbours, convex
where below (the judgement by linear interpolation of the file-transfer studies). RTT is on a linear axis: on
another it is another curve. The first and the last RTT have one neighbour and no curvature.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence

Array = NDArray[np.float64]
Bend = Literal["concave", "convex", "straight", "undecided"]

# Share of resamples that must agree before a bend is claimed.
SURE = 0.95
# One run a point has no spread to judge by: a bend below 1% of the straight line is not told from none.
LEAST_BEND = 0.01
# From so many runs at each RTT on, each RTT is resampled from its own; with fewer, from the deviations of
# all.
OWN_SPREAD_FROM = 5
RESAMPLES = 2000


class ShapeError(ValueError):
    """Too few or impossible points for a shape."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The bend at one inner RTT.

    Attributes:
        rtt_s: Where.
        bend: What it is, as far as the data say.
        height: (Θ − straight line) / straight line: positive is concave.
        sure: Share of resamples with the sign of `height`; `None` with one run a point.
    """

    rtt_s: float
    bend: Bend
    height: float
    sure: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Neighbouring RTTs with the same bend.

    Attributes:
        first_s: The first of them, seconds.
        last_s: The last of them.
        points: How many they are.
        sure: The least sure of them; `None` with one run a point.
    """

    bend: Bend
    first_s: float
    last_s: float
    points: int
    sure: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The shape of one profile.

    Attributes:
        points: One for each inner RTT, growing.
        regions: Runs of the same bend, growing.
        fewest: The least runs of any RTT.
        most: The most runs of any RTT.
    """

    points: tuple[Point, ...]
    regions: tuple[Region, ...]
    fewest: int
    most: int

    @property
    def judged(self) -> bool:
        """Whether there were runs enough to say how sure it is."""
        return any(point.sure is not None for point in self.points)

    @property
    def throughout(self) -> Bend | None:
        """The one bend that every inner RTT has, where there is one."""
        return self.regions[0].bend if len(self.regions) == 1 else None

    def turns(self) -> tuple[tuple[float, float], ...]:
        """Intervals (seconds) between which the profile turns from concave to convex."""
        decided = [point for point in self.points if point.bend in ("concave", "convex")]
        pairs = itertools.pairwise(decided)
        return tuple((a.rtt_s, b.rtt_s) for a, b in pairs if (a.bend, b.bend) == ("concave", "convex"))


def heights(rtt_s: Array, throughput_bps: Array) -> Array:
    """(Θ − straight line between the neighbours) / straight line, at the inner RTTs.

    Args:
        rtt_s: Shape (k,), growing.
        throughput_bps: Shape (..., k), above 0.

    Returns:
        Shape (..., k − 2); positive is concave.
    """
    share = (rtt_s[1:-1] - rtt_s[:-2]) / (rtt_s[2:] - rtt_s[:-2])
    line = throughput_bps[..., :-2] * (1 - share) + throughput_bps[..., 2:] * share
    bends: Array = throughput_bps[..., 1:-1] / line - 1
    return bends


def shape(rtt_s: Array, throughput_bps: Sequence[Array], *, seed: int, resamples: int = RESAMPLES) -> Shape:
    """The concave and convex regions of a profile.

    With one run at most RTTs, a bend is stated where it is at least `LEAST_BEND`, and nothing on certainty.
    With two to four, the mean at an RTT is resampled (bootstrap) from the relative deviations at all RTTs
    together, widened by √(n/(n−1)): this takes the relative spread to be alike at all RTTs, since so few runs
    cannot show their own. From five on, each RTT is resampled from its own runs. A bend is claimed where
    `SURE` of the resamples agree.

    Args:
        rtt_s: Shape (k,), growing, seconds.
        throughput_bps: k arrays of the runs at each RTT, bit/s.
        seed: Of the resampling.
        resamples: How many.

    Raises:
        ShapeError: with fewer than three RTTs, RTTs that do not grow, or throughputs that are not above 0.
    """
    _check(rtt_s, throughput_bps)
    means = np.array([values.mean() for values in throughput_bps])
    found = heights(rtt_s, means)
    counts = [len(values) for values in throughput_bps]
    if 2 * sum(count > 1 for count in counts) < len(counts):
        points = tuple(
            Point(rtt_s=float(rtt), bend=_by_size(height), height=float(height), sure=None)
            for rtt, height in zip(rtt_s[1:-1], found, strict=True)
        )
    else:
        drawn = _resampled_means(throughput_bps, means, resamples=resamples, seed=seed)
        agreeing = (np.sign(heights(rtt_s, drawn)) == np.sign(found)).mean(axis=0)
        points = tuple(
            Point(rtt_s=float(rtt), bend=_by_share(height, share), height=float(height), sure=float(share))
            for rtt, height, share in zip(rtt_s[1:-1], found, agreeing, strict=True)
        )
    return Shape(points=points, regions=_regions(points), fewest=min(counts), most=max(counts))


def _check(rtt_s: Array, throughput_bps: Sequence[Array]) -> None:
    if len(rtt_s) < 3 or len(rtt_s) != len(throughput_bps):
        raise ShapeError(f"a shape needs at least three RTTs, each with runs; here are {len(rtt_s)}")
    if not np.isfinite(rtt_s).all() or (np.diff(rtt_s) <= 0).any():
        raise ShapeError("RTTs must be finite and grow")
    if any(len(values) == 0 or not (np.isfinite(values) & (values > 0)).all() for values in throughput_bps):
        raise ShapeError("every RTT needs a throughput above 0")


def _resampled_means(throughput_bps: Sequence[Array], means: Array, *, resamples: int, seed: int) -> Array:
    """Shape (resamples, k)."""
    random = np.random.default_rng(seed)
    counts = [len(values) for values in throughput_bps]
    if min(counts) >= OWN_SPREAD_FROM:
        columns = [random.choice(values, (resamples, len(values))).mean(axis=1) for values in throughput_bps]
        return np.stack(columns, axis=1)
    deviations = np.concatenate(
        [
            (values / mean - 1) * np.sqrt(len(values) / (len(values) - 1))
            for values, mean in zip(throughput_bps, means, strict=True)
            if len(values) > 1
        ]
    )
    columns = [
        mean * (1 + random.choice(deviations, (resamples, count)).mean(axis=1))
        for mean, count in zip(means, counts, strict=True)
    ]
    # A deviation of −100% or beyond would make the ratio of heights meaningless.
    bounded: Array = np.maximum(np.stack(columns, axis=1), 1e-9 * means)
    return bounded


def _by_size(height: float) -> Bend:
    if abs(height) < LEAST_BEND:
        return "straight"
    return "concave" if height > 0 else "convex"


def _by_share(height: float, share: float) -> Bend:
    if share < SURE:
        return "undecided"
    return "concave" if height > 0 else "convex"


def _regions(points: Sequence[Point]) -> tuple[Region, ...]:
    groups: list[list[Point]] = []
    for point in points:
        if groups and groups[-1][-1].bend == point.bend:
            groups[-1].append(point)
        else:
            groups.append([point])
    return tuple(
        Region(
            bend=group[0].bend,
            first_s=group[0].rtt_s,
            last_s=group[-1].rtt_s,
            points=len(group),
            sure=min((point.sure for point in group if point.sure is not None), default=None),
        )
        for group in groups
    )
