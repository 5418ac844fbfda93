"""What `farlink lab analyse` prints of a campaign whose truth is known, and of degenerate ones."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import synthetic
from farlink_lab.analysis import analysis, told
from farlink_lab.choice import Task, choice_of
from farlink_lab.expectation import Wire, expected_bps
from farlink_lab.findings import find
from farlink_lab.prediction import ramp_up_curve, slow_start
from farlink_lab.quantity import show_rate, show_time
from farlink_lab.records import read_records
from farlink_lab.words import headlines


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    place = tmp_path_factory.mktemp("campaign")
    synthetic.write(place, synthetic.campaign(repetitions=3), broken=True)
    return place


@pytest.fixture(scope="module")
def found(directory):
    return analysis(find(read_records(directory / "records.jsonl")))


def of(found, label, mode):
    (one,) = [
        each for each in found["configurations"] if (each["configuration"], each["mode"]) == (label, mode)
    ]
    return one


def test_the_command_prints_one_object_and_names_broken_lines(lab, directory, found):
    done = lab.run("analyse", directory, "--json")
    assert done.returncode == 2, "not all could be read"
    assert json.loads(done.stdout) == json.loads(json.dumps(found))
    assert "records.jsonl: line 3: not JSON" in done.stderr


def test_the_command_prints_lines_for_a_person(lab, directory):
    done = lab.run("analyse", directory)
    assert done.returncode == 2, "not all could be read"
    for said in ("regimes: ", "τ_T", "C_U ", "UCC ", "our reading", "T_R ", "theta_S "):
        assert said in done.stdout
    assert "Traceback" not in done.stderr


def test_the_lines_tell_all_that_the_object_has(directory, found):
    lines = told(find(read_records(directory / "records.jsonl")))
    start = lines.index("CUBIC ×1, 10 s (duration)")
    said = "\n".join(lines[start : lines.index("", start)])
    one = of(found, "CUBIC ×1", "duration")
    for at in one["profile"]:
        assert f"5% {show_rate(at['quantiles']['0.05'])}, 25% {show_rate(at['quantiles']['0.25'])}" in said
    for at in one["phases"]:
        assert f"theta_R {show_rate(at['theta_R'])}" in said
        assert f"f_R {at['f_R']:.3f}, rebuilt within {100 * at['rebuilt_error']:.2f}%" in said
    for at in one["model"]["at"]:
        ramp = show_time(float(f"{at['T_R']:.3g}"))
        assert (
            f"model at {show_time(at['tau'])}: {show_rate(at['Theta'])}, T_R {ramp} (τ/2 more to arrive), x "
            in said
        )
    assert f"not told: {one['model']['inflection_reason']}" in said
    for at in one["regimes"]["monotone"]:
        assert f"{show_rate(at['Theta'])} at {show_time(at['tau'])}" in said
    for region in one["regimes"]["regions"]:
        assert region["bend"] in said
    assert ("dual sigmoid: theta_0 " in said) == (one["regimes"]["dual_sigmoid"] is not None)
    assert f"CPU: sender 0.1, receiver 0.2, both 0.3 s/GB (medians of {one['runs']} runs)" in said
    assert "model's inflection: at " in "\n".join(lines)
    assert max(map(len, lines)) < 1000


def test_the_cost_of_both_ends_is_told(found, tmp_path):
    cost = of(found, "CUBIC ×1", "size")["cpu_s_per_GB"]
    assert (cost["sender"], cost["receiver"], cost["both"]) == pytest.approx((0.1, 0.2, 0.3))
    assert cost["runs"] == of(found, "CUBIC ×1", "size")["runs"]
    synthetic.write(tmp_path, times([(0.1, 1e9)], cpu_s={"sender": 1.0}))
    findings = find(read_records(tmp_path / "records.jsonl"))
    (one,) = analysis(findings)["configurations"]
    assert one["cpu_s_per_GB"]["both"] is None
    assert one["cpu_s_per_GB"]["reason"] == "no run knows the CPU seconds of both its ends"
    assert any("CPU: not told: no run knows" in line for line in told(findings))


def test_where_no_run_counts_that_is_told_and_the_exit_code_is_that_of_a_report(lab, tmp_path):
    synthetic.write(tmp_path, [synthetic.record(outcome="failed")])
    done = lab.here("analyse", tmp_path, "--json")
    assert json.loads(done.stdout)["left_out"]["failed"] == 1
    assert done.returncode == lab.here("report", tmp_path).returncode == 2
    (complaint,) = done.stderr.splitlines()
    assert complaint.startswith("farlink: no run counts (1 run that failed)")


def test_nothing_to_analyse_is_one_line(lab):
    (lab.home / "none").mkdir()
    done = lab.run("analyse", lab.home / "none")
    assert done.returncode == 2
    assert done.stderr.startswith("farlink: ")
    assert len(done.stderr.splitlines()) == 1


def test_sizes_and_durations_are_apart(found):
    assert of(found, "CUBIC ×1", "size")["amount"] == 2 << 30
    assert of(found, "CUBIC ×1", "duration")["amount"] == 10
    for one in found["configurations"]:
        assert sum(at["runs"] for at in one["profile"]) == one["runs"]


def test_the_profile_has_mean_median_quantiles_and_band(found):
    for at in of(found, "CUBIC ×1", "duration")["profile"]:
        low, high = at["mean_95"]
        assert low <= at["mean"] <= high
        assert at["quantiles"]["0.05"] <= at["median"] <= at["quantiles"]["0.95"]


def test_small_buffers_are_all_convex(found):
    one = of(found, "CUBIC ×1, 256 KiB buffers", "duration")
    assert one["regimes"]["regime"] == "all convex"
    assert one["regimes"]["tau_T"] is None
    assert one["regimes"]["reason"]
    assert one["utilization"]["C_CC"] > 0.2


def test_the_three_coefficients_stand_together_with_their_reading(found):
    for one in found["configurations"]:
        assert {"C_U", "C_CC", "UCC"} <= one["utilization"].keys()
    assert "our reading" in found["C_U_C_CC_UCC"]


def test_the_samples_of_real_runs_account_for_all_that_arrived():
    # Not a test of where they are split: that cannot show here (docs/analyse.md).
    example = Path(__file__).parents[2] / "examples" / "campaign" / "records.jsonl"
    measured = analysis(find(read_records(example)))
    phases = [at for one in measured["configurations"] for at in one["phases"]]
    assert len(phases) > 20
    assert max(at["rebuilt_error"] for at in phases) <= 0.02


def test_a_sustained_throughput_above_capacity_is_named():
    example = Path(__file__).parents[2] / "examples" / "campaign" / "records.jsonl"
    for one in analysis(find(read_records(example)))["configurations"]:
        for at in one["phases"]:
            assert (at["theta_S"] > 1.01 * one["C"]) == ("above the capacity" in (at["reason"] or ""))


def test_the_model_stands_beside_the_measured(found):
    for at in of(found, "CUBIC ×1", "size")["model"]["at"]:
        assert abs(at["residual"]) < 0.03
        assert at["x"] >= 0
    # 2 GiB over 10 Gb/s and 9000 bytes, until the last byte arrives, as Θ of the model counts it.
    assert of(found, "CUBIC ×1", "size")["model"]["inflection"] == pytest.approx(0.0172, rel=5e-3)


def test_ramp_up_and_lost_time_end_where_the_windows_do(tmp_path):
    made = [
        synthetic.record(
            rtt_s=rtt,
            mode="duration",
            duration_s=10.0,
            buffer_bytes=4 << 20,
            bytes=round(min(synthetic.CAPACITY_BPS, 8 * (4 << 20) / rtt) * 10 / 8),
            lab={"configuration": "small", "run": f"{rtt}"},
        )
        for rtt in synthetic.RTTS_S
    ]
    synthetic.write(tmp_path, made)
    (one,) = analysis(find(read_records(tmp_path / "records.jsonl")))["configurations"]
    last = one["model"]["at"][-1]
    assert last["T_R"] == pytest.approx(2.03, abs=0.01)
    # What 4 MiB a round trip carry, less the first windows and the doublings.
    first_s = 8 * synthetic.WINDOW_BYTES / (8 * (4 << 20) / 0.366)
    assert last["x"] == pytest.approx(last["T_R"] - 0.366 + first_s, rel=1e-6)
    assert one["model"]["inflection"] is None
    assert one["model"]["inflection_reason"] == "only a fixed size has a formula for it"


@pytest.mark.parametrize(("declared", "share"), [(10_000_000_000, 1.0), (5_000_000_000, 0.5)])
def test_a_circuit_is_judged_against_the_limit(tmp_path, declared, share):
    size, capacity = 2 << 30, share * synthetic.CAPACITY_BPS
    made = [
        synthetic.record(
            rtt_s=rtt,
            bytes=size,
            duration_s=rtt / 2 + 8 * size / capacity,
            congestion="circuit",
            declared_bps=declared,
            lab={"configuration": "circuit ×1", "run": f"{rtt}"},
        )
        for rtt in synthetic.RTTS_S
    ]
    synthetic.write(tmp_path, made)
    findings = find(read_records(tmp_path / "records.jsonl"))
    (one,) = analysis(findings)["configurations"]
    for at in one["model"]["at"]:
        assert at["residual"] == pytest.approx(0, abs=1e-9)
        assert (at["T_R"], at["x"]) == (0, 0)
    assert "no slow start" in one["model"]["inflection_reason"]
    choice = choice_of(findings.records[0])
    wire = Wire(rate_bps=10e9, capacity_bps=synthetic.CAPACITY_BPS, mtu=9000)
    expected = expected_bps(
        choice, np.array(synthetic.RTTS_S), task=Task(mode="size", amount=size), wire=wire
    )
    assert expected == pytest.approx([at["Theta"] for at in one["model"]["at"]])


@pytest.fixture(scope="module")
def late(tmp_path_factory):
    place = tmp_path_factory.mktemp("late")
    synthetic.write(place, synthetic.late_campaign())
    return find(read_records(place / "records.jsonl"))


def test_every_line_that_draws_on_a_late_point_says_so(late):
    lines = told(late)
    assert not any("late" in line for line in lines if line.startswith("    366 ms  mean"))
    for start in ("    0.4 ms  mean", "  phases at 11.8 ms (late)", "  dynamics at 0.4 ms (late)"):
        assert any(line.startswith(start) and "late" in line for line in lines), start
    for within in ("% at 0.4 ms (late), ", "; of 7 RTTs, 2 late", "; judged on 7 RTTs, 2 of them late"):
        assert any(within in line for line in lines), within


def test_late_runs_bound_no_next_transfer(late):
    for one in analysis(late)["configurations"]:
        gaps = one["confidence"]["between"]
        assert one["confidence"]["without_late"] == list(synthetic.RTTS_S[:2])
        assert gaps[0]["from"] == synthetic.RTTS_S[2]
    assert all("without the late RTTs" in line for line in told(late) if "(at least" in line)


def test_the_band_of_the_mean_is_told(found, directory):
    lines = told(find(read_records(directory / "records.jsonl")))
    means = [line for line in lines if "  mean " in line]
    assert means
    assert all("(95%: " in line for line in means)


def test_what_is_not_there_has_its_reason(tmp_path):
    made = times([(0.1, 1e9), (0.2, 9e8), (0.3, 5e8)])
    synthetic.write(tmp_path, made)
    findings = find(read_records(tmp_path / "records.jsonl"))
    (one,) = analysis(findings)["configurations"]
    assert one["phases"] == []
    assert "no run has the 6 samples" in one["phases_reason"]
    for at in one["profile"]:
        assert at["mean_95"] is None
        assert "no spread to draw on" in at["reason"]
    assert one["regimes"]["judged"] is False
    assert any("(shape only)" in line for line in told(findings))
    said = "\n".join(told(findings))
    assert "phases: not told: no run has" in said
    assert "no band of the mean: too few RTTs have two runs" in said


def test_noise_about_a_rate_has_no_exponent(tmp_path):
    # One run a point: those of the synthetic campaign share their noise.
    synthetic.write(tmp_path, synthetic.campaign(repetitions=1))
    found = analysis(find(read_records(tmp_path / "records.jsonl")))
    dynamics = of(found, "CUBIC ×1", "duration")["dynamics"]
    assert dynamics[0]["lyapunov"] is None
    assert "no map" in dynamics[0]["reason"]
    assert dynamics[0]["scatter"] == pytest.approx(0.01, abs=0.005)


def test_losses_count_in_the_model_where_the_response_is_known(tmp_path):
    made = [
        synthetic.record(rtt_s=rtt, loss=1e-4, congestion=congestion, lab={"configuration": congestion})
        for rtt in synthetic.RTTS_S
        for congestion in ("cubic", "bbr")
    ]
    synthetic.write(tmp_path, made)
    found = analysis(find(read_records(tmp_path / "records.jsonl")))
    cubic, bbr = (of(found, label, "size")["model"] for label in ("cubic", "bbr"))
    assert (cubic["counts_loss"], bbr["counts_loss"]) == (True, False)
    assert cubic["at"][-1]["Theta"] < 0.5 * bbr["at"][-1]["Theta"]


def times(rates, **changes):
    return [
        synthetic.record(
            rtt_s=rtt,
            bytes=round(rate * 2 / 8),
            duration_s=2.0,
            lab={"configuration": "one", "run": f"r{number}"},
            **changes,
        )
        for number, (rtt, rate) in enumerate(rates)
    ]


def test_above_the_capacity_is_named_with_every_answer(tmp_path):
    rates = [(0.1, 30e9), (0.2, 25e9), (0.3, 20e9)]
    made = [
        {**each, "lab": {"configuration": "one", "run": f"{number} {each['rtt_s']}"}}
        for number in range(3)
        for each in times(rates)
    ]
    synthetic.write(tmp_path, made)
    findings = find(read_records(tmp_path / "records.jsonl"))
    (one,) = analysis(findings)["configurations"]
    said = "30.0 Gb/s at 100 ms is above the capacity of 9.90 Gb/s: the rate that was named is likely wrong"
    assert said in one["above_capacity"]
    for part in ("regimes", "utilization", "model", "confidence"):
        assert said in one[part]["reason"], part
    assert one["model"]["at"] == []
    assert any(line.startswith("  above the capacity: 30.0 Gb/s") for line in told(findings))
    assert any(said in sentence for sentence in headlines(findings))


def test_a_tool_that_moved_nothing_is_compared_with_nothing(tmp_path):
    made = [*times([(0.1, 1e9)]), *times([(0.1, 0.0)], tool="iperf3")]
    made[1]["lab"] = {"configuration": "theirs", "run": "t"}
    synthetic.write(tmp_path, made)
    assert not any(
        "against theirs" in said for said in headlines(find(read_records(tmp_path / "records.jsonl")))
    )


def test_below_the_capacity_nothing_is_said_of_it(found):
    assert all(one["above_capacity"] is None for one in found["configurations"])


def test_the_model_of_the_ramp_up_counts_arrivals_as_the_samples_do(directory):
    profile = find(read_records(directory / "records.jsonl")).profiles[0]
    rtts, ramps = ramp_up_curve(profile)
    left, _ = slow_start(profile, rtts)
    assert ramps == pytest.approx(left + rtts / 2)


@pytest.mark.parametrize(
    ("made", "regime", "use"),
    [
        (times([(0.1, 1e9)]), "here are 1", "here are 1"),
        (times([(0.1, 1e9), (0.2, 1e9)]), "here are 2", "here are 2"),
        (times([(0.1, 1e9), (0.1, 2e9), (0.1, 3e9)]), "here are 1", "here are 1"),
        (times([(0.1, 1e9), (0.2, 0.0), (0.3, 0.0)]), "throughput above 0", None),
        (times([(0.1, 20e9), (0.2, 1e9), (0.3, 1e9)]), None, "above the capacity"),
        (times([(0.1, 1e9), (0.2, 9e8), (0.3, 1e8)], goodput_bps=None), None, "the capacity is unknown"),
    ],
)
def test_degenerate_campaigns_have_named_answers(tmp_path, made, regime, use):
    synthetic.write(tmp_path, made)
    findings = find(read_records(tmp_path / "records.jsonl"))
    (one,) = analysis(findings)["configurations"]
    for said, part in ((regime, one["regimes"]), (use, one["utilization"])):
        if said is None:
            assert part.get("regime") or part.get("UCC") is not None
        else:
            assert said in part["reason"]
    json.dumps(analysis(findings), allow_nan=False)
    assert bool(one["model"]["at"]) != bool(one["model"]["reason"])
    assert told(findings)
