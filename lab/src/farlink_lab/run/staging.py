"""The files of one run of a file mover: made before it, watched during it, and gone after it."""

from __future__ import annotations

import contextlib
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from farlink_lab.error import LabError
from farlink_lab.movers import MoverError, files
from farlink_lab.quantity import show_size
from farlink_lab.run import child, on_host
from farlink_lab.run.emulation import RECEIVER, SENDER, Emulation

if TYPE_CHECKING:
    from collections.abc import Iterator

# Filling goes at some GB/s; on a machine that takes memory back it can be far slower.
FILL_LIMIT_S = 300.0
WATCH_READY_LIMIT_S = 30.0
POLL_S = 0.01
_PROGRAM = (sys.executable, "-I", on_host.__file__)


class NoRoomError(LabError):
    """Files that this machine's memory has no room for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Staging:
    """The two ends' files while they are there."""

    emulation: Emulation
    watched: Path

    def arrived_bytes(self) -> int:
        """What stands in the destination's directory.

        Raises:
            EmulationError: where it cannot be read.
        """
        said = self.emulation.run_on(RECEIVER, (*_PROGRAM, "arrived", files.DIRECTORY))
        return int(said)

    def samples(self, *, started_s: float, wall_s: float, size_bytes: int) -> list[list[float]]:
        """`[t_s, bytes]` of each interval of a run that began at `started_s` of the monotonic clock.

        The last ends with the run, when all of `size_bytes` had arrived.
        """
        samples: list[list[float]] = []
        before, last_s = 0, 0.0
        for row in self.watched.read_text().splitlines():
            words = row.split()
            # The last line may be half written.
            if len(words) != 2 or not words[1].isdigit():
                continue
            now_s = round(float(words[0]) - started_s, 6)
            there = min(max(int(words[1]), before), size_bytes)
            if last_s < now_s < wall_s:
                samples.append([now_s, there - before])
                before, last_s = there, now_s
        return [*samples, [wall_s, size_bytes - before]]


@contextlib.contextmanager
def staged(emulation: Emulation, *, size_bytes: int | None) -> Iterator[Staging]:
    """For the time of the block: a source of `size_bytes` on host a, and an empty directory on host b.

    Both are in memory, on a file system that ends with the emulation: nothing outlives the campaign, however
    it ends.

    Raises:
        MoverError: where there is no room for the source.
        EmulationError: where the hosts cannot be reached.
    """
    with child.unnamed(2) as (watched, errors):
        watcher: child.Process | None = None
        try:
            if size_bytes is not None:
                fill = (*_PROGRAM, "fill", files.SOURCE, str(size_bytes))
                emulation.run_on(SENDER, fill, limit_s=FILL_LIMIT_S)
                # A virtual machine's memory may be slow to touch for the first time: that is not the mover's.
                room = (*_PROGRAM, "touch", files.DESTINATION, str(size_bytes))
                emulation.run_on(RECEIVER, room, limit_s=FILL_LIMIT_S)
            command = emulation.on(RECEIVER, (*_PROGRAM, "watch", files.DIRECTORY))
            watcher = child.start(command, stdout=watched, stderr=errors)
            _wait_for_watcher(watcher, watched=watched, errors=errors)
            yield Staging(emulation=emulation, watched=watched)
        finally:
            if watcher is not None:
                child.end(watcher)
            if emulation.alive:
                for host in (SENDER, RECEIVER):
                    emulation.run_on(host, ("rm", "-rf", files.DIRECTORY))


def _wait_for_watcher(watcher: child.Process, *, watched: Path, errors: Path) -> None:
    deadline = time.monotonic() + WATCH_READY_LIMIT_S
    while "\n" not in watched.read_text():
        if watcher.poll() is not None or time.monotonic() > deadline:
            raise MoverError(
                f"the destination could not be watched: {child.last_line(errors) or 'no answer'}"
            )
        time.sleep(POLL_S)


def check_room(size_bytes: int, *, label: str) -> None:
    """Refuses a configuration whose source and destination this machine cannot keep in memory.

    Raises:
        NoRoomError: with both sizes and the mend.
    """
    memory = {
        words[0].rstrip(":"): int(words[1]) * 1024
        for words in map(str.split, Path("/proc/meminfo").read_text().splitlines())
    }
    # tmpfs(5): a file system takes half of the memory at most, and there is one for each end.
    room = min(memory.get("MemAvailable", 0), memory.get("MemTotal", 0))
    if 2 * size_bytes > room:
        raise NoRoomError(
            f"{label}: a file of {show_size(size_bytes)} is kept in memory at both ends, "
            f"which takes {show_size(2 * size_bytes)}, and {show_size(room)} are free: give fewer bytes"
        )
