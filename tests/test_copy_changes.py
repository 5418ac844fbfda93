"""A source that changes under a copy: what changed is named and not copied, and all else is."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from copying import BLOCK, DONE, SOME_FAILED, command, copy, ends, going, leftovers, listing
from emulation import Emulation

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from copying import Ends


@pytest.fixture(scope="module")
def clear(near: Emulation) -> Iterator[Ends]:
    """Both ends, and no keys: nobody else reaches an emulated host."""
    with ends(near) as both:
        yield both


SLOWLY = ("--limit", "20mbit", "--streams", "1")


def slowed(source: Path, there: Path, *options: str) -> list[str]:
    """A copy by one stream, slow enough for a test to change the source behind its back."""
    return command(f"{source}/", there, *SLOWLY, *options)


def change(path: Path, how: str) -> None:
    """Change a file of six blocks."""
    with path.open("r+b") as file:
        if how == "grows":
            file.seek(0, os.SEEK_END)
            file.write(b"more")
        elif how == "shrinks":
            file.truncate(BLOCK)
        else:
            file.seek(5 * BLOCK)
            file.write(how.encode())


def two_files(source: Path) -> None:
    """A directory of two files of six blocks."""
    source.mkdir()
    for name in ("a", "b"):
        (source / name).write_bytes(random.Random(name).randbytes(6 * BLOCK))


# Gives the lease back when the kernel has asked for it, and some time has gone by.
HOLD_A_LEASE = """
import fcntl, signal, sys, time
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGIO})
file = open(sys.argv[1], "r+b")
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("held", flush=True)
signal.sigwait({signal.SIGIO})
time.sleep(0.5)
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
"""


@pytest.mark.parametrize("size", [9, 3 * BLOCK])
def test_a_file_on_which_a_server_holds_a_lease_is_waited_for(tmp_path: Path, size: int) -> None:
    source, there = tmp_path / "source", tmp_path / "there"
    source.write_bytes(random.Random(size).randbytes(size))
    holding = [sys.executable, "-I", "-c", HOLD_A_LEASE, str(source)]
    with subprocess.Popen(holding, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        copy(source, there)
        assert holder.wait() == 0
    assert there.read_bytes() == source.read_bytes()


def test_a_source_that_vanishes_is_named_and_the_others_are_copied(tmp_path: Path) -> None:
    source, there = tmp_path / "source", tmp_path / "there"
    source.mkdir()
    for name in ("a", "y", "z"):
        (source / name).write_bytes(random.Random(name).randbytes(6 * BLOCK))
    with going(slowed(source, there)) as copying:
        copying.wait_for(BLOCK)
        (source / "y").unlink()
        copied = copying.ended()
    assert copied.status == SOME_FAILED
    assert copied.outcome("y") == "failed"
    assert "y" in copied.stderr
    assert listing(there) == listing(source)
    assert leftovers(there) == []


@pytest.mark.parametrize("how", ["grows", "shrinks", "is written over"])
def test_a_source_that_changes_while_it_is_read_is_copied_as_it_is_then(tmp_path: Path, how: str) -> None:
    source, there = tmp_path / "source", tmp_path / "there"
    two_files(source)
    with going(slowed(source, there)) as copying:
        copying.wait_for(2 * BLOCK)
        change(source / "a", how)
        copied = copying.ended()
    assert copied.status == DONE
    assert "trying once more" in copied.stderr
    assert [copied.outcome(name) for name in ("a", "b")] == ["copied", "copied"]
    assert listing(there) == listing(source)
    assert leftovers(there) == []
    # What was measured is the first time: all names, all bytes of what was copied then.
    assert copied.record["outcome"] == "ok"
    assert copied.record["bytes"] >= 6 * BLOCK


@pytest.mark.parametrize("way", ["push", "pull"])
def test_what_changed_is_tried_once_more_between_hosts_too(clear: Ends, tmp_path: Path, way: str) -> None:
    source, there = tmp_path / "a [1]*" / "source", tmp_path / "there"
    source.parent.mkdir()
    two_files(source)
    places = [str(source), clear.far(there)] if way == "push" else [clear.far(source), str(there)]
    there.mkdir()
    with clear.copying(*places, *SLOWLY) as copying:
        copying.wait_for(2 * BLOCK)
        change(source / "a", "is written over")
        copied = copying.ended()
    assert copied.status == DONE
    assert "trying once more" in copied.stderr
    assert listing(there / "source") == listing(source)
    assert leftovers(there) == []


def test_a_file_that_is_given_up_behind_much_that_is_on_its_way_is_named(tmp_path: Path) -> None:
    source, there = tmp_path / "source", tmp_path / "there"
    source.mkdir()
    (source / "a").write_bytes(random.Random("a").randbytes(24 << 20))
    (source / "b").write_bytes(random.Random("b").randbytes(2 * BLOCK))
    there.mkdir()
    # What is said by the control connection overtakes megabytes that wait for their turn on the link.
    with (
        Emulation(options=["--rate", "100mbit", "--rtt", "20ms"]) as emulation,
        ends(emulation) as both,
        both.copying(both.far(source), there, "--streams", "1", "--retries", "0") as copying,
    ):
        copying.wait_for(BLOCK)
        (source / "b").unlink()
        copied = copying.ended()
    assert copied.status == SOME_FAILED
    assert {name: line["outcome"] for name, line in copied.names.items()} == {
        "source": "copied",
        "source/a": "copied",
        "source/b": "failed",
    }
    assert "source/b" in copied.stderr


WRITE_ALL_THE_TIME = """
import mmap, struct, sys
with open(sys.argv[1], "r+b") as file:
    mapped = mmap.mmap(file.fileno(), 0)
count = 0
while True:
    count += 1
    struct.pack_into("<Q", mapped, 4096, count)
    if count == 1:
        print("writing", flush=True)
"""


@pytest.mark.parametrize("way", ["push", "pull"])
def test_a_file_that_is_written_all_the_time_and_does_not_show_it_is_copied(
    clear: Ends, tmp_path: Path, way: str
) -> None:
    source, there = tmp_path / "file", tmp_path / "there"
    source.write_bytes(random.Random(way).randbytes(2 * BLOCK))
    writing = [sys.executable, "-I", "-c", WRITE_ALL_THE_TIME, str(source)]
    with subprocess.Popen(writing, stdout=subprocess.PIPE, text=True) as writer:
        try:
            assert writer.stdout is not None
            # From then on its time stays, until the kernel writes it to the disk.
            assert writer.stdout.readline() == "writing\n"
            places = [str(source), clear.far(there)] if way == "push" else [clear.far(source), str(there)]
            with clear.copying(*places, "--limit", "80mbit") as copying:
                copied = copying.ended()
        finally:
            writer.kill()
    # What left behind its digest was not what was hashed: it was read again, and left as it was read.
    assert copied.status == DONE
    assert copied.outcome("file") == "copied"
    expected, found = source.read_bytes(), there.read_bytes()
    assert found[:4096] + found[4104:] == expected[:4096] + expected[4104:]


def test_a_small_file_that_changes_is_tried_once_more_too(tmp_path: Path) -> None:
    source, there = tmp_path / "source", tmp_path / "there"
    source.mkdir()
    (source / "a").write_bytes(random.Random("a").randbytes(6 * BLOCK))
    for number in range(200):
        (source / f"b{number:03}").write_bytes(random.Random(number).randbytes(20_000))
    with going(slowed(source, there)) as copying:
        copying.wait_for(BLOCK)
        # The walk has seen it: what is sent last is read last.
        (source / "b199").write_bytes(b"shorter")
        copied = copying.ended()
    assert copied.status == DONE
    assert listing(there) == listing(source)


def test_a_source_that_goes_on_changing_is_tried_twice_and_named(tmp_path: Path) -> None:
    source, there = tmp_path / "source", tmp_path / "there"
    two_files(source)
    over = threading.Event()

    def write() -> None:
        at = 0
        while not over.wait(0.005):
            change(source / "a", f"{(at := at + 1):>8}")

    with going(slowed(source, there)) as copying:
        writer = threading.Thread(target=write)
        writer.start()
        try:
            copied = copying.ended()
        finally:
            over.set()
            writer.join()
    assert copied.status == SOME_FAILED
    assert copied.outcome("a") == "failed"
    assert "while it was read" in copied.names["a"]["reason"]
    assert copied.stderr.count("trying once more") == 3
    assert listing(there).keys() == {b"b"}
    assert leftovers(there) == []


@pytest.mark.parametrize("how", ["grows", "shrinks", "is written over"])
def test_without_retries_what_changed_is_not_copied(tmp_path: Path, how: str) -> None:
    source, there = tmp_path / "source", tmp_path / "there"
    two_files(source)
    with going(slowed(source, there, "--retries", "0")) as copying:
        copying.wait_for(2 * BLOCK)
        change(source / "a", how)
        copied = copying.ended()
    assert copied.status == SOME_FAILED
    assert copied.outcome("a") == "failed"
    assert "while it was read" in copied.names["a"]["reason"]
    assert listing(there).keys() == {b"b"}
    assert (there / "b").read_bytes() == (source / "b").read_bytes()
