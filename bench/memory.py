"""Does `farlink memory` move as much as iperf3 and nuttcp, for no more CPU? Writes bench/memory.md and .csv.

Carries out `plans/suite.toml` (an hour and a half, interleaved; it goes on where it was interrupted), then
pairs each run of ours with the peer's of the same RTT, congestion control, streams, buffer and repetition.
"""

from __future__ import annotations

import csv
import json
import random
import subprocess
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from support import page
from support.connection import FARLINK, ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PLAN = ROOT / "plans" / "suite.toml"
OUT = ROOT / "target" / "bench-memory"
PEERS = ("iperf3", "nuttcp")
RESAMPLES = 2000
COLUMNS = (
    *("tool", "version", "rtt_ms", "congestion", "streams", "buffer_bytes", "repetition", "outcome"),
    *("gbps", "cpu_s_per_gb", "retransmits", "late_p99_ms", "overrun"),
)

Run = dict[str, Any]


def read_runs() -> list[Run]:
    """Every run so far, one row each."""
    runs = []
    for line in (OUT / "records.jsonl").read_text().splitlines():
        record = json.loads(line)
        cpu, late = record.get("cpu_s"), record.get("emulator") or {}
        moved, seconds = record["bytes"], record.get("duration_s")
        is_ok = record["outcome"] == "ok" and moved and seconds
        runs.append(
            {
                "tool": record["tool"],
                "version": record["version"],
                "rtt_ms": round(1e3 * record["rtt_s"], 3),
                "congestion": record.get("congestion", ""),
                "streams": record["streams"],
                "buffer_bytes": record.get("buffer_bytes", ""),
                "repetition": record["lab"]["repetition"],
                "outcome": record["outcome"],
                "gbps": round(8e-9 * moved / seconds, 4) if is_ok else "",
                "cpu_s_per_gb": round(1e9 * (cpu["sender"] + cpu["receiver"]) / moved, 4)
                if is_ok and cpu
                else "",
                "retransmits": record.get("retransmits", ""),
                "late_p99_ms": round(1e3 * late["late_p99_s"], 3) if late else "",
                "overrun": late.get("overrun", ""),
            }
        )
    return sorted(runs, key=lambda run: [str(run[name]) for name in COLUMNS[2:7]] + [run["tool"]])


def pairs(runs: Sequence[Run], peer: str, column: str) -> list[tuple[Run, float]]:
    """Our run, and the ratio of its `column` to the peer's, of every pair of which neither is late."""
    key: Callable[[Run], tuple[Any, ...]] = lambda run: tuple(run[name] for name in COLUMNS[2:7])  # noqa: E731
    punctual = [run for run in runs if run["overrun"] is not True and run[column] not in ("", 0)]
    theirs = {key(run): run[column] for run in punctual if run["tool"] == peer}
    ours = (run for run in punctual if run["tool"] == "farlink")
    return [(run, run[column] / theirs[key(run)]) for run in ours if key(run) in theirs]


def by_setting(runs: Sequence[Run]) -> str:
    """A row for each setting: the ratios to iperf3 of its repetitions, of rate and of CPU."""
    setting = COLUMNS[2:6]
    found: dict[str, dict[tuple[Any, ...], list[float]]] = {}
    for column in ("gbps", "cpu_s_per_gb"):
        for run, ratio in pairs(runs, "iperf3", column):
            found.setdefault(column, {}).setdefault(tuple(run[name] for name in setting), []).append(ratio)
    rows = [
        [key[0], key[1], key[2], key[3] or "automatic", spread(rates), spread(found["cpu_s_per_gb"][key])]
        for key, rates in sorted(found["gbps"].items(), key=lambda item: [str(part) for part in item[0]])
    ]
    rows.sort(key=lambda row: (row[1], row[2], str(row[3]), row[0]))
    return page.table([*setting, "throughput, ours / iperf3", "CPU per GB, ours / iperf3"], rows)


def spread(ratios: Sequence[float]) -> str:
    """The median and the range."""
    return f"{median(ratios):.3f} ({min(ratios):.3f}-{max(ratios):.3f}, n={len(ratios)})"


def interval(ratios: Sequence[float]) -> str:
    """The median and its 95% bootstrap interval."""
    if not ratios:
        return "–"
    draw = random.Random(1)
    medians = sorted(median(draw.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    low, high = medians[int(0.025 * RESAMPLES)], medians[int(0.975 * RESAMPLES)]
    return f"{median(ratios):.3f} ({low:.3f}-{high:.3f}, n={len(ratios)})"


def by(runs: Sequence[Run], column: str, name: str) -> str:
    """A table of the ratios, a row for each value of `name` and one for all."""
    found = {peer: pairs(runs, peer, column) for peer in PEERS}
    values = sorted({run[name] for run in runs if run["tool"] == "farlink"}, key=lambda v: (v == "", v))
    rows = [
        [value or "automatic", *(interval([r for run, r in found[p] if run[name] == value]) for p in PEERS)]
        for value in values
    ]
    rows.append(["all", *(interval([ratio for _, ratio in found[peer]]) for peer in PEERS)])
    return page.table([name, *(f"ours / {peer}" for peer in PEERS)], rows)


def main() -> None:
    """Measures what is not measured yet, and writes the pages."""
    machine = page.machine()
    command = [FARLINK, "lab", "profile", str(PLAN), "--out", str(OUT)]
    ended = subprocess.run(command, check=False).returncode
    runs = read_runs()
    with Path(__file__).with_suffix(".csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(runs)
    # 1: it is complete, and some runs failed.
    incomplete = "" if ended in (0, 1) else " (the campaign is not complete)"
    parts = [f"{len(runs)} runs{incomplete}, every one in memory.csv."]
    for column, title, bar in (
        ("gbps", "Throughput", "median ≥ 0.98, no interval wholly below 1"),
        ("cpu_s_per_gb", "CPU seconds per GB, both ends", "≤ 1.05 against iperf3"),
    ):
        parts.append(f"## {title}\n\nMedian of paired ratios with its 95% bootstrap interval; bar: {bar}.")
        parts += [by(runs, column, name) for name in ("rtt_ms", "congestion", "streams", "buffer_bytes")]
    late = sum(run["overrun"] is True for run in runs)
    parts += ["## Setting by setting\n\nMedian and range of the repetitions.", by_setting(runs)]
    parts.append(
        f"The emulator fell behind in {late} of {len(runs)} runs: pairs with one of them are left out."
    )
    page.write(
        Path(__file__).with_suffix(".md"),
        title="Does farlink memory move as much as iperf3 and nuttcp, for no more CPU?",
        question="Memory to memory for a fixed duration over one emulated 10 Gb/s connection (MTU 9000, "
        "queue 50 ms), in turn, with the same congestion control, streams and buffers.",
        command="make bench-memory",
        machine=machine,
        body="\n\n".join(parts),
    )


if __name__ == "__main__":
    main()
