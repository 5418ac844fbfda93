"""Does `circuit` stay at the limit out to 366 ms? Writes bench/circuit.md.

2 GiB, memory to memory, over one emulated 10 Gb/s connection (MTU 9000, queue 50 ms), ours and the kernel's
congestion controls in the same mover, in turn, with the same buffers and 1 and 10 streams; the limit ratio is
(τ/2 + B/C) / measured.
"""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import tempfile
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from support import departures, page
from support.connection import FARLINK, Connection, served

if TYPE_CHECKING:
    from collections.abc import Iterator

RTTS_MS = (0.4, 11.8, 22.6, 45.6, 91.6, 183, 366)
STREAMS = (1, 10)
PEER_STREAMS = (1, 4, 10)
BURST_STREAMS = (1, 2, 4, 10, 32)
PEERS = ("cubic", "bbr", "htcp", "scalable")
REPETITIONS = 3
SIZE = "2GiB"
BARS = {0.4: 0.95, 11.8: 0.95, 22.6: 0.95, 45.6: 0.95, 91.6: 0.95, 183: 0.93, 366: 0.93}
PREFAULT = "2GiB"

WORDS = (
    f"Fixed size; medians of {REPETITIONS} runs with their range; the peers have the same buffers, and never "
    "a larger initial window. *of the best peer*: circuit's median by the best median of any peer with 1, 4 "
    "or 10 streams (bars: 0.98 everywhere, 1.5 at 183 and 366 ms). Runs in which the emulator was late are "
    "left out where a setting has others."
)
BURST_WORDS = (
    "What leaves host a, headers and framing counted, as tcpdump sees it there, while 2 GiB "
    "move: the most in any 10 ms, less what 10 Gb/s carry in 10 ms. Medians and ranges of the runs' maxima."
)

Run = dict[str, Any]


@contextlib.contextmanager
def serving(connection: Connection) -> Iterator[None]:
    """`farlink serve` on host b."""
    server = connection.start("b", FARLINK, "serve")
    try:
        served(server, "listening on")
        yield
    finally:
        server.terminate()
        server.wait()


def move(connection: Connection, *options: str) -> Run:
    """The record of one transfer from a to b; what failed says so."""
    command = connection.on("a", FARLINK, "memory", "b", "--json", "--quiet", *options)
    ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    record: Run = json.loads(ended.stdout)
    return record


def limit_ratio(record: Run) -> float:
    """Design's: what no transfer can beat, by what this one took; 0 where it failed."""
    if record["outcome"] != "ok":
        return 0.0
    limit = record["rtt_s"] / 2 + 8 * record["bytes"] / record["goodput_bps"]
    return float(limit / record["duration_s"])


def gbps(record: Run) -> float:
    """Throughput."""
    return float(8e-9 * record["bytes"] / record["duration_s"])


def spread(values: list[float]) -> str:
    """Median and range."""
    return f"{median(values):.3f} ({min(values):.3f}-{max(values):.3f})"


def late(runs: list[Run]) -> str:
    """In how many of them the emulator fell behind."""
    return f"{sum(run['emulator']['overrun'] for run in runs)} of {len(runs)}"


def punctual(runs: list[Run]) -> list[Run]:
    """Those in which the emulator kept up; all, where it kept up in none."""
    return [run for run in runs if not run["emulator"]["overrun"]] or runs


def buffers(connection: Connection) -> dict[int, str]:
    """What a circuit's sockets are given on this path, by streams: the kernel doubles what is asked for."""
    found = {}
    for streams in PEER_STREAMS:
        record = move(connection, "--bytes", "10MiB", "--streams", str(streams), "--circuit", "10gbit")
        found[streams] = f"{record['buffers']['receive'] // 2}B"
    return found


def profile(connection: Connection) -> str:
    """Circuit and the kernel's at each RTT, in turn."""
    draw = random.Random(1)
    runs: dict[tuple[float, str, int], list[Run]] = {}
    for repetition in range(REPETITIONS):
        for rtt in draw.sample(RTTS_MS, len(RTTS_MS)):
            connection.link("--rtt", f"{rtt}ms")
            settings = [("circuit", streams) for streams in STREAMS]
            settings += [(name, streams) for name in PEERS for streams in PEER_STREAMS]
            given = buffers(connection)
            if rtt == RTTS_MS[-1]:
                settings.append(("defaults", 1))
            for name, streams in draw.sample(settings, len(settings)):
                print(f"{repetition + 1}/{REPETITIONS} {rtt} ms {name} x{streams}", flush=True)
                options = ["--bytes", SIZE, "--streams", str(streams)]
                if name == "circuit":
                    options += ["--circuit", "10gbit"]
                elif name != "defaults":
                    options += ["--congestion", name, "--buffer", given[streams]]
                runs.setdefault((rtt, name, streams), []).append(move(connection, *options))
    rows = []
    for rtt in RTTS_MS:
        best = max(
            median(map(limit_ratio, punctual(runs[rtt, name, streams])))
            for name in PEERS
            for streams in PEER_STREAMS
        )
        for streams in STREAMS:
            ours = runs[rtt, "circuit", streams]
            ratios = [limit_ratio(run) for run in punctual(ours)]
            within = "yes" if median(ratios) >= BARS[rtt] else "no"
            rows.append(
                [f"{rtt} ms", streams, spread(ratios), BARS[rtt], within, f"{median(ratios) / best:.2f}"]
                + [f"{median(map(limit_ratio, punctual(runs[rtt, name, streams]))):.3f}" for name in PEERS]
                + [sum(run.get("retransmits") or 0 for run in ours), late(ours)]
            )
    defaults = [limit_ratio(run) for run in punctual(runs[RTTS_MS[-1], "defaults", 1])]
    longest = [limit_ratio(run) for run in punctual(runs[RTTS_MS[-1], "circuit", 1])]
    times = median(longest) / median(defaults)
    peers = [run for (_, name, _), found in runs.items() for run in found if name != "circuit"]
    head = ["RTT", "streams", "circuit", "bar", "within", "of the best peer", *PEERS, "sent again", "late"]
    return (
        page.table(head, rows)
        + f"\n\nAt 366 ms with the system's defaults (one stream, automatic buffers): {spread(defaults)}; "
        f"circuit is {times:.2f} times as fast (bar: 3). The emulator fell behind in {late(peers)} runs of "
        "the peers."
    )


def losses() -> str:
    """Random loss at 91.6 ms, against none, in turn."""
    found: dict[str, list[Run]] = {}
    for _ in range(REPETITIONS):
        for loss in ("0%", "0.01%", "0.1%", "1%"):
            options = ("--rate", "10gbit", "--rtt", "91.6ms", "--loss", loss, "--prefault", PREFAULT)
            with Connection(*options) as connection, serving(connection):
                found.setdefault(loss, []).append(move(connection, "--bytes", SIZE, "--circuit", "10gbit"))
            print(f"loss {loss}", flush=True)
    base = median(map(gbps, punctual(found["0%"])))
    rows = []
    for loss, runs in found.items():
        rates = [gbps(run) for run in punctual(runs)]
        rows.append([loss, spread(rates), f"{median(rates) / base:.2f}", 0.85, late(runs)])
    return page.table(["loss", "Gb/s", "of none", "bar", "late"], rows)


def bursts() -> str:
    """The most that leaves in 10 ms, beyond what was declared."""
    found: dict[tuple[str, str, int], list[tuple[float, float]]] = {}
    lates: dict[tuple[str, str, int], list[Run]] = {}
    with tempfile.TemporaryDirectory() as directory:
        capture = Path(directory) / "capture"
        for rtt, loss in (("0.4ms", "0%"), ("45.6ms", "0%"), ("366ms", "0%"), ("91.6ms", "1%")):
            options = ("--rate", "10gbit", "--rtt", rtt, "--loss", loss, "--prefault", PREFAULT)
            with Connection(*options) as connection, serving(connection):
                for _ in range(REPETITIONS):
                    for streams in BURST_STREAMS:
                        print(f"bursts {rtt} {loss} x{streams}", flush=True)
                        with departures.watched(connection.on, "a", capture):
                            wanted = ["--bytes", SIZE, "--streams", str(streams), "--circuit", "10gbit"]
                            record = move(connection, *wanted)
                        most = departures.excess(capture, 10e9, record["mtu"]) / 1e6
                        found.setdefault((rtt, loss, streams), []).append((most, limit_ratio(record)))
                        lates.setdefault((rtt, loss, streams), []).append(record)
    rows = [
        [
            *(
                rtt,
                loss,
                streams,
                spread([most for most, _ in pairs]),
                f"{max(most for most, _ in pairs):.2f}",
            ),
            *(spread([ratio for _, ratio in pairs]), late(lates[rtt, loss, streams])),
        ]
        for (rtt, loss, streams), pairs in found.items()
    ]
    head = ["RTT", "loss", "streams", "MB beyond declared × 10 ms", "worst (bar 1)", "limit ratio", "late"]
    return page.table(head, rows)


def wrong() -> str:
    """10 Gb/s declared on 5 Gb/s."""
    rows = []
    for rtt in ("22.6ms", "91.6ms"):
        with (
            Connection("--rate", "5gbit", "--rtt", rtt, "--prefault", PREFAULT) as connection,
            serving(connection),
        ):
            for _ in range(REPETITIONS):
                record = move(connection, "--seconds", "12", "--circuit", "10gbit")
                fell = record["circuit"].get("fell_back_s")
                if fell is None:
                    rows.append([rtt, "held", "-", "-", "-", record["emulator"]["overrun"]])
                    continue
                # From two seconds after, when what was in the queue has been repaired.
                after = [(t, count) for t, count in record["samples"] if t > fell + 2]
                span = after[-1][0] - after[0][0]
                rate = 8e-9 * sum(count for _, count in after[1:]) / span
                trace = record["tcp"][0]
                again = [x for t, x in zip(trace["t_s"], trace["retransmits"], strict=True) if t > fell + 2]
                sent = sum(count for _, count in after[1:]) / (record["mtu"] - 52)
                share = (again[-1] - again[0]) / sent
                rows.append(
                    [
                        *(rtt, f"{fell:.2f} s", f"{rate:.2f}", f"{rate / 5:.0%}", f"{share:.2%}"),
                        record["emulator"]["overrun"],
                    ]
                )
            print(f"wrong {rtt}", flush=True)
    head = ["RTT", "fell back at", "Gb/s after that", "of 5 Gb/s (bar 90%)", "sent again (bar 2%)", "late"]
    return page.table(head, rows)


def two() -> str:
    """4 and 6 Gb/s on one connection of 10 Gb/s."""
    rows = []
    with (
        Connection("--rate", "10gbit", "--rtt", "45.6ms", "--prefault", PREFAULT) as connection,
        serving(connection),
    ):
        for _ in range(REPETITIONS):
            started = [
                connection.start(
                    "a",
                    FARLINK,
                    "memory",
                    "b",
                    "--json",
                    "--quiet",
                    "--seconds",
                    "8",
                    "--circuit",
                    f"{rate}gbit",
                )
                for rate in (4, 6)
            ]
            records: list[Run] = [json.loads(each.communicate()[0]) for each in started]
            row: list[object] = []
            for rate, record in zip((4, 6), records, strict=True):
                goodput = record["goodput_bps"] / record["rate_bps"] * rate
                # Of its first half round trip nothing can have arrived.
                had = gbps(record) * 8 / (8 - record["rtt_s"] / 2)
                row += [f"{had:.2f}", f"{had / goodput:.1%}"]
            rows.append([*row, any(record["emulator"]["overrun"] for record in records)])
            print("two circuits", flush=True)
    return page.table(
        ["4 Gb/s had, Gb/s", "of its payload rate (bar 95%)", "6 Gb/s had, Gb/s", "of its (bar 95%)", "late"],
        rows,
    )


def main() -> None:
    """Measures, and writes the page."""
    machine = page.machine()
    with Connection("--rate", "10gbit", "--prefault", PREFAULT) as connection, serving(connection):
        rows = profile(connection)
    parts = [
        "## Limit ratio",
        WORDS,
        rows,
        "## Random loss, 91.6 ms, one stream",
        losses(),
        "## The most in any 10 ms",
        BURST_WORDS,
        bursts(),
        "## 10 Gb/s declared, 5 Gb/s there",
        wrong(),
        "## Two circuits on one 10 Gb/s connection, 45.6 ms",
        two(),
    ]
    page.write(
        Path(__file__).with_suffix(".md"),
        title="Does circuit stay at the limit out to 366 ms?",
        question=f"{SIZE} from memory to memory over one emulated 10 Gb/s connection, MTU 9000, queue 50 ms, "
        "both hosts and the emulator on the same cores; ours and the kernel's congestion controls in turn.",
        command="make bench-circuit",
        machine=machine,
        body="\n\n".join(parts),
    )


if __name__ == "__main__":
    main()
