"""Would dynamic circuits pay off: the share of sessions, and of transfers in them, that are long enough.

A session of so many bytes would last d = 8 · bytes / rate on a circuit of that rate; it is long enough
where d ≥ factor · setup.
The rate is the third quartile of transfer throughput by default, a high one on purpose: it makes sessions
short, so the test is conservative.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from farlink_lab.logs.sessions import Edges, sessions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from farlink_lab.logs.engine import Logs
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
    """The least session that is long enough: factor · setup at the rate, bytes."""
    return math.ceil(factor * setup_s * rate_bps / 8)


def rate_named(word: str, throughput: Summary) -> float:
    """The rate that `q1`, `median`, `mean`, `q3` or `max` of transfer throughput is, bit/s."""
    rate: float = getattr(throughput, word)
    return rate


def shares(
    logs: Logs,
    found: Edges,
    *,
    gap_s: float,
    cases: Sequence[tuple[float, float, float]],
    min_bytes: int = 0,
) -> list[Share]:
    """The shares under several (setup_s, factor, rate_bps), by one pass over the sessions of a gap."""
    table = sessions(found, gap_s=gap_s, min_bytes=min_bytes)
    asked = {
        "sessions": table.count(),
        "transfers": table.transfers.sum().cast("int64"),
        "bytes": table.bytes.sum().cast("int64"),
    }
    least = [threshold_bytes(setup_s=setup, factor=factor, rate_bps=rate) for setup, factor, rate in cases]
    for number, size in enumerate(least):
        fits = table.bytes >= size
        asked |= {
            f"sessions_{number}": fits.cast("int64").sum(),
            f"transfers_{number}": table.transfers.sum(where=fits).cast("int64"),
            f"bytes_{number}": table.bytes.sum(where=fits).cast("int64"),
        }
    row = {name: int(value or 0) for name, value in logs.rows(table.agg(**asked))[0].items()}
    return [
        Share(
            gap_s=gap_s,
            setup_s=setup,
            factor=factor,
            rate_bps=rate,
            threshold_bytes=size,
            sessions=row["sessions"],
            suitable_sessions=row[f"sessions_{number}"],
            transfers=row["transfers"],
            suitable_transfers=row[f"transfers_{number}"],
            bytes=row["bytes"],
            suitable_bytes=row[f"bytes_{number}"],
        )
        for number, ((setup, factor, rate), size) in enumerate(zip(cases, least, strict=True))
    ]


def share_table(
    logs: Logs,
    found: Edges,
    *,
    rate_bps: float,
    setups_s: Sequence[float] = SETUPS_S,
    gaps_s: Sequence[float] = GAPS_S,
    factor: float = FACTOR,
    min_bytes: int = 0,
) -> list[Share]:
    """Every setup under every gap."""
    cases = [(setup, factor, rate_bps) for setup in setups_s]
    return [
        share
        for gap_s in gaps_s
        for share in shares(logs, found, gap_s=gap_s, cases=cases, min_bytes=min_bytes)
    ]


def sensitivity(
    logs: Logs,
    found: Edges,
    *,
    throughput: Summary,
    rate_bps: float,
    setup_s: float,
    gap_s: float,
    factor: float = FACTOR,
    min_bytes: int = 0,
) -> dict[str, list[Share]]:
    """The shares with one parameter moved at a time: `factor`, `setup`, `rate`, `gap`."""
    rates = (throughput.q1, throughput.median, throughput.q3, throughput.max)
    groups: dict[str, list[tuple[float, float, float]]] = {
        "factor": [(setup_s, each, rate_bps) for each in FACTORS],
        "setup": [(each, factor, rate_bps) for each in MORE_SETUPS_S],
        "rate": [(setup_s, factor, each) for each in rates],
    }
    cases = [case for group in groups.values() for case in group]
    together = iter(shares(logs, found, gap_s=gap_s, cases=cases, min_bytes=min_bytes))
    moved = {name: [next(together) for _ in group] for name, group in groups.items()}
    base = [(setup_s, factor, rate_bps)]
    moved["gap"] = [
        shares(logs, found, gap_s=each, cases=base, min_bytes=min_bytes)[0] for each in MORE_GAPS_S
    ]
    return moved
