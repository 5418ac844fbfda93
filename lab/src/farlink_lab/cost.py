"""What a transfer costs: CPU seconds of both ends for each gigabyte (10⁹ bytes)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from farlink_lab.records import Record

GIGABYTE = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Medians over runs, CPU seconds per GB."""

    sender: float
    receiver: float
    both: float
    runs: int


def cpu_per_gigabyte(record: Record) -> tuple[float, float] | None:
    """CPU seconds per GB of (sender, receiver); `None` where they are unknown or no byte arrived."""
    if record.cpu_s is None or record.bytes == 0:
        return None
    gigabytes = record.bytes / GIGABYTE
    return record.cpu_s[0] / gigabytes, record.cpu_s[1] / gigabytes


def cost(records: Iterable[Record]) -> Cost | None:
    """The median cost of `records`; `None` where no record knows its own."""
    known = [found for found in map(cpu_per_gigabyte, records) if found is not None]
    if not known:
        return None
    ends = np.array(known)
    sender, receiver = np.median(ends, axis=0)
    return Cost(
        sender=float(sender),
        receiver=float(receiver),
        both=float(np.median(ends.sum(axis=1))),
        runs=len(known),
    )
