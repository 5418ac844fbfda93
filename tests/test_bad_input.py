"""Whatever is wrong with what was asked: one clear line that names it, exit code 2, and nothing lost."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import threading
import uuid
from typing import TYPE_CHECKING

import pytest

from emulation import FARLINK, Emulation, farlink, next_line, refused, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RTT = ("--rtt", "1ms")
TRUE = ("--", "true")

# What is asked, and the words that the one line must have: the value, and the mend.
EMULATE: dict[tuple[str, ...], tuple[str, ...]] = {
    ("--rate", "10"): ('"10"', "no unit", "10gbit"),
    ("--rate", "10g"): ('"10g"', "gbit"),
    ("--rate", "fast"): ('"fast"', "10gbit"),
    ("--rate", "1.25GB/s"): ('"1.25GB/s"', "bytes", "10gbit"),
    ("--rate", "0gbit"): ('"0gbit"', "zero"),
    ("--rate", "1e9tbit"): ('"1e9tbit"', "at most"),
    ("--rate=-1gbit",): ("-1gbit", "10gbit"),
    ("--rtt", "91.6"): ('"91.6"', "no unit", "91.6ms"),
    ("--rtt", "1e9h"): ('"1e9h"',),
    ("--rtt", "2h"): ("RTT", "7200s", "at most"),
    ("--rtt=-1ms",): ("-1ms", "91.6ms"),
    ("--queue", "50"): ('"50"', "50ms or 62.5MB"),
    ("--queue", "0B"): ("queue",),
    ("--loss", "101%"): ('"101%"',),
    ("--loss", "every:0"): ('"every:0"', "every:1000"),
    ("--loss", "often"): ("often",),
    ("--jitter", "5"): ('"5"', "no unit"),
    ("--duplicate", "2"): ('"2"',),
    ("--corrupt", "lots"): ('"lots"',),
    ("--reorder", "1%,5"): ('"5"', "no unit"),
    ("--background", "3"): ('"3"', "no unit"),
    ("--background", "3gbit,sometimes"): ("sometimes", "on-off:100ms"),
    ("--rate", "1gbit", "--background", "2gbit"): ("background", "keep it below"),
    ("--jitter", "5ms"): ("one-way",),
    ("--prefault", "2"): ('"2"', "no unit"),
    ("--framing", "token-ring"): ("token-ring", "ethernet", "sonet", "none"),
    ("--framing", "sonet", "--rate", "10gbit"): ("sonet", "9.58464"),
    ("--mtu", "67"): ("67",),
    ("--mtu", "70000"): ("70000",),
    ("--mtu", "large"): ("large",),
    ("--hosts", "1"): ("1", "2", "32"),
    ("--hosts", "33"): ("33", "32"),
    ("--seed", "x"): ("x",),
    ("--congestion", "nosuch"): ("nosuch", "cubic"),
    ("--name", ""): ("name",),
    ("--name", "a/b"): ("a/b",),
    ("--name", "x" * 200): ("name",),
    ("--nosuch",): ("--nosuch",),
}


@pytest.mark.parametrize("options", EMULATE, ids=" ".join)
def test_emulate_refuses(options: tuple[str, ...]) -> None:
    # Where the RTT is not what is wrong, it is given.
    rtt = () if options[0].startswith("--rtt") else RTT
    complaint = refused("emulate", *rtt, *options, *TRUE)
    for words in EMULATE[options]:
        assert words in complaint


# Of each verb that takes quantities: one below zero, as people write it, and what the one line must say.
BELOW_ZERO: dict[tuple[str, ...], tuple[str, ...]] = {
    ("emulate", "--rate", "-1gbit"): ("--rate", "below zero", "10gbit"),
    ("emulate", "--rtt", "-5ms"): ("--rtt", "below zero", "91.6ms"),
    ("emulate", "--rtt", "-.5ms"): ("--rtt", "below zero", "91.6ms"),
    ("emulate", "--queue", "-1MB"): ("--queue", "below zero", "2GiB"),
    ("emulate", "--loss", "-1%"): ("--loss", "0% to 100%"),
    ("emulate", "--background", "-3gbit"): ("--background", "below zero", "10gbit"),
    ("emulate", "--prefault", "-1GiB"): ("--prefault", "below zero", "2GiB"),
    ("emulate", "--mtu", "-9000"): ("--mtu",),
    ("emulate", "--hosts", "-2"): ("--hosts",),
    ("link", "wan", "--rate", "-1gbit"): ("--rate", "below zero", "10gbit"),
    ("link", "wan", "--rtt", "-5ms"): ("--rtt", "below zero", "91.6ms"),
    ("link", "wan", "--loss", "-1%"): ("--loss", "0% to 100%"),
    ("memory", "b", "--bytes", "-2GiB"): ("--bytes", "below zero", "2GiB"),
    ("memory", "b", "--circuit", "-1gbit"): ("--circuit", "below zero", "10gbit"),
    ("memory", "b", "--timeout", "-3s"): ("--timeout", "below zero", "91.6ms"),
    ("memory", "b", "-P", "-3"): ("--streams",),
    ("copy", "x", "b:/y", "--limit", "-1gbit"): ("--limit", "below zero", "10gbit"),
    ("copy", "x", "b:/y", "--length", "-1GiB"): ("--length", "below zero", "2GiB"),
    ("doctor", "--path", "-91.6ms,10gbit"): ("--path", "below zero", "91.6ms"),
    ("serve", "--connections", "-1"): ("--connections",),
}


@pytest.mark.parametrize("arguments", BELOW_ZERO, ids=" ".join)
def test_a_quantity_below_zero_is_refused_as_the_value_that_it_is(arguments: tuple[str, ...]) -> None:
    complaint = refused(*arguments)
    assert arguments[-1] in complaint
    for words in BELOW_ZERO[arguments]:
        assert words in complaint


HABITS: dict[str, tuple[str, ...]] = {
    "-avz": ("-a: ", "always copied"),
    "--ignore-existing": ("--ignore-existing: ", "no such option", "--update"),
    "--modify-window=1": ("--modify-window: ", "no such option"),
    "-P": ("--streams", "'x'", "rsync's -P"),
}


@pytest.mark.parametrize("option", HABITS)
def test_what_rsync_calls_otherwise_is_said(option: str) -> None:
    complaint = refused("copy", option, "x", "b:/y")
    for words in HABITS[option]:
        assert words in complaint


MEMORY: dict[tuple[str, ...], tuple[str, ...]] = {
    ("--congestion", "circuit"): ("--congestion", "--circuit RATE"),
    ("--circuit", "1kbit", "--streams", "512"): ("1kbit", "100kbit or more", "use fewer"),
    ("--circuit", "10tbit"): ("10000gbit", "up to 400gbit"),
    ("--circuit", "400gbit"): ("400gbit", "up to 340gbit", "--streams 2"),
    ("--bytes", "2"): ('"2"', "no unit", "2GiB"),
    ("--bytes", "2G"): ('"2G"', "GiB"),
    ("--bytes", "0B"): ("0",),
    ("--seconds", "0"): ("0",),
    ("--seconds", "-1"): ("-1",),
    ("--seconds", "nan"): ("nan",),
    ("--bytes", "1MiB", "--seconds", "1"): ("--bytes", "--seconds"),
    ("--streams", "0"): ("0", "512"),
    ("--streams", "1000"): ("1000", "512"),
    ("--streams", "many"): ("many",),
    ("--buffer", "64"): ('"64"', "no unit"),
    ("--buffer", "0MiB"): ("0",),
    ("--block", "1"): ('"1"', "no unit"),
    ("--congestion", "nosuch"): ("nosuch", "cubic"),
    ("--timeout", "3"): ('"3"', "no unit"),
    ("--nosuch",): ("--nosuch",),
}


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    """The port of a `farlink serve` on loopback."""
    process = subprocess.Popen([str(FARLINK), "serve", "--port", "0"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = next_line(process.stdout, process)
        found = re.search(r"127\.0\.0\.1:(\d+)", line)
        assert found, line
        yield int(found[1])
    finally:
        process.terminate()
        process.wait()


@pytest.mark.parametrize("options", MEMORY, ids=" ".join)
def test_memory_refuses(server: int, options: tuple[str, ...]) -> None:
    complaint = refused("memory", f"127.0.0.1:{server}", *options)
    for words in MEMORY[options]:
        assert words in complaint


@pytest.mark.parametrize("host", ["", ":", "127.0.0.1:", "127.0.0.1:70000", "[::1", "127.0.0.1:x"])
def test_an_address_that_is_none_is_refused(host: str) -> None:
    refused("memory", host, "--bytes", "1MiB")


def test_a_host_that_nobody_knows_is_named() -> None:
    name = f"{uuid.uuid4().hex}.invalid"
    assert name in refused("memory", name, "--bytes", "1MiB", "--timeout", "5s")


def test_a_far_side_that_is_not_there_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    complaint = refused("memory", f"127.0.0.1:{port}", "--bytes", "1MiB")
    assert str(port) in complaint
    assert "farlink serve" in complaint


DOCTOR: dict[tuple[str, ...], tuple[str, ...]] = {
    ("--path", "91.6ms"): ('"91.6ms"', "91.6ms,10gbit"),
    ("--path", "91.6ms,10gbit,1%"): ("1%", "91.6ms,10gbit"),
    ("--path", ""): ("91.6ms,10gbit",),
    ("--path", "91.6,10gbit"): ('"91.6"', "no unit", "91.6ms"),
    ("--path", "91.6ms,10"): ('"10"', "no unit", "10gbit"),
    ("--path", "10gbit,91.6ms"): ('"10gbit"', "91.6ms"),
    ("--path", "0ms,10gbit"): ("0ms", "more than zero"),
    ("--path", "91.6ms,0gbit"): ('"0gbit"', "zero"),
    ("--path", "2h,10gbit"): ("2h", "at most"),
    ("--json", "--script"): ("--json", "--script"),
    ("--disk", "/no/such/directory"): ("/no/such/directory", "directory that you may write to"),
    ("--nosuch",): ("--nosuch",),
}


@pytest.mark.parametrize("options", DOCTOR, ids=" ".join)
def test_doctor_refuses(options: tuple[str, ...]) -> None:
    complaint = refused("doctor", *options)
    for words in DOCTOR[options]:
        assert words in complaint


@contextlib.contextmanager
def stranger(answer: bytes, *, then_wait: bool = False) -> Iterator[int]:
    """A server that is not ours: it says `answer` to every connection. Yields its port."""
    over = threading.Event()
    server = socket.create_server(("127.0.0.1", 0), backlog=64)
    peers = []

    def serve() -> None:
        with contextlib.suppress(OSError):
            while not over.is_set():
                peer, _ = server.accept()
                peers.append(peer)
                with contextlib.suppress(OSError):
                    peer.sendall(answer)
                    if not then_wait:
                        peer.shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield server.getsockname()[1]
    finally:
        over.set()
        # Wakes the thread from its accept.
        with contextlib.suppress(OSError):
            socket.create_connection(server.getsockname(), timeout=5).close()
        thread.join(timeout=5)
        server.close()
        for peer in peers:
            peer.close()


@pytest.mark.parametrize("streams", ["1", "4"])
def test_a_far_side_of_another_version_is_told_with_both_versions(streams: str) -> None:
    with stranger(b"farlink\n" + (99).to_bytes(2, "big")) as port:
        complaint = refused("memory", f"127.0.0.1:{port}", "--bytes", "1MiB", "--streams", streams)
    assert "version 99" in complaint
    assert "version 7" in complaint


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-x\r\n", b"", b"fa"])
def test_a_far_side_that_is_not_farlink_is_one_line(answer: bytes) -> None:
    with stranger(answer) as port:
        assert str(port) in refused("memory", f"127.0.0.1:{port}", "--bytes", "1MiB")


def test_a_far_side_that_says_nothing_is_one_line_after_the_timeout() -> None:
    with stranger(b"", then_wait=True) as port:
        assert str(port) in refused("memory", f"127.0.0.1:{port}", "--bytes", "1MiB", "--timeout", "1s")


def test_a_record_file_that_cannot_be_opened_is_told_before_anything_moves(server: int) -> None:
    path = "/no/such/directory/records.jsonl"
    ended = farlink("memory", f"127.0.0.1:{server}", "--bytes", "1MiB", "--record", path)
    assert ended.status == 2
    assert path in ended.complaint


def test_a_full_disk_under_the_record_loses_nothing(server: int) -> None:
    ended = farlink("memory", f"127.0.0.1:{server}", "--bytes", "1MiB", "--record", "/dev/full", "--quiet")
    assert ended.status == 2
    said = ended.stdout + ended.stderr
    assert '"bytes":1048576' in said, "the record is lost"
    assert any("/dev/full" in line for line in ended.stderr.splitlines())


def test_what_cannot_be_printed_is_told_and_no_success(server: int) -> None:
    for words in (["memory", f"127.0.0.1:{server}", "--bytes", "1MiB", "--json"], ["congestion", "--json"]):
        ended = run(["sh", "-c", '"$0" "$@" > /dev/full', str(FARLINK), *words])
        assert ended.status == 2, ended
        assert "write the standard output: No space left" in ended.complaint


def test_a_disk_that_fills_up_within_a_line_keeps_the_lines_before_it_whole(
    server: int, tmp_path: Path
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a disk that is this small")
    disk, kept = tmp_path / "disk", tmp_path / "kept.jsonl"
    disk.mkdir()
    # Two pages, but for what is less than any record.
    line = '{"of":"another mover"}\n'
    lines = line * ((2 * 4096 - 200) // len(line))
    kept.write_text(lines)
    script = f"""
        mount -t tmpfs -o size=8k,nr_inodes=8 farlink-test {disk} && cp {kept} {disk}/records.jsonl || exit 9
        "$@" --record {disk}/records.jsonl
        status=$?
        cat {disk}/records.jsonl > {kept}
        exit $status
    """
    memory = (str(FARLINK), "memory", f"127.0.0.1:{server}", "--bytes", "1MiB", "--quiet")
    ended = run(["unshare", "--mount", "sh", "-c", script, "sh", *memory])
    assert ended.status == 2, ended
    assert kept.read_text() == lines
    record = json.loads(ended.stdout)
    assert (record["bytes"], record["outcome"]) == (1 << 20, "ok")
    assert f"{disk}/records.jsonl: only " in ended.stderr
    # Nothing of the line stayed, and so nothing is said to have.
    assert "still there" not in ended.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--bind", "0.0.0.0"), ("0.0.0.0", "no keys", "farlink keygen")),
        (("--keys", "/no/such/keys"), ("identity", "farlink keygen")),
        (("--identity", "/no/such/key"), ("/no/such/key", "farlink keygen")),
        (("--connections", "0"), ("0",)),
        (("--user", "no such user"), ("no such user",)),
        (("--bind", "somewhere"), ("somewhere",)),
        (("--port", "70000"), ("70000",)),
        (("--port", "65535"), ("65535", "the data of circuits", "65534")),
        (("--port", "x"), ("x",)),
    ],
)
def test_serve_refuses(options: tuple[str, ...], words: tuple[str, ...]) -> None:
    complaint = refused("serve", *options)
    for each in words:
        assert each in complaint


def test_serve_on_a_port_that_is_taken_names_it(server: int) -> None:
    complaint = refused("serve", "--port", str(server))
    assert f"{server}, or the port after it: end who listens there" in complaint
    assert "--port" in complaint


def test_on_names_the_emulations_that_exist(pair: Emulation) -> None:
    unknown = f"no-{uuid.uuid4().hex[:8]}"
    complaint = refused("on", f"{unknown}/a", "--", "true")
    assert unknown in complaint
    assert pair.name in complaint


def test_on_an_emulated_host_says_that_no_emulation_is_seen_from_there(pair: Emulation) -> None:
    ended = pair.on("a", str(FARLINK), "on", f"{pair.name}/b", "--", "true")
    assert ended.status == 2
    assert "outside" in ended.complaint


def test_on_names_the_hosts_that_exist(pair: Emulation) -> None:
    complaint = refused("on", f"{pair.name}/z", "--", "true")
    assert all(f"{host}" in complaint for host in ("z", "a", "b"))


@pytest.mark.parametrize("target", ["", "/", "a", "{name}", "{name}/", "/a"])
def test_on_without_a_host_is_refused(pair: Emulation, target: str) -> None:
    refused("on", target.format(name=pair.name), "--", "true")


def test_on_a_host_a_command_that_is_not_there_is_named(pair: Emulation) -> None:
    name = f"no-such-{uuid.uuid4().hex}"
    ended = pair.on("a", name)
    assert ended.status == 127
    assert name in ended.complaint


LINK: dict[tuple[str, ...], tuple[str, ...]] = {
    ("--rtt", "10"): ('"10"', "no unit"),
    ("--rate", "10"): ('"10"', "no unit"),
    ("--loss", "101%"): ('"101%"',),
    ("--queue", "1"): ('"1"', "no unit"),
    ("--cut", "--restore"): ("--cut", "--restore"),
    ("--nosuch",): ("--nosuch",),
}


@pytest.mark.parametrize("options", LINK, ids=" ".join)
def test_link_refuses_and_changes_nothing(pair: Emulation, options: tuple[str, ...]) -> None:
    counted = {"links", "cpu_s", "stolen_s"}
    before = {key: value for key, value in pair.show().items() if key not in counted}
    complaint = refused("link", pair.name, *options)
    for words in LINK[options]:
        assert words in complaint
    assert {key: value for key, value in pair.show().items() if key not in counted} == before


def test_link_names_the_emulations_that_exist(pair: Emulation) -> None:
    unknown = f"no-{uuid.uuid4().hex[:8]}"
    complaint = refused("link", unknown, "--json")
    assert unknown in complaint
    assert pair.name in complaint


@pytest.mark.parametrize("pairing", ["/z", "/a..z", "/a..a", "/a..", "/..b"])
def test_link_refuses_hosts_that_are_not_there(pair: Emulation, pairing: str) -> None:
    refused("link", pair.name + pairing, "--cut")


def test_a_verb_that_is_none_is_one_line() -> None:
    assert "teleport" in refused("teleport")


def test_a_plan_with_an_unknown_key_is_named(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text("warp = 9\n")
    ended = farlink("lab", "profile", str(plan), "--out", str(tmp_path / "out"))
    assert ended.status == 2
    assert "warp" in ended.complaint


def test_a_plan_that_is_not_there_is_named(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    ended = farlink("lab", "profile", str(plan), "--out", str(tmp_path / "out"))
    assert ended.status == 2
    assert str(plan) in ended.complaint


def test_a_file_that_memory_cannot_hold_is_refused_before_anything_runs(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text('rtts = ["1ms"]\n[[configuration]]\ncommand = "cp {source} x"\nbytes = "1000TB"\n')
    ended = farlink("lab", "profile", str(plan), "--out", str(tmp_path / "out"))
    assert ended.status == 2
    assert "a file of 1000 TB is kept in memory at both ends" in ended.complaint
    assert (tmp_path / "out" / "records.jsonl").read_text() == ""


def test_a_report_that_is_none_is_named_with_the_reason(tmp_path: Path) -> None:
    report = tmp_path / "run.json"
    report.write_text('{"start":')
    ended = farlink("lab", "import", "iperf3", str(report), "--out", str(tmp_path / "out"))
    assert ended.status == 2
    assert f"{report}: not JSON at line 1" in ended.complaint


def test_a_report_of_another_tool_is_refused(tmp_path: Path) -> None:
    complaint = refused("lab", "import", "netperf", str(tmp_path / "x"), "--out", str(tmp_path / "out"))
    assert "netperf" in complaint
    assert "iperf3" in complaint


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (("--receivers", "0"), ("--receivers", "0", "1 to")),
        (("--receivers", "many"), ("--receivers", "whole number")),
        (("--size", "125"), ("--size", '"125"', "no unit")),
        (("--sender-rate", "fast"), ("--sender-rate", '"fast"', "10gbit")),
        (("--receiver-link", "0gbit"), ("--receiver-link", '"0gbit"', "zero")),
        (("--loss", "100%"), ("--loss", '"100%"', "less than 100%")),
        (("--loss", "some"), ("--loss", '"some"', "1%")),
        (("--rtt", "1h"), ("--rtt", '"1h"', "RTT")),
        (("--headers", "5"), ("--headers", '"5"', "100%")),
        (("--repair-rate", "0mbit"), ("--repair-rate", '"0mbit"', "zero")),
        (("--sender-rate", "1.25 GBps"), ("--sender-rate", '"1.25 GBps"', "bytes", "10gbit")),
        (("--sender-rate", "1e3MB/s"), ("--sender-rate", '"1e3MB/s"', "bytes", "8000mbit")),
    ],
    ids=lambda value: " ".join(value),
)
def test_a_group_that_cannot_be_is_refused(asked: tuple[str, str], words: tuple[str, ...]) -> None:
    good = {"--size": "125MB", "--receivers": "50", "--sender-rate": "1gbit", "--loss": "1%"}
    given = good | dict([asked])
    complaint = refused("lab", "latency", *(word for pair in given.items() for word in pair))
    assert all(word in complaint for word in words), complaint


def test_a_rate_of_repairs_where_nothing_is_lost_is_refused() -> None:
    words = ("--size", "125MB", "--receivers", "50", "--sender-rate", "1gbit", "--repair-rate", "1gbit")
    complaint = refused("lab", "latency", *words)
    assert "--repair-rate" in complaint
    assert "--loss" in complaint


def test_a_campaign_that_is_not_there_cannot_be_compared(tmp_path: Path) -> None:
    complaint = refused("lab", "compare", str(tmp_path / "gone"), str(tmp_path))
    assert str(tmp_path / "gone") in complaint


def test_records_that_are_not_there_are_named_by_what_analyses_them(tmp_path: Path) -> None:
    for words in (("analyse",), ("report",), ("advise", "--rtt", "91.6ms", "--bytes", "1GB")):
        verb, *options = words
        ended = farlink("lab", verb, str(tmp_path / "none"), *options)
        assert ended.status == 2
        assert str(tmp_path / "none") in ended.complaint
