"""The regimes of a profile: concave, convex, or concave up to a transition RTT τ_T and convex beyond it."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression, nnls

from farlink_lab.quantity import show_time
from farlink_lab.resampling import lenders, resampled_means
from farlink_lab.shape import Shape, ShapeError, check, shape
from farlink_lab.sigmoid import LEAST_RTTS, DualSigmoid, grid
from farlink_lab.straight import DEALS, LEVEL, straight

if TYPE_CHECKING:
    from collections.abc import Sequence

    from farlink_lab.shape import Bend
    from farlink_lab.straight import Straight

Array = NDArray[np.float64]
Regime = Literal[
    "all concave",
    "all convex",
    "concave then convex",
    "convex then concave",
    "several turns",
    "straight",
    "undecided",
]

# Of the interval for τ_T.
CLAIM = 0.95
TRANSITION_RESAMPLES = 400
# Straight profiles that a regime is tested against: a 40th of them lies beyond what is allowed.
TESTED_DEALS = 399
# Of a mean, by what sums and projections of double precision add to it.
ROUNDING = 1e-13
# Of a branch of a sigmoid: fine enough to look smooth.
BRANCH_POINTS = 40


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Regimes:
    """The regimes of one profile.

    Attributes:
        regime: The profile as a whole.
        monotone_bps: The non-increasing regression of the means, shape (k,).
        shape: The bends at the inner RTTs, and the regions that they make.
        sigmoid: The dual sigmoid, where the regime is concave then convex; else `None`.
        transition_s: The interval for τ_T, seconds; `None` without a sigmoid or with one run a point.
        reason: Why there is no τ_T or no interval for it; empty where there are both.
    """

    regime: Regime
    monotone_bps: Array
    shape: Shape
    sigmoid: DualSigmoid | None
    transition_s: tuple[float, float] | None
    reason: str


def regimes(
    rtt_s: Array,
    throughput_bps: Sequence[Array],
    *,
    seed: int,
    late: NDArray[np.bool_] | None = None,
    resamples: int = TRANSITION_RESAMPLES,
    deals: int = DEALS,
) -> Regimes:
    """The regimes of a profile.

    Bends are judged against linear interpolation between neighbours (`shape`), the transition by a dual
    sigmoid (`sigmoid`), whose τ_T has a bootstrap interval of `CLAIM`.

    Args:
        rtt_s: Shape (k,), growing, seconds.
        throughput_bps: k arrays of the runs at each RTT, bit/s.
        seed: Of the resampling.
        late: Shape (k,): RTTs whose runs lend no certainty; `None` for none.
        resamples: For the interval.
        deals: Straight profiles that each bend is judged against.

    Raises:
        ShapeError: with fewer than three RTTs, RTTs that do not grow, or throughputs that are not above 0.
    """
    found = shape(rtt_s, throughput_bps, late=late, seed=seed, deals=deals)
    drawn = None
    if found.judged:
        lending = lenders(throughput_bps, np.zeros(len(rtt_s), dtype=np.bool_) if late is None else late)
        drawn = resampled_means(throughput_bps, lending=lending, resamples=resamples, seed=seed)
        null = straight(throughput_bps, lending=lending, seed=seed, deals=TESTED_DEALS)
        whole = tested_regime(rtt_s, throughput_bps, null)
    else:
        whole = regime_of(found)
    sigmoid, interval, reason = None, None, _no_transition(whole, rtt_s)
    if whole == "concave then convex" and len(rtt_s) >= LEAST_RTTS:
        means = np.array([values.mean() for values in throughput_bps])
        candidates = grid(rtt_s, means, runs=np.array([len(values) for values in throughput_bps]))
        sigmoid = candidates.fit(means)
        if drawn is None:
            reason = "too few runs away from late RTTs show their spread: τ_T has no interval"
        else:
            interval = candidates.interval_s(sigmoid, means, drawn, share=CLAIM)
    return Regimes(
        regime=whole,
        monotone_bps=monotone_bps(throughput_bps),
        shape=found,
        sigmoid=sigmoid,
        transition_s=interval,
        reason=reason,
    )


def monotone_bps(throughput_bps: Sequence[Array]) -> Array:
    """The non-increasing regression of the means, weighted by runs (pool adjacent violators), shape (k,).

    Raises:
        ShapeError: where a throughput is not finite, or an RTT has none.
    """
    if any(len(values) == 0 or not np.isfinite(values).all() for values in throughput_bps):
        raise ShapeError("every RTT needs finite throughputs")
    means = np.array([values.mean() for values in throughput_bps])
    runs = np.array([len(values) for values in throughput_bps], dtype=np.float64)
    fitted: Array = isotonic_regression(means, weights=runs, increasing=False).x
    return fitted


def regime_of(found: Shape) -> Regime:
    """What the bends make together, without a word on certainty: for profiles whose runs show no spread.

    Judged by linear interpolation, as in the file-transfer studies; `tested_regime` is for those that do.

    Args:
        found: The bends at the inner RTTs; one at least, as `shape` makes sure.
    """
    decided = [point.bend for point in found.points if point.bend in ("concave", "convex")]
    if not decided:
        return "straight" if all(point.bend == "straight" for point in found.points) else "undecided"
    turns = [decided[0], *(b for a, b in itertools.pairwise(decided) if a != b)]
    if len(turns) == 1:
        return "all concave" if turns == ["concave"] else "all convex"
    if len(turns) > 2:
        return "several turns"
    return "concave then convex" if turns[0] == "concave" else "convex then concave"


def tested_regime(rtt_s: Array, throughput_bps: Sequence[Array], null: Straight) -> Regime:
    """The simplest regime that the runs do not contradict.

    The means are projected onto the concave profiles, the convex ones, and those that turn once (least
    squares in standard errors). A regime is contradicted where its distance is more than noise alone makes of
    a straight line, which for each of them is the profile most easily mistaken (Silvapulle and Sen 2005, 3).

    A straight line is called concave where convex is contradicted, or the other way round: each of the two
    tests has a level of `LEVEL`/2, so that at most `LEVEL` of straight lines are called anything.

    Args:
        rtt_s: Shape (k,), growing, k ≥ 3.
        throughput_bps: k arrays of runs, above 0.
        null: What their spread makes of straight profiles.

    Raises:
        ShapeError: with fewer than three RTTs, RTTs that do not grow, or throughputs that are not above 0.
    """
    check(rtt_s, throughput_bps)
    means = np.array([values.mean() for values in throughput_bps])
    u = (rtt_s - rtt_s[0]) / (rtt_s[-1] - rtt_s[0])
    root = np.sqrt(null.runs) / means
    inner = len(rtt_s) - 2
    measured = _Projection(u, root / null.spread)
    bent = measured.bent(means)
    if (np.ptp(null.spreads, axis=1) == 0).all():
        # All RTTs have one spread: the standard errors of deals differ by a factor alone.
        shared = _Projection(u, root)
        dealt = [(shared, each) for each in shared.bent(means * null.deviations / null.spreads)]
    else:
        own = [_Projection(u, root / spread) for spread in null.spreads]
        dealt = [
            (projection, projection.bent(means * deviation))
            for projection, deviation in zip(own, null.deviations, strict=True)
        ]

    def signs(turn: int, first: int) -> Array:
        """Bends by `first` (1 convex, −1 concave) at `turn` inner RTTs, then by the other."""
        return np.where(np.arange(inner) < turn, float(first), -float(first))

    def allowed(first: int) -> float:
        """How far all but `LEVEL`/2 of straight lines lie from bending so throughout."""
        throughout = signs(inner, first)
        made = sorted(projection.distance(noise, throughout) for projection, noise in dealt)
        # The profile itself counts as one of them, which makes the level exact.
        return made[math.ceil((len(made) + 1) * (1 - LEVEL / 2)) - 1]

    # Where runs are all alike, what is left of a straight line is rounding.
    rounding = ROUNDING * float(np.linalg.norm(np.sqrt(null.runs) / null.spread))
    convex_within, concave_within = allowed(1) + rounding, allowed(-1) + rounding
    convex = measured.distance(bent, signs(inner, 1)) <= convex_within
    concave = measured.distance(bent, signs(inner, -1)) <= concave_within
    if convex or concave:
        return "undecided" if convex and concave else "all convex" if convex else "all concave"
    within = max(convex_within, concave_within)
    if (
        min((measured.distance(bent, signs(turn, -1)) for turn in range(1, inner)), default=math.inf)
        <= within
    ):
        return "concave then convex"
    if min((measured.distance(bent, signs(turn, 1)) for turn in range(1, inner)), default=math.inf) <= within:
        return "convex then concave"
    return "several turns"


class _Projection:
    """Onto profiles that bend in given ways at the inner RTTs."""

    def __init__(self, u: Array, scale: Array) -> None:
        """At RTTs `u`, shape (k,), with deviations times `scale` in standard errors, shape (k,)."""
        self._scale = scale
        self._line, _ = np.linalg.qr(np.stack([scale, scale * u], axis=1))
        self._hinges = self.bent(np.maximum(u[None, :] - u[1:-1, None], 0)).T

    def bent(self, profiles: Array) -> Array:
        """What no straight line explains of profiles, in standard errors, both of shape (..., k)."""
        scaled = profiles * self._scale
        left: Array = scaled - (scaled @ self._line) @ self._line.T
        return left

    def distance(self, bent: Array, signs: Array) -> float:
        """Of a profile, as `bent` gives it, to those that bend by `signs`, shape (k − 2,), or not at all."""
        return float(nnls(self._hinges * signs, bent)[1])


def _no_transition(whole: Regime, rtt_s: Array) -> str:
    # A bend shows at inner RTTs alone.
    first, last = show_time(float(rtt_s[1])), show_time(float(rtt_s[-2]))
    return {
        "all concave": f"the profile is concave wherever that shows: τ_T lies above {last}, if anywhere",
        "all convex": f"the profile is convex wherever that shows: τ_T lies below {first}, if anywhere",
        "convex then concave": "the profile turns from convex to concave: a dual sigmoid turns the other way",
        "several turns": "the profile turns more than once: it has no single transition",
        "straight": "the profile is straight: it has neither region",
        "undecided": "the runs spread too much to tell where the profile is concave and where convex",
    }.get(whole, "")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Branch:
    """A stretch of a profile with one bend, to draw: seconds and bit/s, both of shape (n,)."""

    bend: Bend
    rtt_s: Array
    throughput_bps: Array


def branches(rtt_s: Array, found: Regimes) -> tuple[Branch, ...]:
    """The profile as it was judged, from the first RTT to the last, in stretches of one bend.

    Where there is a dual sigmoid they are its two branches, else stretches of the monotone regression.

    Args:
        rtt_s: Shape (k,), growing, seconds.
        found: The regimes of the profile.
    """
    if found.sigmoid is not None:
        at = found.sigmoid.transition_s
        before, after = np.linspace(rtt_s[0], at, BRANCH_POINTS), np.linspace(at, rtt_s[-1], BRANCH_POINTS)
        return (
            Branch(bend="concave", rtt_s=before, throughput_bps=found.sigmoid.throughput_bps(before)),
            Branch(bend="convex", rtt_s=after, throughput_bps=found.sigmoid.throughput_bps(after)),
        )
    whole: dict[Regime, Bend] = {"all concave": "concave", "all convex": "convex", "straight": "straight"}
    if found.regime in whole:
        return (Branch(bend=whole[found.regime], rtt_s=rtt_s, throughput_bps=found.monotone_bps),)
    return tuple(
        Branch(bend=bend, rtt_s=edges, throughput_bps=np.interp(edges, rtt_s, found.monotone_bps))
        for bend, edges in stretches(rtt_s, found.shape)
    )


def stretches(rtt_s: Array, found: Shape) -> tuple[tuple[Bend, Array], ...]:
    """Each region with the RTTs that it spans: regions meet half way between their RTTs, the ends go on.

    That is for drawing: where between two RTTs a bend ends is not measured.

    Args:
        rtt_s: The profile's, shape (k,), growing, s.
        found: Its shape.

    Returns:
        The bend of each region, and its RTTs with both its ends, growing, s.

    Raises:
        ShapeError: where the RTTs are not those of the shape.
    """
    if len(rtt_s) != found.rtts or not np.isfinite(rtt_s).all() or (np.diff(rtt_s) <= 0).any():
        raise ShapeError(f"a shape of {found.rtts} RTTs is drawn over those, which are finite and grow")
    firsts = [region.first_s for region in found.regions]
    lasts = [region.last_s for region in found.regions]
    middles = [(last + first) / 2 for last, first in zip(lasts[:-1], firsts[1:], strict=True)]
    edges = [float(rtt_s[0]), *middles, float(rtt_s[-1])]
    return tuple(
        (region.bend, np.array([low, *(rtt for rtt in rtt_s if low < rtt < high), high]))
        for region, (low, high) in zip(found.regions, itertools.pairwise(edges), strict=True)
    )
