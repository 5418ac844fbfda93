"""A search carried out: run by run, each chosen by what those before it showed, until the budget is spent."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from farlink_lab.choice import COPY
from farlink_lab.places import RECORDS
from farlink_lab.plan_file import read_plan
from farlink_lab.records import parse_record
from farlink_lab.run.campaign import (
    Campaign,
    check_still,
    finished_runs,
    good_runs,
    measure,
    settle_directory,
    skip_broken,
    warn,
)
from farlink_lab.run.congestion import check_controls
from farlink_lab.run.journal import Journal
from farlink_lab.run.stop import stop_on_signals
from farlink_lab.schedule import OVERHEAD_S, schedule
from farlink_lab.search import PlanSearch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Any

    from rich.console import Console

    from farlink_lab.choice import Task
    from farlink_lab.records import Record
    from farlink_lab.schedule import Run, TimeLeft
    from farlink_lab.search import Leader


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """What a search has come to.

    Attributes:
        campaign: How many runs the plan means, and how many were measured.
        task: What the best is best at.
        leaders: The configurations that would be chosen now, RTT by RTT.
    """

    campaign: Campaign
    task: Task
    leaders: tuple[Leader, ...]


class _Budget:
    """Chooses runs for as long as the budget lasts; the emulator's start and the choosing count too."""

    def __init__(self, search: PlanSearch, *, records: Sequence[Record], left_s: float) -> None:
        self.search, self.left_s = search, left_s
        self._until = time.monotonic() + left_s
        self._records = list(records)

    def choose(self, left: Sequence[Run], time_left: TimeLeft) -> Run | None:
        self.search.learn(self._records)
        most_s = min(self.left_s, self._until - time.monotonic())
        return self.search.next_run(left, time_s=time_left.of, most_s=most_s)

    def saw(self, record: dict[str, Any], took_s: float) -> None:
        self._records.append(parse_record(json.dumps(record).encode(), line=len(self._records) + 1))
        # As it will be counted when the search is taken up again, and no less than it was.
        self.left_s -= max(took_s, _took_s(self._records[-1]))


def run_search(
    path: Path, *, out: Path, budget_s: float, console: Console, task: Task | None = None
) -> Searched:
    """Measures those runs of the plan at `path` that tell most, for `budget_s` seconds in all.

    What `out` has already counts, and so does the time that it took: an interrupted search goes on with what
    was left of the same budget.

    Args:
        path: The plan.
        out: Directory of the records, made where it is missing.
        budget_s: Seconds.
        console: Where progress is shown.
        task: What the best is best at; `None` takes the largest amount of the plan.

    Raises:
        LabError: where the plan, the directory, a tool or the emulator is not as it must be.
    """
    plan = read_plan(path)
    search = PlanSearch(plan, schedule(plan), task=task)
    runs = search.runs
    begun = (out / RECORDS).exists()
    if not begun:
        check_controls(plan.connection, runs)
    settle_directory(plan, path=path, out=out)
    if search.others:
        others = " and ".join(search.others)
        said = f"runs of {others} are not searched: advice is for farlink where that is in the plan, and "
        warn(f"{said}'farlink lab profile' measures them all", console=console)
    if search.without_copies:
        warn(
            f"{COPY} is not searched: a copy is over when its files are there, not after a time",
            console=console,
        )
    if search.mixes_copies:
        said = (
            "memory and copies are searched together, and a copy has files to read and write: for the best "
        )
        warn(f"{said}of one of them alone give each a plan and --out of its own", console=console)
    with Journal(out / RECORDS) as journal, stop_on_signals() as stop:
        check_still(plan, out=out)
        reading = journal.read()
        skip_broken(reading, journal=journal, console=console)
        done = finished_runs(reading, retry_failed=False)
        left = [run for run in runs if run.identity not in done]
        if begun:
            check_controls(plan.connection, left)
        spent_s = sum(_took_s(record) for record in reading.records)
        budget = _Budget(search, records=reading.records, left_s=budget_s - spent_s)
        measured, failed = measure(
            plan,
            left,
            journal=journal,
            done=len(runs) - len(left),
            console=console,
            stop=stop,
            choose=budget.choose,
            saw=budget.saw,
            most_s=max(budget.left_s, 0.0),
        )
        search.learn(journal.read().records)
        campaign = Campaign(
            runs=len(runs),
            already=len(runs) - len(left),
            measured=measured,
            failed=failed,
            good=good_runs(reading, runs) + measured - failed,
            status=stop.status if stop.asked else 0,
        )
        return Searched(campaign=campaign, task=search.task, leaders=search.search.leaders())


def _took_s(record: Record) -> float:
    """About how long a run took, with its setup, its end and the drain after it."""
    return (record.setup_s or 0.0) + (record.duration_s or 0.0) + 2 * (record.rtt_s or 0.0) + OVERHEAD_S
