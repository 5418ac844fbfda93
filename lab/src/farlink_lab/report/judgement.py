"""The sections that judge a profile: its regimes, its coefficients, and the phases of its runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from farlink_lab import words
from farlink_lab.findings import Refusal
from farlink_lab.quantity import show_rate, show_time
from farlink_lab.report import markup
from farlink_lab.utilization import READING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from farlink_lab.findings import Findings
    from farlink_lab.plot.palette import Look
    from farlink_lab.profile import Profile
    from farlink_lab.winners import Winners

# What the decomposition of a run must meet.
FORETOLD_WITHIN = 0.02
# Of a figure with hollow marks.
LATE = (
    " Hollow marks are late: the emulator fell behind in every run there, so they say as much of its machine "
    "as of the connection."
)
_REGIMES = (
    "Where each profile is concave (purple: it stays high and falls late), convex (orange: it falls at "
    "once), straight (dark) or undecided (grey: the runs spread too much to tell). Marks are the means of"
    " the runs, and bars through them bootstrap bands of 95% of the means, where runs were repeated. Where "
    "a profile is concave at first and convex from some RTT on, that is its transition "
    "RTT τ_T, and the line is a dual sigmoid fitted to the means: one branch that bends down until τ_T, "
    "one that bends up after it, joined there. Other lines are the fit that never rises with RTT. "
    "Beneath, a row for each configuration, in the order of the table and begun by its mark: the bend at "
    "each RTT by itself, judged against the straight line between the neighbouring RTTs; the diamond is "
    "τ_T, and the bar through it its 95% interval (bootstrap). A row may leave undecided, RTT by RTT, "
    "what all RTTs together decide."
)
_COEFFICIENTS = (
    "τ_T: the RTT at which a profile turns from concave to convex, with its 95% interval. C_U, from 0 to "
    "1, is the share of the connection that is left unused, averaged over the RTTs from the first to the "
    "last; C_CC is how far the profile lies below the straight line between its ends (positive: convex) "
    "or above it (negative: concave); UCC puts the two into one number from 0 to 1. "
)
_LAST = " T_R and θ_S: ramp-up and sustained throughput at the longest RTT whose samples tell them."
_PHASES = (
    "A transfer ramps up for a time T_R (above) and then sustains a throughput θ_S (beneath); medians of "
    "the runs at each RTT. A longer ramp-up costs a short transfer more than a long one; a sustained "
    "throughput that falls with RTT costs both. The thin dotted lines are the ramp-up of slow start "
    "alone, which doubles every round trip from ten packets a stream. With f_R the share of the time that"
    " ramp-up takes and θ_R its mean throughput, a transfer has Θ = θ_S − f_R(θ_S − θ_R). For a run's own"
    " phases that is an identity, which says nothing for them; so each run is foretold from the phases of"
    " the other runs at its RTT."
)


def regimes(
    findings: Findings, mode: str, looks: Mapping[str, Look], *, drawn: AbstractSet[str], late: str
) -> str:
    """The regimes of a mode's profiles, drawn, and what follows from them in numbers."""
    parts = ["<h3>Regimes</h3>"]
    if f"regimes-{mode}" in drawn:
        parts.append(markup.figure(f"regimes-{mode}", caption=_REGIMES + late, height=520))
    head = ["configuration", "regime", "τ_T", "C_U", "C_CC", "UCC", "T_R", "θ_S"]
    rows = [_row(findings, profile, looks[profile.label]) for profile in findings.of_mode(mode)]
    parts += [
        markup.table(head, rows, kind="runs"),
        markup.paragraph(_COEFFICIENTS + READING + _LAST, kind="note"),
    ]
    return "\n".join(parts)


_WINNERS = (
    "The configuration with the highest predicted throughput, for each round-trip time and size of a "
    "transfer; both axes are logarithmic, and the RTTs that were measured are marked beneath. Between them "
    "the prediction is the model's, times what the runs showed of the model (a Gaussian process carries it). "
    "Where others come within 2% of the winner, as pointing at a cell tells, the colour means little. For "
    "one RTT and size, with its interval and its reasons: farlink lab advise."
)
_EXTRAPOLATED = (
    " Cells with a cross are extrapolated: the winner there was measured at shorter RTTs alone or at longer "
    "ones alone, and nothing bounds how far its prediction errs."
)
_TOLD_BY_OTHERS = (
    " Not every configuration was measured at all these sizes: a run tells of another size by how far it was "
    "from the model of its own. The farther a size lies from those of the runs, the less they say of it."
)


_NEXT = (
    "Where the next transfer lies, at any RTT between two that were measured: in the box, with at least the "
    "probability that pointing at it tells, 80% where the runs suffice. That assumes only that a longer RTT "
    "never helps, and nothing of how throughputs spread: boxes are wide where runs are few. Marks are "
    "medians."
)
_NEXT_LATE = " Late RTTs bound nothing and are left out."


def next_transfer(findings: Findings, mode: str, *, drawn: AbstractSet[str]) -> str:
    """The intervals of the next transfer, drawn; why there is none where that is so."""
    name = f"next-{mode}"
    parts = ["<h3>The next transfer</h3>"]
    if name in drawn:
        late = any(profile.late_points for profile in findings.of_mode(mode))
        parts.append(markup.figure(name, caption=_NEXT + (_NEXT_LATE if late else "")))
    refused = [
        f"{profile.name}: not told: {found.reason}."
        for profile in findings.of_mode(mode)
        if isinstance(found := findings.intervals[profile.key], Refusal)
    ]
    if refused:
        parts.append(markup.items(refused))
    return "\n".join(parts)


def phases(findings: Findings, *, drawn: AbstractSet[str]) -> str:
    """Ramp-up and sustained throughput against RTT; empty where no samples tell them."""
    if "phases" not in drawn:
        return ""
    known = [(profile, at) for profile in findings.profiles for at in findings.phases_at[profile.key]]
    errors = [at.foretold_error for _, at in known if at.foretold_error is not None]
    good = sum(error <= FORETOLD_WITHIN for error in errors)
    within = (
        f" That meets the measured within 2% (median of the runs) at {good} of {len(errors)} points."
        if errors
        else " With one run a point there are no others."
    )
    beyond = sum(bool(words.above_capacity(at, profile)) for profile, at in known)
    wrong = (
        f" {beyond} of {len(known)} points have a θ_S above the capacity: their samples came in bursts that "
        "the connection cannot carry, so it is no throughput of it."
        if beyond
        else ""
    )
    late = LATE if findings.late_points else ""
    return "\n".join(
        [
            "<h2>Ramp-up and sustainment</h2>",
            markup.figure("phases", caption=_PHASES + within + wrong + late, height=560),
        ]
    )


def winners(won: Winners | Refusal) -> str:
    """Which configuration wins where, or why that is not told."""
    if isinstance(won, Refusal):
        return f"<h2>Which configuration wins where</h2>\n{markup.items([f'Not told: {won.reason}.'])}"
    caption = _WINNERS + (_EXTRAPOLATED if won.extrapolated.any() else "")
    caption += _TOLD_BY_OTHERS if won.told_by_others else ""
    if won.others:
        names = " and ".join(won.others)
        caption += f" Runs of {names} are not in it: it is for choosing how farlink moves data."
    caption += f" Of the runs that it rests on, {won.late_note}." if won.late_note else ""
    return "\n".join(
        [
            "<h2>Which configuration wins where</h2>",
            markup.figure("winners", caption=caption, height=460),
        ]
    )


def _row(findings: Findings, profile: Profile, look: Look) -> str:
    regime, use = findings.regimes[profile.key], findings.utilizations[profile.key]
    cells = [markup.marked_cell(profile.name, look)]
    late = f"{profile.late_points} of {len(profile.late)} RTTs late" if profile.late_points else ""
    if isinstance(regime, Refusal):
        cells += [markup.cell("–", kind="words", small=regime.reason), markup.cell("–")]
    else:
        fitted, interval = regime.sigmoid, regime.transition_s
        cells += [
            markup.cell(
                regime.regime if regime.shape.judged else f"{regime.regime} (shape only)",
                kind="words",
                small="; ".join(part for part in (regime.reason, late) if part),
            ),
            markup.cell("–" if fitted is None else show_time(fitted.transition_s), small=_between(interval)),
        ]
    if isinstance(use, Refusal):
        cells += [markup.cell("–", small=use.reason), markup.cell("–"), markup.cell("–")]
    else:
        cells += [
            markup.cell(f"{value:{sign}.3f}".replace("-", "−"), small=late)
            for value, sign in ((use.under_utilization, ""), (use.convexity, "+"), (use.coefficient, ""))
        ]
    told = findings.phases_at[profile.key]
    if not told:
        return markup.row([*cells, markup.cell("–"), markup.cell("–")])
    at = told[-1]
    where = f"at {show_time(at.rtt_s)}{words.late_at(profile, at.rtt_s)}"
    return markup.row(
        [
            *cells,
            markup.cell(show_time(round(at.ramp_up_s, 2)), small=where),
            markup.cell(show_rate(at.sustained_bps), small=where),
        ]
    )


def _between(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f"{show_time(interval[0])} to {show_time(interval[1])}"
