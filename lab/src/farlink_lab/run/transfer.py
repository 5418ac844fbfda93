"""One run of a campaign: server on host b, client on host a, and the record of what came of it."""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import signal
import subprocess
import time
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farlink_lab.health import health_between
from farlink_lab.movers import MOVERS, Finished, Mover, MoverError
from farlink_lab.movers.command import leaves_streams, protection_asked
from farlink_lab.movers.files import FILE_SYSTEM
from farlink_lab.run import child
from farlink_lab.run.emulation import RECEIVER, SENDER, Emulation, EmulationError
from farlink_lab.run.server import serving
from farlink_lab.run.staging import staged

if TYPE_CHECKING:
    from collections.abc import Callable

    from farlink_lab.plan import Configuration
    from farlink_lab.run.stop import Stop
    from farlink_lab.schedule import Run

# The layout of records that this writes, as crates/wire has it.
SCHEMA = 1
VERSION_LIMIT_S = 10.0
# A client that takes this many times as long as expected, and this much more, hangs.
HANG_FACTOR = 4.0
HANG_EXTRA_S = 30.0
# Of movers that may be far slower than the connection: a command of any kind, a file, a disk.
SLOW_EXTRA_S = 600.0
# How long an interrupted client may take to end with its record, beyond two round trips.
INTERRUPT_LIMIT_S = 2.0
TICK_S = 0.25
_SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")

_CONNECTION_FIELDS = (
    *("rtt_s", "rate_bps", "goodput_bps", "loss", "queue_bytes", "background_bps", "framing", "mtu", "seed"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A mover that is installed: the programs and the version that will run.

    Attributes:
        program: The client's path.
        server_program: The server's; for many the same.
    """

    mover: Mover
    program: str
    server_program: str
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
    attempt = _Attempt(started=_now())
    result: dict[str, Any] = {}
    error: str | None = None
    try:
        emulation.set_rtt(run.rtt_s)
        emulation.set_queue(run.configuration.queue)
        result = _transfer(attempt, run=run, tool=tool, emulation=emulation, stop=stop, tick=tick)
    except (MoverError, EmulationError) as reason:
        error = str(reason) if emulation.alive else f"the emulation ended by itself: {reason}"
    record = _record(run, tool=tool, attempt=attempt) | result
    if error is not None:
        record |= {"outcome": "failed", "error": error}
    if stop.asked and record["outcome"] == "failed":
        record |= {"outcome": "interrupted", "error": "ended by the user"}
    configuration = run.configuration
    record["lab"] = {
        "plan": plan,
        "run": run.identity,
        "configuration": configuration.label,
        "repetition": run.repetition,
        **_present(
            {
                "options": configuration.options or None,
                "template": configuration.command,
                "server": configuration.server,
            }
        ),
        # Where the programs are installed is this machine's business: a record travels.
        "command": shlex.join(Path(word).name if word.startswith("/") else word for word in attempt.command),
    }
    _check_congestion(record, run=run)
    return record


@dataclass(slots=True, kw_only=True)
class _Attempt:
    """What is known of a run before its mover says anything.

    Attributes:
        command: The client's, as it was started.
        before: The connection's state and counters before the client; empty where it did not come to that.
        after: Likewise after it.
    """

    started: str
    command: tuple[str, ...] = ()
    before: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)


def _transfer(
    attempt: _Attempt,
    *,
    run: Run,
    tool: Tool,
    emulation: Emulation,
    stop: Stop,
    tick: Callable[[float], None],
) -> dict[str, Any]:
    """What the mover says of the run, and where the lab measures it what the lab saw.

    Raises:
        MoverError: where it failed.
        EmulationError: where the connection did.
    """
    mover, configuration = tool.mover, run.configuration
    files_moved = mover.moves_files(configuration)
    with contextlib.ExitStack() as files:
        staging = (
            files.enter_context(staged(emulation, size_bytes=configuration.size_bytes))
            if files_moved
            else None
        )
        server = mover.server(tool.server_program, configuration=configuration)
        with serving(server, emulation, measured=mover.lab_measures) as served:
            address = emulation.address(RECEIVER)
            asked = mover.client(tool.program, configuration=configuration, address=address, rtt_s=run.rtt_s)
            attempt.command = emulation.on(SENDER, asked)
            attempt.before = emulation.show()
            attempt.started = _now()
            begun, spent_s = time.monotonic(), child.ended_cpu_s()
            patience_s = SLOW_EXTRA_S if mover.lab_measures else HANG_EXTRA_S
            finished = _run_client(attempt.command, run=run, patience_s=patience_s, stop=stop, tick=tick)
            spent_s = child.ended_cpu_s() - spent_s
            attempt.after = emulation.show()
        if mover.lab_measures and stop.asked:
            raise MoverError("ended by the user")
        if staging is not None:
            finished = replace(finished, arrived_bytes=staging.arrived_bytes())
        result = mover.result(finished, configuration=configuration, rtt_s=run.rtt_s)
        if mover.lab_measures:
            # A command without a server has no second end that the lab could see.
            if served.cpu_s is not None:
                result = {"cpu_s": {"sender": spent_s, "receiver": served.cpu_s}} | result
            if staging is not None and configuration.size_bytes is not None:
                wall_s, size_bytes = finished.wall_s, configuration.size_bytes
                samples = staging.samples(started_s=begun, wall_s=wall_s, size_bytes=size_bytes)
                result = {"samples": samples, "files": 1} | result
        return result


def _run_client(
    command: tuple[str, ...],
    *,
    run: Run,
    patience_s: float,
    stop: Stop,
    tick: Callable[[float], None],
) -> Finished:
    begun = time.monotonic()
    process = child.start(command)
    deadline = begun + HANG_FACTOR * run.expected_s + patience_s
    interrupted = False
    try:
        while True:
            try:
                said, complained = process.communicate(timeout=TICK_S)
                wall_s = time.monotonic() - begun
                return Finished(
                    status=process.returncode, stdout=said, stderr=complained, wall_s=round(wall_s, 6)
                )
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


def _record(run: Run, *, tool: Tool, attempt: _Attempt) -> dict[str, Any]:
    """What the lab knows of a run; what the mover says of it goes over this."""
    configuration, after = run.configuration, attempt.after
    host: dict[str, Any] = {"kernel": os.uname().release, "cores": len(os.sched_getaffinity(0))}
    file = tool.mover.moves_files(configuration)
    if file:
        host["file_system"] = FILE_SYSTEM
    health = health_between(attempt.before, after)
    fields: dict[str, Any] = {
        "schema": SCHEMA,
        "id": secrets.token_hex(16),
        "kind": "file" if file else "memory",
        "mode": configuration.mode,
        "started": attempt.started,
        "bytes": 0,
        "rtt_s": run.rtt_s,
        **{key: after[key] for key in _CONNECTION_FIELDS if after.get(key) is not None},
        "streams": None if leaves_streams(configuration) else configuration.streams,
        # What the hosts' routes say is what a tool that asks for nothing gets.
        "congestion": None if tool.mover.chooses_congestion else after.get("congestion"),
        "buffer_bytes": configuration.buffer_bytes,
        "source": SENDER,
        "destination": RECEIVER,
        "tool": configuration.tool,
        "version": tool.version,
        "hosts": {"source": host, "destination": host},
        "protection": protection_asked(configuration),
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


def find_tool(configuration: Configuration, *, farlink: str, which: Callable[[str], str | None]) -> Tool:
    """The mover of `configuration`, installed.

    Raises:
        MoverError: where a program of it is missing, with what to install.
    """
    mover = MOVERS[configuration.mover]
    paths = []
    for name, package in mover.programs(configuration).items():
        path = farlink if name == "farlink" else which(name) or _of_administrators(name, which=which)
        if path is None:
            mend = f"run 'apt install {package}'" if package else "install it, or put its path into the plan"
            raise MoverError(f"{name} is not installed and the plan needs it: {mend}")
        paths.append(path)
    program, *_ = paths
    command = mover.version_command(program)
    said = _said(command, package=mover.package) if command else ""
    return Tool(mover=mover, program=program, server_program=paths[-1], version=mover.version(said))


def _of_administrators(name: str, *, which: Callable[[str], str | None]) -> str | None:
    """Where servers are, which an ordinary user's PATH may lack."""
    places = () if "/" in name else _SBIN
    return next((found for place in places if (found := which(f"{place}/{name}"))), None)


def _said(command: tuple[str, ...], *, package: str) -> str:
    process = child.start(command)
    try:
        said, complained = process.communicate(timeout=VERSION_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise MoverError(f"{command[0]} does not say its version: install {package} again") from None
    finally:
        child.end(process)
    return said + complained


def _now() -> str:
    nanoseconds = time.time_ns()
    whole = datetime.fromtimestamp(nanoseconds // 1_000_000_000, tz=UTC)
    return f"{whole:%Y-%m-%dT%H:%M:%S}.{nanoseconds % 1_000_000_000:09d}Z"
