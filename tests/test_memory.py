"""Memory moved between emulated hosts by the real programs, and the record of it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest

from emulation import FARLINK, MARK, START_LIMIT_S, Emulation, marked, next_line, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def served(pair: Emulation) -> Iterator[Emulation]:
    """The pair with `farlink serve` on host b."""
    with serving(pair):
        yield pair


@contextlib.contextmanager
def serving(emulation: Emulation, *options: str) -> Iterator[subprocess.Popen[str]]:
    """`farlink serve` on host b, listening."""
    with emulation.background("b", str(FARLINK), "serve", *options) as server:
        assert server.stdout is not None
        assert next_line(server.stdout, server).startswith("listening on ")
        yield server


def moved(emulation: Emulation, *options: str, host: str = "b") -> dict[str, Any]:
    """The record of a transfer from a that succeeds."""
    record: dict[str, Any] = json.loads(
        emulation.output("a", str(FARLINK), "memory", host, *options, "--json", "--quiet")
    )
    assert record["outcome"] == "ok"
    return record


def test_a_fixed_size_arrives_whole(served: Emulation) -> None:
    record = moved(served, "--bytes", "32MiB")
    assert (record["kind"], record["mode"], record["bytes"]) == ("memory", "size", 32 << 20)
    assert sum(count for _, count in record["samples"]) == record["bytes"]
    # Nothing is faster than the limit: half a round trip and the bytes at the goodput.
    assert record["duration_s"] >= record["rtt_s"] / 2 + record["bytes"] * 8 / record["goodput_bps"] * 0.99


@pytest.mark.parametrize("way", [(), ("--reverse",)], ids=["forward", "reverse"])
def test_no_more_than_a_limit_leaves(served: Emulation, way: tuple[str, ...]) -> None:
    record = moved(served, "--seconds", "1", "--limit", "40mbit", "--streams", "2", *way)
    # A first window of each goes at once.
    assert 0 < record["bytes"] * 8 <= 40e6 * 1.0 * 1.1 + 2 * 10 * 9000 * 8
    assert record["limit_bps"] == 40e6
    assert "declared_bps" not in record


def test_a_transfer_comes_from_the_address_that_was_named(served: Emulation) -> None:
    other = "198.18.0.78"
    (device,) = set(served.output("a", "ls", "/sys/class/net").split()) - {"lo"}
    served.output("a", "ip", "address", "add", f"{other}/32", "dev", device)
    words = [
        str(FARLINK),
        "memory",
        served.address("b"),
        "--bind",
        other,
        "--streams",
        "2",
        "--seconds",
        "30",
    ]
    try:
        with served.background("a", *words, "--verbose") as running:
            assert running.stderr is not None
            next_line(running.stderr, running)
            shown = served.output("a", "ss", "-tnHO", "state", "established", "dport", "= :5210")
            running.send_signal(signal.SIGINT)
            running.communicate()
    finally:
        served.output("a", "ip", "address", "del", f"{other}/32", "dev", device)
    # Control and two of data.
    assert [line.split()[2].rpartition(":")[0] for line in shown.splitlines()] == [other] * 3
    # Which is this host's no longer.
    ended = served.on("a", *words)
    assert ended.status == 2
    assert other in ended.complaint


def test_a_fixed_duration_lasts_its_time_and_counts_only_what_arrived_in_it(served: Emulation) -> None:
    record = moved(served, "--seconds", "1")
    assert (record["mode"], record["duration_s"]) == ("duration", 1.0)
    assert 0 < record["bytes"] * 8 <= record["goodput_bps"] * 1.0 * 1.01
    assert sum(count for _, count in record["samples"]) == record["bytes"]
    assert all(0 < t <= 1.0 + 1e-9 for t, _ in record["samples"])


def test_the_record_knows_the_connection_and_both_ends(served: Emulation) -> None:
    asked = ["--bytes", "32MiB", "--streams", "3", "--congestion", "reno", "--buffer", "1MiB"]
    record = moved(served, *asked, host=served.address("b"))
    shown = served.show()
    for field in ("rate_bps", "rtt_s", "loss", "queue_bytes", "background_bps", "framing", "mtu", "seed"):
        assert record[field] == shown[field], field
    assert record["goodput_bps"] == pytest.approx(shown["goodput_bps"])
    assert (record["streams"], record["congestion"], record["buffer_bytes"]) == (3, "reno", 1 << 20)
    assert min(record["buffers"].values()) >= 1 << 20
    assert (record["source"], record["destination"]) == ("a", "b")
    assert (record["tool"], record["protection"], record["schema"]) == ("farlink", "clear", 1)
    assert record["cpu_s"].keys() == {"sender", "receiver"}
    assert record["hosts"]["source"]["kernel"] == os.uname().release
    assert record["emulator"].keys() - {"stolen_s"} == {"late_max_s", "late_p99_s", "overrun"}
    assert {trace["stream"] for trace in record["tcp"]} == {0, 1, 2}
    for trace in record["tcp"]:
        lengths = {
            len(trace[column]) for column in ("t_s", "cwnd_bytes", "srtt_s", "retransmits", "pacing_bps")
        }
        assert len(lengths) == 1


def test_setup_takes_at_least_two_of_its_round_trips(served: Emulation) -> None:
    # The connection and the request: no payload may leave before, and that time is not hidden.
    assert moved(served, "--bytes", "1MiB")["setup_s"] >= 2 * 0.010 * 0.99


def test_the_far_end_sends_where_that_is_asked(served: Emulation) -> None:
    record = moved(served, "--bytes", "8MiB", "--reverse", "--streams", "2")
    assert record["bytes"] == 8 << 20
    assert (record["source"], record["destination"]) == ("b", "a")


@pytest.mark.parametrize("port", ["", ":5210"])
@pytest.mark.parametrize("ipv6", [False, True], ids=["IPv4", "IPv6"])
def test_addresses_of_both_families_with_and_without_port(served: Emulation, port: str, ipv6: bool) -> None:
    address = served.address("b", ipv6=ipv6)
    host = f"[{address}]{port}" if ipv6 and port else f"{address}{port}"
    assert moved(served, "--bytes", "1MiB", host=host)["bytes"] == 1 << 20


def test_many_streams_share_the_bytes(served: Emulation) -> None:
    # Not a multiple of the streams, nor of any block.
    length = 10_000_019
    assert moved(served, "--bytes", f"{length}B", "--streams", "32")["bytes"] == length


@pytest.mark.parametrize("zero_copy", ["yes", "no"])
def test_blocks_threads_and_copies_are_as_asked(served: Emulation, zero_copy: str) -> None:
    asked = ["--block", "64KiB", "--threads", "2", "--zero-copy", zero_copy]
    record = moved(served, "--bytes", "8MiB", "--streams", "3", *asked)
    assert (record["bytes"], record["block_bytes"]) == (8 << 20, 64 << 10)
    assert record["zero_copy"] == (zero_copy == "yes")


def test_transfers_at_the_same_time_are_kept_apart(served: Emulation) -> None:
    lengths = [1_000_001, 2_000_003, 4_000_007]
    command = [str(FARLINK), "memory", "b", "--json", "--quiet", "--bytes"]
    running = [
        subprocess.Popen(served.command("a", *command, f"{length}B"), stdout=subprocess.PIPE, text=True)
        for length in lengths
    ]
    for process, length in zip(running, lengths, strict=True):
        stdout, _ = process.communicate(timeout=60)
        assert json.loads(stdout)["bytes"] == length


def test_a_person_gets_a_summary_and_a_quiet_one_nothing(served: Emulation) -> None:
    said = served.output("a", str(FARLINK), "memory", "b", "--bytes", "1MiB")
    assert "Gb/s" in said or "Mb/s" in said
    assert served.output("a", str(FARLINK), "memory", "b", "--bytes", "1MiB", "--quiet") == ""


def test_records_are_appended_one_a_line(served: Emulation, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text('{"of": "another mover"}\n')
    for _ in range(2):
        served.output("a", str(FARLINK), "memory", "b", "--bytes", "1MiB", "--record", str(path), "--quiet")
    first, *ours = path.read_text().splitlines()
    assert first == '{"of": "another mover"}'
    records = [json.loads(line) for line in ours]
    assert [record["bytes"] for record in records] == [1 << 20, 1 << 20]
    assert records[0]["id"] != records[1]["id"]


@contextlib.contextmanager
def long_transfer(emulation: Emulation, path: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A transfer that would last a minute, once it has lasted for several intervals."""
    way = ("b", "a") if "--reverse" in options else ("a", "b")
    before = arrived(emulation, way)
    process = subprocess.Popen(
        emulation.command(
            "a", str(FARLINK), "memory", "b", "--seconds", "60", "--record", str(path), *options
        ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, MARK: emulation.mark},
        # As a shell starts it: Ctrl-C goes to the group.
        start_new_session=True,
    )
    try:
        while arrived(emulation, way) < before + (64 << 20):
            assert process.poll() is None, process.communicate()
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def arrived(emulation: Emulation, way: tuple[str, str]) -> int:
    """Bytes that were offered from one host to the other so far."""
    return sum(each["bytes"] for each in emulation.show()["links"] if (each["from"], each["to"]) == way)


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_ends_it_and_keeps_what_was_measured(served: Emulation, tmp_path: Path, times: int) -> None:
    path = tmp_path / "records.jsonl"
    with long_transfer(served, path) as process:
        # Twice at once, as timeout(1) does: to the process, and to its group.
        for _ in range(times):
            os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=START_LIMIT_S)
        assert process.returncode == 130
    (line,) = path.read_text().splitlines()
    record = json.loads(line)
    assert record["outcome"] == "interrupted"
    assert record["bytes"] > 0


@pytest.mark.parametrize("options", [(), ("--reverse", "--interval", "10s")])
def test_a_far_side_that_dies_midway_is_one_line_and_a_record(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    path = tmp_path / "records.jsonl"
    with Emulation(options=["--rate", "1gbit", "--rtt", "10ms"]) as emulation, serving(emulation) as server:
        begun = time.monotonic()
        with long_transfer(emulation, path, *options) as process:
            for victim, command in marked(emulation.mark).items():
                if " serve" in command and "farlink on" not in command.replace(str(FARLINK), "farlink"):
                    os.kill(victim, signal.SIGKILL)
            _, stderr = process.communicate(timeout=START_LIMIT_S)
            assert process.returncode == 2, stderr
            lasted = time.monotonic() - begun
        server.wait(timeout=START_LIMIT_S)
    complaints = [line for line in stderr.splitlines() if line.startswith("farlink: ")]
    assert len(complaints) == 1, stderr
    record = json.loads(path.read_text())
    assert record["outcome"] == "failed"
    assert record["error"]
    assert record["bytes"] > 0
    assert record["duration_s"] < lasted, "an interval that did not end counts as far as it went"


def test_a_connection_that_is_cut_midway_is_an_error_within_the_timeout(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    with Emulation(options=["--rate", "1gbit", "--rtt", "10ms"]) as emulation, serving(emulation):
        with long_transfer(emulation, path, "--timeout", "2s") as process:
            emulation.change("--cut")
            process.communicate(timeout=START_LIMIT_S)
            assert process.returncode == 2
        assert json.loads(path.read_text())["outcome"] == "failed"


def test_a_server_ends_cleanly_when_asked() -> None:
    # On loopback: no other host sees it.
    process = subprocess.Popen(
        [str(FARLINK), "serve", "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert next_line(process.stdout, process).startswith("listening on ")
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=START_LIMIT_S)
    assert (process.returncode, stderr) == (0, "")


def test_a_server_listens_on_loopback_alone_unless_told_otherwise() -> None:
    process = subprocess.Popen(
        [str(FARLINK), "serve", "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        next_line(process.stdout, process)
        listening = run(["ss", "--no-header", "--listening", "--tcp", "--numeric", "--processes"]).stdout
        ours = [line.split()[3] for line in listening.splitlines() if f"pid={process.pid}," in line]
        assert ours
        assert all(address.startswith(("127.", "[::1]")) for address in ours), ours
        # The kernel's choice is the same for every address, and the next is for the data of circuits.
        port, *others = sorted({int(address.rpartition(":")[2]) for address in ours})
        assert others == [port + 1]
    finally:
        process.terminate()
        process.communicate()


def test_a_buffer_that_no_window_of_the_connection_holds_is_refused_with_the_mend() -> None:
    with Emulation(options=["--rate", "1gbit"]) as emulation:
        # A connection's window is scaled for what a host lets buffers grow to when it begins.
        emulation.output("b", "sysctl", "-qw", "net.ipv4.tcp_rmem=4096 131072 6291456")
        with serving(emulation):
            words = ("--bytes", "1MiB", "--buffer", "256MiB")
            ended = emulation.on("a", str(FARLINK), "memory", "b", *words)
            assert ended.status == 2, ended
            assert "a connection's window is " in ended.complaint
            assert "sysctl -w net.ipv4.tcp_rmem='4096 131072 268435456'" in ended.complaint
            # Who dials says beforehand how wide it will be.
            assert moved(emulation, *words, "--reverse")["bytes"] == 1 << 20
