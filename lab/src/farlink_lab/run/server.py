"""The receiving end of one run."""

from __future__ import annotations

import contextlib
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from farlink_lab.movers import MoverError, Server
from farlink_lab.run import child
from farlink_lab.run.emulation import RECEIVER, Emulation

if TYPE_CHECKING:
    from collections.abc import Iterator

# A moment, but on a machine whose cores real-time threads hold it can be many.
READY_LIMIT_S = 30.0
POLL_S = 0.01


@contextlib.contextmanager
def serving(server: Server, emulation: Emulation) -> Iterator[None]:
    """Runs `server` on host b for the time of the block, which begins when it listens.

    Raises:
        MoverError: where it does not come to listen, in its own words.
    """
    name = Path(server.command[0]).name
    with tempfile.TemporaryDirectory(prefix="farlink-lab-") as directory:
        output, errors = Path(directory) / "stdout", Path(directory) / "stderr"
        process = child.start(emulation.on(RECEIVER, server.command), stdout=output, stderr=errors)
        try:
            deadline = time.monotonic() + READY_LIMIT_S
            while not _listens(server, emulation, output):
                if process.poll() is not None:
                    said = child.last_line(errors) or child.last_line(output) or "it said nothing"
                    raise MoverError(f"the {name} server did not start: {said}")
                if time.monotonic() > deadline:
                    raise MoverError(f"the {name} server did not listen within {READY_LIMIT_S:.0f} s")
                time.sleep(POLL_S)
            yield
        finally:
            child.end(process)


def _listens(server: Server, emulation: Emulation, output: Path) -> bool:
    if server.ready_line is not None:
        lines = output.read_text(errors="replace").splitlines()
        return any(line.startswith(server.ready_line) for line in lines)
    return server.ready_port is None or emulation.listens(RECEIVER, server.ready_port)
