"""Sessions of `farlink cast` on emulated hosts, as tests start and watch them."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

from emulation import FARLINK, START_LIMIT_S, Emulation, marked

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

GROUP = "239.1.1.1:7000"
GROUP6 = "[ff15::1]:7000"
# The hosts: one sends, the others receive.
SENDER, *RECEIVERS = ["a", "b", "c", "d"]
RATE = "200mbit"
# Of sessions in whose midst a test does something: a busy machine may keep it waiting.
SLOW = "80mbit"
UNTIL_S = 90
# Root is refused as everybody is where it may not pass over modes.
AS_ANYBODY = (
    "setpriv",
    "--bounding-set",
    "-dac_override,-dac_read_search",
    "--inh-caps",
    "-dac_override,-dac_read_search",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """An end of a session that says on its standard output what happens."""

    process: subprocess.Popen[str]

    def until(self, kind: str) -> dict[str, Any]:
        """What it says of the next thing of that kind."""
        assert self.process.stdout is not None
        until = monotonic() + UNTIL_S
        for line in self.process.stdout:
            said: dict[str, Any] = json.loads(line)
            if kind in said:
                return said
            assert monotonic() < until, f"no {kind!r} within {UNTIL_S} s; the last: {line}"
        raise AssertionError(f"it ended before {kind!r}: {self.process.communicate()[1]}")

    def end(self) -> tuple[int, dict[str, Any]]:
        """Its exit code and its record, once it has ended."""
        assert self.process.stdout is not None
        lines = self.rest()
        return self.process.wait(timeout=START_LIMIT_S), lines[-1]

    def rest(self) -> list[dict[str, Any]]:
        """All that it says until its end."""
        assert self.process.stdout is not None
        lines = [json.loads(line) for line in self.process.stdout]
        assert lines, f"it said nothing more: {self.process.communicate()[1]}"
        return lines

    def wait(self) -> None:
        """Wait for its end, whatever it was."""
        self.process.communicate(timeout=START_LIMIT_S)

    def complaints(self) -> str:
        """What it said on standard error, once it has ended."""
        assert self.process.stderr is not None
        return self.process.stderr.read()


@contextlib.contextmanager
def receiver(
    emulation: Emulation,
    host: str,
    into: Path | str,
    *options: str,
    keyed: bool = False,
    group: str = GROUP,
    through: tuple[str, ...] = (),
) -> Iterator[Running]:
    """A receiver on `host` that has joined the group, for one session; `through` is what it is run by."""
    trust = () if keyed else ("--no-auth",)
    words = ("receive", "--group", group, "--into", str(into), "--once", "--json", *trust, *options)
    with emulation.background(host, *through, str(FARLINK), "cast", *words) as process:
        running = Running(process=process)
        running.until("ready")
        yield running


@contextlib.contextmanager
def receivers(emulation: Emulation, base: Path, hosts: list[str] = RECEIVERS) -> Iterator[list[Running]]:
    """A receiver on each of `hosts`, into directories of their names."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(receiver(emulation, host, base / host)) for host in hosts]


@contextlib.contextmanager
def sender(
    emulation: Emulation,
    *sources: Path | str,
    options: tuple[str, ...] = (),
    keyed: bool = False,
    rate: str = RATE,
    group: str = GROUP,
    through: tuple[str, ...] = (),
    host: str = SENDER,
) -> Iterator[Running]:
    """A sender on `host` that is ready for receivers; `through` is what it is run by."""
    trust = () if keyed else ("--no-auth",)
    words = ("send", "--group", group, "--rate", rate, "--json", *trust, *options)
    command = (*through, str(FARLINK), "cast", *words, *map(str, sources))
    with emulation.background(host, *command) as process:
        running = Running(process=process)
        running.until("ready")
        yield running


@contextlib.contextmanager
def session(emulation: Emulation, source: Path, base: Path) -> Iterator[tuple[Running, list[Running]]]:
    """A sender of `source`, and a receiver on each of the other hosts, for which it waits."""
    with receivers(emulation, base) as others, sender(emulation, source, options=wait_for(3)) as sending:
        yield sending, others


def stored(receiving: Running) -> str:
    """The name of the next product of which a receiver says what became of it: it is stored."""
    said = receiving.until("outcome")
    assert said["outcome"] == "stored", said
    return str(said["path"])


def wait_for(number: int) -> tuple[str, str]:
    """The option that has a sender begin with so many receivers."""
    return ("--receivers", str(number))


def file_of(path: Path, size: int) -> Path:
    """A file of so many random bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(random.Random(size).randbytes(size))
    return path


def files(top: Path) -> dict[str, tuple[bytes, int, int]]:
    """Content, time and mode of every file beneath `top`, by name."""
    found = (path for path in top.rglob("*") if path.is_file())
    return {
        str(path.relative_to(top)): (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_mode)
        for path in found
    }


@contextlib.contextmanager
def impaired(emulation: Emulation, host: str, **shares: str) -> Iterator[None]:
    """The access link of `host` does such things to packets as long as the context lasts."""
    options = [word for name, share in shares.items() for word in (f"--{name}", share)]
    emulation.change(*options, target=f"/{host}")
    try:
        yield
    finally:
        none = [word for name in shares for word in (f"--{name}", "0%")]
        emulation.change(*none, target=f"/{host}")


def lossy(emulation: Emulation, host: str, loss: str) -> contextlib.AbstractContextManager[None]:
    """The access link of `host` loses so much as long as the context lasts."""
    return impaired(emulation, host, loss=loss)


def kill(emulation: Emulation, words: str) -> None:
    """End a `farlink cast` whose command line has `words` by SIGKILL: itself, not what started it."""
    tell(emulation, words, signal.SIGKILL)


def tell(emulation: Emulation, words: str, what: signal.Signals) -> None:
    """Send a signal to the `farlink cast` whose command line has `words`."""
    found = marked(emulation.mark).items()
    for process in [each for each, said in found if said.startswith(f"{FARLINK} cast ") and words in said]:
        os.kill(process, what)
