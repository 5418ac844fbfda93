"""The row of rates: one sender and one receiver, as fast as each tool can."""

from __future__ import annotations

import contextlib
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from support import page
from support.cast.casters import Job, offers, ours, udpcast, uftp
from support.cast.casting import INTO, SOURCE, Case, make_file, measure
from support.cast.star import Star
from support.cast.streams import MB, counted, in_turn, keep, spread, well

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from support.cast.casters import Caster
    from support.cast.casting import Run
    from support.results import Results

SIZE = 1 << 30
MTUS = (9000, 1500)
OURS_GBIT = (2, 3, 4, 5, 6, 7, 8, 9)
# Above what it reaches, a limit changes nothing.
PEER_GBIT = (1, 2, 3, 4)
OURS = "farlink cast, encrypted"
ENCRYPTED = ("-Y", "aes256-gcm", "-h", "sha256")
# What an ordinary process may have of receive buffer: ours, as root, goes beyond it, and its peers do not.
LIMIT = Path("/proc/sys/net/core/rmem_max")
RAISED_BYTES = 128 << 20
RAISED = "net.core.rmem_max raised"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """1 GiB in memory to one receiver, at rates that are swept: every tool's best counts."""

    name: str = "rate"
    title: str = "One sender, one receiver: as fast as each can"

    def groups(self, mtu: int) -> dict[str, list[Case]]:
        """Settings of each tool, between which its best is looked for."""
        mine = [ours(f"farlink cast at {gbit} Gb/s", rate=f"{gbit}gbit") for gbit in OURS_GBIT]
        if offers("send", "--max-rate"):
            mine.append(ours("farlink cast --rate auto", rate="auto"))
        tools = {
            OURS: mine,
            "UFTP": [uftp_at("UFTP", rate) for rate in (-1, *PEER_GBIT)],
            f"UFTP, {RAISED}": [uftp_at(f"UFTP, {RAISED},", rate) for rate in (-1, *PEER_GBIT, 6)],
            "UFTP, encrypted": [uftp_at("UFTP -Y aes256-gcm", rate, *ENCRYPTED) for rate in (-1, 1, 2)],
            "udpcast": [
                udpcast(),
                *(udpcast(f"udpcast --max-bitrate {gbit}000m", rate_bps=gbit * 10**9) for gbit in PEER_GBIT),
            ],
            f"udpcast, {RAISED}": [udpcast(f"udpcast, {RAISED}")],
        }
        return {
            tool: [Case(caster=caster, label=f"MTU {mtu}") for caster in casters]
            for tool, casters in tools.items()
        }

    def run(self, results: Results, repetitions: int) -> None:
        """What is not measured yet of it."""
        for mtu in MTUS:
            all_of_them = [case for cases in self.groups(mtu).values() for case in cases]
            left = in_turn(self.name, all_of_them, repetitions, results)
            if not left:
                continue
            options = ("--rate", "10gbit", "--mtu", str(mtu), "--rtt", "0.4ms", "--prefault", "1GiB")
            with Star(1, *options) as star:
                make_file(star, SIZE)
                for repetition, case in left:
                    # UFTP cannot keep nothing, so that all keep the file, in memory.
                    job = Job(source=SOURCE, into=INTO, rate_bps=None, mtu=mtu)
                    with raised(RAISED_BYTES) if RAISED in case.caster.name else contextlib.nullcontext():
                        run = measure(star, case, job, limit_s=60)
                    keep(results, self.name, repetition, run)

    def body(self, results: Results) -> str:
        """The best setting of each tool, and ours by the best of the peers."""
        rows, summary = [], []
        for mtu in MTUS:
            best: dict[str, float] = {}
            for tool, cases in self.groups(mtu).items():
                found = {case: results.of(self.name, case.name) for case in cases}
                good = {case: mb_s for case, runs in found.items() if (mb_s := speeds(runs))}
                runs = [run for each in found.values() for run in each]
                if not good:
                    said = runs[-1]["error"] if runs else "not measured"
                    rows.append([f"MTU {mtu}", tool, f"failed: {said}".replace("|", "/"), "", *counted(runs)])
                    continue
                top = max(good, key=lambda case: median(good[case]))
                best[tool] = median(good[top])
                setting = top.caster.name
                rows.append([f"MTU {mtu}", tool, setting, spread(good[top], "{:.0f}"), *counted(found[top])])
            mine = best.pop(OURS, None)
            if mine and best:
                usual = [tool for tool in best if RAISED not in tool]
                peers = dict.fromkeys(max(each, key=best.__getitem__) for each in (usual, list(best)) if each)
                said = " and ".join(f"{mine / best[peer]:.2f}× {peer}" for peer in peers)
                summary.append(f"MTU {mtu}: {said}")
        head = ["", "", "best setting", "MB/s", "n", "late"]
        return f"{page.table(head, rows)}\n\nOurs by the best peer: {'; '.join(summary) or 'not measured'}."


@contextlib.contextmanager
def raised(limit: int) -> Iterator[None]:
    """Grants receive buffers of so many bytes to everybody on this machine, as long as the context lasts."""
    before = LIMIT.read_text()

    def end(number: int, _: object) -> None:
        sys.exit(128 + number)

    # Ended from outside, too, it leaves the limit as it was.
    usual = signal.signal(signal.SIGTERM, end)
    LIMIT.write_text(str(limit))
    try:
        yield
    finally:
        LIMIT.write_text(before)
        signal.signal(signal.SIGTERM, usual)


def uftp_at(name: str, gbit: int, *options: str) -> Caster:
    """UFTP at a rate, -1 for as fast as it can."""
    rate = gbit if gbit < 0 else gbit * 10**6
    return uftp(f"{name} -R {rate}", *options, rate_kbps=rate)


def speeds(runs: Sequence[Run]) -> list[float]:
    """MB/s, from the sender's first packet until the receiver says that it has the file."""
    return [SIZE / MB / next(iter(run["times_s"].values())) for run in well(runs)]
