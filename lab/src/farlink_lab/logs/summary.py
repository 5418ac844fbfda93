"""Least, quartiles, mean and most: how the studies tell a distribution."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import ibis
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from farlink_lab.logs.engine import Logs

# In the order of the studies' tables.
COLUMNS = ("min", "q1", "median", "mean", "q3", "max")


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Six numbers of a distribution, in its unit; quartiles are interpolated between values."""

    count: int
    min: float
    q1: float
    median: float
    mean: float
    q3: float
    max: float

    @property
    def spread(self) -> float:
        """The range between the quartiles (IQR)."""
        return self.q3 - self.q1

    def scaled(self, factor: float) -> Summary:
        """The same in another unit."""
        return Summary(count=self.count, **{name: getattr(self, name) * factor for name in COLUMNS})

    def as_json(self) -> dict[str, float]:
        """By its names."""
        return asdict(self)


def summaries_by(logs: Logs, table: Any, value: Any, *, group: Any) -> dict[int, Summary]:
    """The summary of an Ibis column for each value of another; rows without a value do not count.

    The quartiles are those of all values, and yet they are never held: one pass counts how many are of each
    class of size, and another fetches the few classes in which the quartiles lie.
    """
    marked = table.select(group=group.cast("int64"), value=value.cast("float64"))
    marked = marked.filter(marked.value.notnull())
    logarithm = ibis.ifelse(marked.value > 0, marked.value, _LEAST).ln()
    classed = marked.mutate(size_class=(logarithm * _CLASSES_A_FACTOR_E).floor().cast("int32"))
    counted = classed.group_by("group", "size_class").agg(
        count=classed.count().cast("int64"),
        low=classed.value.min(),
        high=classed.value.max(),
        total=classed.value.sum(),
    )
    classes: dict[int, list[_Class]] = defaultdict(list)
    for row in logs.rows(counted):
        classes[row["group"]].append(
            _Class(
                number=row["size_class"],
                low=row["low"],
                high=row["high"],
                count=int(row["count"]),
                total=row["total"],
            )
        )
    ranked = {key: _Ranked(sorted(of, key=lambda each: each.low)) for key, of in classes.items()}
    wanted = [(key, each) for key, of in ranked.items() for each in of.unknown()]
    if wanted:
        near = classed.filter(classed.size_class.isin(sorted({each.number for _, each in wanted})))
        fetched = logs.table(near.group_by("group", "value").agg(count=near.count().cast("int64")))
        of_group, values, counts = (fetched[name].to_numpy() for name in ("group", "value", "count"))
        for key, each in wanted:
            here = np.flatnonzero((of_group == key) & (values >= each.low) & (values <= each.high))
            here = here[np.argsort(values[here])]
            each.known = np.repeat(values[here], counts[here])
    return {key: of.summary() for key, of in ranked.items()}


@dataclass(slots=True, kw_only=True)
class _Class:
    """Values between two bounds; `known` are they themselves, in their order."""

    number: int
    low: float
    high: float
    count: int
    total: float
    known: NDArray[np.float64] | None = None

    def at(self, rank: int) -> float:
        """The value of that rank among them, from 0."""
        return self.low if self.known is None else float(self.known[rank])


class _Ranked:
    """All values of a group, as classes in their order."""

    def __init__(self, classes: Sequence[_Class]) -> None:
        self._classes = classes
        self._ends = list(itertools.accumulate(each.count for each in classes))

    def unknown(self) -> Iterator[_Class]:
        """The classes that must be known for the quartiles, and have more than one value."""
        places = {place for quartile in _QUARTILES for place in self._places(quartile)[:2]}
        for at in sorted({bisect_right(self._ends, place) for place in places}):
            if self._classes[at].low < self._classes[at].high:
                yield self._classes[at]

    def summary(self) -> Summary:
        """The summary, once what was unknown is known."""
        count = self._ends[-1]
        q1, median, q3 = map(self._quartile, _QUARTILES)
        mean = math.fsum(each.total for each in self._classes) / count
        low, high = self._classes[0].low, self._classes[-1].high
        return Summary(count=count, min=low, q1=q1, median=median, mean=mean, q3=q3, max=high)

    def _quartile(self, quartile: float) -> float:
        first, second, between = self._places(quartile)
        low, high = self._at(first), self._at(second)
        return low + (high - low) * between

    def _places(self, quartile: float) -> tuple[int, int, float]:
        """The ranks that a quartile lies between, and how far from the first."""
        place = (self._ends[-1] - 1) * quartile
        first = math.floor(place)
        return first, min(first + 1, self._ends[-1] - 1), place - first

    def _at(self, place: int) -> float:
        at = bisect_right(self._ends, place)
        return self._classes[at].at(place - (self._ends[at - 1] if at else 0))


def size_class(size: Any, a_doubling: int) -> Any:
    """Which class of size an Ibis column is of: `a_doubling` for each power of two."""
    # Engines' logarithms of a power of two, as sizes of files often are, may fall short of the whole number.
    return (size.cast("float64").log2() * a_doubling + _ROUNDING).floor().cast("int64")


def summarised(values: NDArray[np.float64]) -> Summary:
    """The summary of values in memory, at least one."""
    low, q1, median, q3, high = np.quantile(values, [0, 0.25, 0.5, 0.75, 1])
    return Summary(
        count=len(values),
        min=float(low),
        q1=float(q1),
        median=float(median),
        mean=float(values.mean()),
        q3=float(q3),
        max=float(high),
    )


# Far more than a logarithm is wrong by, and far less than what tells sizes apart.
_ROUNDING = 1e-9
# In each 0.4%: so narrow that those of the quartiles are soon fetched, so wide that there are few.
_CLASSES_A_FACTOR_E = 256
# Below all that has a size: what has none stands for it.
_LEAST = 1e-300
_QUARTILES = (0.25, 0.5, 0.75)
