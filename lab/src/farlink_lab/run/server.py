"""The receiving end of one run."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from farlink_lab.movers import MoverError, Server
from farlink_lab.movers.files import UNPRIVILEGED
from farlink_lab.run import child
from farlink_lab.run.emulation import RECEIVER, Emulation

if TYPE_CHECKING:
    from collections.abc import Iterator

# A moment, but on a machine whose cores real-time threads hold it can be many.
READY_LIMIT_S = 30.0
POLL_S = 0.01
# What a server may still do when the client has ended: hear of it, and end its session.
SETTLE_LIMIT_S = 5.0


@dataclass(slots=True)
class Serving:
    """A server that runs, and after it what it cost.

    Attributes:
        cpu_s: CPU seconds from its start to its end, of all its processes; `None` until then.
    """

    cpu_s: float | None = None


@contextlib.contextmanager
def serving(server: Server | None, emulation: Emulation, *, measured: bool = False) -> Iterator[Serving]:
    """Runs `server` on host b for the time of the block, which begins when it listens.

    Args:
        server: What to run; `None` runs nothing.
        emulation: The connection.
        measured: Let it end its session before it is ended, so that its CPU seconds are whole.

    Raises:
        MoverError: where it does not come to listen, in its own words.
    """
    found = Serving()
    if server is None:
        yield found
        return
    name = next(Path(word).name for word in server.command if word not in UNPRIVILEGED)
    with child.unnamed(2) as (output, errors):
        process = child.start(emulation.on(RECEIVER, server.command), stdout=output, stderr=errors)
        try:
            deadline = time.monotonic() + READY_LIMIT_S
            while not _listens(server, emulation, output):
                if process.poll() is not None:
                    silence = f"it said nothing (exit code {process.returncode})"
                    said = child.last_line(errors) or child.last_line(output) or silence
                    raise MoverError(f"the {name} server did not start: {said}")
                if time.monotonic() > deadline:
                    raise MoverError(f"the {name} server did not listen within {READY_LIMIT_S:.0f} s")
                time.sleep(POLL_S)
            yield found
        finally:
            before = child.ended_cpu_s()
            if measured:
                _settle(process, ends=server.ends)
            child.end(process)
            found.cpu_s = child.ended_cpu_s() - before


def _settle(process: child.Process, *, ends: bool) -> None:
    """Waits until the server has ended, where it does so by itself, or has no session left."""
    deadline = time.monotonic() + SETTLE_LIMIT_S
    # What is started on a host is one process, and sessions are that one's children.
    while process.poll() is None and time.monotonic() < deadline:
        if not ends and len(child.descendants(process)) <= 1:
            return
        time.sleep(POLL_S)


def _listens(server: Server, emulation: Emulation, output: Path) -> bool:
    if server.ready_line is not None:
        lines = output.read_text(errors="replace").splitlines()
        return any(line.startswith(server.ready_line) for line in lines)
    return server.ready_port is None or emulation.listens(RECEIVER, server.ready_port)
