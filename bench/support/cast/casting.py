"""One session to a group as the bench measures it: who had everything when, and what it cost."""

from __future__ import annotations

import contextlib
import json
import sys
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from farlink_lab.run import on_host

from support.cast.casters import NULL, SMALL_BUFFER, Caster, Job
from support.cast.star import NOBODY, PLACE, Slow, Star, dropped, latest, stopped
from support.connection import ROOT
from support.copies import MAKE_TREE
from support.watching import LateError, Line, Watch, Watched, processes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Protocol

    from support.results import Results

    class Row(Protocol):
        """A part of the page, measured by itself."""

        @property
        def name(self) -> str:
            """By which it is asked for."""
            ...

        @property
        def title(self) -> str:
            """Its heading."""
            ...

        def run(self, results: Results, repetitions: int) -> None:
            """Measures what is not measured yet of it."""
            ...

        def body(self, results: Results) -> str:
            """What was measured, in Markdown."""
            ...


WORK = ROOT / "target" / "bench-cast"
SOURCE, INTO = f"{PLACE}/source", f"{PLACE}/into"
ON_HOST = (sys.executable, "-I", on_host.__file__)
READY_LIMIT_S = 30.0
FIELDS = ("bytes", "duration_s", "cpu_s", "outcome", "error", "protection")

Run = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A tool, and what is done to the first receiver meanwhile."""

    caster: Caster
    slow: Slow = NOBODY
    label: str = ""

    @property
    def name(self) -> str:
        """By which its results are kept."""
        return ", ".join(part for part in (self.caster.name, self.label, self.slow.name) if part)


def make_file(star: Star, size: int) -> None:
    """A source of `size` bytes."""
    star.run(star.sender, *ON_HOST, "fill", SOURCE, str(size))


def make_tree(star: Star, *, count: int, size: int) -> None:
    """A source of `count` files of `size` bytes each."""
    star.run(star.sender, sys.executable, "-I", "-c", MAKE_TREE, SOURCE, str(count), str(size))


def clear(star: Star, job: Job) -> None:
    """An empty place on every receiver's host."""
    if job.into != NULL:
        for host in star.receivers:
            star.run(host, "sh", "-c", f"rm -rf {job.into} && mkdir -p {job.into}")


def measure(
    star: Star,
    case: Case,
    job: Job,
    *,
    limit_s: float = 300.0,
    small_buffer: bool = False,
    meanwhile: Callable[[Watch], None] | None = None,
) -> Run:
    """One session, in which the first receiver may be slow.

    Args:
        star: The hosts.
        case: Who sends, and who is slow.
        job: What is sent.
        limit_s: For how long a session may last.
        small_buffer: Whether the first receiver has a receive buffer of 64 KiB, slow or not.
        meanwhile: What the bench does when the sender has started.

    Returns:
        `times_s`: for each host from the sender's first packet until its last file was there, by the time at
        which its line could be read; `files`: how many it has; and the records, where there are any.

    """
    clear(star, job)
    slow_host = star.receivers[0]
    losses = {slow_host: case.slow.loss} if case.slow.loss != "0%" else {}
    before = star.link()
    run: Run = {"contender": case.name}
    with Watch() as watch, contextlib.ExitStack() as stack:
        try:
            for host in star.receivers:
                buffer = SMALL_BUFFER if small_buffer and host == slow_host else None
                command = star.on(host, *case.caster.receive(star, host, job, buffer))
                watch.start(host, command, counting=case.caster.stored)
            for host in star.receivers:
                watch.until(host, case.caster.ready, limit_s=READY_LIMIT_S)
            stack.enter_context(star.losing(losses))
            slow = (
                processes(watch.programs[slow_host].mark, case.caster.program) if case.slow.stopped_s else []
            )
            stack.enter_context(stopped(slow, case.slow))
            watch.start("sender", star.on(star.sender, *case.caster.send(star, job)))
            if meanwhile is not None:
                meanwhile(watch)
            _finish(star, watch, case, job, limit_s=limit_s)
        except LateError as late:
            run["error"] = str(late)[:300]
        run = _seen(star, watch, case, job) | run
    after = star.link()
    late_s = latest(before, after)
    return run | {
        "late_p99_s": late_s,
        "overrun": late_s > after["overrun_limit_s"],
        "dropped": dropped(before, after),
        "emulator_cpu_s": after["cpu_s"] - before["cpu_s"],
    }


def _finish(star: Star, watch: Watch, case: Case, job: Job, *, limit_s: float) -> None:
    """Reads until every receiver has everything, and then until the sender has ended."""
    wanted = 1 if case.caster.streams else job.files
    waiting = [watch.programs[host] for host in star.receivers]
    sender = watch.programs["sender"]

    def is_done() -> bool:
        waiting[:] = [each for each in waiting if each.open and each.count < wanted]
        return not waiting or not sender.open

    watch.wait(is_done, limit_s=limit_s)
    watch.until_ended(["sender"], limit_s=limit_s)
    if case.caster.ours or case.caster.streams:
        watch.until_ended(star.receivers, limit_s=limit_s)


def objects(lines: Sequence[Line]) -> list[Run]:
    """The objects among the lines."""
    found = []
    for line in lines:
        with contextlib.suppress(json.JSONDecodeError):
            if line.text.startswith("{"):
                found.append(json.loads(line.text))
    return found


def record_of(watched: Watched) -> Run:
    """The record that ends what it said; empty where there is none."""
    return next((each for each in reversed(objects(watched.lines)) if "schema" in each), {})


def _seen(star: Star, watch: Watch, case: Case, job: Job) -> Run:
    """What the receivers said, and both ends' records."""
    seen: Run = {"times_s": {}, "files": {}}
    sender = watch.programs.get("sender")
    if sender is None:
        return seen
    watch.drain()
    began: float | None = None
    if case.caster.ours:
        record = record_of(sender)
        seen["sender"] = short(record)
        began = datetime.fromisoformat(record["started"]).timestamp() if record else None
    elif (line := sender.first(case.caster.began)) is not None:
        began = line.at
    for host in star.receivers:
        stored = watch.programs[host].with_words(case.caster.stored)
        seen["files"][host] = len(stored)
        wanted = 1 if case.caster.streams else job.files
        if began is not None and len(stored) >= wanted:
            seen["times_s"][host] = stored[-1].at - began
        if case.caster.ours:
            seen.setdefault("receivers", {})[host] = short(record_of(watch.programs[host]))
    if len(seen["times_s"]) < len(star.receivers):
        missing = [host for host in star.receivers if host not in seen["times_s"]]
        # A sender that never began says why; else the receiver may.
        said = (sender if began is None else watch.programs[missing[0]]).last_said()
        seen["error"] = f"not all files at {', '.join(missing)}: {said}"[:300]
    return seen


def short(record: Run) -> Run:
    """What the page may want of a record."""
    kept = {field: record[field] for field in FIELDS if field in record}
    cast = {key: value for key, value in record.get("cast", {}).items() if key != "receivers"}
    return kept | {"cast": cast} | ({"emulator": record["emulator"]} if "emulator" in record else {})


def fast(run: Run) -> list[float]:
    """The times of all receivers but the first, in seconds."""
    return list(run["times_s"].values())[1:]
