"""Where to measure next, so that the best configuration at every RTT is known soonest.

A run is worth what it is expected to add to the throughput of the configurations that would be chosen after
it, at every RTT, over its time: the knowledge gradient for correlated beliefs (Frazier, Powell and Dayanik
2009). By the Gaussian process of `surrogate` a run teaches of its configuration at other RTTs, and of other
configurations; what moves all configurations alike changes no choice, and is worth nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from farlink_lab.choice import COPY, Task, choice_asked, task_of
from farlink_lab.error import LabError
from farlink_lab.expectation import Wire, expected_bps, most_bps
from farlink_lab.ground import beside_ours, observed, unmeasured
from farlink_lab.surrogate import WORST, Observation, Surrogate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from farlink_lab.choice import Choice
    from farlink_lab.plan import Connection, Plan
    from farlink_lab.records import Record
    from farlink_lab.schedule import Run

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """What would be chosen at one RTT by what is known so far.

    Attributes:
        rtt_s: τ.
        choice: The configuration.
        throughput_bps: What it should reach.
        extrapolated: Whether all its own runs lie to one side of τ.
    """

    rtt_s: float
    choice: Choice
    throughput_bps: float
    extrapolated: bool


class Search:
    """What is known of a set of configurations at a set of RTTs, and what is worth knowing next.

    Attributes:
        choices: The configurations.
        rtts_s: The RTTs at which the best is sought.
    """

    def __init__(self, *, choices: Sequence[Choice], rtts_s: Sequence[float], task: Task, wire: Wire) -> None:
        """Knows nothing yet but the model.

        Args:
            choices: n configurations.
            rtts_s: k RTTs, seconds.
            task: What the best is best at.
            wire: Over which connection.
        """
        self.choices, self.rtts_s = tuple(choices), tuple(rtts_s)
        self._wire, self._task = wire, task
        self._places = [(choice, rtt) for choice in self.choices for rtt in self.rtts_s]
        rtts = np.array(self.rtts_s)
        self._expected = np.log(
            np.array([expected_bps(choice, rtts, task=task, wire=wire) for choice in self.choices])
        )
        self._most = np.log(
            [[most_bps(choice, rtt, task=task, wire=wire) for rtt in self.rtts_s] for choice in self.choices]
        )
        self.learn(())

    def learn(self, observations: Sequence[Observation]) -> None:
        """Replaces what was known by `observations`."""
        controls = [choice.control for choice in self.choices]
        self._surrogate = surrogate = Surrogate(observations, wire=self._wire, controls=controls)
        self._spans: dict[Choice, list[float]] = {}
        for one in sorted(observations, key=lambda one: one.rtt_s):
            self._spans.setdefault(one.choice, []).append(one.rtt_s)
        self._gains: dict[float, Array] = {}
        mean, _ = surrogate.together(self._places)
        shape = (len(self.choices), len(self.rtts_s))
        self._noise = surrogate.noise_at([rtt for _, rtt in self._places])
        self._known = np.minimum(self._expected + mean.reshape(shape), self._most)

    def gains(self, doublings: float = 0.0) -> Array:
        """What a run of each configuration at each RTT should add to ln Θ, over all RTTs, shape (n, k).

        Args:
            doublings: log2 of how many times as much the run does as is asked about.
        """
        if doublings not in self._gains:
            self._gains[doublings] = self._gains_of(doublings)
        return self._gains[doublings]

    def _gains_of(self, doublings: float) -> Array:
        n, k = len(self.choices), len(self.rtts_s)
        if n < 2:
            return np.ones((n, k))
        asked = [0.0] * (n * k)
        _, covariance = self._surrogate.together(
            [*self._places, *self._places], doublings=[*asked, *[doublings] * (n * k)]
        )
        own, across = np.diag(covariance)[n * k :], covariance[n * k :, : n * k]
        # What one standard deviation of a run (row) moves of what is known of a place (column).
        moved = across / np.sqrt(own + self._noise**2)[:, None]
        by_rtt = moved.reshape(n * k, n, k)
        gains: Array = sum(
            (expected_rise(self._known[:, at], by_rtt[:, :, at]) for at in range(k)), start=np.zeros(n * k)
        )
        return gains.reshape(n, k)

    def leaders(self) -> tuple[Leader, ...]:
        """What would be chosen now, RTT by RTT."""
        best = self._known.argmax(axis=0)
        return tuple(
            Leader(
                rtt_s=rtt,
                choice=self.choices[index],
                throughput_bps=float(math.exp(self._known[index, at])),
                extrapolated=(span := self._spans.get(self.choices[index])) is None or unmeasured(rtt, span),
            )
            for at, (rtt, index) in enumerate(zip(self.rtts_s, best, strict=True))
        )


def expected_rise(known: Array, moved: Array) -> Array:
    """E max_i(a_i + b_i·Z) − max_i a_i for a standard normal Z, exactly: shape (m,).

    Line i is the highest between where it crosses the steepest that are less steep and those that are more.

    Args:
        known: a, what is known of n configurations, shape (n,).
        moved: b, by how much each of m runs would move it, shape (m, n).
    """
    above = known - known.max()
    steeper = moved[:, None, :] - moved[:, :, None]
    ahead = above[:, None] - above[None, :]
    # Of lines as steep only the highest counts; of equal lines the first.
    first = np.arange(len(known))[None, :] < np.arange(len(known))[:, None]
    beaten = ((steeper == 0) & ((ahead < 0) | ((ahead == 0) & first))).any(axis=2)
    with np.errstate(divide="ignore", invalid="ignore"):
        crossing = ahead / steeper
    low = np.where(steeper < 0, crossing, -np.inf).max(axis=2)
    high = np.where(steeper > 0, crossing, np.inf).min(axis=2)
    risen = above * (norm.cdf(high) - norm.cdf(low)) + moved * (norm.pdf(low) - norm.pdf(high))
    total: Array = np.where((low < high) & ~beaten, risen, 0.0).sum(axis=1)
    return np.maximum(total, 0.0)


class SearchError(LabError):
    """A plan that cannot be searched."""


class PlanSearch:
    """A search among the runs of a plan.

    Attributes:
        task: What the best is best at.
        others: Movers that are not searched, as advice, which the search is for, is of `farlink` beside them.
        without_copies: Whether copies are not searched, as none is advised for a duration.
        runs: The plan's without those of them.
    """

    def __init__(self, plan: Plan, runs: Iterable[Run], *, task: Task | None = None) -> None:
        """Knows nothing yet.

        Args:
            plan: Whose configurations are searched.
            runs: All that it means.
            task: What the best is best at; `None` takes `task_sought`.

        Raises:
            SearchError: where the plan is of several connections, or of one that loses everything; where
                the task is a duration and all are copies.
        """
        self.others = beside_ours(configuration.tool for configuration in plan.configurations)
        ours = [one for one in plan.configurations if one.tool not in self.others]
        timed = task is not None and task.mode == "duration"
        kept = [one for one in ours if not (timed and choice_asked(one).mover == COPY)]
        if not kept:
            raise SearchError(
                f"--seconds: the plan is of {COPY}, and a copy is over when its files are there: say how "
                "much with --bytes, as in 50GB"
            )
        self.without_copies = len(kept) < len(ours)
        plan = replace(plan, configurations=tuple(kept))
        self.runs = [run for run in runs if run.configuration in plan.configurations]
        if any(configuration.queue is not None for configuration in plan.configurations):
            raise SearchError(
                "a configuration has a queue of its own, and the best is sought for one connection: write "
                "queue in [connection]"
            )
        if plan.connection.loss_share >= 1:
            raise SearchError(
                "connection.loss: everything is lost, so that nothing is best: write less, as in 1%"
            )
        self.task = task or task_sought(plan)
        self._wire = wire_of(plan.connection)
        self._runs = {run.identity: run for run in self.runs}
        # What differs in the length of its samples alone is one.
        choices = dict.fromkeys(choice_asked(run.configuration) for run in self._runs.values())
        self.search = Search(
            choices=tuple(choices), rtts_s=sorted(plan.rtts_s), task=self.task, wire=self._wire
        )

    @property
    def mixes_copies(self) -> bool:
        """Whether copies are searched beside transfers of memory."""
        return {"farlink", COPY} <= {choice.mover for choice in self.search.choices}

    def learn(self, records: Iterable[Record]) -> None:
        """Replaces what was known by what `records` say of the plan's runs."""
        told: dict[tuple[Choice, float], list[Record]] = {}
        for record in records:
            run = self._runs.get(record.run or "")
            # One that was held to a rate tells nothing: advice counts none either.
            if run is not None and record.outcome != "interrupted" and record.limit_bps is None:
                told.setdefault((choice_asked(run.configuration), run.rtt_s), []).append(record)
        self.search.learn([found for place, group in told.items() for found in self._observed(*place, group)])

    def next_run(self, left: Sequence[Run], *, time_s: Callable[[Run], float], most_s: float) -> Run | None:
        """The run of `left` that is worth most for its time; `None` where none fits into `most_s` seconds.

        Of what was measured as often, the earlier in the plan's order goes first.
        """
        rows = {choice: index for index, choice in enumerate(self.search.choices)}
        columns = {rtt: index for index, rtt in enumerate(self.search.rtts_s)}
        worth = [
            self.search.gains(self._doublings(run))[rows[choice_asked(run.configuration)], columns[run.rtt_s]]
            / time_s(run)
            if time_s(run) <= most_s
            else -1.0
            for run in left
        ]
        best = int(np.argmax(worth)) if worth else 0
        return left[best] if worth and worth[best] >= 0 else None

    def _doublings(self, run: Run) -> float:
        """log2 of how many times as much as is asked about a run does, at capacity where that is unknown."""
        own = task_of(run.configuration)
        if own.mode == self.task.mode:
            return self.task.doublings(own)
        rate = self._wire.capacity_bps / 8
        amount = own.amount * rate if own.mode == "duration" else own.amount / rate
        return self.task.doublings(Task(mode=self.task.mode, amount=amount))

    def _observed(self, choice: Choice, rtt_s: float, group: Sequence[Record]) -> list[Observation]:
        good = [record for record in group if record.outcome == "ok"]
        if not good:
            # What failed is not tried again before all else.
            return [Observation(choice=choice, rtt_s=rtt_s, ratios=(WORST,) * len(group))]
        told = [record for record in good if not record.overrun] or good
        return observed(choice, rtt_s, told, task=self.task, wire=self._wire)


def task_sought(plan: Plan) -> Task:
    """The largest amount that the plan's configurations move: sizes before durations."""
    tasks = [task_of(configuration) for configuration in plan.configurations]
    return max(tasks, key=lambda task: (task.mode == "size", task.amount))


def wire_of(connection: Connection) -> Wire:
    """The connection of a plan."""
    return Wire(
        rate_bps=float(connection.rate_bps),
        capacity_bps=connection.goodput_bps,
        mtu=connection.mtu,
        loss=connection.loss_share,
    )
