"""Receivers that stay, sessions that outlive them, and feeds that go on: what was had is not sent again."""

from __future__ import annotations

import contextlib
import shutil
import signal
from typing import TYPE_CHECKING

import pytest

from casting import (
    GROUP,
    SENDER,
    SLOW,
    Running,
    file_of,
    kill,
    receiver,
    sender,
    stored,
    tell,
    wait_for,
)
from copying import Keys
from emulation import FARLINK, Emulation

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.pair

REFUSED, BROKEN, INTERRUPTED = 2, 3, 130
OTHER = "239.1.1.2:7001"


@pytest.fixture(scope="module")
def star() -> Iterator[Emulation]:
    """Three hosts around a core."""
    with Emulation(options=("--hosts", "3", "--rate", "1gbit", "--rtt", "10ms", "--seed", "6")) as emulation:
        yield emulation


@contextlib.contextmanager
def standing(star: Emulation, into: Path | str, *options: str, host: str = "b") -> Iterator[Running]:
    """A receiver that waits for the next session after each."""
    words = ("receive", "--group", GROUP, "--into", str(into), "--no-auth", "--json", *options)
    with star.background(host, str(FARLINK), "cast", *words) as process:
        running = Running(process=process)
        running.until("ready")
        yield running


def later(running: Running) -> None:
    """So much later that another signal is none that comes by two ways."""
    for _ in range(4):
        running.until("progress")


def test_who_was_away_for_longer_than_is_waited_is_sent_the_rest_alone(
    star: Emulation, feed: Path, tmp_path: Path
) -> None:
    into = tmp_path / "into"
    watch = ("--watch", str(feed), "--timeout", "5s")
    with (
        sender(star, options=watch) as sending,
        standing(star, into, "--timeout", "5s") as receiving,
    ):
        sending.until("joined")
        for name in ("one", "two", "three"):
            file_of(feed / name, 200_000)
            assert stored(receiving) == f"feed/{name}"
        # Whoever takes products away wants none of them twice; and of one there is no source any more.
        shutil.rmtree(into / "feed")
        (feed / "one").unlink()
        star.change("--cut", target="/b")
        before = receiving.until("schema")
        sending.until("left")
        star.change("--restore", target="/b")
        assert receiving.until("joined")["joined"]["again"]
        file_of(feed / "four", 200_000)
        assert stored(receiving) == "feed/four"
        tell(star, "--watch", signal.SIGINT)
        after = receiving.until("schema")
        status, record = sending.end()
    assert (before["outcome"], before["files"], before["bytes"]) == ("failed", 3, 600_000)
    assert (after["outcome"], after["files"], after["bytes"]) == ("ok", 1, 200_000)
    assert after["cast"]["failed"] == 0
    assert {path.name for path in (into / "feed").iterdir()} == {"four"}
    # Each byte went to it once.
    assert record["cast"]["unicast_repair_bytes"] < 300_000
    assert status == 0, record


def test_who_is_started_again_in_the_midst_is_not_sent_what_it_has(star: Emulation, tmp_path: Path) -> None:
    into, source = tmp_path / "into", file_of(tmp_path / "source.bin", 40_000_000)
    options = (*wait_for(1), "--timeout", "20s")
    with sender(star, source, options=options, rate=SLOW) as sending:
        with receiver(star, "b", into) as first:
            while first.until("progress")["progress"]["bytes"] < 10_000_000:
                pass
            kill(star, f"--into {into} ")
            first.wait()
        with receiver(star, "b", into) as again:
            status, record = again.end()
        assert sending.end()[0] == 0
    assert (status, record["outcome"]) == (0, "ok")
    kept = record["cast"]["kept_bytes"]
    assert kept >= 8_000_000
    assert record["bytes"] == 40_000_000 - kept
    # What was sent while it was away, and blocks of 1 MiB that were not whole.
    assert record["cast"]["repaired_bytes"] + kept < 40_000_000
    assert record["cast"]["duplicates"] * record["cast"]["payload_bytes"] < kept / 4
    assert (into / source.name).read_bytes() == source.read_bytes()


@pytest.mark.parametrize("is_there", [True, False])
def test_who_is_started_again_may_have_what_the_sender_has_not_any_more(
    star: Emulation, feed: Path, tmp_path: Path, is_there: bool
) -> None:
    sizes = {"small": 5_000, "large": 2_500_000, "empty": 0}
    into = {host: tmp_path / host for host in ("b", "c")}
    with sender(star, options=("--watch", str(feed))) as sending:
        with receiver(star, "b", into["b"]) as one, receiver(star, "c", into["c"]) as other:
            for _ in into:
                sending.until("joined")
            for name, size in sizes.items():
                file_of(feed / name, size)
                assert stored(one) == stored(other) == f"feed/{name}"
            for host in into:
                kill(star, f"--into {into[host]} ")
            one.wait()
            other.wait()
        # As a spool from which old files are removed.
        for name in sizes:
            (feed / name).unlink()
        if not is_there:
            (into["b"] / "feed" / "small").unlink()
        with receiver(star, "b", into["b"]) as one:
            first = [one.until("outcome") for _ in sizes]
            # Long after the first has asked.
            later(one)
            with receiver(star, "c", into["c"]) as other:
                second = [other.until("outcome") for _ in sizes]
                file_of(feed / "new", 1_000)
                assert stored(one) == stored(other) == "feed/new"
                tell(star, "--watch", signal.SIGINT)
                (code, record), (other_code, other_record) = one.end(), other.end()
        lines = sending.rest()
        status = sending.process.wait()
    lost = set() if is_there else {"feed/small"}
    names = {f"feed/{name}" for name in sizes}
    said = [{outcome["path"]: outcome["outcome"] for outcome in outcomes} for outcomes in (first, second)]
    assert said[0] == {name: "failed" if name in lost else "same" for name in names}
    assert said[1] == dict.fromkeys(names, "same")
    told = [line for line in lines if "path" in line and line.get("outcome") != "stored"]
    assert [(line["path"], line["receiver"]) for line in told] == [(name, "b") for name in lost], told
    assert (status, code, other_code) == ((0, 0, 0) if is_there else (1, 1, 0)), record
    assert [each["cast"]["failed"] for each in (record, other_record)] == [len(lost), 0]
    assert {path.name for path in (into["c"] / "feed").iterdir()} == {*sizes, "new"}


def test_a_directory_that_is_moved_ends_a_receiver(star: Emulation, feed: Path, tmp_path: Path) -> None:
    into = tmp_path / "into"
    with sender(star, options=("--watch", str(feed))) as sending, standing(star, into) as receiving:
        sending.until("joined")
        file_of(feed / "one", 1000)
        assert stored(receiving) == "feed/one"
        into.rename(tmp_path / "old")
        into.mkdir()
        status, record = receiving.end()
        assert (status, record["outcome"]) == (BROKEN, "failed")
        assert f"{into} was moved away, or another directory is in its place" in receiving.complaints()
        # It has left, and is missed by nobody.
        assert not sending.until("left")["left"]["lost"]
        tell(star, "--watch", signal.SIGINT)
        assert sending.end()[0] == 0


def test_a_receiver_that_was_in_no_session_leaves_no_record(star: Emulation, tmp_path: Path) -> None:
    records = tmp_path / "records"
    with standing(star, "null:", "--record", str(records)) as receiving:
        tell(star, "--into null:", signal.SIGINT)
        receiving.wait()
        assert receiving.process.returncode == INTERRUPTED
    assert records.read_text() == ""


def test_a_group_that_its_sender_does_not_send_to_is_refused(star: Emulation, tmp_path: Path) -> None:
    source = file_of(tmp_path / "source.bin", 1000)
    wrong = GROUP.replace("239.1.1.1", "239.1.1.9")
    words = ("receive", "--group", wrong, "--into", "null:", "--no-auth", "--quiet", "--from", SENDER)
    with sender(star, source) as sending:
        named = star.address(SENDER)
        ended = star.on("b", str(FARLINK), "cast", *words[:-1], named)
        assert (ended.status, ended.stdout) == (REFUSED, ""), ended
        assert f"it sends to {GROUP}, and not to the group {wrong}: say --group {GROUP}" in ended.complaint
        assert "not to" in sending.until("refused")["refused"]["reason"]


def test_a_second_interrupt_ends_a_watch_at_once_and_says_so(
    star: Emulation, feed: Path, tmp_path: Path
) -> None:
    with (
        sender(star, options=("--watch", str(feed)), rate="2mbit") as sending,
        receiver(star, "b", tmp_path / "into") as receiving,
    ):
        sending.until("joined")
        file_of(feed / "large", 60_000_000)
        sending.until("begun")
        tell(star, "--watch", signal.SIGINT)
        sending.until("ceased")
        later(sending)
        tell(star, "--watch", signal.SIGINT)
        status, record = sending.end()
        code, _ = receiving.end()
        said = receiving.complaints()
    assert (status, record["outcome"], code) == (INTERRUPTED, "interrupted", BROKEN)
    assert "broke its session off: it was interrupted there" in said


def test_a_class_that_nobody_wants_ends_alone(star: Emulation, tmp_path: Path) -> None:
    source = file_of(tmp_path / "source.bin", 3_000_000)
    groups = f"{GROUP}=20mbit,{OTHER}=20mbit"
    words = ("send", "--groups", groups, "--no-auth", "--wait", "5s", "--json", str(source))
    with (
        receiver(star, "b", tmp_path / "b") as receiving,
        star.background(SENDER, str(FARLINK), "cast", *words) as process,
    ):
        sending = Running(process=process)
        assert receiving.end()[0] == 0
        lines = sending.rest()
        assert process.wait() == 1
        assert f"no receiver of the group {OTHER} came within 5s" in sending.complaints()
    records = {line["cast"]["group"]: line["outcome"] for line in lines if "schema" in line}
    assert records == {GROUP: "ok", OTHER: "failed"}
    assert (tmp_path / "b" / source.name).read_bytes() == source.read_bytes()


def test_a_sender_reads_its_keys_again_when_it_is_told_to(
    star: Emulation, feed: Path, tmp_path: Path
) -> None:
    keys = Keys(tmp_path)
    line = keys.authorized.read_text()
    keys.authorized.write_text("")
    keys.make_known(star.address(SENDER), int(GROUP.rpartition(":")[2]))
    options = ("--keys", str(keys.authorized), "--identity", str(tmp_path / "server"), "--watch", str(feed))
    with sender(star, options=options, keyed=True) as sending:
        with receiver(star, "b", "null:", *keys.copy_options, keyed=True) as early:
            assert "does not let in the key" in early.until("waiting")["waiting"]["reason"]
            tell(star, "--into null:", signal.SIGINT)
            early.wait()
        keys.authorized.write_text(line)
        tell(star, "--watch", signal.SIGHUP)
        with receiver(star, "b", "null:", *keys.copy_options, keyed=True) as receiving:
            file_of(feed / "one", 1000)
            assert stored(receiving) == "feed/one"
            tell(star, "--watch", signal.SIGINT)
            assert (receiving.end()[0], sending.end()[0]) == (0, 0)
        assert "1 key is let in" in sending.complaints()


def test_a_sender_whose_terminal_is_closed_says_so(star: Emulation, feed: Path) -> None:
    with (
        sender(star, options=("--watch", str(feed)), rate="2mbit") as sending,
        receiver(star, "b", "null:") as receiving,
    ):
        sending.until("joined")
        file_of(feed / "large", 10_000_000)
        sending.until("begun")
        tell(star, "--watch", signal.SIGHUP)
        sending.until("ceased")
        later(sending)
        tell(star, "--watch", signal.SIGHUP)
        assert sending.end()[0] == INTERRUPTED
        assert receiving.end()[0] == BROKEN
        assert "broke its session off" in receiving.complaints()
