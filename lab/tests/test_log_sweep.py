"""The sweep finds the sessions of the definition, however its stream is cut."""

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

from farlink_lab.logs import days, sweep
from farlink_lab.logs.store import read_ledger
from farlink_lab.logs.transfer import DAY_US, US
from test_log_sessions import DAY, by_brute_force, stored, table_of

GAPS_S = [0, 5, 60]


def log(seed, *, count=2000, spread_s=3 * 86_400):
    """Transfers in whole seconds, so that many gaps are exactly those asked for; some over midnight."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        start = float(rng.integers(0, spread_s // 20) * 20)
        took = float(rng.choice([0, 5, 20, 35, 90_000], p=[0.1, 0.3, 0.3, 0.299, 0.001]))
        rows.append(
            (start, start + took, int(rng.integers(1, 10**9)), f"s{rng.integers(3)}", f"d{rng.integers(4)}")
        )
    return rows


def swept(directory, *, most_rows, keys=("source", "destination")):
    """The sessions of each gap, by the names of their pairs, in seconds after `DAY`."""
    found = sweep.Sweep([gap * US for gap in GAPS_S])
    stretches = days.stretches(directory, read_ledger(directory).parts, keys=keys, most_rows=most_rows)
    made = [row for batch in sweep.sessions(stretches, found) for row in batch.to_pylist()]
    names = list(found.numbers)
    return {
        gap: sorted(
            (
                names[row["pair"]],
                (row["start_us"] - DAY) / US,
                (row["end_us"] - DAY) / US,
                row["bytes"],
                row["transfers"],
            )
            for row in made
            if row["gap_us"] == gap * US
        )
        for gap in GAPS_S
    }


@pytest.mark.parametrize("most_rows", [1, 50, 700, 100_000])
def test_sessions_are_those_of_the_definition_however_the_log_is_cut(tmp_path, most_rows):
    rows = log(3)
    directory = stored(tmp_path / "d", table_of(rows[:900]), table_of(rows[900:]))
    found = swept(directory, most_rows=most_rows)
    for gap in GAPS_S:
        assert found[gap] == by_brute_force(rows, gap)


def test_what_does_not_fit_into_one_number_is_sorted_all_the_same(tmp_path, monkeypatch):
    rows = log(4)
    directory = stored(tmp_path / "d", table_of(rows))
    for module in (days, sweep):
        monkeypatch.setattr(module, "_BITS", 1)
    found = swept(directory, most_rows=500)
    assert found[5] == by_brute_force(rows, 5)


def test_a_day_of_many_transfers_is_read_in_several_windows_of_its_time(tmp_path):
    rows = log(5, spread_s=86_400)
    directory = stored(tmp_path / "d", table_of(rows))
    parts = read_ledger(directory).parts
    read = list(days.stretches(directory, parts, keys=("source", "destination"), most_rows=300))
    assert len(read) == 7
    assert sum(len(each.start_us) for each in read) == len(rows)
    for at, each in enumerate(read):
        assert DAY + at * DAY_US // 7 - 1 <= each.start_us.min()
        assert each.start_us.max() < DAY + (at + 1) * DAY_US // 7
    assert f"{datetime.fromtimestamp(DAY / US, UTC):%Y-%m-%d}" == parts[0].day


def test_a_user_that_is_missing_and_one_without_a_name_are_one(tmp_path):
    rows = [(0, 1, 1, "a", "b", "x"), (2, 3, 1, "a", "b", ""), (4, 5, 1, "a", "b"), (6, 7, 1, None, "b", "x")]
    directory = stored(tmp_path / "d", table_of(rows))
    found = swept(directory, most_rows=10, keys=("source", "destination", "user"))
    assert [(pair, transfers) for pair, *_, transfers in found[5]] == [
        (("a", "b", ""), 2),
        (("a", "b", "x"), 1),
    ]


def test_a_log_without_any_pair_has_no_session():
    assert list(sweep.sessions([], sweep.Sweep([0]))) == [
        pa.record_batch([pa.array([], field.type) for field in sweep.SCHEMA], schema=sweep.SCHEMA)
    ]
