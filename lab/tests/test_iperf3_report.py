"""Reports of iperf3 become records: as 3.12, older and newer versions print them, and what is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from farlink_lab.choice import Task
from farlink_lab.iperf3_report import KnownPath, ReportError, record_of, reports
from farlink_lab.profile import profiles
from farlink_lab.records import parse_record

# Of runs of a second over a loopback at 50 Mb/s a stream; addresses and dates are not theirs.
REPORTS = Path(__file__).parent / "iperf3_reports"
KNOWN = KnownPath(rtt_s=0.1, rate_bps=10_000_000_000)


def report(name):
    (found,) = reports((REPORTS / f"{name}.json").read_text()).found
    return found


def record(name_or_report, path=KNOWN):
    found = report(name_or_report) if isinstance(name_or_report, str) else name_or_report
    made = record_of(found, path=path, written_s=0.0)
    parse_record(json.dumps(made).encode())
    return made


def refusal(name_or_report, path=KNOWN):
    with pytest.raises(ReportError) as caught:
        record(name_or_report, path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_without_the_servers_report_the_receivers_totals_count():
    made = record("plain")
    assert (made["bytes"], made["duration_s"], made["mode"]) == (6291456, 1.000174, "duration")
    assert (made["version"], made["streams"], made["block_bytes"], made["outcome"]) == (
        "3.12",
        1,
        131072,
        "ok",
    )
    assert (made["source"], made["destination"]) == ("192.0.2.1", "192.0.2.2")
    assert made["started"] == "2026-01-01T00:00:00.000000Z"
    assert made["cpu_s"] == pytest.approx({"sender": 0.0303258, "receiver": 0.0030819}, rel=1e-4)
    assert made["tcp"][0]["t_s"] == [0.500094, 1.00008]
    # The client's intervals are what it handed to its kernel, not what arrived.
    assert "samples" not in made


def test_with_it_the_receivers_intervals_are_cut_to_the_time_from_the_first_bytes_leave():
    made = record("server", KnownPath(rtt_s=0.0002))
    assert made["duration_s"] == 1.0
    assert [end for end, _ in made["samples"]] == pytest.approx([0.500005, 1.0], abs=1e-6)
    assert sum(n for _, n in made["samples"]) == made["bytes"]
    assert made["streams"] == 2
    assert len(made["tcp"]) == 2


def test_where_the_intervals_end_before_the_time_the_totals_stand():
    made = record("server")
    assert (made["bytes"], made["duration_s"]) == (12582912, 1.000678)
    assert "samples" not in made


def test_runs_of_one_asked_time_are_one_configuration_at_every_rtt():
    records = []
    for number, rtt in enumerate((0.0004, 0.0118, 0.0916, 0.183, 0.366), start=1):
        found = report("plain")
        found["start"]["test_start"]["duration"] = 10
        # The receiver counts until the last byte has arrived.
        found["end"]["sum_received"]["end"] = 10 + rtt
        made = record(found, KnownPath(rtt_s=rtt))
        assert (made["duration_s"], made["asked_s"]) == (pytest.approx(10 + rtt), 10.0)
        records.append(parse_record(json.dumps(made).encode(), line=number))
    (profile,), left_out = profiles(records)
    assert (profile.label, profile.amount, len(profile.rtt_s)) == ("iperf3 BBR ×1 10 s, MTU 65535", 10.0, 5)
    assert left_out.total == 0
    assert all(Task(mode="duration", amount=10.0).is_of(each) for each in records)
    # Where the receiver's intervals are there, the run is cut to the time itself.
    assert "asked_s" not in record("server", KnownPath(rtt_s=0.0002))


def test_in_reverse_the_client_is_the_receiver():
    made = record("reverse")
    assert (made["source"], made["destination"]) == ("192.0.2.2", "192.0.2.1")
    assert made["cpu_s"]["sender"] > 5 * made["cpu_s"]["receiver"]
    # The receiver's clock starts when the first byte arrives, half of 0.1 s after it left.
    assert [end for end, _ in made["samples"]] == pytest.approx([0.550118, 1.0])
    assert made["bytes"] == pytest.approx(6291456 * 0.95, rel=1e-3)
    assert made["tcp"][0]["cwnd_bytes"] == [1178694, 1178694]
    plain = record("reverse_plain")
    assert plain["duration_s"] == 1.0
    assert "tcp" not in plain


def test_the_rtt_is_the_least_that_the_senders_kernel_saw():
    none = KnownPath()
    assert record("plain", none)["rtt_s"] == pytest.approx(99e-6)
    assert record("server", none)["rtt_s"] == pytest.approx(69e-6)
    assert record("reverse", none)["rtt_s"] == pytest.approx(111e-6)
    assert record("plain")["rtt_s"] == 0.1
    old = report("plain")
    for key in ("min_rtt", "max_rtt", "mean_rtt"):
        del old["end"]["streams"][0]["sender"][key]
    assert record(old, none)["rtt_s"] == pytest.approx(99e-6)
    assert "told no RTT: give the path's, as in --rtt" in refusal("reverse_plain", none)


def test_the_capacity_is_known_where_the_rate_is():
    made = report("plain")
    for interval in made["intervals"]:
        interval["streams"][0]["pmtu"] = 9000
    known = record(made)
    assert (known["rate_bps"], known["mtu"], known["framing"]) == (10_000_000_000, 9000, "ethernet")
    assert known["goodput_bps"] == pytest.approx(9.9e9, rel=0.01)
    unknown = record(made, KnownPath(rtt_s=0.1))
    assert not {"rate_bps", "goodput_bps", "framing"} & set(unknown)


def as_old(found):
    """As 3.1 printed it: without what later versions added."""
    for key in ("sock_bufsize", "sndbuf_actual", "rcvbuf_actual", "target_bitrate"):
        del found["start"][key]
    for key in ("sender_tcp_congestion", "receiver_tcp_congestion"):
        del found["end"][key]
    for row in [each["streams"][0] for each in found["intervals"]]:
        for key in ("rttvar", "pmtu", "snd_wnd", "sender"):
            del row[key]
    found["start"]["version"] = "iperf 3.1.3"
    return found


def test_an_old_version_says_less_and_what_it_says_counts():
    made = record(as_old(report("plain")))
    assert (made["version"], made["bytes"], made["outcome"]) == ("3.1.3", 6291456, "ok")
    assert not {"congestion", "mtu", "goodput_bps", "buffers"} & set(made)


def test_a_new_version_may_print_a_stream_of_events():
    whole = report("plain")
    events = [{"event": "start", "data": whole["start"]}]
    events += [{"event": "interval", "data": interval} for interval in whole["intervals"]]
    events += [{"event": "end", "data": whole["end"]}]
    text = "\n".join(map(json.dumps, events))
    (found,) = reports(text).found
    assert record(found) == record(whole)


def as_events(whole, *, until=None):
    parts = [{"event": "start", "data": whole["start"]}]
    parts += [{"event": "interval", "data": interval} for interval in whole["intervals"]]
    parts += [{"event": "end", "data": whole["end"]}]
    return "\n".join(map(json.dumps, parts[:until])) + "\n"


def test_a_stream_of_events_that_breaks_off_was_interrupted_and_keeps_what_it_told():
    whole = report("reverse_plain")
    for cut in (as_events(whole, until=-1), as_events(whole, until=-1) + '{"event":"end","data":{"str'):
        (found,) = reports(cut).found
        assert reports(cut).refused == ()
        made = record(found)
        assert (made["outcome"], made["asked_s"]) == ("interrupted", 1.0)
        assert made["error"] == "interrupted: its report breaks off before the end"
        assert made["bytes"] == sum(moved for _, moved in made["samples"]) > 0
        assert made["duration_s"] == pytest.approx(1.05, abs=0.01)
    # One after the other in one file, the first of them cut.
    both = reports(as_events(whole, until=-1) + as_events(whole))
    assert [record(each)["outcome"] for each in both.found] == ["interrupted", "ok"]


def test_an_interrupted_run_keeps_what_was_measured_until_then():
    told = {"error": "interrupt - the client has terminated"}
    made = record(report("server") | told)
    assert (made["outcome"], made["asked_s"], made["streams"]) == ("interrupted", 1.0, 2)
    assert made["bytes"] == sum(moved for _, moved in made["samples"]) == 12582912
    assert len(made["tcp"]) == 2
    # Without the receiver's intervals its totals count, where there are any.
    plain = report("plain") | told
    assert (record(plain)["bytes"], record(plain)["duration_s"]) == (6291456, 1.000174)
    del plain["end"]["sum_received"]
    assert record(plain)["bytes"] == 0
    assert "duration_s" not in record(plain)


def test_one_report_that_breaks_off_costs_the_others_nothing():
    text = (REPORTS / "plain.json").read_text().strip()
    for broken in (text[:900], json.dumps(json.loads(text), indent=4)[:900]):
        for between in ("", "\n"):
            found = reports(f"{text}\n{broken}{between}{text}\n")
            assert len(found.found) == 2
            (refused,) = found.refused
            assert refused.startswith("not JSON at line ")


def test_a_number_of_too_many_digits_costs_the_other_reports_nothing():
    text = (REPORTS / "plain.json").read_text().strip()
    found = reports(f'{{"start": {{}}, "x": 1{"0" * 5000}}}\n{text}\n')
    assert (len(found.found), len(found.refused)) == (1, 1)


def test_the_servers_report_is_refused_with_the_mend():
    of_server = report("server")["server_output_json"]
    assert "import what the client printed" in refusal(of_server)


def test_reports_that_were_appended_are_each_one():
    text = (REPORTS / "plain.json").read_text()
    assert len(reports(text + text + "\n\n" + (REPORTS / "server.json").read_text()).found) == 3


def test_a_size_that_had_arrived_is_a_record_of_a_size():
    made = report("size")
    made["end"]["sum_received"]["bytes"] = 4194304
    assert (record(made)["mode"], record(made)["bytes"]) == ("size", 4194304)


def test_a_run_that_failed_is_a_failed_record():
    made = record_of(report("error"), path=KNOWN, written_s=1767225601.5)
    assert (made["outcome"], made["bytes"]) == ("failed", 0)
    assert made["error"] == "unable to connect to server: Connection refused"
    # It did not come to note its own start.
    assert made["started"] == "2026-01-01T00:00:01.500000Z"
    cut = report("plain") | {"error": "interrupt - the client has terminated"}
    assert record(cut)["outcome"] == "interrupted"
    nothing = report("plain")
    nothing["end"]["sum_received"]["bytes"] = 0
    assert (record(nothing)["outcome"], record(nothing)["error"]) == ("failed", "nothing arrived")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("udp", "it measured UDP, and profiles are of TCP"),
        ("bidir", "it moved data both ways at once"),
        ("omit", "it left out its first 1 s, and with them the ramp-up"),
        ("size", "its clock stopped when 4063232 of 4194304 bytes had arrived"),
    ],
)
def test_what_no_record_can_stand_for_is_refused_with_the_mend(name, said):
    assert said in refusal(name)
    assert "measure" in refusal(name)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it is empty"),
        ("iperf3: error", "not JSON at line 1: expecting value"),
        ('\n{"start":\n', "not JSON at line"),
        ("[]", "no report of iperf3: give what"),
        ("{}", "no report of iperf3: it has no start"),
        ("[" * 100_000, "no report of iperf3: nested too deeply"),
        ('{"start": {}, "x": 1' + "0" * 5000 + "}", "no report of iperf3: a number in it has more digits"),
    ],
)
def test_what_is_no_report_is_one_line(text, said):
    with pytest.raises(ReportError) as caught:
        reports(text)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found.pop("end"),
        lambda found: found["end"].pop("sum_received"),
        lambda found: found["end"].update(sum_received=3),
        lambda found: found["start"].update(connected=[3]),
        lambda found: found["start"]["test_start"].update(num_streams="one"),
        lambda found: found["start"].update(timestamp={"timesecs": 1e300}),
        lambda found: found.update(intervals=[{"sum": {}}]),
    ],
)
def test_a_report_that_is_not_as_it_should_be_is_one_line(change):
    found = report("plain")
    change(found)
    assert "it cannot be understood" in refusal(found)


def test_files_are_added_once_and_each_that_is_none_is_named(lab, tmp_path):
    broken = tmp_path / "broken.json"
    broken.write_text('{"start":')
    files = [REPORTS / f"{name}.json" for name in ("plain", "server", "error", "udp")]
    done = lab.run("import", "iperf3", *files, broken, tmp_path / "none", "--out", lab.out, "--rtt", "20ms")
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith(f"farlink: {files[3]}: it measured UDP")
    assert lines[1].startswith(f"farlink: {broken}: not JSON at line 1")
    assert lines[2].startswith(f"farlink: {tmp_path / 'none'}: No such file or directory")
    assert "added 3 records" in done.stdout
    assert "1 of them of runs that failed" in done.stdout
    assert [each["outcome"] for each in lab.records()] == ["ok", "ok", "failed"]
    again = lab.run("import", "iperf3", *files[:3], "--out", lab.out)
    assert again.returncode == 0
    assert "added 0 records" in again.stdout
    assert "3 were there before" in again.stdout
    assert len(lab.records()) == 3


def test_what_is_learnt_of_the_path_later_replaces_what_was_known(lab, tmp_path):
    old = tmp_path / "old.json"
    old.write_text(json.dumps(as_old(report("plain"))))
    done = lab.run("import", "iperf3", old, "--out", lab.out, "--rtt", "20ms")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("added 1 record to ")
    done = lab.run("import", "iperf3", old, "--out", lab.out, "--rate", "10gbit")
    assert "1 was there before, 1 of them with other facts of the path, which are replaced" in done.stdout
    assert (
        f"1 record has a rate and no capacity, as its report does not say the path's MTU ({old}): "
        "import it again with --mtu" in done.stderr
    )
    advised = lab.run("advise", lab.out, "--rtt", "20ms", "--seconds", "1")
    assert "import them again with --mtu" in advised.stderr
    done = lab.run("import", "iperf3", old, "--out", lab.out, "--mtu", "9000")
    assert (done.returncode, done.stderr) == (0, "")
    (made,) = lab.records()
    assert (made["rtt_s"], made["rate_bps"], made["mtu"]) == (0.02, 10_000_000_000, 9000)
    assert made["goodput_bps"] == pytest.approx(9.9e9, rel=0.01)
    again = lab.run("import", "iperf3", old, "--out", lab.out)
    assert "1 was there before\n" in again.stdout
    assert lab.run("advise", lab.out, "--rtt", "20ms", "--seconds", "1").returncode == 0


def test_reports_without_an_mtu_are_named_and_advice_comes_from_the_others(lab, tmp_path):
    names = []
    for number in range(5):
        names.append(tmp_path / f"old{number}.json")
        made = as_old(report("plain"))
        made["start"]["cookie"] = f"cookie{number}"
        names[-1].write_text(json.dumps(made))
    done = lab.run("import", "iperf3", *names, "--out", lab.out, "--rate", "10gbit", "--rtt", "20ms")
    first = ", ".join(map(str, names[:3]))
    assert done.stderr == (
        "farlink: 5 records have a rate and no capacity, as their reports do not say the path's MTU "
        f"({first} and 2 more): import them again with --mtu\n"
    )
    asked = ("advise", lab.out, "--rtt", "20ms", "--seconds", "1")
    assert "import them again with --mtu" in lab.run(*asked).stderr
    lab.run("import", "iperf3", *names[:4], "--out", lab.out, "--mtu", "9000")
    done = lab.run(*asked)
    assert done.returncode == 0, done.stderr
    assert (
        "note: runs that count for nothing: 1 that does not say the path's MTU and with it the capacity: "
        "import it again with --mtu" in done.stdout
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--mtu", "60"), "--mtu"),
        (("--rtt", "0ms"), '--rtt: "0ms" is not an RTT: more than 0 and at most 10s'),
        (("--rtt", "91.6"), '--rtt: "91.6" has no unit'),
        (("--rate", "10"), '--rate: "10" has no unit'),
        (("--framing", "token-ring"), "token-ring"),
    ],
)
def test_what_is_said_of_the_path_is_checked(lab, options, said):
    done = lab.run("import", "iperf3", REPORTS / "plain.json", "--out", lab.out, *options)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert said in done.stderr
    assert not lab.out.exists()


def test_imported_records_make_a_report(lab):
    # What is refused leaves nothing that looks like a campaign.
    assert lab.run("import", "iperf3", lab.plan("no report"), "--out", lab.out).returncode == 2
    assert not lab.out.exists()
    lab.run("import", "iperf3", REPORTS / "server.json", REPORTS / "reverse.json", "--out", lab.out)
    done = lab.run("report", lab.out)
    assert done.returncode == 0, done.stderr
    assert "iperf3 BBR ×2 1 s" in (lab.out / "report.html").read_text()
