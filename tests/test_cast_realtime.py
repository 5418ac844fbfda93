"""`farlink cast --realtime`: the thread with the packets goes first, and where that is refused it is said."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from casting import SENDER, Running, receiver, sender
from emulation import FARLINK, Emulation, marked, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.timed

# Who runs a command so may have no real-time thread: no capability for it, and no limit that grants it.
ORDINARY = ("prlimit", "--rtprio=0:0", "setpriv", "--bounding-set", "-sys_nice", "--inh-caps", "-sys_nice")


@pytest.fixture(scope="module")
def star() -> Iterator[Emulation]:
    """Three hosts around a core."""
    with Emulation(options=("--hosts", "3", "--rate", "1gbit", "--rtt", "4ms", "--seed", "3")) as emulation:
        yield emulation


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A file to send."""
    path = tmp_path / "source.bin"
    path.write_bytes(bytes(range(256)) * 8000)
    return path


def policies(emulation: Emulation) -> list[tuple[str, int]]:
    """Name and scheduling policy of each thread of the sender, once they have taken their names."""
    process = process_of(emulation, "send")
    wait_until(lambda: "farlink-door" in [name for name, _ in threads(process)])
    return threads(process)


def process_of(emulation: Emulation, verb: str) -> int:
    """The process of one end."""
    words = f"{FARLINK} cast {verb} "
    (process,) = [each for each, said in marked(emulation.mark).items() if said.startswith(words)]
    return process


def threads(process: int) -> list[tuple[str, int]]:
    """Name and scheduling policy of each thread that `process` has now."""
    found = []
    for task in Path(f"/proc/{process}/task").iterdir():
        # A thread may end between the listing and the reading.
        with contextlib.suppress(OSError):
            name = (task / "comm").read_text().strip()
            policy = os.sched_getscheduler(int(task.name)) & ~os.SCHED_RESET_ON_FORK
            found.append((name, policy))
    return found


def all_arrives(star: Emulation, sending: Running, source: Path, into: Path) -> None:
    """The session goes on to its end, and everything is there."""
    with receiver(star, "b", into, "--from", star.address(SENDER)) as receiving:
        assert (receiving.end()[0], sending.end()[0]) == (0, 0)
    assert (into / source.name).read_bytes() == source.read_bytes()


def test_the_sending_thread_alone_goes_first(star: Emulation, source: Path, tmp_path: Path) -> None:
    if star.on(SENDER, "chrt", "--rr", "10", "true").status != 0:
        pytest.skip("this host grants no real-time scheduling")
    with sender(star, source, options=("--realtime",)) as sending:
        found = policies(star)
        all_arrives(star, sending, source, tmp_path / "b")
        assert sending.complaints() == ""
    assert [policy for _, policy in found].count(os.SCHED_RR) == 1
    # Not the one that talks to receivers.
    assert ("farlink-door", os.SCHED_OTHER) in found
    assert {policy for _, policy in found} == {os.SCHED_OTHER, os.SCHED_RR}


def test_where_it_is_refused_that_is_said_and_all_arrives(
    star: Emulation, source: Path, tmp_path: Path
) -> None:
    assert star.on(SENDER, *ORDINARY, "chrt", "--rr", "10", "true").status != 0
    with sender(star, source, options=("--realtime",), through=ORDINARY) as sending:
        found = policies(star)
        all_arrives(star, sending, source, tmp_path / "b")
        said = sending.complaints()
    assert ("farlink-door", os.SCHED_OTHER) in found
    assert {policy for _, policy in found} == {os.SCHED_OTHER}
    assert all(words in said for words in ("ordinary", "SCHED_RR refused", "rtprio")), said
    assert len(said.splitlines()) == 1, said


def test_the_receiving_thread_goes_first(star: Emulation, source: Path, tmp_path: Path) -> None:
    if star.on("b", "chrt", "--rr", "10", "true").status != 0:
        pytest.skip("this host grants no real-time scheduling")
    with (
        receiver(star, "b", tmp_path / "b", "--realtime") as receiving,
        sender(star, source, rate="5mbit") as sending,
    ):
        found = threads(process_of(star, "receive"))
        (code, record), (status, sent) = receiving.end(), sending.end()
        assert "ordinary" not in receiving.complaints()
    assert (code, status) == (0, 0)
    assert [policy for _, policy in found].count(os.SCHED_RR) == 1
    assert {policy for _, policy in found} <= {os.SCHED_OTHER, os.SCHED_RR}
    assert record["cast"]["realtime"] is True
    assert "realtime" not in sent["cast"]


def test_where_it_is_refused_to_a_receiver_that_is_said_and_all_arrives(
    star: Emulation, source: Path, tmp_path: Path
) -> None:
    with (
        receiver(star, "b", tmp_path / "b", "--realtime", through=ORDINARY) as receiving,
        sender(star, source, rate="5mbit") as sending,
    ):
        found = threads(process_of(star, "receive"))
        (code, record), (status, _) = receiving.end(), sending.end()
        said = receiving.complaints()
    assert (code, status) == (0, 0)
    assert (tmp_path / "b" / source.name).read_bytes() == source.read_bytes()
    assert {policy for _, policy in found} == {os.SCHED_OTHER}
    assert all(words in said for words in ("receiving thread", "ordinary", "SCHED_RR refused", "rtprio")), (
        said
    )
    assert record["cast"]["realtime"] is False
