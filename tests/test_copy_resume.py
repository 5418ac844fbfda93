"""Whatever ends a copy, the same command goes on where it was: proven blocks stay, and all is identical."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest

from copying import BLOCK, BROKEN, REFUSED, Copied, Ends, differences, ends, flip, leftovers
from emulation import START_LIMIT_S, Emulation

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STREAMS = 4
SIZE = 24 * BLOCK
SLOWLY = ("--limit", "80mbit", "--streams", str(STREAMS), "--retries", "0")
# What may be sent again beyond what was unfinished, a block on each stream.
AGAIN = 0.02
POINTS = 10


@pytest.fixture(scope="module")
def both(near: Emulation) -> Iterator[Ends]:
    """Both ends, which these tests end and start."""
    with ends(near) as found:
        yield found


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A tree with files in blocks, and small ones before, between and behind them."""
    draw = random.Random(9)
    tree = tmp_path / "source"
    for name, size in {
        "a/small": 1000,
        "b-large": SIZE // 2 + 11,
        "c/small": 50_000,
        "d-large": SIZE // 2 - 11,
        "e/empty": 0,
    }.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(draw.randbytes(size))
    return tree


def places(both: Ends, way: str, source: Path, there: Path) -> tuple[str, str]:
    """Source and destination of a copy of a tree."""
    if way == "push":
        return f"{source}/", both.far(there)
    return f"{both.far(source)}/", str(there)


def check_again(again: Copied, before: int) -> None:
    """That a second copy sent only what the first had not brought, `before` of it."""
    sent = again.record["bytes"]
    assert sent + before <= SIZE * (1 + AGAIN) + 51_000 + STREAMS * BLOCK, (sent, before)


# Somewhere in the copy: a new point each run would find more, and nobody could find it again.
WHOM = [("push", "client"), ("push", "server"), ("pull", "client"), ("pull", "server")]
CASES = [
    (way, victim, point)
    for seed, (way, victim) in enumerate(WHOM)
    for point in sorted(random.Random(seed).sample(range(5, 65), POINTS))
]


@pytest.mark.parametrize(("way", "victim", "point"), CASES)
def test_after_a_kill_at_any_point_the_same_command_ends_it(
    both: Ends, source: Path, tmp_path: Path, way: str, victim: str, point: int
) -> None:
    there = tmp_path / "there"
    words = [*places(both, way, source, there), *SLOWLY]
    with both.copying(*words) as copying:
        copying.wait_for(SIZE * point // 100)
        if victim == "client":
            copying.send(signal.SIGKILL)
            copying.wait()
        else:
            both.restart_server()
            assert copying.wait() == BROKEN
        before = copying.acknowledged
    # What has its final name is whole.
    for path in there.rglob("*-large") if there.exists() else []:
        assert path.read_bytes() == (source / path.relative_to(there)).read_bytes()
    # The far end of a client that was killed may not have noticed yet: it has the file until then.
    again = patiently(both, *words)
    assert differences(source, there) == []
    assert leftovers(there) == []
    check_again(again, before)


@pytest.mark.parametrize("way", ["push", "pull"])
def test_a_server_that_ends_in_order_and_comes_back_later_is_waited_for(
    both: Ends, source: Path, tmp_path: Path, way: str
) -> None:
    there = tmp_path / "there"
    options = ("--limit", "80mbit", "--streams", str(STREAMS), "--retries", "20")
    with both.copying(*places(both, way, source, there), *options) as copying:
        copying.wait_for(SIZE // 5)
        os.kill(both.server_pid, signal.SIGTERM)
        assert both.server is not None
        both.server.wait(timeout=START_LIMIT_S)
        # It says that the server ended, and then, again and again, that there is none.
        assert copying.process.stderr is not None
        said = [copying.process.stderr.readline().decode() for _ in range(2)]
        both.start_server()
        copied = copying.ended()
    assert "was stopped" in said[0]
    assert "attempt 3 of 21" in said[1]
    assert copied.status == 0, copied
    assert differences(source, there) == []
    assert leftovers(there) == []
    # Of every name it is told once, at the end, what became of it.
    assert {line["outcome"] for line in copied.names.values()} <= {"copied", "same"}


def test_attempts_are_counted_anew_once_more_was_copied(both: Ends, source: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    options = (*SLOWLY[:4], "--retries", "3")
    with both.copying(*places(both, "push", source, there), *options) as copying:
        # More often than that it breaks, and each time something was copied.
        for times in range(1, 6):
            copying.wait_for(times * SIZE // 8)
            os.kill(both.server_pid, signal.SIGKILL)
            assert both.server is not None
            both.server.wait(timeout=START_LIMIT_S)
            both.start_server()
        copied = copying.ended()
    assert copied.status == 0, copied
    assert differences(source, there) == []
    assert leftovers(there) == []


def patiently(both: Ends, *words: str) -> Copied:
    """The same command until the far end has noticed that its client is gone, and let go of its files."""
    deadline = time.monotonic() + START_LIMIT_S
    while True:
        with both.copying(*words) as copying:
            ended = copying.ended()
        if ended.status == 0:
            return ended
        assert "another farlink" in ended.stderr, ended
        assert time.monotonic() < deadline, ended


@pytest.mark.parametrize("way", ["push", "pull"])
def test_a_server_that_comes_back_is_found_by_the_command_that_runs(
    both: Ends, source: Path, tmp_path: Path, way: str
) -> None:
    there, manifest = tmp_path / "there", tmp_path / "manifest"
    options = (*SLOWLY[:4], "--retries", "10", "--manifest", str(manifest))
    with both.copying(*places(both, way, source, there), *options) as copying:
        # Of some names it was told what became of them.
        copying.wait_for(SIZE * 2 // 3)
        both.restart_server()
        ended = copying.ended()
    assert ended.status == 0, ended
    assert differences(source, there) == []
    assert leftovers(there) == []
    assert "attempt 2" in ended.stderr
    # One command is one record, of all of its attempts, and what it says of a name last is what became of it.
    assert ended.record["outcome"] == "ok"
    assert ended.record["bytes"] >= SIZE * 9 // 10
    assert sum(came for _, came in ended.record["samples"]) >= SIZE * 9 // 10
    ends = [end for end, _ in ended.record["samples"]]
    assert ends == sorted(ends)
    assert ends[-1] <= ended.record["duration_s"] + 1e-9
    kept = [json.loads(line) for line in manifest.read_text().splitlines()]
    assert {line["path"]: line for line in kept} == ended.names
    assert len(kept) == len(ended.names)


def test_a_copy_that_another_command_takes_over_ends_as_one_that_is_not_to_be_run_again(
    both: Ends, source: Path, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    words = (f"{source}/", both.far(there), *SLOWLY)
    with both.copying(*words) as first:
        first.wait_for(BLOCK)
        # The same, however it is spelled.
        with both.copying(f"{source}/.", f"{both.far(there)}/", *SLOWLY) as second:
            overtaken, ended = first.ended(), second.ended()
    # Not 3: two loops that wait for another code would throw each other out for ever.
    assert overtaken.status == REFUSED
    assert "begun again by another command" in overtaken.stderr
    assert ended.status == 0, ended
    assert differences(source, there) == []
    assert leftovers(there) == []


def test_two_commands_that_copy_other_parts_of_a_tree_at_once_both_end(
    both: Ends, source: Path, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    there.mkdir()
    with contextlib.ExitStack() as stack:
        going = []
        for name in ("b-large", "d-large"):
            listed = tmp_path / f"only-{name}"
            listed.write_text(f"{name}\n")
            words = (f"{source}/", both.far(there), "--files-from", str(listed), *SLOWLY)
            going.append(stack.enter_context(both.copying(*words)))
        # Both at work.
        for copying in going:
            copying.wait_for(BLOCK)
        ended = [copying.ended() for copying in going]
    assert [each.status for each in ended] == [0, 0], ended
    for name in ("b-large", "d-large"):
        assert (there / name).read_bytes() == (source / name).read_bytes()


@pytest.mark.parametrize("way", ["push", "pull"])
def test_a_flipped_bit_in_a_partial_file_is_found_and_its_block_sent_again(
    both: Ends, tmp_path: Path, way: str
) -> None:
    source, there = tmp_path / "file", tmp_path / "copy"
    source.write_bytes(random.Random(10).randbytes(SIZE))
    words = (
        [str(source), both.far(there), *SLOWLY] if way == "push" else [both.far(source), str(there), *SLOWLY]
    )
    with both.copying(*words) as copying:
        copying.wait_for(SIZE // 2)
        copying.send(signal.SIGKILL)
        copying.wait()
        before = copying.acknowledged
    (partial,) = tmp_path.glob(".farlink-*.part")
    flip(partial, 3 * BLOCK // 2)
    again = patiently(both, *words)
    assert there.read_bytes() == source.read_bytes()
    # It was proven, and only it was not: neither everything again, nor nothing.
    missing = SIZE - before
    assert again.record["bytes"] <= missing + (1 + STREAMS) * BLOCK
    assert again.record["bytes"] >= BLOCK


def test_a_journal_that_is_torn_costs_what_it_lost_and_no_more(both: Ends, tmp_path: Path) -> None:
    source, there = tmp_path / "file", tmp_path / "copy"
    source.write_bytes(random.Random(11).randbytes(SIZE))
    words = [str(source), both.far(there), *SLOWLY]
    with both.copying(*words) as copying:
        copying.wait_for(SIZE // 2)
        copying.send(signal.SIGKILL)
        copying.wait()
        before = copying.acknowledged
    (journal,) = tmp_path.glob(".farlink-*.journal")
    content = journal.read_bytes()
    journal.write_bytes(content[:-7] + b"\xff" * 3)
    again = patiently(both, *words)
    assert there.read_bytes() == source.read_bytes()
    assert again.record["bytes"] <= SIZE - before + (1 + STREAMS) * BLOCK


@pytest.mark.parametrize("change", ["content", "size"])
def test_a_source_that_was_changed_in_between_is_copied_as_it_is_now(
    both: Ends, tmp_path: Path, change: str
) -> None:
    source, there = tmp_path / "file", tmp_path / "copy"
    source.write_bytes(random.Random(12).randbytes(SIZE))
    words = [str(source), both.far(there), *SLOWLY]
    with both.copying(*words) as copying:
        copying.wait_for(SIZE // 2)
        copying.send(signal.SIGKILL)
        copying.wait()
    if change == "content":
        flip(source, 5)
    else:
        source.write_bytes(source.read_bytes()[BLOCK // 2 :])
    patiently(both, *words)
    assert there.read_bytes() == source.read_bytes()
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("way", ["push", "pull"])
def test_one_stream_of_eight_that_is_killed_is_replaced(both: Ends, tmp_path: Path, way: str) -> None:
    source, there = tmp_path / "file", tmp_path / "copy"
    source.write_bytes(random.Random(13).randbytes(SIZE))
    words = (source, both.far(there)) if way == "push" else (both.far(source), there)
    with both.copying(*words, "--limit", "100mbit", "--streams", "8") as copying:
        copying.wait_for(SIZE // 4)
        # It is not to end before one of its connections does.
        copying.send(signal.SIGSTOP)
        killed = kill_a_data_connection(both)
        copying.send(signal.SIGCONT)
        ended = copying.ended()
    assert ended.status == 0, ended
    assert there.read_bytes() == source.read_bytes()
    assert "broke" in ended.stderr, f"connection {killed} was killed, and nobody noticed"
    assert "attempt" not in ended.stderr
    # Only what was on that stream is sent again.
    assert ended.record["bytes"] <= SIZE + 2 * BLOCK


def kill_a_data_connection(both: Ends) -> str:
    """Destroy, in the client's kernel, the connection that has carried most; returns its port there."""
    shown = both.emulation.output("a", "ss", "-tniHO", "state", "established", "dport", f"= :{both.port}")
    carried = {}
    for line in shown.splitlines():
        words = line.split()
        port = words[2].rpartition(":")[2]
        counts = [
            int(word.partition(":")[2])
            for word in words
            if word.startswith(("bytes_sent:", "bytes_received:"))
        ]
        carried[port] = sum(counts)
    port = max(carried, key=lambda each: carried[each])
    # It says what it killed: nothing, where the kernel cannot (CONFIG_INET_DIAG_DESTROY).
    said = both.emulation.output("a", "ss", "-K", "-tnH", "state", "established", "sport", "=", f":{port}")
    if port not in said:
        pytest.skip("the kernel cannot destroy a connection")
    return port


@contextlib.contextmanager
def slow_link() -> Iterator[Ends]:
    """Both ends, 20 ms apart, on a connection that may be cut."""
    emulation = Emulation(options=["--rate", "100mbit", "--rtt", "20ms"])
    with emulation, ends(emulation) as both:
        yield both


@pytest.mark.parametrize("way", ["push", "pull"])
def test_a_link_that_is_cut_for_three_seconds_costs_nothing_but_time(tmp_path: Path, way: str) -> None:
    source, there = tmp_path / "file", tmp_path / "copy"
    source.write_bytes(random.Random(14).randbytes(SIZE))
    with slow_link() as both:
        words = (source, both.far(there)) if way == "push" else (both.far(source), there)
        with both.copying(*words, "--limit", "50mbit") as copying:
            copying.wait_for(SIZE // 4)
            both.emulation.change("--cut")
            # Its length is what is tested.
            threading.Event().wait(3)
            # It had not ended before.
            assert copying.process.poll() is None
            both.emulation.change("--restore")
            ended = copying.ended()
    assert ended.status == 0, ended
    assert there.read_bytes() == source.read_bytes()
    assert "attempt" not in ended.stderr


@pytest.mark.parametrize("way", ["push", "pull"])
def test_a_link_that_stays_cut_ends_the_copy_and_the_same_command_ends_it_later(
    tmp_path: Path, way: str
) -> None:
    source, there = tmp_path / "file", tmp_path / "copy"
    source.write_bytes(random.Random(15).randbytes(SIZE))
    with slow_link() as both:
        words = [str(source), both.far(there)] if way == "push" else [both.far(source), str(there)]
        words += ["--limit", "50mbit", "--timeout", "2s", "--retries", "0"]
        with both.copying(*words) as copying:
            copying.wait_for(SIZE // 4)
            both.emulation.change("--cut")
            first = copying.ended()
        assert first.status == BROKEN, first
        assert "same command" in first.stderr
        # What was measured until then stands.
        assert first.record["bytes"] >= SIZE // 4
        assert first.record["duration_s"] > 0
        assert first.record["samples"]
        assert first.record["streams"] >= 1
        assert first.record["source"] != first.record["destination"]
        assert not there.exists()
        both.emulation.change("--restore")
        again = patiently(both, *words)
    assert there.read_bytes() == source.read_bytes()
    assert leftovers(tmp_path) == []
    assert again.record["bytes"] <= SIZE - copying.acknowledged + 8 * BLOCK
