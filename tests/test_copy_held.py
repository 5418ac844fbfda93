"""A copy that is held: by a shell's Ctrl-Z, or as nobody reads what it prints. It goes on where it was."""

from __future__ import annotations

import fcntl
import json
import random
import signal
import struct
import termios
import time
from typing import TYPE_CHECKING

import pytest

from copying import BLOCK, DONE, INTERRUPTED, Running, command, ends, going, leftovers
from emulation import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from copying import Ends
    from emulation import Emulation

# After so long an end takes the other for gone, and for longer a copy is held.
PATIENCE = ("--timeout", "3s", "--retries", "0")
HELD_S = 5.0

# Small files, so many that some are being stored whenever it is.
MANY = 12_000


@pytest.fixture(scope="module")
def clear(near: Emulation) -> Iterator[Ends]:
    """Both ends, and no keys: nobody else reaches an emulated host."""
    with ends(near) as both:
        yield both


def test_a_copy_within_a_host_that_was_stopped_goes_on(tmp_path: Path) -> None:
    source, there = tmp_path / "source", tmp_path / "there"
    source.write_bytes(random.Random(1).randbytes(8 * BLOCK))
    with going(command(source, there, "--limit", "40mbit", *PATIENCE)) as running:
        running.wait_for(BLOCK)
        running.send(signal.SIGSTOP)
        time.sleep(HELD_S)
        running.send(signal.SIGCONT)
        copied = running.ended()
    assert copied.status == DONE, copied
    assert there.read_bytes() == source.read_bytes()
    assert leftovers(tmp_path) == []


def until_full(running: Running) -> None:
    """Wait until the pipe that nobody reads has no room for another line."""
    assert running.process.stdout is not None
    pipe = running.process.stdout.fileno()
    capacity = fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)

    def held() -> int:
        (count,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))
        return int(count)

    # No line is divided between pages.
    wait_until(lambda: held() > 0.9 * capacity)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """More names than the news of which a pipe holds, with all that wait before it."""
    tree = tmp_path / "tree"
    tree.mkdir()
    for number in range(20_000):
        (tree / f"{number}").write_bytes(b"small")
    return tree


@pytest.mark.parametrize("way", ["to", "from"])
def test_a_copy_whose_news_nobody_reads_waits_and_goes_on(
    clear: Ends, tree: Path, tmp_path: Path, way: str
) -> None:
    there = tmp_path / "there"
    places = (tree, clear.far(there)) if way == "to" else (clear.far(tree), there)
    words = command(*places, *PATIENCE, *clear.copy_options)
    with going(words, through=clear.on_client, emulation=clear.emulation) as running:
        until_full(running)
        time.sleep(HELD_S)
        assert running.process.poll() is None
        copied = running.ended()
    assert copied.status == DONE, copied.stderr
    assert {path.name for path in (there / "tree").iterdir()} == {path.name for path in tree.iterdir()}
    assert len(copied.names) == 20_001


@pytest.mark.parametrize(("way", "more"), [("to", ()), ("to", ("--update",)), ("from", ())])
def test_a_dry_run_whose_names_nobody_reads_waits_and_goes_on(
    clear: Ends, tmp_path: Path, way: str, more: tuple[str, ...]
) -> None:
    tree, there = tmp_path / "tree", tmp_path / "there"
    tree.mkdir()
    # More than sockets hold on their way.
    names = {f"{number:0220}" for number in range(50_000)}
    for name in names:
        (tree / name).touch()
    places = (tree, clear.far(there)) if way == "to" else (clear.far(tree), there)
    words = command(*places, "--dry-run", *more, *PATIENCE, *clear.copy_options)
    with going(words, through=clear.on_client, emulation=clear.emulation) as running:
        until_full(running)
        time.sleep(HELD_S)
        stdout, stderr = running.process.communicate()
        assert (running.process.returncode, stderr.decode()) == (DONE, "")
    assert {json.loads(line)["path"].rpartition("/")[2] for line in stdout.splitlines()} == names | {"tree"}
    assert not there.exists()


def test_a_copy_whose_news_nobody_reads_can_be_interrupted(tree: Path, tmp_path: Path) -> None:
    there, records = tmp_path / "there", tmp_path / "records"
    with going(command(tree, there, "--record", records)) as running:
        until_full(running)
        running.send(signal.SIGINT)
        # Not before it has ended is anything read.
        assert running.process.wait(timeout=30) == INTERRUPTED
    (record,) = records.read_text().splitlines()
    assert json.loads(record)["kind"] == "file"


def test_a_copy_from_afar_that_is_interrupted_names_all_that_is_there(clear: Ends, tmp_path: Path) -> None:
    tree, there = tmp_path / "many", tmp_path / "there"
    tree.mkdir()
    for number in range(MANY):
        (tree / f"{number}").write_bytes(bytes(1_000))
    words = command(clear.far(tree), there, "--limit", "200mbit", *clear.copy_options)
    with going(words, through=clear.on_client, emulation=clear.emulation) as running:
        running.wait_for(1_000_000)
        running.send(signal.SIGINT)
        copied = running.ended()
    assert copied.status == INTERRUPTED, copied
    named = {path for path, what in copied.names.items() if what["outcome"] == "copied"}
    found = {f"{path.relative_to(there)}" for path in there.rglob("*") if path.is_file()}
    assert found
    assert found == {path for path in named if path not in ("", ".", "many")}
