"""Would dynamic circuits pay off: the share of sessions, and of transfers in them, that are long enough.

A session of so many bytes would last d = 8 · bytes / rate on a circuit of that rate; it is long enough
where d ≥ factor · setup.
The rate is the third quartile of transfer throughput by default, a high one on purpose: it makes sessions
short, so the test is conservative.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import ibis

from farlink_lab.logs.transfer import US

if TYPE_CHECKING:
    from collections.abc import Sequence

    from farlink_lab.logs.engine import Logs
    from farlink_lab.logs.sessions import Gathered
    from farlink_lab.logs.summary import Summary

# Provisioning by batch today, and hardware signalling over a cross-country round trip.
SETUPS_S = (60.0, 0.05)
GAPS_S = (0.0, 60.0, 120.0)
FACTOR = 10.0
# How far each parameter is moved, alone, to see what hangs on it.
FACTORS = (2.0, 5.0, 10.0, 20.0, 50.0)
MORE_SETUPS_S = (0.05, 1.0, 10.0, 60.0, 300.0)
MORE_GAPS_S = (0.0, 10.0, 60.0, 120.0, 600.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One set of parameters."""

    gap_s: float
    setup_s: float
    factor: float
    rate_bps: float

    @property
    def threshold_bytes(self) -> int:
        """The least session that is long enough."""
        return threshold_bytes(setup_s=self.setup_s, factor=self.factor, rate_bps=self.rate_bps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """How much of the traffic a circuit would suit, under one set of parameters.

    Attributes:
        threshold_bytes: The least session that is long enough.
        sessions, transfers, bytes: Of all sessions.
        suitable_sessions, suitable_transfers, suitable_bytes: Of those long enough.
    """

    gap_s: float
    setup_s: float
    factor: float
    rate_bps: float
    threshold_bytes: int
    sessions: int
    suitable_sessions: int
    transfers: int
    suitable_transfers: int
    bytes: int
    suitable_bytes: int

    @property
    def of_sessions(self) -> float:
        """The share of sessions that are long enough."""
        return self.suitable_sessions / self.sessions if self.sessions else math.nan

    @property
    def of_transfers(self) -> float:
        """The share of transfers that are in such sessions."""
        return self.suitable_transfers / self.transfers if self.transfers else math.nan

    @property
    def of_bytes(self) -> float:
        """The share of bytes that are."""
        return self.suitable_bytes / self.bytes if self.bytes else math.nan


def threshold_bytes(*, setup_s: float, factor: float, rate_bps: float) -> int:
    """The least session that is long enough, bytes: factor · setup at the rate, or what no session is."""
    return math.ceil(min(factor * setup_s * rate_bps / 8, _NO_SESSION))


def shares(logs: Logs, found: Gathered, cases: Sequence[Case], *, min_bytes: int = 0) -> list[Share]:
    """The shares in each case, by one pass over the sessions: a case counts those of its classes of size."""
    edges = sorted({min_bytes, *(max(min_bytes, case.threshold_bytes) for case in cases)})
    table = found.table.filter(found.table.bytes >= min_bytes)
    # Which edge a session reaches, the least asked first: most sessions are small.
    below = [(table.bytes < edge, place) for place, edge in enumerate(edges[1:])]
    reached = ibis.cases(*below, else_=len(below)) if below else ibis.literal(0)
    marked = table.select("gap_us", "bytes", "transfers", size_class=reached.cast("int64"))
    grouped = marked.group_by("gap_us", "size_class").agg(
        sessions=marked.count().cast("int64"),
        transfers=marked.transfers.sum().cast("int64"),
        bytes=marked.bytes.sum().cast("int64"),
    )
    classes: dict[int, list[tuple[int, int, int, int]]] = defaultdict(list)
    for row in logs.rows(grouped):
        sums = row["sessions"], row["transfers"], row["bytes"]
        classes[row["gap_us"]].append((row["size_class"], *map(int, sums)))
    return [_share(case, classes[round(case.gap_s * US)], edges) for case in cases]


def _share(case: Case, classes: Sequence[tuple[int, int, int, int]], edges: Sequence[int]) -> Share:
    """A case, by sessions, transfers and bytes of each class of size."""
    least = bisect_left(edges, case.threshold_bytes)
    whole, fits = (
        [sum(each[at] for each in classes if each[0] >= first) for at in (1, 2, 3)] for first in (0, least)
    )
    return Share(
        gap_s=case.gap_s,
        setup_s=case.setup_s,
        factor=case.factor,
        rate_bps=case.rate_bps,
        threshold_bytes=case.threshold_bytes,
        sessions=whole[0],
        suitable_sessions=fits[0],
        transfers=whole[1],
        suitable_transfers=fits[1],
        bytes=whole[2],
        suitable_bytes=fits[2],
    )


def share_table(
    logs: Logs,
    found: Gathered,
    *,
    rate_bps: float,
    setups_s: Sequence[float] = SETUPS_S,
    gaps_s: Sequence[float] = GAPS_S,
    factor: float = FACTOR,
    min_bytes: int = 0,
) -> list[Share]:
    """Every setup under every gap."""
    cases = [
        Case(gap_s=gap_s, setup_s=setup_s, factor=factor, rate_bps=rate_bps)
        for gap_s in gaps_s
        for setup_s in setups_s
    ]
    return shares(logs, found, cases, min_bytes=min_bytes)


def sensitivity(
    logs: Logs,
    found: Gathered,
    *,
    throughput: Summary,
    base: Case,
    min_bytes: int = 0,
) -> dict[str, list[Share]]:
    """The shares with one parameter moved at a time: `factor`, `setup`, `rate`, `gap` (`MORE_GAPS_S`)."""
    rates = (throughput.q1, throughput.median, throughput.q3, throughput.max)
    groups = {
        "factor": [replace(base, factor=each) for each in FACTORS],
        "setup": [replace(base, setup_s=each) for each in MORE_SETUPS_S],
        "rate": [replace(base, rate_bps=each) for each in rates],
        "gap": [replace(base, gap_s=each) for each in MORE_GAPS_S],
    }
    cases = [case for group in groups.values() for case in group]
    together = iter(shares(logs, found, cases, min_bytes=min_bytes))
    return {name: [next(together) for _ in group] for name, group in groups.items()}


# Engines compare whole numbers of 64 bits. One transfer whose clock was set between its start and its end may
# have a throughput, and so a threshold, beyond them.
_NO_SESSION = (1 << 63) - 1
