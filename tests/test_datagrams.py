"""Super-packets of UDP over a link that loses and damages: what is left is whole, and the rest is counted."""

from __future__ import annotations

import contextlib
import json
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from emulation import Emulation, next_line, wait_until

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

PROGRAM = (sys.executable, str(Path(__file__).parent / "programs" / "datagrams.py"))
# Slower than any receiver, with room for all that is sent: nothing but what is asked for goes missing.
CALM = ("--rate", "500mbit", "--rtt", "2ms", "--queue", "200MB", "--seed", "5")
# Bytes of the headers of IP and UDP.
HEADERS = {False: 28, True: 48}
# Small datagrams, where only their number matters.
SMALL, MANY = 200, 20_000
FAMILIES = pytest.mark.parametrize("ipv6", [False, True], ids=["IPv4", "IPv6"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """What became of datagrams that one host sent to another."""

    sent: int
    together: int
    """How many of them each super-packet held."""
    numbers: list[int]
    """Of those that came, in their order."""
    damaged: int
    """How many of those were not as they were sent."""
    links: list[dict[str, int]]
    """What each link on the way counted of them, and of what else crossed it meanwhile."""
    kernel: dict[str, int]
    """What the receiving kernel counted."""

    @property
    def lost(self) -> int:
        """Segments that the links say they lost."""
        return sum(link["dropped.loss"] for link in self.links)

    @property
    def others(self) -> int:
        """Segments of anything else that crossed a link meanwhile, as IPv6 says things unasked."""
        # The end is one more.
        ours, others = self.sent + 1, 0
        for link in self.links:
            others += max(link["segments"] - ours, 0)
            ours = link["segments"] - link["dropped.loss"]
        return others

    @property
    def missing(self) -> list[int]:
        """Numbers of the datagrams that did not come."""
        return sorted(set(range(self.sent)) - set(self.numbers))

    @property
    def gaps(self) -> list[int]:
        """How many are missing in a row, each time that some are."""
        found = [-1, *self.numbers, self.sent]
        return [after - before - 1 for before, after in pairwise(found) if after > before + 1]


def crossing(
    emulation: Emulation, sound: tuple[str, ...], *, size: int, count: int, ipv6: bool = False
) -> Crossing:
    """Sends `count` datagrams of `size` bytes from a to b; the options `sound` make the link a sound one."""
    address = emulation.address("b", ipv6=ipv6)
    kernel_before = kernel(emulation, "b")
    with receiving(emulation, address) as receiver:
        assert receiver.stdout is not None
        port = next_line(receiver.stdout, receiver).strip()
        before = way(emulation)
        together = emulation.output("a", *PROGRAM, "send", address, port, str(size), str(count))

        def so_far() -> list[dict[str, int]]:
            return [grown(one, other) for one, other in zip(before, way(emulation), strict=True)]

        def have_crossed() -> bool:
            *earlier, last = so_far()
            return last["segments"] + sum(link["dropped.loss"] for link in earlier) >= count

        wait_until(have_crossed)
        # What is on its way keeps its fate and its place: the end comes after all of it.
        emulation.change(*sound)
        emulation.output("a", *PROGRAM, "end", address, port)
        came = json.loads(next_line(receiver.stdout, receiver))
        links, seen = so_far(), grown(kernel_before, kernel(emulation, "b"))
    return Crossing(sent=count, together=int(together), links=links, kernel=seen, **came)


@contextlib.contextmanager
def receiving(emulation: Emulation, address: str) -> Iterator[subprocess.Popen[str]]:
    """The program that listens on b."""
    with emulation.background("b", *PROGRAM, "receive", address) as process:
        yield process


def way(emulation: Emulation) -> list[dict[str, int]]:
    """The counters of the links from a to b: of one, or of a star's two."""
    links = emulation.show()["links"]
    first = [each for each in links if each["from"] == "a"]
    last = [each for each in links if each["to"] == "b" and each["from"] != "a"]
    return [flat(each) for each in first + (last if first[0]["to"] != "b" else [])]


def flat(link: dict[str, Any]) -> dict[str, int]:
    """The counters of a link, those by cause with the cause in their name."""
    causes = {f"dropped.{cause}": count for cause, count in link["dropped"].items()}
    return {name: each for name, each in link.items() if isinstance(each, int)} | causes


def kernel(emulation: Emulation, host: str) -> dict[str, int]:
    """What the kernel of a host counted of IP and UDP."""
    rows = [row.split() for row in emulation.output(host, "cat", "/proc/net/snmp").splitlines()]
    found = {
        f"{names[0]}{name}": int(value)
        for names, values in zip(rows[::2], rows[1::2], strict=True)
        for name, value in zip(names[1:], values[1:], strict=True)
    }
    for name, value in (row.split() for row in emulation.output(host, "cat", "/proc/net/snmp6").splitlines()):
        found[name] = int(value)
    return found


def grown(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """What counters have grown by; some are there only once they have."""
    return {name: count - before.get(name, 0) for name, count in after.items()}


def counted(kernel: dict[str, int], name: str, *, ipv6: bool) -> int:
    """A counter of UDP or IP, of the one version or the other."""
    protocol, _, what = name.partition(":")
    return kernel[f"{protocol}6{what}" if ipv6 else f"{protocol}:{what}"]


@FAMILIES
@pytest.mark.parametrize("mtu", [1500, 9000])
def test_survivors_of_a_super_packet_are_whole_and_those_that_the_link_did_not_lose(
    mtu: int, ipv6: bool
) -> None:
    with Emulation(options=[*CALM, "--loss", "20%", "--mtu", str(mtu)]) as emulation:
        size = mtu - HEADERS[ipv6]
        found = crossing(emulation, ("--loss", "0%"), size=size, count=2000, ipv6=ipv6)
    there = found.links[0]
    assert there["packets"] < there["segments"] / 4, "nothing crossed as a super-packet"
    assert found.lost > 0
    # Of what else crossed meanwhile the link may have lost some: but for that it is the same number.
    assert 0 <= found.lost - len(found.missing) <= found.others
    assert found.damaged == 0
    # In order, and none twice.
    assert found.numbers == sorted(set(found.numbers))
    # Lost here and there within super-packets, not with them.
    places = [{number % found.together for number in some} for some in (found.missing, found.numbers)]
    assert places == [set(range(found.together))] * 2
    for what in ("Udp:InCsumErrors", "Udp:InErrors", "Ip:InHdrErrors"):
        assert counted(found.kernel, what, ipv6=ipv6) == 0, what
    assert counted(found.kernel, "Udp:InDatagrams", ipv6=ipv6) == len(found.numbers) + 1


@FAMILIES
def test_no_damaged_datagram_reaches_a_program_and_the_kernel_counts_them(ipv6: bool) -> None:
    with Emulation(options=[*CALM, "--corrupt", "5%", "--mtu", "1500"]) as emulation:
        found = crossing(emulation, ("--corrupt", "0%"), size=1500 - HEADERS[ipv6], count=4000, ipv6=ipv6)
    there = found.links[0]
    wrong_sum = counted(found.kernel, "Udp:InCsumErrors", ipv6=ipv6)
    # A damaged header may be no header, lead to another host, or end the packet early.
    elsewhere = sum(
        counted(found.kernel, name, ipv6=ipv6)
        for name in ("Ip:InHdrErrors", "Ip:InAddrErrors", "Ip:InUnknownProtos")
    )
    assert (there["dropped.loss"], there["dropped.queue"]) == (0, 0)
    assert found.damaged == 0
    assert wrong_sum > 0
    assert wrong_sum + elsewhere <= there["corrupted"]
    # Each that is missing was damaged. IPv6 has no checksum of its header: a changed flow label harms nobody.
    assert wrong_sum <= len(found.missing) <= there["corrupted"]
    assert found.numbers == sorted(set(found.numbers))


# The chain's mean, its autocorrelation time (so many segments say as much as one would if they were
# independent), and the mean length of its bursts.
@pytest.mark.parametrize(
    ("loss", "share", "alike", "length"),
    [("burst:5%,10", 0.05, 18.0, 10.0), ("gemodel:1%,20%,80%,0.1%", 0.03905, 9.0, 2.6)],
)
def test_bursts_lose_their_share_in_a_row(loss: str, share: float, alike: float, length: float) -> None:
    with Emulation(options=[*CALM, "--mtu", "1500", "--loss", loss]) as emulation:
        assert emulation.show()["loss"] == pytest.approx(share, rel=1e-3)
        found = crossing(emulation, ("--loss", "0%"), size=SMALL, count=MANY)
    assert 0 <= found.lost - len(found.missing) <= found.others
    spread = (alike * share * (1 - share) / MANY) ** 0.5
    assert len(found.missing) / found.sent == pytest.approx(share, abs=4 * spread)
    # Independent losses of such a share come singly: 1.05 in a row on average.
    assert sum(found.gaps) / len(found.gaps) == pytest.approx(length, rel=0.35)


def test_two_hosts_of_a_star_lose_what_was_asked_between_them() -> None:
    share = 0.1
    with Emulation(options=[*CALM, "--hosts", "3", "--mtu", "1500", "--loss", "10%"]) as emulation:
        found = crossing(emulation, ("--loss", "0%"), size=SMALL, count=MANY)
    assert len(found.links) == 2
    assert all(link["dropped.loss"] > 0 for link in found.links)
    assert 0 <= found.lost - len(found.missing) <= found.others
    # 99.9% of the binomial distribution.
    spread = (share * (1 - share) / MANY) ** 0.5
    assert len(found.missing) / found.sent == pytest.approx(share, abs=3.29 * spread)
