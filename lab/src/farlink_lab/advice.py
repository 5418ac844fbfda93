"""Which configuration to take for a transfer: the highest predicted throughput, and why.

A prediction is the model's (slow start, then the limit that binds first) times what the runs showed of the
model, which a Gaussian process carries between RTTs and configurations (`surrogate`). Its interval assumes
that it errs at an RTT that was not measured as it errs at the measured ones, when each inner one is left out
in turn: of the errors found so the interval takes in as many as it claims (Vovk, Gammerman and Shafer 2005,
4.1; Lei and others 2018). They are a configuration's own at the nearest RTTs that have `LEAST_ERRORS`
together; where there are fewer, those of all, and then it is no narrower than the process itself claims; nor
is it where a configuration has no run of just this task, and those of other sizes or durations tell of it.
That is a stronger assumption than `confidence` makes, and the intervals are narrower.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from farlink_lab.choice import COPY
from farlink_lab.confidence import ConfidenceError, Interval, interval_at
from farlink_lab.expectation import expected_bps, limit_bps, most_bps
from farlink_lab.ground import AdviceError, Ground, check_rtt, unmeasured
from farlink_lab.quantity import show_time
from farlink_lab.surrogate import Surrogate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from farlink_lab.choice import Choice, Task
    from farlink_lab.surrogate import Observation

Array = NDArray[np.float64]

# What an interval claims: as those of the analyses.
CLAIM = 0.8
# Fewer errors than this do not show how the process errs.
LEAST_ERRORS = 15
# What was measured is said where the task is so many times as much, or as little.
FARTHER = 1.5
# Standard deviations that hold `CLAIM` of a normal distribution.
NORMAL = float(norm.ppf((1 + CLAIM) / 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What one configuration should reach.

    Attributes:
        choice: The configuration.
        throughput_bps: Predicted Θ.
        low_bps: Of the interval; `None` where it is extrapolated: nothing bounds it there.
        high_bps: Likewise.
        model_bps: What the model alone says.
        bounds: What the runs bound it by if a longer RTT never helps, and nothing more; `None` where they do
            not.
        measured_s: The RTTs of its own runs, growing; others' runs tell of it, too.
        late_s: Those of them at which every run is late.
        extrapolated: Whether it lies outside those, or is of another connection than was measured.
    """

    choice: Choice
    throughput_bps: float
    low_bps: float | None
    high_bps: float | None
    model_bps: float
    bounds: Interval | None
    measured_s: tuple[float, ...]
    late_s: tuple[float, ...]
    extrapolated: bool

    @property
    def measured_shown(self) -> str:
        """Where it was measured, for a person: the end of `it was measured `."""
        if not self.measured_s:
            return "nowhere for this"
        first, last = self.measured_s[0], self.measured_s[-1]
        return f"at {show_time(first)} alone" if first == last else f"{show_time(first)} to {show_time(last)}"

    @property
    def residual(self) -> float:
        """(predicted − model) / model: what the runs showed beyond the model."""
        return self.throughput_bps / self.model_bps - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The answer to one question.

    Attributes:
        ground: What it stands on.
        rtt_s: τ that was asked about.
        task: What is to be done.
        ranking: Every configuration, the best first.
        claim: Of the intervals.
        errors: How many errors of foretold runs there are to take their width from; 0 where too few, and the
            process's own claim stands for them.
        notes: What the answer assumes beyond the records.
        extrapolated: Whether what is advised goes beyond what was measured of it.
    """

    ground: Ground
    rtt_s: float
    task: Task
    ranking: tuple[Prediction, ...]
    claim: float
    errors: int
    notes: tuple[str, ...]
    extrapolated: bool

    @property
    def best(self) -> Prediction:
        """The configuration to take."""
        return self.ranking[0]

    @property
    def runner_up(self) -> Prediction | None:
        """The next one; `None` where there is only one."""
        return self.ranking[1] if len(self.ranking) > 1 else None

    @property
    def best_measured(self) -> Prediction | None:
        """The best of those that were measured on both sides of the RTT; `None` where none was."""
        return next((one for one in self.ranking if not one.extrapolated), None)


class Adviser:
    """Answers questions about one task from one ground; the process is fitted once.

    Attributes:
        ground: What was measured.
        task: What is to be done.
        observations: What the runs say of it.
    """

    def __init__(self, ground: Ground, task: Task) -> None:
        """Learns what the runs say of `task`.

        Raises:
            AdviceError: where none says anything of it.
        """
        self.ground, self.task = ground, task
        self.observations = ground.observations(task)
        if not self.observations:
            raise AdviceError(
                f"no run tells of {task.shown}: none moved anything: measure with 'farlink lab profile'"
            )
        self._surrogate = self._learned(self.observations)

    def throughput_bps(self, rtt_s: float) -> Array:
        """Predicted Θ of every configuration of the ground at an RTT (s), in its order, shape (n,), bit/s.

        Raises:
            AdviceError: where the RTT is not finite or not above 0.
        """
        check_rtt(rtt_s)
        return self._predicted(rtt_s)[0]

    def advice(self, rtt_s: float, *, extrapolate: bool = False) -> Advice:
        """The configurations ranked at one RTT.

        Args:
            rtt_s: τ, seconds.
            extrapolate: Whether τ may lie outside the measured RTTs.

        Raises:
            AdviceError: where it lies outside and may not, or is not finite or not above 0; where the task is
                a duration and all runs are of copies.
        """
        check_rtt(rtt_s)
        able = self._able()
        rtts = self.ground.rtt_s
        outside = unmeasured(rtt_s, rtts)
        notes = [*self.ground.notes, *self.ground.left_out, *self._not_in_it()]
        if outside:
            span = f"{show_time(rtts[0])} to {show_time(rtts[-1])}"
            near = float(rtts[0] if rtt_s < rtts[0] else rtts[-1])
            if not extrapolate:
                raise AdviceError(
                    f"--rtt: {show_time(rtt_s)} is outside the measured {span}: measure it, or let the model "
                    "carry it there with --extrapolate"
                )
            notes.append(
                f"{show_time(rtt_s)} is outside the measured {span}: the model goes on there, times what the "
                f"runs at {show_time(near)} showed of it, and nothing bounds its error"
            )
        if self.ground.late_note:
            notes.append(self.ground.late_note)
        rates, models, deviation = self._predicted(rtt_s)
        errors = self._errors(rtt_s)
        pooled = [error for own in errors.values() for at in own for error in at]
        limit = limit_bps(rtt_s, task=self.task, wire=self.ground.asked)
        elsewhere = bool(outside or self.ground.notes)
        found = []
        for choice, rate, expected, wide in zip(self.ground.choices, rates, models, deviation, strict=True):
            own = _nearest(errors[choice])
            reach = _reach(pooled if own is None else own)
            if own is None or not self._did_just_this(choice, rtt_s):
                reach = max(reach, NORMAL * float(wide))
            measured = self.measured_s(choice)
            extrapolated = elsewhere or not measured or unmeasured(rtt_s, measured)
            bounded = not extrapolated
            found.append(
                Prediction(
                    choice=choice,
                    throughput_bps=float(rate),
                    low_bps=float(rate * math.exp(-reach)) if bounded else None,
                    high_bps=float(min(rate * math.exp(reach), max(limit, rate))) if bounded else None,
                    model_bps=float(expected),
                    bounds=None if extrapolated else self._bounds(choice, rtt_s),
                    measured_s=measured,
                    late_s=tuple(
                        sorted({one.rtt_s for one in self.observations if one.choice == choice and one.late})
                    ),
                    extrapolated=extrapolated,
                )
            )
        ranking = tuple(
            sorted((one for one in found if one.choice in able), key=lambda one: -one.throughput_bps)
        )
        notes += _of_copies(ranking)
        if assumed := self._told_by_others(ranking):
            notes.append(assumed)
        if not elsewhere:
            notes += [_beyond(one, rtt_s) for one in ranking[:2] if one.extrapolated]
        return Advice(
            ground=self.ground,
            rtt_s=rtt_s,
            task=self.task,
            ranking=ranking,
            claim=CLAIM,
            errors=len(pooled) if len(pooled) >= LEAST_ERRORS else 0,
            notes=tuple(notes),
            extrapolated=ranking[0].extrapolated,
        )

    def measured_s(self, choice: Choice) -> tuple[float, ...]:
        """The RTTs at which `choice` itself was measured, growing."""
        return tuple(sorted({one.rtt_s for one in self.observations if one.choice == choice}))

    def is_extrapolated(self, rtt_s: float) -> NDArray[np.bool_]:
        """Whether the own runs of each configuration lie all to one side of an RTT, shape (n,)."""
        spans = [self.measured_s(choice) for choice in self.ground.choices]
        return np.array([not span or unmeasured(rtt_s, span) for span in spans], dtype=np.bool_)

    def _able(self) -> frozenset[Choice]:
        """The configurations that can do the task: a copy moves files, and cannot be told for how long.

        Raises:
            AdviceError: where there is none.
        """
        able = frozenset(
            choice for choice in self.ground.choices if self.task.mode == "size" or choice.mover != COPY
        )
        if not able:
            raise AdviceError(
                f"--seconds: the runs are of {COPY}, and a copy is over when its files are there, not after "
                f"{self.task.shown}: say how much with --bytes, as in 50GB"
            )
        return able

    def _not_in_it(self) -> list[str]:
        """Whose runs are there, and are not advised."""
        notes = []
        if self.ground.others:
            notes.append(f"runs of {' and '.join(self.ground.others)} are not in it: it is for farlink")
        if len(self._able()) < len(self.ground.choices):
            notes.append(f"{COPY} is not in it: a copy is over when its files are there, not after a time")
        return notes

    def _learned(self, observations: Sequence[Observation]) -> Surrogate:
        return Surrogate(observations, wire=self.ground.measured, controls=self.ground.controls)

    def _predicted(self, rtt_s: float) -> tuple[Array, Array, Array]:
        """Θ, the model's Θ, and the standard deviation of a run's ln Θ, each of shape (n,)."""
        ground, rtts = self.ground, self.ground.rtt_s
        near = float(np.clip(rtt_s, rtts[0], rtts[-1]))
        mean, deviation = self._surrogate.at([(choice, near) for choice in ground.choices])
        expected = np.concatenate(
            [
                expected_bps(choice, np.array([rtt_s]), task=self.task, wire=ground.asked)
                for choice in ground.choices
            ]
        )
        most = [most_bps(choice, rtt_s, task=self.task, wire=ground.asked) for choice in ground.choices]
        rates = np.minimum(expected * np.exp(mean), most)
        return rates, expected, np.hypot(deviation, self._surrogate.noise_at([near]))

    def _errors(self, rtt_s: float) -> dict[Choice, list[list[float]]]:
        """|ln Θ − ln Θ predicted| of the runs at each inner RTT, foretold without that RTT.

        By configuration: those of runs of just the task, then those of others; of each the nearest RTT first.
        """
        errors: dict[Choice, list[list[float]]] = {choice: [] for choice in self.ground.choices}
        of_others: dict[Choice, list[list[float]]] = {choice: [] for choice in self.ground.choices}
        for left_out in sorted(self.ground.rtt_s[1:-1], key=lambda rtt: abs(math.log(rtt / rtt_s))):
            kept = [one for one in self.observations if one.rtt_s != left_out]
            # How far late runs lie from what is foretold says as much of the emulator's machine.
            gone = [
                one
                for one in self.observations
                if one.rtt_s == left_out and one.choice in errors and not one.late
            ]
            if not kept or not gone:
                continue
            means, _ = self._learned(kept).at(
                [(one.choice, one.rtt_s) for one in gone], doublings=[one.doublings for one in gone]
            )
            for one, mean in zip(gone, means, strict=True):
                told = of_others if one.doublings else errors
                told[one.choice].append([abs(ratio - float(mean)) for ratio in one.ratios])
        return {choice: [*own, *of_others[choice]] for choice, own in errors.items()}

    def _did_just_this(self, choice: Choice, rtt_s: float) -> bool:
        """Whether runs of just the task tell of `choice` at its measured RTTs on both sides of one."""
        measured = self.measured_s(choice)
        beside = {
            max((rtt for rtt in measured if rtt <= rtt_s), default=None),
            min((rtt for rtt in measured if rtt >= rtt_s), default=None),
        } - {None}
        own = {one.rtt_s for one in self.observations if one.choice == choice and not one.doublings}
        return beside <= own

    def _bounds(self, choice: Choice, rtt_s: float) -> Interval | None:
        by_rtt = {
            place.rtt_s: [
                rate
                for record in place.records
                if self.task.is_of(record) and (rate := record.throughput_bps)
            ]
            for place in self.ground.places
            if place.choice == choice and not place.late
        }
        rtts = sorted(rtt for rtt, values in by_rtt.items() if values)
        try:
            return interval_at(rtt_s, np.array(rtts), [np.array(by_rtt[rtt]) for rtt in rtts], claim=CLAIM)
        except ConfidenceError:
            return None

    def _told_by_others(self, ranking: Sequence[Prediction]) -> str:
        """What is assumed of a task that one of these was not measured with; empty where all were.

        How far what ran is from it is said of the best.
        """
        took: dict[Choice, list[Task]] = {one.choice: [] for one in ranking}
        for place in self.ground.places:
            if place.choice in took:
                done = [self.task.done_by(record) for record in place.records]
                took[place.choice] += [one for one in done if one is not None]
        if all(self.task in done for done in took.values()):
            return ""
        said = (
            f"not every configuration has runs of {self.task.shown}: those of others tell of it, each by how "
            "far it was from the model of what it did itself"
        )
        near = min(took[ranking[0].choice], key=lambda one: abs(self.task.doublings(one)), default=self.task)
        if not near.amount * FARTHER > self.task.amount > near.amount / FARTHER:
            said += (
                f"; the nearest that what is advised did is {near.shown}: that a transfer so different fares "
                "alike is assumed"
            )
        return said


def _of_copies(ranking: Sequence[Prediction]) -> list[str]:
    """What is to be said where memory is ranked beside files, or a copy in clear is advised."""
    notes, best = [], ranking[0].choice
    if {"farlink", COPY} <= {one.choice.mover for one in ranking}:
        notes.append(
            "memory and copies are ranked together, and a copy has files to read and write: for one of them "
            "alone name --mover farlink or --mover copy"
        )
    if best.mover == COPY and best.protection == "clear":
        notes.append(
            "these copies were measured in clear: others on the path can read and change what is sent; "
            "without --protect clear a copy is encrypted, and how fast that is these runs do not say"
        )
    return notes


def _beyond(one: Prediction, rtt_s: float) -> str:
    return (
        f"{one.choice.name} was measured {one.measured_shown}: at {show_time(rtt_s)} it is the model, times "
        "what runs at other RTTs and of other configurations showed of it, and nothing bounds its error"
    )


def _nearest(errors: Sequence[list[float]]) -> list[float] | None:
    """The errors at the nearest RTTs that are enough together; `None` where there are too few."""
    taken: list[float] = []
    for at in errors:
        taken += at
        if len(taken) >= LEAST_ERRORS:
            return taken
    return None


def _reach(errors: Sequence[float]) -> float:
    """What holds `CLAIM` of further errors, if those are like these; 0 where there are too few to tell.

    One place further out than for independent errors: runs at one RTT share the prediction's.
    """
    if len(errors) < LEAST_ERRORS:
        return 0.0
    place = min(math.ceil((len(errors) + 1) * CLAIM) + 1, len(errors))
    return float(np.sort(errors)[place - 1])
