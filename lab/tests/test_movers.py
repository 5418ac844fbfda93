"""What other tools print, read into the fields of a record and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from farlink_lab.movers import MOVERS, Finished, MoverError
from farlink_lab.plan import Configuration

CUBIC = Configuration(label="x", congestion="cubic", duration_s=1.0)


def stream(end, sent, window, again):
    return {"end": end, "bytes": sent, "snd_cwnd": window, "rtt": 11800, "retransmits": again}


# A round trip of which the receivers' clocks are half ahead.
RTT_S = 0.1


def iperf3_report(**changes):
    return {
        "start": {"version": "iperf 3.12", "test_start": {"blksize": 131072}, "sndbuf_actual": 425984},
        "intervals": [{"streams": [stream(0.1, 10, 100, 1)]}, {"streams": [stream(0.2, 10, 200, 2)]}],
        "end": {
            "sum_sent": {"start": 0, "end": 1.0, "bytes": 130, "retransmits": 3},
            "sum_received": {"start": 0, "end": 1.1, "bytes": 120},
            "cpu_utilization_percent": {"host_total": 10.0, "remote_total": 20.0},
            "sender_tcp_congestion": "cubic",
        },
        "server_output_json": {
            "start": {"rcvbuf_actual": 425984},
            "intervals": [
                {"sum": {"end": end, "bytes": moved}}
                for end, moved in ((0.05, 0), (0.15, 50), (1.0, 40), (1.1, 20))
            ],
        },
        **changes,
    }


def result(name, stdout="", stderr="", configuration=CUBIC):
    return MOVERS[name].result(
        Finished(status=1, stdout=stdout, stderr=stderr), configuration=configuration, rtt_s=RTT_S
    )


def test_iperf3_says_what_the_receiver_counted():
    found = result("iperf3", json.dumps(iperf3_report()))
    assert (found["version"], found["bytes"], found["duration_s"]) == ("3.12", 100, 1.0)
    assert (found["retransmits"], found["congestion"], found["block_bytes"]) == (3, "cubic", 131072)
    assert found["cpu_s"] == pytest.approx({"sender": 0.1 * 100 / 120, "receiver": 0.22 * 100 / 120})
    assert [end for end, _ in found["samples"]] == pytest.approx([0.1, 0.95, 1.0])
    assert [moved for _, moved in found["samples"]] == [50, 40, 10]
    assert found["tcp"][0]["retransmits"] == [1, 3]
    assert found["tcp"][0]["srtt_s"] == [0.0118, 0.0118]
    # Buffers that the kernel tunes are reported as they were at the start, which says nothing of the end.
    assert "buffers" not in found


def test_iperf3_without_a_server_report_failed():
    report = iperf3_report()
    del report["server_output_json"]
    with pytest.raises(MoverError, match="server did not report its intervals"):
        result("iperf3", json.dumps(report))


def test_a_run_that_ended_early_failed():
    report = iperf3_report()
    report["server_output_json"]["intervals"].pop()
    with pytest.raises(MoverError, match="end after 1 s, before the 1 s that were asked"):
        result("iperf3", json.dumps(report))


def test_iperf3_that_was_granted_something_else_failed():
    report = iperf3_report()
    report["end"]["sender_tcp_congestion"] = "bbr"
    with pytest.raises(MoverError, match="asked for congestion control cubic and used bbr"):
        result("iperf3", json.dumps(report))


@pytest.mark.parametrize(
    ("stdout", "said"),
    [
        ('{"error": "unable to connect to server"}', "iperf3: unable to connect to server"),
        ("", "status 1 and said nothing"),
        ("{}", "cannot be understood: KeyError at 'end'"),
        ("[]", "cannot be understood"),
        ("1" + "0" * 5000, "10000"),
    ],
)
def test_iperf3_that_failed_is_told_in_its_words(stdout, said):
    with pytest.raises(MoverError, match=said):
        result("iperf3", stdout)


def nuttcp_interval(mebibytes):
    return f"megabytes={mebibytes:.4f} real_sec=0.10 rate_Mbps={mebibytes * 8 * 1.048576 / 0.1:.4f}"


def test_nuttcp_says_what_the_receiver_counted_in_the_time():
    lines = [
        *map(nuttcp_interval, [0, *[100] * 15]),
        "",
        "megabytes=2000.0 real_seconds=2.00 rate_Mbps=8388.6080 tx_cpu=96 rx_cpu=31 retrans=4 rtt_ms=100.23",
    ]
    found = result("nuttcp", "\n".join(lines))
    # From 0.05 s of its clock to 1.05 s: half of the interval from 1.0 to 1.1 s.
    assert found["duration_s"] == 1.0
    assert found["bytes"] == pytest.approx(950 << 20, abs=16)
    assert found["cpu_s"]["sender"] == pytest.approx(2 * 0.96 * 950 / 2000, abs=0.001)
    assert found["retransmits"] == 4
    assert found["samples"][0] == [pytest.approx(0.05), 0]
    assert found["samples"][-1] == [1.0, pytest.approx(50 << 20, abs=16)]


def test_nuttcp_runs_for_as_long_as_its_intervals_are_told():
    command = MOVERS["nuttcp"].client("nuttcp", configuration=CUBIC, address="10.0.0.1", rtt_s=0.366)
    assert "-T3" in command


def test_nuttcp_that_failed_is_told_in_its_words():
    with pytest.raises(MoverError, match="nuttcp-t: Error: connection refused"):
        result("nuttcp", stderr="nuttcp-t: Error: connection refused\n")


@pytest.mark.parametrize(("interval_s", "asked"), [(None, None), (0.01, "10000000ns")])
def test_ours_is_asked_for_samples_as_the_plan_says(interval_s, asked):
    configuration = replace(CUBIC, interval_s=interval_s)
    command = MOVERS["farlink"].client("farlink", configuration=configuration, address="b", rtt_s=RTT_S)
    said = command[command.index("--interval") + 1] if "--interval" in command else None
    assert said == asked


@pytest.mark.parametrize(("block_bytes", "asked"), [(None, None), (65536, "65536B")])
def test_ours_is_asked_for_the_block_of_the_plan(block_bytes, asked):
    configuration = replace(CUBIC, block_bytes=block_bytes)
    command = MOVERS["farlink"].client("farlink", configuration=configuration, address="b", rtt_s=RTT_S)
    said = command[command.index("--block") + 1] if "--block" in command else None
    assert said == asked


def test_our_record_is_taken_as_it_is():
    assert result("farlink", 'noise\n{"outcome":"failed","extra":1}\n') == {"outcome": "failed", "extra": 1}
    with pytest.raises(MoverError, match="farlink: no route to host"):
        result("farlink", "", "farlink: no route to host\n")


A_FILE = Configuration(label="x", size_bytes=1000, buffer_bytes=65536, streams=4, options="-fast")


def test_globus_url_copy_is_asked_for_streams_buffers_and_options():
    command = MOVERS["globus-url-copy"].client(
        "/bin/guc", configuration=A_FILE, address="10.0.0.2", rtt_s=0.1
    )
    assert command[:6] == ("/bin/guc", "-fast", "-p", "4", "-tcp-bs", "65536")
    assert command[-1] == "ftp://10.0.0.2:2811/dev/shm/farlink/destination"


def test_rsync_has_the_buffer_at_both_ends():
    one = replace(A_FILE, streams=1, options="")
    wanted = "--sockopts=SO_SNDBUF=65536,SO_RCVBUF=65536"
    server = MOVERS["rsync"].server("rsync", configuration=one)
    assert wanted in server.command
    assert wanted in MOVERS["rsync"].client("rsync", configuration=one, address="10.0.0.2", rtt_s=0.1)


@pytest.mark.parametrize(
    ("mover", "said", "version"),
    [
        ("globus-url-copy", "globus-url-copy: 10.12\n", "10.12"),
        ("rsync", "rsync  version 3.2.7  protocol version 31\nCopyright\n", "3.2.7"),
        ("rsync", "rsync  version v3.2.3  protocol version 31\n", "3.2.3"),
        ("rsync", "no such thing", "unknown"),
    ],
)
def test_a_version_is_read_from_what_the_tool_says(mover, said, version):
    assert MOVERS[mover].version(said) == version


@pytest.mark.parametrize("mover", ["globus-url-copy", "rsync"])
def test_a_file_that_did_not_arrive_whole_failed(mover):
    def moved(arrived, status=0):
        finished = Finished(status=status, stdout="", stderr="it broke\n", wall_s=2.0, arrived_bytes=arrived)
        return MOVERS[mover].result(finished, configuration=A_FILE, rtt_s=RTT_S)

    assert moved(1000) == {"bytes": 1000, "duration_s": 2.0}
    with pytest.raises(MoverError, match="it ended well, and 999 of 1000 bytes were at the destination"):
        moved(999)
    with pytest.raises(MoverError, match="it broke"):
        moved(1000, status=1)


ANY = Configuration(label="x", mover="command", command="t {bytes}", size_bytes=1000)
TIMED = Configuration(label="x", mover="command", command="t {seconds}", duration_s=1.0)


def of_command(stdout, configuration=ANY):
    finished = Finished(status=0, stdout=stdout, stderr="", wall_s=2.0)
    return MOVERS["command"].result(finished, configuration=configuration, rtt_s=RTT_S)


def test_a_command_may_say_what_it_knows_better():
    assert of_command("done\n") == {"bytes": 1000, "duration_s": 2.0}
    said = '{"bytes": 900, "duration_s": 1.5, "retransmits": 2, "rtt_s": 9, "outcome": "failed"}\n'
    # What is the lab's to know is not taken from it.
    assert of_command(said) == {"bytes": 900, "duration_s": 1.5, "retransmits": 2}
    assert of_command(said + '{"unrelated": 1}\n[1]\n')["bytes"] == 900
    assert of_command('{"bytes": 77}', TIMED) == {"bytes": 77, "duration_s": 2.0}
    assert of_command(f'{{"bytes": 77}}\n1{"0" * 5000}\n', TIMED)["bytes"] == 77


def test_what_another_tool_means_by_names_of_ours_is_not_taken():
    said = '{"bytes": 9, "streams": [{"bytes": 9}], "limit_bps": "none", "protection": 1}'
    assert of_command(said) == {"bytes": 9, "duration_s": 2.0}


@pytest.mark.parametrize(
    ("stdout", "configuration", "said"),
    [
        ("", TIMED, "did not say how much it moved: let it print"),
        ('{"bytes": -1}', ANY, "no part of a record: bytes: -1 is not a whole number"),
        ('{"bytes": 1, "duration_s": "2"}', ANY, 'duration_s: "2" is not a number'),
        ('{"bytes": 1, "cpu_s": {"sender": "1"}}', ANY, 'cpu_s.sender: "1" is not a number'),
        ('{"bytes": NaN}', ANY, "not JSON"),
    ],
)
def test_what_a_command_says_wrongly_failed(stdout, configuration, said):
    with pytest.raises(MoverError, match=said):
        of_command(stdout, configuration)


def test_values_do_not_change_where_the_words_of_a_template_end():
    configuration = replace(ANY, command="t '{bytes} of {address}' {{x}}", port=7)
    command = MOVERS["command"].client("/bin/t", configuration=configuration, address="a b;c", rtt_s=0.1)
    assert command == ("/bin/t", "1000 of a b;c", "{x}")
