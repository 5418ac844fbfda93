"""A log's local time to UTC, where clocks are put forward and back too."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from farlink_lab.logs.transfer import US, LogError

if TYPE_CHECKING:
    from farlink_lab.logs.transfer import Mask, Whole

# Lines are written at the end of a transfer, in order but for servers with several processes: a log that goes
# back by more than that is in the hour for the second time.
_BACK_US = 20 * 60 * US
# Clocks go back once within it.
_NIGHT_US = 12 * 3600 * US


@dataclass(slots=True, kw_only=True)
class Zone:
    """The zone of a log, and how far its local time has come: its blocks must be given in order.

    Attributes:
        name: As in the tz database; `UTC` is taken as it is.
        repeated: Lines so far within an hour that clocks showed twice.
        latest_us: The latest local end so far.
        gone_back: The nights in which the log has gone back.
    """

    name: str
    repeated: int = 0
    latest_us: int = -(1 << 62)
    gone_back: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Refuses a zone that nobody knows."""
        try:
            ZoneInfo(self.name)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise LogError(
                f'--zone: "{self.name}" is no zone of the tz database: write one as in America/Denver or UTC'
            ) from error

    @property
    def is_utc(self) -> bool:
        """Whether there is nothing to convert."""
        return self.name == "UTC"

    def to_utc(self, start_us: Whole, end_us: Whole) -> tuple[Whole, Whole, Mask]:
        """Starts and ends, in the order of the log, in UTC; and which rows have a time that clocks skipped.

        An hour that clocks show twice is taken as the first, until the log has gone back in it; a transfer
        that would end before it starts ends in the second.
        """
        if self.is_utc or not len(start_us):
            return start_us, end_us, np.zeros(len(start_us), dtype=np.bool_)
        start_early, start_late, start_skipped = self._both(start_us)
        end_early, end_late, end_skipped = self._both(end_us)
        start_twice, end_twice = start_early != start_late, end_early != end_late
        before = np.maximum.accumulate(np.concatenate([[self.latest_us], end_us]))[:-1]
        # Once it has gone back it is the second time for all that follow within the hour.
        second = end_twice & (end_us < before - _BACK_US)
        night = end_early // _NIGHT_US
        for each in np.unique(night[end_twice]).tolist():
            here = end_twice & (night == each)
            back = second & here
            first = 0 if each in self.gone_back else int(np.argmax(back)) if back.any() else len(back)
            second |= here & (np.arange(len(back)) >= first)
            if back.any():
                self.gone_back.add(each)
        self.latest_us = max(self.latest_us, int(end_us.max()))
        start = np.where(start_twice & second & (start_us <= end_us), start_late, start_early)
        end = np.where(second, end_late, end_early)
        crossing = end_twice & (end < start) & (end_late >= start)
        end = np.where(crossing, end_late, end)
        self.repeated += int((start_twice | end_twice).sum())
        return start, end, start_skipped | end_skipped

    def _both(self, local_us: Whole) -> tuple[Whole, Whole, Mask]:
        """The earliest and latest moments that a local time may mean, and whether clocks skipped it."""
        # Out of any calendar: judged later, and not to be converted.
        sane = np.clip(local_us, -(10**16), 10**17)
        local = pa.array(sane, pa.timestamp("us"))
        early, late = (
            pc.assume_timezone(local, self.name, ambiguous=which, nonexistent="latest").cast(pa.int64())
            for which in ("earliest", "latest")
        )
        first = early.to_numpy(zero_copy_only=False)
        back = pc.local_timestamp(early.cast(pa.timestamp("us", self.name))).cast(pa.int64())
        skipped = back.to_numpy(zero_copy_only=False) != sane
        return first, late.to_numpy(zero_copy_only=False), skipped
