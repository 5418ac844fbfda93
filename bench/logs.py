"""Can a national laboratory's logs be analysed on two cores and 8 GiB? Writes bench/logs.md and logs.svg.

`bench/logs.py` makes logs of 1, 10 and 100 million transfers (gigabytes, in target/bench-logs), and measures
the commands as a user gives them; with numbers, those of millions alone. Where a size was not measured, the
page says so. What was made stays, and is not made again.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from matplotlib.figure import Figure

from support import page

ROOT = Path(__file__).parents[1]
WORK = ROOT / "target" / "bench-logs"
RESULTS = WORK / "results.json"
LAB = [sys.executable, "-m", "farlink_lab", "logs"]
PANDAS = [sys.executable, str(Path(__file__).parent / "support" / "pandas_sessions.py")]
MILLIONS = (1, 10, 100)
# Lines of the log that is imported, and the size at which pandas does the same.
IMPORTED = 10
COMPARED = 10
RUNS = 3
# The bars.
LEAST_LINES_A_SECOND = 500_000
MOST_SECONDS = 120.0
MOST_BYTES = 4 << 30
MOST_OF_LINEAR = 1.6
LEAST_TIMES_FASTER = 10.0
SEED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a command took, and what it said."""

    seconds: float
    most_bytes: int
    said: str


def run(command: list[str]) -> Cost:
    """Runs a command to its end; it must succeed."""
    with tempfile.TemporaryFile("w+") as said:
        begun = time.monotonic()
        child = os.posix_spawn(
            command[0], command, dict(os.environ), file_actions=[(os.POSIX_SPAWN_DUP2, said.fileno(), 1)]
        )
        _, status, used = os.wait4(child, 0)
        seconds = time.monotonic() - begun
        if status:
            sys.exit(f"{' '.join(command)}: ended with {os.waitstatus_to_exitcode(status)}")
        said.seek(0)
        return Cost(seconds=seconds, most_bytes=used.ru_maxrss << 10, said=said.read())


def analyse(millions: int) -> dict[str, object]:
    """Sessions for three gaps, and circuits, of a log of that size: the median of several runs."""
    directory = str(made(millions))
    gaps = [word for gap in ("0s", "1m", "2m") for word in ("--gap", gap)]
    costs = []
    for _ in range(RUNS if millions < max(MILLIONS) else 1):
        sessions = run([*LAB, "sessions", directory, *gaps, "--json"])
        circuits = run([*LAB, "circuits", directory, "--json"])
        costs.append((sessions.seconds + circuits.seconds, max(sessions.most_bytes, circuits.most_bytes)))
        answer = json.loads(sessions.said)
    size = sum(path.stat().st_size for path in Path(directory).glob("day=*/*.parquet"))
    return {
        "seconds": [seconds for seconds, _ in costs],
        "most_bytes": max(held for _, held in costs),
        "parquet_bytes": size,
        "sessions": {str(gap["gap_s"]): gap["sessions"] for gap in answer["gaps"]},
        "threads": len(os.sched_getaffinity(0)),
    }


def made(millions: int) -> Path:
    """The log of that size, made where it is not there."""
    directory = WORK / f"{millions}m"
    if not (directory / "transfers.json").exists():
        count = str(millions * 10**6)
        days = str(max(30, 12 * millions))
        run(
            [
                *LAB,
                "synth",
                "--transfers",
                count,
                "--days",
                days,
                "--seed",
                str(SEED),
                "--out",
                str(directory),
            ]
        )
    return directory


def imports(millions: int) -> dict[str, object]:
    """The import of a log of that many million lines into an empty directory."""
    lines = WORK / f"{millions}m.log"
    if not lines.exists():
        count = str(millions * 10**6)
        run([*LAB, "synth", "--transfers", count, "--seed", str(SEED), "--lines", str(lines)])
    with tempfile.TemporaryDirectory(dir=WORK) as out:
        cost = run([*LAB, "import", str(lines), "--out", f"{out}/transfers"])
    return {
        "lines": millions * 10**6,
        "bytes": lines.stat().st_size,
        "seconds": cost.seconds,
        "most_bytes": cost.most_bytes,
    }


def compared(millions: int) -> dict[str, object]:
    """The same analysis by pandas, whose sessions must be ours."""
    cost = run([*PANDAS, str(made(millions))])
    return {**asdict(cost), "said": json.loads(cost.said)}


def measured(results: dict[str, dict[str, object]], asked: list[int]) -> None:
    """Adds what is asked for."""
    for millions in asked:
        results[f"analyse {millions}"] = analyse(millions)
        save(results)
        if millions in (IMPORTED, min(asked)):
            results[f"import {millions}"] = imports(millions)
            save(results)
        if millions in (COMPARED, min(asked)):
            results[f"pandas {millions}"] = compared(millions)
            save(results)


def save(results: dict[str, dict[str, object]]) -> None:
    """Keeps what was measured so far."""
    WORK.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1))


def body(results: dict[str, dict[str, object]]) -> str:
    """The page's tables and verdicts."""
    parts = []
    rows, by_size = [], {}
    for millions in MILLIONS:
        found = results.get(f"analyse {millions}")
        if found is None:
            rows.append([f"{millions} million", *["not measured"] * 4])
            continue
        seconds: list[float] = found["seconds"]  # type: ignore[assignment]
        held, size = int(str(found["most_bytes"])), int(str(found["parquet_bytes"]))
        by_size[millions] = median(seconds)
        each = ", ".join(f"{value:.1f}" for value in seconds)
        rows.append(
            [f"{millions} million", f"{size / 1e9:.2f} GB", f"{median(seconds):.1f} s", each, gib(held)]
        )
    parts.append(
        page.table(["transfers", "Parquet", "sessions and circuits", "runs, s", "most memory"], rows)
    )
    largest = results.get(f"analyse {MILLIONS[-1]}")
    if largest is not None:
        took = by_size[MILLIONS[-1]]
        parts.append(
            f"100 million within {MOST_SECONDS:.0f} s: **{verdict(took <= MOST_SECONDS)}**; within 4 GiB: "
            f"**{verdict(int(str(largest['most_bytes'])) <= MOST_BYTES)}**."
        )
    if MILLIONS[0] in by_size and MILLIONS[-1] in by_size:
        ratio = by_size[MILLIONS[-1]] / by_size[MILLIONS[0]] / (MILLIONS[-1] / MILLIONS[0])
        parts.append(
            f"From 1 to 100 million the time grows {ratio:.2f} times as much as the log "
            f"(at most {MOST_OF_LINEAR}): **{verdict(ratio <= MOST_OF_LINEAR)}**.\n\n"
            "![seconds against transfers](logs.svg)"
        )
    for name, found in sorted(results.items()):
        if name.startswith("import "):
            count, seconds_taken = int(str(found["lines"])), float(str(found["seconds"]))
            rate = count / seconds_taken
            parts.append(
                f"Import of {count:,} lines ({int(str(found['bytes'])) / 1e9:.2f} GB): "
                f"{seconds_taken:.1f} s, {rate:,.0f} lines/s with {gib(int(str(found['most_bytes'])))}; "
                f"at least {LEAST_LINES_A_SECOND:,}: **{verdict(rate >= LEAST_LINES_A_SECOND)}**."
            )
        if name.startswith("pandas "):
            parts.append(against_pandas(name.split()[1], found, results))
    return "\n\n".join(parts)


def against_pandas(millions: str, found: dict[str, object], results: dict[str, dict[str, object]]) -> str:
    """Our time beside that of pandas, and whether both found the same sessions."""
    ours = results[f"analyse {millions}"]
    seconds: list[float] = ours["seconds"]  # type: ignore[assignment]
    theirs = float(str(found["seconds"]))
    times = theirs / median(seconds)
    same = found["said"] == ours["sessions"]
    return (
        f"{millions} million by pandas: {theirs:.1f} s with {gib(int(str(found['most_bytes'])))}, "
        f"{times:.1f} times ours (at least {LEAST_TIMES_FASTER:.0f} at {COMPARED} million): "
        f"**{verdict(times >= LEAST_TIMES_FASTER)}**; its sessions are ours: **{'yes' if same else 'no'}**."
    )


def gib(held: int) -> str:
    """Memory for a person."""
    return f"{held / 2**30:.2f} GiB"


def verdict(held: bool) -> str:
    """Whether a bar holds."""
    return "it holds" if held else "it does not hold"


def draw(results: dict[str, dict[str, object]], path: Path) -> None:
    """Time against size, beside what is linear."""
    sizes = [each for each in MILLIONS if f"analyse {each}" in results]
    times = [median(results[f"analyse {each}"]["seconds"]) for each in sizes]  # type: ignore[arg-type]
    figure = Figure(figsize=(5.2, 3.7), layout="constrained")
    panel = figure.add_subplot()
    panel.loglog(sizes, times, "o-", label="sessions and circuits")
    panel.loglog(sizes, [times[0] * each / sizes[0] for each in sizes], ":", color="#444444", label="linear")
    panel.set_xlabel("million transfers")
    panel.set_ylabel("seconds")
    panel.legend()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Measures what is asked for, and writes the page of all that was."""
    asked = [int(word) for word in sys.argv[1:]] or list(MILLIONS)
    machine = page.machine()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    measured(results, asked)
    path = Path(__file__).with_suffix(".md")
    draw(results, path.with_suffix(".svg"))
    page.write(
        path,
        title="Transfer logs at the scale of a national laboratory",
        question=(
            "Sessions for three gaps, and circuits with their sensitivity, of a made log, by the commands "
            "of a user: 100 million transfers on 2 cores and 8 GiB in under 2 minutes?"
        ),
        command="make bench-logs",
        machine=machine,
        body=body(results),
    )


if __name__ == "__main__":
    main()
