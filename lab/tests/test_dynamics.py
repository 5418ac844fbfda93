"""The Lyapunov exponent of maps that are known, and of noise, which has none."""

from __future__ import annotations

import math

import numpy as np
import pytest

from farlink_lab.dynamics import DynamicsError, dynamics, poincare_pairs, pooled_pairs


def pairs(values):
    values = np.asarray(values)
    return np.stack([values[:-1], values[1:]], axis=1)


def logistic(steps):
    values = [0.3]
    for _ in range(steps):
        values.append(4 * values[-1] * (1 - values[-1]))
    return values


@pytest.mark.parametrize(("steps", "off"), [(200, 0.06), (2000, 0.01)])
def test_the_logistic_map_has_ln_2(steps, off):
    found = dynamics(pairs(logistic(steps)))
    assert found.lyapunov == pytest.approx(math.log(2), abs=off)
    assert found.scatter < 0.01


def test_noise_flattens_the_logistic_map():
    noise = np.random.default_rng(1).standard_normal(2001)
    flattened = [dynamics(pairs(np.array(logistic(2000)) + share * noise)).lyapunov for share in (0.01, 0.05)]
    assert flattened == pytest.approx([0.51, 0.21], abs=0.05)


def test_a_noisy_constant_has_no_map():
    noise = np.random.default_rng(2).standard_normal(100)
    found = dynamics(pairs(9e9 * (1 + 0.05 * noise)))
    assert found.lyapunov is None
    assert "no map" in found.reason
    assert found.scatter == pytest.approx(0.05, abs=0.01)


def test_noise_has_no_map():
    claims = sum(
        dynamics(pairs(5 + np.random.default_rng(seed).standard_normal(101))).lyapunov is not None
        for seed in range(500)
    )
    assert claims <= 5


def test_a_sequence_that_returns_to_its_mean_is_stable():
    random, values = np.random.default_rng(0), [0.0]
    for _ in range(300):
        values.append(0.5 * values[-1] + random.standard_normal())
    assert dynamics(pairs(10 + np.array(values))).lyapunov == pytest.approx(math.log(0.5), abs=0.2)


def test_the_exponent_has_no_unit():
    assert dynamics(1e9 * pairs(logistic(300))).lyapunov == pytest.approx(
        dynamics(pairs(logistic(300))).lyapunov
    )


def test_pairs_are_of_sustained_whole_intervals():
    samples = np.array([[0.1, 1.0], [0.2, 2.0], [0.3, 3.0], [0.4, 4.0], [0.43, 1.0]])
    assert poincare_pairs(samples, since_s=0.1) == pytest.approx(np.array([[160, 240], [240, 320]]))
    assert len(poincare_pairs(samples[:1], since_s=0.0)) == 0


def test_runs_at_different_levels_are_not_one_map():
    random = np.random.default_rng(4)
    levels = [pairs(level * (1 + 0.05 * random.standard_normal(60))) for level in (1e9, 5e9, 9e9)]
    assert dynamics(pooled_pairs(levels)).lyapunov is None
    assert pooled_pairs([]).shape == (0, 2)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([1.0] * 10, "at least 20 pairs of sustained samples, here are 9"),
        ([5.0] * 40, "all samples are equal"),
        ([0.0] * 40, "all samples are equal"),
        ([1.0] * 30 + [float("nan")] * 5, "must be finite"),
    ],
)
def test_what_has_no_map_is_a_named_error(values, said):
    with pytest.raises(DynamicsError, match=said):
        dynamics(pairs(values))
