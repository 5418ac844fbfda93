"""How far the course of a run errs about another task than its own, shown by the run itself.

Of a smaller task the run shows what became of it: when so many of its bytes had arrived, or how many by then.
Of a larger one it shows nothing, and its first half stands in: how far that errs about the whole.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from farlink_lab.choice import Task
from farlink_lab.course import KEPT, course_of

if TYPE_CHECKING:
    from farlink_lab.records import Record


@lru_cache(maxsize=KEPT)
def conversion_error(record: Record, task: Task) -> float | None:
    """|ln(Θ as its course tells it / Θ as its samples show it)|, 0 where both agree.

    Args:
        record: A run that did something else than `task`.
        task: What its course tells of.

    Returns:
        `None` where the samples tell no course, or nothing had arrived.
    """
    if len(record.samples) < 2:
        return None
    ends, arrived = record.samples[:, 0], np.cumsum(record.samples[:, 1])
    told_by, asked = record, task
    if task.amount >= (arrived[-1] if task.mode == "size" else ends[-1]):
        half = record.samples[ends <= ends[-1] / 2]
        told_by = replace(record, samples=half)
        asked = Task(mode="duration", amount=float(ends[-1]))
    course = course_of(told_by)
    if course is None:
        return None
    if asked.mode == "size":
        amount, seconds = asked.amount, float(np.interp(asked.amount, arrived, ends))
    else:
        amount, seconds = float(np.interp(asked.amount, ends, arrived)), asked.amount
    told = course.throughput_bps(asked)
    return abs(math.log(told * seconds / (8 * amount))) if amount > 0 and told > 0 else None
