"""Does advice from 15% of a sweep find what the whole sweep finds? Writes bench/advice.md.

Replays sweeps that were measured: `bench/advice.py DIR…`, or without DIR the one of `plans/sizes.toml`
(about 35 minutes, which it measures first where that was not done; it goes on where it was interrupted) and
that of `make bench-memory`, where there is one. An RTT is held out; among the others `farlink lab search`
chooses its probes, each a run of the sweep; `farlink lab advise` answers for the RTT that was held out, and
what it advises is compared with the best of all configurations there. Where a sweep has several sizes, all
probes are of one, each of them in turn, and the answers are for the others: those are held out, too, and
each is judged by runs of its own size.

Which is best is chosen by one half of the runs and judged, as what was advised is, by the other: the highest
of several medians of a few noisy runs lies above what its own configuration reaches again.
"""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
from farlink_lab.advice import CLAIM, Adviser
from farlink_lab.choice import Choice, Task
from farlink_lab.expectation import expected_bps
from farlink_lab.ground import AdviceError

from support import page
from support.connection import FARLINK, ROOT
from support.sweep import HALVINGS, Probes, Sweep, scattered, searched, sweeps

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from numpy.typing import NDArray

PLAN = ROOT / "plans" / "sizes.toml"
OUT, MEMORY = ROOT / "target" / "bench-advice", ROOT / "target" / "bench-memory"
# The bars of the question.
SHARE, GOOD, OFTEN = 0.15, 0.95, 0.90
SEEDS = 20
# Of the sweep's runs, for the curve.
SHARES = (0.03, 0.06, 0.09, 0.12, SHARE)
RESAMPLES = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One answer: what was advised reaches so much of the best.

    Attributes:
        rtt_s: That was held out.
        task: That was asked for.
        probed: What the probes did; `None` where they did what is asked for, about.
        seed: Of the draw of runs.
        ratio: By `Sweep.reach`.
        naive: By `Sweep.naive_reach`.
        inside: The share of the runs of what was advised that lie in its interval; `None` without one.

    """

    rtt_s: float
    task: Task
    probed: Task | None
    seed: int
    ratio: float
    naive: float
    inside: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What was advised, and the interval that came with it."""

    choice: Choice
    low_bps: float | None = None
    high_bps: float | None = None


def advised(probes: Probes, rtt_s: float) -> Answer | None:
    """What is advised by the probes; `None` where they tell nothing."""
    try:
        best = Adviser(probes.ground, probes.task).advice(rtt_s, extrapolate=True).best
    except AdviceError:
        return None
    return Answer(choice=best.choice, low_bps=best.low_bps, high_bps=best.high_bps)


Choose = Callable[[Sweep, float, Task, int], Mapping[int, Answer | None]]


def cases(replayed: Sequence[Sweep], choose: Choose, *, seeds: int = SEEDS) -> dict[int, list[Case]]:
    """What `choose` gives for every sweep, inner RTT, task and seed, by the number of probes."""
    found: dict[int, list[Case]] = {}
    for sweep in replayed:
        for rtt in map(float, sweep.ground.rtt_s[1:-1]):
            for task in sweep.tasks(rtt):
                reach, naive = sweep.reach(rtt, task), sweep.naive_reach(rtt, task)
                rates = sweep.rates_bps(rtt, task)
                for seed in range(seeds):
                    for count, answer in choose(sweep, rtt, task, seed).items():
                        ratio, plain = (
                            told.get(answer.choice, 0.0) if answer else 0.0 for told in (reach, naive)
                        )
                        inside = held(answer, rates.get(answer.choice, ())) if answer else None
                        case = Case(
                            rtt_s=rtt,
                            task=task,
                            probed=sweep.probed,
                            seed=seed,
                            ratio=ratio,
                            naive=plain,
                            inside=inside,
                        )
                        found.setdefault(count, []).append(case)
    return found


def held(answer: Answer, rates_bps: Sequence[float]) -> float | None:
    """The share of runs that an answer's interval holds; `None` without an interval or a run."""
    if answer.low_bps is None or answer.high_bps is None or not rates_bps:
        return None
    return float(np.mean([answer.low_bps <= rate <= answer.high_bps for rate in rates_bps]))


def by_probes(take: Callable[[Probes], Iterator[None]], counts: Collection[int]) -> Choose:
    """Advice from so many probes, taken so; the fewer are the first of the more."""

    def choose(sweep: Sweep, rtt_s: float, task: Task, seed: int) -> Mapping[int, Answer | None]:
        probes = Probes(sweep, held_out=rtt_s, task=task, seed=seed)
        taken = itertools.islice(take(probes), max(counts))
        return {count: advised(probes, rtt_s) for count, _ in enumerate(taken, 1) if count in counts}

    return choose


def by_model(sweep: Sweep, rtt_s: float, task: Task, seed: int) -> Mapping[int, Answer | None]:
    """The model alone; where it has several as the best, one of them by chance."""
    wire, choices = sweep.ground.measured, sweep.ground.choices
    rates = [float(expected_bps(each, np.array([rtt_s]), task=task, wire=wire)[0]) for each in choices]
    best = [each for each, rate in zip(choices, rates, strict=True) if rate >= max(rates) * 0.9999]
    return {0: Answer(choice=random.Random(f"{seed} {rtt_s} {task}").choice(best))}


def reached(found: Sequence[Case]) -> float:
    """The share of answers that reach the bar."""
    return float(np.mean([case.ratio >= GOOD for case in found]))


def interval(found: Sequence[Case], less: Sequence[Case] = ()) -> tuple[float, float]:
    """A 95% bootstrap interval of `reached`, or of what is left of it after `less`' share.

    Draws are drawn again, and held-out RTTs: answers at one RTT stand and fall together.
    """
    random_ = np.random.default_rng(1)
    seeds = sorted({case.seed for case in found})
    rtts = sorted({case.rtt_s for case in found})

    def table(answers: Sequence[Case]) -> NDArray[np.float64]:
        return np.array(
            [[reached([c for c in answers if (c.seed, c.rtt_s) == (s, r)]) for r in rtts] for s in seeds]
        )

    shares = table(found) - (table(less) if less else 0.0)
    drawn = [
        shares[np.ix_(random_.choice(len(seeds), len(seeds)), random_.choice(len(rtts), len(rtts)))].mean()
        for _ in range(RESAMPLES)
    ]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(low), float(high)


def row(name: str, runs: str, found: Sequence[Case]) -> list[str]:
    """One way to choose, with its interval."""
    low, high = interval(found)
    ratios = [case.ratio for case in found]
    naive = float(np.mean([case.naive >= GOOD for case in found]))
    inside = [case.inside for case in found if case.inside is not None]
    return [
        name,
        runs,
        f"{100 * reached(found):.0f}% ({100 * low:.0f}-{100 * high:.0f})",
        f"{100 * naive:.0f}%",
        f"{median(ratios):.3f}",
        f"{min(ratios):.3f}",
        f"{100 * float(np.mean(inside)):.0f}% of {len(inside)}" if inside else "",
        str(len(found)),
    ]


def always(choice: Choice) -> Choose:
    """The same for every question."""
    return lambda _sweep, _rtt_s, _task, _seed: {0: Answer(choice=choice)}


def fixed(replayed: Sequence[Sweep]) -> list[list[str]]:
    """Every configuration, if it were always taken: how hard the question is."""
    choices = replayed[0].ground.choices
    found = [(choice, cases(replayed, always(choice), seeds=1)[0]) for choice in choices]
    found.sort(key=lambda each: -reached(each[1]))
    return [row(f"always {choice.name}", "all, in hindsight", own) for choice, own in found[:3]]


def split(found: Sequence[Case], name: str, key: Callable[[Case], str]) -> str:
    """The answers by RTT or by task."""
    values = list(dict.fromkeys(key(case) for case in found))
    rows = []
    for value in values:
        own = [case for case in found if key(case) == value]
        ratios = [case.ratio for case in own]
        rows.append([value, f"{100 * reached(own):.0f}%", f"{median(ratios):.3f}", f"{min(ratios):.3f}"])
    return page.table([name, "reach 95%", "median of best", "worst"], rows)


def body(replayed: Sequence[Sweep], *, called: str) -> str:
    """What the page says of one sweep, replayed once for each size that probes may do."""
    sweep = replayed[0]
    spots, counted = len(sweep.records), sweep.ground
    few, more = int(SHARE * spots), int(SHARE * sweep.runs)
    counts = sorted({few, *(int(share * sweep.runs) for share in SHARES)})
    searches = cases(replayed, by_probes(searched, counts))
    at_random = cases(replayed, by_probes(scattered, counts))
    rows = [
        *(row("search", f"{count} ({100 * count / sweep.runs:.1f}%)", searches[count]) for count in counts),
        *(row("probes at random", f"{count}", at_random[count]) for count in (few, more)),
        row("the model alone", "0", cases(replayed, by_model)[0]),
        *fixed(replayed),
    ]
    late = sum(record.overrun for runs in sweep.all.values() for record in runs)
    lone = sum(len(runs) == 1 for runs in sweep.records.values())
    inner = len(counted.rtt_s) - 2
    asked = ", ".join(
        dict.fromkeys(
            task.shown for one in replayed for rtt in counted.rtt_s[1:-1] for task in one.tasks(float(rtt))
        )
    )
    judged = (
        "All probes do one of these sizes, each of them in turn, and the others are asked for: no probe is "
        "of a size that is asked for. What reaches how much of the best is told by runs of the size alone."
        if sweep.probed
        else "What reaches how much of the best is told by the runs there; where a configuration ran for "
        "another time, by those."
    )
    verdicts = ["holds" if reached(searches[count]) >= OFTEN else "does not hold" for count in (few, more)]
    low, high = interval(searches[more], searches[few])
    of_each = f" of each of {len(replayed)} sizes" if sweep.probed else ""
    sweep_said = (
        f"The sweep: {called}; {len(counted.choices)} configurations of `farlink` at "
        f"{len(counted.rtt_s)} RTTs are {spots} cells{of_each}, {sweep.runs} runs{of_each} that count, "
        f"{late} of all late. {lone} cells have a lone run."
    )
    bar = (
        f"Bar: what is advised reaches {100 * GOOD:.0f}% of the best in {100 * OFTEN:.0f}% of the answers, "
        f"from probes of at most {100 * SHARE:.0f}%. Of the cells, a run a probe, that is {few} probes: **it "
        f"{verdicts[0]}**. Of the runs that is {more}: **it {verdicts[1]}**. More probes: "
        f"{100 * (reached(searches[more]) - reached(searches[few])):+.0f} points from {few} to {more} "
        f"({100 * low:+.0f} to {100 * high:+.0f}, paired by draw and RTT)."
    )
    method = (
        f"Each of the {inner} inner RTTs is held out in turn: no probe is there. Asked is for "
        f"{asked}, with {SEEDS} draws of which run of a cell a probe sees. {judged}"
    )
    parts = [
        sweep_said,
        bar,
        method,
        page.table(
            [
                "chosen by",
                "probes (of runs)",
                "reach 95%",
                "naively",
                "median of best",
                "worst",
                "in interval",
                "answers",
            ],
            rows,
        ),
        *(
            table
            for count in (few, more)
            for table in (
                split(
                    searches[count], f"held-out RTT, {count} probes", lambda case: f"{1e3 * case.rtt_s:g} ms"
                ),
                split(searches[count], f"task, {count} probes", shown),
            )
        ),
    ]
    return "\n\n".join(parts)


def shown(case: Case) -> str:
    """What was asked for, and from what it was told."""
    return f"{case.task.shown} from {case.probed.shown}" if case.probed else case.task.shown


METHOD = (
    "Which configuration is best at the held-out RTT is chosen by one half of the runs there, and both it "
    f"and what was advised are judged by the other; the geometric mean over {HALVINGS} halvings must be "
    f"{100 * GOOD:.0f}%. *Naively* is against the highest median of all runs, which is too high: it is the "
    "highest of several by luck, too. *In interval* is the share of the runs of what was advised, at the "
    f"held-out RTT, that lie in the interval that came with the advice, which claims {100 * CLAIM:.0f}%, and "
    "how many answers have one: what lies beyond a configuration's own probes has none. "
    "Intervals here are of 95%, by a bootstrap over the draws and over the held-out RTTs, as answers at one "
    "RTT stand and fall together: they say what luck in the probes and in the RTTs does, not what another "
    "machine's sweep would."
)


def main() -> None:
    """Measures the sweep where none is named, replays it, and writes the page."""
    machine = page.machine()
    directories = [Path(name) for name in sys.argv[1:]]
    command = " ".join([".venv/bin/python bench/advice.py", *sys.argv[1:]])
    if not directories:
        command = "make bench-advice"
        directories = [OUT, *([MEMORY] if (MEMORY / "records.jsonl").exists() else [])]
        subprocess.run([FARLINK, "lab", "profile", str(PLAN), "--out", str(OUT)], check=False)
    parts = [METHOD]
    for directory in directories:
        replayed = sweeps(directory)
        records = [record for runs in replayed[0].all.values() for record in runs]
        plans = sorted({str(record.fields["lab"]["plan"]) for record in records})
        begun = min(record.started for record in records)[:16].replace("T", " ")
        parts += [
            f"## The sweep of {begun}",
            body(replayed, called=f"`plans/{', '.join(plans)}.toml`, begun at {begun} (UTC)"),
        ]
    page.write(
        Path(__file__).with_suffix(".md"),
        title="Does advice from 15% of a sweep find what the whole sweep finds?",
        question="A sweep that was measured is replayed: `farlink lab search` chooses its probes among the "
        "sweep's runs, and `farlink lab advise` answers for an RTT at which nothing was probed.",
        command=command,
        machine=machine,
        body="\n\n".join(parts),
    )


if __name__ == "__main__":
    main()
