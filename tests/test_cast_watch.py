"""A sender that watches a directory: what appears is sent, to whoever is there, until the user ends it."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from casting import Running, file_of, files, receiver, sender, tell, wait_for
from emulation import Emulation

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.alone

INTERRUPTED = 130


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


def stored(receiving: Running) -> str:
    """The name of the next file that a receiver stores."""
    said = receiving.until("outcome")
    assert said["outcome"] == "stored", said
    return str(said["path"])


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
        sending.end()
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
        # The receiver waits for it to be started again.
        assert receiving.until("lost")
    assert (status, record["outcome"]) == (INTERRUPTED, "interrupted")
