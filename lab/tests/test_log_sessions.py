"""Sessions and circuits of logs whose answers are known: published, planted, or by brute force."""

import math

import numpy as np
import pyarrow as pa
import pytest

from farlink_lab.logs import circuits, sessions
from farlink_lab.logs.checking import Checked
from farlink_lab.logs.engine import open_logs
from farlink_lab.logs.store import Source, Store
from farlink_lab.logs.synthesis import Recipe, tables
from farlink_lab.logs.transfer import SCHEMA, US, LogError

# 2012-02-10
DAY = 15_380 * 86_400 * US


def table_of(rows):
    """Rows of (start_s, end_s, bytes, source, destination[, user])."""
    columns = {name: [None] * len(rows) for name in SCHEMA.names}
    for at, (start, end, size, source, destination, *user) in enumerate(rows):
        columns["start_us"][at] = DAY + round(start * US)
        columns["end_us"][at] = DAY + round(end * US)
        columns["bytes"][at] = size
        columns["source"][at], columns["destination"][at] = source, destination
        columns["user"][at] = user[0] if user else None
        columns["file"][at] = str(at)
    return pa.table(columns, schema=SCHEMA)


def stored(directory, *parts):
    with Store(directory) as store:
        source = Source(name="test", identity=(0, 0))
        store.ledger.sources.append(source)
        for part in parts:
            store.add(source, Checked(table=part, refused=(), unzoned=0), {}, first_line=1)
        store.commit()
    return directory


def found(directory, gap_s, *, by=sessions.HOSTS, min_bytes=0):
    with open_logs(directory) as logs:
        gathered = sessions.gather(logs, gaps_s=[gap_s], by=by)
        table = sessions.sessions(gathered, gap_s=gap_s, min_bytes=min_bytes)
        return logs.rows(sessions.named(gathered, table))


def by_brute_force(rows, gap_s):
    """The definition, transfer by transfer."""
    made = []
    for pair in sorted({row[3:5] for row in rows}):
        latest = None
        for row in sorted(row for row in rows if row[3:5] == pair):
            if latest is None or row[0] - latest > gap_s:
                made.append([pair, row[0], row[1], 0, 0])
                latest = row[1]
            latest = max(latest, row[1])
            made[-1][2] = latest
            made[-1][3] += row[2]
            made[-1][4] += 1
    return sorted(map(tuple, made))


def test_sessions_are_those_of_the_definition(tmp_path, engine):
    rng = np.random.default_rng(5)
    rows = []
    for _ in range(3000):
        start = float(rng.integers(0, 20_000))
        # Whole seconds: many gaps are exactly zero, five and sixty.
        took = float(rng.integers(0, 40))
        rows.append(
            (start, start + took, int(rng.integers(1, 10**9)), f"s{rng.integers(3)}", f"d{rng.integers(3)}")
        )
    directory = stored(tmp_path / "d", table_of(rows))
    with open_logs(directory, engine=engine) as logs:
        gathered = sessions.gather(logs, gaps_s=[0, 5, 60])
        for gap_s in (0, 5, 60):
            ours = sorted(
                (
                    (each["source"], each["destination"]),
                    (each["start_us"] - DAY) / US,
                    (each["end_us"] - DAY) / US,
                    each["bytes"],
                    each["transfers"],
                )
                for each in logs.rows(sessions.named(gathered, sessions.sessions(gathered, gap_s=gap_s)))
            )
            assert ours == by_brute_force(rows, gap_s)


def test_a_gap_of_exactly_g_joins_and_an_overlap_hides_a_short_one(tmp_path):
    rows = [(0, 100, 1, "a", "b"), (10, 20, 1, "a", "b"), (160, 170, 1, "a", "b"), (230.1, 231, 1, "a", "b")]
    directory = stored(tmp_path / "d", table_of(rows))
    ours = found(directory, 60)
    assert [(each["transfers"], each["duration_s"]) for each in ours] == [(3, 170.0), (1, 0.9)]


def test_users_have_sessions_of_their_own_where_asked(tmp_path):
    rows = [(0, 1, 1, "a", "b", "x"), (1, 2, 1, "a", "b", "y"), (2, 3, 1, "a", "b", "x"), (3, 4, 1, "a", "b")]
    directory = stored(tmp_path / "d", table_of(rows))
    assert [each["transfers"] for each in found(directory, 60)] == [4]
    of_users = found(directory, 60, by=sessions.HOSTS_AND_USER)
    assert {each["user"]: each["transfers"] for each in of_users} == {"x": 2, "y": 1, "": 1}


def test_small_sessions_are_left_out_where_asked(tmp_path):
    rows = [(0, 1, 99, "a", "b"), (100, 101, 60, "a", "b"), (102, 103, 40, "a", "b")]
    directory = stored(tmp_path / "d", table_of(rows))
    assert [each["bytes"] for each in found(directory, 60, min_bytes=100)] == [100]


def test_the_summary_is_that_of_the_sessions(tmp_path, engine):
    rows = [(at * 1000, at * 1000 + 10 * (at + 1), 10**6 * (at + 1), "a", "b") for at in range(5)]
    with open_logs(stored(tmp_path / "d", table_of(rows)), engine=engine) as logs:
        (summary,) = sessions.summaries(logs, sessions.gather(logs, gaps_s=[60]), gaps_s=[60])
        rate = sessions.transfer_throughput(logs)
    size = summary.size_bytes
    assert (size.min, size.q1, size.median, size.mean, size.q3, size.max) == (1e6, 2e6, 3e6, 3e6, 4e6, 5e6)
    assert (summary.duration_s.median, summary.throughput_bps.median) == (30, 8e5)
    assert (rate.min, rate.max) == (8e5, 8e5)


def test_withheld_ends_make_no_session_and_are_counted(tmp_path, engine):
    rows = [(0, 1, 1, "a", None), (0, 1, 1, "a", "b"), (0, 1, 1, None, "b")]
    with open_logs(stored(tmp_path / "d", table_of(rows)), engine=engine) as logs:
        assert sessions.gather(logs, gaps_s=[60]).left_out == 2
    with open_logs(stored(tmp_path / "e", table_of(rows[:1])), engine=engine) as logs:
        with pytest.raises(LogError, match="withheld"):
            sessions.gather(logs, gaps_s=[60])
        assert sessions.transfer_throughput(logs).count == 1


@pytest.mark.parametrize(
    ("rate_bps", "published_gb"), [(681.7e6, 51.1), (191e6, 14.3)], ids=["NCAR-NICS", "SLAC-BNL"]
)
def test_the_published_thresholds_come_out(rate_bps, published_gb):
    least = circuits.threshold_bytes(setup_s=60, factor=10, rate_bps=rate_bps)
    assert round(least / 1e9, 1) == published_gb
    # A setup of 50 ms asks for 1/1200 of that.
    short = circuits.threshold_bytes(setup_s=0.05, factor=10, rate_bps=rate_bps)
    assert math.isclose(short, least / 1200, rel_tol=1e-6)


def test_a_factor_beyond_all_sessions_asks_for_what_none_is():
    assert circuits.threshold_bytes(setup_s=60, factor=1e308, rate_bps=1e9) == 2**63 - 1
    assert circuits.threshold_bytes(setup_s=60, factor=2.0**33, rate_bps=2.0**30) == 2**63 - 1


def test_the_published_maximum_is_binary():
    """2607000 MB in 7.5 h are 808 Mb/s as published only where a MB is 2^20 bytes."""
    assert abs(2_607_000 * 2**20 * 8 / (7.5 * 3600) / 1e6 - 810) < 1
    assert abs(2_607_000 * 1e6 * 8 / (7.5 * 3600) / 1e6 - 808) > 30


def planted(rng, *, long, short, members):
    """Sessions of one pair, on both sides of a threshold of 75 GB, each of so many transfers."""
    rows, start = [], 0.0
    for size in rng.permutation([90 * 10**9] * long + [60 * 10**9] * short):
        for _ in range(members):
            rows.append((start, start + 10.0, int(size) // members, "10.0.0.1", "10.0.1.1"))
            start += 10.0 + float(rng.uniform(0, 50))
        start += 500.0
    return rows


def test_planted_sessions_are_counted_for_every_gap_and_setup(tmp_path, engine):
    rng = np.random.default_rng(2)
    rows = planted(rng, long=30, short=70, members=10)
    with open_logs(stored(tmp_path / "d", table_of(rows)), engine=engine) as logs:
        throughput = sessions.transfer_throughput(logs)
        gathered = sessions.gather(logs, gaps_s=[*circuits.GAPS_S, *circuits.MORE_GAPS_S])
        table = circuits.share_table(logs, gathered, rate_bps=1e9)
        base = circuits.Case(gap_s=60, setup_s=60, factor=10, rate_bps=1e9)
        moved = circuits.sensitivity(logs, gathered, throughput=throughput, base=base)
    shares = {(each.gap_s, each.setup_s): each for each in table}
    assert {key: (each.sessions, each.of_sessions) for key, each in shares.items()} == {
        (0, 60): (1000, 0.0),
        (0, 0.05): (1000, 1.0),
        (60, 60): (100, 0.3),
        (60, 0.05): (100, 1.0),
        (120, 60): (100, 0.3),
        (120, 0.05): (100, 1.0),
    }
    assert shares[60, 60].of_transfers == 0.3
    assert math.isclose(shares[60, 60].of_bytes, 30 * 90 / (30 * 90 + 70 * 60))
    # 90 GB at 1 Gb/s last 720 s and 60 GB 480 s: twelve and eight setups.
    assert [each.of_sessions for each in moved["factor"]] == [1.0, 1.0, 0.3, 0.0, 0.0]
    assert [each.of_sessions for each in moved["gap"]][2:4] == [0.3, 0.3]


def test_sessions_that_are_left_out_count_in_no_share(tmp_path, engine):
    rows = planted(np.random.default_rng(2), long=3, short=7, members=10)
    with open_logs(stored(tmp_path / "d", table_of(rows)), engine=engine) as logs:
        gathered = sessions.gather(logs, gaps_s=[60])
        cases = [circuits.Case(gap_s=60, setup_s=60, factor=factor, rate_bps=1e9) for factor in (1, 2, 10)]
        told = [circuits.shares(logs, gathered, cases, min_bytes=least) for least in (80 * 10**9, 10**12)]
    assert [(each.sessions, each.suitable_sessions) for each in told[0]] == [(3, 3)] * 3
    assert [(each.sessions, each.suitable_sessions) for each in told[1]] == [(0, 0)] * 3


def test_a_clock_that_was_set_during_a_transfer_leaves_the_others_their_circuits(tmp_path):
    rows = [(0, 0.000001, 1 << 45, "a", "b"), (1000, 2000, 10**11, "a", "b"), (9000, 9001, 10**6, "a", "b")]
    with open_logs(stored(tmp_path / "d", table_of(rows))) as logs:
        throughput = sessions.transfer_throughput(logs)
        gathered = sessions.gather(logs, gaps_s=circuits.MORE_GAPS_S)
        base = circuits.Case(gap_s=60, setup_s=60, factor=10, rate_bps=8e8)
        moved = circuits.sensitivity(logs, gathered, throughput=throughput, base=base)
    assert throughput.max > 1e20
    assert [each.suitable_sessions for each in moved["rate"]][-1] == 0
    assert [each.suitable_sessions for each in moved["factor"]] == [2, 2, 2, 1, 1]


def test_an_import_in_pieces_has_the_sessions_of_the_whole(tmp_path):
    made = list(tables(Recipe(transfers=20_000, days=5, seed=11)))
    whole = found(stored(tmp_path / "whole", pa.concat_tables(made)), 60)
    rng = np.random.default_rng(3)
    shuffled = pa.concat_tables(made).take(pa.array(rng.permutation(20_000)))
    pieces = [shuffled.slice(at, 4000) for at in range(0, 20_000, 4000)]
    assert found(stored(tmp_path / "pieces", *pieces), 60) == whole
    assert sum(each["transfers"] for each in whole) == 20_000


def test_what_is_made_of_a_seed_is_made_again_and_has_the_shape_it_claims():
    one, two = (pa.concat_tables(tables(Recipe(transfers=30_000, days=10, seed=4))) for _ in range(2))
    assert one.equals(two)
    assert one.num_rows == 30_000
    other = pa.concat_tables(tables(Recipe(transfers=30_000, days=10, seed=5)))
    assert not one.equals(other)
    sizes = np.sort(one["bytes"].to_numpy())
    assert sizes[-300:].sum() > 0.2 * sizes.sum()
    hours = one["start_us"].to_numpy() // (3600 * US) % 24
    counts = np.bincount(hours, minlength=24)
    assert counts[12:18].sum() > 1.5 * counts[0:6].sum()
