"""Both engines give the same rows: whole numbers exactly, others to nine digits."""

import importlib.util
import math
import shutil

import pytest

from farlink_lab.logs import circuits, sessions
from farlink_lab.logs.engine import DUCKDB, open_logs
from farlink_lab.logs.planner.prefixes import daily
from farlink_lab.logs.synthesis import Recipe, make
from farlink_lab.logs.transfer import LogError
from farlink_lab.logs.variance.alike import Choice, alike

# Two executors of a core each, as processes of their own.
SPARK = "local-cluster[2,1,1024]"

needs_spark = pytest.mark.skipif(
    importlib.util.find_spec("pyspark") is None or shutil.which("java") is None,
    reason="PySpark and Java: pip install 'farlink-lab[spark]', and Java 17",
)


def answers(directory, engine):
    """Everything that an engine computes."""
    with open_logs(directory, engine=engine) as logs:
        edges = sessions.edges(logs, by=sessions.HOSTS_AND_USER)
        rate = sessions.transfer_throughput(logs)
        return {
            "rows": logs.rows(sessions.named(edges, sessions.sessions(edges, gap_s=60))),
            "summaries": [
                each.size_bytes.as_json() | each.duration_s.as_json() | each.throughput_bps.as_json()
                for each in sessions.summaries(logs, edges, gaps_s=[0, 60, 120], min_bytes=10**8)
            ],
            "rate": rate.as_json(),
            "shares": circuits.share_table(logs, edges, rate_bps=rate.q3),
            "daily": sorted(daily(logs), key=lambda row: (row.source, row.destination, row.month, row.bytes)),
            "group": alike(logs, Choice(), seed=1).spread.as_json(),
        }


def same(ours, theirs):
    """Whether two answers agree."""
    if isinstance(ours, dict):
        return ours.keys() == theirs.keys() and all(same(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(ours, float):
        return math.isclose(ours, theirs, rel_tol=1e-9)
    return ours == theirs


@needs_spark
@pytest.mark.filterwarnings("ignore")
def test_spark_and_duckdb_agree_to_the_last_row(tmp_path):
    make(Recipe(transfers=20_000, days=40, seed=9), out=tmp_path / "d", lines=None)
    ours, theirs = answers(tmp_path / "d", DUCKDB), answers(tmp_path / "d", SPARK)
    for name, answer in ours.items():
        assert same(answer, theirs[name]), name
    assert len(ours["rows"]) > 500


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
