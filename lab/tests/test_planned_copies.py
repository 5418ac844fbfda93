"""Plans whose command is a `farlink copy` that leaves it to the path how many streams there are."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

import synthetic
from farlink_lab.choice import choice_asked, choice_of
from farlink_lab.movers import MOVERS
from farlink_lab.movers.mover import Finished
from farlink_lab.plan_file import parse_plan
from farlink_lab.records import parse_lines
from farlink_lab.run.emulation import EmulationError
from farlink_lab.run.transfer import Tool, carry_out
from farlink_lab.schedule import schedule
from farlink_lab.search import PlanSearch

PLAN = 'rtts = ["1ms", "50ms"]\n[[configuration]]\nbytes = "1GB"\ncommand = "{}"\n'


def ended(rtt_s):
    """An emulation that ended before the run began."""
    raise EmulationError(f"nothing answers at {rtt_s:g} s")


def read(made):
    return parse_lines(json.dumps(each).encode() for each in made)


@pytest.mark.parametrize(
    ("command", "streams"),
    [
        ("farlink copy {source} x:/y --json", None),
        ("farlink copy {source} x:/y --json --streams 4", 1),
        ("farlink copy {source} x:/y --json --streams=4", 1),
        ("farlink copy {source} x:/y --json -P 4", 1),
        ("farlink copy {source} x:/y --json -P4", 1),
        ("farlink copy {source} x:/y --json --circuit 10gbit", 1),
        ("farlink copy {source} x:/y --json --streams {streams}", 1),
        ("farlink memory {address} --bytes {bytes}", 1),
        ("cp copy {source} x:/y", 1),
    ],
)
def test_a_plan_names_copies_that_say_no_number(command, streams):
    (configuration,) = parse_plan(PLAN.format(command), name="x").configurations
    assert ("×auto" in configuration.label) == (streams is None)
    assert choice_asked(configuration).streams == streams


def test_a_campaign_of_them_finds_its_runs_again_and_a_search_learns_from_them():
    plan = parse_plan(PLAN.format("farlink copy {source} x:/y --json"), name="x")
    runs = schedule(plan)
    # As runs of that plan have had them since before a label said so.
    assert [run.identity for run in runs] == ["89010ae44c1bf0e5", "948a7de598a4d9ed"]
    search = PlanSearch(plan, runs)
    made = [
        synthetic.record(
            kind="file", rtt_s=run.rtt_s, streams=streams, streams_chosen=True, lab={"run": run.identity}
        )
        for run, streams in zip(runs, (8, 4), strict=True)
    ]
    search.learn(read(made).records)
    assert all(leader.throughput_bps == pytest.approx(8e9, rel=0.2) for leader in search.search.leaders())


@pytest.mark.parametrize(
    ("command", "protection"),
    [
        ("farlink copy {source} x:/y --json", "encrypted"),
        ("farlink copy {source} x:/y --json --protect=integrity", "integrity"),
        ("farlink copy {source} x:/y --json --protect clear", "clear"),
        ("farlink copy {source} x:/y --json --no-auth", "clear"),
        ("cp copy {source} x:/y", "clear"),
    ],
)
def test_a_copy_is_protected_as_it_says_and_encrypted_where_it_says_nothing(command, protection):
    (run,) = schedule(parse_plan(PLAN.format(command).replace(', "50ms"', ""), name="x"))
    assert choice_asked(run.configuration).protection == protection
    tool = Tool(mover=MOVERS["command"], program="farlink", server_program="farlink", version="1")
    gone = SimpleNamespace(alive=False, set_rtt=ended)
    record = carry_out(
        run, plan="x", tool=tool, emulation=gone, stop=SimpleNamespace(asked=False), tick=print
    )
    assert record["protection"] == protection


def test_what_a_command_says_of_protection_is_kept():
    (configuration,) = parse_plan(PLAN.format("mycopy {source}"), name="x").configurations
    said = {"bytes": 1_000_000_000, "duration_s": 1.0, "protection": "integrity"}
    finished = Finished(status=0, stdout=json.dumps(said), stderr="")
    assert MOVERS["command"].result(finished, configuration=configuration, rtt_s=0.001) == said


def test_a_copy_that_says_nothing_of_itself_is_what_its_plan_says():
    (configuration,) = parse_plan(PLAN.format("farlink copy {source} x:/y"), name="x").configurations
    silent = Finished(status=0, stdout="", stderr="", wall_s=2.0)
    found = MOVERS["command"].result(silent, configuration=configuration, rtt_s=0.001)
    assert found["streams_chosen"] is found["congestion_chosen"] is True
    assert "streams" not in found


def test_a_search_learns_nothing_from_runs_that_were_held_to_a_rate():
    plan = parse_plan(PLAN.format("farlink copy {source} x:/y --json"), name="x")
    search = PlanSearch(plan, schedule(plan))
    before = search.search.leaders()
    made = [
        synthetic.record(
            kind="file", rtt_s=run.rtt_s, streams_chosen=True, limit_bps=1000, lab={"run": run.identity}
        )
        for run in schedule(plan)
    ]
    search.learn(read(made).records)
    assert search.search.leaders() == before


def test_a_command_says_how_many_and_what_held_it_where_the_plan_does_not():
    said = {"bytes": 9, "duration_s": 1.0, "streams": 8, "streams_chosen": True, "limit_bps": 1000}
    for words, kept in (("", {}), (" --streams {streams}", {"streams", "streams_chosen"})):
        command = "farlink copy --json --size {bytes}" + words
        (configuration,) = parse_plan(PLAN.format(command), name="x").configurations
        finished = Finished(status=0, stdout=json.dumps(said), stderr="")
        found = MOVERS["command"].result(finished, configuration=configuration, rtt_s=0.001)
        assert found.pop("congestion_chosen") is True
        assert found == {key: value for key, value in said.items() if key not in kept}
    (record,) = read([synthetic.record(kind="file", streams=8, streams_chosen=True)]).records
    assert choice_of(record).streams is None
