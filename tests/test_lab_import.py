"""What iperf3 prints over an emulated connection becomes the record that the connection allows."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from emulation import START_LIMIT_S, Emulation, farlink

if TYPE_CHECKING:
    from pathlib import Path

RTT_S = 0.2
RATE_BPS = 100_000_000
# The hexadecimal of 5201, and the state that is LISTEN: proc(5).
LISTENS = ":1451 "


@pytest.mark.parametrize("reverse", [False, True])
def test_a_run_over_a_connection_is_imported_as_it_was(tmp_path: Path, *, reverse: bool) -> None:
    report, out = tmp_path / "run.json", tmp_path / "out"
    options = ["--rate", "100mbit", "--rtt", "200ms", "--mtu", "1500"]
    with (
        Emulation(options=options) as connection,
        connection.background("b", "iperf3", "--server", "--one-off", "--json", "--interval", "0.1"),
    ):
        deadline = time.monotonic() + START_LIMIT_S
        while LISTENS not in connection.output("b", "cat", "/proc/net/tcp", "/proc/net/tcp6"):
            assert time.monotonic() < deadline
        client = ["iperf3", "--client", connection.address("b"), "--json", "--get-server-output"]
        client += ["--time", "2", "--interval", "0.1", *(["--reverse"] if reverse else [])]
        report.write_text(connection.output("a", *client))
    ended = farlink("lab", "import", "iperf3", str(report), "--out", str(out), "--rate", "100mbit")
    assert ended.status == 0, ended
    record = json.loads((out / "records.jsonl").read_text())
    assert (record["outcome"], record["mode"], record["duration_s"]) == ("ok", "duration", 2.0)
    # The kernel measures no less than the link's delay; the queue and the machine add to it.
    assert RTT_S * 0.99 <= record["rtt_s"] < 2 * RTT_S
    assert record["mtu"] == 1500
    assert record["goodput_bps"] < RATE_BPS
    # By the receiver's clock nothing arrives within a round trip of its start; in reverse that clock starts
    # with the first byte, and half a round trip has passed before its first interval ends.
    if reverse:
        assert record["samples"][0][0] > record["rtt_s"] / 2
    else:
        first = RTT_S - record["rtt_s"] / 2
        assert sum(arrived for end, arrived in record["samples"] if end <= first) == 0
    assert sum(arrived for _, arrived in record["samples"]) == record["bytes"] > 0
    # Never more than the rate allows.
    assert 8 * record["bytes"] <= RATE_BPS * (record["duration_s"] - RTT_S / 2)
    assert len(record["tcp"]) == 1
