"""Which runs a plan means, in which order, and how long they will take."""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from farlink_lab import model

if TYPE_CHECKING:
    from collections.abc import Iterable

    from farlink_lab.plan import Configuration, Connection, Plan

# Starting a server and a client, asking the emulator, and letting the last run's packets drain.
OVERHEAD_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One transfer of a campaign.

    Attributes:
        identity: 16 hexadecimal digits, from what defines the run; the same in every process.
        repetition: From 0.
        expected_s: How long it should take, by the model.
    """

    identity: str
    configuration: Configuration
    rtt_s: float
    repetition: int
    expected_s: float


def schedule(plan: Plan) -> tuple[Run, ...]:
    """Every run of `plan`, repetition by repetition, each in an order of its own drawn from the plan's seed.

    So a drift of the machine falls on all configurations and RTTs alike, and a campaign cut short has
    measured all of them about as often. Movers that do the same at the same RTT go one after the other, in
    an order drawn likewise: what they are compared by is then as alike as it can be.
    """
    runs: list[Run] = []
    for repetition in range(plan.repetitions):
        settings = plan.settings
        draw = random.Random(f"{plan.seed}:{repetition}")
        draw.shuffle(settings)
        places = {task: draw.random() for task in dict.fromkeys(map(_task, settings))}
        settings.sort(key=lambda setting: places[_task(setting)])
        runs += (
            Run(
                identity=identity(plan.connection, configuration, rtt_s=rtt, repetition=repetition),
                configuration=configuration,
                rtt_s=rtt,
                repetition=repetition,
                expected_s=expected_s(configuration, connection=plan.connection, rtt_s=rtt),
            )
            for rtt, configuration in settings
        )
    return tuple(runs)


def _task(setting: tuple[float, Configuration]) -> str:
    """What movers are compared in: everything but the mover."""
    rtt, configuration = setting
    return f"{rtt} {configuration.matter() | {'mover': None}}"


def identity(connection: Connection, configuration: Configuration, *, rtt_s: float, repetition: int) -> str:
    """16 hexadecimal digits that are the same whenever the same thing is measured; labels do not matter."""
    matter = [connection.matter(), configuration.matter(), round(rtt_s * 1e9), repetition]
    return hashlib.sha256(json.dumps(matter, sort_keys=True).encode()).hexdigest()[:16]


def expected_s(configuration: Configuration, *, connection: Connection, rtt_s: float) -> float:
    """Seconds that a run should take: the time asked for, or the size by the model."""
    if configuration.size_bytes is None:
        moving = configuration.duration_s or 0.0
    else:
        capacity = connection.goodput_bps
        if configuration.buffer_bytes is not None:
            capacity = model.window_limit_bps(
                rtt_s,
                capacity_bps=capacity,
                streams=configuration.streams,
                window_bytes=configuration.buffer_bytes,
            ).item()
        rate = model.slow_start_of_size_bps(
            rtt_s,
            capacity_bps=capacity,
            size_bytes=configuration.size_bytes,
            streams=configuration.streams,
            window_bytes=model.initial_window_bytes(mtu=connection.mtu),
            arrival=True,
        )
        moving = 8 * configuration.size_bytes / rate.item()
    # Setup takes two round trips, the end one, and draining one.
    return moving + 4 * rtt_s + OVERHEAD_S


class TimeLeft:
    """Seconds left of a campaign: the model's, corrected by what was seen of each mode."""

    def __init__(self) -> None:
        self._seen: dict[str, list[float]] = {}

    def saw(self, run: Run, *, took_s: float) -> None:
        """Learns that `run` took `took_s` seconds."""
        seen = self._seen.setdefault(run.configuration.mode, [0.0, 0.0])
        seen[0] += took_s
        seen[1] += run.expected_s

    def of(self, run: Run) -> float:
        """How long `run` should take, seconds."""
        took, expected = self._seen.get(run.configuration.mode, (0.0, 0.0))
        # Two expected runs' worth of the model, so that one odd run does not rule the estimate.
        weight = 2 * run.expected_s
        return run.expected_s * (took + weight) / (expected + weight)

    def of_all(self, runs: Iterable[Run]) -> float:
        """How long all of `runs` should take, seconds."""
        return sum(self.of(run) for run in runs)
