"""A plan carried out, run by run, into a directory of records; stopped and taken up again at any run."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
import tomllib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from farlink_lab.error import LabError
from farlink_lab.movers import MOVERS
from farlink_lab.places import PLAN_COPY, RECORDS
from farlink_lab.plan_file import PlanError, parse_plan, read_plan
from farlink_lab.run.congestion import available, check_controls, with_controls
from farlink_lab.run.emulation import Emulation, find_farlink
from farlink_lab.run.journal import Journal
from farlink_lab.run.progress import CampaignProgress
from farlink_lab.run.staging import check_room
from farlink_lab.run.stop import Stop, stop_on_signals
from farlink_lab.run.transfer import Tool, carry_out, find_tool
from farlink_lab.schedule import Run, TimeLeft, schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from typing import Any

    from rich.console import Console

    from farlink_lab.plan import Configuration, Plan
    from farlink_lab.records import Reading

# Packets of the last run that are still on their way must not meet the next one; the far side's answers to
# them take another half round trip.
DRAIN_ROUND_TRIPS = 1.5
# The mover that loads congestion controls that are not there.
LOADS = "farlink"


class CampaignError(LabError):
    """A campaign that cannot begin or go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """What a campaign has come to.

    Attributes:
        runs: How many the plan means.
        already: How many of them had been measured before.
        measured: How many were measured now.
        failed: How many of those failed.
        good: How many of the plan's runs have come to something, now or before.
        status: 0, or the exit status that tells that it was interrupted.
    """

    runs: int
    already: int
    measured: int
    failed: int
    good: int
    status: int

    @property
    def lacking(self) -> int:
        """How many of the runs that were measured, now or before, came to nothing."""
        return self.already + self.measured - self.good


def run_campaign(
    path: Path,
    *,
    out: Path,
    console: Console,
    retry_failed: bool = False,
    mend: str = "",
    every_control: bool = True,
) -> Campaign:
    """Carries out the plan in the file at `path`, leaving out what `out` has already.

    Args:
        path: The plan.
        out: Directory of the records, made where it is missing.
        console: Where progress is shown.
        retry_failed: Run again what failed before.
        mend: As `settle_directory` has it.
        every_control: Whether a congestion control that is not to be had is refused; else its runs are left
            out, and that is said.

    Raises:
        LabError: where the plan, the directory, a tool or the emulator is not as it must be.
    """
    plan = read_plan(path)
    runs = schedule(plan)
    begun = (out / RECORDS).exists()
    if not every_control:
        runs, left_out = with_controls(runs)
        warn(left_out, console=console)
    elif not begun:
        # Before the directory is that plan's.
        check_controls(plan.connection, runs)
    settle_directory(plan, path=path, out=out, mend=mend)
    with Journal(out / RECORDS) as journal, stop_on_signals() as stop:
        check_still(plan, out=out)
        reading = journal.read()
        skip_broken(reading, journal=journal, console=console)
        done = finished_runs(reading, retry_failed=retry_failed)
        left = [run for run in runs if run.identity not in done]
        if begun and every_control:
            check_controls(plan.connection, left)
        counts = measure(plan, left, journal=journal, done=len(runs) - len(left), console=console, stop=stop)
        return Campaign(
            runs=len(runs),
            already=len(runs) - len(left),
            measured=counts[0],
            failed=counts[1],
            good=good_runs(reading, runs) + counts[0] - counts[1],
            status=stop.status if stop.asked else 0,
        )


def skip_broken(reading: Reading, *, journal: Journal, console: Console) -> None:
    """Names the lines that are no record."""
    for broken in reading.broken:
        warn(f"{journal.path}: {broken}: skipped", console=console)


def warn(text: str, *, console: Console) -> None:
    """What is said before the first run; nothing where there is none."""
    if text:
        console.print(f"farlink: {text}", markup=False, highlight=False, soft_wrap=True)


def settle_directory(plan: Plan, *, path: Path, out: Path, mend: str = "") -> None:
    """Makes `out` the directory of `plan`, which a copy of the plan in it says.

    A plan that mends configurations of which no run came to something takes the copy's place.

    Args:
        plan: The plan.
        path: Its file.
        out: The directory, made where it is missing.
        mend: What a user may do who meant another plan's directory; empty is to go on with that plan.

    Raises:
        CampaignError: where it is another plan's.
    """
    copy = out / PLAN_COPY
    try:
        out.mkdir(parents=True, exist_ok=True)
        if copy.exists():
            before = read_plan(copy)
            differences = before.differences(plan)
            if differences == ["configurations"]:
                # Nobody else may be writing there while the plan becomes another one.
                with Journal(out / RECORDS) as journal:
                    reading = journal.read()
                    good, tried = (finished_runs(reading, retry_failed=retried) for retried in (True, False))
                    if mends(before, plan, good=good, tried=tried):
                        left = [run for run in schedule(plan) if run.identity not in good]
                        check_controls(plan.connection, left)
                        _keep(plan, path=path, copy=copy)
                        differences = []
            if differences:
                raise CampaignError(
                    f"{path} is not the plan that {out} was begun with: it differs in "
                    f"{', '.join(differences)}; "
                    f"name another --out, or {mend or f'go on with {copy}'}"
                )
        elif (out / RECORDS).exists():
            raise CampaignError(f"{out} has records but no {PLAN_COPY} that says of what: name another --out")
        else:
            _keep(plan, path=path, copy=copy)
    except OSError as error:
        raise CampaignError(f"{out}: {error.strerror}: name a directory that can be written to") from error


def mends(before: Plan, after: Plan, *, good: frozenset[str], tried: frozenset[str]) -> bool:
    """Whether a plan replaces configurations of another that were tried and came to nothing.

    Args:
        before: The other.
        after: The plan; of other configurations alone.
        good: Identities of the runs that came to something.
        tried: Of these, and of those that failed.
    """
    more = len(after.configurations) - len(before.configurations)
    lost = [one for one in before.configurations if one not in after.configurations]
    runs = [_runs_of(before, one) for one in lost]
    return more <= 0 and all(of & tried and not of & good for of in runs)


def check_still(plan: Plan, *, out: Path) -> None:
    """Sees that `out`, in which nobody else may write any more, is the plan's still.

    Raises:
        CampaignError: where another command has mended its plan meanwhile.
    """
    if read_plan(out / PLAN_COPY).differences(plan):
        raise CampaignError(f"{out}: another command has changed its plan: see {out / PLAN_COPY}")


def _runs_of(plan: Plan, configuration: Configuration) -> set[str]:
    """Identities of the runs of one configuration."""
    return {run.identity for run in schedule(replace(plan, configurations=(configuration,)))}


def _keep(plan: Plan, *, path: Path, copy: Path) -> None:
    """Copies a plan's file whole or not at all: one cut short would be another plan.

    One that has its name from its file has it in the copy, whose file has another.
    """
    text = path.read_text(encoding="utf-8")
    if "name" not in tomllib.loads(text):
        text = f"name = {json.dumps(plan.name, ensure_ascii=False)}\n{text}"
        try:
            parse_plan(text.encode().decode(), name=plan.name)
        except (PlanError, UnicodeError) as error:
            raise CampaignError(
                f"{path}: a plan cannot have this file's name: write a name into it"
            ) from error
    beside = copy.with_name(f".{copy.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(copy)
    finally:
        beside.unlink(missing_ok=True)


def good_runs(reading: Reading, runs: Sequence[Run]) -> int:
    """How many of the `runs` were measured well."""
    return len(finished_runs(reading, retry_failed=True) & {run.identity for run in runs})


def finished_runs(reading: Reading, *, retry_failed: bool) -> frozenset[str]:
    """Identities of the runs that need not be measured again; interrupted ones need."""
    outcomes = ("ok",) if retry_failed else ("ok", "failed")
    return frozenset(record.run for record in reading.records if record.run and record.outcome in outcomes)


def is_complete(path: Path, *, out: Path) -> bool:
    """Whether `out` has every run of the plan at `path`."""
    if not (out / RECORDS).exists() or not (out / PLAN_COPY).exists():
        return False
    plan = read_plan(path)
    if read_plan(out / PLAN_COPY).differences(plan):
        return False
    with Journal(out / RECORDS) as journal:
        done = finished_runs(journal.read(), retry_failed=False)
    return all(run.identity in done for run in schedule(plan))


def in_order(left: Sequence[Run], _: TimeLeft) -> Run:
    """The next run of a campaign that measures all."""
    return left[0]


def measure(
    plan: Plan,
    runs: list[Run],
    *,
    journal: Journal,
    done: int,
    console: Console,
    stop: Stop,
    choose: Callable[[Sequence[Run], TimeLeft], Run | None] = in_order,
    saw: Callable[[dict[str, Any], float], None] = lambda _record, _took_s: None,
    most_s: float | None = None,
) -> tuple[int, int]:
    """Counts of the runs measured and of those that failed.

    Args:
        plan: Whose runs they are.
        runs: What there is to measure.
        journal: Where records go.
        done: How many were measured before.
        console: Where progress is shown.
        stop: Ends it early.
        choose: Which of those left is next; `None` ends it.
        saw: Is told each record, and how long it took.
        most_s: How long it goes on at most, for the progress; `None` until all are measured.
    """
    measured = failed = 0
    if not runs:
        return measured, failed
    farlink = find_farlink()
    tools = find_tools(runs, farlink=farlink)
    time_left = TimeLeft()
    progress = CampaignProgress(console, runs=runs, done=done, time_left=time_left, most_s=most_s)
    left = list(runs)
    with contextlib.ExitStack() as stack:
        connections = _Connections(plan, farlink=farlink, stack=stack)
        stack.enter_context(progress)
        while left and (run := choose(left, time_left)) is not None:
            left.remove(run)
            begun = time.monotonic()
            progress.begin(run)
            record = carry_out(
                run,
                plan=plan.name,
                tool=tools[_programs(run)],
                emulation=connections.of(run),
                stop=stop,
                tick=lambda elapsed, run=run: progress.tick(run, elapsed),  # type: ignore[misc]
            )
            journal.append(record)
            if stop.asked:
                break
            measured += 1
            failed += record["outcome"] != "ok"
            _drain(run, stop=stop)
            took_s = time.monotonic() - begun
            progress.end(run, record, took_s=took_s)
            saw(record, took_s)
    return measured, failed


def find_tools(runs: list[Run], *, farlink: str) -> dict[tuple[str, ...], Tool]:
    """The tool of every run, by its mover and programs, with room for what it moves.

    Raises:
        LabError: where one is missing, or moves a file that has no room: before anything is measured.
    """
    tools: dict[tuple[str, ...], Tool] = {}
    for run in runs:
        configuration = run.configuration
        if _programs(run) not in tools:
            tools[_programs(run)] = find_tool(configuration, farlink=farlink, which=shutil.which)
        if MOVERS[configuration.mover].moves_files(configuration) and configuration.size_bytes is not None:
            check_room(configuration.size_bytes, label=configuration.label)
    return tools


def _programs(run: Run) -> tuple[str, ...]:
    return (run.configuration.mover, *MOVERS[run.configuration.mover].programs(run.configuration))


def must_be_default(configuration: Configuration, *, available: Sequence[str]) -> bool:
    """Whether its mover can have its congestion control only as the hosts' default.

    It cannot choose one, or not one that is not `available` before an emulation loads it.
    """
    if configuration.congestion is None or configuration.mover == LOADS:
        return False
    return not MOVERS[configuration.mover].chooses_congestion or configuration.congestion not in available


class _Connections:
    """The emulations of a campaign.

    One serves all, unless a mover can have a congestion control only as the hosts' default: then there is one
    for each that the plan names, all open and all but one idle, and every mover with that congestion control
    uses it, so that those which are compared meet the same connection.
    """

    def __init__(self, plan: Plan, *, farlink: str, stack: contextlib.ExitStack) -> None:
        self.plan, self.farlink, self.stack = plan, farlink, stack
        there = available()
        self.by_congestion = any(
            must_be_default(configuration, available=there) for configuration in plan.configurations
        )
        self._open: dict[str | None, Emulation] = {}

    def of(self, run: Run) -> Emulation:
        default = self.plan.connection.congestion
        wanted = (run.configuration.congestion or default) if self.by_congestion else default
        if wanted in self._open and not self._open[wanted].alive:
            raise CampaignError(
                "the emulation ended by itself; what was measured is kept: start again to go on"
            )
        if wanted not in self._open:
            emulation = Emulation(
                self.farlink,
                self.plan.connection,
                congestion=wanted,
                rtt_s=run.rtt_s,
                longest_rtt_s=max(self.plan.rtts_s),
            )
            self._open[wanted] = self.stack.enter_context(emulation)
        return self._open[wanted]


def _drain(run: Run, *, stop: Stop) -> None:
    deadline = time.monotonic() + DRAIN_ROUND_TRIPS * run.rtt_s
    while not stop.asked and (left := deadline - time.monotonic()) > 0:
        time.sleep(min(left, 0.1))
