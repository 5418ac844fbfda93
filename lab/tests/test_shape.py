"""Concave and convex regions on profiles whose shape is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from farlink_lab.shape import ShapeError, shape
from farlink_lab.straight import LEVEL
from farlink_lab.words import certainty

# Of 200 with the profile itself the level is ten.
DEALS = 199
RTTS = np.array([0.0004, 0.0118, 0.0226, 0.0456, 0.0916, 0.183, 0.366])


def runs(means, *, noise, repetitions, seed=1):
    random = np.random.default_rng(seed)
    return [mean * (1 + noise * random.standard_normal(repetitions)) for mean in means]


def test_small_windows_are_convex_throughout():
    found = shape(RTTS, runs(1e6 / RTTS, noise=0.01, repetitions=3), seed=1)
    assert found.throughout == "convex"
    assert all(point.sure >= 0.95 for point in found.points)


def test_a_parabola_is_concave_throughout():
    assert shape(RTTS, runs(1 - 5 * RTTS**2, noise=0.0, repetitions=1), seed=1).points[-1].bend == "concave"


def test_a_line_is_straight_with_one_run():
    single = shape(RTTS, runs(10 - RTTS, noise=0.0, repetitions=1), seed=1)
    assert single.throughout == "straight"
    assert not single.judged


def collapsing(means, *, repetitions, seed):
    """Runs of which one in twelve has six tenths of the others."""
    random = np.random.default_rng(seed)
    fallen = np.where(random.random((len(means), repetitions)) < 1 / 12, 0.6, 1.0)
    return [
        values * by
        for values, by in zip(
            runs(means, noise=0.02, repetitions=repetitions, seed=seed), fallen, strict=True
        )
    ]


@pytest.mark.parametrize("repetitions", [3, 5, 12])
@pytest.mark.parametrize("collapse", [False, True])
def test_of_straight_profiles_one_in_twenty_gets_a_claim_at_most(repetitions, collapse):
    trials, means = 400, 10 - 9 * RTTS
    made = collapsing if collapse else lambda means, **how: runs(means, noise=0.03, **how)
    claimed = sum(
        any(
            point.bend != "undecided"
            for point in shape(
                RTTS, made(means, repetitions=repetitions, seed=1000 + seed), seed=1, deals=DEALS
            ).points
        )
        for seed in range(trials)
    )
    assert claimed <= binom.ppf(0.999, trials, LEVEL), claimed


def test_bends_that_are_there_are_claimed():
    u = RTTS / RTTS[-1]
    found = {}
    for bow in (0.075, 0.15):
        # Concave: at the middle so much above the straight line; runs spread by 3%.
        means = 10 - 5 * u + 10 * bow * 4 * u * (1 - u)
        points = [
            point
            for seed in range(100)
            for point in shape(
                RTTS, runs(means, noise=0.03, repetitions=5, seed=seed), seed=1, deals=DEALS
            ).points
        ]
        claimed = [point.bend for point in points if point.bend != "undecided"]
        assert claimed.count("convex") <= 5
        # Of five points the last, with the widest gaps, bends the most.
        found[bow] = np.mean([point.bend == "concave" for point in points if point.rtt_s == RTTS[-2]])
    assert found[0.075] >= 0.5
    assert found[0.15] >= 0.95


def test_a_turn_is_found_between_its_neighbours():
    means = 1 / (1 + np.exp(30 * (RTTS - 0.12)))
    found = shape(RTTS, runs(means, noise=0.002, repetitions=5), seed=1)
    assert found.turns() == ((0.0916, 0.183),)


def test_one_odd_point_does_not_silence_the_rest():
    measured = runs(1e6 / RTTS, noise=0.01, repetitions=3)
    measured[2] = measured[2][:1]
    found = shape(RTTS, measured, seed=1)
    assert found.judged
    assert (found.fewest, found.most) == (1, 3)


def test_late_points_are_never_sure_and_lend_no_certainty():
    measured = runs(1e6 / RTTS, noise=0.01, repetitions=3)
    late = np.array([True, True, *[False] * 5])
    found = shape(RTTS, measured, late=late, seed=1)
    assert [point.late for point in found.points] == [True, True, False, False, False]
    assert [point.sure is None for point in found.points] == [True, True, False, False, False]
    assert found.throughout == "convex"
    assert found.regions[0].sure is None
    assert (found.rtts, found.late) == (7, 2)
    assert (
        "judged on 7 RTTs, 2 of them late: 3 runs a point, away from late RTTs each bent more than"
        in certainty(found)
    )
    # However wild late runs are, the certainty of the others is the same.
    wild = [
        values * [0.5, 1.0, 1.5] if behind else values for values, behind in zip(measured, late, strict=True)
    ]
    for calm, shaken in zip(found.points[2:], shape(RTTS, wild, late=late, seed=1).points[2:], strict=True):
        assert calm.sure == shaken.sure


@pytest.mark.parametrize("healthy", [0, 2])
def test_late_runs_alone_tell_the_shape_only(healthy):
    measured = runs(1e6 / RTTS, noise=0.01, repetitions=6)
    measured[:healthy] = [values[:1] for values in measured[:healthy]]
    late = np.arange(len(RTTS)) >= healthy
    found = shape(RTTS, measured, late=late, seed=1)
    assert not found.judged
    assert certainty(found).endswith("shape only")


@pytest.mark.parametrize(
    ("rtts", "values"),
    [
        ([0.1, 0.2], [1.0, 1.0]),
        ([0.1, 0.1, 0.2], [1.0, 1.0, 1.0]),
        ([0.1, 0.2, 0.3], [1.0, 0.0, 1.0]),
        ([0.1, 0.2, 0.3], [1.0, float("nan"), 1.0]),
        ([0.1, 0.2, float("nan")], [1.0, 1.0, 1.0]),
    ],
)
def test_what_has_no_shape_is_an_error(rtts, values):
    with pytest.raises(ShapeError):
        shape(np.array(rtts), [np.array([value]) for value in values], seed=1)
