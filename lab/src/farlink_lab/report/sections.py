"""The sections of the page, each for a reader who knows none of the papers."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING, Any

from farlink_lab import words
from farlink_lab.places import PLAN_COPY, RECORDS
from farlink_lab.profile import counted_lines, label_of
from farlink_lab.quantity import show_rate, show_size, show_time
from farlink_lab.report import judgement, losses, markup

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from farlink_lab.findings import Findings, Refusal
    from farlink_lab.plot.palette import Look
    from farlink_lab.records import Record
    from farlink_lab.shape import Shape
    from farlink_lab.winners import Winners

_MODES = {
    "size": (
        "Fixed size",
        "Throughput of transfers of a given size, timed until the last byte has arrived.",
        (
            "Each large mark is the median of the runs of one configuration at one round-trip time (RTT); "
            "the bar spans its slowest and fastest run, small marks are every run. The dotted line is the "
            "limit: no transfer of that size can finish sooner than half a round trip plus the time that its "
            "bytes take on the wire."
        ),
    ),
    "duration": (
        "Fixed duration",
        "Throughput of transfers that go on for a given time; only bytes that arrived within it count.",
        (
            "As above, for transfers of a given duration: a longer one hides more of its slow beginning, so "
            "these curves cannot be compared with those of a fixed size. The dotted line is the limit: what "
            "the wire carries, less the half round trip that the first byte takes."
        ),
    ),
}
_BENDS_LATE = (
    " A bend marked late has a late point in it or beside it: only its shape is told, and nothing on how "
    "sure it is."
)
_BENDS = {"concave": "⌒ concave", "convex": "⌣ convex", "straight": "straight", "undecided": "undecided"}
_BENDS_EXPLAINED = (
    "A concave profile stays high and falls late; a convex one falls at once. At each RTT between the first "
    "and the last, a profile is concave where it lies above the straight line between its two neighbours "
    "(RTT on a linear axis), convex where below; the percentage says how far. With several runs a point, a "
    "bend is claimed where the spread of the runs makes less, anywhere, of 95% of straight profiles; the "
    "smaller number is of how many it does. With one run a point there is no spread to judge by, so only the "
    "shape is told, and less than 1% counts as straight."
)


_MAP = (
    "A Poincaré map: the throughput of each interval of the run chosen above against that of the interval"
    " before it, after ramp-up. On the dashed line nothing changes from one to the next. A tight cluster "
    "is a steady transfer, a cloud a restless one, a curve a rule by which each sample follows from the "
    "last. The Lyapunov exponent is the mean logarithm of that curve's slope: below 0 a disturbance fades"
    " from sample to sample, above 0 it grows. Where a sample foretells nothing of the next there is no "
    "curve, and none is told; noise in the samples flattens the slope, so that what is told is at best a "
    "lower bound. The scatter is how far samples lie from the curve, or from their mean, as a share of "
    "that mean."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Where the records were, what made the page, and how its figures for a paper are called.

    There are none where no run counts.
    """

    place: Path
    records: Path
    command: str
    figures: tuple[str, ...] = ()


def body(
    findings: Findings,
    looks: Mapping[str, Look],
    runs: Sequence[Mapping[str, Any]],
    *,
    drawn: AbstractSet[str],
    context: Context,
    won: Winners | Refusal,
) -> str:
    """Everything between the page's first heading and its footer."""
    parts = [
        _head(findings, context),
        (
            f'<div class="bar">{markup.legend(looks)}'
            f'<div class="switches">{markup.switch("x", name="RTT axis")}'
            f"{markup.switch('y', name='vertical axis')}</div></div>"
        ),
        *(
            _mode(findings, mode, looks, drawn=drawn)
            for mode in ("size", "duration")
            if findings.of_mode(mode)
        ),
        judgement.phases(findings, drawn=drawn),
        judgement.winners(won),
        _traces(runs),
        losses.section(findings.losses, looks),
        _cost(findings, looks, drawn=drawn),
        _health(findings, drawn=drawn),
        _runs(findings, looks),
        _footer(context),
    ]
    return "\n".join(part for part in parts if part)


def _head(findings: Findings, context: Context) -> str:
    plans = sorted({plan for record in findings.records if (plan := _lab(record).get("plan"))})
    title = f"Throughput profiles: {', '.join(plans)}" if plans else "Throughput profiles"
    parts = [
        f"<h1>{escape(title)}</h1>",
        markup.paragraph(
            "How fast memory moves over a long dedicated connection, against its length", kind="subtitle"
        ),
        markup.items(words.headlines(findings), kind="headlines"),
        markup.facts(_facts(findings.records, context)),
    ]
    if context.figures:
        parts.append(
            f"<noscript><p class='warning'>The figures need scripts; {escape(context.figures[0])} beside "
            "this page has the profiles.</p></noscript>"
        )
    if findings.broken:
        parts.append('<div class="warning">')
        parts.append(markup.paragraph("Lines of the records file that are no record, and were skipped:"))
        parts.append(markup.items(str(line) for line in findings.broken))
        parts.append("</div>")
    return "\n".join(parts)


def _facts(records: Sequence[Record], context: Context) -> dict[str, str]:
    hosts = [host for record in records if isinstance(host := record.fields.get("hosts"), dict)]
    machines = {
        f"Linux {end.get('kernel', '?')}, {end.get('cores', '?')} cores"
        for host in hosts
        for end in host.values()
        if isinstance(end, dict)
    }
    started = sorted(record.started for record in records)
    return {
        "Connection": _some(_connection(record) for record in records),
        "Machine": _some(machines),
        "Tools": _some(f"{record.tool} {record.version}" for record in records),
        "Measured": escape(
            f"{started[0][:19].replace('T', ' ')} to {started[-1][:19].replace('T', ' ')} UTC"
        ),
        "Seed": _some(str(seed) for record in records if (seed := record.fields.get("seed")) is not None),
        "Records": markup.code(str(context.records)),
        "Made by": markup.code(context.command) if context.command else "",
    }


def _connection(record: Record) -> str:
    fields = record.fields
    facts = [
        show_rate(record.rate_bps) if record.rate_bps else None,
        f"{fields['framing']} framing" if isinstance(fields.get("framing"), str) else None,
        f"MTU {record.mtu}" if record.mtu else None,
        f"queue of {show_size(queue)}" if isinstance(queue := fields.get("queue_bytes"), int) else None,
        f"loss {100 * loss:g}%" if isinstance(loss := fields.get("loss"), int | float) else None,
        f"other traffic {show_rate(load)}"
        if isinstance(load := fields.get("background_bps"), int) and load
        else None,
    ]
    return ", ".join(fact for fact in facts if fact)


def _some(texts: Any) -> str:
    """Different texts, in order and escaped; the first few where they are many."""
    known = sorted({text for text in texts if text})
    more = f"; and {len(known) - 4} more" if len(known) > 4 else ""
    return escape("; ".join(known[:4]) + more)


def _mode(findings: Findings, mode: str, looks: Mapping[str, Look], *, drawn: AbstractSet[str]) -> str:
    title, lead, caption = _MODES[mode]
    late = judgement.LATE if any(profile.late_points for profile in findings.of_mode(mode)) else ""
    parts = [
        f"<h2>{title}</h2>",
        markup.paragraph(lead),
        markup.figure(f"profile-{mode}", caption=caption + late),
        judgement.regimes(findings, mode, looks, drawn=drawn, late=late),
        _bends(findings, mode, looks),
    ]
    parts.append(judgement.next_transfer(findings, mode, drawn=drawn))
    if f"model-{mode}" in drawn:
        parts += [
            "<h3>Against the model</h3>",
            markup.figure(f"model-{mode}", caption=_model_caption(mode) + late, height=520),
        ]
    return "\n".join(parts)


def _model_caption(mode: str) -> str:
    formula = "B / (B/C + x)" if mode == "size" else "C·(1 − x/T)"
    return (
        "Lines are a model: each stream starts with ten packets, doubles every round trip until "
        "the connection is full, and then stays at its capacity C. Slow start lasts τ·log₂(Cτ/w) at "
        "round-trip time τ with first windows of w in all, and costs x seconds of capacity; the throughput "
        f"is {formula}, with arrivals half a round trip later. Where buffers are small, the window allows no "
        "more than one buffer a stream and round trip; where packets are lost at random, CUBIC, Reno, "
        "H-TCP and Scalable TCP are given what their published response to that loss allows. A declared rate "
        "is held from the first packet on, without slow start: its line is the limit. Marks are "
        "the medians measured. Beneath: by how many percent the measured lies above or below the model. "
        "Queues, losses that follow from them and the congestion control's own mind are what the model "
        "leaves out, so the residual shows what they cost."
    )


def _bends(findings: Findings, mode: str, looks: Mapping[str, Look]) -> str:
    found = [profile for profile in findings.of_mode(mode) if profile.key in findings.shapes]
    if not found:
        return markup.paragraph(
            "Concave or convex cannot be told: that takes at least three RTTs.", kind="note"
        )
    inner = sorted({point.rtt_s for profile in found for point in findings.shapes[profile.key].points})
    rows = [
        markup.row(
            [
                markup.marked_cell(profile.name, looks[profile.label]),
                *_bend_cells(findings.shapes[profile.key], inner),
                markup.cell(
                    words.runs_a_point(findings.shapes[profile.key]),
                    small=f"{len(profile.late)} RTTs, {words.late_of(profile.late)}"
                    if profile.late.any()
                    else "",
                ),
            ]
        )
        for profile in found
    ]
    late = _BENDS_LATE if any(profile.late_points for profile in found) else ""
    first = not (mode == "duration" and findings.of_mode("size"))
    return "\n".join(
        [
            "<h3>Concave and convex regions, as measured</h3>",
            markup.paragraph((_BENDS_EXPLAINED if first else "Told as for the fixed size above.") + late),
            markup.table(["configuration", *(show_time(rtt) for rtt in inner), "from"], rows, kind="bends"),
        ]
    )


def _bend_cells(shape: Shape, rtts: Sequence[float]) -> list[str]:
    by_rtt = {point.rtt_s: point for point in shape.points}
    cells = []
    for rtt in rtts:
        point = by_rtt.get(rtt)
        if point is None:
            cells.append(markup.cell("–"))
            continue
        height = f"{100 * point.height:+.1f}%".replace("-", "−")
        sure = f", more than {int(100 * point.sure)}% of straight" if point.sure is not None else ""
        late = ", late" if point.late else ""
        cells.append(markup.cell(_BENDS[point.bend], kind=point.bend, small=height + sure + late))
    return cells


def _traces(runs: Sequence[Mapping[str, Any]]) -> str:
    if not runs:
        return ""
    options = []
    for group, members in groupby(enumerate(runs), key=lambda pair: str(pair[1]["group"])):
        rows = "".join(
            f'<option value="{index}">{escape(str(run["name"]))}</option>' for index, run in members
        )
        options.append(f'<optgroup label="{escape(group)}">{rows}</optgroup>')
    return "\n".join(
        [
            "<h2>The course of a run</h2>",
            f'<p><select id="run" aria-label="Run">{"".join(options)}</select></p>',
            '<p id="run-said"></p>',
            markup.figure(
                "trace",
                caption="Throughput at the receiver, interval by interval. A transfer first ramps up "
                "(shaded), then sustains (the dashed line is the mean of that phase). The two are split "
                "where a rising line before and a constant after fit the samples best. Beneath, where the "
                "sender's kernel told them, the congestion windows of all streams together: bytes that may "
                "be on their way at once.",
                height=380,
            ),
            "<h3>The map of its sustained samples</h3>",
            '<p id="map-said"></p>',
            markup.figure("poincare", caption=_MAP),
        ]
    )


def _cost(findings: Findings, looks: Mapping[str, Look], *, drawn: AbstractSet[str]) -> str:
    if "cost" not in drawn:
        return ""
    rows = []
    for profile in findings.profiles:
        known = findings.costs.get(profile.key)
        if known is not None:
            numbers = (known.sender, known.receiver, known.both)
            cells = [markup.cell(f"{number:.3f}") for number in numbers]
            rows.append(
                markup.row(
                    [
                        markup.marked_cell(profile.name, looks[profile.label]),
                        *cells,
                        markup.cell(
                            str(known.runs), small=f"{profile.late_runs} late" if profile.late_runs else ""
                        ),
                    ]
                )
            )
    return "\n".join(
        [
            "<h2>CPU per gigabyte</h2>",
            markup.figure(
                "cost",
                caption="CPU seconds, user and system, that sender and receiver together spend on each GB "
                "(10⁹ bytes) that arrives: the median at each RTT. Where little arrives, what every transfer "
                "costs to set up weighs more. Tools report their own CPU time; the emulator's is not in it."
                + (judgement.LATE if findings.late_points else ""),
            ),
            markup.table(
                ["configuration", "sender, s/GB", "receiver, s/GB", "both, s/GB", "runs"], rows, kind="runs"
            ),
        ]
    )


def _health(findings: Findings, *, drawn: AbstractSet[str]) -> str:
    if "health" not in drawn:
        return ""
    return "\n".join(
        [
            "<h2>Health of the emulator</h2>",
            markup.paragraph(words.emulator_sentence(findings)),
            markup.figure(
                "health",
                caption="The connection is emulated: each packet is held until it is due. How late the "
                "packets of a run left, 99 in 100 of them at most, is the mark; above the dashed line (0.25 "
                "ms or 1% of the one-way delay, whichever is more) a run says more of the emulator than of "
                "the connection. Such overrun runs are drawn as ×, counted, and left out of the profiles "
                "wherever a configuration has another run at that RTT.",
            ),
        ]
    )


def _runs(findings: Findings, looks: Mapping[str, Look]) -> str:
    counted = counted_lines(findings.profiles)
    ordered = sorted(findings.records, key=lambda record: (record.started, record.line))
    rows = [
        _run_row(number, record, looks, counted=record.line in counted)
        for number, record in enumerate(ordered, start=1)
    ]
    head = ["run", "configuration", "RTT", "moved", "in", "throughput", "sent again", "outcome", "notes"]
    uncounted = len(findings.records) - len(counted)
    return "\n".join(
        [
            "<h2>Every run</h2>",
            (
                f"<details{' open' if uncounted else ''}><summary>{len(findings.records)} runs, {uncounted} "
                "of them in no profile</summary>"
            ),
            markup.table(head, rows, kind="runs"),
            "</details>",
        ]
    )


def _run_row(number: int, record: Record, looks: Mapping[str, Look], *, counted: bool) -> str:
    notes = [record.error or ""]
    if record.overrun:
        notes.append("the emulator fell behind" + (": late, in its profile" if counted else ""))
    if record.limit_bps is not None:
        notes.append(f"--limit held it to {show_rate(record.limit_bps)}")
    elif record.outcome == "ok" and not counted and not record.overrun:
        notes.append("a later record of the same run replaces it, or its duration or RTT is unknown")
    label = label_of(record)
    cells = [
        markup.cell(str(number)),
        f'<td class="words">{markup.mark(looks[label])} {escape(label)}</td>',
        markup.cell(show_time(record.rtt_s) if record.rtt_s is not None else "–"),
        markup.cell(show_size(record.bytes)),
        markup.cell(f"{record.duration_s:.3f} s" if record.duration_s is not None else "–"),
        markup.cell(show_rate(record.throughput_bps) if record.throughput_bps is not None else "–"),
        markup.cell(str(record.retransmits) if record.retransmits is not None else "–"),
        markup.cell(record.outcome),
        markup.cell("; ".join(note for note in notes if note), kind="reason"),
    ]
    return markup.row(cells, kind="" if counted else "bad")


def _footer(context: Context) -> str:
    again = f"farlink lab report {shlex.quote(str(context.place))}"
    plan = context.records.with_name(PLAN_COPY)
    # Records of another name are of no campaign, whatever stands beside them.
    is_planned = context.records.name == RECORDS and plan.is_file()
    if is_planned:
        again = f"farlink lab profile {shlex.quote(str(plan))} --out ANOTHER_DIR\n{again}"
    paper = " and ".join(f"<code>{escape(name)}</code>" for name in context.figures)
    return (
        f"<footer><p>To {'measure again, and to ' if is_planned else ''}make this page again:</p>"
        f"<pre><code>{escape(again)}</code></pre>"
        + (f"<p>The same profiles for a paper: {paper} beside this page.</p>" if paper else "")
        + "</footer>"
    )


def _lab(record: Record) -> Mapping[str, Any]:
    lab = record.fields.get("lab")
    return lab if isinstance(lab, dict) else {}
