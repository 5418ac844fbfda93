"""What the spread of runs makes of profiles that are straight: the null that a shape is tested against.

The deviations of the runs from their means are dealt to the RTTs again, by permutation: on a straight profile
they might as well have fallen so (Fisher 1935; Good 2005, 3). Whatever statistic is compared is divided by a
spread that is estimated from the dealt runs as it was from the measured ones. With few runs that spread is
often too small by luck, and a test that forgets it errs too often; and nothing is assumed of how runs are
distributed but that they deviate alike, in relation to their means.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from farlink_lab.resampling import OWN_SPREAD_FROM

if TYPE_CHECKING:
    from collections.abc import Sequence

Array = NDArray[np.float64]

# Of straight profiles at most this share is called concave or convex, anywhere or as a whole.
LEVEL = 0.05
DEALS = 1999
# Runs that are all alike have no spread, which nothing can be divided by.
LEAST_SPREAD = 1e-12


class StraightError(ValueError):
    """Runs whose deviations cannot be dealt."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Straight:
    """Straight profiles of the same spread.

    Attributes:
        runs: How many runs a mean rests on, shape (k,).
        spread: Standard deviation of a run at each RTT in relation to its mean, as measured, shape (k,).
        deviations: Of the means of dealt runs, in relation to the means, shape (b, k).
        spreads: As `spread`, of the dealt runs, shape (b, k).
    """

    runs: Array
    spread: Array
    deviations: Array
    spreads: Array


def straight(
    throughput_bps: Sequence[Array], *, lending: NDArray[np.bool_], seed: int, deals: int = DEALS
) -> Straight:
    """Straight profiles with the deviations of these runs.

    From `OWN_SPREAD_FROM` runs at each RTT on, each RTT has a spread of its own. With fewer, all have one: so
    few runs cannot show their own.

    Args:
        throughput_bps: k arrays of the runs at each RTT, bit/s, above 0.
        lending: Shape (k,): the RTTs whose deviations are dealt, each with two runs at least; one at least.
        seed: Of the permutations.
        deals: How many, at least 1.

    Raises:
        StraightError: where an RTT has no run, a throughput is not finite or not above 0, no RTT lends its
            deviations, or one that does has a single run.
    """
    _check(throughput_bps, lending, deals=deals)
    random = np.random.default_rng(seed)
    counts = np.array([len(values) for values in throughput_bps])
    # Widened by √(n/(n−1)), since a mean lies amid its own runs.
    off = [(own / own.mean() - 1) * np.sqrt(len(own) / max(len(own) - 1, 1)) for own in throughput_bps]
    each_its_own = bool(counts.min() >= OWN_SPREAD_FROM)
    own = np.maximum([np.sqrt((one**2).mean()) for one in off], LEAST_SPREAD)
    if each_its_own:
        unit = own
    else:
        freedom = counts[lending] - 1
        unit = np.full(len(counts), np.sqrt(freedom @ own[lending] ** 2 / freedom.sum()))
    pool = np.concatenate([one / by for one, by, lent in zip(off, unit, lending, strict=True) if lent])
    dealt = random.permuted(np.tile(pool, (deals, 1)), axis=1)
    # RTTs that lend nothing draw from the pool besides: their runs are not among those dealt.
    hands, at = [], 0
    for count, lent in zip(counts, lending, strict=True):
        hands.append(dealt[:, at : at + count] if lent else random.choice(pool, (deals, count)))
        at += int(count) if lent else 0
    if each_its_own:
        spreads = np.stack([hand.std(axis=1, ddof=1) for hand in hands], axis=1)
    else:
        squares = sum(
            (
                (len(hand[0]) - 1) * hand.var(axis=1, ddof=1)
                for hand, lent in zip(hands, lending, strict=True)
                if lent
            ),
            start=np.zeros(deals),
        )
        spreads = np.repeat(np.sqrt(squares / (counts[lending] - 1).sum())[:, None], len(counts), axis=1)
    return Straight(
        runs=counts.astype(np.float64),
        spread=unit,
        deviations=unit * np.stack([hand.mean(axis=1) for hand in hands], axis=1),
        spreads=np.maximum(unit * spreads, LEAST_SPREAD),
    )


def _check(throughput_bps: Sequence[Array], lending: NDArray[np.bool_], *, deals: int) -> None:
    if len(lending) != len(throughput_bps) or any(len(values) == 0 for values in throughput_bps):
        raise StraightError("every RTT needs runs, and to be told whether it lends")
    if any(not (np.isfinite(values) & (values > 0)).all() for values in throughput_bps):
        raise StraightError("every RTT needs finite throughputs above 0")
    lent = [len(values) for values, lends in zip(throughput_bps, lending, strict=True) if lends]
    if min(lent, default=0) < 2:
        raise StraightError("deviations come from RTTs with two runs at least, and from one such at least")
    if deals < 1:
        raise StraightError(f"{deals} deals: at least 1")
