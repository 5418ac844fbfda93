"""What goes with throughput is found where it was planted, and not found where it was not."""

import numpy as np
import pyarrow as pa
import pytest

import farlink_lab.logs.variance.alike
import farlink_lab.logs.variance.factors
from farlink_lab.logs.engine import DUCKDB, open_logs
from farlink_lab.logs.telling import variance_lines
from farlink_lab.logs.transfer import SCHEMA, US, LogError
from farlink_lab.logs.uneven import hours, uneven, verdict
from farlink_lab.logs.variance import counters
from farlink_lab.logs.variance.alike import Choice, Group, alike
from farlink_lab.logs.variance.concurrency import concurrency
from farlink_lab.logs.variance.factors import HOUR, rank
from test_log_sessions import DAY, stored, table_of

SIZE = 32 * 10**9


def log(rng, *, count=150, stripe_effect=1.0, cpu_effect=0.0, scatter=0.3):
    """Transfers of 32 GB of one path, hours apart, whose rates depend as told, and on no more."""
    stripes = rng.integers(1, 4, count)
    rate = 1e9 * stripes**stripe_effect * rng.lognormal(0, scatter, count)
    cpu_s = rng.uniform(1, 5, count)
    rate *= cpu_s**cpu_effect
    start = DAY + np.cumsum(rng.uniform(3600, 4 * 3600, count) * US).astype(np.int64)
    columns = {
        "start_us": start,
        "end_us": start + (8e6 * SIZE / rate).astype(np.int64),
        "bytes": np.full(count, SIZE),
        "source": ["a"] * count,
        "destination": ["b"] * count,
        "server": ["a"] * count,
        "streams": rng.choice([4, 8, 16], count),
        "stripes": stripes,
        "sender_cpu_s": cpu_s,
    }
    arrays = [
        pa.array(columns[field.name], field.type) if field.name in columns else pa.nulls(count, field.type)
        for field in SCHEMA
    ]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def studied(directory, choice=None, *, engine=DUCKDB, **options):
    with open_logs(directory, engine=engine) as logs:
        return uneven(logs, choice or Choice(), **options)


def test_a_planted_stripe_effect_is_ranked_first_and_its_size_is_told(tmp_path, engine):
    found = studied(stored(tmp_path / "d", log(np.random.default_rng(3))), engine=engine)
    first = found.ranking.factors[0]
    assert (first.name, first.clear) == ("stripes", True)
    # From one stripe to three: thrice the rate.
    assert first.effect[0] < 3.0 < first.effect[2]
    assert 2.0 < first.effect[1] < 4.5
    assert [factor.name for factor in found.ranking.factors if factor.clear] == ["stripes"]
    assert "sender's CPU per byte" in [factor.name for factor in found.ranking.factors]
    assert found.ranking.constant == ("concurrent transfers", "size")
    assert "stripes" in verdict(found)
    assert found.spread.spread > 0.5e9


def test_a_planted_effect_of_the_processor_is_ranked_however_little_a_byte_costs(tmp_path):
    # Of 32 GB, seconds: some 1e-10 s a byte.
    found = studied(stored(tmp_path / "d", log(np.random.default_rng(1), stripe_effect=0.0, cpu_effect=-1.0)))
    assert "sender's CPU per byte" not in found.ranking.constant
    first = found.ranking.factors[0]
    assert (first.name, first.clear) == ("sender's CPU per byte", True)
    # From 2 s to 4 s of processor, the quartiles: about half the rate.
    assert 0.3 < first.effect[1] < 0.7


def test_where_nothing_matters_that_is_what_is_said(tmp_path, engine):
    found = studied(stored(tmp_path / "d", log(np.random.default_rng(2), stripe_effect=0.0)), engine=engine)
    assert "stripes" not in [factor.name for factor in found.ranking.factors if factor.clear]
    assert "stripes" in [factor.name for factor in found.ranking.factors]


def test_noise_is_called_an_effect_in_about_one_log_in_twenty(monkeypatch):
    # Of intervals, which are none of the question.
    monkeypatch.setattr(farlink_lab.logs.variance.factors, "RESAMPLES", 1)
    called = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        of = np.repeat(np.arange(30), 4)
        # Whole sessions are fast or slow, and their stripes drawn once: less data than there seems to be.
        rate = np.exp(rng.normal(0, 0.5, 30)[of] + rng.normal(0, 0.1, 120)) * 1e9
        factors = {"stripes": rng.integers(1, 4, 30)[of].astype(float), HOUR: rng.uniform(0, 24, 30)[of]}
        ranking = rank(rate, factors, sessions=of, seed=seed)
        called += any(factor.clear for factor in ranking.factors)
    # Three are expected of sixty, and more than ten once in two thousand.
    assert called <= 10


def in_sessions(rng, *, sessions=15, each=12):
    """The same log, but its transfers follow each other at once, sessions a day apart.

    Whole sessions are fast or slow, and have stripes of their own, neither for the other's sake. Every third
    transfer is a small one.
    """
    table = log(rng, count=sessions * each, stripe_effect=0.0)
    of = np.repeat(np.arange(sessions), each)
    rate = 1e9 * rng.lognormal(0, 0.5, sessions)[of] * rng.lognormal(0, 0.02, len(of))
    size = np.where(np.arange(len(of)) % 3 == 1, SIZE // 2, SIZE)
    took = (8e6 * size / rate).astype(np.int64)
    start = DAY + of * 24 * 3600 * US + np.cumsum(took) - took
    made = {
        "start_us": start,
        "end_us": start + took,
        "bytes": size,
        "stripes": rng.integers(1, 4, sessions)[of],
    }
    for name, values in made.items():
        at = table.schema.get_field_index(name)
        table = table.set_column(at, SCHEMA.field(at), pa.array(values, SCHEMA.field(at).type))
    return table


@pytest.mark.parametrize("most", [20_000, 60], ids=["all", "a sample"])
def test_a_session_is_one_however_few_of_its_transfers_are_drawn(tmp_path, engine, monkeypatch, most):
    monkeypatch.setattr(farlink_lab.logs.variance.alike, "MOST", most)
    directory = stored(tmp_path / "d", in_sessions(np.random.default_rng(5)))
    found = studied(directory, Choice(low_bytes=SIZE), engine=engine)
    assert found.group.of == 120
    assert len(found.group.start_us) == min(most, 120)
    assert found.ranking.sessions == len(np.unique((found.group.start_us - DAY) // (24 * 3600 * US)))
    assert 12 <= found.ranking.sessions <= 15
    assert "stripes" in [factor.name for factor in found.ranking.factors]
    assert not [factor.name for factor in found.ranking.factors if factor.clear]


def test_what_starts_at_once_is_of_one_session_and_what_took_no_time_keeps_it_going(tmp_path, engine):
    rows = [(second, second + 1, 2**30, "a", "b") for second in range(0, 10 * 600, 600) for _ in range(3)]
    # Between the first two sessions, less than a minute after each other.
    rows += [(second, second, 2**20, "a", "b") for second in range(50, 600, 50)]
    # And of another path.
    rows += [(700 + 50 * at, 701 + 50 * at, 2**20, "a", "c") for at in range(9)]
    with open_logs(stored(tmp_path / "d", table_of(rows)), engine=engine) as logs:
        found = alike(logs, Choice(), seed=1)
    assert found.session.tolist() == np.repeat([0, *range(9)], 3).tolist()


def test_what_does_not_vary_is_named_and_not_ranked():
    rng = np.random.default_rng(3)
    factors = {
        "streams": np.full(50, 4.0),
        "stripes": rng.integers(1, 4, 50).astype(float),
        "reading": np.full(50, np.nan),
    }
    ranking = rank(rng.lognormal(20, 0.3, 50), factors, sessions=np.arange(50), seed=1)
    assert ranking.constant == ("streams",)
    assert [factor.name for factor in ranking.factors] == ["stripes"]


def group(start, end, sizes):
    start, end, sizes = (np.array(each, dtype=np.int64) for each in (start, end, sizes))
    return Group(
        path=("a", "b"), server="a", low_bytes=1, high_bytes=1, of=len(start),
        start_us=start * US, end_us=end * US, bytes=sizes, session=np.arange(len(start)), factors={},
    )  # fmt: skip


def test_where_no_transfer_tells_all_factors_none_is_ranked():
    rng = np.random.default_rng(3)
    factors = {name: rng.normal(size=60) for name in ("streams", "CPU", "disk")}
    for place, values in enumerate(factors.values()):
        # Two thirds know each, nobody all three.
        values[place::3] = np.nan
    ranking = rank(rng.lognormal(20, 0.3, 60), factors, sessions=np.arange(60), seed=1)
    assert (ranking.factors, ranking.transfers, ranking.sessions) == ((), 0, 0)


def test_equal_shares_are_those_of_the_formula():
    # 0-10 alone, 10-20 with another, 20-30 with two.
    ours = group([0], [30], [10])
    start, end = np.array([0, 10, 20]) * US, np.array([30, 40, 30]) * US
    found = concurrency(ours, start, end, server_bps=6e9)
    assert np.isclose(found.predicted_bps[0], (6e9 * 10 + 3e9 * 10 + 2e9 * 10) / 30)
    assert np.isclose(found.at_once[0], (1 + 2 + 3) / 3)
    assert found.correlation is None


def test_rates_that_follow_equal_shares_correlate_with_them():
    rng = np.random.default_rng(4)
    start = np.sort(rng.integers(0, 5000, 200))
    end = start + rng.integers(20, 60, 200)
    probe = concurrency(group(start, end, np.ones(200)), start * US, end * US, server_bps=8e9)
    sizes = probe.predicted_bps * (end - start) / 8
    found = concurrency(group(start, end, sizes), start * US, end * US)
    assert found.correlation > 0.9999
    assert np.isclose(found.server_bps, 8e9, rtol=1e-6)


def test_bytes_are_spread_evenly_over_intervals_and_none_is_lost():
    link = counters.Counters(
        start_us=np.arange(10) * 30 * US, end_us=(np.arange(10) + 1) * 30 * US, bytes=np.zeros(10), left_out=0
    )
    start, end = np.array([15, 60, 100]) * US, np.array([75, 61, 250]) * US
    logged = counters.logged_bytes(start, end, np.array([600, 50, 1500]), link)
    assert np.allclose(logged, [150, 300, 200, 200, 300, 300, 300, 300, 100, 0])


def snmp(path, intervals):
    lines = [f"{DAY / US + 30 * (at + 1):.0f},{size:.0f}" for at, size in enumerate(intervals)]
    path.write_text("\n".join(["time,bytes", *lines]) + "\n")
    return path


def test_counters_correlate_with_what_was_planted(tmp_path):
    rng = np.random.default_rng(6)
    count = 400
    start = np.arange(count) * 60 * US + DAY
    sizes = rng.integers(10**9, 2 * 10**9, count)
    other = rng.uniform(0, 10**9, 2 * count + 4)
    ours = group((start - DAY) / US, (start - DAY) / US + 30, sizes)
    lines = other.copy()
    # Transfer k fills the interval that ends at 60k + 30 s, which is the 2k-th.
    lines[0 : 2 * count : 2] += sizes
    read = counters.read_counters(snmp(tmp_path / "link.csv", lines))
    logged = counters.logged_bytes(start, start + 30 * US, sizes, read)
    found = counters.correlations(logged, read)
    assert found.intervals == count - 1
    assert found.with_total > 0.6
    assert abs(found.with_other) < 0.15
    shifted = group((start - DAY) / US, (start - DAY) / US + 30, sizes)
    quartiles = counters.by_quartile(
        shifted,
        logged,
        counters.Counters(
            start_us=read.start_us - DAY, end_us=read.end_us - DAY, bytes=read.bytes, left_out=0
        ),
    )
    assert sum(each.intervals for each in quartiles) == count - 1
    assert ours.spread.count == count


@pytest.mark.parametrize("text", ["", "time,bytes\n", "1,2\n2,3\n", "a,b\nc,d\n"])
def test_counters_that_are_none_are_refused(tmp_path, text):
    (tmp_path / "link.csv").write_text(text)
    with pytest.raises(LogError, match="time,bytes"):
        counters.read_counters(tmp_path / "link.csv")


def test_gaps_and_nonsense_among_counters_are_left_out_and_counted(tmp_path):
    (tmp_path / "link.csv").write_text(
        "1800000000,1\n1800000030,1\n1800000060,1\nx,1\n1800000090,-1\n1800000150,1\n1800000180,1\n"
    )
    read = counters.read_counters(tmp_path / "link.csv")
    assert (len(read.bytes), read.left_out) == (3, 3)


def test_counters_of_a_local_clock_are_of_the_zone_that_is_told(tmp_path):
    # Clocks go back at 02:00 of November 4, and show the hour from 01:00 twice; in March they skip one.
    november = ("00:30", "01:00", "01:30", "01:00", "01:30", "02:00")
    times = ["2012-03-11 02:30:00", *(f"2012-11-04 {each}:00" for each in november)]
    times.insert(-1, "2012-11-04T08:30:00Z")
    (tmp_path / "link.csv").write_text("".join(f"{time},1\n" for time in times))
    read = counters.read_counters(tmp_path / "link.csv", zone="America/Denver")
    # 2012-11-04T06:30:00Z; the skipped hour, and 08:30 for the second time, are left out.
    first = 1_352_010_600 * US
    assert (read.start_us - first).tolist() == [half * 1800 * US for half in range(5)]
    assert (read.end_us - first).tolist() == [half * 1800 * US for half in range(1, 6)]
    assert read.left_out == 2
    with pytest.raises(LogError, match='--zone: "Mars" is no zone'):
        counters.read_counters(tmp_path / "link.csv", zone="Mars")


def test_counters_are_of_utc_where_nothing_else_is_said(tmp_path):
    times = ("2012-11-04 06:30:00", "2012-11-04T07:00:00Z", "2012-11-04T01:30:00-06:00")
    (tmp_path / "link.csv").write_text("".join(f"{time},1\n" for time in times))
    assert counters.read_counters(tmp_path / "link.csv").start_us.tolist() == [
        1_352_010_600 * US,
        1_352_012_400 * US,
    ]


def test_the_group_is_that_which_is_asked_for(tmp_path):
    rng = np.random.default_rng(8)
    directory = stored(tmp_path / "d", log(rng, count=40))
    with open_logs(directory) as logs:
        assert alike(logs, Choice(), seed=1).of == 40
        assert alike(logs, Choice(source="a", low_bytes=SIZE, high_bytes=SIZE), seed=1).path == ("a", "b")
        for choice, said in ((Choice(source="nobody"), "there are a"), (Choice(low_bytes=SIZE + 1), "alike")):
            with pytest.raises(LogError, match=said):
                alike(logs, choice, seed=1)


def test_of_a_large_group_so_many_are_drawn_and_the_same_by_each_engine(tmp_path, engine, monkeypatch):
    table = log(np.random.default_rng(8), count=60)
    monkeypatch.setattr(farlink_lab.logs.variance.alike, "MOST", 25)
    taken = []
    with open_logs(stored(tmp_path / "d", table), engine=engine) as logs:
        fetched = logs.table
        monkeypatch.setattr(
            type(logs), "table", lambda _, expression: taken.append(fetched(expression)) or taken[-1]
        )
        found = alike(logs, Choice(), seed=1)
    # The log is in the order of its starts.
    places = np.sort(np.random.default_rng(1).choice(60, 25, replace=False))
    assert found.of == 60
    assert found.start_us.tolist() == table["start_us"].to_numpy()[places].tolist()
    assert found.factors["streams"].tolist() == table["streams"].to_numpy()[places].tolist()
    # And no more than these came from the engine.
    assert max(each.num_rows for each in taken) == 25


def test_more_transfers_on_a_link_than_can_be_held_are_refused(tmp_path, monkeypatch):
    directory = stored(tmp_path / "d", log(np.random.default_rng(8), count=40))
    read = counters.read_counters(snmp(tmp_path / "link.csv", np.full(20_000, 1e9)))
    monkeypatch.setattr(counters, "MOST", 39)
    with open_logs(directory) as logs, pytest.raises(LogError, match=r"--snmp: 40 transfers .* more than 39"):
        counters.on_link(logs, read)


def test_a_withheld_end_keeps_nobody_from_studying_the_rest(tmp_path):
    table = log(np.random.default_rng(9), count=40)
    at = table.schema.get_field_index("destination")
    directory = stored(tmp_path / "d", table.set_column(at, SCHEMA.field(at), pa.nulls(40, pa.string())))
    said = "\n".join(variance_lines(studied(directory)))
    assert "a to (withheld)" in said


def test_the_hour_is_that_of_the_zone():
    found = hours(np.array([DAY + 12 * 3600 * US]), "America/Denver")
    assert found.tolist() == [5.0]


def test_a_host_that_no_transfer_has_is_named_with_those_that_there_are(tmp_path):
    directory = stored(tmp_path / "many", log(np.random.default_rng(1), count=30))
    with open_logs(directory) as logs:
        for choice, said in (
            (Choice(source="zz"), "--source: no transfer has the source zz: there are a$"),
            (Choice(source="a", destination="zz"), "--destination: no transfer has .* zz: there are b$"),
            (Choice(low_bytes=1, high_bytes=2), "nothing of a spread: widen --sizes$"),
            (Choice(source="a", low_bytes=1, high_bytes=2), "widen --sizes, or leave out --source$"),
        ):
            with pytest.raises(LogError, match=said):
                alike(logs, choice, seed=1)
    directory = stored(tmp_path / "few", log(np.random.default_rng(1), count=5))
    with (
        open_logs(directory) as logs,
        pytest.raises(LogError, match=r"name --sizes that more of them have, or"),
    ):
        alike(logs, Choice(), seed=1)
