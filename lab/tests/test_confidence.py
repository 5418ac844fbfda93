"""Intervals for the next transfer: they hold at least as often as they claim, whatever the runs do."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from farlink_lab.confidence import ConfidenceError, _interval_at, interval_at, intervals, rises

RTTS = np.array([0.0004, 0.0118, 0.0226, 0.0456, 0.0916, 0.183, 0.366])


def normal(random, rtt, count):
    return 1e10 / (1 + (rtt / 0.1) ** 2) * (1 + 0.05 * random.standard_normal(count))


def skewed(random, rtt, count):
    """Mostly at capacity, at times far below, more often at longer RTTs."""
    return 1e10 * (1 - random.random(count) ** (1 / (0.2 + 3 * rtt)))


def uneven(random, rtt, count):
    """The spread grows with RTT, with heavy tails that are cut at 0."""
    return np.maximum(1e9 * (10 - 20 * rtt - (0.1 + 5 * rtt) * np.abs(random.standard_t(2, count))), 0)


def flat(random, rtt, count):
    del rtt
    return 1e10 * (1 + 0.01 * random.standard_normal(count))


def share_within(law, *, repetitions, claim, draws):
    """How often the next run is within, how often that is claimed, and three standard errors of it.

    One draw a campaign: draws that shared one would not be independent. Without the test for a rise, which is
    slow and has its own.
    """
    inside, claimed = 0, 0.0
    for seed in range(draws):
        random = np.random.default_rng(seed)
        measured = [law(random, rtt, repetitions) for rtt in RTTS]
        rtt = random.uniform(RTTS[0], RTTS[-1])
        found = _interval_at(rtt, RTTS, measured, claim)
        inside += found.low_bps <= law(random, rtt, 1)[0] <= found.high_bps
        claimed += found.claim
    said = claimed / draws
    return inside / draws, said, 3 * np.sqrt(said * (1 - said) / draws)


@pytest.mark.parametrize("law", [normal, skewed, uneven])
@pytest.mark.parametrize(("repetitions", "claim"), [(3, 0.8), (10, 0.8), (20, 0.9)])
def test_the_next_run_is_within_as_often_as_claimed(law, repetitions, claim):
    within, said, slack = share_within(law, repetitions=repetitions, claim=claim, draws=400)
    assert within >= said - slack


@pytest.mark.parametrize(("repetitions", "claim"), [(3, 0.8), (10, 0.8), (20, 0.9)])
def test_on_a_flat_profile_the_claim_is_exact(repetitions, claim):
    # All runs are alike there, which is the least favourable: neither less often than claimed, nor more.
    within, said, slack = share_within(flat, repetitions=repetitions, claim=claim, draws=3000)
    assert slack < 0.026
    assert within == pytest.approx(said, abs=slack)


def test_a_flat_profile_is_rarely_refused():
    refused = 0
    for seed in range(100):
        random = np.random.default_rng(seed)
        refused += bool(rises(RTTS, [flat(random, rtt, 10) for rtt in RTTS]))
    assert refused <= 4


def test_enough_runs_reach_the_claim_with_the_neighbours_alone():
    random = np.random.default_rng(1)
    measured = [normal(random, rtt, 10) for rtt in RTTS]
    found = interval_at(0.12, RTTS, measured, claim=0.8)
    assert found.claim >= 0.8
    assert (found.low_bps, found.high_bps) == (measured[5].min(), measured[4].max())
    assert (found.from_s, found.to_s) == (0.0916, 0.183)


def test_too_few_runs_claim_less_and_say_so():
    found = interval_at(0.012, RTTS, [np.array([1e9])] * 7, claim=0.8)
    assert found.claim == pytest.approx(1 - 1 / 3 - 1 / 6)


def test_every_gap_has_one():
    measured = [normal(np.random.default_rng(index), rtt, 10) for index, rtt in enumerate(RTTS)]
    found = intervals(RTTS, measured)
    assert [(gap.from_s, gap.to_s) for gap in found] == list(itertools.pairwise(RTTS))


def test_a_rise_refutes_the_assumption():
    measured = [np.full(8, 5e9) + np.arange(8) * 1e6 for _ in RTTS]
    measured[4] = measured[4] + 1e9
    assert rises(RTTS, measured) == ((0.0456, 0.0916),)
    with pytest.raises(ConfidenceError, match=r"rises from 45\.6 ms to 91\.6 ms beyond chance"):
        interval_at(0.2, RTTS, measured)


@pytest.mark.parametrize(
    ("rtt", "rtts", "values", "claim", "said"),
    [
        (0.5, [0.1, 0.2], [1.0, 1.0], 0.8, "500 ms is outside the measured 100 ms to 200 ms"),
        (float("nan"), [0.1, 0.2], [1.0, 1.0], 0.8, "outside"),
        (0.1, [0.1, 0.1], [1.0, 1.0], 0.8, "finite and grow"),
        (0.1, [0.1, 0.2], [1.0, float("nan")], 0.8, "finite throughputs"),
        (0.1, [], [], 0.8, "at least one|one at least"),
        (0.1, [0.1, 0.2], [1.0, 1.0], 1.0, "a claim of 1"),
    ],
)
def test_what_cannot_be_bounded_is_a_named_error(rtt, rtts, values, claim, said):
    with pytest.raises(ConfidenceError, match=said):
        interval_at(rtt, np.array(rtts), [np.array([value]) for value in values], claim=claim)


def test_one_rtt_has_no_gap():
    with pytest.raises(ConfidenceError, match="needs at least two that were measured, here is 1"):
        intervals(np.array([0.1]), [np.array([1.0])])


def test_zeros_are_throughputs():
    found = interval_at(0.15, np.array([0.1, 0.2]), [np.ones(9), np.zeros(9)], claim=0.8)
    assert (found.low_bps, found.high_bps) == (0.0, 1.0)
