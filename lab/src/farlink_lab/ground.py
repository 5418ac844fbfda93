"""What a campaign's records are to advice: which configurations ran, at which RTTs, over which connection."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from farlink_lab.choice import AUTO, Choice, Task, choice_of, mover_of, mover_word, unusable, usual_congestion
from farlink_lab.error import LabError
from farlink_lab.expectation import Wire, expected_bps, knows_losses
from farlink_lab.profile import USUAL_MTU, profiles
from farlink_lab.quantity import show_rate, show_time
from farlink_lab.surrogate import Observation
from farlink_lab.utilization import above_capacity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from farlink_lab.records import Record

Array = NDArray[np.float64]

# Rates and losses that differ by less are one.
ALIKE = 0.01


class AdviceError(LabError):
    """A question that the records do not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The runs of one configuration at one RTT that count."""

    choice: Choice
    rtt_s: float
    records: tuple[Record, ...]

    @property
    def late(self) -> bool:
        """Whether the emulator fell behind in every run."""
        return all(record.overrun for record in self.records)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ground:
    """What advice stands on.

    Attributes:
        places: Every configuration at every RTT that it was measured at.
        measured: The connection that the runs went over.
        asked: The connection that is asked about.
        notes: How the second is reached from the first, where they differ.
        left_out: What of the records counts for nothing, and why.
        others: Movers whose runs count for nothing, as `farlink` ran beside them.
    """

    places: tuple[Place, ...]
    measured: Wire
    asked: Wire
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    @property
    def choices(self) -> tuple[Choice, ...]:
        """Every configuration, in the order of the records, that the model can tell of over `asked`."""
        found = dict.fromkeys(place.choice for place in self.places)
        if self.asked.loss == self.measured.loss:
            return tuple(found)
        return tuple(choice for choice in found if knows_losses(choice))

    @property
    def rtt_s(self) -> Array:
        """Every RTT, growing, shape (k,)."""
        return np.unique([place.rtt_s for place in self.places])

    def measured_s(self, choice: Choice) -> tuple[float, ...]:
        """The RTTs at which a configuration was measured, growing."""
        return tuple(sorted(place.rtt_s for place in self.places if place.choice == choice))

    @property
    def late_note(self) -> str:
        """What is to be said where answers draw on late runs; empty where none is late."""
        late = [place for place in self.places if place.late]
        if not late:
            return ""
        rtts = ", ".join(map(show_time, sorted({place.rtt_s for place in late})))
        return (
            f"{len(late)} of {len(self.places)} points are late (at {rtts}): the emulator fell behind in "
            "every run there, so they say as much of its machine as of the connection, and no interval "
            "counts their errors"
        )

    @property
    def controls(self) -> tuple[tuple[str, str], ...]:
        """Movers with their congestion controls."""
        return tuple(dict.fromkeys(place.choice.control for place in self.places))

    def observations(self, task: Task) -> tuple[Observation, ...]:
        """What the runs say of `task`: each as what it did itself, told apart by how much that was."""
        return tuple(
            found
            for place in self.places
            for found in observed(
                place.choice, place.rtt_s, place.records, task=task, wire=self.measured, late=place.late
            )
        )

    def is_told_by_others(self, task: Task) -> bool:
        """Whether a configuration has no run that did just `task`, so that others tell of it."""
        have = {place.choice for place in self.places if any(map(task.is_of, place.records))}
        return any(place.choice not in have for place in self.places)


def observed(
    choice: Choice,
    rtt_s: float,
    records: Iterable[Record],
    *,
    task: Task,
    wire: Wire,
    late: bool = False,
) -> list[Observation]:
    """What runs of one configuration at one RTT (s) say of `task`, by how much they did.

    Runs that moved nothing say nothing.
    """
    told: dict[Task, list[tuple[float, float]]] = {}
    for record in records:
        done, rate = task.done_by(record), record.throughput_bps
        if done is None or not rate:
            continue
        (expected,) = expected_bps(choice, np.array([rtt_s]), task=done, wire=wire)
        alike = task if done == task else next((asked for asked in told if asked.is_of(record)), None)
        alike = alike or Task(mode="size" if record.mode == "size" else "duration", amount=record.amount)
        told.setdefault(alike, []).append((math.log(rate / expected), task.doublings(done)))
    return [
        Observation(
            choice=choice,
            rtt_s=rtt_s,
            ratios=tuple(ratio for ratio, _ in runs),
            late=late,
            doublings=float(np.median([doublings for _, doublings in runs])),
        )
        for runs in told.values()
    ]


def ground(
    records: Iterable[Record],
    *,
    rate_bps: float | None = None,
    loss: float | None = None,
    mover: str | None = None,
    extrapolate: bool = False,
) -> Ground:
    """What the records tell of a connection of that rate and loss.

    Where `farlink` ran, its runs alone count: it is what the advice is for. Else those of every tool do.
    Transfers of files and of memory are configurations apart.

    Args:
        records: Of a campaign.
        rate_bps: The wire's; `None` takes the records', which must then have one.
        loss: Likewise.
        mover: Whose runs alone count, `farlink`, `copy` or another tool; `None` is as above.
        extrapolate: Whether the model may carry what was measured to another rate or loss.

    Raises:
        AdviceError: where no run counts, or none of that mover, a rate is unknown, impossible or above what
            the wire carries, or it was not measured and `extrapolate` is not given.
    """
    _check_asked(rate_bps=rate_bps, loss=loss)
    taken = tuple(record for record in records if record.kind in {"memory", "file"})
    found, _ = profiles(taken)
    usable = [
        (rtt, record)
        for each in found
        for rtt, group in zip(each.rtt_s, each.records, strict=True)
        for record in group
    ]
    others: tuple[str, ...] = ()
    if mover is not None:
        usable = _of_mover(usable, mover)
    elif others := beside_ours(record.tool for _, record in usable):
        usable = [(rtt, record) for rtt, record in usable if record.tool not in others]
    counted = [*(record for _, record in usable), *_limited(taken, usable, mover=mover, others=others)]
    faults = Counter(fault for record in counted if (fault := unusable(record)))
    left_out = tuple(f"runs that count for nothing: {n} that say {fault}" for fault, n in faults.items())
    usable = [(rtt, record) for rtt, record in usable if not unusable(record)]
    if not usable:
        because = f" ({'; '.join(left_out)})" if left_out else ""
        raise AdviceError(
            f"no run counts{because}, so there is nothing to advise from: measure with 'farlink lab profile'"
        )
    usable, unbounded = _with_capacity(usable)
    left_out += unbounded
    wires = list(dict.fromkeys(_wire(record) for _, record in usable))
    rate = _one({wire.rate_bps for wire in wires}, "rates", "--rate") if rate_bps is None else rate_bps
    lost = _one({wire.loss for wire in wires}, "losses", "--loss") if loss is None else loss
    measured = min(wires, key=lambda wire: (abs(math.log(wire.rate_bps / rate)), abs(wire.loss - lost)))
    asked, notes = _asked(measured, rate_bps=rate, loss=lost, extrapolate=extrapolate)
    usable = [
        (rtt, record)
        for rtt, record in usable
        if (record.rate_bps, _loss(record)) == (measured.rate_bps, measured.loss)
    ]
    _refuse_several(record for _, record in usable)
    places: dict[tuple[Choice, float], list[Record]] = {}
    for rtt, record in usable:
        places.setdefault((choice_of(record), float(rtt)), []).append(record)
    _refuse_above(places, capacity_bps=measured.capacity_bps)
    told = _with_seen(places)
    made = Ground(
        places=tuple(
            Place(choice=told[choice], rtt_s=rtt, records=tuple(group))
            for (choice, rtt), group in places.items()
        ),
        measured=measured,
        asked=asked,
        notes=notes,
        left_out=left_out,
        others=others,
    )
    if not made.choices:
        raise AdviceError(
            f"--loss {lost:g}: the model knows what losses do to cubic, htcp, reno and scalable only, and "
            "none of them was measured: measure at this loss"
        )
    return made


def _with_capacity(
    usable: Sequence[tuple[float, Record]],
) -> tuple[list[tuple[float, Record]], tuple[str, ...]]:
    """Those of the runs that say what the wire carries, and how many others there are, and why.

    Raises:
        AdviceError: where none does.
    """
    bounded = [(rtt, record) for rtt, record in usable if record.rate_bps and record.goodput_bps]
    rateless = sum(not record.rate_bps for _, record in usable)
    without_mtu = len(usable) - len(bounded) - rateless
    lacks = [
        (number, what, option)
        for number, what, option in (
            (rateless, "the rate of the wire", "--rate"),
            (without_mtu, "the path's MTU and with it the capacity", "--mtu"),
        )
        if number
    ]
    if not bounded:
        _, unsaid, option = lacks[0]
        raise AdviceError(
            f"the records do not say {unsaid}, so a limit cannot be told from a fault: import them again "
            f"with {option}"
        )
    return bounded, tuple(
        f"runs that count for nothing: {number} that {'does' if number == 1 else 'do'} not say {what}: "
        f"import {'it' if number == 1 else 'them'} again with {option}"
        for number, what, option in lacks
    )


def beside_ours(tools: Iterable[str]) -> tuple[str, ...]:
    """Which of these movers count for nothing: where `farlink` is one of them, all others."""
    found = set(tools)
    return tuple(sorted(found - {"farlink"})) if "farlink" in found else ()


def _limited(
    records: Iterable[Record],
    usable: Sequence[tuple[float, Record]],
    *,
    mover: str | None,
    others: Sequence[str],
) -> list[Record]:
    """Of the movers that count, the runs that no profile does, as they were held to a rate."""
    limited = [record for record in records if record.outcome == "ok" and record.limit_bps is not None]
    if mover is None or not usable:
        return [record for record in limited if record.tool not in others]
    movers = {mover_of(record.tool, record.kind) for _, record in usable}
    return [record for record in limited if mover_of(record.tool, record.kind) in movers]


def _of_mover(usable: Sequence[tuple[float, Record]], mover: str) -> list[tuple[float, Record]]:
    """The runs of one mover alone, as a user names it: `copy` or `farlink copy`."""
    known = {mover_of(record.tool, record.kind) for _, record in usable}
    named = [one for one in known if mover in (one, mover_word(one))]
    if known and not named:
        there = ", ".join(sorted(map(mover_word, known)))
        raise AdviceError(f"--mover: no run that counts is of {mover}: there are runs of {there}")
    return [(rtt, record) for rtt, record in usable if mover_of(record.tool, record.kind) in named]


def _check_asked(*, rate_bps: float | None, loss: float | None) -> None:
    if rate_bps is not None and not (math.isfinite(rate_bps) and rate_bps > 0):
        raise AdviceError(f"--rate: {rate_bps:g} is no rate: it must be finite and above 0")
    if loss is not None and not 0 <= loss < 1:
        raise AdviceError(f"--loss: {loss:g} is no share of segments: at least 0 and less than 1")


def _refuse_above(places: Mapping[tuple[Choice, float], Sequence[Record]], *, capacity_bps: float) -> None:
    """Refuses runs whose median is above the capacity: of which connection they are is not known then."""
    for (choice, rtt), group in places.items():
        rate = float(np.median([record.throughput_bps or 0.0 for record in group]))
        if above := above_capacity([rtt], [rate], capacity_bps=capacity_bps):
            raise AdviceError(f"{choice.name}: {above}: import the runs again with the wire's")


def _with_seen(places: Mapping[tuple[Choice, float], Sequence[Record]]) -> dict[Choice, Choice]:
    """Every configuration, with the streams and the congestion control of its runs where the path decided."""
    seen: dict[Choice, list[tuple[float, Sequence[Record]]]] = {}
    for (choice, rtt), group in sorted(places.items(), key=lambda place: place[0][1]):
        seen.setdefault(choice, []).append((rtt, group))
    return {choice: _with_own(choice, at) for choice, at in seen.items()}


def _with_own(choice: Choice, at: Sequence[tuple[float, Sequence[Record]]]) -> Choice:
    if choice.streams is None:
        streams = [(rtt, float(np.median([record.streams or 1 for record in group]))) for rtt, group in at]
        choice = replace(choice, streams_seen=tuple(streams))
    if choice.congestion == AUTO:
        choice = replace(choice, congestion_seen=tuple((rtt, usual_congestion(group)) for rtt, group in at))
    return choice


def _refuse_several(records: Iterable[Record]) -> None:
    """Refuses records of several connections: what a path has one of, a model of it cannot mix."""
    seen: dict[str, set[Any]] = {}
    for record in records:
        for what, value in (
            ("queues", record.fields.get("queue_bytes")),
            ("MTUs", record.mtu),
            ("framings", record.fields.get("framing")),
            ("rates of other traffic", record.fields.get("background_bps") or 0),
        ):
            if value is not None:
                seen.setdefault(what, set()).add(value)
        # Headers of IPv4 and IPv6 differ by less.
        known = seen.setdefault("capacities for payload", set())
        if not any(abs(float(record.goodput_bps or 0) / float(one) - 1) <= ALIKE for one in known):
            known.add(record.goodput_bps)
    for what, values in seen.items():
        if len(values) > 1:
            raise AdviceError(
                f"the records are of {len(values)} {what}, and a path has one: measure them in directories "
                "of their own, and name the one that is like the path"
            )


def _loss(record: Record) -> float:
    loss = record.fields.get("loss")
    return float(loss) if isinstance(loss, int | float) else 0.0


def _wire(record: Record) -> Wire:
    return Wire(
        rate_bps=float(record.rate_bps or 0),
        capacity_bps=float(record.goodput_bps or 0),
        mtu=record.mtu or USUAL_MTU,
        loss=_loss(record),
    )


def _one(values: set[float], what: str, flag: str) -> float:
    if len(values) > 1:
        raise AdviceError(f"the records are of {len(values)} {what}: say which with {flag}")
    return values.pop()


def _asked(
    measured: Wire, *, rate_bps: float, loss: float, extrapolate: bool
) -> tuple[Wire, tuple[str, ...]]:
    """The connection asked about, and how it is reached."""
    notes = []
    other_rate = abs(rate_bps / measured.rate_bps - 1) > ALIKE
    other_loss = abs(loss - measured.loss) > ALIKE * max(loss, measured.loss)
    if other_rate:
        notes.append(
            f"measured over {show_rate(measured.rate_bps)}: the model has the limits of "
            f"{show_rate(rate_bps)}, and how far a transfer falls short of it is taken to be the same"
        )
    if other_loss:
        notes.append(
            f"measured at a loss of {measured.loss:g}: the model has what a loss of {loss:g} leaves by the "
            "published responses of cubic, htcp, reno and scalable; others are left out"
        )
    if notes and not extrapolate:
        what = f"a rate of {show_rate(rate_bps)}" if other_rate else f"a loss of {loss:g}"
        near = show_rate(measured.rate_bps) if other_rate else f"{measured.loss:g}"
        raise AdviceError(
            f"{what} was not measured, the nearest is {near}: measure it, or let the model carry it there "
            "with --extrapolate"
        )
    capacity = measured.capacity_bps * (rate_bps / measured.rate_bps if other_rate else 1.0)
    return Wire(
        rate_bps=rate_bps if other_rate else measured.rate_bps,
        capacity_bps=capacity,
        mtu=measured.mtu,
        loss=loss if other_loss else measured.loss,
    ), tuple(notes)


def check_rtt(rtt_s: float) -> None:
    """Refuses what is no RTT to ask about, s.

    Raises:
        AdviceError: where it is not finite or not above 0.
    """
    if not (math.isfinite(rtt_s) and rtt_s > 0):
        raise AdviceError(f"--rtt: {rtt_s:g} s is no RTT: it must be finite and above 0")


def same_rtt(one_s: float, other_s: float) -> bool:
    """Whether two RTTs are one for advice."""
    return abs(one_s / other_s - 1) <= ALIKE


def unmeasured(rtt_s: float, rtts_s: Sequence[float] | Array) -> bool:
    """Whether an RTT lies outside those measured."""
    first, last = float(rtts_s[0]), float(rtts_s[-1])
    return not (first <= rtt_s <= last or same_rtt(rtt_s, first) or same_rtt(rtt_s, last))
