"""Several receivers on one host: each is itself when it comes back, and none takes another's place."""

from __future__ import annotations

import contextlib
import random
import signal
from typing import TYPE_CHECKING, Any

import pytest

from casting import AS_ANYBODY, GROUP, SLOW, Running, file_of, files, kill, receiver, sender, tell, wait_for
from copying import REFUSED, leftovers
from emulation import FARLINK, Emulation
from strange import is_mountable, strange

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.pair

HOST = "b"
# Whoever ends there is not heard to.
WITHOUT_ENDS = """
table inet endless {
  chain outbound {
    type filter hook output priority 0;
    meta l4proto tcp tcp flags & (fin | rst) != 0 drop
  }
}
"""


@pytest.fixture(scope="module")
def star() -> Iterator[Emulation]:
    """Three hosts around a core."""
    with Emulation(options=("--hosts", "3", "--rate", "1gbit", "--rtt", "4ms", "--seed", "4")) as emulation:
        yield emulation


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A file that takes a second or more at the rate of tests."""
    path = tmp_path / "source" / "large.bin"
    path.parent.mkdir()
    path.write_bytes(random.Random(3).randbytes(60_000_000))
    return path


def under_way(running: Running) -> None:
    """Wait until much of the file has come."""
    while running.until("progress")["progress"]["bytes"] < 5_000_000:
        pass


def killed(star: Emulation, running: Running, into: Path) -> None:
    """A receiver is killed that writes to `into`."""
    kill(star, f"--into {into} ")
    running.wait()


def whole(record: dict[str, Any]) -> list[bool]:
    """Of each receiver that took part, whether it has everything."""
    return sorted(each["complete"] for each in record["cast"]["receivers"])


def test_both_are_killed_and_come_back_as_themselves(star: Emulation, large: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    with contextlib.ExitStack() as stack:
        sending = stack.enter_context(sender(star, large, options=wait_for(2), rate=SLOW))
        running = {into: stack.enter_context(receiver(star, HOST, into)) for into in (one, two)}
        for each in running.values():
            under_way(each)
        for into, each in running.items():
            killed(star, each, into)
        assert leftovers(one) != []
        assert leftovers(two) != []
        again = [stack.enter_context(receiver(star, HOST, into)) for into in (two, one)]
        codes = [each.end()[0] for each in again]
        status, record = sending.end()
    assert (status, codes) == (0, [0, 0]), record
    assert whole(record) == [True, True]
    for into in (one, two):
        assert (into / large.name).read_bytes() == large.read_bytes()
        assert leftovers(into) == []


def test_another_on_the_same_host_does_not_take_the_place_of_one_that_was_killed(
    star: Emulation, large: Path, tmp_path: Path
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    with (
        sender(star, large, options=("--timeout", "6s"), rate=SLOW) as sending,
        receiver(star, "c", "null:") as elsewhere,
        receiver(star, HOST, one) as first,
    ):
        sending.until("joined")
        sending.until("joined")
        under_way(first)
        killed(star, first, one)
        with receiver(star, HOST, two) as second:
            assert (second.end()[0], elsewhere.end()[0]) == (0, 0)
        status, record = sending.end()
        said = sending.complaints()
    assert (two / large.name).read_bytes() == large.read_bytes()
    assert not (one / large.name).exists()
    # The sender does not believe that everybody has everything.
    assert (status, whole(record)) == (1, [False, True, True])
    assert "left before it had everything" in said


def test_one_that_is_started_again_before_the_session_begins_counts_once(
    star: Emulation, large: Path, tmp_path: Path
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    with sender(star, large, options=wait_for(2)) as sending:
        with receiver(star, HOST, one) as first:
            sending.until("joined")
            killed(star, first, one)
        sending.until("left")
        with receiver(star, HOST, one) as again:
            sending.until("joined")
            # So the session still waits for the second.
            assert sending.until("waiting")["waiting"]["receivers"] == 1
            assert [sending.until("progress")["progress"]["products"] for _ in range(4)] == [0] * 4
            with receiver(star, HOST, two) as second:
                codes = [again.end()[0], second.end()[0]]
        status, record = sending.end()
    assert (status, codes, whole(record)) == (0, [0, 0], [True, True])


def test_one_that_was_killed_and_whose_end_is_not_seen_counts_once(
    star: Emulation, large: Path, tmp_path: Path
) -> None:
    into = tmp_path / "one"
    with sender(star, large, options=(*wait_for(1), "--timeout", "10s"), rate=SLOW) as sending:
        assert star.on(HOST, "nft", "--file", "-", stdin=WITHOUT_ENDS).status == 0
        try:
            with receiver(star, HOST, into) as first:
                while first.until("progress")["progress"]["bytes"] < 1_000_000:
                    pass
                killed(star, first, into)
            with receiver(star, HOST, into) as again:
                code, _ = again.end()
            status, record = sending.end()
        finally:
            star.output(HOST, "nft", "delete", "table", "inet", "endless")
    assert (status, code, whole(record)) == (0, 0, [True])


def test_one_whose_last_words_come_when_it_is_started_again_counts_once(
    star: Emulation, tmp_path: Path
) -> None:
    source, into = tmp_path / "source", tmp_path / "one"
    for number in range(300):
        file_of(source / f"{number}", 100_000 + number)
    with sender(star, source, options=(*wait_for(1), "--timeout", "20s"), rate=SLOW) as sending:
        with receiver(star, HOST, into) as first:
            while first.until("progress")["progress"]["bytes"] < 5_000_000:
                pass
            # What it says now, and that it ends, waits in its host until the link is there again.
            star.change("--cut", target=f"/{HOST}")
            try:
                for _ in range(4):
                    first.until("progress")
                killed(star, first, into)
                with receiver(star, HOST, into) as again:
                    star.change("--restore", target=f"/{HOST}")
                    code, _ = again.end()
            finally:
                star.change("--restore", target=f"/{HOST}")
        status, record = sending.end()
    assert (status, code, whole(record)) == (0, 0, [True])


def test_a_second_one_with_the_same_directory_is_refused(
    star: Emulation, large: Path, tmp_path: Path
) -> None:
    into, alias = tmp_path / "one", tmp_path / "alias"
    alias.symlink_to(into)
    with (
        sender(star, large, options=wait_for(1), rate=SLOW) as sending,
        receiver(star, HOST, into) as first,
    ):
        sending.until("joined")
        words = (str(FARLINK), "cast", "receive", "--group", GROUP, "--no-auth", "--once")
        second = star.on(HOST, *words, "--into", str(alias))
        assert second.status == REFUSED
        assert all(said in second.complaint for said in (GROUP, str(alias), "name another directory"))
        # On another host it is another's directory, and no business of this one.
        assert (first.end()[0], sending.end()[0]) == (0, 0)
    assert (into / large.name).read_bytes() == large.read_bytes()


def test_one_that_leaves_before_the_session_begins_is_not_counted(
    star: Emulation, large: Path, tmp_path: Path
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    with sender(star, large, options=wait_for(2)) as sending:
        with receiver(star, HOST, tmp_path / "left") as first:
            sending.until("joined")
            first.until("joined")
            tell(star, f"--into {tmp_path / 'left'} ", signal.SIGINT)
            first.wait()
        assert not sending.until("left")["left"]["lost"]
        with receiver(star, HOST, one) as second:
            sending.until("joined")
            assert [sending.until("progress")["progress"]["products"] for _ in range(4)] == [0] * 4
            with receiver(star, HOST, two) as third:
                codes = [second.end()[0], third.end()[0]]
        status, record = sending.end()
        said = sending.complaints()
    # It lacks nothing: there was nothing that it could have.
    assert (status, codes, whole(record), said) == (0, [0, 0], [True, True], "")


def test_more_receivers_than_a_sender_has_descriptors_for_keep_no_file_from_being_read(
    star: Emulation, tmp_path: Path
) -> None:
    top = tmp_path / "source"
    for number in range(20):
        file_of(top / f"{number}", 100_000 + number)
    # Of 64 descriptors a few are for receivers; all of these would take them all.
    few = ("prlimit", "--nofile=64:64")
    with contextlib.ExitStack() as stack:
        sending = stack.enter_context(sender(star, top, options=wait_for(6), through=few, rate="10mbit"))
        one = stack.enter_context(receiver(star, "c", tmp_path / "c"))
        sending.until("joined")
        others = [stack.enter_context(receiver(star, HOST, "null:")) for _ in range(49)]
        assert sending.until("full")["full"]["receivers"] == 6
        code, record = one.end()
        status, sent = sending.end()
    assert (code, status, sent["outcome"]) == (0, 0, "ok"), sent
    assert record["cast"]["failed"] == 0
    assert files(tmp_path / "c" / "source") == files(top)
    assert len(others) >= len(sent["cast"]["receivers"]) - 1 >= 5
    assert all(each["complete"] for each in sent["cast"]["receivers"])


@pytest.mark.skipif(not is_mountable(), reason="needs bindfs and /dev/fuse")
def test_what_a_file_system_does_not_keep_is_told_and_the_product_is_stored(tmp_path: Path) -> None:
    source = tmp_path / "source"
    small, large = file_of(source / "small", 1000), file_of(source / "large", 2 << 20)
    # A host sees what was mounted before it began.
    with (
        strange(tmp_path, "--chmod-deny", "--create-with-perms=0755") as there,
        Emulation(options=("--rate", "1gbit", "--rtt", "4ms")) as pair,
        receiver(pair, HOST, there) as receiving,
        sender(pair, small, large, options=wait_for(1)) as sending,
    ):
        stored = [receiving.until("outcome") for _ in range(2)]
        assert receiving.end()[0] == sending.end()[0] == 0
        assert {path.name: path.read_bytes() for path in there.iterdir()} == {
            path.name: path.read_bytes() for path in (small, large)
        }
    assert {line["path"]: line["outcome"] for line in stored} == {"small": "stored", "large": "stored"}
    assert all("its mode cannot be set" in line["lacks"] for line in stored)


def test_a_directory_that_its_owner_closed_stays_closed(star: Emulation, tmp_path: Path) -> None:
    open_, closed = (
        file_of(tmp_path / "feed" / "open", 1000),
        file_of(tmp_path / "feed" / "closed" / "new", 1000),
    )
    into = tmp_path / "into"
    frozen = into / "feed" / "closed"
    frozen.mkdir(parents=True)
    frozen.chmod(0o555)
    with (
        receiver(star, HOST, into, through=AS_ANYBODY) as receiving,
        sender(star, tmp_path / "feed", options=wait_for(1)) as sending,
    ):
        code, record = receiving.end()
        sending.end()
        said = receiving.complaints()
    assert (code, record["cast"]["products"]) == (1, 1), said
    assert closed.name in said
    assert "Permission denied" in said
    assert (into / "feed" / "open").read_bytes() == open_.read_bytes()
    assert (frozen.stat().st_mode & 0o7777, list(frozen.iterdir())) == (0o555, [])
    # Where nothing can be put at all, that is said before a sender is waited for.
    words = ("cast", "receive", "--group", GROUP, "--into", str(frozen), "--no-auth", "--once")
    refused = star.on(HOST, *AS_ANYBODY, str(FARLINK), *words)
    assert refused.status == 2
    assert f"write in {frozen}" in refused.complaint
