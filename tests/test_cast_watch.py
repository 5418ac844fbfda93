"""A sender that watches a directory: what appears is sent, to whoever is there, until the user ends it."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from casting import AS_ANYBODY, file_of, files, lossy, receiver, sender, stored, tell, wait_for
from emulation import Emulation

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.pair


@pytest.fixture(scope="module")
def star() -> Iterator[Emulation]:
    """Three hosts around a core."""
    with Emulation(options=("--hosts", "3", "--rate", "1gbit", "--rtt", "10ms", "--seed", "3")) as emulation:
        yield emulation


def test_what_appears_in_a_directory_is_sent(star: Emulation, tmp_path: Path) -> None:
    feed = tmp_path / "feed"
    file_of(feed / "old", 10)
    named = file_of(tmp_path / "named", 20_000)
    watch = ("--watch", str(feed))
    with (
        receiver(star, "b", tmp_path / "b") as receiving,
        sender(star, named, options=watch) as sending,
    ):
        assert stored(receiving) == "named"
        assert sending.until("begun")["begun"]["path"] == "named"
        file_of(tmp_path / "moved", 3000).rename(feed / "moved")
        assert stored(receiving) == "feed/moved"
        assert sending.until("begun")["begun"]["path"] == "feed/moved"
        file_of(feed / "a/b/written", 700_000)
        assert stored(receiving) == "feed/a/b/written"
        with (feed / "slow").open("wb") as slow:
            slow.write(b"half")
            slow.flush()
            file_of(feed / "meanwhile", 5)
            assert stored(receiving) == "feed/meanwhile"
        assert stored(receiving) == "feed/slow"
        file_of(feed / ".hidden", 9)
        file_of(feed / "slow", 99)
        assert stored(receiving) == "feed/slow"
        tell(star, "--watch", signal.SIGINT)
        sending.until("ceased")
        status, record = sending.end()
        assert receiving.end()[0] == 0
    assert status == 0
    assert (record["outcome"], record["files"]) == ("ok", 6)
    there = files(tmp_path / "b")
    assert set(there) == {"named", "feed/moved", "feed/a/b/written", "feed/slow", "feed/meanwhile"}
    assert there["feed/slow"][0] == (feed / "slow").read_bytes()


def test_who_watches_goes_on_when_the_last_receiver_has_left(star: Emulation, tmp_path: Path) -> None:
    feed = tmp_path / "feed"
    feed.mkdir()
    with sender(star, options=("--watch", str(feed))) as sending:
        with receiver(star, "b", tmp_path / "b") as first:
            file_of(feed / "one", 2000)
            assert stored(first) == "feed/one"
            tell(star, str(tmp_path / "b"), signal.SIGINT)
            first.wait()
        sending.until("left")
        file_of(feed / "two", 3000)
        with receiver(star, "c", tmp_path / "c") as second:
            while stored(second) != "feed/two":
                pass
            tell(star, "--watch", signal.SIGINT)
            assert second.end()[0] == 0
        # The first had everything that was sent while it was there.
        assert sending.end()[0] == 0
    assert files(tmp_path / "c")["feed/two"][0] == (feed / "two").read_bytes()


def test_who_watches_and_has_not_begun_is_ended_at_once(star: Emulation, tmp_path: Path) -> None:
    feed = tmp_path / "feed"
    feed.mkdir()
    with (
        sender(star, options=(*wait_for(2), "--watch", str(feed))) as sending,
        receiver(star, "b", tmp_path / "b") as receiving,
    ):
        sending.until("joined")
        tell(star, "--watch", signal.SIGINT)
        status, record = sending.end()
        # Nothing appeared, and whoever is there has all of that.
        assert receiving.end()[0] == 0
    assert (status, record["outcome"]) == (0, "ok")


def test_a_source_beside_a_watch_that_was_not_sent_is_lacking(star: Emulation, tmp_path: Path) -> None:
    (tmp_path / "feed").mkdir()
    source = file_of(tmp_path / "source.bin", 1_000)
    with (
        sender(star, source, options=(*wait_for(2), "--watch", str(tmp_path / "feed"))) as sending,
        receiver(star, "b", tmp_path / "b") as receiving,
    ):
        sending.until("joined")
        tell(star, "--watch", signal.SIGINT)
        status, record = sending.end()
        # The receiver waits for it to be started again.
        assert receiving.until("lost")
    assert (status, record["outcome"]) == (130, "interrupted")


def test_a_watch_in_which_nothing_appeared_and_to_which_nobody_came_ends_well(
    star: Emulation, tmp_path: Path
) -> None:
    with sender(star, options=("--watch", str(tmp_path))) as sending:
        tell(star, "--watch", signal.SIGINT)
        status, record = sending.end()
    assert (status, record["outcome"]) == (0, "ok")


def test_what_appeared_before_anybody_came_is_counted_at_the_end(star: Emulation, tmp_path: Path) -> None:
    feed = tmp_path / "feed"
    feed.mkdir()
    with sender(star, options=("--watch", str(feed))) as sending:
        for name in ("one", "two"):
            file_of(feed / name, 100)
        tell(star, "--watch", signal.SIGINT)
        said = sending.until("reason")
        status, record = sending.end()
    assert (said["path"], said["outcome"]) == (str(feed), "failed")
    assert said["reason"].startswith("2 files ")
    assert (status, record["outcome"]) == (1, "failed")


def test_a_directory_that_is_renamed_and_made_again_has_what_is_in_it_now(
    star: Emulation, tmp_path: Path
) -> None:
    feed = tmp_path / "feed"
    file_of(feed / "day/report", 10)
    with (
        sender(star, options=("--watch", str(feed))) as sending,
        receiver(star, "b", tmp_path / "b") as receiving,
    ):
        sending.until("joined")
        file_of(feed / "day/report", 4_000)
        assert stored(receiving) == "feed/day/report"
        for size in (5_000, 700_000):
            (feed / "day").rename(tmp_path / f"before {size}")
            file_of(feed / "day/report", size)
            assert stored(receiving) == "feed/day/report"
            content = (tmp_path / "b/feed/day/report").read_bytes()
            assert content == (feed / "day/report").read_bytes()
        # What is written where the others are now is none of the watched.
        file_of(tmp_path / "before 5000" / "elsewhere", 100)
        file_of(feed / "last", 200)
        assert stored(receiving) == "feed/last"
        tell(star, "--watch", signal.SIGINT)
        assert (receiving.end()[0], sending.end()[0]) == (0, 0)
        assert sending.complaints() == ""
    assert set(files(tmp_path / "b")) == {"feed/day/report", "feed/last"}


def test_a_directory_that_is_not_there_any_more_ends_the_watching_and_is_named(
    star: Emulation, tmp_path: Path
) -> None:
    feed = tmp_path / "feed"
    feed.mkdir()
    with (
        sender(star, options=("--watch", str(feed))) as sending,
        receiver(star, "b", tmp_path / "b") as receiving,
    ):
        file_of(feed / "one", 2_000)
        assert stored(receiving) == "feed/one"
        feed.rename(tmp_path / "elsewhere")
        feed.mkdir()
        said = sending.until("reason")
        assert (receiving.end()[0], sending.end()[0]) == (0, 1)
    assert (said["path"], said["outcome"]) == (str(feed), "failed")
    assert "moved or removed" in said["reason"]


def test_a_directory_that_is_gone_before_anybody_came_ends_the_watching_too(
    star: Emulation, feed: Path, tmp_path: Path
) -> None:
    with sender(star, options=("--watch", str(feed))) as sending:
        feed.rename(tmp_path / "elsewhere")
        assert "moved or removed" in sending.until("reason")["reason"]
        assert sending.end()[0] == 1


def test_a_file_that_cannot_be_opened_is_named_at_both_ends(
    star: Emulation, feed: Path, tmp_path: Path
) -> None:
    with (
        sender(star, options=("--watch", str(feed)), through=AS_ANYBODY) as sending,
        receiver(star, "b", tmp_path / "b") as receiving,
    ):
        sending.until("joined")
        for name, mode in (("closed", 0), ("open", 0o644)):
            whole = file_of(tmp_path / name, 2_000)
            whole.chmod(mode)
            whole.rename(feed / name)
            said = receiving.until("outcome")
            assert (said["path"], said["outcome"]) == (f"feed/{name}", "stored" if mode else "failed"), said
        tell(star, "--watch", signal.SIGINT)
        status, record = sending.end()
        assert (receiving.end()[0], status, record["files"]) == (1, 1, 1)


def test_the_newest_of_a_name_is_kept_whatever_was_lost_of_those_before_it(
    star: Emulation, tmp_path: Path
) -> None:
    feed = tmp_path / "feed"
    feed.mkdir()
    sizes = (3_000, 900_000)
    with (
        lossy(star, "b", "10%"),
        sender(star, options=("--watch", str(feed)), rate="500mbit") as sending,
        receiver(star, "b", tmp_path / "b") as receiving,
    ):
        sending.until("joined")
        for version in range(10):
            for size in sizes:
                whole = file_of(tmp_path / f"{size}.{version}", size + version)
                whole.rename(feed / f"{size}")
                assert sending.until("begun")["begun"]["path"] == f"feed/{size}"
        tell(star, "--watch", signal.SIGINT)
        code, record = receiving.end()
        status, _ = sending.end()
    assert (code, status) == (0, 0)
    assert record["cast"]["products"] == 20
    assert {name: whole[0] for name, whole in files(tmp_path / "b").items()} == {
        f"feed/{size}": (feed / f"{size}").read_bytes() for size in sizes
    }


LARGE = 3_000_000
"""Bytes of a file that takes seconds at the rate below."""


def test_a_file_whose_time_is_set_when_it_is_complete_is_sent_with_it(
    star: Emulation, tmp_path: Path
) -> None:
    feed = tmp_path / "feed"
    feed.mkdir()
    with (
        sender(star, options=("--watch", str(feed)), rate="10mbit") as sending,
        receiver(star, "b", tmp_path / "b") as receiving,
    ):
        sending.until("joined")
        whole = file_of(feed / "x", LARGE)
        assert sending.until("begun")["begun"]["path"] == "feed/x"
        # As rsync, unzip, wget and others do.
        os.utime(whole, (1_000_000_000, 1_000_000_000))
        said = sending.until("reason")
        assert stored(receiving) == "feed/x"
        tell(star, "--watch", signal.SIGINT)
        assert (receiving.end()[0], sending.end()[0]) == (0, 0)
    assert (said["path"], said["outcome"]) == ("feed/x", "skipped")
    there = tmp_path / "b/feed/x"
    assert there.read_bytes() == whole.read_bytes()
    assert there.stat().st_mtime == 1_000_000_000


@pytest.mark.parametrize("completed", [True, False])
def test_a_file_that_is_written_again_while_it_is_sent_comes_when_it_is_complete(
    star: Emulation, tmp_path: Path, *, completed: bool
) -> None:
    feed = tmp_path / "feed"
    feed.mkdir()
    with (
        sender(star, options=("--watch", str(feed)), rate="10mbit") as sending,
        receiver(star, "b", tmp_path / "b") as receiving,
    ):
        sending.until("joined")
        file_of(feed / "x", LARGE)
        assert sending.until("begun")["begun"]["path"] == "feed/x"
        with (feed / "x").open("wb") as again:
            again.write(b"half")
            again.flush()
            said = sending.until("reason")
            assert (said["path"], said["outcome"]) == ("feed/x", "skipped")
            if completed:
                again.write(b" and half")
            else:
                (feed / "x").unlink()
        if completed:
            assert stored(receiving) == "feed/x"
        tell(star, "--watch", signal.SIGINT)
        expected = 0 if completed else 1
        assert (receiving.end()[0], sending.end()[0]) == (expected, expected)
    if completed:
        assert (tmp_path / "b/feed/x").read_bytes() == b"half and half"
    else:
        assert list((tmp_path / "b").rglob("*x*")) == []


def test_who_comes_late_has_the_newest_of_a_name_and_lacks_nothing(star: Emulation, tmp_path: Path) -> None:
    feed = tmp_path / "feed"
    feed.mkdir()
    with (
        sender(star, options=("--watch", str(feed))) as sending,
        receiver(star, "b", tmp_path / "b") as first,
    ):
        sending.until("joined")
        for version in range(3):
            file_of(tmp_path / "whole", 3_000 + version).rename(feed / "x")
            assert stored(first) == "feed/x"
        with receiver(star, "c", tmp_path / "c") as second:
            said = sending.until("reason")
            assert stored(second) == "feed/x"
            tell(star, "--watch", signal.SIGINT)
            status, late = second.end()
            assert status == 0
        assert (first.end()[0], sending.end()[0]) == (0, 0)
    assert (late["files"], late["cast"]["products"], late["cast"]["replaced"]) == (1, 3, 2)
    assert (said["path"], said["outcome"]) == ("feed/x", "skipped")
    assert files(tmp_path / "c")["feed/x"][0] == (feed / "x").read_bytes()


@pytest.mark.parametrize("count", [3, 300])
def test_what_waits_for_receivers_does_not_keep_a_watch_from_its_end(
    star: Emulation, tmp_path: Path, count: int
) -> None:
    feed = tmp_path / "feed"
    feed.mkdir()
    with sender(star, options=("--watch", str(feed))) as sending:
        with receiver(star, "b", tmp_path / "b") as only:
            file_of(feed / "one", 2_000)
            assert stored(only) == "feed/one"
            tell(star, str(tmp_path / "b"), signal.SIGINT)
            only.wait()
        sending.until("left")
        for number in range(count):
            file_of(feed / str(number), 100)
        tell(star, "--watch", signal.SIGINT)
        said = sending.until("reason")
        status, record = sending.end()
    assert (said["path"], said["outcome"]) == (str(feed), "failed")
    assert said["reason"].startswith(f"{count} files ")
    assert (status, record["outcome"]) == (1, "failed")
