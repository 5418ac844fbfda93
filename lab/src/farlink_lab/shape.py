"""Where a measured profile is concave and where convex, and how sure that is.

At an inner RTT the profile is concave where it lies above the straight line between its neighbours, convex
where below (the judgement by linear interpolation of the file-transfer studies). RTT is on a linear axis: on
another it is another curve. The first and the last RTT have one neighbour and no curvature.

A bend is claimed at a level that holds for all inner RTTs of a profile together: of straight profiles at
most `LEVEL` get a claim anywhere. Each height is measured in its standard errors, and must exceed the
greatest such height that `straight` profiles have at any RTT (the single-step maximum of Westfall and Young
1993, 2.3).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from farlink_lab.resampling import has_spread, lenders, mostly
from farlink_lab.straight import DEALS, LEVEL, straight

if TYPE_CHECKING:
    from collections.abc import Sequence

    from farlink_lab.straight import Straight

Array = NDArray[np.float64]
Bend = Literal["concave", "convex", "straight", "undecided"]

# One run a point has no spread to judge by: a bend below 1% of the straight line is not told from none.
LEAST_BEND = 0.01


class ShapeError(ValueError):
    """Too few or impossible points for a shape."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The bend at one inner RTT.

    Attributes:
        rtt_s: Where.
        bend: What it is, as far as the data say.
        height: (Θ − straight line) / straight line: positive is concave.
        sure: Share of straight profiles of the same spread that bend less at every RTT; `None`
            with one run a point, or where it is late.
        late: Whether its own RTT or a neighbour's is late.
    """

    rtt_s: float
    bend: Bend
    height: float
    sure: float | None
    late: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Neighbouring RTTs with the same bend.

    Attributes:
        first_s: The first of them, seconds.
        last_s: The last of them.
        points: How many they are.
        sure: The least sure of them; `None` where one of them does not know.
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
        rtts: How many RTTs it was judged on.
        late: How many of them are late.
    """

    points: tuple[Point, ...]
    regions: tuple[Region, ...]
    fewest: int
    most: int
    rtts: int
    late: int

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


def shape(
    rtt_s: Array,
    throughput_bps: Sequence[Array],
    *,
    seed: int,
    late: NDArray[np.bool_] | None = None,
    deals: int = DEALS,
) -> Shape:
    """The concave and convex regions of a profile.

    With one run at most RTTs, a bend is stated where it is at least `LEAST_BEND`, and nothing on certainty.
    With more, a bend is claimed where it is more than their spread makes of all but `LEVEL` of straight
    profiles.

    Runs at a late RTT lend no certainty: neither to a bend that they take part in, nor, through their
    deviations, to another.

    Args:
        rtt_s: Shape (k,), growing, seconds.
        throughput_bps: k arrays of the runs at each RTT, bit/s.
        seed: Of the straight profiles.
        late: Shape (k,): RTTs whose runs say as much of the emulator's machine as of the connection; `None`
            for none.
        deals: How many.

    Raises:
        ShapeError: with fewer than three RTTs, RTTs that do not grow, or throughputs that are not above 0.
    """
    check(rtt_s, throughput_bps)
    means = np.array([values.mean() for values in throughput_bps])
    found = _heights(rtt_s, means)
    late = np.zeros(len(rtt_s), dtype=np.bool_) if late is None else late
    touched = late[:-2] | late[1:-1] | late[2:]
    counts = np.array([len(values) for values in throughput_bps])
    if not has_spread(throughput_bps):
        points = tuple(
            Point(rtt_s=float(rtt), bend=_by_size(height), height=float(height), sure=None, late=bool(near))
            for rtt, height, near in zip(rtt_s[1:-1], found, touched, strict=True)
        )
    else:
        trusted = mostly(counts[~late] > 1)
        lending = lenders(throughput_bps, late)
        null = straight(throughput_bps, lending=lending, seed=seed, deals=deals)
        beaten = _beaten(rtt_s, means, null)
        points = tuple(
            Point(
                rtt_s=float(rtt),
                bend=_by_share(height, share),
                height=float(height),
                sure=float(share) if trusted and not near else None,
                late=bool(near),
            )
            for rtt, height, share, near in zip(rtt_s[1:-1], found, beaten, touched, strict=True)
        )
    return Shape(
        points=points,
        regions=_regions(points),
        fewest=int(counts.min()),
        most=int(counts.max()),
        rtts=len(rtt_s),
        late=int(late.sum()),
    )


def check(rtt_s: Array, throughput_bps: Sequence[Array]) -> None:
    """Refuses what has no shape.

    Args:
        rtt_s: Shape (k,), s.
        throughput_bps: k arrays of runs, bit/s.

    Raises:
        ShapeError: with fewer than three RTTs, RTTs that do not grow, or throughputs that are not above 0.
    """
    if len(rtt_s) < 3 or len(rtt_s) != len(throughput_bps):
        raise ShapeError(f"a shape needs at least three RTTs, each with runs; here are {len(rtt_s)}")
    if not np.isfinite(rtt_s).all() or (np.diff(rtt_s) <= 0).any():
        raise ShapeError("RTTs must be finite and grow")
    if any(len(values) == 0 or not (np.isfinite(values) & (values > 0)).all() for values in throughput_bps):
        raise ShapeError("every RTT needs a throughput above 0")


def _heights(rtt_s: Array, throughput_bps: Array) -> Array:
    """(Θ − straight line between the neighbours) / straight line, at the inner RTTs, shape (k − 2,)."""
    share = (rtt_s[1:-1] - rtt_s[:-2]) / (rtt_s[2:] - rtt_s[:-2])
    line = throughput_bps[:-2] * (1 - share) + throughput_bps[2:] * share
    bends: Array = throughput_bps[1:-1] / line - 1
    return bends


def _beaten(rtt_s: Array, means_bps: Array, null: Straight) -> Array:
    """The share of straight profiles whose greatest height is less than each one here, shape (k − 2,)."""
    share = (rtt_s[1:-1] - rtt_s[:-2]) / (rtt_s[2:] - rtt_s[:-2])
    left, right = (1 - share) * means_bps[:-2], share * means_bps[2:]
    line = left + right
    # What a deviation at an RTT and at its neighbours, in relation to their means, makes of the height.
    inner = np.arange(len(share))
    slopes = np.zeros((len(share), len(rtt_s)))
    slopes[inner, inner], slopes[inner, inner + 1], slopes[inner, inner + 2] = -left, line, -right
    slopes /= line[:, None]
    measured = np.abs(means_bps[1:-1] / line - 1) / np.sqrt(slopes**2 @ (null.spread**2 / null.runs))
    errors = np.sqrt((null.spreads**2 / null.runs) @ (slopes**2).T)
    greatest = (np.abs(null.deviations @ slopes.T) / errors).max(axis=1)
    # The profile itself counts as one of them, which makes the level exact.
    beaten: Array = (greatest[:, None] < measured).sum(axis=0) / (len(greatest) + 1)
    return beaten


def _by_size(height: float) -> Bend:
    if abs(height) < LEAST_BEND:
        return "straight"
    return "concave" if height > 0 else "convex"


def _by_share(height: float, share: float) -> Bend:
    if share < 1 - LEVEL:
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
            sure=_least([point.sure for point in group]),
        )
        for group in groups
    )


def _least(shares: Sequence[float | None]) -> float | None:
    known = [share for share in shares if share is not None]
    return min(known) if len(known) == len(shares) else None
