"""A receiver that comes late and leaves out what was sent long ago."""

from __future__ import annotations

import contextlib
import signal
import time
from typing import TYPE_CHECKING

import pytest

from casting import file_of, receiver, sender, stored, tell
from emulation import Emulation

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.pair

# What began within a second is not told apart.
APART_S = 1.1


@pytest.fixture(scope="module")
def star() -> Iterator[Emulation]:
    """Three hosts around a core."""
    with Emulation(options=("--hosts", "3", "--rate", "1gbit", "--rtt", "10ms", "--seed", "3")) as emulation:
        yield emulation


@contextlib.contextmanager
def cut(star: Emulation, host: str) -> Iterator[None]:
    """Nothing reaches a host as long as the context lasts."""
    star.change("--cut", target=f"/{host}")
    try:
        yield
    finally:
        star.change("--restore", target=f"/{host}")


def names(into: Path) -> set[str]:
    """What is stored there."""
    return {path.name for path in (into / "feed").iterdir()}


def test_who_comes_late_has_what_is_sent_from_then_on_also_after_it_was_cut_off(
    star: Emulation, feed: Path, tmp_path: Path
) -> None:
    watch = ("--watch", str(feed), "--timeout", "5s")
    with sender(star, options=watch) as sending, receiver(star, "b", tmp_path / "b") as first:
        for name in ("one", "two"):
            file_of(feed / name, 2000)
            assert stored(first) == f"feed/{name}"
        time.sleep(APART_S)
        # Of this one nobody could have anything any more.
        (feed / "one").unlink()
        with receiver(star, "c", tmp_path / "c", "--since", "0s") as late:
            assert late.until("joined")["joined"]["skipped"] == 2
            file_of(feed / "three", 2000)
            assert (stored(first), stored(late)) == ("feed/three", "feed/three")
            with cut(star, "c"):
                while sending.until("left")["left"]["name"] != "c":
                    pass
                file_of(feed / "four", 400_000)
                assert stored(first) == "feed/four"
                time.sleep(APART_S)
            # What it wanted of the session it wants still.
            joined = late.until("joined")["joined"]
            assert (joined["again"], joined["skipped"]) == (True, 2)
            assert stored(late) == "feed/four"
            tell(star, "--watch", signal.SIGINT)
            status, record = late.end()
        assert first.end()[0] == 0
        ended, sent = sending.end()
    assert [(each["name"], each.get("skipped"), each["complete"]) for each in sent["cast"]["receivers"]] == [
        ("b", None, True),
        ("c", 2, True),
    ]
    assert ended == 0
    assert (status, record["outcome"]) == (0, "ok")
    said = record["cast"]
    assert (said["since_s"], said["skipped"], said["failed"]) == (0.0, 2, 0)
    assert names(tmp_path / "b") == {"one", "two", "three", "four"}
    assert names(tmp_path / "c") == {"three", "four"}


def test_what_was_sent_since_it_was_started_is_nothing_old(
    star: Emulation, feed: Path, tmp_path: Path
) -> None:
    watch = ("--watch", str(feed))
    with contextlib.ExitStack() as stack:
        with cut(star, "c"):
            waiting = stack.enter_context(receiver(star, "c", tmp_path / "c", "--since", "0s"))
            first = stack.enter_context(receiver(star, "b", tmp_path / "b"))
            sending = stack.enter_context(sender(star, options=watch))
            file_of(feed / "one", 2000)
            assert stored(first) == "feed/one"
            time.sleep(APART_S)
        assert waiting.until("joined")["joined"]["skipped"] == 0
        assert stored(waiting) == "feed/one"
        tell(star, "--watch", signal.SIGINT)
        assert [end.end()[0] for end in (waiting, first, sending)] == [0, 0, 0]


def test_what_was_sent_within_that_time_comes_and_what_lacks_of_it_is_named(
    star: Emulation, feed: Path, tmp_path: Path
) -> None:
    watch = ("--watch", str(feed))
    with sender(star, options=watch) as sending, receiver(star, "b", tmp_path / "b") as first:
        for name in ("one", "two"):
            file_of(feed / name, 2000)
            assert stored(first) == f"feed/{name}"
        (feed / "one").unlink()
        with receiver(star, "c", tmp_path / "c", "--since", "1h") as late:
            assert late.until("joined")["joined"]["skipped"] == 0
            said = [late.until("outcome") for _ in range(2)]
            tell(star, "--watch", signal.SIGINT)
            status, record = late.end()
        assert first.end()[0] == 0
        # Both ends have named it.
        assert sending.end()[0] == 1
    assert {(each["path"], each["outcome"]) for each in said} == {
        ("feed/one", "failed"),
        ("feed/two", "stored"),
    }
    assert (status, record["cast"]["failed"], record["cast"]["since_s"]) == (1, 1, 3600.0)
