"""Runs that their user held to a rate: they tell nothing of what a path carries, and are counted nowhere."""

from __future__ import annotations

import json

import pytest

import synthetic
from farlink_lab.analysis import analysis, told
from farlink_lab.comparison import compare
from farlink_lab.findings import find
from farlink_lab.ground import AdviceError, ground
from farlink_lab.profile import profiles
from farlink_lab.profile_model import profile_model
from farlink_lab.records import parse_lines
from farlink_lab.report import write_report
from farlink_lab.side_by_side import as_json, sentences

NOTE = "that say a --limit that held them to a rate"


def with_limited(many=3, **changes):
    """Runs of one configuration at every RTT, and `many` like them that were held to a tenth of the rate."""
    made = [each for each in synthetic.campaign(repetitions=2) if each["lab"]["configuration"] == "CUBIC ×1"]
    made = [each for each in made if each["mode"] == "size" and each["outcome"] == "ok"]
    held = [
        each
        | {"duration_s": 17.0, "limit_bps": 1_000_000_000, "lab": each["lab"] | {"run": f"held {number}"}}
        | changes
        for number, each in enumerate(made[:many])
    ]
    return made, held


def read(made):
    return parse_lines(json.dumps(each).encode() for each in made)


def test_a_run_that_was_held_to_a_rate_is_in_no_profile_and_counted_as_left_out():
    made, held = with_limited()
    (alone,), _ = profiles(read(made).records)
    (profile,), left_out = profiles(read(made + held).records)
    assert profile.median_bps.tolist() == alone.median_bps.tolist()
    assert (left_out.limited, left_out.total) == (3, 3)


def test_without_a_lab_too_it_is_none_of_its_configuration():
    made, held = ([each | {"lab": None, "bytes": 2 << 30} for each in some] for some in with_limited())
    (profile,), left_out = profiles(read(made + held).records)
    assert (profile.runs, left_out.limited) == (len(made), 3)


def test_an_analysis_and_a_report_say_how_many(tmp_path):
    made, held = with_limited()
    findings = find(read(made + held))
    assert analysis(findings)["left_out"]["limited"] == 3
    said = "Left out of every profile, and counted: 3 runs that --limit held to a rate."
    assert told(findings)[-1] == said
    synthetic.write(tmp_path, made + held)
    page = write_report(tmp_path).page.read_text()
    assert said in page
    assert page.count("--limit held it to 1.00 Gb/s") == 3


def test_a_comparison_counts_none_and_says_how_many():
    made, held = with_limited()
    found = compare(read(made).records, read(made + held).records)
    assert [point.after_runs for pair in found.pairs for point in pair.points] == [2] * 7
    assert "left out of b: 3 runs that --limit held to a rate" in sentences(found, before="a", after="b")
    assert json.loads(as_json(found, before="a", after="b"))["limited"] == {"before": 0, "after": 3}


def test_advice_and_models_count_none_and_say_how_many():
    made, held = with_limited()
    stood = ground(read(made + held).records)
    assert [len(place.records) for place in stood.places] == [2] * 7
    assert stood.left_out == (f"runs that count for nothing: 3 {NOTE}",)
    assert any(NOTE in note for note in profile_model(stood)["notes"])
    with pytest.raises(AdviceError, match=f"no run counts .*3 {NOTE}"):
        ground(read(held).records)


def test_advice_counts_those_of_the_movers_that_it_is_of():
    made, held = with_limited()
    _, copies = with_limited(2, kind="file")
    _, theirs = with_limited(2, tool="iperf3")
    other = [
        each | {"tool": "iperf3", "lab": each["lab"] | {"run": f"i {number}"}}
        for number, each in enumerate(made)
    ]
    everything = read(made + held + copies + theirs + other).records
    for mover, many in ((None, 5), ("farlink", 3), ("iperf3", 2)):
        assert ground(everything, mover=mover).left_out == (f"runs that count for nothing: {many} {NOTE}",)
