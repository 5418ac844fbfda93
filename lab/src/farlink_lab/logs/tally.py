"""The quartiles of a stream of values, exactly, of which few are held.

Values are counted by classes of size so narrow that those in which the quartiles lie have few values. Which
those are the first values tell, nearly; of the rest only what falls near is kept. Where the guess was wrong,
as of a log that changed, the stream must be taken once more.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from farlink_lab.logs.summary import QUARTILES, Summary, between

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from farlink_lab.logs.transfer import Mask, Whole


class Tally:
    """A distribution of numbers that are not negative, batch by batch.

    1. [`take`](Self.take) all values
    2. [`summary`](Self.summary); where it is nothing, give [`again`](Self.again) the same values

    Attributes:
        count: Values that have come.
    """

    def __init__(self, near: Mask | None = None) -> None:
        self.count = 0
        self._near = near
        self._first: list[NDArray[np.float64]] = []
        self._counts = np.zeros(_CLASSES, dtype=np.int64)
        self._sums: list[float] = []
        self._least, self._most = math.inf, -math.inf
        self._pending: list[NDArray[np.float64]] = []
        self._pending_count = 0
        self._kept: list[tuple[NDArray[np.float64], Whole]] = []

    def take(self, values: NDArray[np.float64]) -> None:
        """Counts more values."""
        self.count += len(values)
        if self._near is not None:
            self._count(values, self._near)
            return
        self._first.append(values)
        if self.count > _FIRST:
            self._guess()

    def _guess(self) -> Mask:
        """Foretells the quartiles by the first values, and counts those."""
        near = _guessed(np.concatenate(self._first))
        for values in self._first:
            self._count(values, near)
        self._near, self._first = near, []
        return near

    def _count(self, values: NDArray[np.float64], near: Mask) -> None:
        classes = _class_of(values)
        first = int(classes.min())
        counts = np.bincount(classes - first)
        self._counts[first : first + len(counts)] += counts
        self._sums.append(float(values.sum()))
        self._least = min(self._least, float(values.min()))
        self._most = max(self._most, float(values.max()))
        kept = values[near[classes]]
        self._pending.append(kept)
        self._pending_count += len(kept)
        if self._pending_count > _PENDING:
            self._pack()

    def summary(self) -> Summary | None:
        """The summary of at least one value; nothing where a quartile is not near what was kept."""
        counts, near, _ = self._range()
        ends = np.cumsum(counts)
        count = int(ends[-1])
        places = [between(quartile, count) for quartile in QUARTILES]
        ranks = np.array([place[:2] for place in places])
        classes = np.searchsorted(ends, ranks, side="right")
        if not near[classes].all():
            return None
        self._pack()
        values, often = (np.concatenate(each) for each in zip(*self._kept, strict=True))
        if len(self._kept) > 1:
            order = np.argsort(values)
            values, often = values[order], often[order]
        kept_ends = np.cumsum(often)
        # From the rank among all to that among the kept: what was not kept lies in whole classes.
        dropped = np.cumsum(np.where(near, 0, counts))[classes]
        at = values[np.searchsorted(kept_ends, ranks - dropped, side="right")]
        q1, median, q3 = (
            float(low + (high - low) * part) for (low, high), (*_, part) in zip(at, places, strict=True)
        )
        mean = math.fsum(self._sums) / count
        return Summary(count=count, min=self._least, q1=q1, median=median, mean=mean, q3=q3, max=self._most)

    def again(self) -> Tally:
        """One that keeps the classes in which the quartiles of these values lie."""
        counts, _, first = self._range()
        ends = np.cumsum(counts)
        near = np.zeros(_CLASSES, dtype=np.bool_)
        for quartile in QUARTILES:
            ranks = between(quartile, int(ends[-1]))[:2]
            near[first + np.searchsorted(ends, ranks, side="right")] = True
        return Tally(near)

    def _range(self) -> tuple[Whole, Mask, int]:
        """Of the classes from the least to the greatest: what they count, which are kept, and the first."""
        near = self._guess() if self._near is None else self._near
        first, last = _class_of(np.array([self._least, self._most])).tolist()
        here = slice(first, last + 1)
        return self._counts[here], near[here], first

    def _pack(self) -> None:
        """Holds what is pending once each, with how often it came: sizes of files are often the same."""
        if self._pending:
            values, counts = np.unique(np.concatenate(self._pending), return_counts=True)
            self._kept.append((values, counts))
            self._pending, self._pending_count = [], 0


def _guessed(values: NDArray[np.float64]) -> Mask:
    """The classes near the quartiles of the first values."""
    ordered = np.sort(values)
    last = len(ordered) - 1
    near = np.zeros(_CLASSES, dtype=np.bool_)
    for quartile in QUARTILES:
        margin = _MARGIN * math.sqrt(quartile * (1 - quartile) / len(ordered))
        low = max(0, math.floor((quartile - margin) * last))
        high = min(last, math.ceil((quartile + margin) * last))
        first, end = _class_of(ordered[[low, high]])
        near[first : end + 1] = True
    return near


def _class_of(values: NDArray[np.float64]) -> Whole:
    """Of numbers that are not negative the order is that of their bits, by their highest here."""
    found: Whole = values.view(np.int64) >> _SHIFT
    return found


# Of the bits of a number, those below: the exponent is left, and eight digits, in each of 0.4% a class.
_SHIFT = 44
_CLASSES = 1 << (63 - _SHIFT)
# In standard errors of a quartile of as many values, had they come in no order. Those of a session are alike:
# fifty of them tell no more than one.
_MARGIN = 40.0
# Values that the quartiles are foretold by; their batches are held until then.
_FIRST = 1 << 20
# Values that are held as they come, before they are packed.
_PENDING = 1 << 20
