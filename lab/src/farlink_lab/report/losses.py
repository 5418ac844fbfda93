"""The section of the page on single losses, for a reader who knows no congestion control."""

from __future__ import annotations

from typing import TYPE_CHECKING

from farlink_lab.quantity import show_time
from farlink_lab.report import markup

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from farlink_lab.plot.palette import Look
    from farlink_lab.single_loss import LossCourse

_LEAD = (
    "The window is how much may be on its way at once, unacknowledged; a transfer cannot be faster than one "
    "window a round trip. Here the connection loses single packets, far apart, and the question is what a "
    "congestion control makes of each: how much of its window it gives up, and how fast it takes that back."
)
_CAPTION = (
    "Above: each window through a whole run; the beginning is slow start, and each notch is a lost packet. "
    "Beneath: one loss of each, all drawn from the moment that the sender noticed it, with the window just "
    "before as 100%: the step down is what the loss takes, the slope after it the growth, to the next loss. "
    "CUBIC, H-TCP and Scalable TCP read a loss as a sign that the connection is full, and give way. BBR and "
    "circuit do not: BBR holds back for the one round trip of the repair and then goes on as before (its "
    "deeper notches above are its own: now and then it empties the line to measure the round trip), circuit "
    "only sends the packet again."
)
_TABLE = (
    "Taken: the median share of the window, the range of all losses beneath. Growth: segments that a round "
    "trip adds on average from the repair to the next loss; by what is published, from the same window and "
    "for the same time. For H-TCP that is Linux's form, with the share that each loss was seen to take."
)


def section(courses: Sequence[LossCourse], looks: Mapping[str, Look]) -> str:
    """What single losses did; empty where there were none."""
    if not courses:
        return ""
    head = ["configuration", "RTT", "losses", "taken", "published", "growth", "published", "ratio"]
    rows = [markup.row(_cells(course, looks[course.label])) for course in courses]
    return "\n".join(
        [
            "<h2>What one loss does</h2>",
            markup.paragraph(_LEAD),
            markup.figure("losses", caption=_CAPTION, height=640),
            markup.paragraph(_TABLE, kind="note"),
            markup.table(head, rows, kind="runs"),
        ]
    )


def _cells(course: LossCourse, look: Look) -> list[str]:
    shares = [cycle.taken for cycle in course.cycles]
    cells = [
        markup.marked_cell(course.label, look),
        markup.cell(show_time(course.rtt_s), small="late" if course.late else ""),
        markup.cell(str(len(course.cycles))),
    ]
    law, published = course.law, course.growth_published
    if law is None:
        none = [markup.cell("–")] * 3
        cells += [markup.cell(_percent(course.taken)), markup.cell("not taken for congestion", kind="words")]
        return [*cells, *none]
    return [
        *cells,
        markup.cell(_percent(course.taken), small=f"{_percent(min(shares))} to {_percent(max(shares))}"),
        markup.cell(law.taken, kind="words", small=law.source),
        markup.cell(f"{course.growth:.2f}"),
        markup.cell("–" if published is None else f"{published:.2f}"),
        markup.cell(f"{course.growth / published:.2f}" if published else "–"),
    ]


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%".replace("-", "−")
