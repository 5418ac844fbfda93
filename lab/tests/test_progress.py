"""How far a campaign is, as a person sees it: on a terminal a bar, elsewhere a line a run."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess

import pytest
from rich.console import Console

from farlink_lab.plan_file import parse_plan
from farlink_lab.run.progress import CampaignProgress, describe, result_line, show_left
from farlink_lab.schedule import TimeLeft, schedule

PLAN = """
name = "small"
rtts = ["1ms", "366ms"]
[[configuration]]
label = "size"
bytes = "2GiB"
[[configuration]]
label = "duration"
seconds = 10
"""
GOOD = {"outcome": "ok", "bytes": 1_250_000_000, "duration_s": 2.0}


def shown(*, terminal, plan=PLAN, done=0, most_s=None):
    """A progress over the runs of a plan, the text that it writes, and the runs."""
    written = io.StringIO()
    console = Console(
        file=written, force_terminal=terminal, width=150, color_system=None, legacy_windows=False, _environ={}
    )
    runs = schedule(parse_plan(plan, name="x"))
    progress = CampaignProgress(console, runs=runs, done=done, time_left=TimeLeft(), most_s=most_s)
    return progress, written, runs


def bars(text):
    """The percentage, the time left and the words of each bar that was drawn."""
    # What moves the cursor ends a bar; what colours it does not.
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Zhl]|\r", "\n", re.sub(r"\x1b\[[0-9;]*m", "", text))
    return re.findall(
        r"(\d+)% [━╸╺ ]*(\d+ s|\d+ min \d+ s|\d+ h \d+ min) left (run .*?) *$", plain, re.MULTILINE
    )


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0 s"),
        (0.4, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (250, "4 min 10 s"),
        (605, "10 min 05 s"),
        (3599.4, "59 min 59 s"),
        (3599.6, "1 h 00 min"),
        (3600 + 25 * 60 + 59, "1 h 25 min"),
        (30 * 3600, "30 h 00 min"),
    ],
)
def test_a_time_left_is_told_no_finer_than_it_is_known(seconds, said):
    assert show_left(seconds) == said


def test_a_run_is_described_by_what_it_does():
    by_label = {
        (run.configuration.label, run.rtt_s): describe(run) for run in schedule(parse_plan(PLAN, name="x"))
    }
    assert by_label["size", 0.001] == "size, 2 GiB at 1 ms"
    assert by_label["duration", 0.366] == "duration, 10 s at 366 ms"


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (GOOD, "5.00 Gb/s"),
        (GOOD | {"emulator": {"overrun": False}}, "5.00 Gb/s"),
        (GOOD | {"emulator": {"overrun": True}}, "5.00 Gb/s, the emulator fell behind"),
        (GOOD | {"duration_s": 0}, "no duration"),
        ({"outcome": "failed", "error": "connection refused"}, "failed: connection refused"),
        ({"outcome": "interrupted"}, "interrupted: no reason given"),
    ],
)
def test_what_came_of_a_run_is_its_throughput_or_its_reason(record, said):
    assert result_line(record) == said


def test_elsewhere_it_is_a_line_a_run_and_the_time_left_shrinks():
    progress, written, runs = shown(terminal=False, done=3)
    with progress:
        for run in runs:
            progress.begin(run)
            progress.tick(run, 1.0)
            progress.end(run, GOOD, took_s=run.expected_s)
    lines = written.getvalue().splitlines()
    assert [line.split()[0] for line in lines] == ["4/7", "5/7", "6/7", "7/7"]
    left = [show_left(sum(other.expected_s for other in runs[number:])) for number in range(1, len(runs) + 1)]
    assert lines == [
        f"{number}/7 {describe(run)}: 5.00 Gb/s; {rest} left"
        for number, run, rest in zip(range(4, 8), runs, left, strict=True)
    ]
    assert left[-1] == "0 s"


def test_the_time_left_learns_from_runs_that_take_longer():
    progress, written, runs = shown(terminal=False)
    with progress:
        progress.begin(runs[0])
        progress.end(runs[0], GOOD, took_s=3 * runs[0].expected_s)
    alike = [run for run in runs[1:] if run.configuration.mode == runs[0].configuration.mode]
    others = [run for run in runs[1:] if run not in alike]
    # Of its own kind the others should now take longer too, though not as much: one run is no rule.
    (line,) = written.getvalue().splitlines()
    told = re.fullmatch(r".*; (?:(\d+) min )?(\d+) s left", line)
    assert told
    seconds = 60 * int(told[1] or 0) + int(told[2])
    modelled = sum(run.expected_s for run in alike + others)
    most = 3 * sum(run.expected_s for run in alike) + sum(run.expected_s for run in others)
    assert modelled + 1 < seconds < most


def test_brackets_and_colons_of_a_label_are_shown_as_they_stand():
    label = "[/x] [red]new[/] :heart:"
    progress, written, runs = shown(terminal=True, plan=PLAN.replace('"size"', f'"{label}"'))
    with progress:
        for run in runs:
            progress.tick(run, 0.0)
    assert label in written.getvalue()


def test_on_a_terminal_the_bar_moves_with_time_and_good_runs_leave_no_line():
    progress, written, runs = shown(terminal=True)
    whole = sum(run.expected_s for run in runs)
    with progress:
        for run in runs:
            progress.begin(run)
            progress.tick(run, run.expected_s / 2)
            progress.end(run, GOOD, took_s=run.expected_s)
    # As it ends, the last is drawn once more.
    *drawn, last = bars(written.getvalue())
    assert last == drawn[-1]
    assert [words for _, _, words in drawn][::2] == [
        f"run {number} of 4: {describe(run)}" for number, run in enumerate(runs, start=1)
    ]
    shares = [int(share) for share, _, _ in drawn]
    assert shares == sorted(shares)
    assert (shares[0], drawn[0][1]) == (0, show_left(whole))
    gone = [sum(run.expected_s for run in runs[:number]) for number in range(len(runs))]
    assert shares[::2] == [pytest.approx(100 * each / whole, abs=1) for each in gone]
    halves = [each + run.expected_s / 2 for each, run in zip(gone, runs, strict=True)]
    assert shares[1::2] == [pytest.approx(100 * each / whole, abs=1) for each in halves]
    assert [left for _, left, _ in drawn][1::2] == [show_left(whole - each) for each in halves]
    # It is wiped off at the end, and nothing stays of runs that went well.
    assert "Gb/s" not in written.getvalue()


def test_on_a_terminal_a_run_that_failed_stays_visible():
    progress, written, runs = shown(terminal=True)
    with progress:
        progress.begin(runs[0])
        progress.end(runs[0], {"outcome": "failed", "error": "no [route] to host"}, took_s=0.1)
    # Brackets are the error's own, no markup.
    assert f"1/4 {describe(runs[0])}: failed: no [route] to host; " in written.getvalue()


def test_a_search_has_no_more_left_than_its_budget():
    progress, written, runs = shown(terminal=False, most_s=8.0)
    with progress:
        progress.begin(runs[0])
        progress.end(runs[0], GOOD, took_s=5.0)
        progress.begin(runs[1])
        progress.end(runs[1], GOOD, took_s=5.0)
    assert [line.rpartition("; ")[2] for line in written.getvalue().splitlines()] == ["3 s left", "0 s left"]


def test_a_campaign_on_a_terminal_draws_its_bar(lab):
    plan = lab.plan(
        'rtts = ["0.4ms", "1ms"]\nrepetitions = 2\n[[configuration]]\nlabel = "{streams} streams"\n'
        'streams = [1, 2]\nbytes = "1MiB"\n'
    )
    ours, theirs = pty.openpty()
    environment = lab.environment(TERM="xterm", COLUMNS="120", LINES="40") | {"FAKE_FAIL": "1000000"}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen(
        lab.command("profile", plan, "--out", lab.out),
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=theirs,
    )
    os.close(theirs)
    text = b"".join(iter(lambda: read(ours), b"")).decode()
    os.close(ours)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 1, text
    assert said.decode().startswith("records: ")
    drawn = bars(text)
    assert drawn[0][2].startswith("run 1 of 8: ")
    assert drawn[-1][2].startswith("run 8 of 8: ")
    assert int(drawn[0][0]) == 0
    assert int(drawn[-1][0]) > 50
    # Runs that failed leave a line each, above the bar.
    assert text.count("failed: farlink: connection refused; ") == 4
    assert "4 of 8 runs failed" in text


def read(terminal):
    """What comes next from a terminal; nothing once the other side has closed it, which Linux says by EIO."""
    try:
        return os.read(terminal, 65_536)
    except OSError:
        return b""
