"""Impossible input: a named error or a named answer, never a silent number."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import synthetic
from farlink_lab import regimes
from farlink_lab.choice import Choice, Task
from farlink_lab.confidence import ConfidenceError, rises
from farlink_lab.expectation import Wire, expected_bps, limit_bps, loss_limit_bps, lost_s, most_bps
from farlink_lab.findings import Refusal, find
from farlink_lab.ground import ground, observed
from farlink_lab.model import ModelError
from farlink_lab.phases import PhasesError, rates_bps
from farlink_lab.plot.palette import looks
from farlink_lab.plot.traces import run_traces
from farlink_lab.prediction import grid
from farlink_lab.profile_model import ModelFileError, profile_model
from farlink_lab.records import parse_lines, parse_record
from farlink_lab.resampling import ResamplingError, lenders, mean_band, resampled_means
from farlink_lab.shape import ShapeError, shape
from farlink_lab.single_loss import LossError, WindowTrace, single_losses
from farlink_lab.straight import StraightError, straight
from farlink_lab.surrogate import Observation, Surrogate, SurrogateError, growth, run_weights
from farlink_lab.utilization import UtilizationError, convexity
from farlink_lab.winners import winners

NAN, INF = float("nan"), float("inf")
NO_RTTS = (NAN, INF, 0.0, -1.0)
WIRE = Wire(rate_bps=10e9, capacity_bps=9.9e9, mtu=9000)
LOSSY = Wire(rate_bps=10e9, capacity_bps=9.9e9, mtu=9000, loss=1e-4)
CUBIC = Choice(tool="farlink", congestion="cubic", streams=1, buffer_bytes=4 << 20)
TASK = Task(mode="duration", amount=10.0)


def runs(*each):
    return [np.array(values, dtype=np.float64) for values in each]


def none_late(count):
    return np.zeros(count, dtype=np.bool_)


def all_lend(count):
    return np.ones(count, dtype=np.bool_)


@pytest.mark.parametrize(
    ("rtts", "shares", "said"),
    [
        ([0.1], [1.0], "at least two RTTs, each with its share; here are 1"),
        ([0.1, 0.1], [1.0, 0.5], "finite and grow"),
        ([0.2, 0.1], [1.0, 0.5], "finite and grow"),
        ([0.1, NAN], [1.0, 0.5], "finite and grow"),
        ([0.1, 0.2], [1.0, NAN], "shares of the capacity must be finite"),
        ([0.1, 0.2], [1.0, 0.5, 0.1], "each with its share"),
    ],
)
def test_concavity_of_what_has_none(rtts, shares, said):
    with pytest.raises(UtilizationError, match=said):
        convexity(np.array(rtts), np.array(shares))


def test_two_rtts_are_their_own_straight_line():
    assert convexity(np.array([0.1, 0.2]), np.array([1.0, 0.5])) == 0


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([], "one at least"),
        (runs([1, 2], []), "needs runs"),
        (runs([1, 2], [1, NAN]), "finite throughputs"),
        (runs([1, 2], [1, INF]), "finite throughputs"),
        (runs([1, 2], [1, -1]), "at least 0"),
    ],
)
def test_runs_that_cannot_be_drawn_again(values, said):
    for draw in (
        lambda: resampled_means(values, seed=1),
        lambda: mean_band(values, seed=1, late=none_late(len(values))),
        lambda: lenders(values, none_late(len(values))),
    ):
        with pytest.raises(ResamplingError, match=said):
            draw()


def test_a_band_of_what_has_no_spread():
    assert mean_band(runs([1], [2]), seed=1, late=none_late(2)) is None
    assert mean_band(runs([1, 0], [2, 2]), seed=1, late=none_late(2)) is None
    (low, high) = mean_band(runs([1, 1], [2, 2]), seed=1, late=none_late(2))
    assert (low.tolist(), high.tolist()) == ([1, 2], [1, 2])
    with pytest.raises(ResamplingError, match="above 0"):
        resampled_means(runs([1, 0]), seed=1)
    with pytest.raises(ResamplingError, match="no RTT that lends its deviations has two runs"):
        resampled_means(runs([1], [2]), seed=1)
    with pytest.raises(ResamplingError, match="1 flags for 2 RTTs"):
        mean_band(runs([1, 2], [1, 2]), seed=1, late=none_late(1))
    for share in (0.0, 1.0, NAN):
        with pytest.raises(ResamplingError, match="a band holds more than 0 and less than 1"):
            mean_band(runs([1, 2]), seed=1, late=none_late(1), share=share)


@pytest.mark.parametrize(
    ("values", "lending", "said"),
    [
        (runs([1, 2], [1, NAN]), all_lend(2), "finite throughputs above 0"),
        (runs([1, 2], [1, 0]), all_lend(2), "finite throughputs above 0"),
        (runs([1, 2], []), all_lend(2), "needs runs"),
        (runs([1, 2], [1, 2]), all_lend(3), "whether it lends"),
        (runs([1, 2], [1]), all_lend(2), "two runs at least"),
        (runs([1, 2], [1, 2]), none_late(2), "one such at least"),
        ([], all_lend(0), "one such at least"),
    ],
)
def test_runs_whose_deviations_cannot_be_dealt(values, lending, said):
    with pytest.raises(StraightError, match=said):
        straight(values, lending=lending, seed=1, deals=9)


def test_runs_that_are_all_alike_are_dealt_without_a_division_by_nothing():
    found = straight(runs([2, 2], [1, 1], [1, 1]), lending=all_lend(3), seed=1, deals=9)
    assert np.isfinite(found.spreads).all()
    assert (found.spreads > 0).all()
    with pytest.raises(StraightError, match="0 deals"):
        straight(runs([2, 2]), lending=all_lend(1), seed=1, deals=0)


@pytest.mark.parametrize(
    ("rtts", "values", "said"),
    [
        ([], [], "one at least"),
        ([0.1, 0.1], runs([1], [1]), "finite and grow"),
        ([0.1, 0.2], runs([1], [NAN]), "finite throughputs"),
        ([0.1, 0.2], runs([1], []), "needs runs"),
        ([0.1, 0.2], runs([1]), "needs runs"),
    ],
)
def test_rises_of_what_cannot_rise(rtts, values, said):
    with pytest.raises(ConfidenceError, match=said):
        rises(np.array(rtts), values)


def test_one_rtt_rises_nowhere():
    assert rises(np.array([0.1]), runs([1, 2])) == ()


@pytest.mark.parametrize(
    ("samples", "said"),
    [
        ([[0.1, 1], [0.1, 1]], "times of samples must grow"),
        ([[0.0, 1], [0.1, 1]], "the first sample must end after 0 s"),
        ([[0.1, NAN]], "finite numbers"),
        ([[0.1, -1]], "at least 0"),
        ([0.1, 1], "pairs"),
    ],
)
def test_rates_of_what_are_no_samples(samples, said):
    with pytest.raises(PhasesError, match=said):
        rates_bps(np.array(samples, dtype=np.float64))


@pytest.mark.parametrize("rtt", NO_RTTS)
def test_the_model_of_a_choice_at_no_rtt(rtt):
    for ask in (
        lambda: expected_bps(CUBIC, np.array([0.1, rtt]), task=TASK, wire=WIRE),
        lambda: most_bps(CUBIC, rtt, task=TASK, wire=WIRE),
        lambda: loss_limit_bps(CUBIC, rtt, wire=LOSSY),
        lambda: lost_s(CUBIC, rtt, wire=WIRE),
    ):
        with pytest.raises(ModelError, match="RTT"):
            ask()
    if rtt != 0:
        with pytest.raises(ModelError, match="RTT"):
            limit_bps(rtt, task=TASK, wire=WIRE)


@pytest.mark.parametrize(
    "changes",
    [
        {"rate_bps": NAN},
        {"rate_bps": 0.0},
        {"capacity_bps": INF},
        {"capacity_bps": -1.0},
        {"mtu": 52},
        {"loss": NAN},
        {"loss": 1.0},
    ],
)
def test_a_wire_that_cannot_be(changes):
    with pytest.raises(ModelError):
        Wire(**{"rate_bps": 10e9, "capacity_bps": 9.9e9, "mtu": 9000, **changes})


def test_a_run_without_bytes_did_nothing_of_any_kind():
    still = parse_record(json.dumps(synthetic.record(bytes=0)).encode())
    assert TASK.done_by(still) is None
    assert observed(CUBIC, 0.1, [still], task=TASK, wire=WIRE) == []
    endless = parse_record(json.dumps(synthetic.record(duration_s=0)).encode())
    assert observed(CUBIC, 0.1, [endless], task=TASK, wire=WIRE) == []


@pytest.mark.parametrize("doublings", [NAN, INF])
def test_how_much_a_run_did_is_finite(doublings):
    with pytest.raises(SurrogateError, match="how much runs did must be finite"):
        Observation(choice=CUBIC, rtt_s=0.1, ratios=(0.0,), doublings=doublings)


@pytest.mark.parametrize("rtt", NO_RTTS)
def test_nothing_is_learnt_at_no_rtt(rtt):
    with pytest.raises(SurrogateError, match="RTTs must be finite and above 0"):
        Observation(choice=CUBIC, rtt_s=rtt, ratios=(0.0,))
    with pytest.raises(SurrogateError, match="RTTs must be finite and above 0"):
        growth([0.1, rtt])
    with pytest.raises(SurrogateError, match="RTTs must be finite and above 0"):
        Surrogate((), wire=WIRE, controls=[CUBIC.control]).at([(CUBIC, rtt)])


@pytest.mark.parametrize("ratios", [(), (NAN,), (0.0, -INF)])
def test_nothing_is_learnt_of_no_runs(ratios):
    with pytest.raises(SurrogateError, match="finite logarithm"):
        Observation(choice=CUBIC, rtt_s=0.1, ratios=ratios)


@pytest.mark.parametrize(
    ("seen", "prior", "noise", "said"),
    [
        ([], np.eye(0), 0.1, "needs runs"),
        (runs([]), np.eye(1), 0.1, "needs runs"),
        (runs([NAN]), np.eye(1), 0.1, "finite number"),
        (runs([0.0]), np.eye(2), 0.1, "a covariance of 1 places"),
        (runs([0.0]), np.array([[NAN]]), 0.1, "a covariance of 1 places"),
        (runs([0.0]), np.eye(1), 0.0, "a spread of 0"),
        (runs([0.0]), np.eye(1), NAN, "a spread of nan"),
    ],
)
def test_runs_that_have_no_weight(seen, prior, noise, said):
    with pytest.raises(SurrogateError, match=said):
        run_weights(seen, prior, noise=noise)


@pytest.mark.parametrize("rtts", [[], [NAN], [-1.0, 1.0]])
def test_a_curve_over_no_rtts(rtts):
    with pytest.raises(ModelError, match="a curve needs RTTs"):
        grid(np.array(rtts))


def test_a_regime_of_too_few_rtts_and_stretches_of_another_profile():
    rtts, three = np.array([0.1, 0.2, 0.3]), runs([3, 3.1], [2, 2.1], [1, 1.1])
    null = straight(three, lending=all_lend(3), seed=1, deals=9)
    with pytest.raises(ShapeError, match="at least three RTTs"):
        regimes.tested_regime(rtts[:2], three[:2], null)
    with pytest.raises(ShapeError, match="a shape of 3 RTTs is drawn over those"):
        regimes.stretches(rtts[:2], shape(rtts, three, seed=1, deals=9))


@pytest.mark.parametrize(
    ("means", "regime"),
    [([3, 2.5, 2], "undecided"), ([3, 2.9, 2], "all concave"), ([3, 2.1, 2], "all convex")],
)
@pytest.mark.parametrize("scale", [1.0, 1e10])
def test_runs_that_are_all_alike_have_a_regime(means, regime, scale):
    alike = [scale * np.full(3, mean) for mean in means]
    assert regimes.regimes(np.array([0.1, 0.2, 0.3]), alike, seed=1).regime == regime


def test_losses_in_what_is_no_trace():
    columns = {name: np.arange(1.0, 4.0) for name in ("t_s", "segments", "srtt_s", "retransmits")}
    trace = WindowTrace(**columns)
    for rtt in NO_RTTS:
        with pytest.raises(LossError, match="an RTT of"):
            single_losses(trace, rtt_s=rtt)
    assert single_losses(trace, rtt_s=0.1) == ()
    for changes, said in (
        ({"segments": np.array([1.0, NAN, 1.0])}, "all finite"),
        ({"segments": np.zeros(3)}, "above 0"),
        ({"t_s": np.array([1.0, 0.5, 2.0])}, "order of time"),
        ({"srtt_s": np.ones(2)}, "one length"),
    ):
        with pytest.raises(LossError, match=said):
            single_losses(WindowTrace(**columns | changes), rtt_s=0.1)


def test_maps_and_models_of_degenerate_campaigns():
    made = [each for each in synthetic.campaign() if each["mode"] == "duration" and each["tool"] == "farlink"]

    def read(rows):
        return [parse_record(json.dumps(each).encode(), line=n) for n, each in enumerate(rows, 1)]

    assert isinstance(winners(read([])), Refusal)
    assert isinstance(winners(read([each for each in made if each["rtt_s"] == synthetic.RTTS_S[2]])), Refusal)
    assert isinstance(
        winners(read([each | {"goodput_bps": each["goodput_bps"] / 3} for each in made])), Refusal
    )
    assert isinstance(winners(read([each | {"bytes": 0} for each in made])), Refusal)
    two = [each for each in made if each["rtt_s"] in synthetic.RTTS_S[2:4]]
    found = winners(read(two))
    assert np.isfinite(found.throughput_bps).all()
    with pytest.raises(ModelFileError, match="none moved anything"):
        profile_model(ground(read([each | {"bytes": 0} for each in made])))
    saved = profile_model(ground(read(two)))
    assert all(math.isfinite(rate) for row in saved["configurations"][0]["size_bps"] for rate in row)


def test_a_run_that_no_campaign_made_and_says_so_is_drawn():
    made = synthetic.campaign(repetitions=1)[0] | {"lab": None}
    findings = find(parse_lines([json.dumps(made).encode()]))
    (trace,) = run_traces(findings, looks(findings.labels))
    assert "repetition" not in trace["name"]
