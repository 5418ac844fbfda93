"""The course of a window under periodic loss, as `probe stream` samples it, and what each loss did to it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# TCP_CA_Open and TCP_CA_Recovery of Linux's tcp.h.
OPEN, RECOVERY = 0, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What the kernel said of the stream at one time."""

    t_s: float
    window: int
    """Segments."""
    state: int
    retransmits: int
    rtt_s: float
    delivered: int
    acknowledgements: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    """From the end of one loss's recovery to the next loss."""

    before: int
    """The window when the loss was noticed, segments."""
    after: int
    """The window when the loss had been repaired."""
    end: int
    """The window when the next loss was noticed."""
    seconds: float
    """From the repair to the next loss."""

    @property
    def left(self) -> float:
        """The share of the window that the loss left."""
        return self.after / self.before

    def growth(self, rtt_s: float) -> float:
        """Segments by which the window grew in a round trip."""
        return (self.end - self.after) * rtt_s / self.seconds

    def relative_growth(self, rtt_s: float) -> float:
        """The share of itself by which the window grew in a round trip."""
        return math.expm1(math.log(self.end / self.after) * rtt_s / self.seconds)


def parse(lines: Sequence[str]) -> list[Sample]:
    """The samples in the lines that `probe stream` printed."""
    samples = []
    for line in lines:
        t_us, window, _, state, again, rtt_us, delivered, received = map(int, line.split())
        samples.append(
            Sample(
                t_s=t_us / 1e6,
                window=window,
                state=state,
                retransmits=again,
                rtt_s=rtt_us / 1e6,
                delivered=delivered,
                acknowledgements=received,
            )
        )
    return samples


def cycles(samples: Sequence[Sample], *, settled_s: float, least_s: float) -> list[Cycle]:
    """Those that begin after `settled_s` and last `least_s` or longer."""
    noticed = [
        at
        for at in range(1, len(samples))
        if samples[at].state == RECOVERY and samples[at - 1].state != RECOVERY
    ]
    found = []
    for at, following in pairwise(noticed):
        repaired = next((i for i in range(at, following) if samples[i].state == OPEN), None)
        if repaired is None or samples[at].t_s < settled_s:
            continue
        seconds = samples[following - 1].t_s - samples[repaired].t_s
        if seconds >= least_s:
            found.append(
                Cycle(
                    before=samples[at - 1].window,
                    after=samples[repaired].window,
                    end=samples[following - 1].window,
                    seconds=seconds,
                )
            )
    return found
