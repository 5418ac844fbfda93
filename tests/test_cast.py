"""Files by multicast over emulated hosts: everybody gets everything, and who loses much costs the others nothing."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from copying import leftovers
from emulation import FARLINK, START_LIMIT_S, Emulation

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

GROUP = "239.1.1.1:7000"
STAR = ("--hosts", "4", "--rate", "1gbit", "--rtt", "10ms", "--seed", "7")
# The hosts: one sends, the others receive.
SENDER, *RECEIVERS = "abcd"
RATE = "200mbit"


@pytest.fixture(scope="module")
def star() -> Iterator[Emulation]:
    """Four hosts around a core, for tests that change nothing for long."""
    with Emulation(options=STAR) as emulation:
        yield emulation


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """An end of a session that says on its standard output what happens."""

    process: subprocess.Popen[str]

    def until(self, kind: str) -> dict[str, Any]:
        """What it says of the next thing of that kind."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            said: dict[str, Any] = json.loads(line)
            if kind in said:
                return said
        raise AssertionError(f"it ended before {kind!r}: {self.process.communicate()[1]}")

    def end(self) -> tuple[int, dict[str, Any]]:
        """Its exit code and its record, once it has ended."""
        assert self.process.stdout is not None
        lines = [json.loads(line) for line in self.process.stdout]
        assert lines, f"it said nothing more: {self.process.communicate()[1]}"
        return self.process.wait(timeout=START_LIMIT_S), lines[-1]

    def complaints(self) -> str:
        """What it said on standard error, once it has ended."""
        assert self.process.stderr is not None
        return self.process.stderr.read()


@contextlib.contextmanager
def receiver(emulation: Emulation, host: str, into: Path | str, *options: str) -> Iterator[Running]:
    """A receiver on `host` that has joined the group; with --once unless `options` say otherwise."""
    words = ("receive", "--group", GROUP, "--into", str(into), "--no-auth", "--once", "--json", *options)
    with emulation.background(host, str(FARLINK), "cast", *words) as process:
        running = Running(process=process)
        running.until("ready")
        yield running


@contextlib.contextmanager
def receivers(emulation: Emulation, base: Path, hosts: list[str] = RECEIVERS) -> Iterator[list[Running]]:
    """A receiver on each of `hosts`, into directories of their names."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(receiver(emulation, host, base / host)) for host in hosts]


@contextlib.contextmanager
def sender(emulation: Emulation, *sources: Path | str, options: tuple[str, ...] = ()) -> Iterator[Running]:
    """A sender that is ready for receivers."""
    words = ("send", "--group", GROUP, "--rate", RATE, "--no-auth", "--json", *options)
    command = (str(FARLINK), "cast", *words, *map(str, sources))
    with emulation.background(SENDER, *command) as process:
        running = Running(process=process)
        running.until("ready")
        yield running


def wait_for(number: int) -> tuple[str, str]:
    """The option that has a sender begin with so many receivers."""
    return ("--receivers", str(number))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of all sizes in a few directories: none of them empty, since a session sends files alone."""
    top = tmp_path_factory.mktemp("source") / "tree"
    random.seed(11)
    sizes = {
        "empty": 0,
        "one": 1,
        "a packet": 1300,
        "some/packets": 20_000,
        "some/more.bin": 700_001,
        "a/b/c/deep": 3_000_000,
        "block": 1 << 20,
        "name with\nfeed": 50,
        **{f"small/{number:03}": random.randrange(60_000) for number in range(60)},
    }
    for name, size in sizes.items():
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(random.randbytes(size))
        os.utime(path, ns=(1_600_000_000_123_456_789, 1_600_000_000_123_456_789))
    return top


def files(top: Path) -> dict[str, tuple[bytes, int, int]]:
    """Content, time and mode of every file beneath `top`, by name."""
    found = (path for path in top.rglob("*") if path.is_file())
    return {
        str(path.relative_to(top)): (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_mode)
        for path in found
    }


def lossy(emulation: Emulation, host: str, loss: str) -> contextlib.AbstractContextManager[None]:
    """The way from the core to `host` loses so much as long as the context lasts."""

    @contextlib.contextmanager
    def changed() -> Iterator[None]:
        emulation.change("--loss", loss, target=f"/{host}")
        try:
            yield
        finally:
            emulation.change("--loss", "none", target=f"/{host}")

    return changed()


def test_files_arrive_identical_at_every_receiver(star: Emulation, tree: Path, tmp_path: Path) -> None:
    with receivers(star, tmp_path) as all_of_them:
        with sender(star, tree, options=wait_for(3)) as sending:
            ends = [each.end() for each in all_of_them]
            status, record = sending.end()
    assert [status for status, _ in ends] == [0, 0, 0]
    assert status == 0, record
    for host in RECEIVERS:
        assert files(tmp_path / host / "tree") == files(tree)
        assert leftovers(tmp_path / host) == []
    size = sum(len(content) for content, _, _ in files(tree).values())
    assert (record["kind"], record["outcome"], record["bytes"]) == ("cast", "ok", size)
    assert [each["complete"] for each in record["cast"]["receivers"]] == [True] * 3
    assert all(record["bytes"] == size and record["kind"] == "cast" for _, record in ends)
    # Once to all of them, and no more.
    assert record["cast"]["first_pass_bytes"] < 1.05 * size + 100_000
