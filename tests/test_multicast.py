"""Multicast over emulated hosts: who joined gets a copy over a branch of its own, who did not gets none."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from emulation import Emulation, next_line, wait_until

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

PROGRAM = (sys.executable, str(Path(__file__).parent / "programs" / "group.py"))
GROUP, GROUP6, OTHER = "239.1.2.3", "ff15::1:2:3", "239.1.2.4"
PORT = "7000"
# Datagrams of 1000 bytes: fewer than a receiver's buffer holds while its process waits for a processor.
COUNT = 40
STAR = ("--hosts", "4", "--rate", "1gbit", "--rtt", "4ms", "--seed", "7")


@pytest.fixture(scope="module")
def star() -> Iterator[Emulation]:
    """Four hosts around a core, for tests that change nothing."""
    with Emulation(options=STAR) as emulation:
        yield emulation


@contextlib.contextmanager
def member(
    emulation: Emulation, host: str, group: str = GROUP, source: str = ""
) -> Iterator[subprocess.Popen[str]]:
    """A program on `host` that has joined `group`, and the core knows it; it leaves at the end."""
    source_words = (source,) if source else ()
    with emulation.background(host, *PROGRAM, "receive", group, PORT, *source_words) as process:
        assert process.stdout is not None
        assert next_line(process.stdout, process) == "ready\n"
        wait_until(lambda: group in groups(emulation, host))
        yield process
    wait_until(lambda: group not in groups(emulation, host))


def groups(emulation: Emulation, host: str) -> list[str]:
    """What the core knows that `host` has joined."""
    found = next(each for each in emulation.show()["hosts"] if each["name"] == host)
    return list(found.get("groups", []))


def send(emulation: Emulation, host: str = "a", group: str = GROUP, how: str = "send") -> None:
    """Send numbered datagrams to `group`."""
    emulation.output(host, *PROGRAM, how, group, PORT, str(COUNT))


def numbers(process: subprocess.Popen[str], count: int = COUNT) -> list[int]:
    """The numbers of the next `count` datagrams that came; where none comes, the program ends."""
    assert process.stdout is not None
    return [int(process.stdout.readline()) for _ in range(count)]


def link(emulation: Emulation, source: str, destination: str) -> dict[str, Any]:
    """A link and its counters."""
    links: list[dict[str, Any]] = emulation.show()["links"]
    return next(each for each in links if (each["from"], each["to"]) == (source, destination))


def copies(emulation: Emulation, host: str) -> int:
    """Segments that the core copied for `host` so far."""
    return int(link(emulation, "core", host)["multicast_segments"])


@pytest.mark.parametrize("group", [GROUP, GROUP6], ids=["IPv4", "IPv6"])
def test_who_joined_gets_it_and_who_did_not_does_not(star: Emulation, group: str) -> None:
    before = copies(star, "d")
    with star.background("d", *PROGRAM, "listen", group, PORT) as stranger:
        assert stranger.stdout is not None
        assert next_line(stranger.stdout, stranger) == "ready\n"
        with member(star, "b", group) as one, member(star, "c", group) as two:
            send(star, group=group)
            assert numbers(one) == numbers(two) == list(range(COUNT))
        assert copies(star, "d") == before
        # What it hears first was sent to itself alone.
        star.output("a", *PROGRAM, "send", star.address("d", ipv6=":" in group), PORT, "1")
        assert numbers(stranger, 1) == [0]
        stranger.terminate()
        assert stranger.stdout.read() == ""


def test_groups_are_apart(star: Emulation) -> None:
    before = copies(star, "b"), copies(star, "c")
    with member(star, "b", GROUP) as one, member(star, "c", OTHER) as two:
        send(star, group=GROUP)
        send(star, group=OTHER)
        assert numbers(one) == numbers(two) == list(range(COUNT))
        assert (copies(star, "b"), copies(star, "c")) == (before[0] + COUNT, before[1] + COUNT)
        assert f"  b has joined {GROUP}\n  c has joined {OTHER}\n" in star.change().stdout


def test_the_senders_link_carries_it_once_and_a_sender_that_joined_gets_no_copy(star: Emulation) -> None:
    before, own = link(star, "a", "core")["multicast_segments"], copies(star, "a")
    with member(star, "a"), member(star, "b") as one, member(star, "c") as two:
        send(star)
        assert numbers(one) == numbers(two) == list(range(COUNT))
    assert link(star, "a", "core")["multicast_segments"] == before + COUNT
    assert copies(star, "a") == own


def test_what_nobody_joined_ends_at_the_core(star: Emulation) -> None:
    before = link(star, "a", "core")["multicast_unwanted"]
    send(star)
    wait_until(lambda: link(star, "a", "core")["multicast_unwanted"] == before + COUNT)


def test_who_leaves_gets_no_more_copies(star: Emulation) -> None:
    with member(star, "b") as one:
        with member(star, "c") as two:
            send(star)
            assert numbers(one) == numbers(two)
        before = copies(star, "c")
        send(star)
        assert numbers(one) == list(range(COUNT))
        assert copies(star, "c") == before


def test_who_chose_a_sender_gets_copies_of_that_one_alone(star: Emulation) -> None:
    before = copies(star, "c")
    with member(star, "c", source=star.address("a")) as chooser, member(star, "d") as other:
        send(star, "b")
        assert numbers(other) == list(range(COUNT))
        send(star, "a")
        assert numbers(chooser) == list(range(COUNT))
    assert copies(star, "c") == before + COUNT


def test_groups_of_the_link_need_not_be_joined(star: Emulation) -> None:
    before = [copies(star, host) for host in "bcd"]
    send(star, group="224.0.0.199")
    wait_until(lambda: [copies(star, host) for host in "bcd"] == [each + COUNT for each in before])


def test_a_super_packet_is_copied_as_it_is(star: Emulation) -> None:
    ends = [("a", "core"), ("core", "b"), ("core", "c")]

    def counted() -> list[tuple[int, int]]:
        links = [link(star, *each) for each in ends]
        return [(each["multicast_packets"], each["multicast_segments"]) for each in links]

    before = counted()
    with member(star, "b") as one, member(star, "c") as two:
        send(star, how="send-at-once")
        assert numbers(one) == numbers(two) == list(range(COUNT))
    after = counted()
    assert [segments - had for (_, segments), (_, had) in zip(after, before, strict=True)] == [COUNT] * 3
    (sent, *copied) = [packets - had for (packets, _), (had, _) in zip(after, before, strict=True)]
    assert sent == 1
    # At 1 Gb/s a super-packet of 0.3 ms comes to the core in runs of 0.1 ms.
    assert all(each <= 4 for each in copied), copied


def test_loss_on_one_branch_costs_the_others_nothing() -> None:
    with Emulation(options=STAR) as emulation:
        emulation.change("--loss", "50%", target="/c")
        with member(emulation, "b") as one, member(emulation, "c") as lossy, member(emulation, "d") as two:
            send(emulation)
            assert numbers(one) == numbers(two) == list(range(COUNT))
            branch = link(emulation, "core", "c")
            lost = branch["dropped"]["loss"]
            assert (branch["multicast_segments"], 0 < lost < COUNT) == (COUNT, True)
            came = numbers(lossy, COUNT - lost)
            assert came == sorted(set(came))
        assert [link(emulation, "core", host)["dropped"]["loss"] for host in "bd"] == [0, 0]


def test_a_slow_branch_holds_the_others_back_in_nothing() -> None:
    with Emulation(options=STAR) as emulation:
        # 40 kB take a minute.
        emulation.change("--rate", "5kbit", "--queue", "1MB", target="/c")
        with member(emulation, "b") as one, member(emulation, "c"), member(emulation, "d") as two:
            send(emulation)
            assert numbers(one) == numbers(two) == list(range(COUNT))
            branch = link(emulation, "core", "c")
            assert (branch["multicast_segments"], branch["dropped"]["queue"]) == (COUNT, 0)
            assert branch["queue_bytes"] > 0


def test_a_cut_path_of_a_group_is_cut_for_one_receiver_alone() -> None:
    with Emulation(options=STAR) as emulation, member(emulation, "b"), member(emulation, "c") as other:
        emulation.change("--cut", target="/a..b")
        send(emulation)
        assert numbers(other) == list(range(COUNT))
        branch = link(emulation, "core", "b")
        assert (branch["multicast_segments"], branch["dropped"]["cut"]) == (COUNT, COUNT)


@pytest.mark.parametrize("group", [GROUP, GROUP6], ids=["IPv4", "IPv6"])
def test_two_hosts_have_groups_too(pair: Emulation, group: str) -> None:
    with member(pair, "b", group) as process:
        send(pair, group=group)
        assert numbers(process) == list(range(COUNT))
