"""A feed of products as a trace shows it, and the hosts that it goes to."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from farlink_lab.logs.stamp import StampError, moment_us
from farlink_lab.logs.transfer import US, LogError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

MINUTE_US = 60 * US
# Beyond it a size is no whole number to floating point, in which rates are told.
MOST_BYTES = 2**53
# A silence that a person would notice in a feed; the study counted those.
SILENCE_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """What a feed sends.

    Attributes:
        products: How many the trace has.
        silences_s: Shape (products − 1,): from the end of all products so far to the start of the next, 0
            where it had begun before; `None` where only rates are known.
        silent_share: Of these gaps, the share longer than `SILENCE_S`.
    """

    mean_bps: float
    peak_minute_bps: float
    products: int | None = None
    silences_s: NDArray[np.float64] | None = None
    silent_share: float | None = None

    @property
    def smoothness(self) -> float:
        """The mean rate of that of the peak minute: the utilisation of a circuit that the peak needs."""
        return self.mean_bps / self.peak_minute_bps

    def share_longer(self, seconds: float) -> float | None:
        """Of the gaps between products, the share that is longer."""
        if self.silences_s is None:
            return None
        return float((self.silences_s > seconds).mean()) if len(self.silences_s) else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """Who sends a feed to whom.

    Attributes:
        fan_out: Of the sender with most receivers.
    """

    fan_out: int
    hosts: int | None = None
    senders: int | None = None
    receivers: int | None = None


def read_feed(path: Path) -> Feed:
    """The feed of a trace: lines `start,end,bytes`, or `time,bytes` where products are taken to come at once.

    Raises:
        LogError: where it cannot be read, naming the line.
    """
    starts: list[int] = []
    ends: list[int] = []
    sizes: list[int] = []
    for number, row in _rows(path, "a trace of lines time,bytes or start,end,bytes"):
        try:
            times = [moment_us(cell)[0] for cell in row[:-1]]
            size = int(row[-1])
        except (StampError, ValueError) as error:
            if number == 1:
                continue
            raise LogError(f"{path}: line {number}: {error}: write time,bytes or start,end,bytes") from None
        if len(times) not in (1, 2) or times[-1] < times[0] or size < 0:
            raise LogError(
                f"{path}: line {number}: {','.join(row)[:60]} is no product: write start,end,bytes"
            )
        if size > MOST_BYTES:
            raise LogError(f"{path}: line {number}: more bytes than any product has: at most {MOST_BYTES}")
        starts.append(times[0])
        ends.append(times[-1])
        sizes.append(size)
    if len(starts) < 2:
        raise LogError(f"{path}: fewer than two products in it: a feed has more")
    return feed_of(np.array(starts), np.array(ends), np.array(sizes))


def feed_of(start_us: NDArray[np.int64], end_us: NDArray[np.int64], sizes: NDArray[np.int64]) -> Feed:
    """The feed of products that start, end and have sizes so.

    Raises:
        LogError: where they come all at one moment, or have no byte.
    """
    order = np.argsort(start_us, kind="stable")
    start_us, end_us, sizes = start_us[order], end_us[order], sizes[order]
    first, last = int(start_us[0]), int(end_us.max())
    if last <= first:
        raise LogError("all products come at one moment: a trace has a duration")
    if not sizes.any():
        raise LogError("no product has a byte: a feed sends something")
    silences = np.maximum(start_us[1:] - np.maximum.accumulate(end_us)[:-1], 0) / US
    # A product counts for the minute in which it ends.
    _, minute = np.unique((end_us - first) // MINUTE_US, return_inverse=True)
    minutes = np.bincount(minute, weights=sizes)
    mean = 8 * float(minutes.sum()) / ((last - first) / US)
    # A trace of less than a minute has no full one.
    peak = 8 * float(minutes.max()) / min(60.0, (last - first) / US)
    return Feed(
        mean_bps=mean,
        peak_minute_bps=max(peak, mean),
        products=len(sizes),
        silences_s=silences,
        silent_share=float((silences > SILENCE_S).mean()),
    )


def read_topology(path: Path) -> Topology:
    """The topology of a file of lines `sender,receiver`.

    Raises:
        LogError: where it cannot be read, naming the line.
    """
    receivers: dict[str, set[str]] = {}
    for number, row in _rows(path, "a topology of lines sender,receiver"):
        ends = [cell.strip() for cell in row]
        if len(ends) != 2 or not all(ends):
            raise LogError(f"{path}: line {number}: {','.join(row)[:60]} is no pair: write sender,receiver")
        if number == 1 and [end.lower() for end in ends] == ["sender", "receiver"]:
            continue
        receivers.setdefault(ends[0], set()).add(ends[1])
    if not receivers:
        raise LogError(f"{path}: no line sender,receiver in it")
    fed = set().union(*receivers.values())
    return Topology(
        fan_out=max(map(len, receivers.values())),
        hosts=len(fed | set(receivers)),
        senders=len(receivers),
        receivers=len(fed),
    )


def _rows(path: Path, what: str) -> list[tuple[int, list[str]]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return [(number, row) for number, row in enumerate(csv.reader(file), start=1) if row]
    except OSError as error:
        raise LogError(f"{path}: {error.strerror}: name {what}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise LogError(f"{path}: {error}: name {what}") from error
