"""The throughput profile Θ(τ) of each configuration: fixed size and fixed duration apart."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from farlink_lab.choice import AUTO, USUAL_BLOCK_BYTES, congestion_near, streams_between, usual_congestion
from farlink_lab.quantity import show_rate, show_size, show_time
from farlink_lab.utilization import above_capacity

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from farlink_lab.records import Record

Array = NDArray[np.float64]

# RTTs of real paths are measured: those that agree to three digits are one.
RTT_DIGITS = 3
# Ethernet's largest packet, bytes.
USUAL_MTU = 1500
# What a kind is called where a configuration has no name of its own; other kinds are called as they are.
_KINDS = {"memory": "", "file": "copy"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Records that no profile counts, by the reason.

    Attributes:
        overrun: The emulator fell behind, and the RTT has runs without that, or was measured again.
        failed: The transfer failed.
        interrupted: The user ended it.
        limited: The user held it to a rate, which says nothing of what the path carries.
        incomplete: No duration or no RTT is known.
        repeated: It came to something, and so did a later record of the same run, which stands for it.
    """

    overrun: int = 0
    failed: int = 0
    interrupted: int = 0
    limited: int = 0
    incomplete: int = 0
    repeated: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        gone = self.overrun + self.failed + self.interrupted + self.limited
        return gone + self.incomplete + self.repeated


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Profile:
    """Θ(τ) of one configuration.

    Attributes:
        label: The configuration's name.
        mode: `size` or `duration`.
        amount: Bytes of each run (mode `size`) or seconds of each (mode `duration`): the median of the
            records'.
        streams: Parallel streams; `None` where unknown, and where the path decided how many.
        streams_chosen: Whether it did, so that there may be others at each RTT (`streams_at`).
        congestion: Congestion control, as granted; `None` where unknown, and where the sender chose it by the
            path.
        congestion_chosen: Whether it did, so that there may be another at each RTT (`congestion_at`).
        loss: Probability that a segment is lost; 0 where unknown.
        buffer_bytes: Socket buffer; `None` where the kernel tunes it.
        declared_bps: The wire's rate that was declared and held from the first segment on; `None` where none.
        rate_bps: Of the wire; `None` where unknown.
        capacity_bps: C, the median of the records'; `None` where unknown.
        mtu: Largest packet, bytes; `None` where unknown.
        rtt_s: Shape (k,), growing: the RTTs with at least one run.
        throughput_bps: k arrays: Θ of each run at that RTT.
        records: The records, k tuples, in the order of `throughput_bps`.
        late: Shape (k,): whether the emulator fell behind in every run at that RTT. The point then says as
            much of the emulator's machine as of the connection.
    """

    label: str
    mode: str
    amount: float
    tool: str
    streams: int | None
    streams_chosen: bool
    congestion: str | None
    congestion_chosen: bool
    loss: float
    buffer_bytes: int | None
    declared_bps: float | None
    rate_bps: float | None
    capacity_bps: float | None
    mtu: int | None
    rtt_s: Array
    throughput_bps: tuple[Array, ...]
    records: tuple[tuple[Record, ...], ...]
    late: NDArray[np.bool_]

    @property
    def key(self) -> str:
        """Tells it from every other profile."""
        return f"{self.label} · {self.mode}"

    @property
    def amount_shown(self) -> str:
        """What ended its runs: `2 GiB` or `10 s`."""
        return show_size(self.amount) if self.mode == "size" else show_time(self.amount)

    @property
    def name(self) -> str:
        """Label and amount, for a person."""
        return f"{self.label}, {self.amount_shown}"

    @property
    def runs(self) -> int:
        """How many runs it counts."""
        return sum(len(values) for values in self.throughput_bps)

    @property
    def late_runs(self) -> int:
        """How many of them are at late RTTs."""
        return sum(len(values) for values, late in zip(self.throughput_bps, self.late, strict=True) if late)

    @property
    def late_points(self) -> int:
        """How many RTTs are late."""
        return int(self.late.sum())

    @property
    def repetitions(self) -> int:
        """The least runs of any RTT."""
        return min(len(values) for values in self.throughput_bps)

    @property
    def full_buffers(self) -> bool:
        """Whether the kernel tuned the buffers, so that windows had no bound of their own."""
        return self.buffer_bytes is None

    @property
    def streams_median(self) -> Array:
        """Median of the runs' streams at each RTT, shape (k,); 1 where unknown."""
        return np.array([np.median([record.streams or 1 for record in group]) for group in self.records])

    def streams_at(self, rtt_s: Array) -> Array:
        """Streams at any RTTs (s), of their shape; 1 where unknown.

        Where the path decided, those of the runs: between their RTTs in proportion, beyond them the nearest.
        """
        if not self.streams_chosen:
            return np.full_like(rtt_s, self.streams or 1)
        return streams_between(rtt_s, self.rtt_s, self.streams_median)

    @property
    def congestion_usual(self) -> tuple[str | None, ...]:
        """The most frequent congestion control of the runs at each RTT, k names."""
        return tuple(map(usual_congestion, self.records))

    def congestion_at(self, rtt_s: float) -> str | None:
        """Congestion control at any RTT (s); where the sender chose, that of the nearest RTT with runs."""
        if not self.congestion_chosen:
            return self.congestion
        return congestion_near(rtt_s, self.rtt_s, self.congestion_usual)

    @property
    def median_bps(self) -> Array:
        """Median Θ at each RTT, shape (k,)."""
        return np.array([np.median(values) for values in self.throughput_bps])

    @property
    def mean_bps(self) -> Array:
        """Mean Θ at each RTT, shape (k,)."""
        return np.array([values.mean() for values in self.throughput_bps])

    @property
    def above_capacity(self) -> str:
        """Which mean or median is above the capacity, for a person; empty where none is, or C is unknown."""
        if self.capacity_bps is None:
            return ""
        highest = np.maximum(self.mean_bps, self.median_bps)
        return above_capacity(self.rtt_s, highest, capacity_bps=self.capacity_bps)

    def quantiles_bps(self, shares: Sequence[float]) -> Array:
        """Quantiles of Θ at each RTT, interpolated between runs, shape (len(shares), k)."""
        return np.stack([np.quantile(values, shares) for values in self.throughput_bps], axis=1)

    @property
    def low_bps(self) -> Array:
        """Least Θ at each RTT, shape (k,)."""
        return np.array([values.min() for values in self.throughput_bps])

    @property
    def high_bps(self) -> Array:
        """Greatest Θ at each RTT, shape (k,)."""
        return np.array([values.max() for values in self.throughput_bps])


def profiles(records: Iterable[Record]) -> tuple[tuple[Profile, ...], LeftOut]:
    """The profiles in `records`, in the order of `configuration_order`, and what they leave out.

    Of a run that was measured more than once (again after it failed or was interrupted, or the same plan in
    another directory whose records were added) the last good record counts. Runs in which the emulator fell
    behind count only at an RTT of a configuration that has no other.
    """
    taken = tuple(records)
    dropped: Counter[str] = Counter()
    healthy: dict[str, Record] = {}
    behind: dict[str, Record] = {}
    for record in taken:
        reason = _reason_to_leave_out(record)
        if reason is not None:
            dropped[reason] += 1
        else:
            run = record.run or f"line {record.line}"
            dropped["repeated"] += not record.overrun and run in healthy
            (behind if record.overrun else healthy)[run] = record
    known = {_point(record) for record in healthy.values()}
    late = [record for run, record in behind.items() if run not in healthy and _point(record) not in known]
    usable = sum(record.overrun and _reason_to_leave_out(record) is None for record in taken)
    groups: dict[tuple[str, ...], list[Record]] = {}
    for record in (*healthy.values(), *late):
        groups.setdefault((label_of(record), record.mode), []).append(record)
    order = configuration_order(taken)
    found = sorted(
        (_profile(label, mode, members) for (label, mode), members in groups.items()),
        key=lambda profile: (order.index(profile.label), profile.mode),
    )
    return tuple(found), LeftOut(overrun=usable - len(late), **dropped)


def configuration_order(records: Iterable[Record]) -> list[str]:
    """Labels in an order that does not depend on the shuffling of a campaign: by mover, then by name."""
    ours_first = sorted({(record.tool != "farlink", record.tool, label_of(record)) for record in records})
    return list(dict.fromkeys(label for _, _, label in ours_first))


def label_of(record: Record) -> str:
    """The configuration's name: the lab's, or what the record says of itself.

    Records without a name of the lab's that differ in what was chosen, or in the connection, differ in
    theirs; what is usual is not said.
    """
    if record.label is not None:
        return record.label
    declared, protection = (record.fields.get(key) for key in ("declared_bps", "protection"))
    usual = "encrypted" if (record.tool, record.kind) == ("farlink", "file") else "clear"
    parts = [record.tool, _kind(record)]
    parts += [protection if isinstance(protection, str) and protection != usual else ""]
    control = AUTO if record.congestion_chosen else (record.congestion or "").upper()
    parts += [control, _said("at {:.10g} Gb/s", declared, scale=1e9)]
    parts += [f"×{AUTO}" if record.streams_chosen else f"×{record.streams}" if record.streams else ""]
    if record.buffer_bytes is not None:
        parts.append(show_size(record.buffer_bytes))
    parts += [_block(record), _amount(record)]
    # Paths of several rates have several capacities.
    parts.append(f"over {show_rate(record.rate_bps)}" if record.rate_bps else "")
    return ", ".join(part for part in [" ".join(filter(None, parts)), *_path(record)] if part)


def _kind(record: Record) -> str:
    """What a record is of, and of a multicast whose: a session's time is another to its sender."""
    cast = record.fields.get("cast")
    if record.kind == "cast" and isinstance(cast, dict):
        return "cast sender" if "receivers" in cast else "cast receiver"
    return _KINDS.get(record.kind, record.kind)


def _block(record: Record) -> str:
    block = record.fields.get("block_bytes")
    if not isinstance(block, int) or block == USUAL_BLOCK_BYTES.get(record.tool):
        return ""
    return f"blocks of {show_size(block)}"


def _path(record: Record) -> list[str]:
    """What is unusual about a record's connection, and its queue, which has no usual size."""
    framing, mtu = record.fields.get("framing"), record.mtu
    return [
        "" if mtu in (None, USUAL_MTU) else f"MTU {mtu}",
        f"{framing} framing" if isinstance(framing, str) and framing != "ethernet" else "",
        _said("queue {:.10g} MB", record.fields.get("queue_bytes"), scale=1e6),
        _said("loss {:.10g}", record.fields.get("loss")),
        _said("other traffic {:.10g} Gb/s", record.fields.get("background_bps"), scale=1e9),
    ]


def _said(template: str, value: object, *, scale: float = 1.0) -> str:
    """A number in words; empty where it is 0 or unknown."""
    return template.format(value / scale) if isinstance(value, int | float) and value else ""


def counted_lines(found: Sequence[Profile]) -> frozenset[int]:
    """Line numbers of the records that some profile counts."""
    return frozenset(record.line for profile in found for group in profile.records for record in group)


def _reason_to_leave_out(record: Record) -> str | None:
    if record.outcome != "ok":
        return record.outcome
    if record.limit_bps is not None:
        return "limited"
    return "incomplete" if record.throughput_bps is None or record.rtt_s is None else None


def _point(record: Record) -> tuple[str, str, float]:
    return label_of(record), record.mode, _rtt_s(record)


def _rtt_s(record: Record) -> float:
    return float(f"{record.rtt_s or 0.0:.{RTT_DIGITS - 1}e}")


def _amount(record: Record) -> str:
    if record.mode == "size":
        return show_size(record.bytes)
    return show_time(round(record.amount, 1)) if record.amount else ""


def _profile(label: str, mode: str, members: Sequence[Record]) -> Profile:
    by_rtt: dict[float, list[Record]] = {}
    for record in members:
        by_rtt.setdefault(_rtt_s(record), []).append(record)
    rtts = sorted(by_rtt)
    capacities = [record.goodput_bps for record in members if record.goodput_bps]
    amount = float(np.median([record.amount for record in members]))
    first = members[0]
    declared = first.fields.get("declared_bps")
    return Profile(
        label=label,
        mode=mode,
        # Tools that measure their own time end a millisecond or two beside the time asked for.
        amount=amount if mode == "size" else round(amount, 1) or amount,
        tool=first.tool,
        streams=None if first.streams_chosen else first.streams,
        streams_chosen=first.streams_chosen,
        congestion=None if first.congestion_chosen else first.congestion,
        congestion_chosen=first.congestion_chosen,
        loss=float(loss) if isinstance(loss := first.fields.get("loss"), int | float) else 0.0,
        buffer_bytes=first.buffer_bytes,
        declared_bps=float(declared) if isinstance(declared, int | float) else None,
        rate_bps=first.rate_bps,
        capacity_bps=float(np.median(capacities)) if capacities else None,
        mtu=first.mtu,
        rtt_s=np.array(rtts),
        throughput_bps=tuple(
            np.array([record.throughput_bps or 0.0 for record in by_rtt[rtt]]) for rtt in rtts
        ),
        records=tuple(tuple(by_rtt[rtt]) for rtt in rtts),
        late=np.array([all(record.overrun for record in by_rtt[rtt]) for rtt in rtts], dtype=np.bool_),
    )
