"""Does the latency model foretell how long a product takes? Writes bench/latency.md and .svg.

One product to n receivers over an emulated star, in turn by TCP to each of them at once (`farlink memory`)
and by multicast (`farlink cast`), against what `farlink lab latency` says of the same rates; then with loss,
by multicast. What was measured stays under target/bench-latency: an interrupted bench goes on where it was.

usage: latency.py [--repetitions N] [--seconds N] [--page]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import subprocess
import time
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from farlink_lab.latency import Group, Repaired, crossover_receivers, multicast_s, repaired, unicast_s
from matplotlib.figure import Figure

from support import page
from support.connection import FARLINK, ROOT, Connection, served
from support.results import Results, Run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matplotlib.axes import Axes

OUT = ROOT / "target" / "bench-latency"
SIZE = 10_000_000
SENDER_BPS, RECEIVER_BPS = 200e6, 50e6
SENDER, RECEIVERS = "a", "bcdefghi"
RTT_S = 4e-3
MTU, FRAMING = 9000, 38
# The emulator rounds no rate, TCP has timestamps, and our packets have headers of IP, UDP and their own.
TCP_SHARE = (MTU - 52) / (MTU + FRAMING)
CAST_SHARE = (MTU - 28 - 56) / (MTU + FRAMING)
COUNTS = tuple(range(1, len(RECEIVERS) + 1))
LOSSES = (0.01, 0.05)
LOSSY_COUNTS = (1, 2, 4, 8)
REPETITIONS = 4
PORT = 5210
GROUP = "239.1.1.1:7000"
PRODUCT = "/dev/shm/product"
BAR = 0.05

UNICAST, MULTICAST = "unicast", "multicast"
Case = tuple[str, int, float]


def group_of(receivers: int, share: float) -> Group:
    """The star, in bytes of content."""
    return Group(
        receivers=receivers,
        sender_bps=SENDER_BPS * share,
        sender_link_bps=SENDER_BPS * share,
        receiver_link_bps=RECEIVER_BPS * share,
    )


def model_s(case: Case) -> float:
    """What the model says without loss, seconds."""
    way, receivers, _ = case
    if way == UNICAST:
        return unicast_s(group_of(receivers, TCP_SHARE), size_bytes=SIZE)
    return multicast_s(group_of(receivers, CAST_SHARE), size_bytes=SIZE)


def model_of_loss(receivers: int, loss: float) -> Repaired:
    """What the model says with loss.

    The first repair comes a round trip after the first pass; repairs have the session's rate, and no more.
    """
    return repaired(
        group_of(receivers, CAST_SHARE),
        size_bytes=SIZE,
        loss=loss,
        turnaround_s=RTT_S,
        repair_bps=RECEIVER_BPS * CAST_SHARE,
    )


def cases(repetition: int) -> list[Case]:
    """All of them, in an order of their own in each repetition."""
    plain = [(way, count, 0.0) for count in COUNTS for way in (UNICAST, MULTICAST)]
    lossy = [(MULTICAST, count, loss) for loss in LOSSES for count in LOSSY_COUNTS]
    return random.Random(repetition).sample(plain + lossy, len(plain) + len(lossy))


@contextlib.contextmanager
def star() -> Iterator[Connection]:
    """The hosts, the product at the sender, and a server at each receiver."""
    options = ("--rate", f"{RECEIVER_BPS:.0f}bit", "--rtt", f"{RTT_S * 1e3:g}ms", "--mtu", str(MTU))
    with Connection("--hosts", str(1 + len(RECEIVERS)), *options) as connection:
        access(connection, SENDER, "--rate", f"{SENDER_BPS:.0f}bit")
        connection.run(SENDER, "sh", "-c", f"head -c {SIZE} /dev/urandom >{PRODUCT}")
        servers = [
            connection.start(host, FARLINK, "serve", "--port", str(PORT), "--no-auth") for host in RECEIVERS
        ]
        try:
            for server in servers:
                served(server, "listening on")
            yield connection
        finally:
            for server in servers:
                server.terminate()
                server.wait()


def access(connection: Connection, host: str, *options: str) -> None:
    """Changes the access link of a host."""
    command = [FARLINK, "link", f"{connection.name}/{host}", *options]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


def by_unicast(connection: Connection, receivers: Sequence[str]) -> Run:
    """To all at once: from when the first of them might have a byte until the last has all."""
    kept = OUT / "records.jsonl"
    kept.unlink(missing_ok=True)
    # One shell starts them all, so that they begin within milliseconds.
    move = f"{FARLINK} memory --bytes {SIZE // 1000}kB --quiet --record {kept}"
    starts = "".join(f"{move} {connection.address(host)} & " for host in receivers)
    connection.run(SENDER, "sh", "-c", f"{starts} wait")
    records = [json.loads(line) for line in kept.read_text().splitlines()]
    if len(records) != len(receivers) or any(record["outcome"] != "ok" for record in records):
        return {"error": f"{len(records)} of {len(receivers)} transfers have a record"}
    begun = [datetime.fromisoformat(record["started"]).timestamp() for record in records]
    ended = [at + record["duration_s"] for at, record in zip(begun, records, strict=True)]
    return {
        "seconds": max(ended) - min(begun),
        "congestion": records[0].get("congestion"),
        "overrun": any(record["emulator"]["overrun"] for record in records),
    }


def by_multicast(connection: Connection, receivers: Sequence[str]) -> Run:
    """From the first packet until all have said that they have it."""
    words = ("--group", GROUP, "--no-auth", "--json")
    waiting = [
        connection.start(host, FARLINK, "cast", "receive", *words, "--into", "null:", "--once")
        for host in receivers
    ]
    for each in waiting:
        served(each, "ready")
    rate = ("--rate", f"{RECEIVER_BPS:.0f}bit", "--receivers", str(len(receivers)))
    said = connection.run(SENDER, FARLINK, "cast", "send", *words, *rate, PRODUCT)
    codes = [each.wait() for each in waiting if each.communicate()]
    record: dict[str, Any] = json.loads(said.splitlines()[-1])
    if record["outcome"] != "ok" or any(codes):
        return {"error": record.get("error") or f"the receivers ended with {codes}"}
    cast = record["cast"]
    return {
        "seconds": record["duration_s"],
        "overrun": record["emulator"]["overrun"],
        "sent": (cast["first_pass_bytes"] + cast["multicast_repair_bytes"] + cast["unicast_repair_bytes"])
        / cast["first_pass_bytes"],
        "by_group": cast["multicast_repair_bytes"],
        "by_unicast": cast["unicast_repair_bytes"],
    }


def name_of(case: Case) -> str:
    """How its results are kept."""
    way, receivers, loss = case
    return f"{way} to {receivers}" + (f" with {loss:.0%} loss" if loss else "")


def measure(results: Results, repetitions: int, until: float) -> bool:
    """What is not measured yet; whether that is all of it, before the clock says `until`."""
    left = [
        (repetition, case)
        for repetition in range(repetitions)
        for case in cases(repetition)
        if not results.has("latency", name_of(case), repetition)
    ]
    if not left:
        return True
    with star() as connection:
        for repetition, case in left:
            if time.monotonic() > until:
                return False
            way, count, loss = case
            receivers = RECEIVERS[:count]
            for host in receivers:
                access(connection, host, "--loss", f"{100 * loss:g}%")
            run = (by_unicast if way == UNICAST else by_multicast)(connection, receivers)
            for host in receivers:
                access(connection, host, "--loss", "0%")
            results.add(
                {"row": "latency", "contender": name_of(case), "repetition": repetition, "case": case, **run}
            )
            print(f"{repetition + 1}/{repetitions} {name_of(case)}: {run}", flush=True)
    return True


def seconds(results: Results, case: Case) -> list[float]:
    """What was measured and counts."""
    runs = results.of("latency", name_of(case))
    return [run["seconds"] for run in runs if "error" not in run and not run["overrun"]]


def cell(times: Sequence[float]) -> str:
    """Median, range and number of runs."""
    if not times:
        return "–"
    return f"{median(times):.3f} ({min(times):.3f}-{max(times):.3f}, n={len(times)})"


def ratio(times: Sequence[float], model: float) -> str:
    """The median by the model."""
    return f"{median(times) / model:.3f}" if times else "–"


def plain_table(results: Results) -> str:
    """A row for each number of receivers, without loss."""
    rows = []
    for count in COUNTS:
        row: list[object] = [count]
        for way in (UNICAST, MULTICAST):
            case = (way, count, 0.0)
            times = seconds(results, case)
            row += [f"{model_s(case):.3f}", cell(times), ratio(times, model_s(case))]
        rows.append(row)
    head = ["n", *(f"{way}, {word}" for way in (UNICAST, MULTICAST) for word in ("model, s", "s", "ratio"))]
    return page.table(head, rows)


def lossy_table(results: Results) -> str:
    """A row for each loss and number of receivers."""
    rows = []
    for loss in LOSSES:
        for count in LOSSY_COUNTS:
            model, case = model_of_loss(count, loss), (MULTICAST, count, loss)
            times = seconds(results, case)
            runs = [run for run in results.of("latency", name_of(case)) if "error" not in run]
            sent = [run["sent"] for run in runs]
            unicast, multicast = model.unicast_bytes / SIZE, model.multicast_bytes / SIZE
            rows.append(
                [
                    f"{loss:.0%}",
                    count,
                    cell(times),
                    f"{model.unicast_s:.3f}",
                    ratio(times, model.unicast_s),
                    f"{model.multicast_s:.3f}",
                    ratio(times, model.multicast_s),
                    f"{median(sent):.3f}" if sent else "–",
                    f"{unicast:.3f}",
                    f"{multicast:.3f}",
                ]
            )
    head = [
        *("loss", "n", "s", "model by unicast, s", "ratio", "model by multicast, s", "ratio"),
        *("sent, of the size", "1 + n p", "E[M]"),
    ]
    return page.table(head, rows)


def draw(results: Results, svg: Path) -> None:
    """Times against the number of receivers: the model's lines, and what was measured."""
    style: Any = {"font.size": 9, "axes.grid": True, "grid.color": "#dddddd", "svg.hashsalt": "farlink"}
    with mpl.rc_context({**style, "svg.fonttype": "none"}):
        figure = Figure(figsize=(9, 3.4), layout="constrained")
        plain, lossy = figure.subplots(1, 2, sharey=True)
        for way, colour in ((UNICAST, "#D55E00"), (MULTICAST, "#0072B2")):
            plain.plot(COUNTS, [model_s((way, n, 0.0)) for n in COUNTS], color=colour, lw=1, label=way)
            points(plain, results, [(way, count, 0.0) for count in COUNTS], colour)
        for loss, colour in zip(LOSSES, ("#009E73", "#CC79A7"), strict=True):
            models = [model_of_loss(count, loss) for count in COUNTS]
            label = f"{loss:.0%} loss"
            by_one = [model.unicast_s for model in models]
            lossy.plot(COUNTS, by_one, color=colour, lw=1, label=f"{label}, repaired by unicast")
            by_all = [model.multicast_s for model in models]
            lossy.plot(COUNTS, by_all, color=colour, lw=1, ls="--", label=f"{label}, by multicast")
            points(lossy, results, [(MULTICAST, count, loss) for count in LOSSY_COUNTS], colour)
        for panel, title in ((plain, "Without loss"), (lossy, "By multicast, with loss")):
            panel.set_title(f"{title}: lines are the model, points are measured", loc="left", fontsize=9)
            panel.set_xlabel("receivers")
            panel.set_ylim(bottom=0)
            panel.legend(frameon=False, fontsize=8)
        plain.set_ylabel("s")
        figure.savefig(svg, format="svg", metadata={"Date": None})


def points(panel: Axes, results: Results, shown: Sequence[Case], colour: str) -> None:
    """A point a run."""
    found = [(case[1], time_s) for case in shown for time_s in seconds(results, case)]
    panel.plot([count for count, _ in found], [time_s for _, time_s in found], "o", ms=4, color=colour)


def write(results: Results) -> None:
    """The page, of all that was measured."""
    svg = Path(__file__).with_suffix(".svg")
    draw(results, svg)
    runs = results.of("latency")
    failed = [f"- {run['contender']}: {run['error']}" for run in runs if "error" in run]
    late = sum(bool(run.get("overrun")) for run in runs)
    near = total = 0
    for case in [(way, count, 0.0) for way in (UNICAST, MULTICAST) for count in COUNTS]:
        if times := seconds(results, case):
            total += 1
            near += abs(median(times) / model_s(case) - 1) <= BAR
    crossover = crossover_receivers(group_of(len(RECEIVERS), TCP_SHARE))
    counted = (
        f"{len(runs)} runs; {late} in which the emulator fell behind are left out; {len(failed)} failed."
    )
    agreed = f"Without loss, {near} of {total} medians are within {BAR:.0%} of the model"
    parts = [
        f"{counted} {agreed}, whose crossover is at {crossover:g} receivers.",
        *failed,
        f"![Times against receivers]({svg.name})",
        "## Without loss",
        plain_table(results),
        "## By multicast, with loss at each receiver",
        lossy_table(results),
    ]
    page.write(
        Path(__file__).with_suffix(".md"),
        title="Does the latency model foretell how long a product takes?",
        question=f"{SIZE / 1e6:g} MB in memory from a host behind {SENDER_BPS / 1e6:g} Mb/s to n hosts "
        f"behind {RECEIVER_BPS / 1e6:g} Mb/s each, RTT {RTT_S * 1e3:g} ms, MTU {MTU}, queue 50 ms: by "
        "`farlink memory` to all at once, from the first start to the last byte, and by `farlink cast` at "
        "the receivers' rate, from the first packet until everybody has everything. The model is that of "
        "`farlink lab latency`, of the rates less headers and framing; a session's repairs have its rate, "
        "whatever the sender's link has beside. Medians, ranges, runs. Bar: within 5%.",
        command="make bench-latency",
        machine=results.machine,
        body="\n\n".join(parts),
    )


def main() -> None:
    """Measures what is not measured yet, and writes the page."""
    parser = argparse.ArgumentParser(
        description="Compare the latency model with runs; write bench/latency.md."
    )
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no run after so long")
    parser.add_argument("--page", action="store_true", help="write the page of what is there")
    asked = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    results = Results(path=OUT / "results.jsonl")
    is_all = True
    if not asked.page:
        is_all = measure(results, asked.repetitions, time.monotonic() + asked.seconds)
    if is_all:
        write(results)


if __name__ == "__main__":
    main()
