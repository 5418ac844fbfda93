"""Rows in which the rate is the question: what is sent again, which is found, and two at once."""

from __future__ import annotations

import contextlib
import json
import subprocess
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from support import page
from support.cast.casters import GROUP, NULL, Caster, Job, offers, ours
from support.cast.casting import SOURCE, Case, make_file, measure, record_of
from support.cast.star import Star, ceiling_bps, latest
from support.cast.streams import MB, STUDY_SIZES, counted, in_turn, keep, spread, well
from support.connection import FARLINK, served
from support.watching import LateError, Watch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.cast.casting import Run
    from support.results import Results

MTU = 1500
OPTIONS = ("--mtu", str(MTU), "--rtt", "0.4ms")
TCP = "TCP"
# Most of what may be sent again at the rate that is found.
FEW = 0.005
LINKS_MBIT = (700, 950)
# Rates around what a link carries, of which the highest that loses little is looked for.
AROUND = (0.97, 0.98, 0.99, 1.0, 1.005, 1.01)
AUTO_BYTES = 2 * 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Retransmission:
    """What one receiver has sent again, at two rates, beside TCP on the same connection."""

    name: str = "retransmission"
    title: str = "What is sent again: one receiver, an access link of 1 Gb/s"

    def cases(self, size: str) -> list[Case]:
        """Ours at both rates."""
        return [
            Case(caster=ours(f"farlink cast at {mbit} Mb/s", rate=f"{mbit}mbit"), label=size)
            for mbit in (600, 800)
        ]

    def run(self, results: Results, repetitions: int) -> None:
        """What is not measured yet of it."""
        for size, length in STUDY_SIZES.items():
            tcp = Case(caster=ours(TCP), label=size)
            left = in_turn(self.name, [*self.cases(size), tcp], repetitions, results)
            if not left:
                continue
            job = Job(source=SOURCE, into=NULL, rate_bps=None, mtu=MTU)
            with Star(1, "--rate", "1gbit", *OPTIONS) as star, serving(star):
                make_file(star, length)
                for repetition, case in left:
                    is_tcp = case.caster.name == TCP
                    run = memory(star, case, length) if is_tcp else measure(star, case, job)
                    keep(results, self.name, repetition, run | {"size": length})

    def body(self, results: Results) -> str:
        """Shares of packets that were sent again, and throughput."""
        rows = []
        for size in STUDY_SIZES:
            for case in [*self.cases(size), Case(caster=ours(TCP), label=size)]:
                runs = results.of(self.name, case.name)
                if good := well(runs):
                    shares = spread([again(run) * 100 for run in good], "{:.3f}%")
                    mbit = spread([8 * run["size"] / duration(run) / MB for run in good], "{:.1f}")
                    rows.append([size, case.caster.name, shares, mbit, *counted(runs)])
        return page.table(["", "", "sent again", "Mb/s", "n", "late"], rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Auto:
    """The rate that `--rate auto` finds, beside the highest fixed rate at which little is sent again."""

    name: str = "auto"
    title: str = "The rate that is found: 2 GB to one receiver, access links of 700 and 950 Mb/s"

    def cases(self, link: int) -> list[Case]:
        """The search, and the rates around the link's."""
        fixed = [
            Case(caster=ours(f"{share * link:.4g} Mb/s", rate=f"{share * link:.2f}mbit"), label=f"{link}")
            for share in AROUND
        ]
        return [Case(caster=ours("--rate auto", rate="auto"), label=f"{link}"), *fixed]

    def run(self, results: Results, repetitions: int) -> None:
        """What is not measured yet of it."""
        if not offers("send", "--max-rate"):
            print(f"{self.name}: left out, this farlink cast has no --max-rate", flush=True)
            return
        job = Job(source=SOURCE, into=NULL, rate_bps=None, mtu=MTU)
        for link in LINKS_MBIT:
            left = in_turn(self.name, self.cases(link), repetitions, results)
            if not left:
                continue
            with Star(1, "--rate", f"{link}mbit", *OPTIONS) as star:
                make_file(star, AUTO_BYTES)
                for repetition, case in left:
                    run = measure(star, case, job)
                    keep(results, self.name, repetition, run | {"size": AUTO_BYTES})

    def body(self, results: Results) -> str:
        """What each rate cost, and the found rate by the highest that costs little."""
        rows, summary = [], []
        for link in LINKS_MBIT:
            highest, found = 0.0, 0.0
            for case in self.cases(link):
                runs = results.of(self.name, case.name)
                good = well(runs)
                if not good:
                    continue
                share = median(again(run) for run in good)
                if case.caster.name == "--rate auto":
                    found = median(run["sender"]["cast"].get("rate_bps", 0) for run in good) / MB
                elif share < FEW:
                    highest = max(highest, float(case.caster.name.split()[0]))
                rate = f"{found:.0f}" if case.caster.name == "--rate auto" else case.caster.name
                mbit = spread([8 * run["size"] / duration(run) / MB for run in good], "{:.1f}")
                rows.append([f"{link} Mb/s", case.caster.name, rate, f"{share:.3%}", mbit, *counted(runs)])
            if highest and found:
                summary.append(f"at {link} Mb/s {found / highest:.1%}")
        head = ["link", "", "last rate, Mb/s", "sent again", "files, Mb/s", "n", "late"]
        said = "; ".join(summary) or "not measured"
        return f"{page.table(head, rows)}\n\nThe found rate, of the highest under {FEW:.1%}: {said}."


def again(run: Run) -> float:
    """The share of what was sent that was sent again."""
    if "retransmitted" in run:
        return float(run["retransmitted"])
    cast = run["sender"]["cast"]
    repaired = cast["multicast_repair_bytes"] + cast["unicast_repair_bytes"]
    return float(repaired / (repaired + cast["first_pass_bytes"]))


def duration(run: Run) -> float:
    """Seconds of the data, by the receiver's record."""
    if "duration_s" in run:
        return float(run["duration_s"])
    return float(next(iter(run["receivers"].values()))["duration_s"])


@contextlib.contextmanager
def serving(star: Star) -> Iterator[None]:
    """A `farlink serve` on the receiver's host."""
    process = star.start(star.receivers[0], FARLINK, "serve", "--no-auth")
    try:
        served(process, "listening on")
        yield
    finally:
        process.terminate()
        process.wait()


def memory(star: Star, case: Case, length: int) -> Run:
    """The same number of bytes by one TCP connection."""
    before = star.link()
    command = (FARLINK, "memory", star.receivers[0], "--bytes", f"{length}B", "--json", "--quiet")
    done = subprocess.run(star.on(star.sender, *command), capture_output=True, text=True, check=False)
    run: Run = {"contender": case.name}
    if done.returncode != 0:
        return run | {"error": done.stderr.strip()[-300:]}
    record = json.loads(done.stdout.splitlines()[-1])
    after = star.link()
    # Segments of so many bytes: the MTU without IPv4, TCP and timestamps.
    sent = record["bytes"] / (MTU - 52)
    late_s = latest(before, after)
    return run | {
        "retransmitted": record["retransmits"] / (record["retransmits"] + sent),
        "duration_s": record["duration_s"],
        "overrun": late_s > after["overrun_limit_s"],
        "late_p99_s": late_s,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """Receivers, half behind 100 Mb/s and half behind 1 Gb/s: one group, and a class for each half."""

    name: str = "groups"
    receivers: int = 8
    size: int = 125 * MB
    slow_mbit: int = 97
    fast_mbit: int = 970
    one_mbit: int = 95

    @property
    def title(self) -> str:
        """What it is about."""
        half = self.receivers // 2
        return f"{half} receivers behind 100 Mb/s and {half} behind 1 Gb/s: {self.size // MB} MB, MTU 9000"

    @property
    def cases(self) -> list[Case]:
        """One group for all, and two."""
        return [Case(caster=one_group(self.one_mbit)), Case(caster=ours("two classes"))]

    def run(self, results: Results, repetitions: int) -> None:
        """What is not measured yet of it."""
        cases = [
            case for case in self.cases if case.caster.name != "two classes" or offers("send", "--groups")
        ]
        if len(cases) < len(self.cases):
            print(f"{self.name}: no classes, this farlink cast has no --groups", flush=True)
        left = in_turn(self.name, cases, repetitions, results)
        if not left:
            return
        job = Job(source=SOURCE, into=NULL, rate_bps=None, mtu=9000)
        # Of packets of 1,500 bytes two cores do not carry 4.3 Gb/s.
        with Star(self.receivers, "--rate", "1gbit", "--mtu", "9000", "--rtt", "0.4ms") as star:
            make_file(star, self.size)
            for host in star.receivers[: self.receivers // 2]:
                star.access(host, "--rate", "100mbit")
            # The sender's own link carries both classes.
            star.access(star.sender, "--rate", "2gbit")
            for repetition, case in left:
                classes = case.caster.name == "two classes"
                run = self.session(star, case) if classes else measure(star, case, job)
                keep(results, self.name, repetition, run)

    def session(self, star: Star, case: Case) -> Run:
        """One session of two classes, each receiver in that of its link."""
        groups = (GROUP, "239.1.1.2:7001")
        rates = (self.slow_mbit, self.fast_mbit)
        classes = ",".join(f"{group}={rate}mbit" for group, rate in zip(groups, rates, strict=True))
        before = star.link()
        run: Run = {"contender": case.name, "receivers": {}}
        with Watch() as watch:
            try:
                for number, host in enumerate(star.receivers):
                    group = groups[2 * number // self.receivers]
                    words = ("receive", "--group", group, "--into", NULL, "--once")
                    watch.start(host, star.on(host, FARLINK, "cast", *words, "--json", "--no-auth"))
                for host in star.receivers:
                    watch.until(host, '"ready"', limit_s=30)
                # Each class begins with so many.
                many = ("--receivers", str(len(star.receivers) // len(groups)), "--json", "--no-auth")
                command = (FARLINK, "cast", "send", "--groups", classes, *many, SOURCE)
                watch.start("sender", star.on(star.sender, *command))
                watch.until_ended(["sender", *star.receivers], limit_s=120)
            except LateError as late:
                run["error"] = str(late)[:300]
            for host in star.receivers:
                run["receivers"][host] = record_of(watch.programs[host])
            if not all(record.get("outcome") == "ok" for record in run["receivers"].values()):
                run.setdefault("error", watch.programs["sender"].last_said()[:300])
        after = star.link()
        late_s = latest(before, after)
        return run | {"overrun": late_s > after["overrun_limit_s"], "late_p99_s": late_s}

    def body(self, results: Results) -> str:
        """Each half's throughput, and its share of what its own rate can carry."""
        rows: list[list[object]] = []
        for case in self.cases:
            runs = results.of(self.name, case.name)
            if not (good := well(runs)):
                continue
            own = (
                (self.slow_mbit, self.fast_mbit)
                if case.caster.name == "two classes"
                else (self.one_mbit,) * 2
            )
            for half, mbit in zip(("behind 100 Mb/s", "behind 1 Gb/s"), own, strict=True):
                records = [
                    record
                    for run in good
                    for number, record in enumerate(run["receivers"].values())
                    if (2 * number < self.receivers) == (half == "behind 100 Mb/s")
                ]
                values = [8 * self.size / record["duration_s"] / MB for record in records]
                top = ceiling_bps(mbit, records[-1]["cast"]["payload_bytes"])
                rows.append([case.caster.name, half, f"{mbit} Mb/s", spread(values, "{:.1f}")])
                rows[-1] += [f"{median(values) / top:.1%}", *counted(runs)]
        head = ["", "receivers", "group's rate", "files, Mb/s", "of what that carries", "n", "late"]
        return page.table(head, rows)


def one_group(mbit: int) -> Caster:
    """Ours at the rate of the slower half."""
    return ours(f"one group at {mbit} Mb/s", rate=f"{mbit}mbit")
