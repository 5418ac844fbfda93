"""What few measurements say of those not made: a Gaussian process over configurations, RTTs and sizes.

What varies is ln(Θ/Θ_model), by how much a transfer differs from the model: 0 before anything is measured.
It is taken for the sum of what all configurations share, what those of one congestion control share, and
what is a configuration's own; each changes smoothly with ln τ. Two configurations of one congestion control
are the more alike the less their numbers of streams, how far their windows bind, and their blocks differ.
What a mover was told besides, such as options, tells as much apart as a congestion control. (Rasmussen and
Williams, Gaussian Processes for Machine Learning, 2006, 2.2; the numerics are scikit-learn's.)

A transfer of another size, or of another duration, is compared with the model of just that transfer, and says
the less of the one asked about the more doublings lie between them: the model has what a size changes by
itself, as slow start weighs less in a larger one.

How far transfers differ, and how far runs of a kind spread, grow with the RTT alike: the fewer round trips a
transfer has, the more one loss or one late step costs it. A run at a long RTT says accordingly less of a
shorter one.

A run's spread is Student's, not normal: now and then a transfer collapses, and one such run must not be
believed against all that its neighbours show. (Tipping and Lawrence 2005: the variational posterior, in which
every run has a weight.)

The scales below are set, not fitted: a dozen probes cannot tell them. They are those under which one
campaign of 56 places (bench/advice.md) was most likely, and hold for another of the same plan; that of sizes
is the one under which a campaign of 216 places was.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

if TYPE_CHECKING:
    from collections.abc import Sequence

    from farlink_lab.choice import Choice
    from farlink_lab.expectation import Wire

Array = NDArray[np.float64]

# Standard deviations of ln(Θ/Θ_model) at the shortest RTTs: most transfers differ from the model by less than
# a fifth there, by a third at 366 ms.
SHARED, OF_CONTROL, OWN = 0.09, 0.05, 0.13
# Over how many e-fold changes of the RTT each of the three stays alike.
SHARED_LENGTH, CONTROL_LENGTH, OWN_LENGTH = 2.5, 2.5, 5.0
# In doublings: of streams, and of the windows' share of the connection.
STREAMS_LENGTH, WINDOW_LENGTH = 4.0, 2.5
# Of blocks, in doublings: as of streams, for no campaign that set these scales varied them.
BLOCK_LENGTH = 4.0
# In doublings of the size, or of the duration: for all three.
SIZE_LENGTH = 8.0
# All of these, and the spread of runs, grow as (1 + τ/GROWTH_RTT_S)^GROWTH: 2.5 times by 366 ms.
GROWTH_RTT_S, GROWTH = 0.18, 0.8
# Windows that hold eight times the connection, or an eighth, are as good as boundless or as binding.
MOST_DOUBLINGS = 3.0
# Of a feature that a term ignores, and of the marks that tell names apart.
_IGNORED, _TOLD_APART = 1e6, 0.4
# Spread of a run at the shortest RTTs where no two were made alike, and the least: nothing repeats exactly.
USUAL_NOISE, LEAST_NOISE = 0.055, 0.01
# The usual spread weighs as much as so many pairs of like runs: two runs that happen to agree show nothing.
USUAL_PAIRS = 10
# Of Student's distribution of a run: one in 60 lies beyond four of its scales.
FREEDOM = 4.0
# The weights settle to a hundredth in about as many steps.
REWEIGHTED = 20
# A run below a fifth of the model, or above twice it, says no more than one that is just there.
WORST, BEST = math.log(0.2), math.log(2.0)


class SurrogateError(ValueError):
    """Measurements that nothing can be learnt from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What was measured of one configuration at one RTT.

    Attributes:
        choice: The configuration.
        rtt_s: τ.
        ratios: ln(Θ/Θ_model) of each run.
        late: Whether the emulator fell behind in all of them.
        doublings: log2 of how many times as much they did as is asked about.

    Raises:
        SurrogateError: where τ is not finite or not above 0, or there is no run, or a value is no number.
    """

    choice: Choice
    rtt_s: float
    ratios: tuple[float, ...]
    late: bool = False
    doublings: float = 0.0

    def __post_init__(self) -> None:
        _check_rtts([self.rtt_s])
        if not self.ratios or not all(map(math.isfinite, self.ratios)):
            raise SurrogateError("a place needs runs, each with a finite logarithm of its ratio to the model")
        if not math.isfinite(self.doublings):
            raise SurrogateError(f"{self.doublings:g} doublings: how much runs did must be finite")

    @property
    def median(self) -> float:
        """Of the runs, within what counts."""
        return float(np.clip(np.median(self.ratios), WORST, BEST))


class Surrogate:
    """ln(Θ/Θ_model) of any configuration at any RTT, with its uncertainty.

    Attributes:
        noise: Standard deviation of a run about its configuration's throughput, of ln Θ, at the shortest
            RTTs; `noise_at` has it at any.
    """

    def __init__(
        self, observations: Sequence[Observation], *, wire: Wire, controls: Sequence[tuple[str, str]]
    ) -> None:
        """Learns from `observations`, of which there may be none.

        Args:
            observations: What was measured.
            wire: The connection, for how far windows bind.
            controls: Every mover and congestion control that is ever asked about (`Choice.control`).
        """
        self.wire = wire
        self.controls = tuple(dict.fromkeys(controls))
        self.noise = spread(observations)
        self._process = None
        if observations:
            features = np.array(
                [self._features(one.choice, one.rtt_s, one.doublings) for one in observations]
            )
            grown = growth([one.rtt_s for one in observations])
            runs = [
                np.clip(one.ratios, WORST, BEST) / by for one, by in zip(observations, grown, strict=True)
            ]
            weights = run_weights(runs, np.asarray(self._kernel()(features)), noise=self.noise)
            self._process = GaussianProcessRegressor(
                kernel=self._kernel(),
                alpha=self.noise**2 / np.array([own.sum() for own in weights]),
                optimizer=None,
            )
            seen = [np.average(own, weights=weight) for own, weight in zip(runs, weights, strict=True)]
            self._process.fit(features, np.array(seen))

    def noise_at(self, rtt_s: Sequence[float] | Array) -> Array:
        """Standard deviation of a run's ln Θ about its configuration's, at n RTTs (s), shape (n,)."""
        spread_at: Array = self.noise * growth(rtt_s)
        return spread_at

    def at(
        self, places: Sequence[tuple[Choice, float]], *, doublings: Sequence[float] | None = None
    ) -> tuple[Array, Array]:
        """Mean and standard deviation of ln(Θ/Θ_model), without a run's own spread, each of shape (n,).

        Args:
            places: n configurations, each with an RTT in seconds.
            doublings: Of what is done there, as `Observation` has them; `None` is what is asked about.

        Raises:
            SurrogateError: where an RTT is not finite or not above 0.
        """
        mean, covariance = self.together(places, doublings=doublings)
        return mean, np.sqrt(np.clip(np.diag(covariance), 0, None))

    def together(
        self, places: Sequence[tuple[Choice, float]], *, doublings: Sequence[float] | None = None
    ) -> tuple[Array, Array]:
        """Mean, shape (n,), and covariance, shape (n, n), of ln(Θ/Θ_model).

        Args:
            places: n configurations, each with an RTT in seconds.
            doublings: Of what is done there, as `Observation` has them; `None` is what is asked about.

        Raises:
            SurrogateError: where an RTT is not finite or not above 0.
        """
        _check_rtts([rtt for _, rtt in places])
        done = [0.0] * len(places) if doublings is None else doublings
        features = np.array(
            [self._features(choice, rtt, size) for (choice, rtt), size in zip(places, done, strict=True)]
        )
        grown = growth([rtt for _, rtt in places])
        if self._process is None:
            return np.zeros(len(places)), np.asarray(self._kernel()(features)) * np.outer(grown, grown)
        mean, covariance = self._process.predict(features, return_cov=True)
        return np.asarray(mean) * grown, np.asarray(covariance) * np.outer(grown, grown)

    def _features(self, choice: Choice, rtt_s: float, doublings: float) -> list[float]:
        held, streams = MOST_DOUBLINGS, choice.streams_at(rtt_s)
        if choice.buffer_bytes is not None:
            share = 8 * streams * choice.buffer_bytes / (self.wire.capacity_bps * rtt_s)
            held = float(np.clip(math.log2(share), -MOST_DOUBLINGS, MOST_DOUBLINGS))
        marks = [float(choice.control == one) for one in self.controls]
        return [math.log(rtt_s), doublings, math.log2(streams), held, choice.block_doublings, *marks]

    def _kernel(self) -> Any:
        names = [_TOLD_APART] * len(self.controls)
        terms = (
            (SHARED, [SHARED_LENGTH, SIZE_LENGTH, *[_IGNORED] * (3 + len(names))]),
            (OF_CONTROL, [CONTROL_LENGTH, SIZE_LENGTH, *[_IGNORED] * 3, *names]),
            (OWN, [OWN_LENGTH, SIZE_LENGTH, STREAMS_LENGTH, WINDOW_LENGTH, BLOCK_LENGTH, *names]),
        )
        shared, control, own = (
            ConstantKernel(size**2, "fixed") * Matern(lengths, "fixed", nu=1.5) for size, lengths in terms
        )
        return shared + control + own


def run_weights(runs: Sequence[Array], prior: Array, *, noise: float) -> list[Array]:
    """How much each run counts, from almost 0 to (ν+1)/ν: the less, the further it lies from what all show.

    Args:
        runs: ln(Θ/Θ_model) of the runs at each of n places, arrays of any length above 0.
        prior: Covariance of the places before anything is seen, shape (n, n).
        noise: Scale of a run's spread, above 0.

    Returns:
        An array for each of `runs`, of its shape.

    Raises:
        SurrogateError: where a place has no run, or a value is no number.
    """
    if not runs or any(len(own) == 0 or not np.isfinite(own).all() for own in runs):
        raise SurrogateError("every place needs runs, each a finite number")
    if prior.shape != (len(runs), len(runs)) or not np.isfinite(prior).all():
        raise SurrogateError(
            f"a covariance of {len(runs)} places is finite, with a row and a column for each"
        )
    if not (math.isfinite(noise) and noise > 0):
        raise SurrogateError(f"a spread of {noise:g}: it must be finite and above 0")
    place = np.repeat(np.arange(len(runs)), [len(own) for own in runs])
    seen = np.concatenate(runs)
    weights = np.ones(len(seen))
    for step in range(REWEIGHTED):
        total = np.bincount(place, weights)
        mean = np.bincount(place, weights * seen) / total
        precision = np.linalg.inv(prior + np.diag(noise**2 / total))
        alone = 1 / np.diag(precision)
        if step == 0:
            # Begun from what the other places foretell of each: else one would confirm itself.
            expected, spread_of = mean - (precision @ mean) * alone, alone
            off = (seen - expected[place]) ** 2 / spread_of[place]
        else:
            expected = prior @ precision @ mean
            left = np.diag(prior - prior @ precision @ prior)
            off = ((seen - expected[place]) ** 2 + left[place]) / noise**2
        weights = (FREEDOM + 1) / (FREEDOM + off)
    return np.split(weights, np.cumsum([len(own) for own in runs])[:-1])


def growth(rtt_s: Sequence[float] | Array) -> Array:
    """By how much deviations from the model are larger at n RTTs (s) than at the shortest, shape (n,).

    Raises:
        SurrogateError: where an RTT is not finite or not above 0.
    """
    _check_rtts(rtt_s)
    grown: Array = (1 + np.asarray(rtt_s, dtype=np.float64) / GROWTH_RTT_S) ** GROWTH
    return grown


def spread(observations: Sequence[Observation]) -> float:
    """Standard deviation of a run's ln Θ at the shortest RTTs, from the runs that were repeated anywhere.

    By the median of the differences between two runs of a kind, which a few odd runs do not move (as
    Rousseeuw and Croux 1993).
    """
    differences: list[float] = []
    for observation in observations:
        grown = growth([observation.rtt_s]).item()
        pairs_of_runs = itertools.combinations(observation.ratios, 2)
        differences += [abs(one - other) / grown for one, other in pairs_of_runs]
    if not differences:
        return USUAL_NOISE
    # The median of |x| is 0.6745 σ, and a difference has √2 of a run's σ (normal distribution).
    shown, pairs = float(np.median(differences)) / (0.6745 * math.sqrt(2)), len(differences)
    mixed = (USUAL_PAIRS * USUAL_NOISE**2 + pairs * shown**2) / (USUAL_PAIRS + pairs)
    return max(math.sqrt(mixed), LEAST_NOISE)


def _check_rtts(rtt_s: Sequence[float] | Array) -> None:
    if not all(math.isfinite(rtt) and rtt > 0 for rtt in rtt_s):
        raise SurrogateError("RTTs must be finite and above 0")
