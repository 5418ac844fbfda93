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
OWN_SPREAD_FROM = 10
RESAMPLES = 2000


class ResamplingError(ValueError):
    """Runs that cannot be drawn again."""


def mostly(flags: NDArray[np.bool_]) -> bool:
    """Whether at least half of `flags` are set, and one at all."""
    return bool(flags.any()) and 2 * int(flags.sum()) >= len(flags)


def has_spread(throughput_bps: Sequence[Array]) -> bool:
    """Whether at least half of the RTTs have more than one run: without, nothing can be said of spread.

    Args:
        throughput_bps: An array of the runs at each RTT, of any length.
    """
    return mostly(np.array([len(values) > 1 for values in throughput_bps], dtype=np.bool_))


def resampled_means(
    throughput_bps: Sequence[Array],
    *,
    seed: int,
    lending: NDArray[np.bool_] | None = None,
    resamples: int = RESAMPLES,
) -> Array:
    """Means of runs drawn again with replacement (Efron 1979), shape (resamples, k).

    Deviations from a mean are widened by √(n/(n−1)), since the mean lies amid its own runs. From
    `OWN_SPREAD_FROM` runs at each RTT on, each RTT is resampled from its own. With fewer, the mean at an
    RTT is resampled from the relative deviations at all RTTs together: this takes the
    relative spread to be alike at all RTTs, since so few runs cannot show their own.

    Args:
        throughput_bps: k arrays of the runs at each RTT, bit/s, above 0; one of them at least has two runs.
        seed: Of the resampling.
        lending: Shape (k,): the RTTs whose deviations stand for all; those of one run lend nothing. `None`
            is all.
        resamples: How many.

    Raises:
        ResamplingError: where an RTT has no run, a throughput is not finite or not above 0, or with fewer
            than `OWN_SPREAD_FROM` runs at an RTT none that lends has two.
    """
    _check(throughput_bps, lending)
    if any((values <= 0).any() for values in throughput_bps):
        raise ResamplingError("throughputs that are drawn again must be above 0")
    random = np.random.default_rng(seed)
    counts = [len(values) for values in throughput_bps]
    means = np.array([values.mean() for values in throughput_bps])
    lends = np.ones(len(counts), dtype=np.bool_) if lending is None else lending
    deviations = [
        (values / mean - 1) * np.sqrt(len(values) / max(len(values) - 1, 1))
        for values, mean in zip(throughput_bps, means, strict=True)
    ]
    if min(counts) < OWN_SPREAD_FROM:
        if not any(lent and count > 1 for lent, count in zip(lends, counts, strict=True)):
            raise ResamplingError(
                "no RTT that lends its deviations has two runs: there is no spread to draw on"
            )
        of_all = np.concatenate(
            [own for own, lent in zip(deviations, lends, strict=True) if lent and len(own) > 1]
        )
        deviations = [of_all] * len(counts)
    columns = [
        mean * (1 + random.choice(drawn_from, (resamples, count)).mean(axis=1))
        for mean, count, drawn_from in zip(means, counts, deviations, strict=True)
    ]
    # A deviation of −100% or beyond would make the ratio of heights meaningless.
    bounded: Array = np.maximum(np.stack(columns, axis=1), 1e-9 * means)
    return bounded


def mean_band(
    throughput_bps: Sequence[Array],
    *,
    seed: int,
    late: NDArray[np.bool_],
    share: float = 0.95,
    resamples: int = RESAMPLES,
) -> Array | None:
    """A bootstrap band for the means (quantiles of the resampled means), shape (2, k), bit/s.

    `None` where there is no spread to draw on: one run at most RTTs, or a throughput of 0.

    Args:
        throughput_bps: k arrays of the runs at each RTT, bit/s.
        seed: Of the resampling.
        late: Shape (k,): RTTs whose deviations lend nothing to others.
        share: Of the band, in (0, 1).
        resamples: How many.

    Raises:
        ResamplingError: where an RTT has no run, a throughput is not finite or below 0, or the share is none.
    """
    _check(throughput_bps, late)
    if not 0 < share < 1:
        raise ResamplingError(f"a share of {share:g}: a band holds more than 0 and less than 1")
    if not has_spread(throughput_bps) or any((values <= 0).any() for values in throughput_bps):
        return None
    drawn = resampled_means(
        throughput_bps, lending=lenders(throughput_bps, late), seed=seed, resamples=resamples
    )
    band: Array = np.quantile(drawn, [(1 - share) / 2, (1 + share) / 2], axis=0)
    return band


def lenders(throughput_bps: Sequence[Array], late: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The RTTs whose deviations may stand for all, shape (k,): those not late, where they suffice.

    Args:
        throughput_bps: k arrays of the runs at each RTT, bit/s.
        late: Shape (k,).

    Raises:
        ResamplingError: where an RTT has no run, or a throughput is not finite or below 0.
    """
    _check(throughput_bps, late)
    counts = np.array([len(values) for values in throughput_bps])
    trusted = mostly(counts[~late] > 1)
    return (counts > 1) & ~late if trusted else counts > 1


def _check(throughput_bps: Sequence[Array], flags: NDArray[np.bool_] | None) -> None:
    if not throughput_bps or any(len(values) == 0 for values in throughput_bps):
        raise ResamplingError("every RTT needs runs, and there must be one at least")
    if any(not (np.isfinite(values) & (values >= 0)).all() for values in throughput_bps):
        raise ResamplingError("every RTT needs finite throughputs, at least 0")
    if flags is not None and len(flags) != len(throughput_bps):
        raise ResamplingError(f"{len(flags)} flags for {len(throughput_bps)} RTTs")
