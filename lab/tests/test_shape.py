"""Concave and convex regions on profiles whose shape is known."""

from __future__ import annotations

import numpy as np
import pytest

from farlink_lab.shape import ShapeError, shape

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


def test_a_line_is_straight_with_one_run_and_undecided_with_noise():
    single = shape(RTTS, runs(10 - RTTS, noise=0.0, repetitions=1), seed=1)
    assert single.throughout == "straight"
    assert not single.judged
    claims = sum(
        point.bend != "undecided"
        for seed in range(40)
        for point in shape(
            RTTS, runs(10 - RTTS, noise=0.02, repetitions=6, seed=seed), seed=1, resamples=400
        ).points
    )
    # 200 points of no curvature: about one in ten is claimed at a share of 95% on either side; few runs add
    # some.
    assert claims < 60


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
