"""Both engines give the same rows: whole numbers exactly, others to nine digits."""

import math

import numpy as np
import pytest

from farlink_lab.logs import account, chart, circuits, sessions
from farlink_lab.logs.engine import DUCKDB, open_logs, spark_reason
from farlink_lab.logs.planner.planning import planned
from farlink_lab.logs.planner.prefixes import daily
from farlink_lab.logs.planner.provider import Terms
from farlink_lab.logs.synthesis import FIRST_DAY_US, Recipe, make
from farlink_lab.logs.transfer import US, LogError
from farlink_lab.logs.uneven import uneven
from farlink_lab.logs.variance.alike import Choice
from farlink_lab.logs.variance.counters import Counters
from test_log_sessions import stored, table_of


def answers(directory, engine):
    """Everything that an engine computes."""
    with open_logs(directory, engine=engine) as logs:
        gaps_s = circuits.MORE_GAPS_S
        gathered = sessions.gather(logs, gaps_s=gaps_s, by=sessions.HOSTS_AND_USER)
        throughput = sessions.transfer_throughput(logs, gathered)
        assert same(account.plain(throughput), account.plain(sessions.transfer_throughput(logs)))
        base = circuits.Case(gap_s=60, setup_s=60, factor=10, rate_bps=throughput.q3)
        table = circuits.share_table(logs, gathered, rate_bps=throughput.q3)
        moved = circuits.sensitivity(logs, gathered, throughput=throughput, base=base, min_bytes=10**8)
        told = sessions.summaries(logs, gathered, gaps_s=gaps_s, min_bytes=10**6)
        terms = Terms(capacity_bps=20e9, rate_bps=throughput.q3, setup_s=60, hold_s=60)
        plan = planned(logs, terms, gap_s=60, factor=1)
        link = Counters(
            start_us=FIRST_DAY_US + np.arange(2000) * 30 * US,
            end_us=FIRST_DAY_US + np.arange(1, 2001) * 30 * US,
            bytes=np.linspace(1e9, 2e9, 2000),
            left_out=0,
        )
        return {
            "rows": logs.rows(sessions.named(gathered, sessions.sessions(gathered, gap_s=60))),
            "sessions": account.of_sessions(told, throughput=throughput, left_out=gathered.left_out),
            "circuits": account.of_circuits(table, moved, left_out=gathered.left_out),
            "plan": account.of_plan(plan.outcomes, plan.months, terms),
            "daily": account.plain(sorted(daily(logs), key=str)),
            "variance": account.of_variance(uneven(logs, Choice(), counters=link)),
            "chart": account.plain(chart.session_chart(logs, gathered, gaps_s=gaps_s, min_bytes=0)),
        }


def same(ours, theirs):
    """Whether two answers agree: whole numbers exactly, others to nine digits."""
    if isinstance(ours, dict):
        return ours.keys() == theirs.keys() and all(same(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(ours, float):
        return isinstance(theirs, float) and math.isclose(ours, theirs, rel_tol=1e-9, abs_tol=1e-12)
    return type(ours) is type(theirs) and ours == theirs


def odd(rng, count):
    """Transfers in which engines could differ: equal starts, no duration, withheld ends, odd names."""
    hosts = np.array(["a", "A", "Ä", "ß", "10.0.0.1", "10.0.0.10", "2001:db8::1", "名", None], dtype=object)
    users = np.array(["x", "X", "", " x", None], dtype=object)
    # Five weeks, so that two months have some.
    start = rng.integers(0, 5 * 7 * 24 * 12, count) * 300.0
    took = rng.choice([0.0, 0.000001, 1.0, 299.999999, 300.0, 301.0, 86_400.0], count)
    size = 2 ** rng.integers(0, 46, count) + rng.choice([-1, 0, 1], count)
    ends = (rng.choice(hosts, count, p=[0.4, *[0.075] * 8]) for _ in range(2))
    columns = start, start + took, np.maximum(size, 1), *ends, rng.choice(users, count)
    return list(zip(*(column.tolist() for column in columns), strict=True))


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["made", "odd"])
def test_spark_and_duckdb_agree_to_the_last_row(tmp_path, spark, kind):
    if kind == "made":
        make(Recipe(transfers=20_000, days=25, seed=9), out=tmp_path / "d", lines=None)
    else:
        stored(tmp_path / "d", table_of(odd(np.random.default_rng(7), 20_000)))
    ours, theirs = answers(tmp_path / "d", DUCKDB), answers(tmp_path / "d", spark)
    for name, answer in ours.items():
        assert same(answer, theirs[name]), name
    assert len(ours["rows"]) > 500
    assert len(ours["plan"]["months"]) == 1


@pytest.mark.parametrize("kept_share", [0.5, 0.0], ids=["in memory", "on the disk"])
def test_little_memory_gives_the_same_answers(tmp_path, monkeypatch, kept_share):
    make(Recipe(transfers=50_000, days=20, seed=2), out=tmp_path / "d", lines=None)
    monkeypatch.setattr("farlink_lab.logs.engine._KEPT_SHARE", kept_share)
    found = []
    for memory_bytes, threads in ((2_000_000_000, 2), (120_000_000, 1)):
        with open_logs(tmp_path / "d", memory_bytes=memory_bytes, threads=threads) as logs:
            gathered = sessions.gather(logs, gaps_s=[60])
            found.append(logs.rows(sessions.named(gathered, sessions.sessions(gathered, gap_s=60))))
    assert found[0] == found[1]


def test_an_engine_that_is_none_is_refused(tmp_path):
    make(Recipe(transfers=10, days=1), out=tmp_path / "d", lines=None)
    with pytest.raises(LogError, match="duckdb"), open_logs(tmp_path / "d", engine="oracle"):
        pass


def test_what_spark_complains_of_is_told_without_its_stack():
    called = "An error occurred while calling None.org.apache.spark.sql.SparkSession."
    why = "java.lang.IllegalStateException: SparkContext has been shutdown"
    assert spark_reason(f"{called}\n: {why}\n\tat org.apache.spark.SparkContext") == why
    assert spark_reason("Java gateway process exited\n") == "Java gateway process exited"
    assert not spark_reason("")
