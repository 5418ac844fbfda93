"""The course of a window under periodic loss, as `probe stream` samples it, and what each loss did to it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from farlink_lab.single_loss import Cycle, cubic_peaks

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
    """From each loss after `settled_s` to the next, where the window grew for `least_s` or longer."""
    noticed = [
        at
        for at in range(1, len(samples))
        if samples[at].state == RECOVERY and samples[at - 1].state != RECOVERY
    ]
    peaks = cubic_peaks([samples[at - 1].window for at in noticed])
    found = []
    for (at, following), peak in zip(pairwise(noticed), peaks, strict=False):
        repaired = next((i for i in range(at, following) if samples[i].state == OPEN), None)
        if repaired is None or samples[at].t_s < settled_s:
            continue
        if samples[following - 1].t_s - samples[repaired].t_s >= least_s:
            found.append(
                Cycle(
                    noticed_s=samples[at].t_s,
                    repaired_s=samples[repaired].t_s,
                    end_s=samples[following - 1].t_s,
                    rtt_s=median(sample.rtt_s for sample in samples[repaired:following]),
                    before=samples[at - 1].window,
                    after=samples[repaired].window,
                    end=samples[following - 1].window,
                    peak=peak,
                )
            )
    return found
