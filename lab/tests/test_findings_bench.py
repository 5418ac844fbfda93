"""The verdicts of bench/findings.py on campaigns whose truth is known."""

from __future__ import annotations

import importlib
import json
import math
import random
from pathlib import Path

import pytest
from scipy.stats import kendalltau

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


def measured(
    bench,
    name,
    rate_bps,
    *,
    cores=lambda configuration: (0.4, 0.6),
    leave_out=0,
    late=lambda run: False,
    samples=lambda configuration: [],
):
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
                samples=samples(asked),
                emulator={"late_max_s": 0.1, "late_p99_s": 0.1, "overrun": late(run)},
                buffer_bytes=asked.buffer_bytes,
                lab={
                    "plan": name,
                    "run": run.identity,
                    "configuration": asked.label,
                    "repetition": run.repetition,
                },
            )
        )
    (bench.OUT / name).mkdir(exist_ok=True)
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
    assert table.count("concave then convex") == 2


def test_two_regimes_are_asked_of_full_buffers_alone(bench):
    verdict, table = bench.two_regimes(
        measured(bench, "durations", falling),
        measured(
            bench, "buffers", lambda asked, rtt: (convex if asked.buffer_bytes else falling)(asked, rtt)
        ),
    )
    assert verdict == "holds, in every configuration"
    assert table.count("concave then convex") == 5


def test_a_shape_that_was_not_tested_counts_for_nothing(bench):
    # One run a point that is not late: its bends are told, and none was tested.
    found = measured(bench, "durations", falling, late=lambda run: run.repetition > 0)
    verdict, table = bench.two_regimes(found)
    assert verdict.startswith("not shown: no configuration turns from concave to convex at the level of 5%")
    assert "1 of 2 has that shape alone" in verdict
    assert table.count("concave then convex (shape only)") == 1
    assert "(no interval)" in table


def test_late_runs_lend_no_certainty_to_c_cc(bench):
    drawn = random.Random(5)

    def wild(asked, rtt_s):
        return falling(asked, rtt_s) * (1 + (drawn.gauss(0, 0.2) if rtt_s > 0.3 else 0.0))

    found = measured(bench, "durations", wild, late=lambda run: run.rtt_s > 0.3)
    for profile in found.profiles:
        low, high = bench.bounds(bench.convexities(profile))
        assert high - low < 0.03, "the spread at the late RTT is not lent to the others"


def buffered(*, by_buffer=0.0, by_streams=0.0):
    """Straight, with a bow to the concave side that grows with buffers and with streams."""

    def rate_bps(asked, rtt_s):
        size = {4 << 20: 0, 44 << 20: 1, None: 2}[asked.buffer_bytes]
        more = {1: 0, 4: 1, 10: 2}[asked.streams]
        u = rtt_s / 0.366
        return 9.5e9 * (1 - 0.8 * u + (by_buffer * size + by_streams * more) * u * (1 - u))

    return rate_bps


@pytest.mark.parametrize(
    ("by_buffer", "by_streams", "said"),
    [
        (0.3, 0.2, "larger buffers: holds; more streams: holds"),
        (0.0, 0.3, "larger buffers: not shown; more streams: holds"),
        (-0.3, 0.0, "larger buffers: does not hold, C_CC grows; more streams: not shown"),
    ],
)
def test_buffers_and_streams_widen_where_they_do(bench, by_buffer, by_streams, said):
    found = measured(bench, "buffers", buffered(by_buffer=by_buffer, by_streams=by_streams))
    verdict, tables = bench.widens(found)
    assert verdict == said
    assert "4 MiB to 44 MiB with ×1" in tables
    assert "| C_U | C_CC, our reading (95%) | UCC |" in tables


def restless(scatter_of):
    """A logistic-like map with noise: samples of 10 s."""

    def samples(asked):
        drawn = random.Random(asked.label)
        rate = 1e9 / 8
        return [
            [round(0.1 * (k + 1), 6), round(rate * 0.1 * max(1 + drawn.gauss(0, scatter_of(asked)), 0.01))]
            for k in range(100)
        ]

    return samples


def rank(asked):
    return {4 << 20: 0, 44 << 20: 1, None: 2}[asked.buffer_bytes] * 3 + {1: 0, 4: 1, 10: 2}[asked.streams]


@pytest.mark.parametrize(
    ("scatter_of", "said"),
    [
        (lambda asked: 0.3 / (1.5 + rank(asked)), "holds: tau"),
        (lambda asked: 0.02 * (1 + rank(asked)), "does not hold: the rougher"),
        (lambda asked: {0: 0.1, 1: 0.05, 2: 0.15}[rank(asked) % 3], "not shown: tau"),
    ],
)
def test_smoother_maps_go_with_wider_concavity_where_ranks_agree(bench, scatter_of, said):
    found = measured(bench, "buffers", buffered(by_buffer=0.3, by_streams=0.1), samples=restless(scatter_of))
    assert bench.smoother_is_wider(found)[0].startswith(said)


def test_without_samples_there_is_too_little_to_rank(bench):
    found = measured(bench, "buffers", buffered())
    assert bench.smoother_is_wider(found)[0].startswith("too little to tell: 9 configurations")


def test_the_chance_of_ranks_is_exact(bench):
    widening = importlib.import_module("support.widening")
    points = [(0.1, 3.0), (0.2, 1.0), (0.3, 2.0), (0.4, 4.0), (0.5, 5.0)]
    tau, high, low = widening.concordance([points])
    exact = kendalltau(*zip(*points, strict=True), method="exact", alternative="greater")
    assert (tau, high) == pytest.approx((exact.statistic, exact.pvalue))
    assert low > 0.9
    # In three strata of three that agree throughout, one of 6³ orders does.
    assert widening.concordance([[(1, 1), (2, 2), (3, 3)]] * 3)[1] == pytest.approx(1 / 216)
    assert widening.needed_tau(9) == pytest.approx(16 / 36, abs=0.06)


def test_what_the_page_had_stands_where_its_records_are_gone(bench):
    first = "## 1. Two regimes with full buffers\n\n**It was so.**"
    page = f"# T\n\n- Date: 2026-01-01\n\n{first}\n\n## 8. Other\n\nNot measured: x\n"
    standing = bench.sections(page, dated="2026-01-01")
    assert list(standing) == ["1. Two regimes with full buffers"]
    text = "\n\n".join(bench.verdicts(standing))
    assert "**It was so.**\n\nMeasured before: it stands as on the page of 2026-01-01." in text
    assert bench.sections(text, dated="2026-02-02") == standing


def test_one_regime_is_not_two(bench):
    assert bench.two_regimes(measured(bench, "durations", convex))[0] == "does not hold: convex throughout"


@pytest.mark.parametrize(("by", "said"), [(0.93, "holds"), (1.0, "as fast, within 2%"), (1.07, "the faster")])
def test_stcp_loses_where_it_is_slower(bench, by, said):
    found = measured(
        bench, "controls", lambda asked, rtt: 9e9 / (1 + rtt) * (by if asked.congestion == "scalable" else 1)
    )
    assert said in bench.scalable_loses(found)[0]


def test_other_traffic_is_blamed_for_what_it_does_alone(bench):
    alone = measured(bench, "buffers", concave)
    assert bench.shared_is_convex(alone, measured(bench, "shared", convex))[0] == "holds"
    assert "not shown" in bench.shared_is_convex(alone, alone)[0]
    bent = measured(bench, "buffers", convex)
    assert "C_CC falls, clearly" in bench.shared_is_convex(bent, measured(bench, "shared", concave))[0]


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
    assert not any("**" in part for part in bench.verdicts({}))
