"""What a receiver will not have is named at both ends, whoever came late: neither ends with 0."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
from typing import TYPE_CHECKING

import pytest

from casting import (
    GROUP,
    RATE,
    SENDER,
    SLOW,
    file_of,
    files,
    kill,
    receiver,
    sender,
    tell,
    wait_for,
)
from copying import leftovers
from emulation import FARLINK, START_LIMIT_S, Emulation, marked

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.pair


@pytest.fixture(scope="module")
def star() -> Iterator[Emulation]:
    """Four hosts around a core."""
    with Emulation(options=("--hosts", "4", "--rate", "1gbit", "--rtt", "10ms", "--seed", "7")) as emulation:
        yield emulation


def test_a_file_that_cannot_be_read_is_named_to_who_comes_after_that_too(
    star: Emulation, tmp_path: Path
) -> None:
    top = tmp_path / "source"
    sizes = {"a": 20_000_000, "b": 5_000, "c": 60_000_000}
    sources = [file_of(top / name, size) for name, size in sizes.items()]
    with (
        receiver(star, "b", tmp_path / "first") as first,
        sender(star, *sources, options=wait_for(1), rate=SLOW) as sending,
    ):
        while first.until("progress")["progress"]["bytes"] < 1_000_000:
            pass
        sources[1].unlink()
        # What is not stored is said with its reason.
        assert first.until("reason")["outcome"] == "failed"
        with receiver(star, "c", tmp_path / "late") as late:
            code, record = late.end()
            assert (code, record["cast"]["failed"]) == (1, 1)
            # Nothing of it had come, and its name is said all the same.
            assert "b: not stored" in late.complaints()
        # So is what is not sent, once, whoever lacks it.
        not_sent = sending.until("reason")
        code, record = first.end()
        status, _ = sending.end()
        complaints = sending.complaints().splitlines()
    assert (code, record["cast"]["failed"], status) == (1, 1, 1)
    assert (not_sent["path"], not_sent["outcome"]) == ("b", "failed")
    assert "No such file" in not_sent["reason"]
    assert [line for line in complaints if "not sent" in line] == [
        f"farlink: b: not sent, {not_sent['reason']}"
    ]
    for into in ("first", "late"):
        assert files(tmp_path / into) == files(top)
        assert leftovers(tmp_path / into) == []


def test_a_file_that_is_changed_while_it_is_sent_is_named_and_not_stored(
    star: Emulation, tmp_path: Path
) -> None:
    top = tmp_path / "source"
    sizes = {"a": 20_000_000, "b": 5_000, "c": 3_000_000, "d": 4_000_000}
    sources = [file_of(top / name, size) for name, size in sizes.items()]
    with (
        receiver(star, "b", tmp_path / "b") as receiving,
        sender(star, *sources, options=wait_for(1), rate=SLOW) as sending,
    ):
        while receiving.until("progress")["progress"]["bytes"] < 1_000_000:
            pass
        for grown in sources[1:3]:
            with grown.open("ab") as file:
                file.write(b"and more")
        told = [sending.until("reason") for _ in range(2)]
        code, record = receiving.end()
        status, _ = sending.end()
    assert [(each["path"], each["outcome"]) for each in told] == [("b", "failed"), ("c", "failed")]
    assert {each["reason"] for each in told} == {"it was changed while it was sent"}
    assert (status, code, record["cast"]["failed"]) == (1, 1, 2)
    assert sorted(files(tmp_path / "b")) == ["a", "d"]
    assert leftovers(tmp_path / "b") == []


def test_a_file_for_which_there_is_no_descriptor_waits_for_one(star: Emulation, tmp_path: Path) -> None:
    top = tmp_path / "source"
    sources = [file_of(top / name, size) for name, size in (("a", 20_000_000), ("b", 5_000))]
    with (
        receiver(star, "b", tmp_path / "b") as receiving,
        sender(star, *sources, options=wait_for(1), rate=SLOW) as sending,
    ):
        while receiving.until("progress")["progress"]["bytes"] < 1_000_000:
            pass
        said = marked(star.mark).items()
        (process,) = [each for each, words in said if words.startswith(f"{FARLINK} cast send")]
        limit = resource.prlimit(process, resource.RLIMIT_NOFILE)
        # Fewer than are open, and more than are waited on at a time (poll(2)).
        resource.prlimit(process, resource.RLIMIT_NOFILE, (12, limit[1]))
        assert receiving.until("outcome")["path"] == "a"
        # The other one has its turn, again and again.
        while sending.until("progress")["progress"]["first_pass_bytes"] < 20_000_000:
            pass
        assert all(sending.until("progress") for _ in range(3))
        resource.prlimit(process, resource.RLIMIT_NOFILE, limit)
        assert receiving.until("outcome") == {"path": "b", "outcome": "stored", "bytes": 5_000}
        assert (receiving.end()[0], sending.end()[0]) == (0, 0)
    assert files(tmp_path / "b") == files(top)


def test_a_directory_that_cannot_be_listed_is_named_at_both_ends(star: Emulation, tmp_path: Path) -> None:
    top = tmp_path / "source"
    file_of(top / "a", 5_000)
    # So deep that what is beneath has no name.
    directory = os.open(top, os.O_DIRECTORY)
    for _ in range(20):
        os.mkdir("d" * 200, dir_fd=directory)
        inner = os.open("d" * 200, os.O_DIRECTORY, dir_fd=directory)
        os.close(directory)
        directory = inner
    for name in "ab":
        os.mkdir(name * 200, dir_fd=directory)
    os.close(directory)
    with receiver(star, "b", tmp_path / "b") as receiving, sender(star, top, options=wait_for(1)) as sending:
        code, there = receiving.end()
        status, _ = sending.end()
        said = [receiving.complaints(), sending.complaints()]
    assert (code, status, there["cast"]["failed"]) == (1, 1, 2)
    assert all(f"source/{'d' * 200}" in each for each in said), said
    assert said[1].count("longer than 4095 bytes") == 2
    assert (tmp_path / "b" / "source" / "a").exists()


def test_a_sender_that_is_started_again_with_something_else_leaves_its_receiver_short(
    star: Emulation, tmp_path: Path
) -> None:
    top = tmp_path / "source"
    large, other = file_of(top / "large", 40_000_000), file_of(top / "other", 50_000)
    into = tmp_path / "b"
    with receiver(star, "b", into) as receiving:
        with sender(star, large, rate=SLOW) as before:
            while receiving.until("progress")["progress"]["bytes"] < 10_000_000:
                pass
            kill(star, "cast send")
            before.wait()
        receiving.until("lost")
        with sender(star, other) as after:
            # Of the session that is over there is a record, too.
            broken = receiving.until("tool")
            code, record = receiving.end()
            status, _ = after.end()
        complaints = receiving.complaints()
    assert "began another session" in broken["error"]
    assert broken["outcome"] == "failed"
    # The sender's own session is whole.
    assert (status, code, record["outcome"]) == (0, 1, "failed")
    assert "large: not stored" in complaints
    assert (into / other.name).read_bytes() == other.read_bytes()


def test_a_session_that_is_ended_says_no_more_than_what_was_sent(star: Emulation, tmp_path: Path) -> None:
    source = file_of(tmp_path / "large", 20_000_000)
    words = ("cast", "send", "--group", GROUP, "--rate", SLOW, "--no-auth", str(source))
    with (
        receiver(star, "b", "null:") as receiving,
        star.background(SENDER, str(FARLINK), *words, "--record", str(tmp_path / "record")) as sending,
    ):
        while receiving.until("progress")["progress"]["bytes"] < 1_000_000:
            pass
        tell(star, str(source), signal.SIGINT)
        said, complaints = sending.communicate(timeout=START_LIMIT_S)
        code, received = receiving.end()
        why = receiving.complaints()
    assert re.match(
        r"0 of 1 product, [\d.]+[KM]iB of 19\.07\d*MiB to 0 of 1 receivers .*interrupted", said
    ), said
    assert "does not have everything" in complaints
    record = json.loads((tmp_path / "record").read_text())
    assert record["outcome"] == "interrupted"
    assert 0 < record["bytes"] < 20_000_000
    # It waits for nobody who said that nothing more comes.
    assert (code, received["outcome"]) == (3, "failed")
    assert f"the sender at {star.address(SENDER)}:7000 broke its session off: it was interrupted there" in why


def test_a_receiver_of_all_sessions_says_what_came_of_one_that_was_broken_off_and_takes_the_next(
    star: Emulation, tmp_path: Path
) -> None:
    small = file_of(tmp_path / "small", 5_000)
    large = file_of(tmp_path / "large", 20_000_000)
    words = ("cast", "receive", "--group", GROUP, "--into", str(tmp_path / "b"), "--no-auth")
    records = tmp_path / "records"
    with star.background("b", str(FARLINK), *words, "--record", str(records)) as process:
        with sender(star, small, large, rate=SLOW, options=wait_for(1)) as sending:
            while all(each["products"] == 0 for each in sending.until("progress")["progress"]["receivers"]):
                pass
            tell(star, str(large), signal.SIGINT)
            assert sending.end()[0] == 130
        with sender(star, small, large, options=wait_for(1)) as sending:
            assert sending.end()[0] == 0
        tell(star, "receive", signal.SIGINT)
        said, complaints = process.communicate(timeout=START_LIMIT_S)
    outcomes = [json.loads(line)["outcome"] for line in records.read_text().splitlines()]
    # When it was ended it was in none.
    assert outcomes == ["failed", "ok"]
    assert said.startswith("1 product of 2, 4.88"), said
    assert "broke its session off" in complaints
    assert "was lost" not in complaints
    assert (tmp_path / "b" / "large").read_bytes() == large.read_bytes()


@pytest.mark.parametrize("again", ["small large third fourth", "large fifth sixth seventh"])
def test_files_whose_names_had_not_come_are_counted_when_a_sender_is_started_again(
    star: Emulation, tmp_path: Path, again: str
) -> None:
    top = tmp_path / "source"
    for size, name in enumerate(("small", "third", "fourth", "fifth", "sixth", "seventh"), start=1000):
        file_of(top / name, size)
    file_of(top / "large", 40_000_000)
    first = [top / name for name in ("small", "large", "third", "fourth")]
    with receiver(star, "b", tmp_path / "b") as receiving:
        with sender(star, *first, rate=SLOW) as before:
            while receiving.until("progress")["progress"]["bytes"] < 10_000_000:
                pass
            kill(star, "cast send")
            before.wait()
        receiving.until("lost")
        with sender(star, *(top / name for name in again.split())) as after:
            code, _ = receiving.end()
            assert after.end()[0] == 0
        complaints = receiving.complaints()
    is_same = again.startswith("small")
    assert code == (0 if is_same else 1)
    assert ("2 products of a session before: not stored" in complaints) == (not is_same), complaints


def test_a_disk_that_is_full_when_small_files_are_whole_leaves_the_others_alone(
    star: Emulation, tmp_path: Path
) -> None:
    # Each is kept in memory until it is whole: what does not fit is found when it is written.
    # A /dev/shm of the host's own.
    top, small = tmp_path / "source", "/dev/shm/small"
    for number in range(30):
        file_of(top / f"{number:02}", 200_000)
    star.output("d", "sh", "-c", f"mkdir -p {small} && mount -t tmpfs -o size=2m none {small}")
    try:
        with (
            receiver(star, "d", small) as full,
            receiver(star, "b", tmp_path / "b") as other,
            sender(star, f"{top}/", options=wait_for(2), rate=RATE) as sending,
        ):
            code, record = full.end()
            whole, _ = other.end()
            status, _ = sending.end()
        assert (code, whole, status) == (1, 0, 1)
        assert record["cast"]["products"] + record["cast"]["failed"] == 30
        assert 0 < record["cast"]["products"] < 11
        assert files(tmp_path / "b") == files(top)
    finally:
        star.on("d", "umount", small)
