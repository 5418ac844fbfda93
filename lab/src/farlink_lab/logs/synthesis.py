"""Made logs, as a national laboratory's might be: seeded, of any size, as Parquet or as lines of GridFTP.

Sessions come with the hour of the day; each has a pair of sites, a user, and either many small files or some
large ones, several of them at once; sizes and rates have heavy tails. Nothing is fitted to a real log: it is
for tests and benchmarks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from farlink_lab.logs.checking import Checked
from farlink_lab.logs.store import Source, Store
from farlink_lab.logs.transfer import DAY_US, SCHEMA, US, LogError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.random import Generator
    from numpy.typing import NDArray

    from farlink_lab.logs.transfer import Whole

# 2012-02-10, when one of the published logs begins.
FIRST_DAY_US = 15_380 * DAY_US
MOST_DAYS = 36_500
# A session that would have more is cut: what is made at once stays within memory.
_MOST_OF_SESSION = 20_000
# Rows that are made at once.
_CHUNK = 500_000
# The share of sessions that move many small files, and the means of the logarithm of how many they are.
_SMALL_SHARE = 0.3
# Work is at its height in the afternoon: the share of each hour, a cosine about 1.
_AMPLITUDE, _PEAK_HOUR = 0.6, 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What is asked for.

    Attributes:
        transfers: How many; exactly so many are made.
        days: Over how many days, from 2012-02-10.
        sites: Between how many hosts.
        users: How many.
        seed: Of every random choice.
    """

    transfers: int
    days: int = 30
    sites: int = 40
    users: int = 60
    seed: int = 1


def tables(recipe: Recipe) -> Iterator[pa.Table]:
    """The transfers, day by day of their start of session, as `transfer.SCHEMA` has them."""
    for day, count in enumerate(_of_days(recipe)):
        rng = np.random.default_rng([recipe.seed, day])
        left = int(count)
        while left:
            table = _sessions(rng, recipe, day=day, count=min(left, _CHUNK))
            left -= table.num_rows
            yield table


def write_lines(table: pa.Table, file: BinaryIO) -> None:
    """Writes transfers as a GridFTP server at their server would, in the order of their ends."""
    table = table.take(pc.sort_indices(table["end_us"]))
    inward = pc.equal(table["server"], table["destination"])
    far = pc.if_else(inward, table["source"], table["destination"])
    text = pa.string()
    columns: list[object] = [
        "DATE=", _stamps(table["end_us"]), " HOST=", table["server"],
        " PROG=globus-gridftp-server NL.EVNT=FTP_INFO START=", _stamps(table["start_us"]),
        " USER=", table["user"], " FILE=", table["file"],
        " BUFFER=", table["buffer_bytes"].cast(text), " BLOCK=", table["block_bytes"].cast(text),
        " NBYTES=", table["bytes"].cast(text), " VOLUME=/ STREAMS=", table["streams"].cast(text),
        " STRIPES=", table["stripes"].cast(text), " DEST=[", far, "] TYPE=",
        pc.if_else(inward, "STOR", "RETR"), " CODE=226 TASKID=none retrans=0\n",
    ]  # fmt: skip
    joined = pc.binary_join_element_wise(*columns, "").combine_chunks()
    for chunk in joined.chunks if isinstance(joined, pa.ChunkedArray) else [joined]:
        offsets = np.frombuffer(chunk.buffers()[1], np.int32)
        start, end = int(offsets[chunk.offset]), int(offsets[chunk.offset + len(chunk)])
        file.write(chunk.buffers()[2].slice(start, end - start))


def make(recipe: Recipe, *, out: Path | None, lines: Path | None) -> None:
    """Makes the log, as a directory of imported transfers or as lines of GridFTP: one of the two.

    Raises:
        LogError: where it cannot be written.
    """
    if lines is not None:
        try:
            with lines.open("wb") as file:
                for table in tables(recipe):
                    write_lines(table, file)
        except OSError as error:
            raise LogError(f"--lines: {lines}: {error.strerror}: name a file that can be written") from error
    if out is not None:
        with Store(out) as store:
            if store.ledger.parts:
                raise LogError(f"--out: {out}: has transfers in it: name a new directory")
            source = Source(name=f"made of seed {recipe.seed}", identity=(0, 0))
            store.ledger.sources.append(source)
            for table in tables(recipe):
                store.add(source, Checked(table=table, refused=(), unzoned=0), {}, first_line=1)
            store.commit()


def site(number: int) -> str:
    """The address of a site: two of each /24, so that prefixes have something to gather."""
    return f"10.{number // 2 // 250 % 250}.{number // 2 % 250}.{1 + number % 2}"


def _of_days(recipe: Recipe) -> Whole:
    """How many transfers each day has: weekdays twice as many as weekend days."""
    # 2012-02-10 was a Friday.
    weights = np.where((np.arange(recipe.days) + 4) % 7 >= 5, 0.5, 1.0)
    edges = np.rint(np.cumsum(weights) / weights.sum() * recipe.transfers).astype(np.int64)
    found: Whole = np.diff(edges, prepend=0)
    return found


def _sessions(rng: Generator, recipe: Recipe, *, day: int, count: int) -> pa.Table:
    """Sessions of at most `count` transfers in all, and of exactly so many where they would be more."""
    many = max(8, count // 30)
    small = rng.random(many) < _SMALL_SHARE
    members = np.where(small, rng.lognormal(4.5, 1.2, many), rng.lognormal(1.8, 1.0, many))
    members = np.clip(members.astype(np.int64), 1, _MOST_OF_SESSION)
    ends = np.cumsum(members)
    used = int(np.searchsorted(ends, count)) + 1
    if used <= many:
        members = members[:used].copy()
        members[-1] -= max(0, int(members.sum()) - count)
    many, total = len(members), int(members.sum())
    small = small[:many]
    of = np.repeat(np.arange(many), members)
    source, destination = _pairs(rng, recipe.sites, many)
    begun = _hours(rng, many) * 3600 * US
    # What the path, the hosts and the hour leave to a session; a transfer scatters about that.
    rate_bps = rng.lognormal(np.log(150e6), 0.9, many)
    sizes = np.where(
        small[of], rng.lognormal(np.log(1.5e6), 1.4, total), (rng.pareto(1.15, total) + 1) * 150e6
    )
    sizes = np.clip(sizes, 1, 1e12).astype(np.int64)
    streams = np.array([1, 4, 8, 16], dtype=np.int32)[rng.integers(0, 4, many)]
    stripes = np.array([1, 1, 1, 2, 3], dtype=np.int32)[rng.integers(0, 5, many)]
    speed = rate_bps[of] * np.sqrt(stripes[of]) * rng.lognormal(0, 0.35, total)
    took = np.clip(8e6 * sizes / speed, 2000, 20 * DAY_US).astype(np.int64)
    # Transfers of a lane follow each other after a pause; now and then it is a long one.
    first = np.concatenate([[0], np.cumsum(members)[:-1]])
    lanes = np.array([1, 2, 4, 8])[rng.integers(0, 4, many)]
    long = np.where(rng.random(total) < 0.01, rng.exponential(90e6, total), 0)
    pause = (rng.exponential(0.4e6, total) + long).astype(np.int64)
    lane = of * 8 + (np.arange(total) - first[of]) % lanes[of]
    since = _one_by_one(lane, took, pause)
    start = FIRST_DAY_US + day * DAY_US + begun[of].astype(np.int64) + since
    user = rng.integers(0, recipe.users, many)
    number = np.arange(total) - first[of]
    directory = rng.integers(0, 1 << 31, many)
    stored = rng.random(many) < 0.5
    hosts, users = (
        _names([site(n) for n in range(recipe.sites)]),
        _names([f"user{n}" for n in range(recipe.users)]),
    )
    text = pa.string()
    files = pc.binary_join_element_wise(
        "/data/run", pa.array(directory[of]).cast(text), "/f", pa.array(number).cast(text), ".dat", ""
    )
    kinds: dict[str, pa.Array] = {
        "start_us": pa.array(start),
        "end_us": pa.array(start + took),
        "bytes": pa.array(sizes),
        "source": hosts.take(pa.array(source[of])),
        "destination": hosts.take(pa.array(destination[of])),
        "server": hosts.take(pa.array(np.where(stored, destination, source)[of])),
        "user": users.take(pa.array(user[of])),
        "file": files,
        "streams": pa.array(streams[of]),
        "stripes": pa.array(stripes[of]),
        "block_bytes": pa.array(np.full(total, 262_144)),
        "buffer_bytes": pa.array(np.full(total, 4_194_304)),
        "retransmits": pa.array(np.zeros(total, dtype=np.int64)),
    }
    arrays = [kinds.get(field.name, pa.nulls(total, field.type)) for field in SCHEMA]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _one_by_one(lane: Whole, took: Whole, pause: Whole) -> Whole:
    """Starts of transfers, those of one lane each after the other and its own pause: shape (transfers,)."""
    order = np.argsort(lane, kind="stable")
    spent = np.cumsum((took + pause)[order])
    heads = np.flatnonzero(np.diff(lane[order], prepend=-1))
    before = np.repeat(np.concatenate([[0], spent[heads[1:] - 1]]), np.diff(np.append(heads, len(lane))))
    found: Whole = np.empty(len(lane), dtype=np.int64)
    found[order] = spent - before - took[order]
    return found


def _pairs(rng: Generator, sites: int, many: int) -> tuple[Whole, Whole]:
    """Sources and destinations: few pairs have most sessions."""
    source = np.minimum((sites * rng.power(0.35, many)).astype(np.int64), sites - 1)
    step = 1 + (max(sites - 2, 1) * rng.power(0.5, many)).astype(np.int64)
    return source, (source + np.minimum(step, sites - 1)) % sites


def _hours(rng: Generator, many: int) -> NDArray[np.float64]:
    """Hours of the day by rejection: more in the afternoon than at night."""
    found = np.empty(0)
    while len(found) < many:
        hour = rng.random(2 * many) * 24
        height = 1 + _AMPLITUDE * np.cos((hour - _PEAK_HOUR) * np.pi / 12)
        found = np.concatenate([found, hour[rng.random(2 * many) * (1 + _AMPLITUDE) < height]])
    return found[:many]


def _names(words: list[str]) -> pa.Array:
    return pa.array(words, pa.string())


def _stamps(micros: pa.ChunkedArray) -> pa.Array:
    """Times as GridFTP writes them."""
    moments = micros.combine_chunks().to_numpy().astype("datetime64[us]")
    days = moments.astype("datetime64[D]")
    different, which = np.unique(days, return_inverse=True)
    dates = pa.array([str(day).replace("-", "") for day in different]).take(pa.array(which))
    seconds = ((moments - days) // np.timedelta64(1, "s")).astype(np.int64)
    fraction = ((moments - days) % np.timedelta64(1, "s")).astype(np.int64)
    clock = seconds // 3600 * 10_000 + seconds // 60 % 60 * 100 + seconds % 60
    padded = [pc.utf8_lpad(pa.array(value).cast(pa.string()), 6, "0") for value in (clock, fraction)]
    return pc.binary_join_element_wise(dates, padded[0], ".", padded[1], "")
