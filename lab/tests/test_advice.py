"""Advice on campaigns whose truth is known: what it picks, how sure it is, and what it refuses."""

from __future__ import annotations

import itertools
import json
import random
from functools import cache

import numpy as np
import pytest

import synthetic
from farlink_lab import model
from farlink_lab.advice import CLAIM, Adviser
from farlink_lab.choice import Choice, Task
from farlink_lab.expectation import Wire, expected_bps, limit_bps
from farlink_lab.ground import AdviceError, ground
from farlink_lab.plot.winners import winners_figure
from farlink_lab.profile_model import ModelFileError, profile_model
from farlink_lab.recommendation import recommendation, told, why
from farlink_lab.records import parse_record
from farlink_lab.report import judgement, write_report
from farlink_lab.winners import winners

WIRE = Wire(rate_bps=10e9, capacity_bps=synthetic.CAPACITY_BPS, mtu=9000)
CHOICES = tuple(
    Choice(tool="farlink", congestion=congestion, streams=streams, buffer_bytes=buffer)
    for congestion in ("cubic", "bbr")
    for streams in (1, 10)
    for buffer in (None, 4 << 20)
)
TEN_SECONDS = Task(mode="duration", amount=10.0)


def truth(choice, rtt_s, task=TEN_SECONDS):
    """The model, less what BBR and long RTTs take here."""
    (expected,) = expected_bps(choice, np.array([rtt_s]), task=task, wire=WIRE)
    return expected * (0.85 if choice.congestion == "bbr" else 1 - 0.2 * rtt_s)


def campaign(*, seed=1, noise=0.03, rtts=synthetic.RTTS_S, repetitions=3, choices=CHOICES, **changes):
    drawn = random.Random(seed)
    return [
        parsed(
            choice,
            rtt,
            # No run beats the limit.
            min(
                truth(choice, rtt) * np.exp(drawn.gauss(0, noise)),
                limit_bps(rtt, task=TEN_SECONDS, wire=WIRE),
            ),
            run=f"{index}",
            **changes,
        )
        for index, (_, rtt, choice) in enumerate(
            (repetition, rtt, choice)
            for repetition in range(repetitions)
            for rtt in rtts
            for choice in choices
        )
    ]


def parsed(choice, rtt, rate, *, run="0", seconds=10.0, **changes):
    fields = synthetic.record(
        mode="duration",
        duration_s=seconds,
        bytes=round(rate * seconds / 8),
        rtt_s=rtt,
        congestion=choice.congestion,
        streams=choice.streams,
        buffer_bytes=choice.buffer_bytes,
        lab={"configuration": choice.name, "run": f"{run} {choice.name} {rtt}"},
        **changes,
    )
    return parse_record(json.dumps(fields).encode(), line=int(run) + 1)


@cache
def usual_ground():
    """What is known of the usual campaign."""
    return ground(campaign())


@cache
def usual_adviser():
    """Who advises by it on ten seconds."""
    return Adviser(usual_ground(), TEN_SECONDS)


def test_the_best_at_an_unmeasured_rtt_is_the_true_best():
    adviser = usual_adviser()
    for rtt in (0.005, 0.03, 0.07, 0.12, 0.25):
        advice = adviser.advice(rtt)
        best = max(truth(choice, rtt) for choice in CHOICES)
        assert truth(advice.best.choice, rtt) >= 0.98 * best
        assert advice.best.throughput_bps == pytest.approx(truth(advice.best.choice, rtt), rel=0.06)


def test_the_intervals_hold_the_next_run_at_least_as_often_as_they_claim():
    held = asked = 0
    drawn = random.Random(7)
    for seed in range(25):
        adviser = Adviser(ground(campaign(seed=seed, noise=0.05)), TEN_SECONDS)
        for rtt in (0.03, 0.07, 0.12):
            limit = limit_bps(rtt, task=TEN_SECONDS, wire=WIRE)
            for one in adviser.advice(rtt).ranking:
                following = min(truth(one.choice, rtt) * np.exp(drawn.gauss(0, 0.05)), limit)
                held += one.low_bps <= following <= one.high_bps
                asked += 1
    assert held / asked >= CLAIM


def ramping(choice, rtt, drawn):
    """A run of 10 s whose ramp-up and sustained rate vary, as samples of 100 ms."""
    window = choice.streams * synthetic.WINDOW_BYTES
    ramp = model.ramp_up_s(rtt, capacity_bps=WIRE.capacity_bps, streams=1, window_bytes=window).item()
    rate = WIRE.capacity_bps * min(np.exp(drawn.gauss(-0.05, 0.03)), 1)
    ramp *= np.exp(drawn.gauss(0, 0.1))
    return synthetic.samples(ramp_s=ramp, rate_bps=rate, seconds=10.0, tau_s=rtt)


def test_the_intervals_of_another_size_hold_the_next_transfer_as_often_as_they_claim():
    size = Task(mode="size", amount=1e9)
    choices = [each for each in CHOICES if each.buffer_bytes is None and each.congestion == "cubic"]
    drawn = random.Random(3)
    held = asked = 0
    for _ in range(12):
        records = []
        for line, (rtt, choice, _) in enumerate(itertools.product(synthetic.RTTS_S, choices, range(3))):
            course = ramping(choice, rtt, drawn)
            rate = 8 * sum(moved for _, moved in course) / 10.0
            records.append(parsed(choice, rtt, rate, run=str(line), samples=course))
        adviser = Adviser(ground(records), size)
        for rtt in (0.07, 0.12):
            for one in adviser.advice(rtt).ranking:
                ends, moved = np.array(ramping(one.choice, rtt, drawn)).T
                takes = np.interp(size.amount, np.cumsum(moved), ends)
                held += one.low_bps <= 8 * size.amount / takes <= one.high_bps
                asked += 1
    assert held / asked >= CLAIM


def test_what_is_told_by_another_size_is_less_certain_the_farther_that_is():
    adviser = [Adviser(usual_ground(), Task(mode="size", amount=amount)) for amount in (1e10, 1e11, 1e12)]
    answers = [each.advice(0.07) for each in adviser]
    widths = [answer.best.high_bps / answer.best.low_bps for answer in answers]
    assert widths[0] < widths[1] < widths[2]
    notes = ["; ".join(answer.notes) for answer in answers]
    assert all("those of others tell of it" in note for note in notes)
    assert [("that a transfer so different fares alike is assumed" in note) for note in notes] == [
        False,
        True,
        True,
    ]


def test_a_window_limit_is_named_with_the_rtt_from_which_it_binds():
    said = " ".join(why(usual_adviser().advice(0.12)))
    assert "the window limit binds" in said
    # 10 × 4 MiB hold 9.9 Gb/s for 33.9 ms.
    assert "4 MiB ×10 above 33.9 ms" in said


def test_an_rtt_outside_is_refused_and_extrapolated_only_when_asked():
    adviser = usual_adviser()
    with pytest.raises(AdviceError, match=r"600 ms is outside the measured 0.4 ms to 366 ms.*--extrapolate"):
        adviser.advice(0.6)
    advice = adviser.advice(0.6, extrapolate=True)
    assert advice.extrapolated
    assert advice.best.low_bps is None
    assert any("366 ms showed" in note for note in advice.notes)


def few_and_many():
    """The model's best at 300 ms, measured at 0.4 ms alone; another at every RTT."""
    few = Choice(tool="farlink", congestion="bbr", streams=10, buffer_bytes=None)
    return few, campaign(choices=(few,), rtts=(0.0004,)) + campaign(choices=CHOICES[:1])


def test_a_configuration_beyond_its_own_rtts_is_extrapolated_and_says_so():
    few, records = few_and_many()
    advice = Adviser(ground(records), TEN_SECONDS).advice(0.3)
    assert advice.best.choice == few
    assert advice.extrapolated
    assert (advice.best.low_bps, advice.best.high_bps, advice.best.bounds) == (None, None, None)
    assert not advice.runner_up.extrapolated
    assert advice.runner_up.low_bps < advice.runner_up.high_bps
    assert any(
        "bbr ×10, full buffers was measured at 0.4 ms alone: at 300 ms" in note for note in advice.notes
    )
    lines = "\n".join(told(advice))
    assert "with no interval (extrapolated: it was measured at 0.4 ms alone)" in lines
    found = json.loads(json.dumps(recommendation(advice), allow_nan=False))
    assert found["extrapolated"]
    assert (found["advice"]["extrapolated"], found["advice"]["measured_rtt_s"]) == (True, [0.0004])
    assert found["best_measured"]["configuration"] == advice.runner_up.choice.name
    assert [one["extrapolated"] for one in found["ranking"]] == [True, False]
    # Where it was measured there is nothing to mark.
    assert not Adviser(ground(records), TEN_SECONDS).advice(0.0004).extrapolated


def test_the_map_and_the_saved_model_mark_what_is_extrapolated():
    _, records = few_and_many()
    sized = [each for record in records for each in [json.loads(json.dumps(dict(record.fields)))]]
    for each in sized:
        rate = 8 * each["bytes"] / each["duration_s"]
        each["samples"] = synthetic.samples(ramp_s=0.5, rate_bps=rate, seconds=10.0, tau_s=each["rtt_s"])
    told_by = [parse_record(json.dumps(each).encode(), line=n) for n, each in enumerate(sized, 1)]
    won = winners(told_by)
    assert won.extrapolated.any()
    assert not won.extrapolated[:, 0].any(), "everything was measured at the shortest RTT"
    drawn = winners_figure(won)["data"]
    crosses = [trace for trace in drawn if trace["name"] == "extrapolated"]
    assert len(crosses[0]["x"]) == won.extrapolated.sum()
    assert "Cells with a cross are extrapolated" in judgement.winners(won)
    saved = profile_model(ground(told_by))
    measured = {one["congestion"]: one["measured_rtt_s"] for one in saved["configurations"]}
    assert measured == {"bbr": [0.0004], "cubic": list(synthetic.RTTS_S)}


def test_another_rate_is_refused_and_extrapolated_only_when_asked():
    records = campaign()
    with pytest.raises(AdviceError, match=r"a rate of 40.0 Gb/s was not measured"):
        ground(records, rate_bps=40e9)
    advice = Adviser(ground(records, rate_bps=40e9, extrapolate=True), TEN_SECONDS).advice(0.03)
    assert advice.extrapolated
    assert advice.best.throughput_bps > 10e9


def test_another_loss_leaves_only_what_the_model_knows_of():
    records = campaign()
    with pytest.raises(AdviceError, match=r"a loss of 0.0001 was not measured"):
        ground(records, loss=1e-4)
    advice = Adviser(ground(records, loss=1e-4, extrapolate=True), TEN_SECONDS).advice(0.03)
    assert {one.choice.congestion for one in advice.ranking} == {"cubic"}
    assert any("losses leave" in reason for reason in why(advice))
    only_bbr = campaign(choices=[choice for choice in CHOICES if choice.congestion == "bbr"])
    with pytest.raises(AdviceError, match="none of them was measured"):
        ground(only_bbr, loss=1e-4, extrapolate=True)


def test_records_of_several_queues_are_refused():
    with pytest.raises(AdviceError, match="the records are of 2 queues, and a path has one"):
        ground(campaign(choices=CHOICES[:4]) + campaign(choices=CHOICES[4:], queue_bytes=12_500_000))
    # At another rate, a queue of as many milliseconds is another number of bytes.
    slower = campaign(choices=CHOICES[4:], rate_bps=10**9, queue_bytes=6_250_000)
    found = ground(campaign(choices=CHOICES[:4]) + slower, rate_bps=10e9)
    assert {place.choice for place in found.places} == set(CHOICES[:4])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"mtu": 1500, "goodput_bps": 9.41e9}, "2 MTUs"),
        ({"framing": "sonet", "goodput_bps": 9.93e9}, "2 framings"),
        ({"background_bps": 3_000_000_000}, "2 rates of other traffic"),
        ({"goodput_bps": 9.8e9}, "2 capacities for payload"),
    ],
)
def test_runs_of_another_connection_do_not_vanish(changes, said):
    mixed = campaign(choices=CHOICES[:4]) + campaign(choices=CHOICES[4:], **changes)
    with pytest.raises(AdviceError, match=f"{said}, and a path has one: measure them in directories"):
        ground(mixed)
    # Over IPv6 the headers are 20 bytes longer: that is the same connection.
    near = campaign(choices=CHOICES[4:], goodput_bps=synthetic.CAPACITY_BPS * 8928 / 8948)
    assert len(ground(campaign(choices=CHOICES[:4]) + near).choices) == len(CHOICES)


def test_a_configuration_with_one_run_is_told_with_less_certainty():
    few = campaign(repetitions=1, rtts=(0.0118, 0.366))
    rest = campaign(choices=CHOICES[:1])
    ranking = Adviser(ground(few + rest), TEN_SECONDS).advice(0.12).ranking
    width = {one.choice: one.high_bps / one.low_bps for one in ranking}
    assert width[CHOICES[0]] < width[CHOICES[5]]


def test_one_rtt_and_one_configuration_are_answered_without_a_runner_up():
    advice = Adviser(ground(campaign(rtts=(0.0456,), choices=CHOICES[:1])), TEN_SECONDS).advice(0.0456)
    assert advice.runner_up is None
    assert advice.errors == 0
    assert told(advice)


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ([], "no run counts"),
        ([parsed(CHOICES[0], 0.01, 1e9, outcome="failed")], "no run counts"),
        ([parsed(CHOICES[0], 0.01, 1e9, goodput_bps=0)], "import them again with --mtu"),
        ([parsed(CHOICES[0], 0.01, 1e9, rate_bps=None, goodput_bps=None)], "import them again with --rate"),
        (
            [parsed(CHOICES[0], 0.01, 1e9), parsed(CHOICES[0], 0.02, 1e9, run="1", loss=0.1)],
            "2 losses: say which with --loss",
        ),
    ],
)
def test_records_that_support_nothing_are_named(records, said):
    with pytest.raises(AdviceError, match=said):
        ground(records)


def test_runs_above_the_capacity_are_refused_with_the_likely_cause():
    fast = [
        parsed(choice, rtt, 25e9, run=f"{index}")
        for index, (rtt, choice) in enumerate((rtt, choice) for rtt in (0.01, 0.1) for choice in CHOICES[:2])
    ]
    said = r"25.0 Gb/s at 10 ms is above the capacity of 9.90 Gb/s: the rate that was named is likely wrong"
    with pytest.raises(AdviceError, match=said + ", as by --rate at import"):
        ground(fast)
    assert "above the capacity" in winners(fast).reason
    # Clocks are good to a few parts in a thousand, and one odd run among three is none of the rate's.
    near = [parsed(CHOICES[0], 0.01, 1.005 * synthetic.CAPACITY_BPS)]
    assert ground(near).choices == CHOICES[:1]
    assert ground([*near, parsed(CHOICES[0], 0.01, 1e9, run="1"), parsed(CHOICES[0], 0.01, 11e9, run="2")])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rtt_s": 0}, "an RTT of 0 s"),
        ({"rtt_s": 40000.0}, "an RTT of 40000 s"),
        ({"buffer_bytes": 0}, "a buffer of 0 bytes"),
        ({"declared_bps": 0, "congestion": "circuit"}, "a declared rate of 0"),
        ({"loss": 2.0}, "a loss of 2, which is no share"),
    ],
)
def test_what_cannot_be_counts_for_nothing_and_is_named(changes, said):
    made = synthetic.campaign()
    made[:2] = [each | changes for each in made[:2]]
    read = [parse_record(json.dumps(each).encode(), line=n) for n, each in enumerate(made, 1)]
    task = Task(mode="size", amount=2.0**31)
    advice = Adviser(ground(read), task).advice(0.05)
    assert not advice.extrapolated
    assert any(f"count for nothing: 2 that say {said}" in note for note in advice.notes)
    assert any(said in note for note in profile_model(ground(read))["notes"])
    with pytest.raises(AdviceError, match=rf"no run counts \(.*: 1 that say {said}\)"):
        ground(read[:1])


@pytest.mark.parametrize("changes", [{"rtt_s": 0}, {"loss": 2.0}], ids=["RTT", "loss"])
def test_a_map_and_a_report_are_made_beside_what_cannot_be(changes, tmp_path):
    made = synthetic.campaign()
    made[:2] = [each | changes for each in made[:2]]
    read = [parse_record(json.dumps(each).encode(), line=n) for n, each in enumerate(made, 1)]
    assert winners(read).winner.size
    synthetic.write(tmp_path, made)
    assert write_report(tmp_path, command="farlink lab report campaign").page.exists()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 0.0, -1.0])
def test_what_is_no_number_is_a_named_error(bad):
    records = campaign(choices=CHOICES[:2])
    adviser = Adviser(ground(records), TEN_SECONDS)
    for ask in (adviser.advice, lambda rtt: adviser.advice(rtt, extrapolate=True), adviser.throughput_bps):
        with pytest.raises(AdviceError, match="is no RTT"):
            ask(bad)
    with pytest.raises(AdviceError, match="is no rate"):
        ground(records, rate_bps=bad, extrapolate=True)
    with pytest.raises(AdviceError, match="is no share of segments"):
        ground(records, loss=bad or 1.0, extrapolate=True)


def test_two_rtts_are_answered_between_them():
    adviser = Adviser(ground(campaign(rtts=(0.0118, 0.0456), choices=CHOICES[:2])), TEN_SECONDS)
    advice = adviser.advice(0.02)
    assert advice.errors == 0, "no RTT lies between others, so that none could be foretold"
    assert advice.best.low_bps < advice.best.throughput_bps <= advice.best.high_bps
    saved = profile_model(ground(sampled(rtts=(0.0118, 0.0456))))
    assert saved["rtt_s"] == pytest.approx([0.0118, 0.0232, 0.0456], rel=1e-3)


def test_one_rtt_makes_a_model_and_no_map():
    one = sampled(rtts=(0.0456,))
    saved = profile_model(ground(one))
    assert saved["rtt_s"] == [0.0456]
    assert np.isfinite(saved["configurations"][0]["size_bps"]).all()
    assert "one RTT was measured" in winners(one).reason
    assert "Not told: one RTT was measured" in judgement.winners(winners(one))


def test_a_run_that_moved_nothing_counts_for_nothing():
    records = [*campaign(), parsed(CHOICES[0], 0.0456, 0.0, run="999")]
    assert np.isfinite(Adviser(ground(records), TEN_SECONDS).advice(0.05).best.throughput_bps)


def test_runs_that_moved_nothing_tell_of_nothing():
    still = [parsed(choice, rtt, 0.0, run="1") for choice in CHOICES[:2] for rtt in synthetic.RTTS_S]
    with pytest.raises(AdviceError, match="no run tells of 50 GB: none moved anything"):
        Adviser(ground(still), Task(mode="size", amount=50e9))


@pytest.mark.parametrize("task", [Task(mode="duration", amount=60.0), Task(mode="size", amount=20e9)])
def test_a_run_foretells_a_longer_one_by_how_far_it_was_from_the_model(task):
    short = campaign(choices=CHOICES[:2], repetitions=1, noise=0.001)
    adviser = Adviser(ground(short), task)
    for rtt in synthetic.RTTS_S:
        rates = dict(zip(adviser.ground.choices, adviser.throughput_bps(rtt), strict=True))
        for choice, rate in rates.items():
            assert rate == pytest.approx(truth(choice, rtt, task), rel=0.06)


def test_a_size_between_two_is_told_by_both():
    drawn = random.Random(5)

    def moved(choice, rtt, size, ratio, run):
        task = Task(mode="size", amount=float(size))
        seconds = 8 * size / (truth(choice, rtt, task) * ratio * np.exp(drawn.gauss(0, 0.005)))
        lab = {"configuration": choice.name, "run": f"{run} {size} {rtt}"}
        fields = synthetic.record(
            mode="size",
            bytes=size,
            duration_s=seconds,
            rtt_s=rtt,
            congestion=choice.congestion,
            streams=choice.streams,
            buffer_bytes=choice.buffer_bytes,
            lab=lab,
        )
        return parse_record(json.dumps(fields).encode(), line=run + 1)

    small, large = 1 << 28, 1 << 32
    runs = [
        moved(CHOICES[0], rtt, size, ratio, run)
        for rtt in synthetic.RTTS_S
        for size, ratio in ((small, 0.8), (large, 0.95))
        for run in range(3)
    ]
    told_at = {}
    for size in (small, 1 << 30, large):
        task = Task(mode="size", amount=float(size))
        rate = Adviser(ground(runs), task).advice(0.07).best.throughput_bps
        told_at[size] = rate / truth(CHOICES[0], 0.07, task)
    assert told_at[small] == pytest.approx(0.8, rel=0.03)
    assert told_at[large] == pytest.approx(0.95, rel=0.03)
    assert told_at[small] < told_at[1 << 30] < told_at[large]


def test_ours_count_alone_where_ours_ran():
    other = campaign(choices=CHOICES[:2], tool="iperf3")
    assert {choice.tool for choice in ground(campaign() + other).choices} == {"farlink"}
    assert {choice.tool for choice in ground(other).choices} == {"iperf3"}


def test_late_runs_count_only_where_there_are_no_others():
    late = {"late_max_s": 0.1, "late_p99_s": 0.1, "overrun": True}
    slow = [parsed(CHOICES[0], 0.0456, 1e8, run=f"{index}", emulator=late) for index in range(500, 520)]
    with_late, without = (
        Adviser(ground(records), TEN_SECONDS).advice(0.0456).ranking
        for records in (campaign() + slow, campaign())
    )
    assert [one.throughput_bps for one in with_late] == [one.throughput_bps for one in without]


def test_advice_that_draws_on_late_runs_says_so():
    late = {"late_max_s": 0.1, "late_p99_s": 0.1, "overrun": True}
    records = campaign(rtts=synthetic.RTTS_S[:5]) + campaign(rtts=synthetic.RTTS_S[5:], emulator=late)
    advice = Adviser(ground(records), TEN_SECONDS).advice(0.12)
    assert any("points are late (at 183 ms, 366 ms)" in note for note in advice.notes)
    assert any("the runs (some late)" in reason for reason in why(advice))
    assert recommendation(advice)["advice"]["late_rtt_s"] == list(synthetic.RTTS_S[5:])
    timely = usual_adviser().advice(0.12)
    assert not any("late" in said for said in told(timely))
    # Errors at late RTTs are none of the interval's.
    assert advice.errors < timely.errors


def test_the_json_has_the_answer_its_reasons_and_no_number_that_is_none():
    advice = usual_adviser().advice(0.07)
    found = json.loads(json.dumps(recommendation(advice), allow_nan=False))
    assert found["advice"]["flags"] == "--congestion cubic --streams 10"
    assert found["advice"]["low_bps"] <= found["advice"]["throughput_bps"] <= found["advice"]["high_bps"]
    assert found["runner_up"]["throughput_bps"] <= found["advice"]["throughput_bps"]
    assert len(found["ranking"]) == len(CHOICES)
    assert found["why"]


@pytest.fixture
def directory(tmp_path):
    made = [each for each in synthetic.campaign(repetitions=3) if each["mode"] == "duration"]
    synthetic.write(tmp_path, made)
    return tmp_path


def test_the_command_answers_and_saves_the_profile_model(lab, directory):
    path = directory / "model" / "profile.json"
    done = lab.run("advise", directory, "--rtt", "70ms", "--bytes", "50GB", "--save", path)
    assert done.returncode == 0, done.stderr
    assert "cubic ×1, full buffers" in done.stdout.splitlines()[0]
    assert "farlink memory HOST --bytes 50GB --congestion cubic --streams 1" in done.stdout
    assert "why: " in done.stdout
    saved = json.loads(path.read_text())
    assert (saved["schema"], saved["kind"]) == (1, "profile model")
    shape = (len(saved["rtt_s"]), len(saved["bytes"]))
    for one in saved["configurations"]:
        assert np.array(one["size_bps"]).shape == shape
        assert np.array(one["duration_bps"]).shape == (len(saved["rtt_s"]), len(saved["seconds"]))
        rates = np.array(one["size_bps"])
        # Each size is predicted for itself, and weighs the runs for itself: a larger one is no slower, within
        # twice the 1% by which these runs spread.
        assert (rates[:, 1:] >= 0.98 * rates[:, :-1]).all()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "say what for: --rtt, and one of --bytes and --seconds, as in"),
        (("--rtt", "70ms"), "say what for: one of --bytes and --seconds, as in"),
        (("--bytes", "1GB"), "say what for: --rtt, as in"),
        (("--rtt", "70", "--bytes", "1GB"), "no unit"),
        (("--rtt", "70ms", "--bytes", "1GB", "--seconds", "3"), "leave one out"),
        (("--rtt", "70ms", "--seconds", "0"), "no duration"),
        (("--rtt", "900ms", "--bytes", "1GB"), "--extrapolate"),
        (("--save", "/dev/null/profile.json"), "/dev/null"),
        (("--save", "."), "--save: . is a directory: name a file, as in profile.json"),
    ],
)
def test_the_command_refuses_in_one_line(lab, directory, options, said):
    # Two of them as a user would have them.
    start = lab.run if options in ((), ("--rtt", "900ms", "--bytes", "1GB")) else lab.here
    done = start("advise", directory, *options)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_model_agrees_with_the_advice():
    made = [each for each in synthetic.campaign(repetitions=3) if each["mode"] == "duration"]
    stood = ground(parse_record(json.dumps(each).encode(), line=n) for n, each in enumerate(made, 1))
    saved = profile_model(stood, made="2026-01-01T00:00:00Z")
    adviser = Adviser(stood, Task(mode="size", amount=1e10))
    column = saved["bytes"].index(10**10)
    for row, rtt in enumerate(saved["rtt_s"]):
        rates = adviser.throughput_bps(rtt)
        for one, rate in zip(saved["configurations"], rates, strict=True):
            assert one["size_bps"][row][column] == pytest.approx(rate, rel=1e-3)


def sampled(rtts=synthetic.RTTS_S, **changes):
    made = [each for each in synthetic.campaign(repetitions=2) if each["mode"] == "duration"]
    made = [each for each in made if each["rtt_s"] in rtts]
    made = [each for each in made if each["tool"] == "farlink" and not each.get("buffer_bytes")]
    return [parse_record(json.dumps(each | changes).encode(), line=n) for n, each in enumerate(made, 1)]


def test_the_saved_model_keeps_its_caveats():
    plain = profile_model(ground(sampled()))
    assert "measured_with" not in plain
    (told_by,) = plain["notes"]
    assert told_by.startswith("measured were durations of 10 s: others are the model's, times how far")
    farther = profile_model(ground(sampled(), rate_bps=40e9, extrapolate=True))
    assert any(
        "measured over 10.0 Gb/s: the model has the limits of 40.0 Gb/s" in n for n in farther["notes"]
    )
    other = profile_model(ground(sampled(tool="iperf3")))
    assert other["measured_with"] == "iperf3"
    # Whoever reads it knows whether it is another.
    assert not any("iperf3" in note for note in other["notes"])
    assert profile_model(ground(sampled(kind="file")))["measured_with"] == "farlink copy"


def test_a_model_is_of_one_mover_and_of_no_other_tools_files():
    with pytest.raises(ModelFileError, match="the runs are of rsync, whose files tell nothing"):
        profile_model(ground(sampled(tool="rsync", kind="file")))
    with pytest.raises(ModelFileError, match="of iperf3 and of nuttcp, and a profile model is of one mover"):
        profile_model(ground(sampled(tool="iperf3") + sampled(tool="nuttcp", lab={"configuration": "n"})))


def test_files_and_memory_are_configurations_apart():
    files = campaign(choices=CHOICES[:1], kind="file", block_bytes=4 << 20)
    for each in files:
        each.fields["lab"] |= {"configuration": "copy", "run": f"copy {each.line} {each.rtt_s}"}
    records = [
        parse_record(json.dumps(dict(each.fields)).encode(), line=n)
        for n, each in enumerate(campaign(choices=CHOICES[:1]) + files, 1)
    ]
    names = {choice.name: choice for choice in ground(records).choices}
    assert set(names) == {"cubic ×1, full buffers", "farlink copy: cubic ×1, full buffers, blocks of 4 MiB"}
    only = Adviser(ground(files), Task(mode="size", amount=1e10)).advice(0.05)
    assert "  farlink copy FROM TO --congestion cubic --streams 1" in told(only)
    assert recommendation(only)["advice"]["kind"] == "file"


def test_the_map_names_the_winner_of_every_cell():
    made = synthetic.campaign(repetitions=2)
    won = winners([parse_record(json.dumps(each).encode(), line=n) for n, each in enumerate(made, 1)])
    assert won.told_by_others
    assert "Runs of iperf3 are not in it" in judgement.winners(won)
    assert won.choices[0].buffer_bytes is None
    assert won.winner.shape == (len(won.size_bytes), len(won.rtt_s))
    assert (won.winner[:, -1] == 0).all(), "a small window never wins at a long RTT"
    assert "no run counts" in winners([]).reason
