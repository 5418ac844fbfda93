"""Regimes and the transition RTT on synthetic profiles whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import nnls
from scipy.stats import binom

from farlink_lab import model
from farlink_lab.regimes import TESTED_DEALS, monotone_bps, regimes
from farlink_lab.regimes import tested_regime as regime_tested
from farlink_lab.resampling import lenders
from farlink_lab.shape import ShapeError
from farlink_lab.sigmoid import DualSigmoid, SigmoidError, grid
from farlink_lab.straight import LEVEL, straight

RTTS = np.array([0.0004, 0.0118, 0.0226, 0.0456, 0.0916, 0.183, 0.366])
TRUTHS = (
    DualSigmoid(
        transition_s=0.06,
        concave_per_s=100,
        convex_per_s=10,
        first_bps=9.5e9,
        transition_bps=7e9,
        last_bps=0.5e9,
    ),
    DualSigmoid(
        transition_s=0.0916,
        concave_per_s=60,
        convex_per_s=20,
        first_bps=9.8e9,
        transition_bps=7e9,
        last_bps=0.5e9,
    ),
    DualSigmoid(
        transition_s=0.15,
        concave_per_s=20,
        convex_per_s=30,
        first_bps=9.8e9,
        transition_bps=6e9,
        last_bps=1e9,
    ),
    # A window's limit that begins to bind: flat, a corner, and convex from there on.
    DualSigmoid(
        transition_s=0.07,
        concave_per_s=1,
        convex_per_s=20,
        first_bps=9e9,
        transition_bps=9e9,
        last_bps=1e9,
    ),
)


def runs(means, *, noise, repetitions, seed=1):
    random = np.random.default_rng(seed)
    return [mean * (1 + noise * random.standard_normal(repetitions)) for mean in means]


def regime(measured, *, deals=TESTED_DEALS):
    """The regime alone, as `regimes` tests it."""
    lending = lenders(measured, np.zeros(len(RTTS), dtype=np.bool_))
    return regime_tested(RTTS, measured, straight(measured, lending=lending, seed=1, deals=deals))


def test_the_transition_is_within_its_interval_in_nine_of_ten_trials():
    recovered, told = 0, 0
    for trial in range(200):
        truth = TRUTHS[trial % len(TRUTHS)]
        measured = runs(truth.throughput_bps(RTTS), noise=0.05, repetitions=8, seed=trial)
        found = regimes(RTTS, measured, seed=1, resamples=40, deals=99)
        if found.transition_s is not None:
            told += 1
            recovered += found.transition_s[0] <= truth.transition_s <= found.transition_s[1]
            assert found.transition_s[0] <= found.sigmoid.transition_s <= found.transition_s[1]
    # A trial that tells no transition has not recovered it.
    assert recovered >= 180, (recovered, told)


def test_little_noise_gives_a_narrow_interval():
    truth = TRUTHS[2]
    found = regimes(RTTS, runs(truth.throughput_bps(RTTS), noise=0.002, repetitions=8), seed=1)
    low, high = found.transition_s
    assert low <= truth.transition_s <= high
    assert 0.0916 < low < high <= 0.183
    assert found.sigmoid.throughput_bps(RTTS) == pytest.approx(truth.throughput_bps(RTTS), rel=0.01)


def test_the_two_branches_join_and_fall():
    for truth in TRUTHS:
        at = truth.transition_s
        around = truth.throughput_bps([at * (1 - 1e-9), at, at * (1 + 1e-9)])
        assert around == pytest.approx(truth.transition_bps, rel=1e-6)
        fine = np.linspace(0, 0.5, 2001)
        values = truth.throughput_bps(fine)
        assert (np.diff(values) <= 0).all()
        bends = np.diff(values, 2)[(np.abs(fine[1:-1] - at) > 0.001)]
        before = fine[1:-1][(np.abs(fine[1:-1] - at) > 0.001)] < at
        assert (bends[before] <= 1).all()
        assert (bends[~before] >= -1).all()


def test_the_search_finds_what_exhaustive_search_finds():
    random = np.random.default_rng(3)
    means = TRUTHS[2].throughput_bps(RTTS) * (1 + 0.03 * random.standard_normal(len(RTTS)))
    candidates = grid(RTTS, means)
    fast = candidates.errors(means[None, :])[:, 0]
    weights = np.sqrt(candidates.weights)
    for index in (0, 7, 13, 20):
        at = candidates.transitions_s[index]
        least = np.inf
        for concave in np.geomspace(0.3, 40, 30) / (at - RTTS[0]):
            for convex in np.geomspace(0.3, 100, 60) / (RTTS[-1] - at):
                since = RTTS - at
                before = -np.tanh(concave * np.minimum(since, 0) / 2)
                after = 1 - np.tanh(convex * np.maximum(since, 0) / 2)
                columns = np.stack([np.ones_like(before), after, before], axis=1)
                least = min(least, nnls(columns * weights[:, None], means * weights)[1] ** 2)
        assert fast[index] == pytest.approx(least, rel=0.1, abs=2e-5)


def test_small_windows_are_all_convex():
    found = regimes(RTTS, runs(1e8 / RTTS, noise=0.05, repetitions=5), seed=1)
    assert found.regime == "all convex"
    assert found.sigmoid is None
    assert found.transition_s is None
    assert "τ_T lies below 11.8 ms, if anywhere" in found.reason


def test_a_parabola_is_all_concave():
    found = regimes(RTTS, runs(1e10 * (1 - 5 * RTTS**2), noise=0.02, repetitions=8), seed=1)
    assert found.regime == "all concave"
    assert "τ_T lies above 183 ms, if anywhere" in found.reason


@pytest.mark.parametrize("repetitions", [3, 5, 12])
def test_of_straight_profiles_one_in_twenty_is_called_anything_at_most(repetitions):
    trials = 400
    # Of 200 with the profile itself the level of each side is five.
    said = [
        regime(runs(10 - 9 * RTTS, noise=0.03, repetitions=repetitions, seed=1000 + seed), deals=199)
        for seed in range(trials)
    ]
    assert trials - said.count("undecided") <= binom.ppf(0.999, trials, LEVEL), said


def test_profiles_that_bend_are_told_so():
    u = RTTS / RTTS[-1]
    for bow, least in ((0.0375, 50), (0.075, 95)):
        # At the middle so much above or below the straight line; runs spread by 3%.
        for sign, bent in ((1, "all concave"), (-1, "all convex")):
            means = 10 - 5 * u + sign * 10 * bow * 4 * u * (1 - u)
            measured = [runs(means, noise=0.03, repetitions=5, seed=seed) for seed in range(100)]
            said = [regime(values) for values in measured]
            assert said.count(bent) >= least, (bow, bent, said)
            assert regimes(RTTS, measured[0], seed=1, resamples=20).regime == said[0]


def test_slow_start_is_concave_before_its_inflection_and_convex_after():
    start = {"capacity_bps": 10e9, "streams": 10, "window_bytes": 15_000}
    means = model.slow_start_of_size_bps(RTTS, size_bytes=10e9, **start)
    found = regimes(RTTS, runs(means, noise=0.0005, repetitions=8), seed=1)
    low, high = found.transition_s
    assert found.regime == "concave then convex"
    assert low <= model.inflection_rtt_s(size_bytes=10e9, **start) <= high


def test_one_run_a_point_has_a_regime_and_no_interval():
    means = TRUTHS[2].throughput_bps(RTTS)
    found = regimes(RTTS, [np.array([mean]) for mean in means], seed=1)
    assert found.regime == "concave then convex"
    assert found.sigmoid.transition_s == pytest.approx(0.15, abs=0.03)
    assert found.transition_s is None
    assert "no interval" in found.reason


def test_three_rtts_have_no_dual_sigmoid():
    rtts = RTTS[[0, 3, 6]]
    found = regimes(rtts, runs([10.0, 9.0, 1.0], noise=0.01, repetitions=5), seed=1)
    assert found.regime == "all concave"
    with pytest.raises(SigmoidError, match="at least 4 RTTs, here are 3"):
        grid(rtts, np.array([10.0, 9.0, 1.0]))


def test_the_regression_never_rises_and_keeps_the_mean():
    measured = [np.array(values) for values in ([9.0, 9.2], [9.6], [5.0, 5.2], [5.5])]
    fitted = monotone_bps(measured)
    assert (np.diff(fitted) <= 0).all()
    assert fitted[0] == fitted[1] == pytest.approx((9.0 + 9.2 + 9.6) / 3)
    assert fitted[2] == fitted[3] == pytest.approx((5.0 + 5.2 + 5.5) / 3)


@pytest.mark.parametrize(
    ("rtts", "values", "said"),
    [
        ([0.1], [1.0], "at least three RTTs, each with runs; here are 1"),
        ([0.1, 0.2], [1.0, 1.0], "here are 2"),
        ([0.1, 0.1, 0.2], [1.0, 1.0, 1.0], "must be finite and grow"),
        ([0.1, 0.2, 0.3], [1.0, 0.0, 1.0], "throughput above 0"),
        ([0.1, 0.2, 0.3], [1.0, float("nan"), 1.0], "throughput above 0"),
    ],
)
def test_what_has_no_regime_is_a_named_error(rtts, values, said):
    with pytest.raises(ShapeError, match=said):
        regimes(np.array(rtts), [np.array([value]) for value in values], seed=1)


@pytest.mark.parametrize("bad", [0.0, float("nan"), -1.0])
def test_the_sigmoid_refuses_what_is_no_throughput(bad):
    with pytest.raises(SigmoidError, match="throughput above 0"):
        grid(RTTS, np.array([9.0, 9.0, 9.0, 9.0, bad, 9.0, 9.0]))
    with pytest.raises(SigmoidError, match="finite and grow"):
        grid(RTTS[::-1], np.ones(7))
