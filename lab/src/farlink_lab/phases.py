"""The two phases of a transfer: ramp-up, then sustainment, split at one change point of its samples.

The rate of the samples is taken for a straight line until the change and for a constant after it; the change
is where the two fit best (least squares, weighted by each sample's time), if they fit so much better than one
constant that noise does not explain it (Schwarz 1978). A ramp that is steeper at its end,
as slow start's is, still has its change at the knee: a line that went past it would have to miss the constant
part.

That Θ = θ_S − f_R·(θ_S − θ_R) rebuilds a run's own mean is no evidence for its split: it is an identity,
which any split meets exactly. What can fail is to foretell a run from the phases of the others. No split can
do so better than the runs repeat: beside its error stands what foretelling Θ from the others' Θ leaves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence

Array = NDArray[np.float64]

# A constant needs a few samples to be one.
LEAST_SAMPLES = 3
# Where what comes before the change is as fast as what comes after, within this, there was no ramp-up.
NO_RAMP = 0.95


class PhasesError(ValueError):
    """Samples that have no phases, as they are no samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """The phases of one run.

    Attributes:
        ramp_up_s: T_R, seconds since the first byte might leave; 0 where there was no ramp-up.
        ramp_up_bps: θ_R, mean throughput until then; 0 where there was none.
        sustained_bps: θ_S, mean throughput after it.
        end_s: The end of the last sample.
    """

    ramp_up_s: float
    ramp_up_bps: float
    sustained_bps: float
    end_s: float

    @property
    def ramp_up_share(self) -> float:
        """f_R = T_R/T_O."""
        return self.ramp_up_s / self.end_s

    @property
    def rebuilt_bps(self) -> float:
        """Θ = θ_S − f_R·(θ_S − θ_R), with f_R = T_R/T_O: the mean of the samples, wherever they are split."""
        return self.sustained_bps - self.ramp_up_share * (self.sustained_bps - self.ramp_up_bps)


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasesAt:
    """The phases of a profile's runs at one RTT: medians over those whose samples tell them.

    Attributes:
        rtt_s: τ.
        runs: How many runs told their phases.
        ramp_up_s: T_R.
        ramp_up_bps: θ_R.
        sustained_bps: θ_S.
        ramp_up_share: f_R.
        rebuilt_error: Of the worst run: |Θ rebuilt − Θ measured| / Θ measured. It tells whether the samples
            account for all that arrived, and nothing on where they were split.
        foretold_error: Median over the runs: |Θ foretold − Θ measured| / Θ measured, from the median θ_S, θ_R
            and f_R of the other runs; `None` with one run.
        spread_error: Likewise from the median Θ of the other runs: what no split can mend.
    """

    rtt_s: float
    runs: int
    ramp_up_s: float
    ramp_up_bps: float
    sustained_bps: float
    ramp_up_share: float
    rebuilt_error: float
    foretold_error: float | None
    spread_error: float | None


def phases_at(rtt_s: float, split: Sequence[Phases], throughput_bps: Sequence[float]) -> PhasesAt | None:
    """What runs at one RTT have in common; `None` without any.

    Args:
        rtt_s: τ, seconds.
        split: The phases of each run.
        throughput_bps: Θ of each run, as measured, above 0.

    Raises:
        PhasesError: where an RTT or a throughput is impossible, or they are not as many.
    """
    if not split:
        return None
    measured_bps = np.asarray(throughput_bps, dtype=np.float64)
    if not (math.isfinite(rtt_s) and rtt_s >= 0):
        raise PhasesError(f"an RTT of {rtt_s:g} s: it must be finite and at least 0")
    if len(measured_bps) != len(split) or not (np.isfinite(measured_bps) & (measured_bps > 0)).all():
        raise PhasesError("every run needs a finite throughput above 0")
    columns = np.array(
        [(one.ramp_up_s, one.ramp_up_bps, one.sustained_bps, one.ramp_up_share) for one in split]
    )
    ramp_up_s, ramp_up_bps, sustained_bps, share = (float(value) for value in np.median(columns, axis=0))
    errors = [
        abs(one.rebuilt_bps / measured - 1) for one, measured in zip(split, throughput_bps, strict=True)
    ]
    return PhasesAt(
        rtt_s=rtt_s,
        runs=len(split),
        ramp_up_s=ramp_up_s,
        ramp_up_bps=ramp_up_bps,
        sustained_bps=sustained_bps,
        ramp_up_share=share,
        rebuilt_error=max(errors),
        foretold_error=_foretold_error(columns[:, 1:], np.array(throughput_bps)),
        spread_error=_spread_error(np.array(throughput_bps)),
    )


def _foretold_error(phases_of_runs: Array, throughput_bps: Array) -> float | None:
    """Columns θ_R, θ_S, f_R; each run is foretold from the medians of the others."""
    count = len(phases_of_runs)
    if count < 2:
        return None
    columns = phases_of_runs.copy()
    # A run without ramp-up says nothing of θ_R: it must not halve that of the others.
    without = columns[:, 2] == 0
    columns[without, 0] = columns[without, 1]
    others = [np.median(np.delete(columns, run, axis=0), axis=0) for run in range(count)]
    foretold = np.array([above - share * (above - below) for below, above, share in others])
    return float(np.median(np.abs(foretold / throughput_bps - 1)))


def _spread_error(throughput_bps: Array) -> float | None:
    """Each run is foretold from the median of the others."""
    if len(throughput_bps) < 2:
        return None
    others = np.array([np.median(np.delete(throughput_bps, run)) for run in range(len(throughput_bps))])
    return float(np.median(np.abs(others / throughput_bps - 1)))


def rates_bps(samples: Array) -> tuple[Array, Array, Array]:
    """`(start_s, end_s, rate_bps)` of each interval, each of shape (n,).

    Args:
        samples: Shape (n, 2): bytes that arrived in the interval that ends t seconds after the start; times
            grow, from above 0 on.

    Raises:
        PhasesError: where a value is not finite or below 0, or an interval has no length.
    """
    _check(samples)
    if len(samples) and samples[0, 0] <= 0:
        raise PhasesError("an interval without length has no rate: the first sample must end after 0 s")
    ends = samples[:, 0]
    starts = np.concatenate([[0.0], ends[:-1]])
    return starts, ends, 8 * samples[:, 1] / (ends - starts)


def phases(samples: Array) -> Phases | None:
    """The phases of a run's samples; `None` with too few samples to tell, or none that moved a byte.

    Args:
        samples: Shape (n, 2): bytes that arrived in the interval that ends t seconds after the start.

    Raises:
        PhasesError: where a value is not finite or below 0, or an interval has no length.
    """
    if not len(samples):
        return None
    _check(samples)
    if len(samples) < 2 * LEAST_SAMPLES or samples[0, 0] <= 0 or samples[:, 1].sum() <= 0:
        return None
    starts, ends, rates = rates_bps(samples)
    weights = ends - starts
    change = _change(time=(starts + ends) / 2, rates=rates, weights=weights)
    before, after = slice(0, change), slice(change, None)
    sustained = float(np.average(rates[after], weights=weights[after]))
    ramp = float(np.average(rates[before], weights=weights[before])) if change else 0.0
    if change == 0 or ramp >= NO_RAMP * sustained:
        whole = float(np.average(rates, weights=weights))
        return Phases(ramp_up_s=0.0, ramp_up_bps=0.0, sustained_bps=whole, end_s=float(ends[-1]))
    return Phases(
        ramp_up_s=float(ends[change - 1]), ramp_up_bps=ramp, sustained_bps=sustained, end_s=float(ends[-1])
    )


def _check(samples: Array) -> None:
    if samples.ndim != 2 or samples.shape[1] != 2 or not np.isfinite(samples).all() or (samples < 0).any():
        raise PhasesError("samples are pairs of finite numbers, at least 0: seconds and bytes")
    if (np.diff(samples[:, 0]) <= 0).any():
        raise PhasesError("an interval without length has no rate: times of samples must grow")


def _change(*, time: Array, rates: Array, weights: Array) -> int:
    """How many samples come before the change: 0, or at least 1 and all but `LEAST_SAMPLES`."""
    n = len(rates)
    # Sums up to each sample make every fit O(1); scaling keeps the differences of large sums exact enough.
    y = rates / rates.max()
    t = time / time[-1]
    sums = [
        np.concatenate([[0.0], np.cumsum(weights * term)])
        for term in (1.0 + 0 * t, t, t * t, y, y * y, t * y)
    ]

    def constant(first: int, last: int) -> float:
        w, _, _, sy, syy, _ = (total[last] - total[first] for total in sums)
        return float(syy - sy * sy / w)

    def line(last: int) -> float:
        w, st, stt, sy, syy, sty = (total[last] for total in sums)
        spread = stt - st * st / w
        slope = (sty - st * sy / w) / spread if spread > 1e-15 else 0.0
        # A ramp goes up; where a falling line would fit, a constant stands for it.
        slope = max(slope, 0.0)
        return float(syy - sy * sy / w - 2 * slope * (sty - st * sy / w) + slope * slope * spread)

    flat = constant(0, n)
    errors = [line(k) + constant(k, n) for k in range(1, n - LEAST_SAMPLES + 1)]
    best = int(np.argmin(errors))
    # Slope, level and place of the change: three parameters more, ln n each.
    explained = n * (np.log(max(flat, 1e-300)) - np.log(max(errors[best], 1e-300)))
    return best + 1 if explained > 3 * np.log(n) else 0
