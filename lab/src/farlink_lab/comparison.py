"""Two campaigns side by side, before and after a change: how much each configuration differs, and how surely.

Runs are few and their distribution is unknown, so nothing here supposes one: intervals are percentile
bootstrap intervals (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13), and a
difference is called clear by a permutation test (the same, chapter 15), at a false discovery rate of
`1 − LEVEL` over all that are tested together (Benjamini and Hochberg, J. R. Stat. Soc. B 57, 1995).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import comb
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.stats import false_discovery_control

from farlink_lab.profile import Profile, profiles
from farlink_lab.quantity import show_rate, show_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from farlink_lab.records import Record

Array = NDArray[np.float64]

LEVEL = 0.95
# Enough for the second digit of a quantile at 2.5%.
RESAMPLES = 9_999
# Of fewer runs the bootstrap draws the same few values again, and an interval promises too much. At one RTT
# what three runs a side draw holds the truth in at most 90%: of 20 ways to split six, the two most extreme
# are beyond it. In 500 simulated comparisons each (normal runs, and such of which one in ten collapsed) an
# interval of 95% held it in 88 to 90% with three runs a side at one RTT, in 93% with four, in 95 to 98% with
# five to ten; over two RTTs and more in 95% and more with three.
LEAST_RUNS, LEAST_RUNS_ALONE = 3, 5
# Tools that measure their own time end some milliseconds beside the time asked for; 2 GB and 2 GiB are two.
AMOUNT_TOLERANCE = 0.05
# Of the connection of runs that are compared.
_GRANTED = "granted buffers"
_FACTS = ("rate", "queue", "MTU", "framing", "loss", "other traffic", "socket buffers", _GRANTED)
# Any will do, the same gives the same answer.
SEED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """Throughput after over throughput before.

    Attributes:
        value: Of the medians; over several RTTs the geometric mean of theirs.
        low, high: The interval at `LEVEL`; `None` with fewer than `LEAST_RUNS` runs on a side, at a single
            RTT with fewer than `LEAST_RUNS_ALONE`.
        chance: How often runs that do not differ would differ as much (permutation test); `None` where
            nothing could be tested.
        clear: Whether it differs clearly from 1.
    """

    value: float
    low: float | None
    high: float | None
    chance: float | None
    clear: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Throughput after less throughput before, bit/s.

    Attributes:
        value: Of the medians; over several RTTs the mean of theirs.
        low, high: As of `Ratio`.
    """

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One configuration at one RTT.

    Attributes:
        before_bps, after_bps: Median throughput.
        before_runs, after_runs: How many runs each rests on.
        late: Whether the emulator fell behind in every run of a side: then nothing about it is clear.
        difference: After less before.
        ratio: `None` where a run moved nothing.
    """

    rtt_s: float
    before_bps: float
    after_bps: float
    before_runs: int
    after_runs: int
    late: bool
    difference: Difference
    ratio: Ratio | None

    @property
    def enough(self) -> bool:
        """Whether its runs could show a difference at all, however large: three a side cannot."""
        ways = comb(self.before_runs + self.after_runs, self.before_runs)
        # With as many on both sides, each way has its mirror image, which differs as much.
        return (2 if self.before_runs == self.after_runs else 1) / ways <= 1 - LEVEL


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One configuration in both campaigns.

    Attributes:
        amount: Of each run, for a person: `2 GiB` or `10 s`.
        points: By RTT, growing: the RTTs that both have.
        only_before_s, only_after_s: RTTs that only one has.
        overall: Over all RTTs that count (not late, nothing zero); `None` where there is none.
        difference: Likewise over those.
    """

    label: str
    mode: str
    amount: str
    points: tuple[Point, ...]
    only_before_s: tuple[float, ...]
    only_after_s: tuple[float, ...]
    overall: Ratio | None
    difference: Difference | None

    @property
    def name(self) -> str:
        """Label and amount, for a person."""
        return f"{self.label}, {self.amount}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What two campaigns have in common, and what only one has.

    Attributes:
        pairs: In the order of the first campaign's profiles.
        only_before, only_after: Names of configurations that only one has.
        other_amounts: Names of configurations, as (before, after), whose runs are of another size or
            duration: different curves, which are not compared.
        other_connection: Facts of the connection in which the runs of `pairs` differ, as (name, before,
            after), for a person: what is compared then differs in more than what was changed.
        limited: Runs (before, after) that their user held to a rate, and that count in no pair.
    """

    pairs: tuple[Pair, ...]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
    other_amounts: tuple[tuple[str, str], ...]
    other_connection: tuple[tuple[str, str, str], ...] = ()
    limited: tuple[int, int] = (0, 0)


def compare(before: Iterable[Record], after: Iterable[Record]) -> Comparison:
    """The profiles of two campaigns, configuration by configuration and RTT by RTT.

    Configurations are the same where label, mode and (within `AMOUNT_TOLERANCE`) amount are; RTTs where they
    agree to three digits, as in a profile. Records that no profile counts count here neither.
    """
    (ours, left_before), (theirs, left_after) = profiles(before), profiles(after)
    old, new = ({found.key: found for found in side} for side in (ours, theirs))
    both = [key for key in old if key in new]
    same = [key for key in both if _alike(old[key], new[key])]
    pairs = [_pair(old[key], new[key]) for key in same]
    return Comparison(
        pairs=_judged(pairs),
        only_before=tuple(found.name for key, found in old.items() if key not in new),
        only_after=tuple(found.name for key, found in new.items() if key not in old),
        other_amounts=tuple((old[key].name, new[key].name) for key in both if key not in same),
        other_connection=_other_connection([(old[key], new[key]) for key in same]),
        limited=(left_before.limited, left_after.limited),
    )


def _other_connection(pairs: Sequence[tuple[Profile, Profile]]) -> tuple[tuple[str, str, str], ...]:
    """Facts in which the two of a pair differ, with what those of such pairs say of them."""
    facts = [(_connection(before), _connection(after)) for before, after in pairs]
    said = []
    for name in _FACTS:
        told = [(old[name], new[name]) for old, new in facts if name != _GRANTED or (old[name] and new[name])]
        differ = [(old, new) for old, new in told if old != new]
        if differ:
            old, new = (", ".join(sorted(set().union(*side))) for side in zip(*differ, strict=True))
            said.append((name, old or "unknown", new or "unknown"))
    return tuple(said)


def _connection(found: Profile) -> dict[str, set[str]]:
    """What the records of a profile say of their connection, for a person."""
    said: dict[str, set[str]] = {name: set() for name in _FACTS}
    for record in (record for group in found.records for record in group):
        fields, asked = record.fields, record.buffer_bytes
        queue, loss, load = (fields.get(key) for key in ("queue_bytes", "loss", "background_bps"))
        for name, text in (
            ("rate", show_rate(record.rate_bps) if record.rate_bps else None),
            ("queue", show_size(queue) if isinstance(queue, int) else None),
            ("MTU", f"{record.mtu}" if record.mtu else None),
            ("framing", str(fields["framing"]) if "framing" in fields else None),
            ("loss", f"{loss:g}" if isinstance(loss, int | float) else None),
            ("other traffic", show_rate(load) if isinstance(load, int | float) and load else "none"),
            ("socket buffers", "the kernel's" if asked is None else show_size(asked)),
            (_GRANTED, None if asked is None else _granted(fields.get("buffers"))),
        ):
            if text is not None:
                said[name].add(text)
    return said


def _granted(buffers: object) -> str | None:
    """What a transfer that asked for buffers was granted; where the kernel tunes them, each run differs."""
    if not isinstance(buffers, dict):
        return None
    ends = [(end, size) for end in ("send", "receive") if isinstance(size := buffers.get(end), int) and size]
    return " and ".join(f"{show_size(size)} to {end}" for end, size in ends) or None


def _alike(before: Profile, after: Profile) -> bool:
    return abs(before.amount - after.amount) <= AMOUNT_TOLERANCE * max(before.amount, after.amount)


def _pair(before: Profile, after: Profile) -> Pair:
    places = {
        float(rtt): (k, list(after.rtt_s).index(rtt))
        for k, rtt in enumerate(before.rtt_s)
        if rtt in after.rtt_s
    }
    points = []
    counted: list[tuple[Array, Array]] = []
    for rtt, (k, j) in places.items():
        old, new = before.throughput_bps[k], after.throughput_bps[j]
        late = bool(before.late[k] or after.late[j])
        positive = bool((old > 0).all() and (new > 0).all())
        if positive and not late:
            counted.append((old, new))
        points.append(
            Point(
                rtt_s=rtt,
                before_bps=float(np.median(old)),
                after_bps=float(np.median(new)),
                before_runs=len(old),
                after_runs=len(new),
                late=late,
                difference=difference([(old, new)]),
                ratio=ratio([(old, new)], tested=not late) if positive else None,
            )
        )
    return Pair(
        label=before.label,
        mode=before.mode,
        amount=before.amount_shown,
        points=tuple(points),
        only_before_s=tuple(float(rtt) for rtt in before.rtt_s if float(rtt) not in places),
        only_after_s=tuple(float(rtt) for rtt in after.rtt_s if float(rtt) not in places),
        overall=ratio(counted) if counted else None,
        difference=difference(counted) if counted else None,
    )


def ratio(strata: Sequence[tuple[Array, Array]], *, tested: bool = True) -> Ratio:
    """After over before, over strata that are never mixed: one RTT each.

    Args:
        strata: Throughputs (before, after), shapes (n,) and (m,), all above 0.
        tested: Whether the permutation test is made.

    Returns:
        The geometric mean over strata of the ratio of medians; its interval by resampling within each side
        of each stratum; the chance by exchanging before and after within each stratum, with the mean
        difference of logarithms as what is tested.

    Raises:
        ValueError: where a stratum is empty or has a throughput that is not above 0.
    """
    if not strata or any(len(side) == 0 or not (side > 0).all() for pair in strata for side in pair):
        raise ValueError("a ratio needs throughputs above 0 on both sides")
    logs = [(np.log(old), np.log(new)) for old, new in strata]
    draw = np.random.default_rng(SEED)
    value = _mean([float(np.median(new) - np.median(old)) for old, new in logs])
    low = high = None
    if _holds_its_claim(logs):
        medians = [_medians(new, draw) - _medians(old, draw) for old, new in logs]
        low, high = np.quantile(np.mean(medians, axis=0), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Ratio(
        value=float(np.exp(value)),
        low=None if low is None else float(np.exp(low)),
        high=None if high is None else float(np.exp(high)),
        chance=_chance(logs, draw) if tested else None,
    )


def difference(strata: Sequence[tuple[Array, Array]]) -> Difference:
    """After less before, over strata that are never mixed: one RTT each.

    Args:
        strata: Throughputs (before, after), shapes (n,) and (m,), bit/s.

    Returns:
        The mean over strata of the difference of medians; its interval by resampling as of `ratio`.

    Raises:
        ValueError: where a stratum is empty or has a throughput that is not finite.
    """
    if not strata or any(len(side) == 0 or not np.isfinite(side).all() for pair in strata for side in pair):
        raise ValueError("a difference needs finite throughputs on both sides")
    draw = np.random.default_rng(SEED)
    low = high = None
    if _holds_its_claim(strata):
        drawn = np.mean([_medians(new, draw) - _medians(old, draw) for old, new in strata], axis=0)
        low, high = (float(value) for value in np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]))
    value = _mean([float(np.median(new) - np.median(old)) for old, new in strata])
    return Difference(value=value, low=low, high=high)


def _holds_its_claim(strata: Sequence[tuple[Array, Array]]) -> bool:
    """Whether an interval from so many runs would hold the truth as often as `LEVEL` says."""
    least = LEAST_RUNS_ALONE if len(strata) == 1 else LEAST_RUNS
    return min(len(side) for pair in strata for side in pair) >= least


def _medians(values: Array, draw: np.random.Generator) -> Array:
    """Medians of resamples, shape (RESAMPLES,)."""
    medians: Array = np.median(values[draw.integers(len(values), size=(RESAMPLES, len(values)))], axis=1)
    return medians


def _chance(logs: Sequence[tuple[Array, Array]], draw: np.random.Generator) -> float:
    seen = _mean([float(new.mean() - old.mean()) for old, new in logs])
    drawn = np.zeros(RESAMPLES)
    for old, new in logs:
        pooled = np.concatenate([old, new])
        order = draw.random((RESAMPLES, len(pooled))).argsort(axis=1)
        mixed = pooled[order]
        drawn += (mixed[:, len(old) :].mean(axis=1) - mixed[:, : len(old)].mean(axis=1)) / len(logs)
    # The runs as they are count as one of the draws, so that the chance is never zero; sums in another order
    # differ in the last digits.
    beyond = int((np.abs(drawn) >= abs(seen) - 1e-12).sum())
    return (1 + beyond) / (1 + RESAMPLES)


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def _judged(pairs: Sequence[Pair]) -> tuple[Pair, ...]:
    """The same with what is clear: points among points, and configurations among configurations."""
    points = iter(_clear([point.ratio for pair in pairs for point in pair.points]))
    overall = iter(_clear([pair.overall for pair in pairs]))
    return tuple(
        replace(
            pair,
            points=tuple(replace(point, ratio=next(points)) for point in pair.points),
            overall=next(overall),
        )
        for pair in pairs
    )


def _clear(ratios: Sequence[Ratio | None]) -> list[Ratio | None]:
    tested = [each.chance for each in ratios if each is not None and each.chance is not None]
    if not tested:
        return list(ratios)
    adjusted = iter(false_discovery_control(tested).tolist())
    return [
        each
        if each is None or each.chance is None
        else replace(each, clear=next(adjusted) <= 1 - LEVEL and _apart(each))
        for each in ratios
    ]


def _apart(found: Ratio) -> bool:
    """Whether the interval, where there is one, agrees that it is not 1."""
    return found.low is None or found.high is None or not found.low <= 1 <= found.high
