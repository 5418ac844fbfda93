"""The window in which a fixed-duration run counts: from the first byte's leave, for the time that was asked.

iperf3's and nuttcp's receivers start their clocks half a round trip before the first byte may leave and
count until the last has arrived, half a round trip or more after the time is over. Ours counts what has
arrived within the time and no more; theirs is cut to the same window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from farlink_lab.movers.mover import MoverError

if TYPE_CHECKING:
    from collections.abc import Sequence

# An interval may end a little early by the tool's own timer.
SLACK_S = 0.02


def within(
    samples: Sequence[Sequence[float]], *, starts_s: float, duration_s: float
) -> list[list[float]] | None:
    """The samples of the window, on its clock.

    Args:
        samples: `[end, bytes]` of each interval of the receiver, end in seconds on its clock, in order.
        starts_s: When the window starts on that clock; what is counted before belongs to its first interval.
        duration_s: How long the window is. Of an interval across its end, the share of its time counts.

    Returns:
        Samples whose last ends at `duration_s`, or `None` where the receiver's intervals end before.
    """
    cut: list[list[float]] = []
    early, began = 0.0, 0.0
    for end, moved in samples:
        ends = end - starts_s
        if ends <= 0:
            early += moved
            continue
        if ends >= duration_s:
            share = (duration_s - began) / (ends - began)
            return [*cut, [duration_s, round(early + moved * share)]]
        cut.append([ends, round(early + moved)])
        early, began = 0.0, ends
    if cut and cut[-1][0] >= duration_s - SLACK_S:
        cut[-1][0] = duration_s
        return cut
    return None


def fields_within(
    samples: Sequence[Sequence[float]],
    *,
    moved: int,
    cpu_s: dict[str, float] | None,
    rtt_s: float,
    duration_s: float,
) -> dict[str, Any]:
    """What a record counts of a tool whose receiver's clock starts τ/2 before the first byte may leave.

    Args:
        samples: `[end, bytes]` of each interval of the receiver.
        moved: All bytes that it counted, of which `cpu_s` is the cost.
        cpu_s: CPU seconds of both ends, whose share by bytes is the window's.
        rtt_s: The connection's RTT.
        duration_s: The time that was asked.

    Raises:
        MoverError: where the intervals end before the window does.
    """
    cut = within(samples, starts_s=rtt_s / 2, duration_s=duration_s)
    if cut is None:
        last = samples[-1][0] if samples else 0.0
        raise MoverError(
            f"its receiver's intervals end after {last:g} s, before the {duration_s:g} s that were asked"
        )
    counted = int(sum(arrived for _, arrived in cut))
    fields: dict[str, Any] = {"duration_s": duration_s, "bytes": counted, "samples": cut}
    if cpu_s and moved:
        fields["cpu_s"] = {end: spent * counted / moved for end, spent in cpu_s.items()}
    return fields
