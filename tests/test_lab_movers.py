"""Other people's tools as movers of the lab: each for real, over an emulated connection, at small sizes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from emulation import FARLINK, MARK, START_LIMIT_S, farlink, marked, wait_until
from test_congestion import needs_loading

if TYPE_CHECKING:
    from pathlib import Path

SIZE = 8_000_000
CONNECTION = """
rtts = ["20ms"]
[connection]
rate = "500mbit"
congestion = "cubic"
"""


def measured(directory: Path, configurations: str, *, status: int = 0) -> list[dict[str, Any]]:
    """The records of a plan with `configurations`, in the order of their labels."""
    plan, out = directory / "plan.toml", directory / "out"
    plan.write_text(CONNECTION + configurations)
    ended = farlink("lab", "profile", str(plan), "--out", str(out))
    assert ended.status == status, ended
    return sorted(records(out), key=lambda record: record["lab"]["configuration"])


def records(out: Path) -> list[dict[str, Any]]:
    """What a campaign wrote."""
    return [json.loads(line) for line in (out / "records.jsonl").read_text().splitlines()]


def is_a_whole_file(record: dict[str, Any], *, rtt_s: float = 0.02) -> None:
    """Whether all of it arrived, in a time that the connection allows, at a cost to both ends."""
    assert record["outcome"] == "ok", record
    assert (record["kind"], record["mode"], record["bytes"], record["files"]) == ("file", "size", SIZE, 1)
    # No tool is done before the bytes have passed the bottleneck.
    assert record["duration_s"] > rtt_s + 8 * SIZE / record["rate_bps"]
    assert record["cpu_s"]["sender"] > 0
    assert record["cpu_s"]["receiver"] > 0
    ends = [end for end, _ in record["samples"]]
    assert ends == sorted(set(ends))
    assert ends[-1] == record["duration_s"]
    assert sum(arrived for _, arrived in record["samples"]) == SIZE
    assert record["hosts"]["destination"]["file_system"] == "tmpfs"
    assert record["congestion"] == "cubic"
    assert "setup_s" not in record


def test_gridftp_moves_a_file_with_one_stream_and_with_several(tmp_path: Path) -> None:
    found = measured(
        tmp_path,
        f"""
[[configuration]]
label = "{{streams}} {{options}} {{buffer}}"
mover = "globus-url-copy"
options = ["", "-fast"]
streams = [1, 3]
bytes = {SIZE}
[[configuration]]
label = "windows"
mover = "globus-url-copy"
buffer = "256KiB"
bytes = {SIZE}
""",
    )
    assert len(found) == 5
    for record in found:
        is_a_whole_file(record)
        assert record["tool"] == "globus-url-copy"
        assert record["version"][0].isdigit()
        words = record["lab"]["command"].split()
        assert ("-p" in words) == (record["streams"] > 1)
        assert ("-fast" in words) == ("-fast" in record["lab"]["configuration"])
    # 256 KiB a round trip of 20 ms are 105 Mb/s, doubled by the kernel at most.
    window = found[-1]
    assert window["buffer_bytes"] == 262144
    assert 8 * SIZE / window["duration_s"] < 2 * 8 * 262144 / 0.02


def test_iperf3_gets_a_congestion_control_that_only_we_can_load(tmp_path: Path) -> None:
    needs_loading("scalable")
    found = measured(
        tmp_path,
        """
[[configuration]]
label = "{mover} {congestion}"
mover = ["iperf3", "farlink"]
congestion = ["cubic", "scalable"]
seconds = 1
""",
    )
    assert all(record["outcome"] == "ok" for record in found), found
    assert sorted((record["tool"], record["congestion"]) for record in found) == [
        ("farlink", "cubic"),
        ("farlink", "scalable"),
        ("iperf3", "cubic"),
        ("iperf3", "scalable"),
    ]


def test_rsync_moves_a_file_to_a_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    (record,) = measured(tmp_path, f'[[configuration]]\nmover = "rsync"\nbytes = {SIZE}\n')
    is_a_whole_file(record)
    assert record["tool"] == "rsync"
    assert record["version"][0].isdigit()
    assert "rsync://" in record["lab"]["command"]
    # A daemon opens its log by the name that it finds behind a link, also that of a file without one.
    assert list(scratch.iterdir()) == []


def test_any_command_is_a_mover(tmp_path: Path) -> None:
    found = measured(
        tmp_path,
        f"""
[[configuration]]
label = "a size"
command = "iperf3 --client {{address}} --port {{port}} --bytes {{bytes}} --parallel {{streams}}"
server = "iperf3 --server --one-off --port {{port}}"
port = 7001
streams = 2
bytes = {SIZE}
[[configuration]]
label = "b says its own bytes"
command = '''sh -c 'sleep {{seconds}}; printf "%s\\n" "$0"' '{{{{"bytes": 125, "retransmits": 3}}}}' '''
seconds = 0.5
[[configuration]]
label = "c fails"
command = '''sh -c 'echo the far side is closed for {{bytes}} bytes >&2; exit 3' '''
bytes = {SIZE}
[[configuration]]
label = "d moves nothing"
command = "test -s {{source}}"
server = "sh -c 'echo ready; exec sleep 600'"
ready = "ready"
bytes = {SIZE}
[[configuration]]
label = "e leaves the destination empty"
command = "test ! -e {{destination}} -a {{bytes}} -gt 0"
bytes = {SIZE}
""",
        status=1,
    )
    size, said, failed, source, empty = found
    assert (size["outcome"], size["tool"], size["version"], size["bytes"]) == (
        "ok",
        "iperf3",
        "unknown",
        SIZE,
    )
    assert (size["kind"], size["streams"]) == ("memory", 2)
    assert size["duration_s"] > 8 * SIZE / size["rate_bps"]
    assert size["cpu_s"]["sender"] > 0
    assert size["cpu_s"]["receiver"] > 0
    assert (said["outcome"], said["mode"], said["bytes"], said["retransmits"]) == ("ok", "duration", 125, 3)
    assert said["duration_s"] >= 0.5
    # Without a server there is no second end whose cost could be seen.
    assert "cpu_s" not in said
    assert failed["outcome"] == "failed"
    assert failed["error"] == f"the far side is closed for {SIZE} bytes"
    assert source["outcome"] == "ok"
    assert empty["outcome"] == "failed"
    assert f"0 of {SIZE} bytes were at the destination" in empty["error"]


def test_files_are_gone_after_each_run(tmp_path: Path) -> None:
    plan = f"""
repetitions = 3
{CONNECTION}
[[configuration]]
label = "file"
command = "test -s {{source}} -a ! -e {{destination}}"
bytes = {SIZE}
[[configuration]]
label = "look"
command = "test ! -e /dev/shm/farlink -a {{bytes}} -gt 0"
server = "sh -c 'test ! -e /dev/shm/farlink && echo ready && exec sleep 600'"
ready = "ready"
bytes = {SIZE}
"""
    (tmp_path / "plan.toml").write_text(plan)
    ended = farlink("lab", "profile", str(tmp_path / "plan.toml"), "--out", str(tmp_path / "out"))
    assert ended.status == 1, "the file is not there in the end"
    looks = [each for each in records(tmp_path / "out") if each["lab"]["configuration"] == "look"]
    assert [(each["outcome"], each.get("error")) for each in looks] == [("ok", None)] * 3


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_a_file_mover_that_a_signal_ended(tmp_path: Path, how: signal.Signals) -> None:
    mark, begun, temporary = uuid.uuid4().hex, tmp_path / "begun", tmp_path / "tmp"
    temporary.mkdir()
    (tmp_path / "plan.toml").write_text(
        f"""{CONNECTION}
[[configuration]]
label = "slow"
command = "sh -c 'test -s {{source}} && : > {begun} && exec sleep 600'"
server = "sh -c 'echo half > {{destination}} && echo ready && exec sleep 600'"
ready = "ready"
bytes = {SIZE}
"""
    )
    lab = subprocess.Popen(
        [str(FARLINK), "lab", "profile", str(tmp_path / "plan.toml"), "--out", str(tmp_path / "out")],
        env={**os.environ, MARK: mark, "TMPDIR": str(temporary)},
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    wait_until(begun.exists)
    lab.send_signal(how)
    lab.wait(timeout=START_LIMIT_S)
    wait_until(lambda: not marked(mark))
    if how == signal.SIGINT:
        assert lab.returncode == 130
        (record,) = records(tmp_path / "out")
        assert (record["outcome"], record["kind"]) == ("interrupted", "file")
    assert not list(temporary.iterdir())


@pytest.mark.parametrize("mover", ["rsync", "globus-url-copy"])
def test_a_tool_that_is_missing_is_one_line_with_how_to_install_it(tmp_path: Path, mover: str) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(f'{CONNECTION}[[configuration]]\nmover = "{mover}"\nbytes = "1MB"\n')
    needed = {"rsync": "rsync", "globus-url-copy": "globus-gass-copy-progs"}[mover]
    empty = tmp_path / "empty"
    empty.mkdir()
    ended = farlink("lab", "profile", str(plan), "--out", str(tmp_path / "out"), env={"PATH": str(empty)})
    assert ended.status == 2
    assert f"{mover} is not installed and the plan needs it: run 'apt install {needed}'" in ended.complaint
