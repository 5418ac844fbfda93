"""The verdicts of bench/findings.py on campaigns whose truth is known."""

from __future__ import annotations

import importlib
import json
import math
import random
from pathlib import Path

import pytest

from farlink_lab.plan_file import read_plan
from farlink_lab.schedule import schedule
from synthetic import record

ROOT = Path(__file__).parents[2]


@pytest.fixture
def bench(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    module = importlib.import_module("findings")
    monkeypatch.setattr(module, "OUT", tmp_path)
    return module


def measured(bench, name, rate_bps, *, cores=lambda configuration: (0.4, 0.6), leave_out=0):
    """Records of every run of a plan, by a rate of configuration and RTT, with 1% noise."""
    drawn = random.Random(3)
    made = []
    for number, run in enumerate(schedule(read_plan(ROOT / "plans" / f"{name}.toml"))):
        asked = run.configuration
        rate = rate_bps(asked, run.rtt_s) * (1 + drawn.gauss(0, 0.01))
        moved = asked.size_bytes or round(rate * asked.duration_s / 8)
        seconds = asked.duration_s or 8 * moved / rate
        client, server = cores(asked)
        made.append(
            record(
                id=f"{number:032x}",
                mode=asked.mode,
                bytes=moved,
                duration_s=seconds,
                rtt_s=run.rtt_s,
                streams=asked.streams,
                congestion=asked.congestion or "cubic",
                tool=asked.tool,
                cpu_s={"sender": client * seconds, "receiver": server * seconds},
                lab={
                    "plan": name,
                    "run": run.identity,
                    "configuration": asked.label,
                    "repetition": run.repetition,
                },
            )
        )
    (bench.OUT / name).mkdir()
    lines = [json.dumps(each) for each in made[: len(made) - leave_out]]
    (bench.OUT / name / "records.jsonl").write_text("\n".join(lines) + "\n")
    return bench.records_of(name)


def falling(_configuration, rtt_s):
    return 9.8e9 / (1 + math.exp(20 * (rtt_s - 0.1)))


def concave(_configuration, rtt_s):
    return 9.8e9 * (1 - 5 * rtt_s**2)


def convex(_configuration, rtt_s):
    return 6.8e9 * math.exp(-8 * rtt_s)


def test_two_regimes_are_seen_where_there_are_two(bench):
    verdict, table = bench.two_regimes(measured(bench, "durations", falling))
    assert verdict == "holds, in every configuration"
    assert table.count("concave then convex") == 4


def test_one_regime_is_not_two(bench):
    assert bench.two_regimes(measured(bench, "durations", convex))[0] == "does not hold: convex throughout"


@pytest.mark.parametrize(("by", "said"), [(0.93, "holds"), (1.0, "not shown"), (1.07, "the faster")])
def test_stcp_loses_where_it_is_slower(bench, by, said):
    found = measured(
        bench, "controls", lambda asked, rtt: 9e9 / (1 + rtt) * (by if asked.congestion == "scalable" else 1)
    )
    assert said in bench.scalable_loses(found)[0]


def test_other_traffic_is_blamed_for_what_it_does_alone(bench):
    alone = measured(bench, "dedicated", concave)
    assert bench.shared_is_convex(alone, measured(bench, "shared", convex))[0] == "holds"
    assert "not shown" in bench.shared_is_convex(alone, alone)[0]


@pytest.mark.parametrize(
    ("plain", "fast", "said"),
    [
        ((0.97, 0.5), (0.6, 0.5), "holds: the client is out of CPU first"),
        ((0.7, 0.5), (0.6, 0.5), "and is not out of it"),
        ((0.5, 0.97), (0.5, 0.97), "the server spends more CPU than the client; -fast costs no less"),
    ],
)
def test_the_end_without_cpu_is_the_limit(bench, plain, fast, said):
    found = measured(
        bench, "gridftp", lambda *_: 4e9, cores=lambda asked: fast if "-fast" in asked.options else plain
    )
    assert said in bench.client_is_the_limit(found)[0].replace("Holds", "holds")


def test_a_campaign_that_is_not_whole_has_no_verdict(bench):
    assert measured(bench, "shared", convex, leave_out=1) is None
    assert not any("**" in part for part in bench.verdicts())
