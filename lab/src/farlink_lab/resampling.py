"""The bootstrap of a profile's means: what else the same runs might have shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence

Array = NDArray[np.float64]

# From so many runs at each RTT on, each RTT is resampled from its own; with fewer, from the deviations of
# all.
OWN_SPREAD_FROM = 5
RESAMPLES = 2000


def mostly(flags: NDArray[np.bool_]) -> bool:
    """Whether at least half of `flags` are set, and one at all."""
    return bool(flags.any()) and 2 * int(flags.sum()) >= len(flags)


def has_spread(throughput_bps: Sequence[Array]) -> bool:
    """Whether at least half of the RTTs have more than one run: without, nothing can be said of spread."""
    return mostly(np.array([len(values) > 1 for values in throughput_bps], dtype=np.bool_))


def resampled_means(
    throughput_bps: Sequence[Array],
    *,
    seed: int,
    lending: NDArray[np.bool_] | None = None,
    resamples: int = RESAMPLES,
) -> Array:
    """Means of runs drawn again with replacement (Efron 1979), shape (resamples, k).

    From `OWN_SPREAD_FROM` runs at each RTT on, each RTT is resampled from its own. With fewer, the mean at an
    RTT is resampled from the relative deviations at all RTTs together, widened by √(n/(n−1)): this takes the
    relative spread to be alike at all RTTs, since so few runs cannot show their own.

    Args:
        throughput_bps: k arrays of the runs at each RTT, bit/s, above 0; one of them at least has two runs.
        seed: Of the resampling.
        lending: Shape (k,): the RTTs whose deviations stand for all; those of one run lend nothing. `None`
            is all.
        resamples: How many.
    """
    random = np.random.default_rng(seed)
    counts = [len(values) for values in throughput_bps]
    if min(counts) >= OWN_SPREAD_FROM:
        columns = [random.choice(values, (resamples, len(values))).mean(axis=1) for values in throughput_bps]
        return np.stack(columns, axis=1)
    lenders = np.ones(len(counts), dtype=np.bool_) if lending is None else lending
    means = np.array([values.mean() for values in throughput_bps])
    deviations = np.concatenate(
        [
            (values / mean - 1) * np.sqrt(len(values) / (len(values) - 1))
            for values, mean, lends in zip(throughput_bps, means, lenders, strict=True)
            if lends and len(values) > 1
        ]
    )
    columns = [
        mean * (1 + random.choice(deviations, (resamples, count)).mean(axis=1))
        for mean, count in zip(means, counts, strict=True)
    ]
    # A deviation of −100% or beyond would make the ratio of heights meaningless.
    bounded: Array = np.maximum(np.stack(columns, axis=1), 1e-9 * means)
    return bounded


def lenders(throughput_bps: Sequence[Array], late: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The RTTs whose deviations may stand for all, shape (k,): those not late, where they suffice."""
    counts = np.array([len(values) for values in throughput_bps])
    trusted = mostly(counts[~late] > 1)
    return (counts > 1) & ~late if trusted else counts > 1
