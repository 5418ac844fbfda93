"""One run of a campaign: server on host b, client on host a, and the record of what came of it."""

from __future__ import annotations

import os
import secrets
import shlex
import signal
import subprocess
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farlink_lab.health import health_between
from farlink_lab.movers import MOVERS, Finished, Mover, MoverError
from farlink_lab.run import child
from farlink_lab.run.emulation import RECEIVER, SENDER, Emulation, EmulationError
from farlink_lab.run.server import serving

if TYPE_CHECKING:
    from collections.abc import Callable

    from farlink_lab.run.stop import Stop
    from farlink_lab.schedule import Run

# The layout of records that this writes, as crates/wire has it.
SCHEMA = 1
VERSION_LIMIT_S = 10.0
# A client that takes this many times as long as expected, and this much more, hangs.
HANG_FACTOR = 4.0
HANG_EXTRA_S = 30.0
# How long an interrupted client may take to end with its record, beyond two round trips.
INTERRUPT_LIMIT_S = 2.0
TICK_S = 0.25

_CONNECTION_FIELDS = (
    *("rtt_s", "rate_bps", "goodput_bps", "loss", "queue_bytes", "background_bps", "framing", "mtu", "seed"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A mover that is installed: the program and the version that will run."""

    mover: Mover
    program: str
    version: str


def carry_out(
    run: Run, *, plan: str, tool: Tool, emulation: Emulation, stop: Stop, tick: Callable[[float], None]
) -> dict[str, Any]:
    """Carries out `run` and gives its record, whatever came of it.

    Args:
        run: What to measure.
        plan: The plan's name, for the record.
        tool: The mover to measure with.
        emulation: The connection to measure over.
        stop: Ends the run early when asked.
        tick: Called about four times a second with the seconds since the client started.
    """
    started = _now()
    command: tuple[str, ...] = ()
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}
    result: dict[str, Any] = {}
    error: str | None = None
    try:
        emulation.set_rtt(run.rtt_s)
        with serving(tool.mover.server(tool.program), emulation):
            asked = tool.mover.client(
                tool.program,
                configuration=run.configuration,
                address=emulation.address(RECEIVER),
                rtt_s=run.rtt_s,
            )
            command = emulation.on(SENDER, asked)
            before = emulation.show()
            started = _now()
            finished = _run_client(command, run=run, stop=stop, tick=tick)
            after = emulation.show()
            result = tool.mover.result(finished, configuration=run.configuration, rtt_s=run.rtt_s)
    except (MoverError, EmulationError) as reason:
        error = str(reason) if emulation.alive else f"the emulation ended by itself: {reason}"
    record = _record(run, tool=tool, started=started, before=before, after=after) | result
    if error is not None:
        record |= {"outcome": "failed", "error": error}
    if stop.asked and record["outcome"] == "failed":
        record |= {"outcome": "interrupted", "error": "ended by the user"}
    record["lab"] = {
        "plan": plan,
        "run": run.identity,
        "configuration": run.configuration.label,
        "repetition": run.repetition,
        # Where the programs are installed is this machine's business: a record travels.
        "command": shlex.join(Path(word).name if word.startswith("/") else word for word in command),
    }
    _check_congestion(record, run=run)
    return record


def _run_client(command: tuple[str, ...], *, run: Run, stop: Stop, tick: Callable[[float], None]) -> Finished:
    process = child.start(command)
    begun = time.monotonic()
    deadline = begun + HANG_FACTOR * run.expected_s + HANG_EXTRA_S
    interrupted = False
    try:
        while True:
            try:
                said, complained = process.communicate(timeout=TICK_S)
                return Finished(status=process.returncode, stdout=said, stderr=complained)
            except subprocess.TimeoutExpired:
                now = time.monotonic()
            tick(now - begun)
            if stop.asked and not interrupted:
                interrupted = True
                deadline = now + 2 * run.rtt_s + INTERRUPT_LIMIT_S
                child.send(process, signal.SIGINT)
            elif now > deadline:
                reason = "it did not end when it was interrupted" if interrupted else "it hung"
                raise MoverError(
                    f"{reason}: no end after {now - begun:.0f} s, {run.expected_s:.0f} s were expected"
                )
    finally:
        child.end(process)


def _record(
    run: Run, *, tool: Tool, started: str, before: dict[str, Any], after: dict[str, Any]
) -> dict[str, Any]:
    """What the lab knows of a run; what the mover says of it goes over this."""
    configuration = run.configuration
    host = {"kernel": os.uname().release, "cores": len(os.sched_getaffinity(0))}
    health = health_between(before, after)
    fields: dict[str, Any] = {
        "schema": SCHEMA,
        "id": secrets.token_hex(16),
        "kind": "memory",
        "mode": configuration.mode,
        "started": started,
        "bytes": 0,
        "rtt_s": run.rtt_s,
        **{key: after[key] for key in _CONNECTION_FIELDS if after.get(key) is not None},
        "streams": configuration.streams,
        # What the hosts' routes say is what a tool that asks for nothing gets.
        "congestion": None if tool.mover.chooses_congestion else after.get("congestion"),
        "buffer_bytes": configuration.buffer_bytes,
        "source": SENDER,
        "destination": RECEIVER,
        "tool": tool.mover.name,
        "version": tool.version,
        "hosts": {"source": host, "destination": host},
        "protection": "clear",
        "outcome": "ok",
        "emulator": None if health is None else _present(asdict(health)),
    }
    return _present(fields)


def _present(fields: dict[str, Any]) -> dict[str, Any]:
    """What is known; what is not is absent."""
    return {key: value for key, value in fields.items() if value is not None}


def _check_congestion(record: dict[str, Any], *, run: Run) -> None:
    """A run that was granted another congestion control than it asked for measured something else."""
    asked, granted = run.configuration.congestion, record.get("congestion")
    if record["outcome"] == "ok" and asked is not None and granted is not None and granted != asked:
        record |= {"outcome": "failed", "error": f"asked for congestion control {asked} and got {granted}"}


def find_tool(name: str, *, farlink: str, which: Callable[[str], str | None]) -> Tool:
    """The mover called `name`, installed.

    Raises:
        MoverError: where its program is missing, with what to install.
    """
    mover = MOVERS[name]
    program = farlink if name == "farlink" else which(name)
    if program is None:
        raise MoverError(f"{name} is not installed and the plan needs it: run 'apt install {mover.package}'")
    process = child.start(mover.version_command(program))
    try:
        said, complained = process.communicate(timeout=VERSION_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise MoverError(f"{program} does not say its version: install {mover.package} again") from None
    finally:
        child.end(process)
    return Tool(mover=mover, program=program, version=mover.version(said + complained))


def _now() -> str:
    nanoseconds = time.time_ns()
    whole = datetime.fromtimestamp(nanoseconds // 1_000_000_000, tz=UTC)
    return f"{whole:%Y-%m-%dT%H:%M:%S}.{nanoseconds % 1_000_000_000:09d}Z"
