"""Two campaigns side by side: a difference that is there is found, one that is not there is not."""

from __future__ import annotations

import io
import json
import random
import re

import numpy as np
import pytest
from rich.console import Console

import farlink_lab.comparison
from farlink_lab.comparison import LEVEL, compare, difference, ratio
from farlink_lab.records import parse_record
from farlink_lab.side_by_side import tables
from synthetic import RTTS_S, record, write

SECONDS = 10.0


def campaign(seed, *, runs=5, rtts=RTTS_S, factors=None, noise=0.03, labels=("one", "two"), **changes):
    """Records of each label at each RTT, 5 Gb/s times the label's factor, with noise of that share."""
    drawn = random.Random(seed)
    made = []
    for label in labels:
        for rtt in rtts:
            for repetition in range(runs):
                rate = 5e9 * (factors or {}).get(label, 1.0) / (1 + rtt) * (1 + drawn.gauss(0, noise))
                made.append(
                    record(
                        mode="duration",
                        duration_s=SECONDS,
                        bytes=round(rate * SECONDS / 8),
                        rtt_s=rtt,
                        lab={
                            "plan": "p",
                            "run": f"{label} {rtt} {repetition}",
                            "configuration": label,
                            "repetition": repetition,
                        },
                        **changes,
                    )
                )
    return made


def read(made):
    return [parse_record(json.dumps(each).encode(), line=k + 1) for k, each in enumerate(made)]


def compared(before, after):
    return compare(read(before), read(after))


@pytest.fixture
def fewer_resamples(monkeypatch):
    """For hundreds of trials: of 2000 with what was measured a chance of 5% is a hundred."""
    monkeypatch.setattr(farlink_lab.comparison, "RESAMPLES", 1_999)


def test_brackets_and_colons_of_a_label_are_told_as_they_stand():
    label = "[/x] [red]new[/] :heart:"
    found = compared(campaign(1, labels=(label,)), campaign(2, labels=(label,)))
    written = io.StringIO()
    (table,) = tables(found)
    Console(file=written, width=150).print(table)
    assert label in written.getvalue()


def test_a_known_difference_is_found_with_its_size():
    found = compared(campaign(1), campaign(2, factors={"two": 0.8}))
    one, two = found.pairs
    assert (one.label, two.label) == ("one", "two")
    assert not one.overall.clear
    assert two.overall.clear
    assert two.overall.value == pytest.approx(0.8, rel=0.02)
    assert two.overall.low < 0.8 < two.overall.high < 1
    assert all(point.ratio.clear for point in two.points)
    assert not any(point.ratio.clear for point in one.points)
    for point in two.points:
        at = point.difference
        assert at.low <= at.value <= at.high < 0
        assert (
            at.value == point.after_bps - point.before_bps == pytest.approx(-1e9 / (1 + point.rtt_s), rel=0.2)
        )
    assert two.difference.low < two.difference.value < two.difference.high < 0
    assert one.difference.low < 0 < one.difference.high
    assert [point.rtt_s for point in two.points] == list(RTTS_S)


def test_three_runs_cannot_tell_at_one_rtt_and_can_over_all():
    found = compared(campaign(1, runs=3), campaign(2, runs=3, factors={"two": 0.8}))
    two = found.pairs[1]
    assert two.overall.clear
    assert not any(point.ratio.clear or point.enough for point in two.points)


def test_where_there_is_none_a_difference_is_rarely_clear(fewer_resamples):
    told = points = 0
    trials = 100
    for seed in range(trials):
        found = compared(
            campaign(2 * seed, labels=("one",), noise=0.05),
            campaign(2 * seed + 1, labels=("one",), noise=0.05),
        )
        told += found.pairs[0].overall.clear
        points += any(point.ratio.clear for point in found.pairs[0].points)
    # 5% each is the claim; 12 of 100 or more would come in fewer than 1 of 200 times.
    assert told < 12
    assert points < 12


def test_the_interval_holds_the_truth_as_often_as_it_says(fewer_resamples):
    drawn = np.random.default_rng(7)
    inside = 0
    trials = 200
    for _ in range(trials):
        strata = [(drawn.lognormal(0, 0.1, 10), 1.3 * drawn.lognormal(0, 0.1, 10)) for _ in range(5)]
        found = ratio(strata, tested=False)
        inside += found.low <= 1.3 <= found.high
    # Percentile intervals of ten runs are a little narrow.
    assert inside / trials >= LEVEL - 0.05


@pytest.mark.parametrize(("rtts", "runs"), [(1, 5), (2, 3), (7, 3)])
def test_the_fewest_runs_that_have_an_interval_hold_its_claim(rtts, runs, fewer_resamples):
    drawn = np.random.default_rng(11)
    trials, inside = 300, 0
    for _ in range(trials):
        strata = [(drawn.lognormal(0, 0.1, runs), 1.3 * drawn.lognormal(0, 0.1, runs)) for _ in range(rtts)]
        found = ratio(strata, tested=False)
        inside += found.low <= 1.3 <= found.high
    # Fewer than 92.5% would come of a claim of 95% in one of 30.
    assert inside / trials >= 0.925


def test_too_few_runs_have_no_interval():
    for runs in (3, 4):
        at_one = [(np.linspace(1, 2, runs), np.linspace(2, 3, runs))]
        for found in (ratio(at_one), difference(at_one)):
            assert (found.low, found.high) == (None, None)
    found = compared(campaign(1, runs=4), campaign(2, runs=4, factors={"two": 0.8}))
    two = found.pairs[1]
    assert all(point.ratio.low is None and point.difference.low is None for point in two.points)
    assert two.overall.low < 0.8 < two.overall.high


def test_the_chance_is_exact_where_it_can_be_counted():
    # Of the 20 ways to split six runs in two, these two alone are as far apart.
    found = ratio([(np.array([1.0, 2.0, 3.0]), np.array([10.0, 11.0, 12.0]))])
    assert found.chance == pytest.approx(0.1, abs=0.01)
    same = np.full(5, 5.0)
    equal = ratio([(same, same)])
    assert (equal.value, equal.low, equal.high, equal.chance) == (1.0, 1.0, 1.0, 1.0)


def test_a_single_run_has_no_interval():
    found = compared(campaign(1, runs=1), campaign(2, runs=1, factors={"two": 0.5}))
    two = found.pairs[1]
    assert two.points[0].ratio.low is None
    assert two.points[0].difference.low is None
    assert two.overall.low is None
    # Seven RTTs that all fell to a half: one of 64.
    assert two.overall.chance == pytest.approx(2 / 2**7, abs=0.005)


@pytest.mark.parametrize("bad", [[], [(np.array([]), np.array([1.0]))], [(np.array([0.0]), np.array([1.0]))]])
def test_a_ratio_of_nothing_is_an_error(bad):
    with pytest.raises(ValueError, match="throughputs above 0"):
        ratio(bad)


def test_what_stands_only_in_one_is_named():
    before = campaign(1, labels=("one", "gone"), rtts=RTTS_S[:3])
    after = campaign(2, labels=("one", "new"), rtts=RTTS_S[1:4])
    found = compared(before, after)
    assert (found.only_before, found.only_after) == (("gone, 10 s",), ("new, 10 s",))
    (one,) = found.pairs
    assert [point.rtt_s for point in one.points] == list(RTTS_S[1:3])
    assert (one.only_before_s, one.only_after_s) == ((RTTS_S[0],), (RTTS_S[3],))


def test_a_campaign_without_a_record_is_refused(lab, tmp_path):
    (tmp_path / "records.jsonl").touch()
    done = lab.here("compare", tmp_path, tmp_path)
    assert done.returncode == 2
    assert "no record in it" in done.stderr


def test_another_connection_is_said(lab, tmp_path):
    before, after = (
        campaign(1, labels=("one",)),
        campaign(2, labels=("one",), queue_bytes=6_250_000, mtu=1500),
    )
    found = compared(before, after)
    assert found.other_connection == (("queue", "62.5 MB", "6.25 MB"), ("MTU", "9000", "1500"))
    assert compared(before, campaign(3, labels=("one",))).other_connection == ()
    for name, made in (("a", before), ("b", after)):
        (tmp_path / name).mkdir()
        write(tmp_path / name, made)
    done = lab.here("compare", tmp_path / "a", tmp_path / "b")
    assert f"another connection: MTU 9000 in {tmp_path / 'a'}, 1500 in {tmp_path / 'b'}" in done.stdout
    as_json = json.loads(lab.here("compare", tmp_path / "a", tmp_path / "b", "--json").stdout)
    assert as_json["other_connection"][1] == {"what": "MTU", "before": "9000", "after": "1500"}


def test_other_socket_buffers_are_said(lab, tmp_path):
    granted = {"send": 8 << 20, "receive": 8 << 20}
    tuned, asked = (
        campaign(1, labels=("one", "two")),
        campaign(2, labels=("one",), buffer_bytes=4 << 20, buffers=granted) + campaign(3, labels=("two",)),
    )
    found = compared(tuned, asked)
    assert found.other_connection == (("socket buffers", "the kernel's", "4 MiB"),)
    for name, made in (("a", tuned), ("b", asked)):
        (tmp_path / name).mkdir()
        write(tmp_path / name, made)
    done = lab.here("compare", tmp_path / "a", tmp_path / "b")
    said = f"another connection: socket buffers the kernel's in {tmp_path / 'a'}, 4 MiB in {tmp_path / 'b'}"
    assert said in done.stdout
    # Nor does it hide among the configurations that have them in both.
    both = campaign(4, labels=("one",)) + campaign(5, labels=("two",), buffer_bytes=4 << 20)
    other = campaign(6, labels=("one",), buffer_bytes=4 << 20) + campaign(7, labels=("two",))
    assert [name for name, _, _ in compared(both, other).other_connection] == ["socket buffers"]
    # What was granted differs where less was, and where the kernel tunes it in each run.
    less = campaign(8, labels=("one",), buffer_bytes=4 << 20, buffers=granted | {"receive": 425_984})
    more = campaign(9, labels=("one",), buffer_bytes=4 << 20, buffers=granted)
    ((what, old, new),) = compared(less, more).other_connection
    assert (what, old) == ("granted buffers", "8 MiB to send and 416 KiB to receive")
    assert new == "8 MiB to send and 8 MiB to receive"
    assert not compared(
        campaign(1, buffers=granted), campaign(2, buffers={"send": 1, "receive": 1})
    ).other_connection


@pytest.mark.parametrize(
    "bad", [[], [(np.array([]), np.array([1.0]))], [(np.array([np.nan]), np.array([1.0]))]]
)
def test_a_difference_of_nothing_is_an_error(bad):
    with pytest.raises(ValueError, match="finite throughputs"):
        difference(bad)


def test_another_amount_is_another_curve():
    before = campaign(1, labels=("one",))
    after = [each | {"duration_s": 20.0, "bytes": 2 * each["bytes"]} for each in before]
    found = compared(before, after)
    assert found.pairs == ()
    assert found.other_amounts == (("one, 10 s", "one, 20 s"),)
    # Tools that time themselves end a little beside the time asked for.
    near = [each | {"duration_s": 10.1} for each in before]
    assert len(compared(before, near).pairs) == 1


def test_of_what_is_late_or_zero_nothing_is_clear():
    late = {"late_max_s": 1.0, "late_p99_s": 1.0, "overrun": True}
    before = campaign(1, labels=("one",), rtts=RTTS_S[:2])
    after = campaign(2, labels=("one",), rtts=RTTS_S[:2], factors={"one": 0.5})
    for each in after:
        if each["rtt_s"] == RTTS_S[0]:
            each["emulator"] = late
        else:
            each["bytes"] = 0
    (one,) = compared(before, after).pairs
    assert one.points[0].late
    assert (one.points[0].ratio.chance, one.points[0].ratio.clear) == (None, False)
    assert one.points[1].ratio is None
    assert one.overall is None


def test_nothing_in_common_is_said(lab, tmp_path):
    for name, label in (("a", "one"), ("b", "two")):
        (tmp_path / name).mkdir()
        write(tmp_path / name, campaign(1, labels=(label,)))
    done = lab.here("compare", tmp_path / "a", tmp_path / "b")
    assert done.returncode == 2
    assert "have no configuration in common" in done.stdout
    assert "only in" in done.stdout
    (complaint,) = done.stderr.splitlines()
    assert complaint.startswith("farlink: nothing was compared: ")


def test_no_rtt_in_common_is_nothing_compared_too(lab, tmp_path):
    for name, rtts in (("a", RTTS_S[:2]), ("b", RTTS_S[2:4])):
        (tmp_path / name).mkdir()
        write(tmp_path / name, campaign(1, labels=("one",), rtts=rtts))
    done = lab.here("compare", tmp_path / "a", tmp_path / "b", "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["configurations"][0]["points"] == []
    assert "have no RTT in common" in done.stderr


def test_the_command_line_shows_what_was_found(lab, tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    a.mkdir()
    b.mkdir()
    write(a, campaign(1))
    write(b, campaign(2, factors={"two": 0.8}), broken=True)
    done = lab.run("compare", a, b, COLUMNS="200")
    assert done.returncode == 2, "not all could be read"
    assert done.stderr.startswith(f"farlink: {b / 'records.jsonl'}: line 3: not JSON")
    assert done.stdout.count("clearly slower") == len(RTTS_S) + 1
    assert (
        "clearly different over all their RTTs: 1 of 2 configurations; two, 10 s: 0.793 times as fast"
        in done.stdout
    )
    found = json.loads(lab.here("compare", a, b, "--json").stdout)
    assert (found["before"], found["after"], found["level"]) == (str(a), str(b), 0.95)
    assert [each["overall"]["clear"] for each in found["configurations"]] == [False, True]
    point = found["configurations"][1]["points"][0]
    assert point["difference_bps"] == pytest.approx(point["after_bps"] - point["before_bps"])
    assert point["difference_low_bps"] < point["difference_bps"] < point["difference_high_bps"] < 0
    overall = found["configurations"][1]["overall_difference"]
    assert overall["low_bps"] < overall["value_bps"] < overall["high_bps"] < 0
    assert "difference, Gb/s" in done.stdout
    assert re.search(r"−1\.\d\d \(−1\.\d\d to −\d\.\d\d\)", done.stdout)
    # It fits a terminal of 80 columns.
    narrow = lab.here("compare", a, b, COLUMNS="80")
    assert "…" not in narrow.stdout
    assert point["ratio"]["low"] < point["ratio"]["value"] < point["ratio"]["high"] < 1


def test_a_directory_without_records_is_one_line(lab, tmp_path):
    done = lab.here("compare", tmp_path / "none", tmp_path)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert str(tmp_path / "none") in done.stderr
