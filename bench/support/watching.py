"""Programs whose lines are read as they come, each with the time at which it could be."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

# In the environment of a program and of all that it starts, so that it is found in any namespace.
MARK = "FARLINK_BENCH_MARK"
END_LIMIT_S = 5.0


class LateError(Exception):
    """What was waited for did not come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What a program said, and when: seconds since the epoch, as records have it."""

    at: float
    text: str


@dataclass(slots=True, kw_only=True)
class Watched:
    """A running program.

    Attributes:
        process: It, or what started it on its host.
        mark: What its environment has, and no other's.
        counting: Words that are counted as its lines come: to look for them again and again would take time
            that what is measured may need.
        count: Lines with them, so far.

    """

    process: subprocess.Popen[bytes]
    mark: str
    counting: str = ""
    count: int = 0
    lines: list[Line] = field(default_factory=list)
    part: bytes = b""
    open: bool = True

    def first(self, words: str) -> Line | None:
        """Its first line with `words`."""
        return next((line for line in self.lines if words in line.text), None)

    def with_words(self, words: str) -> list[Line]:
        """Every line with `words`."""
        return [line for line in self.lines if words in line.text]

    def last_said(self) -> str:
        """Its last words, for a complaint."""
        return next((line.text for line in reversed(self.lines) if line.text.strip()), "nothing")


class Watch:
    """Starts programs, reads what they say on either output, and ends them with the context."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self.programs: dict[str, Watched] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for watched in self.programs.values():
            end(watched.process)
        self._selector.close()

    def start(self, name: str, command: Sequence[str], *, counting: str = "") -> Watched:
        """Starts `command`, known as `name` from now on; its lines with the words `counting` are counted."""
        mark = f"{os.getpid()}-{len(self.programs)}-{time.monotonic_ns()}"
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, MARK: mark},
            process_group=0,
        )
        assert process.stdout is not None
        watched = Watched(process=process, mark=mark, counting=counting)
        self.programs[name] = watched
        self._selector.register(process.stdout, selectors.EVENT_READ, watched)
        return watched

    def until(self, name: str, words: str, *, limit_s: float) -> Line:
        """The first line of `name` with `words`; an error where it ends, or `limit_s` passes, before."""
        watched = self.programs[name]
        self.wait(lambda: watched.first(words) is not None or not watched.open, limit_s=limit_s)
        line = watched.first(words)
        if line is None:
            raise LateError(f"{name} ended before it said {words!r}: {watched.last_said()}")
        return line

    def until_ended(self, names: Iterable[str], *, limit_s: float) -> None:
        """Reads until all of `names` have ended."""
        watched = [self.programs[name] for name in names]
        self.wait(lambda: not any(each.open for each in watched), limit_s=limit_s)
        for each in watched:
            each.process.wait()

    def wait(self, is_done: Callable[[], bool], *, limit_s: float) -> None:
        """Reads until `is_done`; an error where `limit_s` passes before."""
        deadline = time.monotonic() + limit_s
        while not is_done():
            left = deadline - time.monotonic()
            if left <= 0:
                raise LateError(f"longer than {limit_s:.0f} s")
            self.read(left)

    def drain(self) -> None:
        """Reads what was said and is not read yet."""
        while self.read(0):
            pass

    def read(self, limit_s: float) -> bool:
        """Reads what has been said, waiting for `limit_s` for it; false where it was nothing."""
        ready = self._selector.select(limit_s)
        for key, _ in ready:
            watched: Watched = key.data
            said, at = os.read(key.fd, 1 << 16), time.time()
            if not said:
                watched.open = False
                self._selector.unregister(key.fileobj)
                continue
            *whole, watched.part = (watched.part + said.replace(b"\r", b"\n")).split(b"\n")
            lines = [Line(at=at, text=text.decode(errors="replace")) for text in whole]
            watched.count += sum(watched.counting in line.text for line in lines)
            watched.lines += lines
        return bool(ready)


def end(process: subprocess.Popen[bytes]) -> None:
    """Ends it and what it started: asked first, then killed."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(END_LIMIT_S)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


def processes(mark: str, program: str) -> list[int]:
    """Identifiers of the processes with `mark` that are `program`, and not `farlink on`, which starts it."""
    found = []
    wanted = f"{MARK}={mark}".encode()
    for entry in Path("/proc").iterdir():
        # One may end between the listing and the reading.
        with contextlib.suppress(OSError):
            if not entry.name.isdigit() or wanted not in (entry / "environ").read_bytes().split(b"\0"):
                continue
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if Path(words[0]).name == Path(program).name and words[1:2] != ["on"]:
                found.append(int(entry.name))
    return found
