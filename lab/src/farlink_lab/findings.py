"""Everything that the records of a campaign say, computed once, for whoever draws or tells it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from farlink_lab.cost import Cost, cost
from farlink_lab.phases import Phases, phases
from farlink_lab.prediction import Prediction, predict
from farlink_lab.profile import LeftOut, Profile, configuration_order, profiles
from farlink_lab.shape import Shape, ShapeError, shape
from farlink_lab.single_loss import LossCourse, loss_courses

if TYPE_CHECKING:
    from collections.abc import Mapping

    from farlink_lab.records import BrokenLine, Reading, Record

# Any will do, the same gives the same report.
RESAMPLING_SEED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What a campaign found.

    Attributes:
        records: All of them, in the order of the file.
        broken: Lines that are no record.
        labels: Configurations in the order in which every figure and table shows them.
        profiles: In that order.
        left_out: How many records no profile counts, and why.
        shapes: By `Profile.key`; absent with fewer than three RTTs.
        predictions: By `Profile.key`; absent where the model lacks a fact.
        costs: By `Profile.key`; absent where CPU seconds are unknown.
        phases: By line number of the record; absent where the samples are too few.
        losses: What single losses did, where the connection was asked for some.
    """

    records: tuple[Record, ...]
    broken: tuple[BrokenLine, ...]
    labels: tuple[str, ...]
    profiles: tuple[Profile, ...]
    left_out: LeftOut
    shapes: Mapping[str, Shape]
    predictions: Mapping[str, Prediction]
    costs: Mapping[str, Cost]
    phases: Mapping[int, Phases]
    losses: tuple[LossCourse, ...] = ()

    def of_mode(self, mode: str) -> tuple[Profile, ...]:
        """The profiles of one mode: the two are never mixed."""
        return tuple(profile for profile in self.profiles if profile.mode == mode)

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
    return Findings(
        records=reading.records,
        broken=reading.broken,
        labels=tuple(configuration_order(reading.records)),
        profiles=found,
        left_out=left_out,
        shapes={profile.key: known for profile in found if (known := _shape(profile)) is not None},
        predictions={key: known for key, known in predictions.items() if known is not None},
        costs={key: known for key, known in costs.items() if known is not None},
        phases={line: known for line, known in split.items() if known is not None},
        losses=loss_courses(found),
    )


def _shape(profile: Profile) -> Shape | None:
    try:
        return shape(profile.rtt_s, profile.throughput_bps, late=profile.late, seed=RESAMPLING_SEED)
    except ShapeError:
        return None
