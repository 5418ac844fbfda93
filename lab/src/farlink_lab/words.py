"""What the findings say, in sentences that claim no more than was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from farlink_lab.findings import Refusal
from farlink_lab.quantity import show_rate, show_time
from farlink_lab.utilization import ABOVE_CAPACITY

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from farlink_lab.dynamics import Dynamics
    from farlink_lab.findings import Findings
    from farlink_lab.phases import PhasesAt
    from farlink_lab.profile import LeftOut, Profile
    from farlink_lab.regimes import Regimes
    from farlink_lab.shape import Region, Shape
    from farlink_lab.utilization import Utilization

_MODES = {"size": "Fixed size", "duration": "Fixed duration"}


def headlines(findings: Findings) -> list[str]:
    """The sentences at the top of the report, the most important first."""
    sentences = [scope(findings)]
    if findings.late_points:
        sentences.append(emulator_sentence(findings))
    sentences += [f"{one.name}: {one.above_capacity}." for one in findings.profiles if one.above_capacity]
    for mode in ("size", "duration"):
        sentences += _spans(findings, mode)
    sentences += [said for profile in findings.profiles if (said := model_sentence(findings, profile))]
    sentences += comparisons(findings)
    sentences += loss_sentences(findings)
    sentences.append(left_out_sentence(findings.left_out))
    return [sentence for sentence in sentences if sentence]


def scope(findings: Findings) -> str:
    """How much was measured, and over what."""
    counted = sum(profile.runs for profile in findings.profiles)
    if not findings.profiles:
        return "No run can be counted: see the table of runs for the reasons."
    rtts = np.unique(np.concatenate([profile.rtt_s for profile in findings.profiles]))
    late = f" ({findings.late_runs} of them late)" if findings.late_runs else ""
    sentence = (
        f"{_count(counted, 'run')}{late} of {_count(len(findings.profiles), 'configuration')} at "
        f"{_count(len(rtts), 'RTT')} from {show_time(rtts[0])} to {show_time(rtts[-1])}"
    )
    rates = {record.rate_bps for record in findings.records if record.rate_bps}
    goodputs = {profile.capacity_bps for profile in findings.profiles if profile.capacity_bps}
    if len(rates) == 1 and goodputs:
        left = show_rate(max(goodputs))
        sentence += f", over a connection of {show_rate(rates.pop())}, which leaves {left} for payload"
    return sentence + "."


def emulator_sentence(findings: Findings) -> str:
    """In how many runs the emulator fell behind, and what became of them; empty where none is known."""
    known, overrun, late = findings.judged_runs, findings.overrun_runs, findings.late_points
    if not known:
        return ""
    if not overrun:
        return f"The emulator kept up in all {known} runs whose lateness is known."
    said = f"The emulator fell behind in {overrun} of {_count(known, 'run')}"
    stolen = findings.stolen_s
    if stolen:
        said += f", while this virtual machine's host gave {stolen:.3g} s of its processors' time to others"
    if not late:
        return f"{said}: those are in no profile."
    them = "is late and drawn hollow: it says" if late == 1 else "are late and drawn hollow: they say"
    return (
        f"{said}. Where an RTT had a run without that, only such runs count; {_count(late, 'point')} had "
        f"none and {them} as much of this machine as of the connection."
    )


def profile_sentence(profile: Profile, shape: Shape | None) -> str:
    """The profile of one configuration in a sentence."""
    medians, rtts = profile.median_bps, profile.rtt_s
    if len(rtts) == 1:
        return f"{profile.name}: {show_rate(medians[0])} at {show_time(rtts[0])}{late_mark(profile, 0)}."
    sentence = (
        f"{profile.name}: {show_rate(medians[0])} at {show_time(rtts[0])}{late_mark(profile, 0)}, "
        f"{show_rate(medians[-1])} at {show_time(rtts[-1])}{late_mark(profile, -1)}"
    )
    return f"{sentence}; {shape_clause(shape)}." if shape is not None else f"{sentence}."


def shape_clause(shape: Shape) -> str:
    """Where a profile is concave and convex, and how sure: the end of a sentence."""
    if shape.throughout is not None:
        words = f"{_bend(shape.regions[0])} throughout"
    else:
        words = ", ".join(_region(region) for region in shape.regions)
        turns = [f"between {show_time(low)} and {show_time(high)}" for low, high in shape.turns()]
        if turns:
            words += f": it turns convex {' and '.join(turns)}"
    return f"{words} ({certainty(shape)})"


def certainty(shape: Shape) -> str:
    """How sure a shape is, for a person."""
    told = _how_sure(shape)
    if not shape.late:
        return told
    return f"judged on {_count(shape.rtts, 'RTT')}, {shape.late} of them late: {told}"


def _how_sure(shape: Shape) -> str:
    runs = runs_a_point(shape)
    if all(point.bend == "undecided" for point in shape.points):
        return f"{runs}: too much spread to say"
    claimed = [point for point in shape.points if point.bend != "undecided"]
    sure = [point.sure for point in claimed if point.sure is not None]
    if not sure:
        return f"{runs}: shape only"
    least = min(sure)
    share = f"bent more than {_share(least)} of straight profiles of this spread"
    if len(sure) == len(claimed):
        return f"{runs}, each {share}"
    return f"{runs}, away from late RTTs each {share}, the others shape only"


def runs_a_point(shape: Shape) -> str:
    """How many runs each point rests on, for a person."""
    if shape.fewest == shape.most:
        return "one run a point" if shape.most == 1 else f"{shape.most} runs a point"
    return f"{shape.fewest} to {shape.most} runs a point"


def regime_clause(found: Regimes | Refusal) -> str:
    """The regime of a profile and its τ_T: the end of a sentence."""
    if isinstance(found, Refusal):
        return f"not told: {found.reason}"
    regime = found.regime if found.shape.judged else f"{found.regime} (shape only)"
    late = f"; judged on {_count(found.shape.rtts, 'RTT')}, {found.shape.late} of them late"
    late = late if found.shape.late else ""
    if found.sigmoid is None:
        return f"{regime}; no τ_T: {found.reason}{late}" if found.reason else f"{regime}{late}"
    at = f"{regime}, τ_T {show_time(found.sigmoid.transition_s)}"
    if found.transition_s is None:
        return f"{at} ({found.reason}){late}"
    low, high = found.transition_s
    return f"{at} (95%: {show_time(low)} to {show_time(high)}){late}"


def utilization_clause(found: Utilization | Refusal, late: NDArray[np.bool_]) -> str:
    """The three coefficients, which are always told together, and how many of their RTTs are late."""
    if isinstance(found, Refusal):
        return f"not told: {found.reason}"
    return (
        f"C_U {found.under_utilization:.3f}, C_CC {found.convexity:+.3f}, UCC {found.coefficient:.3f} "
        "(our reading)"
    ).replace("-", "−") + late_share(late)


def above_capacity(at: PhasesAt, profile: Profile) -> str:
    """Why a θ_S above the capacity is no throughput of the connection; empty where it is not above."""
    capacity = profile.capacity_bps
    if capacity is None or at.sustained_bps <= (1 + ABOVE_CAPACITY) * capacity:
        return ""
    return (
        f"theta_S is above the capacity of {show_rate(capacity)}: the samples came in bursts that the "
        "connection cannot carry, and their mean is no throughput of it"
    )


def foretold_clause(at: PhasesAt, profile: Profile) -> str:
    """How well the other runs' phases foretell a run, and what is wrong with them."""
    said = ""
    if at.foretold_error is not None and at.spread_error is not None:
        said = (
            f", each run foretold from the others within {100 * at.foretold_error:.1f}% (median), where "
            f"their spread alone leaves {100 * at.spread_error:.1f}%"
        )
    wrong = above_capacity(at, profile)
    return f"{said}{'; ' + wrong if wrong else ''}"


def dynamics_clause(found: Dynamics | Refusal) -> str:
    """The Lyapunov exponent of the sustained samples, or why there is none."""
    if isinstance(found, Refusal):
        return f"not told: {found.reason}"
    scatter = f"scatter {100 * found.scatter:.2g}%, {_count(len(found.current), 'pair')}"
    if found.lyapunov is None:
        return f"{found.reason} ({scatter})"
    return f"Lyapunov exponent {found.lyapunov:+.2f} a step ({scatter})".replace("-", "−")


def model_sentence(findings: Findings, profile: Profile) -> str | None:
    """How far a full-buffer, fixed-duration profile lies from the model of slow start."""
    prediction = findings.predictions.get(profile.key)
    if prediction is None or profile.mode != "duration" or not profile.full_buffers:
        return None
    worst = int(np.argmax(np.abs(prediction.residual)))
    low, high = prediction.residual.min(), prediction.residual.max()
    law = "slow start then capacity" if profile.declared_bps is None else "the limit, as of a declared rate"
    return (
        f"{profile.name}, against {law}: {_signed(low)} to {_signed(high)} of the model, "
        f"farthest at {show_time(profile.rtt_s[worst])}{late_mark(profile, worst)}"
        f"{late_share(profile.late)}."
    )


def comparisons(findings: Findings) -> list[str]:
    """Our mover against each other tool that did the same, RTT by RTT."""
    sentences = []
    for ours in findings.profiles:
        for theirs in findings.profiles:
            if ours.tool == "farlink" and theirs.tool != "farlink" and _alike(ours, theirs):
                # Of what moved nothing there is no ratio.
                shared = [rtt for rtt in ours.rtt_s if rtt in theirs.rtt_s and _median_at(theirs, rtt) > 0]
                ratios = [_median_at(ours, rtt) / _median_at(theirs, rtt) for rtt in shared]
                late = np.array([_late_at(ours, rtt) or _late_at(theirs, rtt) for rtt in shared], dtype=bool)
                if ratios:
                    sentences.append(
                        f"{ours.name}, against {theirs.label}: {min(ratios):.3f} to {max(ratios):.3f} times "
                        f"its throughput, median {np.median(ratios):.3f} over {_count(len(ratios), 'RTT')}"
                        f"{', ' + late_of(late) if late.any() else ''}."
                    )
    return sentences


def loss_sentences(findings: Findings) -> list[str]:
    """What a single loss took from each window that gives way to one, beside what is published."""
    return [
        f"{course.label} at {show_time(course.rtt_s)}{' (late)' if course.late else ''}: a single loss took "
        f"{100 * course.taken:.1f}% of the "
        f"window (published: {law.taken}), which then grew by {course.growth:.2f} segments a round trip "
        f"(published: {published:.2f})."
        for course in findings.losses
        if (law := course.law) is not None and (published := course.growth_published) is not None
    ]


def late_mark(profile: Profile, index: int) -> str:
    """Marks a point of a profile that is late; empty where it is not."""
    return " (late)" if profile.late[index] else ""


def late_at(profile: Profile, rtt_s: float) -> str:
    """Likewise, by its RTT."""
    return late_mark(profile, list(profile.rtt_s).index(rtt_s))


def late_of(late: NDArray[np.bool_]) -> str:
    """How many points are late, for a person: the end of `7 RTTs, `."""
    return "all late" if late.all() else f"{int(late.sum())} of them late"


def left_out_sentence(left_out: LeftOut) -> str:
    """How many runs the profiles do not count, and why."""
    told = _reasons(left_out)
    return f"Left out of every profile, and counted: {', '.join(told)}." if told else ""


def nothing_counts(findings: Findings) -> str:
    """That no run counts, in one line, why, and the mend; empty where one does."""
    if findings.profiles:
        return ""
    return (
        f"no run counts ({', '.join(_reasons(findings.left_out))}), so there is nothing to draw or to tell: "
        "measure with 'farlink lab profile'"
    )


def _reasons(left_out: LeftOut) -> list[str]:
    reasons = [
        (left_out.overrun, "where the emulator fell behind"),
        (left_out.failed, "that failed"),
        (left_out.interrupted, f"that {'was' if left_out.interrupted == 1 else 'were'} interrupted"),
        (left_out.limited, "that --limit held to a rate"),
        (left_out.incomplete, "whose duration or RTT is unknown"),
        (left_out.repeated, "that a later record of the same run replaces"),
    ]
    return [f"{_count(count, 'run')} {reason}" for count, reason in reasons if count]


def _spans(findings: Findings, mode: str) -> list[str]:
    return [
        f"{_MODES[mode]}: {profile_sentence(profile, findings.shapes.get(profile.key))}"
        for profile in findings.of_mode(mode)
    ]


def _alike(ours: Profile, theirs: Profile) -> bool:
    """Whether two profiles differ in the tool alone: the same task, settings and connection."""
    return _task(ours) == _task(theirs)


def _task(profile: Profile) -> tuple[object, ...]:
    first = profile.records[0][0]
    fields = first.fields
    return (
        first.kind,
        # Between memories all is in the clear.
        None if first.kind == "memory" else fields.get("protection"),
        profile.mode,
        profile.amount,
        profile.streams,
        profile.streams_chosen,
        profile.buffer_bytes,
        profile.congestion,
        profile.congestion_chosen,
        profile.rate_bps,
        profile.loss,
        profile.mtu,
        fields.get("framing"),
        fields.get("queue_bytes"),
        fields.get("background_bps") or 0,
    )


def _median_at(profile: Profile, rtt_s: float) -> float:
    return float(profile.median_bps[list(profile.rtt_s).index(rtt_s)])


def _late_at(profile: Profile, rtt_s: float) -> bool:
    return bool(profile.late[list(profile.rtt_s).index(rtt_s)])


def late_share(late: NDArray[np.bool_]) -> str:
    """How many of a profile's RTTs are late: the end of a sentence; empty where none is."""
    return f"; of {_count(len(late), 'RTT')}, {int(late.sum())} late" if late.any() else ""


def _bend(region: Region) -> str:
    return {"straight": "straight (within 1%)", "undecided": "undecided"}.get(region.bend, region.bend)


def _region(region: Region) -> str:
    where = show_time(region.first_s)
    if region.points == 1:
        return f"{_bend(region)} at {where}"
    return f"{_bend(region)} from {where} to {show_time(region.last_s)}"


def _share(share: float) -> str:
    # Rounding down: what is told is never more than what was found.
    return f"{int(100 * share)}%"


def _signed(ratio: float) -> str:
    return f"{100 * ratio:+.1f}%".replace("-", "−")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
