"""Distributions of columns, of which a log has more values than can be held: their summaries, exactly.

In this process all values go by once, a block at a time; on a cluster they stay where they are.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from bisect import bisect_right
from collections import defaultdict, deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ibis
import numpy as np

from farlink_lab.logs.engine import DUCKDB
from farlink_lab.logs.summary import QUARTILES, Summary, between
from farlink_lab.logs.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from concurrent.futures import Future

    import pyarrow as pa
    from numpy.typing import NDArray

    from farlink_lab.logs.engine import Logs
    from farlink_lab.logs.transfer import Mask, Whole

_Tallies = dict[tuple[str, int], Tally]


def summaries_by(
    logs: Logs, table: Any, values: Mapping[str, Any], *, group: Any
) -> dict[str, dict[int, Summary]]:
    """The summaries of Ibis columns, none below zero, for each value of another: by name, then by that.

    Rows without a value do not count. The quartiles are those of all values.
    """
    doubles = {name: value.cast("float64") for name, value in values.items()}
    marked = table.select(group=group.cast("int64"), **doubles)
    if logs.name == DUCKDB:
        return _streamed(logs, marked, list(values))
    return {name: _grouped(logs, marked, marked[name]) for name in values}


def _streamed(logs: Logs, marked: Any, names: Sequence[str]) -> dict[str, dict[int, Summary]]:
    """The summaries, by passing the values through this process: twice where the first mislead."""
    tallies = _tallied(logs, marked, names)
    told = {key: tally.summary() for key, tally in tallies.items()}
    lacking = {key: tallies[key].again() for key, summary in told.items() if summary is None}
    if lacking:
        told |= {key: tally.summary() for key, tally in _tallied(logs, marked, names, lacking).items()}
    found: dict[str, dict[int, Summary]] = {name: {} for name in names}
    for (name, group), summary in told.items():
        if summary is not None:
            found[name][group] = summary
    return found


def _tallied(logs: Logs, marked: Any, names: Sequence[str], asked: _Tallies | None = None) -> _Tallies:
    """All values counted by name and group: those that are asked for, else all."""
    tallies: _Tallies = {} if asked is None else asked
    with contextlib.ExitStack() as stack:
        # A column has a thread of its own: what it counts comes in order.
        workers = {name: stack.enter_context(ThreadPoolExecutor(1)) for name in names}
        waiting: deque[Future[None]] = deque()
        for batch in logs.batches(marked):
            groups = list(_groups(batch["group"].to_numpy()))
            for name, worker in workers.items():
                mine = [
                    (here, tallies.setdefault((name, group), Tally()))
                    for group, here in groups
                    if asked is None or (name, group) in asked
                ]
                waiting.append(worker.submit(_take, batch[name], mine))
            while len(waiting) > _AHEAD:
                waiting.popleft().result()
        while waiting:
            waiting.popleft().result()
    return {key: tally for key, tally in tallies.items() if tally.count}


def _take(column: pa.Array, groups: Sequence[tuple[Mask | slice, Tally]]) -> None:
    """Counts a block of a column."""
    whole = column.to_numpy(zero_copy_only=False)
    for here, tally in groups:
        values = whole[here]
        if column.null_count:
            values = values[~np.isnan(values)]
        if len(values):
            tally.take(values)


def _groups(each: Whole) -> Iterator[tuple[int, Mask | slice]]:
    """Which rows are of which group: they mostly come in few runs."""
    edges = [0, *(np.flatnonzero(each[1:] != each[:-1]) + 1).tolist(), len(each)]
    if len(edges) <= _MOST_RUNS:
        for first, after in itertools.pairwise(edges):
            yield int(each[first]), slice(first, after)
        return
    for group in np.unique(each).tolist():
        yield group, each == group


def _grouped(logs: Logs, table: Any, value: Any) -> dict[int, Summary]:
    """The summary of one column, computed where the rows are.

    One pass counts how many values are of each class of size, and another fetches the few classes in which
    the quartiles lie.
    """
    marked = table.select("group", value=value)
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
        places = {place for quartile in QUARTILES for place in between(quartile, self._ends[-1])[:2]}
        for at in sorted({bisect_right(self._ends, place) for place in places}):
            if self._classes[at].low < self._classes[at].high:
                yield self._classes[at]

    def summary(self) -> Summary:
        """The summary, once what was unknown is known."""
        count = self._ends[-1]
        q1, median, q3 = map(self._quartile, QUARTILES)
        mean = math.fsum(each.total for each in self._classes) / count
        low, high = self._classes[0].low, self._classes[-1].high
        return Summary(count=count, min=low, q1=q1, median=median, mean=mean, q3=q3, max=high)

    def _quartile(self, quartile: float) -> float:
        first, second, part = between(quartile, self._ends[-1])
        low, high = self._at(first), self._at(second)
        return low + (high - low) * part

    def _at(self, place: int) -> float:
        at = bisect_right(self._ends, place)
        return self._classes[at].at(place - (self._ends[at - 1] if at else 0))


# In each 0.4%: so narrow that those of the quartiles are soon fetched, so wide that there are few.
_CLASSES_A_FACTOR_E = 256
# Of a block: beyond it they are gathered first.
_MOST_RUNS = 32
# Blocks of a column that wait to be counted: their memory is bounded.
_AHEAD = 12
# Below all that has a size: what has none stands for it.
_LEAST = 1e-300
