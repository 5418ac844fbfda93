"""What a single loss takes from a window and how the window grows again, beside what is published.

A loss counts where one segment was sent again and the next loss is far enough away to see the window grow.
Windows are in segments, times in seconds, growth in segments a round trip; what is published is each law's
`source`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from farlink_lab.profile import Profile
    from farlink_lab.records import Record

Array = NDArray[np.float64]

# IPv4's header, TCP's and its timestamps: what a packet carries besides payload, bytes.
HEADERS = 52
# The loss is repaired a round trip after it was noticed, and a sample may come a little late.
SETTLING_ROUNDS = 1.25
# Growth is judged over no less.
LEAST_ROUNDS = 8.0
# Losses closer than this belong together and are no single ones.
APART_ROUNDS = 4.0
# Laws that go round by round are followed so far: seconds of work.
MOST_ROUNDS = 1_000_000
# RFC 7323, 2.3: no window has more bytes, so that no round trip adds so many segments.
MOST_SEGMENTS = 2**30

# RFC 9438, 4.6 and 5: what a loss leaves, and the cubic's steepness, segments a second cubed.
CUBIC_LEFT, CUBIC_C = 0.7, 0.4
# T. Kelly, CCR 33(2), 2003: a hundredth of a segment for each one acknowledged.
SCALABLE_STEP = 0.01


class LossError(ValueError):
    """A window's trace, or an RTT, that no loss can be seen in."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WindowTrace:
    """One stream's window against time.

    Attributes:
        t_s: Shape (n,), growing.
        segments: Shape (n,): the window.
        srtt_s: Shape (n,): the smoothed round-trip time.
        retransmits: Shape (n,): segments sent again so far.
    """

    t_s: Array
    segments: Array
    srtt_s: Array
    retransmits: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    """From one single loss to the next: windows in segments, times in seconds of the trace."""

    noticed_s: float
    repaired_s: float
    end_s: float
    rtt_s: float
    before: float
    after: float
    end: float
    peak: float
    """What CUBIC takes for the window that was too much."""

    @property
    def taken(self) -> float:
        """The share of the window that the loss took."""
        return 1 - self.after / self.before

    @property
    def rounds(self) -> float:
        """Round trips that it grew for."""
        return (self.end_s - self.repaired_s) / self.rtt_s

    @property
    def growth(self) -> float:
        """Segments that a round trip added."""
        return (self.end - self.after) / self.rounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """What is published of a congestion control.

    Attributes:
        taken: What a loss takes, for a person.
        growth: Segments that a round trip adds in a cycle, on average.
        source: Where it is published.
    """

    taken: str
    growth: Callable[[Cycle], float]
    source: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LossCourse:
    """What single losses did to one configuration at one RTT.

    Attributes:
        trace: The run that `shown` is of.
        cycles: Of all runs; at least one.
        shown: The cycle that took the median share.
        late: Whether the emulator fell behind in every run there.
    """

    label: str
    congestion: str
    rtt_s: float
    trace: WindowTrace
    cycles: tuple[Cycle, ...]
    shown: Cycle
    late: bool = False

    @property
    def law(self) -> Law | None:
        """What is published of its congestion control; `None` where a loss is nothing to that."""
        return LAWS.get(self.congestion)

    @property
    def taken(self) -> float:
        """The share of the window that a loss took: the median."""
        return median(cycle.taken for cycle in self.cycles)

    @property
    def growth(self) -> float:
        """Segments that a round trip added: the median."""
        return median(cycle.growth for cycle in self.cycles)

    @property
    def growth_published(self) -> float | None:
        """The same by what is published, from the windows that the losses left.

        `None` where nothing is, or it would be no window after so many round trips.
        """
        law = self.law
        if law is None or max(cycle.rounds for cycle in self.cycles) > MOST_ROUNDS:
            return None
        try:
            grown = median(law.growth(cycle) for cycle in self.cycles)
        except OverflowError:
            return None
        return grown if grown <= MOST_SEGMENTS else None


def loss_courses(profiles: Iterable[Profile]) -> tuple[LossCourse, ...]:
    """One for each configuration and RTT with single losses, in the order of `profiles`.

    Connections that were asked for no loss have none: what a full queue drops comes by the dozen.

    Args:
        profiles: Whose records have windows in `tcp`, those of one stream.
    """
    found = []
    for profile in profiles:
        for rtt_s, group, late in zip(profile.rtt_s, profile.records, profile.late, strict=True):
            seen = [
                (trace, cycle)
                for record in group
                if rtt_s > 0 and record.fields.get("loss") and (trace := window_trace(record)) is not None
                for cycle in single_losses(trace, rtt_s=float(rtt_s))
            ]
            if seen:
                ordered = sorted(seen, key=lambda pair: pair[1].taken)
                trace, shown = ordered[len(ordered) // 2]
                found.append(
                    LossCourse(
                        label=profile.label,
                        congestion=group[0].congestion or "",
                        rtt_s=float(rtt_s),
                        trace=trace,
                        cycles=tuple(cycle for _, cycle in seen),
                        shown=shown,
                        late=bool(late),
                    )
                )
    return tuple(found)


def window_trace(record: Record) -> WindowTrace | None:
    """The window of a record's only stream, segments against seconds.

    `None` where it has more streams, or none whose columns are finite, of one length, in the order of time,
    and of windows above 0.
    """
    streams: Any = record.fields.get("tcp")
    if not isinstance(streams, list) or len(streams) != 1 or record.mtu is None:
        return None
    try:
        columns = [
            np.array(streams[0][name], dtype=np.float64)
            for name in ("t_s", "cwnd_bytes", "srtt_s", "retransmits")
        ]
    except (KeyError, TypeError, ValueError):
        return None
    shapes = {column.shape for column in columns}
    if len(shapes) != 1 or columns[0].ndim != 1 or not all(np.isfinite(column).all() for column in columns):
        return None
    t_s, window, srtt_s, retransmits = columns
    if (np.diff(t_s) < 0).any() or (window <= 0).any():
        return None
    return WindowTrace(
        t_s=t_s, segments=window / (record.mtu - HEADERS), srtt_s=srtt_s, retransmits=retransmits
    )


def single_losses(trace: WindowTrace, *, rtt_s: float) -> tuple[Cycle, ...]:
    """The cycles of losses of one segment.

    Args:
        trace: Of one stream, n samples.
        rtt_s: τ, the connection's own, s.

    Returns:
        Those that took one segment and grew for `LEAST_ROUNDS` round trips, in order.

    Raises:
        LossError: where τ is not finite or not above 0, or the trace is none.
    """
    _check(trace, rtt_s=rtt_s)
    again = np.diff(trace.retransmits)
    noticed: list[int] = []
    segments: list[float] = []
    for at in (int(before) + 1 for before in np.flatnonzero(again > 0)):
        if noticed and trace.t_s[at] - trace.t_s[noticed[-1]] < APART_ROUNDS * rtt_s:
            segments[-1] += again[at - 1]
        else:
            noticed.append(at)
            segments.append(float(again[at - 1]))
    peaks = cubic_peaks([float(trace.segments[at - 1]) for at in noticed])
    cycles = []
    for index in range(1, len(noticed) - 1):
        at, following = noticed[index], noticed[index + 1]
        rtt = float(np.median(trace.srtt_s[at:following])) or rtt_s
        repaired = int(np.searchsorted(trace.t_s, trace.t_s[at] + SETTLING_ROUNDS * rtt))
        last = following - 1
        long_enough = repaired < last and trace.t_s[last] - trace.t_s[repaired] >= LEAST_ROUNDS * rtt
        if segments[index] == 1 and long_enough:
            cycles.append(
                Cycle(
                    noticed_s=float(trace.t_s[at]),
                    repaired_s=float(trace.t_s[repaired]),
                    end_s=float(trace.t_s[last]),
                    rtt_s=rtt,
                    before=float(trace.segments[at - 1]),
                    after=float(trace.segments[repaired]),
                    end=float(trace.segments[last]),
                    peak=peaks[index],
                )
            )
    return tuple(cycles)


def _check(trace: WindowTrace, *, rtt_s: float) -> None:
    if not (math.isfinite(rtt_s) and rtt_s > 0):
        raise LossError(f"an RTT of {rtt_s:g} s: it must be finite and above 0")
    columns = (trace.t_s, trace.segments, trace.srtt_s, trace.retransmits)
    if len({column.shape for column in columns}) != 1 or not all(np.isfinite(each).all() for each in columns):
        raise LossError("a trace has columns of one length, all finite")
    if (np.diff(trace.t_s) < 0).any() or (trace.segments <= 0).any():
        raise LossError("a trace is in the order of time, and its windows are above 0")


def cubic_peaks(windows: Sequence[float]) -> list[float]:
    """W_max of RFC 9438 after each loss; whole, as Linux's.

    Args:
        windows: At which the losses were noticed, in order, segments.

    Returns:
        As many, segments.
    """
    peaks: list[float] = []
    for window in windows:
        # 4.7, fast convergence: who lost before reaching the last peak makes room for others.
        early = bool(peaks) and window < peaks[-1]
        peaks.append(float(math.floor(window * (1 + CUBIC_LEFT) / 2)) if early else window)
    return peaks


def scalable_growth(cycle: Cycle) -> float:
    """Scalable TCP (Kelly 2003): a hundredth of the window a round trip; mean segments a round trip."""
    return cycle.after * math.expm1(cycle.rounds * math.log1p(SCALABLE_STEP)) / cycle.rounds


def cubic_growth(cycle: Cycle) -> float:
    """CUBIC (RFC 9438, 4.2 and 4.3): along the cubic through the last window, no slower than Reno's average.

    Mean segments a round trip.
    """
    peak = max(cycle.peak, cycle.after)
    plateau_s = math.cbrt((peak - cycle.after) / CUBIC_C)
    seconds = cycle.end_s - cycle.repaired_s
    by_time = peak + CUBIC_C * (seconds - plateau_s) ** 3
    # 4.3: what Reno would reach with the same decrease.
    by_rounds = cycle.after + 3 * (1 - CUBIC_LEFT) / (1 + CUBIC_LEFT) * cycle.rounds
    return (max(by_time, by_rounds) - cycle.after) / cycle.rounds


def htcp_growth(cycle: Cycle) -> float:
    """H-TCP (Leith and Shorten 2004) as Linux computes it (tcp_htcp.c): mean segments a round trip.

    By the time since the loss, in whole numbers, scaled by RTT and by β.
    """
    left = min(max(1 - cycle.taken, 0.5), 102 / 128)
    # Eighths of 0.1 s a round trip.
    scale = min(max(int(8 * 0.1 / cycle.rtt_s), 4), 80)
    grown = 0.0
    for turn in range(int(cycle.rounds)):
        later = max((cycle.repaired_s - cycle.noticed_s) / 2 + turn * cycle.rtt_s - 1, 0.0)
        factor = 1 + int(10 * later + (later / 2) ** 2)
        grown += 2 * (1 - left) * max(8 * factor // scale, 1)
    return grown / int(cycle.rounds)


LAWS = {
    "cubic": Law(taken="30%", growth=cubic_growth, source="RFC 9438"),
    "htcp": Law(
        taken="20 to 50%, as the round-trip time varies",
        growth=htcp_growth,
        source="Leith and Shorten, 2004, as Linux's tcp_htcp.c",
    ),
    "scalable": Law(taken="12.5%", growth=scalable_growth, source="Kelly, 2003"),
}


def span_s(courses: Sequence[LossCourse]) -> float:
    """How long after its loss the longest cycle that is shown ends, seconds."""
    return max((course.shown.end_s - course.shown.noticed_s for course in courses), default=0.0)
