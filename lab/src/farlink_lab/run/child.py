"""Child processes that never outlive the lab, however it ends."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# prctl(2): the signal that the kernel sends when the parent dies.
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)

# How long a process may take to end after it was asked to.
END_LIMIT_S = 5.0

Process = subprocess.Popen[str]


def start(command: Sequence[str], *, stdout: Path | None = None, stderr: Path | None = None) -> Process:
    """Starts `command` in a process group of its own, so that Ctrl-C reaches the lab alone.

    Args:
        command: Program and arguments.
        stdout: Where its output goes, for what nobody reads meanwhile (a full pipe would stop it); `None`
            pipes it.
        stderr: Likewise for its complaints.
    """
    with contextlib.ExitStack() as stack:
        output, errors = (
            subprocess.PIPE if path is None else stack.enter_context(path.open("wb"))
            for path in (stdout, stderr)
        )
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            text=True,
            errors="replace",
            process_group=0,
            # One call into libc, bound beforehand: nothing that a fork could find locked.
            preexec_fn=_die_with_parent,  # noqa: PLW1509
        )


@contextlib.contextmanager
def unnamed(count: int) -> Iterator[list[Path]]:
    """Paths, for this process alone, to files that have no name: they end with it, however it ends."""
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(count)]
        yield [Path(f"/proc/self/fd/{file.fileno()}") for file in files]


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def send(process: Process, sent: signal.Signals) -> None:
    """Sends a signal to the process and those it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, sent)


def end(process: Process) -> None:
    """Ends the process and those it started: asked first, then killed."""
    if process.poll() is None:
        send(process, signal.SIGTERM)
        try:
            process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            send(process, signal.SIGKILL)
            process.wait()
    else:
        # It has ended itself; whatever it left in its group has not.
        send(process, signal.SIGKILL)
    for pipe in (process.stdout, process.stderr):
        if pipe:
            pipe.close()


def ended_cpu_s() -> float:
    """CPU seconds, user and system, of every child that was waited for, and of theirs likewise.

    The difference over the life of one child is that child's and its descendants' (getrusage(2)): a child
    whose parent did not wait for it does not count.
    """
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def descendants(process: Process) -> list[int]:
    """Identifiers of the processes that it started, and those started, that still run."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            # One may end between the listing and the reading.
            with contextlib.suppress(OSError):
                # proc(5): the name, in parentheses, may hold anything; after it come state and parent.
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
                if state != "Z":
                    children.setdefault(int(parent), []).append(int(entry.name))
    found, new = [], [process.pid]
    while new:
        new = [each for parent in new for each in children.get(parent, ())]
        found += new
    return found


def first_line(process: Process, *, limit_s: float) -> str | None:
    """The first line of its piped output; `None` where it ends or `limit_s` passes before it is whole."""
    if process.stdout is None:
        raise ValueError("the process was started without a pipe for its output")
    descriptor = process.stdout.fileno()
    deadline = time.monotonic() + limit_s
    held = b""
    while b"\n" not in held:
        left = deadline - time.monotonic()
        readable, _, _ = select.select([descriptor], [], [], max(left, 0))
        read = os.read(descriptor, 65536) if readable else b""
        if not read:
            return None
        held += read
    return held.partition(b"\n")[0].decode(errors="replace")


def last_line(path: Path) -> str | None:
    """The last line that was written to the file, without what is blank; `None` where there is none."""
    lines = path.read_text(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), None)
