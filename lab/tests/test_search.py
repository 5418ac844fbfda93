"""A search that chooses its own probes: what it learns from, where it ends, and what it finds."""

from __future__ import annotations

import json
import random
import time

import numpy as np
import pytest

from farlink_lab.choice import Choice, Task, choice_asked
from farlink_lab.expectation import Wire, expected_bps
from farlink_lab.plan_file import parse_plan
from farlink_lab.records import parse_record
from farlink_lab.schedule import schedule
from farlink_lab.search import PlanSearch, Search, expected_rise, task_sought
from farlink_lab.surrogate import Observation

WIRE = Wire(rate_bps=10e9, capacity_bps=9.9e9, mtu=9000)
RTTS_S = (0.0004, 0.0118, 0.0456, 0.183, 0.366)
TASK = Task(mode="duration", amount=10.0)
CHOICES = tuple(
    Choice(tool="farlink", congestion=congestion, streams=streams, buffer_bytes=buffer)
    for congestion in ("cubic", "bbr", "htcp")
    for streams in (1, 4, 10)
    for buffer in (None, 4 << 20)
)

PLAN = """
name = "small"
rtts = ["0.4ms", "11.8ms", "45.6ms"]
repetitions = 2
[[configuration]]
congestion = ["cubic", "bbr"]
streams = [1, 10]
buffer = ["auto", "256KiB"]
seconds = 0.5
"""


def drawn_truth(seed):
    """ln(Θ/Θ_model) of every configuration at every RTT: controls and streams differ, with noise."""
    drawn = random.Random(seed)
    of_control = {name: (drawn.gauss(-0.12, 0.1), drawn.gauss(0, 0.05)) for name in ("cubic", "bbr", "htcp")}
    of_streams = {streams: drawn.gauss(0, 0.04) for streams in (1, 4, 10)}
    truth = {}
    for choice in CHOICES:
        level, slope = of_control[choice.congestion]
        own, own_slope = drawn.gauss(0, 0.05), drawn.gauss(0, 0.02)
        for rtt in RTTS_S:
            away = np.log(rtt / 0.03)
            value = level + slope * away + of_streams[choice.streams] + own + own_slope * away
            truth[choice, rtt] = min(value + drawn.gauss(0, 0.02), 0.0)
    return truth


# Of the model, ln Θ.
EXPECTED = {
    (choice, rtt): np.log(expected_bps(choice, np.array([rtt]), task=TASK, wire=WIRE)[0])
    for choice in CHOICES
    for rtt in RTTS_S
}


def observations(told):
    return [
        Observation(choice=choice, rtt_s=rtt, ratios=tuple(values)) for (choice, rtt), values in told.items()
    ]


def searched(search, told, _drawn):
    search.learn(observations(told))
    row, column = np.unravel_index(int(np.argmax(search.gains())), (len(CHOICES), len(RTTS_S)))
    return CHOICES[row], RTTS_S[column]


def scattered(_search, _told, drawn):
    return drawn.choice(CHOICES), drawn.choice(RTTS_S)


def good_leaders(take, *, probes, seeds, collapse=0.0):
    """How often what would be chosen reaches 95% of the best, after so many probes, for each of `probes`.

    Of the runs a share of `collapse` reaches a fifth to a half of the others.
    """
    good = {count: [] for count in probes}
    search = Search(choices=CHOICES, rtts_s=RTTS_S, task=TASK, wire=WIRE)
    for seed in range(seeds):
        truth, drawn = drawn_truth(seed), random.Random(seed)
        told: dict[tuple[Choice, float], list[float]] = {}
        for count in range(1, max(probes) + 1):
            place = take(search, told, drawn)
            fallen = np.log(drawn.uniform(0.2, 0.5)) if drawn.random() < collapse else 0.0
            told.setdefault(place, []).append(truth[place] + drawn.gauss(0, 0.03) + fallen)
            if count in good:
                search.learn(observations(told))
                good[count] += [is_good(leader, truth) for leader in search.leaders()]
    return [np.mean(good[count]) for count in probes]


def is_good(leader, truth):
    reach = {choice: EXPECTED[choice, leader.rtt_s] + truth[choice, leader.rtt_s] for choice in CHOICES}
    return reach[leader.choice] >= max(reach.values()) + np.log(0.95)


def test_a_leader_beyond_its_own_rtts_says_so():
    search = Search(choices=CHOICES, rtts_s=RTTS_S, task=TASK, wire=WIRE)
    best = CHOICES[4]
    search.learn([Observation(choice=best, rtt_s=rtt, ratios=(0.0, 0.0)) for rtt in RTTS_S[:3]])
    told = {leader.rtt_s: leader.extrapolated for leader in search.leaders() if leader.choice == best}
    assert told
    assert all(beyond == (rtt > RTTS_S[2]) for rtt, beyond in told.items())
    others = [leader for leader in search.leaders() if leader.choice != best]
    assert all(leader.extrapolated for leader in others)


def test_a_run_of_another_size_is_worth_the_less_the_farther_it_is():
    search = Search(choices=CHOICES, rtts_s=RTTS_S, task=TASK, wire=WIRE)
    search.learn([Observation(choice=CHOICES[0], rtt_s=RTTS_S[0], ratios=(0.0, 0.0))])
    own, near, far = (search.gains(doublings) for doublings in (0.0, -2.0, -8.0))
    assert own.sum() > near.sum() > far.sum()


def test_from_few_probes_it_finds_more_than_probes_at_random_do():
    few = int(0.15 * len(CHOICES) * len(RTTS_S))
    (by_search,) = good_leaders(searched, probes=(few,), seeds=40)
    (at_random,) = good_leaders(scattered, probes=(few,), seeds=40)
    assert by_search > at_random + 0.05
    assert by_search > 0.8


def test_with_half_of_the_sweep_it_finds_what_is_best():
    (by_search,) = good_leaders(searched, probes=(len(CHOICES) * len(RTTS_S) // 2,), seeds=4)
    assert by_search >= 0.9


def test_more_probes_do_no_worse_where_runs_collapse():
    # The first ten probes are the same.
    few, more = good_leaders(searched, probes=(10, 30), seeds=30, collapse=0.06)
    assert more >= few
    assert more >= 0.85


def test_what_a_run_is_worth_is_what_random_draws_make_of_it():
    draw = np.random.default_rng(1)
    known = draw.normal(0, 0.1, 6)
    # Lines that are alike, one that nothing moves, and a pair that differs in height alone.
    moved = np.stack([draw.normal(0, 0.2, 6), np.full(6, 0.3), np.array([0, 0, 0.1, 0.1, -0.2, 0.2])])
    seen = known + moved[:, :, None].swapaxes(1, 2) * draw.standard_normal(400_000)[None, :, None]
    assert expected_rise(known, moved) == pytest.approx(seen.max(axis=2).mean(axis=1) - known.max(), abs=1e-3)


def test_what_moves_all_configurations_alike_is_worth_nothing():
    assert expected_rise(np.array([0.0, -0.1, 0.0]), np.full((2, 3), 0.4)) == pytest.approx([0, 0], abs=1e-12)


def test_what_cannot_win_is_not_measured():
    search = Search(choices=CHOICES, rtts_s=RTTS_S, task=TASK, wire=WIRE)
    gains = search.gains()
    longest = RTTS_S.index(0.366)
    bound = [index for index, choice in enumerate(CHOICES) if choice.buffer_bytes and choice.streams == 1]
    free = [index for index, choice in enumerate(CHOICES) if not choice.buffer_bytes and choice.streams == 10]
    # It still teaches of its congestion control, and so of what can.
    assert gains[bound, longest].max() < 0.25 * gains[free, longest].min()


def test_one_configuration_is_measured_all_the_same():
    search = Search(choices=CHOICES[:1], rtts_s=RTTS_S, task=TASK, wire=WIRE)
    assert (search.gains() > 0).all()


def test_failed_runs_are_not_tried_again_before_all_else():
    plan = parse_plan(PLAN, name="small")
    runs = schedule(plan)
    search = PlanSearch(plan, runs)
    first = search.next_run(runs, time_s=lambda run: run.expected_s, most_s=60)
    record = {
        "schema": 1,
        "id": "0" * 32,
        "kind": "memory",
        "mode": "duration",
        "started": "2026-01-01T00:00:00Z",
        "bytes": 0,
        "tool": "farlink",
        "version": "1",
        "outcome": "failed",
        "lab": {"run": first.identity},
    }
    search.learn([parse_record(json.dumps(record).encode())])
    left = [run for run in runs if run.identity != first.identity]
    following = search.next_run(left, time_s=lambda run: run.expected_s, most_s=60)
    assert choice_asked(following.configuration) != choice_asked(first.configuration)


def test_no_run_is_begun_that_does_not_fit():
    plan = parse_plan(PLAN, name="small")
    runs = schedule(plan)
    search = PlanSearch(plan, runs)
    assert search.next_run(runs, time_s=lambda run: 2.0, most_s=1.9) is None
    assert search.next_run(runs, time_s=lambda run: 2.0, most_s=2.0) is not None
    assert search.next_run([], time_s=lambda run: 2.0, most_s=2.0) is None


def test_a_plan_of_several_queues_is_refused(lab):
    plan = lab.plan(
        PLAN.replace("streams = [1, 10]", 'queue = ["5ms", "50ms"]\nlabel = "{congestion} {buffer} {queue}"')
    )
    done = lab.run("search", plan, "--budget", "1min", "--out", lab.out)
    assert done.returncode == 2
    assert "has a queue of its own, and the best is sought for one connection: write queue in" in done.stderr
    assert not lab.out.exists()


def test_the_largest_amount_of_the_plan_is_sought():
    plan = parse_plan(PLAN + '[[configuration]]\nlabel="s"\nbytes="2GiB"\n', name="small")
    assert task_sought(plan) == Task(mode="size", amount=float(2 << 30))
    assert task_sought(parse_plan(PLAN, name="small")) == Task(mode="duration", amount=0.5)


def test_the_command_measures_a_part_of_the_plan_and_says_what_is_best(lab):
    done = lab.run("search", lab.plan(PLAN), "--budget", "12s", "--out", lab.out)
    assert done.returncode == 0, done.stderr
    records = lab.records()
    # Each of its runs counts for a second at least.
    assert 1 <= len(records) <= 12
    assert len({record["lab"]["run"] for record in records}) == len(records)
    assert "best so far for 500 ms" in done.stdout
    assert "45.6 ms: " in done.stdout


def test_what_was_spent_counts_when_it_goes_on(lab):
    plan = lab.plan(
        PLAN.replace("repetitions = 2", "repetitions = 1").replace('["auto", "256KiB"]', '"auto"')
    )
    lab.run("search", plan, "--budget", "6s", "--out", lab.out)
    lab.run("search", plan, "--budget", "6s", "--out", lab.out)
    assert 1 <= len(lab.records()) <= 6
    lab.run("search", plan, "--budget", "1h", "--out", lab.out)
    assert len(lab.records()) == 12
    done = lab.run("profile", plan, "--out", lab.out)
    assert done.returncode == 0
    assert len(lab.records()) == 12


def test_the_choosing_counts_too(lab, monkeypatch):
    learn = PlanSearch.learn

    def slowly(search, records):
        time.sleep(1.5)
        learn(search, records)

    monkeypatch.setattr(PlanSearch, "learn", slowly)
    done = lab.here("search", lab.plan(PLAN), "--budget", "4s", "--out", lab.out)
    assert done.returncode == 0, done.stderr
    assert len(lab.records()) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--budget", "10"), "no unit"),
        (("--budget", "1ms"), "no run of"),
        (("--budget", "1min", "--bytes", "1GB", "--seconds", "1"), "leave one out"),
    ],
)
def test_the_command_refuses_in_one_line(lab, options, said):
    done = lab.here("search", lab.plan(PLAN), *options, "--out", lab.out)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_what_advice_would_ignore_is_not_measured_and_that_is_said_before(lab):
    command = """sh -c 'printf "%s" "$0"; sleep {seconds}' '{{"bytes": 125}}'"""
    other = f"[[configuration]]\nlabel = \"any\"\nseconds = 3\ncommand = '''{command}'''\n"
    few = PLAN.replace("repetitions = 2", "repetitions = 1").replace('["auto", "256KiB"]', '"auto"')
    plan = lab.plan(few + other)
    done = lab.run("search", plan, "--budget", "1h", "--out", lab.out)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("farlink: runs of sh are not searched: advice is for farlink")
    assert {record["tool"] for record in lab.records()} == {"farlink"}
    # What is sought is what they do that are searched.
    assert "best so far for 500 ms, from 12 of 12 runs:" in done.stdout
    # Without ours there is nothing to leave out.
    alone = parse_plan('rtts = ["1ms"]\n' + other, name="x")
    assert (PlanSearch(alone, schedule(alone)).others, len(schedule(alone))) == ((), 1)


COPIES = """[[configuration]]
label = "copy"
command = "farlink copy {source} farlink://{address}/{destination} --no-auth --json"
server = "farlink serve --no-auth"
port = 7000
bytes = "1MB"
"""


def test_that_memory_and_copies_are_searched_together_is_said_before(lab):
    done = lab.run("search", lab.plan(PLAN + COPIES), "--budget", "1ms", "--out", lab.out)
    assert done.stderr.startswith("farlink: memory and copies are searched together")


def test_for_a_duration_no_copy_is_searched(lab):
    plan = parse_plan(PLAN + COPIES, name="x")
    task = Task(mode="duration", amount=2.0)
    search = PlanSearch(plan, schedule(plan), task=task)
    assert {run.configuration.label for run in search.runs} == {
        one.label for one in plan.configurations if one.label != "copy"
    }
    done = lab.run("search", lab.plan(PLAN + COPIES), "--budget", "1ms", "--seconds", "2", "--out", lab.out)
    assert done.stderr.startswith("farlink: farlink copy is not searched: a copy is over when")
    done = lab.run(
        "search", lab.plan(f'rtts = ["1ms"]\n{COPIES}'), "--budget", "9s", "--seconds", "2", "--out", "x"
    )
    assert done.stderr.startswith("farlink: --seconds: the plan is of farlink copy")
