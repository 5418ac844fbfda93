"""Do the findings of the studies hold here? Writes bench/findings.md.

`bench/findings.py` measures the plans of `CAMPAIGNS`, one after the other, in about 80 minutes; with names of
plans, those alone. What was measured stays in target/findings and is not measured again; the page has the
verdict of every campaign that is whole there, and of the others what it had before.
"""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
from farlink_lab.findings import Findings, find
from farlink_lab.plan_file import read_plan
from farlink_lab.quantity import show_size
from farlink_lab.records import read_records
from farlink_lab.regimes import Regimes
from farlink_lab.schedule import schedule
from farlink_lab.utilization import READING
from scipy.stats import binomtest

from support import page
from support.concavity import LEVEL, REGIME_HEAD, RESAMPLES, bounds, convexities, interval, judged, regime_row
from support.connection import FARLINK, ROOT
from support.widening import smoother_is_wider, widens

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from farlink_lab.profile import Profile
    from farlink_lab.records import Record

OUT = ROOT / "target" / "findings"
CAMPAIGNS = ("durations", "buffers", "controls", "shared", "gridftp")
# A client of one thread that leaves less than a tenth of its core is limited by it.
BUSY_CORES = 0.9
# Bytes of a file that takes longer than a tool's own start.
LARGE = 2_000_000_000
# Throughputs whose ratio is known to lie so near to 1 are as good as equal.
EVEN = 0.02
Spot = tuple[float, int]


def records_of(name: str) -> Findings | None:
    """What the campaign of a plan found; `None` where it was not measured to its end."""
    path = OUT / name / "records.jsonl"
    if not path.exists():
        return None
    reading = read_records(path)
    meant = {run.identity for run in schedule(read_plan(ROOT / "plans" / f"{name}.toml"))}
    return find(reading) if meant <= {record.run for record in reading.records} else None


def two_regimes(*campaigns: Findings) -> tuple[str, str]:
    """Whether full buffers give a profile that is concave, then convex."""
    full = [
        (profile, found) for found in campaigns for profile in found.profiles if profile.buffer_bytes is None
    ]
    rows = [regime_row(profile, found) for profile, found in full]
    told = [found.regimes[profile.key] for profile, found in full]
    regimes = [(one.regime, judged(one)) for one in told if isinstance(one, Regimes)]
    turned = regimes.count(("concave then convex", True))
    shaped = regimes.count(("concave then convex", False))
    if turned == len(told):
        verdict = "holds, in every configuration"
    elif turned:
        verdict = f"holds in {turned} of {len(told)} configurations"
    elif regimes.count(("all convex", True)) == len(told):
        verdict = "does not hold: convex throughout"
    else:
        verdict = "not shown: no configuration turns from concave to convex at the level of 5%"
    if shaped:
        verdict += (
            f"; {shaped} of {len(told)} {'has' if shaped == 1 else 'have'} that shape alone, with too few "
            "runs away from late RTTs to test it"
        )
    return verdict, page.table(REGIME_HEAD, rows)


def scalable_loses(found: Findings) -> tuple[str, str]:
    """Whether STCP is slower than CUBIC and H-TCP, run by run of one repetition, RTT and streams."""
    rates: dict[str, dict[tuple[Spot, int], float]] = defaultdict(dict)
    for record in counted(found.profiles):
        lab = record.fields["lab"]
        spot = (round(record.rtt_s or 0, 5), record.streams or 1)
        rates[record.congestion or ""][spot, lab["repetition"]] = record.throughput_bps or math.nan
    rows, verdicts = [], []
    for other in ("cubic", "htcp"):
        for streams in sorted({spot[1] for spot, _ in rates["scalable"]}):
            pairs = {
                key: rate / rates[other][key]
                for key, rate in rates["scalable"].items()
                if key in rates[other] and key[0][1] == streams
            }
            if not pairs:
                continue
            logs = np.log(list(pairs.values()))
            low, high = np.exp(resampled(logs))
            slower = int((logs < 0).sum())
            chance = float(binomtest(slower, len(logs), alternative="greater").pvalue)
            worst = min(pairs, key=lambda key: pairs[key])[0][0]
            rows.append(
                [
                    f"{other} ×{streams}",
                    f"{math.exp(logs.mean()):.3f} ({low:.3f}-{high:.3f})",
                    f"{slower} of {len(logs)}",
                    f"{chance:.1e}",
                    f"{1e3 * worst:g} ms",
                ]
            )
            verdicts.append(standing_to(f"{other} ×{streams}", low, high))
    told = sorted({kind for kind, _ in verdicts})
    verdict = {
        (): "not measured: no two runs of one repetition count",
        ("loses",): "holds",
        ("wins",): "does not hold: STCP is the faster",
        ("is even",): f"does not hold: STCP is as fast, within {100 * EVEN:g}%",
        ("differs by less than is told",): "not shown",
    }.get(tuple(told), "mixed: it " + "; it ".join(said for _, said in verdicts))
    head = ["STCP against", "ratio, geometric mean (95%)", "pairs that lose", "p (sign test)", "worst at"]
    medians = [
        [f"{profile.label}", ", ".join(f"{rate / 1e9:.2f}" for rate in profile.median_bps)]
        for profile in found.profiles
    ]
    return verdict, page.table(head, rows) + "\n\n" + page.table(["configuration", "medians, Gb/s"], medians)


def standing_to(other: str, low: float, high: float) -> tuple[str, str]:
    """What an interval of the ratio to another says: in a word, and of whom."""
    if low >= 1 - EVEN and high <= 1 + EVEN:
        kind = "is even"
        return kind, f"is as fast as {other}, within {100 * EVEN:g}%"
    kind = "loses" if high < 1 else "wins" if low > 1 else "differs by less than is told"
    said = {"loses": "loses to", "wins": "wins against"}.get(kind, "differs by less than is told from")
    return kind, f"{said} {other}"


def counted(profiles: Iterable[Profile]) -> list[Record]:
    """The runs that profiles count."""
    return [record for profile in profiles for group in profile.records for record in group]


def resampled(values: np.ndarray) -> tuple[float, float]:
    """A 95% bootstrap interval of the mean."""
    draw = np.random.default_rng(1)
    means = draw.choice(values, (RESAMPLES, len(values))).mean(axis=1)
    low, high = np.quantile(means, [LEVEL / 2, 1 - LEVEL / 2])
    return float(low), float(high)


def shared_is_convex(alone: Findings, shared: Findings) -> tuple[str, str]:
    """Whether other traffic makes convex what is concave on a connection of its own."""
    rows: list[list[str]] = []
    turned, clear, less = [], [], []
    others = {profile.label: profile for profile in shared.profiles}
    for profile in alone.profiles:
        other = others.get(profile.label)
        if other is None:
            continue
        rows.append(["dedicated", *regime_row(profile, alone)])
        rows.append(["shared", *regime_row(other, shared)])
        before, after = alone.regimes[profile.key], shared.regimes[other.key]
        if isinstance(before, Regimes) and isinstance(after, Regimes):
            tested = judged(before) and judged(after)
            turned.append(tested and before.regime in CONCAVE_FIRST and after.regime == "all convex")
        drawn, loaded = convexities(profile, seed=1), convexities(other, seed=2)
        if drawn is None or loaded is None:
            clear.append(False)
            continue
        grown = loaded - drawn
        low, high = bounds(grown)
        clear.append(low > 0)
        less.append(high < 0)
        rows.append(
            [
                "shared − dedicated",
                profile.label,
                *[""] * 3,
                f"{grown.mean():+.3f} ({interval(grown)})",
                *[""] * 3,
            ]
        )
    if turned and all(turned):
        verdict = "holds"
    elif clear and all(clear):
        verdict = "holds in part: C_CC grows in every configuration, the regime does not turn in all"
    elif any(clear):
        verdict = f"mixed: C_CC grows clearly in {sum(clear)} of {len(clear)} configurations"
    elif less and all(less):
        verdict = "does not hold: C_CC falls, clearly, in every configuration"
    else:
        verdict = "not shown: C_CC does not clearly grow"
    return verdict, page.table(["connection", *REGIME_HEAD], rows) + "\n\n" + SHARED_CAPACITY


SHARED_CAPACITY = (
    "C is what the wire leaves for payload in both: the other traffic is not subtracted, so that what it "
    "takes counts as unused."
)
CONCAVE_FIRST = ("all concave", "concave then convex")


def client_is_the_limit(found: Findings) -> tuple[str, str]:
    """Whether GridFTP's client is out of CPU before its server is, and whether -fast relieves it."""
    runs: dict[tuple[str, int, float], list[Record]] = defaultdict(list)
    for record in counted(found.profiles):
        if record.cpu_s is not None and record.duration_s:
            label = str(record.fields["lab"]["configuration"]).split(",")[0].strip()
            runs[label, record.bytes, round(record.rtt_s or 0.0, 5)].append(record)
    rows = []
    load: dict[tuple[str, int, float], tuple[float, float]] = {}
    for (label, size, rtt), own in sorted(runs.items()):
        ends = np.array([record.cpu_s for record in own])
        seconds = np.array([record.duration_s for record in own])[:, None]
        client, server = np.median(ends / seconds, axis=0)
        load[label, size, rtt] = (float(client), float(server))
        cost = np.median(ends / (size / 1e9), axis=0)
        rate = median((record.throughput_bps or 0.0) / 1e9 for record in own)
        rows.append(
            [
                label,
                show_size(size),
                f"{1e3 * rtt:g} ms",
                str(len(own)),
                f"{rate:.2f}",
                f"{client:.2f}",
                f"{server:.2f}",
                f"{cost[0]:.3f}",
                f"{cost[1]:.3f}",
            ]
        )
    # Small files are over before anything is a limit.
    plain = [
        ends for (label, size, _), ends in load.items() if label == "GridFTP no options" and size >= LARGE
    ]
    first = bool(plain) and all(client > server for client, server in plain)
    busy = bool(plain) and all(client >= BUSY_CORES for client, _ in plain)
    cheaper, faster = against_fast(runs)
    limit = (
        "the client is out of CPU first"
        if first and busy
        else "the client spends more CPU than the server, and is not out of it"
        if first
        else "the server spends more CPU than the client"
    )
    relieved = (
        "-fast costs the client clearly less CPU a byte"
        if cheaper[1] < 1
        else "-fast costs no less CPU a byte"
    )
    gain = "and is clearly faster" if faster[0] > 1 else "and is not clearly faster"
    holds = first and busy and (cheaper[1] < 1 or faster[0] > 1)
    verdict = f"{'holds' if holds else 'does not hold as stated'}: {limit}; {relieved}, {gain}"
    head = ["tool", "size", "RTT", "runs", "Gb/s", "client, cores", "server, cores"]
    head += ["client, CPU s/GB", "server, CPU s/GB"]
    beside = (
        f"-fast over none, pairs of one size from {show_size(LARGE)} on, RTT and repetition, geometric mean "
        "(95%): client's CPU a byte "
        f"{math.sqrt(cheaper[0] * cheaper[1]):.2f} ({cheaper[0]:.2f}-{cheaper[1]:.2f}), throughput "
        f"{math.sqrt(faster[0] * faster[1]):.2f} ({faster[0]:.2f}-{faster[1]:.2f}). Files are in memory, so "
        "that no disk is the limit. The "
        "row `farlink` is `farlink memory`, which moves as much from memory to memory, and no files."
    )
    return verdict, page.table(head, rows) + "\n\n" + beside


def against_fast(
    runs: Mapping[tuple[str, int, float], Sequence[Record]],
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Intervals of client's CPU a byte, and of throughput, with -fast over without."""
    cost: dict[bool, dict[tuple[int, float, int], tuple[float, float]]] = {True: {}, False: {}}
    for (label, size, rtt), own in runs.items():
        if not label.startswith("GridFTP") or size < LARGE:
            continue
        for record in own:
            key = (size, rtt, record.fields["lab"]["repetition"])
            spent = (record.cpu_s or (math.nan, math.nan))[0] / size
            cost["-fast" in label][key] = (spent, record.throughput_bps or math.nan)
    both = [(cost[True][key], cost[False][key]) for key in cost[True] if key in cost[False]]
    if not both:
        return (math.nan, math.nan), (math.nan, math.nan)
    ratios = [np.log([fast[which] / plain[which] for fast, plain in both]) for which in (0, 1)]
    cheaper, faster = (tuple(np.exp(resampled(each))) for each in ratios)
    return (float(cheaper[0]), float(cheaper[1])), (float(faster[0]), float(faster[1]))


def verdicts(standing: Mapping[str, str]) -> list[str]:
    """A section for every finding.

    Args:
        standing: Sections of the page as it was, by title: they stay where a campaign's records are gone.

    """
    durations, buffers, controls, shared, gridftp = map(records_of, CAMPAIGNS)
    asked = (
        (
            "1. Two regimes with full buffers",
            "durations buffers",
            durations and buffers and two_regimes(durations, buffers),
        ),
        (
            "3. Larger buffers and more streams widen the concave region",
            "buffers",
            buffers and widens(buffers),
        ),
        (
            "5. STCP loses to CUBIC and H-TCP with several streams",
            "controls",
            controls and scalable_loses(controls),
        ),
        (
            "6. Smoother Poincaré maps go with wider concavity",
            "buffers",
            buffers and smoother_is_wider(buffers),
        ),
        (
            "7. Shared connections are convex where dedicated ones are concave",
            "buffers shared",
            buffers and shared and shared_is_convex(buffers, shared),
        ),
        (
            "8. CPU limits GridFTP's client first, and -fast relieves it",
            "gridftp",
            gridftp and client_is_the_limit(gridftp),
        ),
    )
    parts = []
    for title, plans, found in asked:
        parts.append(f"## {title}")
        if not found and title in standing:
            parts.append(standing[title])
            continue
        if not found:
            parts.append(f"Not measured: `.venv/bin/python bench/findings.py {plans}`.")
            continue
        measured = [each for name in plans.split() if (each := records_of(name))]
        late = sum(each.overrun_runs for each in measured)
        total = sum(len(each.records) for each in measured)
        failed = sum(each.left_out.failed for each in measured)
        of = " and ".join(f"`plans/{name}.toml`" for name in plans.split())
        said = (
            f"{total} runs of {of}: {failed} failed, in {late} the emulator was late; a late run counts only "
            "where an RTT has no other."
        )
        parts += [f"**{found[0][0].upper()}{found[0][1:]}.**", found[1], said]
    return parts


def sections(text: str, *, dated: str) -> dict[str, str]:
    """What a page says under each heading, and of when it is; without what was not measured."""
    found = {}
    for section in re.split("^## ", text, flags=re.MULTILINE)[1:]:
        title, _, said = section.partition("\n")
        kept = said.strip()
        if kept and not kept.startswith("Not measured"):
            found[title] = kept if KEPT in kept else f"{kept}\n\n{KEPT} of {dated}."
    return found


KEPT = "Measured before: it stands as on the page"


def main() -> None:
    """Measures what is asked for, and writes the page."""
    machine = page.machine()
    names = sys.argv[1:] or list(CAMPAIGNS)
    unknown = [name for name in names if name not in CAMPAIGNS]
    if unknown:
        sys.exit(
            f"{unknown[0]} is no campaign of this bench: name some of {', '.join(CAMPAIGNS)}, or none for all"
        )
    path = Path(__file__).with_suffix(".md")
    text = path.read_text() if path.exists() else ""
    dated = re.search(r"^- Date: (.*)$", text, re.MULTILINE)
    for name in names:
        plan = ROOT / "plans" / f"{name}.toml"
        campaign = [FARLINK, "lab", "profile", str(plan), "--out", str(OUT / name)]
        # 1: some runs failed, which the page counts.
        if (status := subprocess.run(campaign, check=False).returncode) not in (0, 1):
            sys.exit(status)
    page.write(
        path,
        title="Do the findings of the studies hold here?",
        question="Findings of [the list](../docs/findings.md), each by a campaign of its own, judged at a "
        "level of 5%. *Shape only* is what bends by 1% or more where too few runs that were not late could "
        f"test it: no verdict counts it. {READING}",
        command="make bench-findings",
        machine=machine,
        body="\n\n".join(verdicts(sections(text, dated=dated[1] if dated else "an earlier day"))),
    )


if __name__ == "__main__":
    main()
