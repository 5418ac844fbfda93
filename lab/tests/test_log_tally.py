"""The summary of a stream is that of its values held whole, whatever came first."""

import math

import numpy as np
import pytest

from farlink_lab.logs import tally
from farlink_lab.logs.distribution import summaries_by
from farlink_lab.logs.engine import open_logs
from farlink_lab.logs.summary import COLUMNS, summarised
from test_log_sessions import stored, table_of


def streamed(values, *, block=1000):
    """The summary, and how often the values had to go by."""
    found, passes = tally.Tally(), 0
    while True:
        passes += 1
        for at in range(0, len(values), block):
            found.take(values[at : at + block])
        if summary := found.summary():
            return summary, passes
        found = found.again()


def check(summary, values):
    """Quartiles to the last digit, for they are values; the mean to what a sum can tell."""
    whole = summarised(np.sort(values))
    assert summary.count == len(values)
    assert (summary.min, summary.max) == (whole.min, whole.max)
    for name in COLUMNS:
        assert math.isclose(getattr(summary, name), getattr(whole, name), rel_tol=1e-12), name


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 1000, 50_001])
def test_the_quartiles_of_a_stream_are_those_of_all_its_values(count):
    values = np.random.default_rng(count).lognormal(3, 2, count)
    summary, _ = streamed(values)
    check(summary, values)


def test_the_first_values_foretell_the_quartiles_of_the_rest(monkeypatch):
    monkeypatch.setattr(tally, "_FIRST", 20_000)
    values = np.random.default_rng(1).lognormal(18, 1, 200_000)
    summary, passes = streamed(values)
    check(summary, values)
    assert passes == 1


def test_first_values_that_mislead_cost_a_second_pass_and_no_digit(monkeypatch):
    monkeypatch.setattr(tally, "_FIRST", 5000)
    rng = np.random.default_rng(2)
    values = np.concatenate([rng.lognormal(1, 0.1, 10_000), rng.lognormal(9, 0.1, 90_000)])
    summary, passes = streamed(values)
    check(summary, values)
    assert passes == 2


def test_sizes_that_come_again_and_again_are_held_once(monkeypatch):
    monkeypatch.setattr(tally, "_PENDING", 2000)
    values = np.random.default_rng(3).choice([0.0, 1.0, 1.001, 2.0**40], 100_000)
    found = tally.Tally()
    for at in range(0, len(values), 1000):
        found.take(values[at : at + 1000])
    check(found.summary(), values)
    assert sum(len(each) for each, _ in found._kept) < 500


def test_what_has_no_size_is_the_least():
    values = np.array([0.0, 5e-324, 1e-300, 0.5, 1e308])
    check(streamed(values, block=2)[0], values)


@pytest.mark.parametrize("first", [100, 1 << 20], ids=["misled", "foretold"])
def test_each_group_has_a_summary_of_its_own(tmp_path, monkeypatch, first):
    monkeypatch.setattr(tally, "_FIRST", first)
    monkeypatch.setattr("farlink_lab.logs.engine._BLOCK_ROWS", 2048)
    rng = np.random.default_rng(4)
    rows = [
        (at, at + float(rng.integers(0, 3)), int(10 ** (1 + at / 1000)), f"s{at % 3}", "d", None)
        for at in range(9000)
    ]
    with open_logs(stored(tmp_path / "d", table_of(rows))) as logs:
        table = logs.transfers
        took = table.end_us - table.start_us
        told = summaries_by(
            logs,
            table,
            {"size": table.bytes, "took": took.nullif(0)},
            group=table.source.right(1).cast("int64"),
        )
        none = summaries_by(logs, table, {"took": took.nullif(0)}, group=(took > 0).cast("int64"))
    for group in range(3):
        mine = [row for at, row in enumerate(rows) if at % 3 == group]
        check(told["size"][group], np.array([row[2] for row in mine], dtype=np.float64))
        spent = np.array([1e6 * (row[1] - row[0]) for row in mine])
        check(told["took"][group], spent[spent > 0])
    assert list(none["took"]) == [1]
