"""Which configuration wins where: the best of a campaign over RTT and size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from farlink_lab.advice import Adviser
from farlink_lab.choice import Task
from farlink_lab.findings import Refusal
from farlink_lab.ground import AdviceError, ground

if TYPE_CHECKING:
    from collections.abc import Sequence

    from farlink_lab.choice import Choice
    from farlink_lab.records import Record

Array = NDArray[np.float64]

# From what is over in slow start to what hardly notices it.
LEAST_BYTES, MOST_BYTES = 1e7, 1e12
RTT_CELLS, SIZE_CELLS = 60, 26
# Within this of the best, another is as good: its prediction is no surer.
AS_GOOD = 0.98


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Winners:
    """The best configuration for each RTT and size.

    Attributes:
        rtt_s: Shape (k,), growing.
        size_bytes: Shape (m,), growing.
        choices: Those that win somewhere, the one that wins most often first.
        winner: Shape (m, k): which of `choices`.
        throughput_bps: Shape (m, k): what it should reach.
        as_good: Shape (m, k): how many configurations, itself among them, should reach 98% of that.
        extrapolated: Shape (m, k): whether the winner's own runs lie all to one side of that RTT.
        told_by_others: Whether sizes rest on runs of other sizes or durations.
        measured_s: The RTTs that were measured.
        late_note: What is to be said of late runs; empty where none is late.
        others: Movers whose runs count for nothing here.
    """

    rtt_s: Array
    size_bytes: Array
    choices: tuple[Choice, ...]
    winner: NDArray[np.int64]
    throughput_bps: Array
    as_good: NDArray[np.int64]
    extrapolated: NDArray[np.bool_]
    told_by_others: bool
    measured_s: Array
    late_note: str
    others: tuple[str, ...]


def winners(records: Sequence[Record]) -> Winners | Refusal:
    """The map of a campaign, or why there is none: it takes two RTTs and two configurations of one path."""
    try:
        stood = ground(records)
        rtts = stood.rtt_s
        if len(rtts) < 2:
            return Refusal(reason="one RTT was measured, and a map takes two")
        if len(stood.choices) < 2:
            return Refusal(reason="one configuration was measured, and none wins without another")
        grid = np.geomspace(rtts[0], rtts[-1], RTT_CELLS)
        sizes = np.geomspace(LEAST_BYTES, MOST_BYTES, SIZE_CELLS)
        advisers = [Adviser(stood, Task(mode="size", amount=float(size))) for size in sizes]
    except AdviceError as error:
        return Refusal(reason=str(error))
    rates = np.array([[adviser.throughput_bps(float(rtt)) for rtt in grid] for adviser in advisers])
    beyond = np.array([[adviser.is_extrapolated(float(rtt)) for rtt in grid] for adviser in advisers])
    best = rates.argmax(axis=2)
    top = rates.max(axis=2)
    order = np.argsort(-np.bincount(best.ravel(), minlength=len(stood.choices)), kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return Winners(
        rtt_s=grid,
        size_bytes=sizes,
        choices=tuple(stood.choices[index] for index in order if (best == index).any()),
        winner=place[best],
        throughput_bps=top,
        as_good=(rates >= AS_GOOD * top[:, :, None]).sum(axis=2),
        extrapolated=np.take_along_axis(beyond, best[:, :, None], axis=2)[:, :, 0],
        told_by_others=any(adviser.ground.is_told_by_others(adviser.task) for adviser in advisers),
        measured_s=rtts,
        late_note=stood.late_note,
        others=stood.others,
    )
