"""Campaigns over the fake `farlink`: order, resumption, faults and ends."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import pathlib
import signal
import subprocess
import time

import pytest

from farlink_lab.choice import choice_of
from farlink_lab.plan_file import read_plan
from farlink_lab.records import parse_record
from farlink_lab.run.campaign import CampaignError, settle_directory

PLAN = """
name = "small"
rtts = ["0.4ms", "11.8ms"]
repetitions = 2
[[configuration]]
label = "size"
congestion = "cubic"
bytes = "1MiB"
[[configuration]]
label = "duration"
congestion = "bbr"
seconds = 0.1
"""
RUNS = 8


def test_every_run_is_one_record_with_its_identity(lab):
    done = lab.run("profile", lab.plan(PLAN), "--out", lab.out)
    assert done.returncode == 0, done.stderr
    records = lab.records()
    assert len(records) == RUNS
    assert len({record["lab"]["run"] for record in records}) == RUNS
    assert all(record["outcome"] == "ok" and record["lab"]["plan"] == "small" for record in records)
    assert all(record["unknown_field"] == {"kept": True} for record in records)
    assert all(
        record["emulator"] == {"late_max_s": 0.0001, "late_p99_s": 0.0001, "overrun": False}
        for record in records
    )
    assert "farlink on" not in records[0]["lab"]["command"].split(" on ")[0]


def test_a_record_says_what_its_mover_was_told(lab):
    command = """sh -c 'printf "%s" "$0"; sleep {seconds}' '{{"bytes": 125}}'"""
    plan = PLAN + f"[[configuration]]\nlabel = \"any\"\nseconds = 0.1\ncommand = '''{command}'''\n"
    lab.run("profile", lab.plan(plan), "--out", lab.out)
    told = {record["lab"]["configuration"]: record for record in lab.records()}
    assert (told["any"]["bytes"], told["any"]["lab"]["template"]) == (125, command)
    assert choice_of(parse_record(json.dumps(told["any"]).encode())).template == command
    assert not {"template", "server", "options"} & told["size"]["lab"].keys()


def test_a_plan_that_has_its_name_from_its_file_goes_on_where_it_was(lab):
    plan = lab.plan(PLAN.replace('name = "small"\n', ""))
    for _ in range(2):
        done = lab.run("profile", plan, "--out", lab.out)
        assert done.returncode == 0, done.stderr
    done = lab.run("profile", lab.out / "plan.toml", "--out", lab.out)
    assert done.returncode == 0, done.stderr
    assert len(lab.records()) == RUNS
    assert read_plan(lab.out / "plan.toml").name == plan.stem


def test_an_emulation_serves_the_campaign_and_is_gone_after_it(lab):
    lab.run("profile", lab.plan(PLAN), "--out", lab.out)
    assert sum(call[0] == "emulate" for call in lab.log()) == 1
    assert not list((lab.home / "state").glob("lab-*.json"))


def test_a_finished_campaign_is_not_run_again(lab):
    plan = lab.plan(PLAN)
    lab.run("profile", plan, "--out", lab.out)
    calls = len(lab.log())
    done = lab.run("profile", plan, "--out", lab.out)
    assert done.returncode == 0
    assert len(lab.records()) == RUNS
    assert len(lab.log()) == calls


def test_only_what_is_missing_is_run(lab):
    plan = lab.plan(PLAN)
    lab.run("profile", plan, "--out", lab.out)
    path = lab.out / "records.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    # Cut within a line, as a crash would leave it.
    path.write_text("".join(lines[:5]) + lines[5][:40])
    done = lab.run("profile", plan, "--out", lab.out)
    assert "line 6: not JSON" in done.stderr
    kept = path.read_text().splitlines()
    assert kept[5] == lines[5][:40]
    runs = [json.loads(line)["lab"]["run"] for line in kept[:5] + kept[6:]]
    assert len(runs) == len(set(runs)) == RUNS


def test_a_disk_that_fills_under_the_plan_leaves_no_half_of_it(tmp_path, monkeypatch):
    path, out = tmp_path / "plan.toml", tmp_path / "out"
    path.write_text(PLAN, encoding="utf-8")
    plan = read_plan(path)

    def fill(to, text, **_):
        to.write_bytes(text[:40].encode())
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr(pathlib.Path, "write_text", fill)
        with pytest.raises(CampaignError, match="No space left on device"):
            settle_directory(plan, path=path, out=out)
    assert list(out.iterdir()) == []
    settle_directory(plan, path=path, out=out)
    assert (out / "plan.toml").read_text(encoding="utf-8") == PLAN


def test_a_changed_plan_is_refused_with_the_mend(lab):
    lab.run("profile", lab.plan(PLAN), "--out", lab.out)
    done = lab.run("profile", lab.plan(PLAN.replace("repetitions = 2", "repetitions = 3")), "--out", lab.out)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "differs in repetitions; name another --out" in done.stderr


BROKEN = """[[configuration]]
label = "broken"
command = "sh -c 'exit 3' {bytes}"
bytes = "1MiB"
"""


def test_a_configuration_of_which_no_run_succeeded_may_be_mended(lab):
    done = lab.run("profile", lab.plan(PLAN + BROKEN), "--out", lab.out)
    assert done.returncode == 1
    mended = PLAN + BROKEN.replace("exit 3", "exit 0")
    done = lab.run("profile", lab.plan(mended), "--out", lab.out)
    assert done.returncode == 0, done.stderr
    assert len(lab.records()) == RUNS + 4 + 4
    assert read_plan(lab.out / "plan.toml") == read_plan(lab.plan(mended))
    # What was measured well stays, and nothing is added.
    for text in (PLAN, mended.replace("1MiB", "2MiB"), mended + BROKEN.replace("broken", "more")):
        done = lab.run("profile", lab.plan(text), "--out", lab.out)
        assert done.returncode == 2
        assert "differs in configurations; name another --out" in done.stderr
    assert read_plan(lab.out / "plan.toml").configurations[-1].command == "sh -c 'exit 0' {bytes}"


def test_what_failed_may_be_left_out(lab):
    lab.run("profile", lab.plan(PLAN + BROKEN), "--out", lab.out)
    done = lab.run("profile", lab.plan(PLAN), "--out", lab.out)
    assert done.returncode == 0, done.stderr
    assert len(lab.records()) == RUNS + 4


def test_what_was_not_tried_yet_is_held_fast(lab):
    lab.run("profile", lab.plan(PLAN + BROKEN), "--out", lab.out)
    written = lab.out / "records.jsonl"
    kept = [line for line in written.read_text().splitlines() if "broken" not in line]
    written.write_text("\n".join(kept) + "\n")
    done = lab.run("profile", lab.plan(PLAN), "--out", lab.out)
    assert done.returncode == 2
    assert "differs in configurations" in done.stderr
    assert read_plan(lab.out / "plan.toml") == read_plan(lab.plan(PLAN + BROKEN))


def test_words_for_people_may_change(lab):
    lab.run("profile", lab.plan(PLAN), "--out", lab.out)
    done = lab.run("profile", lab.plan("# a comment\n" + PLAN + "\n"), "--out", lab.out)
    assert done.returncode == 0


def test_a_failed_run_is_a_record_and_is_run_again_only_when_asked(lab):
    plan = lab.plan(PLAN)
    done = lab.run("profile", plan, "--out", lab.out, FAKE_FAIL="11800000")
    assert done.returncode == 1
    assert "4 of 8 runs failed; the report names" in done.stderr
    failed = [record for record in lab.records() if record["outcome"] == "failed"]
    assert len(failed) == 4
    assert all(
        record["error"] == "farlink: connection refused" and record["rtt_s"] == 0.0118 for record in failed
    )
    done = lab.run("profile", plan, "--out", lab.out)
    assert done.returncode == 1
    assert "4 of 8 runs had failed before; the report names" in done.stderr
    assert len(lab.records()) == RUNS
    assert lab.run("search", plan, "--budget", "1h", "--out", lab.out).returncode == 1
    assert lab.run("profile", plan, "--out", lab.out, "--retry-failed").returncode == 0
    assert len(lab.records()) == RUNS + 4


def test_where_every_run_failed_nothing_is_said_to_be_best_and_it_is_no_success(lab):
    plan = lab.plan(PLAN.replace('"0.4ms", ', ""))
    for words in (("profile", plan), ("profile", plan), ("search", plan, "--budget", "9s")):
        done = lab.run(*words, "--out", lab.out, FAKE_FAIL="11800000")
        assert done.returncode == 2
        assert "each of 4 runs failed" in done.stderr.splitlines()[-1]
        assert "best" not in done.stdout


def test_an_emulation_that_cannot_start_is_one_line(lab):
    done = lab.run("profile", lab.plan(PLAN), "--out", lab.out, FAKE_REFUSE="1")
    assert done.returncode == 2
    assert done.stderr == "farlink: /dev/net/tun: permission denied: run it as root\n"


def test_an_emulation_that_dies_ends_the_campaign_and_keeps_the_record(lab):
    done = lab.run("profile", lab.plan(PLAN), "--out", lab.out, FAKE_DIE="1")
    assert done.returncode == 2
    assert "the emulation ended by itself; what was measured is kept" in done.stderr
    assert [record["outcome"] for record in lab.records()] == ["failed"]


def test_a_missing_tool_is_one_line_with_the_package(lab):
    plan = lab.plan('rtts = ["1ms"]\n[[configuration]]\nmover = "nuttcp"\nseconds = 1\n')
    done = lab.run("profile", plan, "--out", lab.out, PATH="/nonexistent")
    assert done.returncode == 2
    assert done.stderr == "farlink: nuttcp is not installed and the plan needs it: run 'apt install nuttcp'\n"


def test_movers_that_cannot_choose_get_hosts_whose_default_was_asked_for(lab):
    programs = lab.home / "bin"
    programs.mkdir()
    tool = programs / "nuttcp"
    said = (
        "megabytes=20.0 real_sec=2.00 rate_Mbps=83.8861\n"
        "megabytes=20.0 real_seconds=2.00 rate_Mbps=83.8861 tx_cpu=10 rx_cpu=20 retrans=0 rtt_ms=1.0"
    )
    tool.write_text(
        f'#!/bin/sh\ncase "$*" in -V) echo nuttcp-6.1.2;; *-1*nofork*) sleep 60;; *) echo "{said}";; esac\n'
    )
    tool.chmod(0o755)
    plan = lab.plan(
        'rtts = ["1ms"]\n[[configuration]]\nmover = ["farlink", "nuttcp"]\n'
        'congestion = ["cubic", "bbr"]\nseconds = 1\n'
    )
    done = lab.run("profile", plan, "--out", lab.out, PATH=f"{programs}:{os.environ['PATH']}")
    assert done.returncode == 0, done.stderr
    started = [call for call in lab.log() if call[0] == "emulate"]
    assert sorted(call[call.index("--congestion") + 1] for call in started) == ["bbr", "cubic"]
    names = {call[call.index("--congestion") + 1]: call[call.index("--name") + 1] for call in started}
    for record in lab.records():
        assert record["outcome"] == "ok", record
        assert names[record["congestion"]] in record["lab"]["command"]


def test_a_queue_of_its_own_is_there_while_a_configuration_is_measured(lab):
    plan = lab.plan(
        'rtts = ["1ms", "2ms"]\nrepetitions = 2\n'
        '[connection]\nqueue = "20ms"\nbackground = "3gbit,on-off:100ms"\n'
        '[[configuration]]\nlabel = "{queue}"\nqueue = ["1ms", "64KiB"]\nseconds = 0.1\n'
        '[[configuration]]\nlabel = "own"\nseconds = 0.1\n'
        '[[configuration]]\nlabel = "own again"\nseconds = 0.2\n'
    )
    done = lab.run("profile", plan, "--out", lab.out)
    assert done.returncode == 0, done.stderr
    (started,) = [call for call in lab.log() if call[0] == "emulate"]
    assert started[started.index("--queue") + 1] == "20000000ns"
    assert started[started.index("--background") + 1] == "3000000000bit,on-off:100000000ns"
    words = {"1 ms": "1000000ns", "64 KiB": "65536B", "own": "20000000ns", "own again": "20000000ns"}
    held = {"1 ms": 1_250_000, "64 KiB": 65_536, "own": 25_000_000, "own again": 25_000_000}
    found = [(record["lab"]["configuration"], record["queue_bytes"]) for record in lab.records()]
    assert sorted(found) == sorted(4 * list(held.items()))
    # Where the last run had the same, nothing is asked.
    wanted = ["20000000ns", *(words[label] for label, _ in found)]
    changes = [after for before, after in itertools.pairwise(wanted) if after != before]
    assert len(changes) < len(found)
    asked = [call[3] for call in lab.log() if call[0] == "link" and call[2] == "--queue"]
    assert asked == changes


@pytest.mark.parametrize(("sent", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_campaign_keeps_what_was_measured_and_goes_on(lab, sent, status):
    plan = lab.plan(PLAN)
    process = subprocess.Popen(
        lab.command("profile", plan, "--out", lab.out),
        env=lab.environment(FAKE_WAIT="60"),
        stderr=subprocess.PIPE,
        text=True,
    )
    _wait_for((lab.home / "state" / "waiting").exists)
    process.send_signal(sent)
    _, complained = process.communicate(timeout=30)
    assert process.returncode == status
    assert "the same command goes on from there" in complained
    assert [record["outcome"] for record in lab.records()] == ["interrupted"]
    assert not list((lab.home / "state").glob("lab-*.json"))
    assert lab.run("profile", plan, "--out", lab.out).returncode == 0
    assert [record["outcome"] for record in lab.records()] == ["interrupted", *["ok"] * RUNS]


def test_nothing_outlives_a_lab_that_was_killed(lab):
    process = subprocess.Popen(
        lab.command("profile", lab.plan(PLAN), "--out", lab.out),
        env=lab.environment(FAKE_WAIT="60"),
        stderr=subprocess.DEVNULL,
    )
    _wait_for((lab.home / "state" / "waiting").exists)
    state = next((lab.home / "state").glob("lab-*.json"))
    emulation = os.pidfd_open(json.loads(state.read_text())["pid"])
    process.kill()
    process.wait()
    _wait_for(lambda: not state.exists())
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(emulation, 0)
    os.close(emulation)


def test_two_campaigns_do_not_share_a_directory(lab):
    plan = lab.plan(PLAN)
    process = subprocess.Popen(
        lab.command("profile", plan, "--out", lab.out),
        env=lab.environment(FAKE_WAIT="60"),
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for((lab.home / "state" / "waiting").exists)
        done = lab.run("profile", plan, "--out", lab.out)
        assert done.returncode == 2
        assert "another campaign is writing there" in done.stderr
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)


def test_a_records_file_that_is_a_device_is_refused(lab):
    lab.out.mkdir()
    plan = lab.plan(PLAN)
    (lab.out / "plan.toml").write_text(plan.read_text())
    (lab.out / "records.jsonl").symlink_to("/dev/null")
    done = lab.run("profile", plan, "--out", lab.out)
    assert done.returncode == 2
    assert "not a regular file" in done.stderr


def _wait_for(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.01)
