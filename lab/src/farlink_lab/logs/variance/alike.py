"""Transfers that are alike in size and path, and how their throughputs spread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ibis
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from farlink_lab.logs.summary import Summary, size_class, summarised
from farlink_lab.logs.transfer import US, LogError

if TYPE_CHECKING:
    from farlink_lab.logs.engine import Logs

Array = NDArray[np.float64]
Whole = NDArray[np.int64]

# Sizes within half a power of two are alike, where nobody says which are.
CLASSES_A_DOUBLING = 2
# Below it a spread says nothing, and no factor can be told from chance.
FEWEST = 20
# Of a larger group so many are drawn: more would tell the same, and take longer.
MOST = 20_000
# Transfers of a path with gaps of at most that are of one session, for what counts as independent.
GAP_US = 60 * US
# Hosts that a refusal names.
HOSTS_NAMED = 3
_FACTORS = ("streams", "stripes", "sender_cpu_s", "receiver_cpu_s", "read_s", "write_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which transfers are taken as alike.

    Attributes:
        source, destination: Of the path; `None` takes that with most transfers of one size class.
        low_bytes, high_bytes: The sizes, both included; `None` takes the class with most transfers.
    """

    source: str | None = None
    destination: str | None = None
    low_bytes: int | None = None
    high_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Group:
    """Transfers that are alike; each array has shape (transfers,), in the order of their starts.

    Attributes:
        path: Source and destination, or what the log has in their place.
        of: How many there are, of which these may be a sample.
        session: Which session each is of, counted from 0 among all transfers of the path, alike or not.
        factors: What the log tells of each transfer, by name; not a number where it does not.
    """

    path: tuple[str | None, str | None]
    server: str | None
    low_bytes: int
    high_bytes: int
    of: int
    start_us: Whole
    end_us: Whole
    bytes: Whole
    session: Whole
    factors: dict[str, Array]

    @property
    def throughput_bps(self) -> Array:
        """Bits a second."""
        found: Array = 8.0 * self.bytes / self.duration_s
        return found

    @property
    def duration_s(self) -> Array:
        """Seconds, more than zero."""
        found: Array = (self.end_us - self.start_us) / US
        return found

    @property
    def spread(self) -> Summary:
        """Of the throughputs, bit/s: its `spread` is the IQR."""
        return summarised(self.throughput_bps)


def alike(logs: Logs, choice: Choice, *, seed: int) -> Group:
    """The group that is asked for, or the largest.

    Raises:
        LogError: where there are fewer than `FEWEST`.
    """
    table = _of_choice(logs.transfers, choice)
    keys = ["source", "destination", "size_class"]
    ranked = table.group_by(*keys).agg(transfers=table.count(), low=table.bytes.min(), high=table.bytes.max())
    ranked = ranked.order_by(
        ibis.desc("transfers"), *[ibis.asc(key, nulls_first=True) for key in keys]
    ).limit(1)
    best = logs.rows(ranked)
    count = int(best[0]["transfers"]) if best else 0
    if count < FEWEST:
        for name in ("source", "destination"):
            _refuse_unknown(logs, name, getattr(choice, name))
        raise LogError(
            f"{'no two' if count < 2 else f'only {count}'} transfers are alike, and fewer than {FEWEST} tell "
            f"nothing of a spread: {_mend(choice)}"
        )
    found = best[0]
    path = (found["source"], found["destination"])
    # A session is of a path: it goes on through transfers of other sizes, and through those not drawn.
    table = _of_choice(_in_sessions(of_path(logs.transfers, path)), choice)
    table = table.filter(table.size_class == found["size_class"])
    columns = ["start_us", "end_us", "bytes", "server", *_FACTORS, "session"]
    # By all of them: rows that are then still in either order are the same.
    wanted = table.select(*columns)
    if count > MOST:
        wanted = _drawn(wanted, np.random.default_rng(seed).choice(count, MOST, replace=False))
    rows = logs.table(wanted.order_by(*columns))
    factors = {
        name: rows[name].cast("float64").to_numpy().astype(np.float64)
        for name in _FACTORS
        if rows[name].null_count < rows.num_rows
    }
    servers = {value for value in rows["server"].unique().to_pylist() if value is not None}
    return Group(
        path=path,
        server=servers.pop() if len(servers) == 1 else None,
        low_bytes=int(found["low"]),
        high_bytes=int(found["high"]),
        of=count,
        start_us=rows["start_us"].to_numpy(),
        end_us=rows["end_us"].to_numpy(),
        bytes=rows["bytes"].to_numpy(),
        session=rows["session"].to_numpy(),
        factors=factors,
    )


def _refuse_unknown(logs: Logs, name: str, wanted: str | None) -> None:
    """Refuses a host that no transfer has at this end, with those that most have.

    Raises:
        LogError: with the option's name.
    """
    table = logs.transfers
    table = table.filter(table[name].notnull())
    hosts = table.group_by(name).agg(transfers=table.count())
    if wanted is None or logs.rows(hosts.filter(hosts[name] == wanted)):
        return
    ranked = hosts.order_by(ibis.desc("transfers"), ibis.asc(name)).limit(HOSTS_NAMED + 1)
    there = [str(row[name]) for row in logs.rows(ranked)]
    more = ", ..." if len(there) > HOSTS_NAMED else ""
    known = f"there are {', '.join(there[:HOSTS_NAMED])}{more}" if there else f"the log names no {name}s"
    raise LogError(f"--{name}: no transfer has the {name} {wanted}: {known}")


def _mend(choice: Choice) -> str:
    """What would make more transfers alike: of the options that were given."""
    sized = choice.low_bytes is not None or choice.high_bytes is not None
    ends = [f"--{name}" for name in ("source", "destination") if getattr(choice, name) is not None]
    mends = ["widen --sizes"] if sized else []
    if ends:
        mends.append(f"leave out {' and '.join(ends)}")
    return ", or ".join(mends) or "name --sizes that more of them have, or import more logs"


def of_path(table: Any, path: tuple[str | None, str | None]) -> Any:
    """Transfers of a path; an end that is `None` is one that was withheld."""
    for name, wanted in zip(("source", "destination"), path, strict=True):
        table = table.filter(table[name].isnull() if wanted is None else table[name] == wanted)
    return table


def _of_choice(table: Any, choice: Choice) -> Any:
    """Those of the choice that took any time, and the class of size of each."""
    table = table.filter(table.end_us > table.start_us)
    for name in ("source", "destination"):
        wanted = getattr(choice, name)
        if wanted is not None:
            table = table.filter(table[name] == wanted)
    if choice.low_bytes is not None:
        table = table.filter(table.bytes >= choice.low_bytes)
    if choice.high_bytes is not None:
        table = table.filter(table.bytes <= choice.high_bytes)
    return table.mutate(size_class=_size_class(table, choice))


def _in_sessions(table: Any) -> Any:
    """Transfers of one path, each with the number of its session."""
    before = ibis.rows_window(preceding=(None, 1), order_by=table.start_us)
    table = table.mutate(before_us=table.end_us.max().over(before))
    table = table.mutate(begins=ibis.ifelse(table.start_us - table.before_us > GAP_US, 1, 0))
    # A range has all that start at once, whichever of them came first above.
    until = ibis.range_window(preceding=None, following=0, order_by=table.start_us)
    return table.mutate(session=table.begins.sum().over(until).cast("int64"))


def _drawn(table: Any, places: Whole) -> Any:
    """The rows at these places of the table in the order of its columns: no other leaves the engine."""
    order = ibis.window(order_by=[table[name] for name in table.columns])
    placed = table.mutate(place=ibis.row_number().over(order).cast("int64"))
    return placed.semi_join(ibis.memtable(pa.table({"place": places})), "place").drop("place")


def _size_class(table: Any, choice: Choice) -> Any:
    """One class where sizes are given; else half a power of two each."""
    if choice.low_bytes is not None or choice.high_bytes is not None:
        return ibis.literal(0, "int64")
    return size_class(table.bytes, CLASSES_A_DOUBLING)
