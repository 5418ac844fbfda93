"""A star of emulated hosts: one sends to a group, the others receive, and some of them are disturbed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from support.connection import FARLINK, Connection

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Each emulated host has its own, which ends with it.
PLACE = "/dev/shm/farlink"

# Stops a process for a part of every period. It goes before all others where it may: who is stopped for
# longer on a busy machine is not the receiver that the bench speaks of.
STOP = """
import contextlib, os, signal, sys, time
process, stopped_s, period_s = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
with contextlib.suppress(PermissionError):
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
due = time.monotonic()
with contextlib.suppress(ProcessLookupError):
    while True:
        os.kill(process, signal.SIGSTOP)
        time.sleep(stopped_s)
        os.kill(process, signal.SIGCONT)
        due += period_s
        time.sleep(max(0.0, due - time.monotonic()))
"""

# A table of the packet filter, and what it looks at.
TABLE, TO_GROUPS = "farlink_bench", "ip daddr 224.0.0.0/4 meta l4proto udp"

# Bytes of IPv4 and UDP headers, and of Ethernet's around a packet: what every tool's datagram carries.
DATAGRAM_HEADERS, FRAMING = 28, 38
# Of a packet of `farlink cast` (OVERHEAD in crates/wire/src/cast/packet.rs).
OVERHEAD = 56


def ceiling_bps(rate_bps: float, payload_bytes: int) -> float:
    """What a sender at `rate_bps` of the wire can carry of files, in full packets of `payload_bytes`."""
    return rate_bps * payload_bytes / (payload_bytes + OVERHEAD + DATAGRAM_HEADERS + FRAMING)


class Star(Connection):
    """Hosts around a core: `a` sends, the others receive. Two hosts are joined by one link."""

    def __init__(self, receivers: int, *options: str) -> None:
        super().__init__("--hosts", str(receivers + 1), *options)

    @property
    def sender(self) -> str:
        """The host that sends."""
        return str(self.started["hosts"][0]["name"])

    @property
    def receivers(self) -> list[str]:
        """Those that receive."""
        return [str(host["name"]) for host in self.started["hosts"][1:]]

    def interface(self, host: str) -> str:
        """The device of `host`: the tools of others do not all ask the routes."""
        return self.run(host, "ip", "-o", "-4", "address", "show", "scope", "global").split()[1]

    def access(self, host: str, *options: str) -> None:
        """Changes the access link of `host`."""
        command = [FARLINK, "link", f"{self.name}/{host}", "--json", *options]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)

    @contextlib.contextmanager
    def losing(self, shares: dict[str, str]) -> Iterator[None]:
        """The access links of these hosts lose such shares, as long as the context lasts."""
        for host, share in shares.items():
            self.access(host, "--loss", share)
        try:
            yield
        finally:
            for host in shares:
                self.access(host, "--loss", "0%")

    @contextlib.contextmanager
    def missing(self, shares: dict[str, float]) -> Iterator[None]:
        """These hosts drop such shares of the packets for groups, and nothing else, while the context lasts.

        What a packet filter drops it drops whole, as the kernel has it: a super-packet with all its segments.
        """
        for host, share in shares.items():
            rule = f"{TO_GROUPS} numgen random mod 10000 < {round(10000 * share)} drop"
            chain = f"chain input {{ type filter hook input priority 0; {rule}; }}"
            self.run(host, "nft", f"table inet {TABLE} {{\n{chain}\n}}")
        try:
            yield
        finally:
            for host in shares:
                self.run(host, "nft", f"delete table inet {TABLE}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow:
    """What is done to the slow receiver.

    Attributes:
        name: In the page.
        loss: Share that its access link loses, either way.
        stopped_s: For so long of every `period_s` its process is stopped; 0 for never.

    """

    name: str
    loss: str = "0%"
    stopped_s: float = 0.0
    period_s: float = 0.1

    def __bool__(self) -> bool:
        return self.loss != "0%" or self.stopped_s > 0


NOBODY = Slow(name="nobody slow")
LOSING = Slow(name="one loses 5%", loss="5%")
STOPPED = Slow(name="one stopped 30 of every 100 ms", stopped_s=0.03)


@contextlib.contextmanager
def stopped(processes: Sequence[int], slow: Slow) -> Iterator[None]:
    """Stops `processes` again and again, as `slow` says."""
    if not slow.stopped_s:
        yield
        return
    stoppers = [
        subprocess.Popen(
            [sys.executable, "-I", "-c", STOP, str(each), str(slow.stopped_s), str(slow.period_s)]
        )
        for each in processes
    ]
    try:
        yield
    finally:
        for stopper in stoppers:
            stopper.terminate()
            stopper.wait()
        for each in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGCONT)


def latest(before: dict[str, Any], after: dict[str, Any]) -> float:
    """The lateness, in seconds, that 99% of the packets of the worst link did not pass between two states."""
    worst = 0.0
    for was, now in zip(before["links"], after["links"], strict=True):
        old = dict(was["late"])
        counts = [(bound, count - old.get(bound, 0)) for bound, count in now["late"]]
        total, seen = sum(count for _, count in counts), 0
        for bound, count in counts:
            seen += count
            if total and seen >= 0.99 * total:
                worst = max(worst, float(bound))
                break
    return worst


def dropped(before: dict[str, Any], after: dict[str, Any]) -> dict[str, int]:
    """Segments that all links lost between two states, by cause."""
    causes = ("queue", "loss", "unread")
    links = list(zip(before["links"], after["links"], strict=True))
    return {
        cause: sum(now["dropped"][cause] - was["dropped"][cause] for was, now in links) for cause in causes
    }
