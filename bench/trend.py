"""Does throughput fall with RTT? Reads bench/memory.csv and writes bench/trend.md.

Every run of ours counts, late or not, as it was measured. Runs of different durations are different curves
and are kept apart: `plans/suite.toml` has 4 s with fixed buffers, and with full ones 5 s up to 91.6 ms and
10 s beyond.
"""

from __future__ import annotations

import csv
import itertools
import math
from pathlib import Path
from statistics import median

from support import page

HERE = Path(__file__).parent
# From here on the runs with full buffers have 10 s.
LONGER_FROM_MS = 183.0
Curve = tuple[str, int, str, str]


def curves() -> dict[Curve, dict[float, list[float]]]:
    """Throughputs (Gb/s) by RTT (ms), for each congestion control, number of streams, buffer and duration."""
    found: dict[Curve, dict[float, list[float]]] = {}
    with (HERE / "memory.csv").open(newline="") as file:
        for run in csv.DictReader(file):
            if run["tool"] != "farlink" or run["outcome"] != "ok" or not run["gbps"]:
                continue
            rtt = float(run["rtt_ms"])
            full = "10 s" if rtt >= LONGER_FROM_MS else "5 s"
            buffer, duration = ("4 MiB", "4 s") if run["buffer_bytes"] else ("full", full)
            curve = (run["congestion"], int(run["streams"]), buffer, duration)
            found.setdefault(curve, {}).setdefault(rtt, []).append(float(run["gbps"]))
    return found


def falling(groups: list[list[float]]) -> tuple[float, int, float]:
    """Pairs of runs at two RTTs of which the longer is slower, all such pairs, and the chance of that many.

    Jonckheere 1954 and Terpstra 1952, one-sided, by the normal approximation; ties count half.
    """
    fall, pairs = 0.0, 0
    for shorter, longer in itertools.combinations(groups, 2):
        for one, other in itertools.product(shorter, longer):
            fall += 1.0 if other < one else 0.5 if other == one else 0.0
            pairs += 1
    sizes = [len(group) for group in groups]
    total = sum(sizes)
    mean = (total**2 - sum(size**2 for size in sizes)) / 4
    variance = (total**2 * (2 * total + 3) - sum(size**2 * (2 * size + 3) for size in sizes)) / 72
    return fall, pairs, 0.5 * math.erfc((fall - mean) / math.sqrt(2 * variance))


def main() -> None:
    """Writes the page."""
    rows, fallen, counted = [], 0.0, 0
    for (congestion, streams, buffer, duration), by_rtt in sorted(curves().items()):
        rtts = sorted(by_rtt)
        fall, pairs, chance = falling([by_rtt[rtt] for rtt in rtts])
        fallen, counted = fallen + fall, counted + pairs
        medians = ", ".join(f"{median(by_rtt[rtt]):.2f}" for rtt in rtts)
        span = f"{rtts[0]:g} to {rtts[-1]:g} ms"
        rows.append(
            [
                f"{congestion} ×{streams}, {buffer}, {duration}",
                span,
                f"{fall:g} of {pairs}",
                f"{chance:.1e}",
                medians,
            ]
        )
    head = ["curve", "RTTs", "pairs that fall", "p", "medians, Gb/s"]
    share = f"In all {fallen:g} of {counted} pairs fall, {100 * fallen / counted:.1f}%."
    note = (
        "p: Jonckheere and Terpstra's test against no trend, one-sided, by the normal approximation. With "
        "two RTTs of three runs that is too small: exactly it is 0.05 where all 9 pairs fall, the least that "
        "six runs can show."
    )
    page.write(
        HERE / "trend.md",
        title="Does throughput fall with RTT?",
        question="Every run of `farlink` in bench/memory.csv, in pairs at two RTTs of one curve.",
        command="make bench-trend",
        machine="that of [bench/memory.md](memory.md), where the runs were measured",
        body="\n\n".join([page.table(head, rows), share, note]),
    )


if __name__ == "__main__":
    main()
