"""What other tools print, read into the fields of a record and nothing else."""

from __future__ import annotations

import json

import pytest

from farlink_lab.movers import MOVERS, Finished, MoverError
from farlink_lab.plan import Configuration

CUBIC = Configuration(label="x", congestion="cubic", duration_s=1.0)


def stream(end, sent, window, again):
    return {"end": end, "bytes": sent, "snd_cwnd": window, "rtt": 11800, "retransmits": again}


def iperf3_report(**changes):
    return {
        "start": {"version": "iperf 3.12", "test_start": {"blksize": 131072}, "sndbuf_actual": 425984},
        "intervals": [{"streams": [stream(0.1, 10, 100, 1)]}, {"streams": [stream(0.2, 10, 200, 2)]}],
        "end": {
            "sum_sent": {"start": 0, "end": 1.0, "bytes": 130, "retransmits": 3},
            "sum_received": {"start": 0, "end": 1.01, "bytes": 120},
            "cpu_utilization_percent": {"host_total": 10.0, "remote_total": 20.0},
            "sender_tcp_congestion": "cubic",
        },
        "server_output_json": {
            "start": {"rcvbuf_actual": 425984},
            "intervals": [{"sum": {"end": 0.1, "bytes": 50}}, {"sum": {"end": 0.2, "bytes": 70}}],
        },
        **changes,
    }


def result(name, stdout="", stderr="", configuration=CUBIC):
    return MOVERS[name].result(Finished(status=1, stdout=stdout, stderr=stderr), configuration=configuration)


def test_iperf3_says_what_the_receiver_counted():
    found = result("iperf3", json.dumps(iperf3_report()))
    assert (found["version"], found["bytes"], found["duration_s"]) == ("3.12", 120, 1.01)
    assert (found["retransmits"], found["congestion"], found["block_bytes"]) == (3, "cubic", 131072)
    assert found["cpu_s"] == pytest.approx({"sender": 0.1, "receiver": 0.202})
    assert found["samples"] == [[0.1, 50], [0.2, 70]]
    assert found["tcp"][0]["retransmits"] == [1, 3]
    assert found["tcp"][0]["srtt_s"] == [0.0118, 0.0118]
    # Buffers that the kernel tunes are reported as they were at the start, which says nothing of the end.
    assert "buffers" not in found


def test_iperf3_without_a_server_report_has_no_samples():
    report = iperf3_report()
    del report["server_output_json"]
    assert "samples" not in result("iperf3", json.dumps(report))


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
    ],
)
def test_iperf3_that_failed_is_told_in_its_words(stdout, said):
    with pytest.raises(MoverError, match=said):
        result("iperf3", stdout)


def test_nuttcp_says_what_the_receiver_counted():
    lines = [
        "megabytes=205.8750 real_sec=0.10 rate_Mbps=17265.3851",
        "megabytes=211.8750 real_sec=0.10 rate_Mbps=17771.9414",
        "",
        "megabytes=2030.0 real_seconds=1.00 rate_Mbps=17032.0933 tx_cpu=96 rx_cpu=31 retrans=4 rtt_ms=0.23",
    ]
    found = result("nuttcp", "\n".join(lines))
    assert found["bytes"] == 2030 << 20
    assert 8 * found["bytes"] / found["duration_s"] == pytest.approx(17032.0933e6)
    assert found["cpu_s"]["sender"] == pytest.approx(0.96, abs=0.001)
    assert found["retransmits"] == 4
    assert [moved for _, moved in found["samples"]] == [215875584, 222167040]
    assert found["samples"][1][0] == pytest.approx(0.2, abs=0.001)


def test_nuttcp_that_failed_is_told_in_its_words():
    with pytest.raises(MoverError, match="nuttcp-t: Error: connection refused"):
        result("nuttcp", stderr="nuttcp-t: Error: connection refused\n")


def test_our_record_is_taken_as_it_is():
    assert result("farlink", 'noise\n{"outcome":"failed","extra":1}\n') == {"outcome": "failed", "extra": 1}
    with pytest.raises(MoverError, match="farlink: no route to host"):
        result("farlink", "", "farlink: no route to host\n")
