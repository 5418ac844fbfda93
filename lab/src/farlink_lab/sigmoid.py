"""The dual sigmoid: a profile that is concave up to the transition RTT τ_T and convex from there on.

The studies of dedicated connections (Rao, Liu and others 2017) fit g(τ) = 1/(1 + e^{a(τ−t)}) twice: once for
τ ≤ τ_T, once for τ ≥ τ_T. A branch is concave only where g ≥ ½ and convex only where g ≤ ½, so that the two,
on one scale, jump at τ_T. Here both turn at t = τ_T, where g = ½, and each has a scale of its own, which join
at the level θ_T:

    τ ≤ τ_T:  Θ = θ_T + (θ_0 − θ_T)·(2·g₁(τ) − 1)      concave, from below θ_0 down to θ_T
    τ ≥ τ_T:  Θ = θ_∞ + (θ_T − θ_∞)·2·g₂(τ)            convex, from θ_T down towards θ_∞

with θ_0 ≥ θ_T ≥ θ_∞ ≥ 0 and steepnesses a₁, a₂ > 0. It is continuous and falls; its slope may change at τ_T,
as where a window's limit begins to bind.

For given τ_T and θ_T the branches know nothing of each other, and each is linear in its other level. So the
error is searched on a grid of (τ_T, θ_T), on which each branch finds its best steepness by itself.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from collections.abc import Callable

Array = NDArray[np.float64]

# Candidates of τ_T in each gap between RTTs: finer than the RTTs themselves can tell.
CANDIDATES_A_GAP = 5
# θ_T is sought between the throughputs on either side of τ_T, and beyond them by this share.
BEYOND = 0.15
# So many candidates of θ_T at first, then so many around the best of them, and again.
LEVELS = (12, 5, 5)
# a·(length of the branch), from a straight line to a step: every STRIDE-th first, then those about the best.
CONCAVE_STEEPNESS = np.geomspace(0.3, 40, 161)
CONVEX_STEEPNESS = np.geomspace(0.3, 100, 321)
STRIDE = 8
LEAST_RTTS = 4


class SigmoidError(ValueError):
    """Points that a dual sigmoid cannot be fitted to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DualSigmoid:
    """A fitted dual sigmoid: seconds, per second, bit/s.

    Attributes:
        transition_s: τ_T.
        concave_per_s: a₁.
        convex_per_s: a₂.
        first_bps: θ_0.
        transition_bps: θ_T.
        last_bps: θ_∞.
    """

    transition_s: float
    concave_per_s: float
    convex_per_s: float
    first_bps: float
    transition_bps: float
    last_bps: float

    def throughput_bps(self, rtt_s: ArrayLike) -> Array:
        """Θ at RTTs of any shape, bit/s."""
        rtt = np.asarray(rtt_s, dtype=np.float64)
        before, after = _branches(rtt, self.transition_s, self.concave_per_s, self.convex_per_s)
        return (
            self.last_bps
            + (self.transition_bps - self.last_bps) * after
            + (self.first_bps - self.transition_bps) * before
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Grid:
    """The candidates for τ_T and θ_T at given RTTs, made once for many fits.

    Attributes:
        rtt_s: Shape (k,), growing, k ≥ `LEAST_RTTS`.
        weights: Shape (k,): what a squared deviation at each counts.
        transitions_s: Shape (t,): candidates of τ_T, from the second RTT to the last but one.
        levels_bps: Shape (t, 2): for each, between which θ_T is sought.
    """

    rtt_s: Array
    weights: Array
    transitions_s: Array
    levels_bps: Array

    def errors(self, throughput_bps: Array) -> Array:
        """The least weighted sum of squares at each candidate of τ_T.

        Args:
            throughput_bps: Shape (b, k): b profiles.

        Returns:
            Shape (t, b).
        """
        found = [self._error(at, throughput_bps) for at in range(len(self.transitions_s))]
        return np.maximum(np.stack(found), 0.0)

    def _error(self, at: int, y: Array) -> Array:
        """At one candidate of τ_T, shape (b,)."""
        low, high = self.levels_bps[at]
        step = np.full(len(y), (high - low) / (LEVELS[0] - 1))
        best = np.full(len(y), (low + high) / 2)
        reach = (LEVELS[0] - 1) / 2
        for count in LEVELS:
            level = best + np.linspace(-reach, reach, count)[:, None] * step
            error = self._error_at_level(at, level, y)
            chosen = error.argmin(axis=0)[None]
            best = np.take_along_axis(level, chosen, axis=0)[0]
            step = step * 2 * reach / (count - 1)
            reach = 1.0
        least: Array = np.take_along_axis(error, chosen, axis=0)[0]
        return least

    def _error_at_level(self, at: int, level: Array, y: Array) -> Array:
        """At one candidate of τ_T and those of θ_T in `level`, shape (l, b): the same shape."""
        since = self.rtt_s - self.transitions_s[at]
        past = since > 0
        w1, y1, w2, y2 = self.weights[~past], y[:, ~past], self.weights[past], y[:, past]
        top, profile = level[:, None, :], np.arange(len(y))
        # The concave branch: y − θ_T against (θ_0 − θ_T)·before.
        steep = CONCAVE_STEEPNESS[:, None] / (self.transitions_s[at] - self.rtt_s[0])
        before = -np.tanh(steep * since[~past] / 2)
        height_y, height_1, square = (before * w1) @ y1.T, before @ w1, before**2 @ w1

        def concave(steepness: NDArray[np.intp]) -> Array:
            height = height_y[steepness, profile] - top * height_1[steepness]
            explained: Array = np.maximum(height, 0) ** 2 / square[steepness]
            return explained

        # The convex one: y − θ_T·after against θ_∞·(1 − after), θ_∞ between 0 and θ_T.
        steep = CONVEX_STEEPNESS[:, None] / (self.rtt_s[-1] - self.transitions_s[at])
        below = np.tanh(steep * since[past] / 2)
        after = 1 - below
        below_y, after_y = (below * w2) @ y2.T, (after * w2) @ y2.T
        crossed, curved, level_2 = (below * after) @ w2, below**2 @ w2, after**2 @ w2

        def convex(steepness: NDArray[np.intp]) -> Array:
            missing = below_y[steepness, profile] - top * crossed[steepness]
            last = np.clip(missing / curved[steepness], 0, top)
            explained: Array = (
                2 * top * after_y[steepness, profile]
                - top**2 * level_2[steepness]
                + last * (2 * missing - last * curved[steepness])
            )
            return explained

        total = (y1**2) @ w1 - 2 * level * (y1 @ w1) + level**2 * w1.sum() + (y2**2) @ w2
        least: Array = total - _highest(concave, len(square), level) - _highest(convex, len(curved), level)
        return least

    def fit(self, throughput_bps: Array) -> DualSigmoid:
        """The best of all candidates for one profile, shape (k,)."""
        # Half a second to load, for this function alone.
        from scipy.optimize import minimize, nnls  # noqa: PLC0415

        weights = np.sqrt(self.weights)
        at = int(np.argmin(self.errors(throughput_bps[None, :])[:, 0]))
        transition = float(self.transitions_s[at])

        def levels(steep: Array) -> tuple[Array, float]:
            before, after = _branches(self.rtt_s, transition, *np.exp(steep))
            columns = np.stack([np.ones_like(before), after, before], axis=1)
            found, error = nnls(columns * weights[:, None], throughput_bps * weights)
            return found, float(error)

        spans = [transition - self.rtt_s[0], self.rtt_s[-1] - transition]
        starts = itertools.product(CONCAVE_STEEPNESS[::24], CONVEX_STEEPNESS[::24])
        logs: list[Array] = [np.log(np.array(start) / spans) for start in starts]
        nearest = logs[int(np.argmin([levels(start)[1] for start in logs]))]

        def error_at(steep: Array, *_: object, **__: object) -> float:
            return levels(steep)[1] ** 2

        best = minimize(error_at, nearest, method="Nelder-Mead").x
        last, middle, first = (float(level) for level in levels(best)[0])
        concave, convex = (float(value) for value in np.exp(best))
        return DualSigmoid(
            transition_s=transition,
            concave_per_s=concave,
            convex_per_s=convex,
            first_bps=last + middle + first,
            transition_bps=last + middle,
            last_bps=last,
        )

    def interval_s(
        self, fitted: DualSigmoid, throughput_bps: Array, resampled_bps: Array, *, share: float
    ) -> tuple[float, float]:
        """A bootstrap interval for τ_T.

        It holds the candidates whose least error exceeds the best one's by no more than such a difference
        does, at the fitted τ_T, in `share` of the resamples: resamples of the fitted profile tell how far the
        error at the truth lies above the least. Where the data say little of τ_T, as on a nearly straight
        profile, it is wide, which the quantiles of the resamples' own estimates would not be.

        Args:
            fitted: What `fit` made of the means.
            throughput_bps: The means, shape (k,).
            resampled_bps: Means of resampled runs, shape (b, k).
            share: Of the claim, as 0.95.
        """
        drawn = fitted.throughput_bps(self.rtt_s) * resampled_bps / throughput_bps
        errors = self.errors(np.concatenate([throughput_bps[None, :], drawn]))
        above = errors - errors.min(axis=0)
        at = int(np.argmin(np.abs(self.transitions_s - fitted.transition_s)))
        inside = np.flatnonzero(above[:, 0] <= np.quantile(above[at, 1:], share))
        # The truth may lie between candidates.
        low, high = max(int(inside[0]) - 1, 0), min(int(inside[-1]) + 1, len(errors) - 1)
        return float(self.transitions_s[low]), float(self.transitions_s[high])


def grid(rtt_s: Array, throughput_bps: Array, *, runs: Array | None = None) -> Grid:
    """The candidates for profiles like this one: deviations count in relation to the throughput.

    Args:
        rtt_s: Shape (k,), growing, k ≥ `LEAST_RTTS`, seconds.
        throughput_bps: Means, shape (k,), above 0.
        runs: How many runs each mean rests on, shape (k,); `None` is as many at each.

    Raises:
        SigmoidError: with too few RTTs, RTTs that do not grow, or throughputs that are not above 0.
    """
    if len(rtt_s) < LEAST_RTTS or len(rtt_s) != len(throughput_bps):
        raise SigmoidError(f"a dual sigmoid needs at least {LEAST_RTTS} RTTs, here are {len(rtt_s)}")
    if not np.isfinite(rtt_s).all() or (np.diff(rtt_s) <= 0).any():
        raise SigmoidError("RTTs must be finite and grow")
    if not (np.isfinite(throughput_bps) & (throughput_bps > 0)).all():
        raise SigmoidError("every RTT needs a throughput above 0")
    inner = rtt_s[1:-1]
    steps = [
        np.linspace(low, high, CANDIDATES_A_GAP, endpoint=False) for low, high in itertools.pairwise(inner)
    ]
    counts = np.ones(len(rtt_s)) if runs is None else runs.astype(np.float64)
    transitions = np.concatenate([*steps, inner[-1:]])
    right = np.minimum(np.searchsorted(rtt_s, transitions, side="right"), len(rtt_s) - 1)
    around = np.stack([throughput_bps[right - 1], throughput_bps[right]])
    low, high = (1 - BEYOND) * around.min(axis=0), (1 + BEYOND) * around.max(axis=0)
    return Grid(
        rtt_s=rtt_s,
        weights=counts / throughput_bps**2,
        transitions_s=transitions,
        levels_bps=np.stack([low, high], axis=1),
    )


def _branches(rtt: Array, at: ArrayLike, concave: ArrayLike, convex: ArrayLike) -> tuple[Array, Array]:
    """2·g₁ − 1 before τ_T and 0 after; 1 before and 2·g₂ after."""
    # 2·g − 1 = −tanh(a(τ−t)/2): what overflows in g does not here.
    since = rtt - np.asarray(at)
    before = -np.tanh(np.asarray(concave) * np.minimum(since, 0) / 2)
    after = 1 - np.tanh(np.asarray(convex) * np.maximum(since, 0) / 2)
    return before, after


def _highest(explained: Callable[[NDArray[np.intp]], Array], count: int, level: Array) -> Array:
    """The most that a branch explains over its `count` steepnesses, of the shape (l, b) of `level`."""
    coarse = np.broadcast_to(np.arange(0, count, STRIDE)[None, :, None], (len(level), -(-count // STRIDE), 1))
    best = explained(coarse).argmax(axis=1)[:, None, :] * STRIDE
    fine = np.clip(best + np.arange(1 - STRIDE, STRIDE)[None, :, None], 0, count - 1)
    highest: Array = explained(fine).max(axis=1)
    return highest
