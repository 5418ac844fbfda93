"""Everything that the records of a campaign say, computed once, for whoever draws or tells it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from farlink_lab.confidence import ConfidenceError, Interval, intervals
from farlink_lab.cost import Cost, cost
from farlink_lab.dynamics import Dynamics, DynamicsError, dynamics, poincare_pairs, pooled_pairs
from farlink_lab.phases import LEAST_SAMPLES, Phases, PhasesAt, phases, phases_at
from farlink_lab.prediction import Prediction, predict
from farlink_lab.profile import LeftOut, Profile, configuration_order, profiles
from farlink_lab.quantity import show_time
from farlink_lab.regimes import Regimes, regimes
from farlink_lab.resampling import mean_band
from farlink_lab.shape import Shape, ShapeError
from farlink_lab.single_loss import LossCourse, loss_courses
from farlink_lab.utilization import Utilization, UtilizationError, utilization

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from farlink_lab.records import BrokenLine, Reading, Record

Array = NDArray[np.float64]

# Any will do, the same gives the same report.
RESAMPLING_SEED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why an analysis has no answer."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What a campaign found.

    Attributes:
        records: All of them, in the order of the file.
        broken: Lines that are no record.
        labels: Configurations in the order in which every figure and table shows them.
        profiles: In that order.
        left_out: How many records no profile counts, and why.
        regimes: By `Profile.key`.
        utilizations: By `Profile.key`.
        intervals: By `Profile.key`: of the next transfer, in each gap between RTTs that are not late.
        bands: By `Profile.key`: 95% of the mean, shape (2, k); absent with no spread to draw on.
        predictions: By `Profile.key`; absent where the model lacks a fact.
        costs: By `Profile.key`; absent where CPU seconds are unknown.
        phases: By line number of the record; absent where the samples are too few.
        phases_at: By `Profile.key`: RTT by RTT, those whose samples tell them.
        dynamics: By `Profile.key` and RTT (s): the sustained samples of all runs there, step by step.
        losses: What single losses did, where the connection was asked for some.

    Where an analysis cannot be made, the reason stands in its place.
    """

    records: tuple[Record, ...]
    broken: tuple[BrokenLine, ...]
    labels: tuple[str, ...]
    profiles: tuple[Profile, ...]
    left_out: LeftOut
    regimes: Mapping[str, Regimes | Refusal]
    utilizations: Mapping[str, Utilization | Refusal]
    intervals: Mapping[str, tuple[Interval, ...] | Refusal]
    bands: Mapping[str, Array]
    predictions: Mapping[str, Prediction]
    costs: Mapping[str, Cost]
    phases: Mapping[int, Phases]
    phases_at: Mapping[str, tuple[PhasesAt, ...]]
    dynamics: Mapping[tuple[str, float], Dynamics | Refusal]
    losses: tuple[LossCourse, ...] = ()

    @property
    def shapes(self) -> dict[str, Shape]:
        """By `Profile.key`; absent with fewer than three RTTs, or a throughput of 0."""
        return {key: found.shape for key, found in self.regimes.items() if not isinstance(found, Refusal)}

    def of_mode(self, mode: str) -> tuple[Profile, ...]:
        """The profiles of one mode: the two are never mixed."""
        return tuple(profile for profile in self.profiles if profile.mode == mode)

    def no_band(self, profile: Profile) -> str:
        """Why the mean of a profile has no bootstrap band."""
        if any((values <= 0).any() for values in profile.throughput_bps):
            return "a run moved nothing"
        return "too few RTTs have two runs, so that there is no spread to draw on"

    def no_phases(self, profile: Profile) -> str:
        """Why some RTTs of a profile have no phases; empty where all have."""
        told = {at.rtt_s for at in self.phases_at[profile.key]}
        untold = [rtt for rtt in profile.rtt_s.tolist() if rtt not in told]
        if not untold:
            return ""
        at = "" if len(untold) == len(profile.rtt_s) else f"at {', '.join(map(show_time, untold))} "
        return f"{at}no run has the {2 * LEAST_SAMPLES} samples that its phases take, or they moved nothing"

    @property
    def overrun_runs(self) -> int:
        """Records of runs in which the emulator fell behind, in a profile or not."""
        return sum(record.overrun for record in self.records)

    @property
    def stolen_s(self) -> float:
        """CPU seconds that hosts of virtual machines gave to others during the runs; 0 where none says."""
        return sum(record.emulator.stolen_s or 0.0 for record in self.records if record.emulator is not None)

    @property
    def judged_runs(self) -> int:
        """Records that know how late the emulator was."""
        return sum(record.emulator is not None for record in self.records)

    @property
    def late_runs(self) -> int:
        """Runs that profiles count though the emulator fell behind: their RTTs have no other."""
        return sum(profile.late_runs for profile in self.profiles)

    @property
    def late_points(self) -> int:
        """RTTs of configurations that rest on such runs alone."""
        return sum(profile.late_points for profile in self.profiles)


def find(reading: Reading) -> Findings:
    """What the records of `reading` say."""
    found, left_out = profiles(reading.records)
    split = {record.line: phases(record.samples) for record in reading.records}
    costs = {profile.key: cost(record for group in profile.records for record in group) for profile in found}
    predictions = {profile.key: predict(profile) for profile in found}
    bands = {
        profile.key: mean_band(profile.throughput_bps, late=profile.late, seed=RESAMPLING_SEED)
        for profile in found
    }
    return Findings(
        records=reading.records,
        broken=reading.broken,
        labels=tuple(configuration_order(reading.records)),
        profiles=found,
        left_out=left_out,
        regimes={profile.key: _regimes(profile) for profile in found},
        utilizations={profile.key: _utilization(profile) for profile in found},
        intervals={profile.key: _intervals(profile) for profile in found},
        bands={key: band for key, band in bands.items() if band is not None},
        predictions={key: known for key, known in predictions.items() if known is not None},
        costs={key: known for key, known in costs.items() if known is not None},
        phases={line: known for line, known in split.items() if known is not None},
        phases_at={profile.key: _phases_at(profile, split) for profile in found},
        dynamics={
            (profile.key, rtt): _dynamics(group, split)
            for profile in found
            for rtt, group in zip(profile.rtt_s.tolist(), profile.records, strict=True)
        },
        losses=loss_courses(found),
    )


def _regimes(profile: Profile) -> Regimes | Refusal:
    try:
        return regimes(profile.rtt_s, profile.throughput_bps, late=profile.late, seed=RESAMPLING_SEED)
    except ShapeError as error:
        return Refusal(reason=str(error))


def _utilization(profile: Profile) -> Utilization | Refusal:
    if profile.capacity_bps is None:
        return Refusal(reason="the capacity is unknown")
    try:
        return utilization(profile.rtt_s, profile.mean_bps, capacity_bps=profile.capacity_bps)
    except UtilizationError as error:
        return Refusal(reason=str(error))


def _intervals(profile: Profile) -> tuple[Interval, ...] | Refusal:
    # What a late run bounds is this machine as much as the connection.
    timely = [runs for runs, late in zip(profile.throughput_bps, profile.late, strict=True) if not late]
    if len(timely) < 2 <= len(profile.rtt_s):
        return Refusal(reason=f"{len(timely)} of {len(profile.rtt_s)} RTTs are not late, and it takes two")
    try:
        return intervals(profile.rtt_s[~profile.late], timely)
    except ConfidenceError as error:
        return Refusal(reason=str(error))


def _phases_at(profile: Profile, split: Mapping[int, Phases | None]) -> tuple[PhasesAt, ...]:
    found = []
    for rtt, group in zip(profile.rtt_s.tolist(), profile.records, strict=True):
        told = [
            (known, rate)
            for record in group
            if (known := split[record.line]) is not None and (rate := record.throughput_bps)
        ]
        at = phases_at(rtt, [known for known, _ in told], [rate for _, rate in told])
        found += [at] if at is not None else []
    return tuple(found)


def _dynamics(group: Sequence[Record], split: Mapping[int, Phases | None]) -> Dynamics | Refusal:
    told = [(record, known) for record in group if (known := split[record.line]) is not None]
    runs = [
        poincare_pairs(record.samples, since_s=known.ramp_up_s, rtt_s=record.rtt_s) for record, known in told
    ]
    try:
        return dynamics(pooled_pairs(runs))
    except DynamicsError as error:
        return Refusal(reason=str(error))
