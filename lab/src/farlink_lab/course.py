"""The course of a transfer in two phases, by which one that was measured tells of one of another size.

A run ramped up for T_R seconds, at θ_R on the average, and then sustained θ_S. A transfer of more bytes, or
of more time, is taken to do the same and to go on sustaining; one of less ends earlier. Within the ramp-up
bytes are taken to grow as slow start's do, n·w0·(2^{t/s} − 1), with s such that θ_R·T_R bytes have arrived
at T_R. What a longer transfer would meet beyond the run's end is not known: that it sustains is the
assumption.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from farlink_lab import model
from farlink_lab.phases import phases

if TYPE_CHECKING:
    from farlink_lab.choice import Task
    from farlink_lab.records import Record

# A phase that lasted for less of its run is not known well enough to be prolonged.
LEAST_SUSTAINED = 0.2
# Courses that are kept: of a large campaign.
KEPT = 4096
# Ethernet's, where a record does not say.
USUAL_MTU = 1500


class CourseError(ValueError):
    """A course that no transfer takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """How a transfer goes.

    Attributes:
        delay_s: Until the first byte can have arrived: half an RTT.
        ramp_up_s: T_R, seconds since the first byte might leave; 0 without ramp-up.
        ramp_up_bps: θ_R, mean throughput until then.
        sustained_bps: θ_S.
        first_bytes: n·w0, with which slow start begins.

    Raises:
        CourseError: where one of them is not finite, below 0, or one of the last two is 0.
    """

    delay_s: float
    ramp_up_s: float
    ramp_up_bps: float
    sustained_bps: float
    first_bytes: float

    def __post_init__(self) -> None:
        for name in ("delay_s", "ramp_up_s", "ramp_up_bps", "sustained_bps", "first_bytes"):
            value, least = getattr(self, name), name in {"sustained_bps", "first_bytes"}
            if not (math.isfinite(value) and value >= 0) or (least and value == 0):
                raise CourseError(f"{name} of {value:g}: no transfer goes so")

    def throughput_bps(self, task: Task) -> float:
        """Θ of a transfer that goes so and does `task`, bit/s, at least 0: by the assumptions named above.

        A task that is none is refused where it is made (`choice.ChoiceError`).
        """
        ramp_bytes = self.ramp_up_bps * self.ramp_up_s / 8
        if ramp_bytes <= 0:
            if task.mode == "size":
                return 8 * task.amount / (self.ramp_up_s + 8 * task.amount / self.sustained_bps)
            return self.sustained_bps * max(task.amount - self.ramp_up_s, 0.0) / task.amount
        delay = min(self.delay_s, 0.9 * self.ramp_up_s)
        doublings = math.log1p(ramp_bytes / self.first_bytes)
        if task.mode == "size":
            if task.amount < ramp_bytes:
                share = math.log1p(task.amount / self.first_bytes) / doublings
                time = delay + share * (self.ramp_up_s - delay)
            else:
                time = self.ramp_up_s + 8 * (task.amount - ramp_bytes) / self.sustained_bps
            return 8 * task.amount / time
        if task.amount >= self.ramp_up_s:
            arrived = ramp_bytes + self.sustained_bps * (task.amount - self.ramp_up_s) / 8
        else:
            share = max(task.amount - delay, 0.0) / (self.ramp_up_s - delay)
            arrived = self.first_bytes * math.expm1(share * doublings)
        return 8 * arrived / task.amount


@lru_cache(maxsize=KEPT)
def course_of(record: Record) -> Course | None:
    """The course of a run; kept, since a search asks again after every run.

    Where its samples show no ramp-up, noise may have hidden it, and a shorter transfer would still have one:
    then it is the model's, up to a θ_S with which the run's own mean is what was measured. A θ_S above the
    capacity came in bursts and counts as the capacity.

    `None` where the samples are too few to tell phases, or it sustained for less than `LEAST_SUSTAINED` of
    its time. The phases are those of `phases`, slow start that of `model`; samples were checked as the record
    was read.
    """
    split = phases(record.samples)
    if split is None or 1 - split.ramp_up_share < LEAST_SUSTAINED or split.sustained_bps <= 0:
        return None
    first = float((record.streams or 1) * model.initial_window_bytes(mtu=record.mtu or USUAL_MTU))
    delay, capacity = (record.rtt_s or 0.0) / 2, record.goodput_bps or math.inf
    if split.ramp_up_s > 0:
        return Course(
            delay_s=delay,
            ramp_up_s=split.ramp_up_s,
            ramp_up_bps=split.ramp_up_bps,
            sustained_bps=min(split.sustained_bps, capacity),
            first_bytes=first,
        )
    up, lost = _slow_start(record, rate_bps=split.sustained_bps, first_bytes=first)
    dead = delay + lost
    if split.end_s <= dead:
        return None
    sustained = split.sustained_bps * split.end_s / (split.end_s - dead)
    ramp = delay + up
    return Course(
        delay_s=delay,
        ramp_up_s=ramp,
        ramp_up_bps=sustained * (1 - dead / ramp) if ramp > dead else 0.0,
        sustained_bps=min(sustained, capacity),
        first_bytes=first,
    )


def _slow_start(record: Record, *, rate_bps: float, first_bytes: float) -> tuple[float, float]:
    """T_R and x of slow start up to `rate_bps`, by the model, seconds; none where a declared rate is held."""
    if record.rtt_s is None or isinstance(record.fields.get("declared_bps"), int):
        return 0.0, 0.0
    rtt = record.rtt_s
    return (
        model.ramp_up_s(rtt, capacity_bps=rate_bps, streams=1, window_bytes=first_bytes).item(),
        model.lost_time_s(rtt, capacity_bps=rate_bps, streams=1, window_bytes=first_bytes).item(),
    )


def converted_bps(record: Record, task: Task) -> tuple[float, bool] | None:
    """Θ of `task` as a run tells it, bit/s, and whether that is by its course rather than as measured.

    A longer transfer is taken to go on as it began. `None` where it did something else and its course is not
    known.
    """
    measured = record.throughput_bps
    if measured is None or measured <= 0:
        return None
    if task.is_of(record):
        return measured, False
    course = course_of(record)
    return None if course is None else (course.throughput_bps(task), True)
