"""The study of a feed: files come at their times, some receivers lose much, the hold time varies."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING

from support import page
from support.cast.casters import NULL, Job, offers, ours
from support.cast.casting import WORK, Case, objects, record_of, short
from support.cast.star import DATAGRAM_HEADERS, OVERHEAD, PLACE, Slow, Star, ceiling_bps, latest
from support.cast.streams import MB, counted, in_turn, keep, spread, well
from support.connection import FARLINK
from support.feed import Arrival, begun, feed
from support.watching import LateError, Watch, processes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from support.cast.casting import Run
    from support.results import Results

FILES, RECEIVERS, SLOW_SHARE = 500, 30, 0.4
# Of the packets for the group, as in the study; repairs by unicast are not lost.
LOSSES = (0.01, 0.40)
RATE_BPS = 100 * MB
LOADS = (0.4, 0.8)
FACTORS = (10, 50, 500)
FLOOR = "100ms"
LOSING = Slow(name="12 lose 1 to 40%", loss="1%")
CALM = Slow(name="nobody loses")
# Throughput of the fast receivers, from the first packet of a product on: as it left, and as it could have
# left at the earliest, had nothing but the products before it been sent.
FIRST, LEAST = "fast_from_first_packet_bps", "fast_from_earliest_bps"
# For what still lacks something when everything was sent.
PATIENCE_S = 60.0
PLAN = WORK / "feed.json"
WATCHED = f"{PLACE}/watched"
# Makes the files of a plan beside the watched directory.
MAKE = """
import json, os, shutil, sys
plan, watched = sys.argv[1:]
shutil.rmtree(watched, ignore_errors=True)
os.makedirs(watched)
os.makedirs(watched + ".stock", exist_ok=True)
with open(plan) as file:
    for name, size, _ in json.load(file):
        with open(f"{watched}.stock/{name}", "wb") as made:
            made.write(os.urandom(size))
"""
# Moves each of them there at its time.
MOVE = """
import json, os, sys, time
plan, watched = sys.argv[1:]
with open(plan) as file:
    arrivals = json.load(file)
began = time.monotonic()
for name, _, at in arrivals:
    time.sleep(max(0.0, began + at - time.monotonic()))
    print("moved", name, time.time(), flush=True)
    os.rename(f"{watched}.stock/{name}", f"{watched}/{name}")
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """500 files at two loads to 30 receivers, with and without slow ones, and with hold factors."""

    name: str = "feed"
    mtu: int = 1500

    @property
    def title(self) -> str:
        """What the page calls it."""
        return f"A feed of {FILES} files to {RECEIVERS} receivers at 100 Mb/s, MTU {self.mtu}"

    def cases(self, load: float) -> list[Case]:
        """Every factor with slow receivers, and the middle one without."""
        casters = {
            factor: ours(f"hold factor {factor}", "--hold", FLOOR, "--hold-factor", str(factor))
            for factor in FACTORS
        }
        label = f"load {load}"
        calm = Case(caster=casters[FACTORS[1]], label=label, slow=CALM)
        return [calm, *(Case(caster=caster, label=label, slow=LOSING) for caster in casters.values())]

    def run(self, results: Results, repetitions: int) -> None:
        """What is not measured yet of it."""
        if not (offers("send", "--watch") and offers("send", "--hold-factor")):
            print(f"{self.name}: left out, this farlink cast has no --watch or no --hold-factor", flush=True)
            return
        for load in LOADS:
            left = in_turn(self.name, self.cases(load), repetitions, results)
            if not left:
                continue
            with Star(RECEIVERS, "--rate", "1gbit", "--mtu", str(self.mtu), "--rtt", "10ms") as star:
                for repetition, case in left:
                    arrivals = feed(files=FILES, load=load, rate_bps=RATE_BPS, seed=repetition)
                    run = session(star, case, arrivals, self.mtu)
                    keep(results, self.name, repetition, run)

    def body(self, results: Results) -> str:
        """Who got what by the group and its repairs, and how fast those who lose nothing got it."""
        rows = []
        for load in LOADS:
            runs = {case.name: results.of(self.name, case.name) for case in self.cases(load)}
            calm = well(runs[self.cases(load)[0].name])
            for case in self.cases(load):
                if not (good := well(runs[case.name])):
                    continue
                shares = [
                    f"{mean(run[part] for run in good):.2%}" for part in ("in_time", "caught_up", "missing")
                ]
                cells = [load, case.caster.name, case.slow.name, *shares]
                for what in (FIRST, LEAST, "fast_bps"):
                    rates = [run[what] / MB for run in good]
                    of_calm = median(rates) / median(run[what] / MB for run in calm) if calm else 0.0
                    cells.append(
                        f"{spread(rates, '{:.1f}')}, {of_calm:.1%}" if calm else spread(rates, "{:.1f}")
                    )
                rows.append([*cells, *counted(runs[case.name])])
        head = [
            "load",
            "",
            "",
            "in time",
            "by the backstop",
            "never",
            "fast, from the first packet, Mb/s, and of nobody losing",
            "from when it could have left at the earliest",
            "from arrival",
        ]
        return page.table([*head, "n", "late"], rows) if rows else ""


def losses(star: Star, slow: Slow) -> dict[str, float]:
    """Who loses how much: the first two fifths of the receivers, evenly from the least to the most."""
    if slow is CALM:
        return {}
    count = round(SLOW_SHARE * len(star.receivers))
    step = (LOSSES[1] - LOSSES[0]) / max(1, count - 1)
    return {host: LOSSES[0] + step * number for number, host in enumerate(star.receivers[:count])}


def session(star: Star, case: Case, arrivals: Sequence[Arrival], mtu: int) -> Run:
    """The feed, sent as it comes, until everybody has everything or patience ends."""
    PLAN.parent.mkdir(parents=True, exist_ok=True)
    PLAN.write_text(json.dumps([(each.name, each.size, each.at_s) for each in arrivals]))
    star.run(star.sender, sys.executable, "-I", "-c", MAKE, str(PLAN), WATCHED)
    job = Job(source=WATCHED, into=NULL, rate_bps=RATE_BPS, mtu=mtu, files=len(arrivals))
    before = star.link()
    run: Run = {"contender": case.name}
    with Watch() as watch:
        try:
            for host in star.receivers:
                command = star.on(host, *case.caster.receive(star, host, job, None))
                watch.start(host, command, counting='"stored"')
            for host in star.receivers:
                watch.until(host, case.caster.ready, limit_s=60)
            *words, source = case.caster.send(star, job)
            command = star.on(star.sender, *words, "--watch", source)
            sender = watch.start("sender", command, counting='"joined"')
            watch.wait(lambda: sender.count >= len(star.receivers), limit_s=60)
            with star.missing(losses(star, case.slow)):
                mover = star.on(star.sender, sys.executable, "-I", "-c", MOVE, str(PLAN), WATCHED)
                watch.start("mover", mover)
                watch.until_ended(["mover"], limit_s=arrivals[-1].at_s + 60)
                wait_for_all(watch, star, len(arrivals))
            for process in processes(sender.mark, FARLINK):
                os.kill(process, signal.SIGINT)
            watch.until_ended(["sender", *star.receivers], limit_s=60)
        except LateError as late:
            run["error"] = str(late)[:300]
        run |= seen(star, watch, case, arrivals, payload_bps(mtu))
    after = star.link()
    late_s = latest(before, after)
    return run | {"late_p99_s": late_s, "overrun": late_s > after["overrun_limit_s"]}


def wait_for_all(watch: Watch, star: Star, files: int) -> None:
    """Reads until everybody has everything; what lacks after that is counted, and no error."""
    waiting = [watch.programs[host] for host in star.receivers]

    def is_done() -> bool:
        waiting[:] = [each for each in waiting if each.open and each.count < files]
        return not waiting

    try:
        watch.wait(is_done, limit_s=PATIENCE_S)
    except LateError:
        return


def seen(star: Star, watch: Watch, case: Case, arrivals: Sequence[Arrival], payload: float) -> Run:
    """The shares that came in time, by the backstop and never, and what the fast receivers had of it."""
    if "mover" not in watch.programs:
        return {"error": "nothing was sent"}
    came = dict(
        line.text.split()[1:] for line in watch.programs["mover"].lines if line.text.startswith("moved")
    )
    starts = [float(came.get(each.name, "nan")) for each in arrivals]
    least = dict(zip((each.name for each in arrivals), begun(arrivals, starts, payload), strict=True))
    first = {
        Path(each["begun"]["path"]).name: at_s(each["begun"]["at"])
        for each in objects(watch.programs["sender"].with_words('"begun"'))
    }
    bits = 8 * sum(each.size for each in arrivals)
    stored, caught_up = 0, 0
    quick: dict[str, list[float]] = {"fast_bps": [], FIRST: [], LEAST: []}
    slow = losses(star, case.slow)
    for host in star.receivers:
        watched = watch.programs[host]
        times: dict[str, float] = {}
        for line in watched.with_words('"stored"'):
            times |= {Path(each["path"]).name: line.at for each in objects([line])}
        stored += len(times)
        caught_up += record_of(watched).get("cast", {}).get("caught_up", 0)
        if host not in slow and len(times) == len(arrivals):
            began = (
                ("fast_bps", {name: float(at) for name, at in came.items()}),
                (FIRST, first),
                (LEAST, least),
            )
            for what, since in began:
                quick[what].append(bits / sum(at - since[name] for name, at in times.items()))
    everything = len(arrivals) * len(star.receivers)
    found: Run = {
        "in_time": (stored - caught_up) / everything,
        "caught_up": caught_up / everything,
        "missing": 1 - stored / everything,
        "sender": short(record_of(watch.programs["sender"])),
    }
    if not quick[FIRST]:
        return found | {"error": "no fast receiver has everything"}
    return found | {what: mean(rates) for what, rates in quick.items()}


def at_s(when: str) -> float:
    """A time of day, RFC 3339, as `time.time` has it."""
    return datetime.fromisoformat(f"{when[:26]}+00:00").timestamp()


def payload_bps(mtu: int) -> float:
    """What the rate carries of files, in packets that fill the MTU."""
    return ceiling_bps(RATE_BPS, mtu - DATAGRAM_HEADERS - OVERHEAD)
