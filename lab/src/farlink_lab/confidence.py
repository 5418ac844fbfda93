"""What the next transfer may reach at an RTT that was not measured, without a word on how throughputs spread.

The only assumption is that a longer RTT never helps: Θ at τ is stochastically at most Θ at a shorter RTT and
at least Θ at a longer one. Then runs at RTTs up to τ bound the next run from above, and runs at RTTs from τ
on from below: with m runs of independent transfers on a side, the chance that the next one at τ lies beyond
their j-th most extreme is at most j/(m+1). (For exchangeable runs this is conformal prediction: Vovk,
Gammerman and Shafer 2005, 2. Runs at other RTTs only make it safer, which a coupling shows.) It holds for any
distribution of runs, also one that changes with RTT, and for any number of runs; it needs no model, and no
RTTs chosen at random.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from farlink_lab.quantity import show_time

if TYPE_CHECKING:
    from collections.abc import Sequence

Array = NDArray[np.float64]

# What an interval promises where the runs suffice: 9 on either side.
CLAIM = 0.8
# A rise between two neighbouring RTTs refutes the assumption where chance makes one as clear this rarely.
RISE_LEVEL = 0.01


class ConfidenceError(ValueError):
    """A prediction that the runs do not support."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Where the next transfer's throughput lies, at any RTT of a gap, bit/s.

    Attributes:
        from_s: The RTT at which the gap begins; measured.
        to_s: The RTT at which it ends; measured.
        low_bps: Lower bound.
        high_bps: Upper bound.
        claim: The least probability that the next transfer lies between them; below what was asked where the
            runs are too few.
    """

    from_s: float
    to_s: float
    low_bps: float
    high_bps: float
    claim: float


def interval_at(
    rtt_s: float, rtts_s: Array, throughput_bps: Sequence[Array], *, claim: float = CLAIM
) -> Interval:
    """The interval for the next transfer at `rtt_s`, within the measured RTTs.

    Runs are taken from the nearest RTTs outwards until they suffice for the claim.

    Args:
        rtt_s: τ, seconds.
        rtts_s: The measured RTTs, shape (k,), growing.
        throughput_bps: k arrays of runs, bit/s.
        claim: The least probability asked for, in (0, 1).

    Raises:
        ConfidenceError: where τ lies outside the measured RTTs, a value is impossible, or the runs rise with
            RTT.
    """
    _check(rtts_s, throughput_bps, claim)
    return _interval_at(rtt_s, rtts_s, throughput_bps, claim)


def intervals(
    rtts_s: Array, throughput_bps: Sequence[Array], *, claim: float = CLAIM
) -> tuple[Interval, ...]:
    """The interval in each gap between neighbouring RTTs: it is the same at every RTT within.

    Args:
        rtts_s: The measured RTTs, shape (k,), growing, s; k ≥ 2.
        throughput_bps: k arrays of runs, bit/s.
        claim: The least probability asked for, in (0, 1).

    Returns:
        k − 1 intervals, bit/s.

    Raises:
        ConfidenceError: as `interval_at`, and with fewer than two RTTs.
    """
    _check(rtts_s, throughput_bps, claim)
    if len(rtts_s) < 2:
        raise ConfidenceError(f"an RTT between needs at least two that were measured, here is {len(rtts_s)}")
    middles = (rtts_s[:-1] + rtts_s[1:]) / 2
    return tuple(_interval_at(float(rtt), rtts_s, throughput_bps, claim) for rtt in middles)


def _interval_at(rtt_s: float, rtts_s: Array, throughput_bps: Sequence[Array], claim: float) -> Interval:
    if not rtts_s[0] <= rtt_s <= rtts_s[-1]:
        raise ConfidenceError(
            f"{show_time(rtt_s)} is outside the measured {show_time(rtts_s[0])} to {show_time(rtts_s[-1])}: "
            "there is nothing to bound it"
        )
    right = int(np.searchsorted(rtts_s, rtt_s, side="left"))
    left = int(np.searchsorted(rtts_s, rtt_s, side="right")) - 1
    above, over = _extreme(list(throughput_bps[left::-1]), (1 - claim) / 2, sign=1)
    below, under = _extreme(list(throughput_bps[right:]), (1 - claim) / 2, sign=-1)
    return Interval(
        from_s=float(rtts_s[left]),
        to_s=float(rtts_s[right]),
        low_bps=below,
        high_bps=above,
        claim=max(0.0, 1 - over - under),
    )


def rises(rtts_s: Array, throughput_bps: Sequence[Array]) -> tuple[tuple[float, float], ...]:
    """Neighbouring RTTs (seconds) between which throughput rises beyond chance.

    The test of Mann and Whitney (1947) of each pair, at `RISE_LEVEL` for all together (Bonferroni's bound).
    Three runs a point cannot show a rise among seven RTTs.

    Args:
        rtts_s: The measured RTTs, shape (k,), growing, s.
        throughput_bps: k arrays of runs, bit/s.

    Returns:
        `(shorter, longer)` of each such pair, s.

    Raises:
        ConfidenceError: without RTTs, or where they do not grow, one has no run, or a throughput is not
            finite or below 0.
    """
    _check_runs(rtts_s, throughput_bps)
    # Half a second to load, for this function alone.
    from scipy.stats import mannwhitneyu  # noqa: PLC0415

    pairs = len(rtts_s) - 1
    found = []
    for index in range(pairs):
        shorter, longer = throughput_bps[index], throughput_bps[index + 1]
        if longer.min() == longer.max() == shorter.min() == shorter.max():
            continue
        if mannwhitneyu(longer, shorter, alternative="greater").pvalue * pairs < RISE_LEVEL:
            found.append((float(rtts_s[index]), float(rtts_s[index + 1])))
    return tuple(found)


def _check(rtts_s: Array, throughput_bps: Sequence[Array], claim: float) -> None:
    if not 0 < claim < 1:
        raise ConfidenceError(f"a claim of {claim:g}: it must be between 0 and 1")
    for low, high in rises(rtts_s, throughput_bps):
        raise ConfidenceError(
            f"throughput rises from {show_time(low)} to {show_time(high)} beyond chance: runs at one RTT do "
            "not bound those at another"
        )


def _check_runs(rtts_s: Array, throughput_bps: Sequence[Array]) -> None:
    if len(rtts_s) == 0 or len(rtts_s) != len(throughput_bps):
        raise ConfidenceError("every RTT needs runs, and there must be one at least")
    if not np.isfinite(rtts_s).all() or (np.diff(rtts_s) <= 0).any():
        raise ConfidenceError("RTTs must be finite and grow")
    if any(len(values) == 0 or not (np.isfinite(values) & (values >= 0)).all() for values in throughput_bps):
        raise ConfidenceError("every RTT needs runs of finite throughputs, at least 0")


def _extreme(nearest: list[Array], share: float, *, sign: int) -> tuple[float, float]:
    """The bound that `nearest` (outwards) give on one side, and the chance of the next run beyond it."""
    taken: list[Array] = []
    for values in nearest:
        taken.append(values)
        count = sum(len(each) for each in taken)
        if share * (count + 1) >= 1 - 1e-9:
            break
    runs = np.sort(sign * np.concatenate(taken))[::-1]
    place = max(int(share * (len(runs) + 1) + 1e-9), 1)
    return float(sign * runs[place - 1]), place / (len(runs) + 1)
