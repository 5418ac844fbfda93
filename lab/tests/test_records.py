"""Records: read once, right ever after; a broken line is named and skipped."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import synthetic
from farlink_lab.analysis import analysis, told
from farlink_lab.findings import find
from farlink_lab.health import health_between
from farlink_lab.profile import LeftOut, label_of, profiles
from farlink_lab.records import parse_lines, parse_record, read_records
from farlink_lab.report import write_report


def line(**changes):
    return json.dumps(synthetic.record(**changes)).encode()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b'{"schema":1,', "not JSON at column 13"),
        (b"[1]", "not a record: a record is a JSON object"),
        (b"\xff", "not UTF-8 at byte 1"),
        (line(tool=None), "tool is missing"),
        (line(mode="both"), 'mode: "both" is none of size, duration'),
        (line(outcome=None), "outcome: null is none of"),
        (line(bytes=-1), "bytes: -1 is not a whole number of at least 0"),
        (line(bytes=True), "bytes: true is not a whole number"),
        (line(duration_s="2"), 'duration_s: "2" is not a number'),
        (line().replace(b"2.0", b"NaN", 1), "NaN is no number"),
        (line(duration_s=1e999), "Infinity is no number"),
        (line(cpu_s={"sender": "1"}), 'cpu_s.sender: "1" is not a number'),
        (line(emulator=3), "emulator: 3 is not an object"),
        (line(duration_s=1e-300), "duration_s: 1e-300 s are too short for 2000000000 bytes"),
        (line(cpu_s={"sender": 1, "receiver": 1e19}), "cpu_s.receiver: 1e+19 is out of range"),
        (line(samples=[[0.1, 5], [0.2, 1e19]]), "samples: out of range: at most 2^63 - 1 bytes"),
        (line(samples=[[1e-307, 500]]), "samples: out of range"),
        (line(framing=["sonet"]), 'framing: ["sonet"] is not a text'),
        (line(queue_bytes={"of": 1}), 'queue_bytes: {"of": 1} is not a number of at least 0'),
        (line(background_bps=[1]), "background_bps: [1] is not a number of at least 0"),
        (line(samples=[[0.2, 5], [0.1, 5]]), "times must grow"),
        (line(samples=[[0.2, "x"]]), "not a list of [seconds, bytes]"),
        (line(duration_s=10**400), "100000000000... is a number of 401 digits"),
        (line(bytes=10**400), "100000000000... is a number of 401 digits"),
        (line(unknown=[-(10**4000)]), "-10000000000... is a number of 4002 digits"),
        (line().replace(b"2.0", b"1e999", 1), "1e999 is larger than any number"),
        (line(unknown=[1]).replace(b"[1]", b"[-1.5e999]"), "-1.5e999 is larger than any number"),
        (
            line(unknown=[1]).replace(b"[1]", b"[1" + b"0" * 400 + b".5]"),
            "100000000000... is larger than any",
        ),
        (line(mode="\ud800"), 'mode: "?" is none of'),
        (line(bytes=2**63), "bytes: 9223372036854775808 is out of range: at most 2^63 - 1"),
    ],
)
def test_a_broken_line_says_what_is_wrong(text, said):
    reading = parse_lines([line(), text, line()])
    assert len(reading.records) == 2
    assert [broken.number for broken in reading.broken] == [2]
    assert said in str(reading.broken[0])


def test_what_one_end_cost_is_not_what_both_did():
    assert parse_record(line(cpu_s={"receiver": 1.5})).cpu_s is None
    assert parse_record(line(cpu_s={"sender": 1, "receiver": 2})).cpu_s == (1.0, 2.0)


def test_half_a_character_is_none_and_a_whole_one_stays(tmp_path):
    lab = {"configuration": "half \ud800, whole \U0001f600", "run": "r0"}
    text = line(lab=lab, colour=["\udfff"])
    assert b"\\ud83d\\ude00" in text
    found = parse_record(text)
    assert (found.label, found.fields["colour"]) == ("half ?, whole \U0001f600", ["?"])
    assert parse_record(line(colour="\udfff")).fields["colour"] == "?"
    (tmp_path / "records.jsonl").write_bytes(text)
    assert "half ?, whole \U0001f600" in write_report(tmp_path).page.read_text()


def test_unknown_fields_are_kept():
    assert parse_record(line(colour="blue")).fields["colour"] == "blue"


@given(st.binary(max_size=200))
def test_any_line_is_a_record_or_a_reason(text):
    reading = parse_lines([text])
    assert len(reading.records) + len(reading.broken) <= 1


def test_runs_that_say_nothing_of_the_connection_are_left_out_and_counted():
    made = synthetic.campaign()
    reading = parse_lines(json.dumps(each).encode() for each in made)
    found, left_out = profiles(reading.records)
    assert (left_out.overrun, left_out.failed, left_out.total) == (1, 1, 2)
    assert sum(profile.runs for profile in found) == len(made) - 2


def test_unnamed_records_of_several_kinds_or_rates_are_configurations_apart():
    lines = [
        line(lab=None),
        line(lab=None, kind="file"),
        line(lab=None, tool="iperf3"),
        line(lab=None, tool="iperf3", rate_bps=1e9, goodput_bps=9.9e8),
    ]
    found, _ = profiles(parse_lines(lines).records)
    assert [(profile.label, profile.runs) for profile in found] == [
        ("farlink CUBIC ×1 2 GB over 10.0 Gb/s, MTU 9000, queue 62.5 MB", 1),
        ("farlink copy CUBIC ×1 2 GB over 10.0 Gb/s, MTU 9000, queue 62.5 MB", 1),
        ("iperf3 CUBIC ×1 2 GB over 1.00 Gb/s, MTU 9000, queue 62.5 MB", 1),
        ("iperf3 CUBIC ×1 2 GB over 10.0 Gb/s, MTU 9000, queue 62.5 MB", 1),
    ]
    assert [profile.capacity_bps for profile in found[2:]] == [9.9e8, pytest.approx(9.9e9, rel=1e-3)]


def test_a_multicasts_sender_and_its_receivers_are_configurations_apart():
    session = {"lab": None, "kind": "cast", "congestion": None, "streams": None}
    lines = [
        line(**session, cast={"group": "239.0.0.1:9000", "receivers": [{"name": "b"}, {"name": "c"}]}),
        line(**session, cast={"group": "239.0.0.1:9000", "packets": 9}),
        line(**session, cast={"group": "239.0.0.1:9000", "packets": 9}),
    ]
    found, _ = profiles(parse_lines(lines).records)
    assert [(profile.label, profile.runs) for profile in found] == [
        ("farlink cast receiver 2 GB over 10.0 Gb/s, MTU 9000, queue 62.5 MB", 2),
        ("farlink cast sender 2 GB over 10.0 Gb/s, MTU 9000, queue 62.5 MB", 1),
    ]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"block_bytes": 65536}, "blocks of 64 KiB"),
        ({"protection": "encrypted"}, "encrypted"),
        ({"protection": "clear", "kind": "file"}, "copy clear"),
        ({"declared_bps": 9_000_000_000, "congestion": "circuit"}, "CIRCUIT at 9 Gb/s"),
        ({"loss": 1e-4}, "loss 0.0001"),
        ({"mtu": 1500}, "over 10.0 Gb/s, queue"),
        ({"framing": "sonet"}, "sonet framing"),
        ({"queue_bytes": 62_500_001}, "queue 62.500001 MB"),
        ({"background_bps": 3_000_000_000}, "other traffic 3 Gb/s"),
    ],
)
def test_unnamed_records_that_differ_in_what_was_chosen_or_in_the_connection_are_apart(changes, said):
    lines = [line(lab=None, bytes=10**9), line(lab=None, bytes=10**9, **changes)]
    found, _ = profiles(parse_lines(lines).records)
    assert [profile.runs for profile in found] == [1, 1]
    assert sum(said in profile.label for profile in found) == 1


def test_what_is_usual_is_not_in_the_name_of_an_unnamed_record():
    plain, told = (
        parse_lines([line(lab=None, **changes)]).records[0]
        for changes in (
            {},
            {"block_bytes": 1 << 20, "protection": "clear", "background_bps": 0},
        )
    )
    assert label_of(plain) == label_of(told)


def test_an_rtt_without_a_healthy_run_is_kept_and_late():
    made = synthetic.late_campaign()
    found, left_out = profiles(parse_lines(json.dumps(each).encode() for each in made).records)
    for profile in found:
        assert profile.late.tolist() == [True, True, *[False] * 5]
        assert len(profile.throughput_bps[2]) == 1
        assert profile.late_points == 2
    assert sum(profile.late_runs for profile in found) == 16
    # Of the four at the third RTT, one failed besides, and is counted as that.
    assert (left_out.overrun, left_out.failed) == (3, 1)
    assert sum(profile.runs for profile in found) + left_out.total == len(made)


def test_a_late_run_measured_again_gives_way_to_the_healthy_one():
    late = {"late_max_s": 0.1, "late_p99_s": 0.1, "overrun": True}
    for lines in ([line(emulator=late), line(bytes=2)], [line(bytes=2), line(emulator=late)]):
        (profile,), left_out = profiles(parse_lines(lines).records)
        assert (profile.runs, profile.records[0][0].bytes, profile.late.tolist()) == (1, 2, [False])
        assert left_out.overrun == 1
    (profile,), left_out = profiles(parse_lines([line(emulator=late), line(emulator=late)]).records)
    assert (profile.runs, profile.late.tolist(), left_out.overrun) == (1, [True], 1)


def test_late_points_of_one_mode_do_not_touch_the_other():
    late = {"late_max_s": 0.1, "late_p99_s": 0.1, "overrun": True}
    lab = {"run": "r1", "configuration": "CUBIC ×1"}
    reading = parse_lines([line(), line(mode="duration", emulator=late, lab=lab)])
    found, _ = profiles(reading.records)
    assert {profile.mode: profile.late.tolist() for profile in found} == {"size": [False], "duration": [True]}


def test_modes_are_never_mixed():
    found = find(parse_lines(json.dumps(each).encode() for each in synthetic.campaign()))
    assert {(profile.label, profile.mode) for profile in found.profiles} >= {
        ("CUBIC ×1", "size"),
        ("CUBIC ×1", "duration"),
    }
    assert all(
        record.mode == profile.mode
        for profile in found.profiles
        for group in profile.records
        for record in group
    )


def test_a_run_taken_up_again_counts_once():
    reading = parse_lines([line(bytes=1), line(bytes=2)])
    (profile,), left_out = profiles(reading.records)
    assert profile.runs == 1
    assert profile.records[0][0].bytes == 2
    assert left_out == LeftOut(repeated=1)


@pytest.mark.parametrize("outcome", ["failed", "interrupted"])
def test_a_run_measured_again_as_it_came_to_nothing_is_counted_as_that_alone(outcome):
    (profile,), left_out = profiles(parse_lines([line(outcome=outcome), line(bytes=2)]).records)
    assert (profile.runs, left_out) == (1, LeftOut(**{outcome: 1}))


def test_of_two_measurements_of_one_plan_in_one_file_the_earlier_is_told_as_left_out():
    made = [each for each in synthetic.campaign() if each["lab"]["configuration"] == "CUBIC ×1"]
    made = [each for each in made if each["outcome"] == "ok" and not each["emulator"]["overrun"]]
    findings = find(parse_lines(json.dumps(each).encode() for each in made + made))
    assert analysis(findings)["left_out"]["repeated"] == len(made)
    said = f"Left out of every profile, and counted: {len(made)} runs that a later record of the same run"
    assert told(findings)[-1].startswith(said)


def test_a_device_is_no_records_file(tmp_path):
    from farlink_lab.records import RecordsError

    (tmp_path / "records.jsonl").symlink_to("/dev/zero")
    with pytest.raises(RecordsError, match="not a regular file"):
        read_records(tmp_path / "records.jsonl")


def test_health_is_the_difference_of_the_counters():
    def shown(late, unread=0):
        return {
            "rtt_s": 0.01,
            "overrun_limit_s": 0.00025,
            "links": [{"from": "a", "to": "b", "late": late, "dropped": {"unread": unread}}],
        }

    before = shown([[0.0001, 100], [0.1, 5]])
    good = health_between(before, shown([[0.0001, 1100], [0.0002, 5], [0.1, 5]]))
    assert (good.late_p99_s, good.late_max_s, good.overrun) == (0.0001, 0.0002, False)
    late = health_between(before, shown([[0.0001, 110], [0.001, 10], [0.1, 5]]))
    assert late.overrun
    assert health_between(before, shown([[0.0001, 200], [0.1, 5]], unread=1)).overrun
    assert health_between(before, before) is None
    assert health_between({}, {}) is None


def test_a_packet_size_that_no_link_has_is_a_broken_line():
    reading = parse_lines([line(mtu=52), line(mtu=68)])
    assert [str(broken) for broken in reading.broken] == ["line 1: mtu: 52 is below 68, the least of IP"]
    assert len(reading.records) == 1
