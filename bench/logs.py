"""Can a national laboratory's logs be analysed on two cores and 8 GiB? Writes bench/logs.md and logs.svg.

Makes logs of 1, 10 and 100 million transfers (1.5 GB) and 10 million lines (3 GB) in target/bench-logs, where
they and what was measured stay: an interrupted bench goes on where it was.

usage: logs.py [--row NAME]... [--repetitions N] [--again] [--page]
"""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

from support import page
from support.results import Results, asked

if TYPE_CHECKING:
    from collections.abc import Iterable

    from support.results import Run

ROOT = Path(__file__).parents[1]
WORK = ROOT / "target" / "bench-logs"
LAB = [sys.executable, "-m", "farlink_lab", "logs"]
SUPPORT = Path(__file__).parent / "support"
MILLIONS = (1, 10, 100)
# Of the log that is imported, and of that which pandas analyses too.
COMPARED = 10
PANDAS = {
    "farlink": [sys.executable, str(SUPPORT / "log_sessions.py")],
    "pandas, plain": [sys.executable, str(SUPPORT / "pandas_sessions.py"), "plain"],
    "pandas, tuned": [sys.executable, str(SUPPORT / "pandas_sessions.py"), "tuned"],
}
RUNS = 3
# The bars.
LEAST_LINES_A_SECOND = 500_000
MOST_SECONDS = 120.0
MOST_BYTES = 4 << 30
MOST_OF_LINEAR = 1.6
LEAST_TIMES_FASTER = 10.0
SEED = 1


def run(command: list[str]) -> tuple[Run, str]:
    """Runs a command to its end, which it must reach: what it took, and what it said."""
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
        return {"seconds": seconds, "most_bytes": used.ru_maxrss << 10}, said.read()


def made(millions: int) -> Path:
    """The transfers of that size, made where they are not there."""
    directory = WORK / f"{millions}m"
    if not (directory / "transfers.json").exists():
        days = str(max(30, 12 * millions))
        run([*synth(millions), "--days", days, "--out", str(directory)])
    return directory


def made_lines(millions: int) -> Path:
    """The same as a log of a GridFTP server."""
    lines = WORK / f"{millions}m.log"
    if not lines.exists():
        unfinished = lines.with_suffix(".part")
        run([*synth(millions), "--lines", str(unfinished)])
        unfinished.rename(lines)
    return lines


def synth(millions: int) -> list[str]:
    """The command that makes a log."""
    return [*LAB, "synth", "--transfers", str(millions * 10**6), "--seed", str(SEED)]


def scale(results: Results, runs: int) -> None:
    """Sessions for three gaps, and circuits, by the commands of a user."""
    for repetition in range(runs):
        for millions in MILLIONS:
            name = f"{millions} million"
            if results.has("scale", name, repetition):
                continue
            directory = made(millions)
            gaps = [word for gap in ("0s", "1m", "2m") for word in ("--gap", gap)]
            each, _ = run([*LAB, "sessions", str(directory), *gaps, "--json"])
            other, _ = run([*LAB, "circuits", str(directory), "--json"])
            size = sum(path.stat().st_size for path in directory.glob("day=*/*.parquet"))
            results.add(
                {
                    "row": "scale",
                    "contender": name,
                    "repetition": repetition,
                    "sessions_s": each["seconds"],
                    "circuits_s": other["seconds"],
                    "seconds": each["seconds"] + other["seconds"],
                    "most_bytes": max(each["most_bytes"], other["most_bytes"]),
                    "parquet_bytes": size,
                }
            )


def imports(results: Results, runs: int) -> None:
    """The import of a log into an empty directory."""
    lines = made_lines(COMPARED)
    for repetition in range(runs):
        if results.has("import", "lines", repetition):
            continue
        with tempfile.TemporaryDirectory(dir=WORK) as out:
            cost, _ = run([*LAB, "import", str(lines), "--out", f"{out}/transfers"])
        size = lines.stat().st_size
        results.add({"row": "import", "contender": "lines", "repetition": repetition, "bytes": size, **cost})


def compared(results: Results, runs: int) -> None:
    """The same analysis by the lab's functions and by pandas, in turn; whether the answers are the same."""
    directory = str(made(COMPARED))
    for repetition in range(runs):
        if all(results.has("pandas", name, repetition) for name in PANDAS):
            continue
        answer: Any = None
        for name, command in PANDAS.items():
            cost, said = run([*command, directory])
            told = json.loads(said)
            answer = answer or told["answer"]
            if results.has("pandas", name, repetition):
                continue
            results.add(
                {
                    "row": "pandas",
                    "contender": name,
                    "repetition": repetition,
                    "analysis_s": told["seconds"],
                    "same": same(answer, told["answer"]),
                    **cost,
                }
            )


def same(ours: Any, theirs: Any) -> bool:
    """Whether two answers agree: whole numbers exactly, others to nine digits."""
    if isinstance(ours, dict):
        return ours.keys() == theirs.keys() and all(same(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(ours, float):
        return math.isclose(ours, theirs, rel_tol=1e-9)
    return bool(ours == theirs)


def of_scale(results: Results) -> str:
    """The table of sizes, and its verdicts."""
    rows, times, held = [], {}, 0
    for millions in MILLIONS:
        found = results.of("scale", f"{millions} million")
        if not found:
            rows.append([f"{millions} million", *["not measured"] * 6])
            continue
        times[millions] = median(each["seconds"] for each in found)
        held = max(each["most_bytes"] for each in found)
        rows.append(
            [
                f"{millions} million",
                f"{found[0]['parquet_bytes'] / 1e9:.2f} GB",
                *(spread(each[name] for each in found) for name in ("sessions_s", "circuits_s", "seconds")),
                f"{millions / times[millions]:.1f} million/s",
                gib(held),
            ]
        )
    head = ["transfers", "Parquet", "sessions, s", "circuits, s", "both, s", "transfers/s", "most memory"]
    parts = [page.table(head, rows)]
    if MILLIONS[-1] in times:
        parts.append(
            f"100 million within {MOST_SECONDS:.0f} s: **{verdict(times[MILLIONS[-1]] <= MOST_SECONDS)}**; "
            f"within 4 GiB: **{verdict(held <= MOST_BYTES)}**."
        )
    for before, after in ((MILLIONS[0], MILLIONS[-1]), (MILLIONS[1], MILLIONS[-1])):
        if before in times and after in times:
            ratio = times[after] / times[before] / (after / before)
            parts.append(
                f"From {before} to {after} million the time grows {ratio:.2f} times as much as the log "
                f"(at most {MOST_OF_LINEAR}): **{verdict(ratio <= MOST_OF_LINEAR)}**."
            )
    return "\n\n".join([*parts, "![seconds against transfers](logs.svg)"])


def of_import(results: Results) -> str:
    """What the import took."""
    found = results.of("import")
    if not found:
        return "Not measured."
    count = COMPARED * 10**6
    rates = [count / each["seconds"] for each in found]
    return (
        f"{count:,} lines of a GridFTP server ({found[0]['bytes'] / 1e9:.2f} GB) in "
        f"{spread(each['seconds'] for each in found)} s: **{median(rates):,.0f} lines/s** "
        f"({min(rates):,.0f} to {max(rates):,.0f}), with "
        f"{gib(max(each['most_bytes'] for each in found))}. At least {LEAST_LINES_A_SECOND:,}: "
        f"**{verdict(median(rates) >= LEAST_LINES_A_SECOND)}**."
    )


def of_pandas(results: Results) -> str:
    """Our time beside those of pandas."""
    rows = []
    times: dict[str, tuple[float, float]] = {}
    first: tuple[float, float] | None = None
    for name in PANDAS:
        found = results.of("pandas", name)
        if not found:
            return "Not measured."
        process, analysis = (median(each[of] for each in found) for of in ("seconds", "analysis_s"))
        first = first or (process, analysis)
        times[name] = process / first[0], analysis / first[1]
        rows.append(
            [
                name,
                spread((each["seconds"] for each in found), digits=2),
                f"{times[name][0]:.1f}",
                spread((each["analysis_s"] for each in found), digits=2),
                f"{times[name][1]:.1f}",
                gib(max(each["most_bytes"] for each in found)),
                "yes" if all(each["same"] for each in found) else "no",
            ]
        )
    head = [
        "analysis by", "process, s", "times ours", "of it the analysis, s", "times ours", "most memory",
        "same answer",
    ]  # fmt: skip
    verdicts = [
        f"{name}: at least {LEAST_TIMES_FASTER:.0f} times ours: of the analysis "
        f"**{verdict(analysis >= LEAST_TIMES_FASTER)}**, of the process "
        f"**{verdict(process >= LEAST_TIMES_FASTER)}**"
        for name, (process, analysis) in list(times.items())[1:]
    ]
    return f"{page.table(head, rows)}\n\n{'; '.join(verdicts)}."


def spread(values: Iterable[float], digits: int = 1) -> str:
    """The median, and the range where there are several."""
    each = sorted(values)
    middle = f"{median(each):.{digits}f}"
    return middle if len(each) == 1 else f"{middle} ({each[0]:.{digits}f} to {each[-1]:.{digits}f})"


def gib(held: int) -> str:
    """Memory for a person."""
    return f"{held / 2**30:.2f} GiB"


def verdict(held: bool) -> str:
    """Whether a bar holds."""
    return "it holds" if held else "it does not hold"


def draw(results: Results, path: Path) -> None:
    """Time against size, beside what is linear."""
    found = {each: results.of("scale", f"{each} million") for each in MILLIONS}
    sizes = [each for each in MILLIONS if found[each]]
    times = [median(run["seconds"] for run in found[each]) for each in sizes]
    figure = Figure(figsize=(5.2, 3.7), layout="constrained")
    panel = figure.add_subplot()
    panel.loglog(sizes, times, "o-", label="sessions and circuits")
    panel.loglog(
        sizes, [times[-1] * each / sizes[-1] for each in sizes], ":", color="#444444", label="linear"
    )
    panel.axhline(MOST_SECONDS, color="#bb3333", linewidth=0.8, label="the bar for 100 million")
    panel.set_xlabel("million transfers")
    panel.set_ylabel("seconds")
    panel.legend()
    figure.savefig(path, metadata={"Date": None})


ROWS = {"scale": scale, "import": imports, "pandas": compared}


def main() -> None:
    """Measures what is not measured yet, and writes the page."""
    wanted = asked("Measure analyses of large logs; write bench/logs.md.", list(ROWS), RUNS)
    results = Results(path=WORK / "results.jsonl")
    if wanted.again:
        results.forget(wanted.rows)
    if not wanted.page:
        for name in wanted.rows:
            ROWS[name](results, wanted.repetitions)
    path = Path(__file__).with_suffix(".md")
    if results.of("scale"):
        draw(results, path.with_suffix(".svg"))
    page.write(
        path,
        title="Can a national laboratory's logs be analysed on two cores?",
        question=(
            "Synthetic logs (`farlink lab logs synth`) of up to 100 million transfers. The bars, set "
            f"beforehand: sessions and circuits of 100 million in under {MOST_SECONDS:.0f} s and 4 GiB, the "
            f"time from 1 to 100 million within {MOST_OF_LINEAR} of linear, import of at least "
            f"{LEAST_LINES_A_SECOND:,} lines/s, and {LEAST_TIMES_FASTER:.0f} times as fast as pandas on 10 "
            "million. Seconds are medians of all runs, with their range, from the start of a process to its "
            "end."
        ),
        command="make bench-logs",
        machine=results.machine,
        body=f"## Sessions for three gaps, and circuits with their sensitivity\n\n{of_scale(results)}\n\n"
        f"## Import\n\n{of_import(results)}\n\n"
        f"## Beside pandas, {COMPARED} million transfers\n\n{of_pandas(results)}",
    )


if __name__ == "__main__":
    main()
