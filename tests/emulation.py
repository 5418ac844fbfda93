"""`farlink emulate` under test: started, used through the command line as a person would, and ended."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

ROOT = Path(__file__).parents[1]
FARLINK = Path(os.environ.get("FARLINK") or ROOT / "target" / "release" / "farlink")

# Limits for what should take a moment: on a busy machine slow is no failure, for ever is one.
START_LIMIT_S = 30.0
COMMAND_LIMIT_S = 60.0

# Set in the environment of what a test starts, and so in that of all its descendants, in any namespace.
MARK = "FARLINK_TEST_MARK"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A command that has ended."""

    status: int
    stdout: str
    stderr: str

    @property
    def complaint(self) -> str:
        """The one line on standard error that a refused command has."""
        lines = self.stderr.splitlines()
        assert len(lines) == 1, f"not one line on standard error:\n{self.stderr}"
        return lines[0]


def farlink(*args: str, stdin: str = "", env: Mapping[str, str] | None = None) -> Ended:
    """`farlink ARGS` run to its end."""
    return run([str(FARLINK), *args], stdin=stdin, env=env)


def run(command: Sequence[str], *, stdin: str = "", env: Mapping[str, str] | None = None) -> Ended:
    """`command` run to its end."""
    done = subprocess.run(
        command,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=COMMAND_LIMIT_S,
        env={**os.environ, **(env or {})},
        check=False,
    )
    return Ended(status=done.returncode, stdout=done.stdout, stderr=done.stderr)


def refused(*args: str) -> str:
    """What `farlink ARGS` says when it refuses: one line, exit code 2, nothing on standard output."""
    ended = farlink(*args)
    assert ended.status == 2, ended
    assert ended.stdout == "", ended
    assert ended.complaint.startswith("farlink: "), ended
    return ended.complaint


@dataclass(slots=True, kw_only=True)
class Emulation:
    """A running emulation: a context that ends it."""

    options: Sequence[str] = ()
    name: str = field(default_factory=lambda: f"t-{uuid.uuid4().hex[:12]}")
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    process: subprocess.Popen[str] = field(init=False)
    started: dict[str, Any] = field(init=False)

    def __enter__(self) -> Self:
        """Start it, and wait until it says that it is ready."""
        self.process = subprocess.Popen(
            [str(FARLINK), "emulate", "--name", self.name, *self.options, "--json"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, MARK: self.mark},
        )
        try:
            assert self.process.stdout is not None
            self.started = json.loads(next_line(self.process.stdout, self.process))
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, failed: object, *_: object) -> None:
        """End it as Ctrl-C would, or kill it where that does not help; it ends well where all else did."""
        lives = self.process.poll() is None
        if lives:
            self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(timeout=START_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        if lives and failed is None:
            assert self.process.stderr is not None
            assert self.process.returncode == 0, self.process.stderr.read()

    def kill(self) -> None:
        """End it with SIGKILL."""
        self.process.kill()
        self.process.wait()

    def command(self, host: str, *command: str) -> list[str]:
        """The command line that runs `command` on `host`."""
        return [str(FARLINK), "on", f"{self.name}/{host}", "--", *command]

    def on(self, host: str, *command: str, stdin: str = "") -> Ended:
        """`command` run to its end on `host`."""
        return run(self.command(host, *command), stdin=stdin, env={MARK: self.mark})

    def output(self, host: str, *command: str) -> str:
        """What `command` writes on `host`; it must succeed."""
        ended = self.on(host, *command)
        assert ended.status == 0, ended
        return ended.stdout

    @contextlib.contextmanager
    def background(self, host: str, *command: str) -> Iterator[subprocess.Popen[str]]:
        """`command` running on `host` until the context ends."""
        process = subprocess.Popen(
            self.command(host, *command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, MARK: self.mark},
        )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(timeout=START_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise

    def change(self, *options: str, target: str = "") -> Ended:
        """`farlink link NAME[TARGET] OPTIONS`, which must succeed."""
        ended = farlink("link", self.name + target, *options)
        assert ended.status == 0, ended
        return ended

    def show(self) -> dict[str, Any]:
        """The running connection, its counters and its hosts."""
        shown: dict[str, Any] = json.loads(self.change("--json").stdout)
        return shown

    def address(self, host: str, *, ipv6: bool = False) -> str:
        """The address of `host`."""
        found = next(each for each in self.started["hosts"] if each["name"] == host)
        return str(found["ipv6" if ipv6 else "ipv4"])

    def ping(self, source: str, destination: str, *options: str) -> Ended:
        """`ping` from one host to another, by address."""
        return self.on(source, "ping", "-n", *options, destination)


def next_line(stream: IO[str], process: subprocess.Popen[str], limit_s: float = START_LIMIT_S) -> str:
    """The next line of `stream`, or a failure that shows what `process` said instead.

    What comes behind it is left in the pipe, where the next call waits for it.
    """
    until, line = time.monotonic() + limit_s, b""
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([stream], [], [], max(until - time.monotonic(), 0))
        byte = os.read(stream.fileno(), 1) if ready else b""
        if not byte:
            process.kill()
            _, stderr = process.communicate()
            raise AssertionError(f"no line within {limit_s} s from {process.args!r}, but {line!r}: {stderr}")
        line += byte
    return line.decode()


def round_trips_ms(text: str) -> list[float]:
    """The round-trip times that `ping` printed."""
    return [float(each) for each in re.findall(r"time=([\d.]+) ms", text)]


def marked(mark: str) -> dict[int, str]:
    """Process ids, and their commands, of every process that descends from what was started with `mark`."""
    found = {}
    wanted = f"{MARK}={mark}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        # A process may end between the listing and the reading.
        with contextlib.suppress(OSError):
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return found


def wait_until(holds: Callable[[], bool], limit_s: float = START_LIMIT_S) -> None:
    """Wait for what is sure to come, but not at once."""
    deadline = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < deadline, f"not within {limit_s} s"
        time.sleep(0.01)


def wait_for_end(processes: Sequence[int], limit_s: float = START_LIMIT_S) -> None:
    """Wait until each of `processes` (handles of `os.pidfd_open`) has ended; they are closed here."""
    poller = select.poll()
    waiting = set(processes)
    for each in processes:
        poller.register(each, select.POLLIN)
    try:
        while waiting:
            ended = poller.poll(limit_s * 1000)
            assert ended, f"{len(waiting)} processes still run after {limit_s} s"
            for each, _ in ended:
                poller.unregister(each)
                waiting.remove(each)
    finally:
        for each in processes:
            os.close(each)
