"""The demonstration, with a plan that takes no time: what it says, and what it does the next time."""

from __future__ import annotations

import contextlib
import sys

import pytest

import farlink_lab.demo
from farlink_lab.cli import main

PLAN = """
name = "demo"
rtts = ["0.4ms", "11.8ms", "22.6ms"]
[[configuration]]
label = "CUBIC ×1"
bytes = "1GiB"
[[configuration]]
label = "CUBIC ×1, 256 KiB buffers"
buffer = "256KiB"
seconds = 0.1
"""
RUNS = 6


@pytest.fixture
def demo(lab, monkeypatch, capsys):
    """`farlink-lab demo` in this process, with PLAN in place of its own: status, output and complaints."""
    for name, value in lab.environment(COLUMNS="150").items():
        monkeypatch.setenv(name, value)

    def run(*options, plan=PLAN):
        path = lab.plan(plan)
        monkeypatch.setattr(farlink_lab.demo, "demo_plan", lambda: contextlib.nullcontext(path))
        monkeypatch.setattr(sys, "argv", ["farlink-lab", "demo", "--out", str(lab.out), *options])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, *capsys.readouterr()

    return run


def measured(lab):
    """How many transfers were started."""
    return sum(call[0] == "memory" for call in lab.log())


def test_it_measures_reports_and_says_what_the_table_shows(lab, demo):
    status, said, complained = demo()
    assert status == 0, complained
    assert measured(lab) == len(lab.records()) == RUNS
    lines = said.splitlines()
    assert f"report: {lab.out}/report.html" in lines
    assert f"for papers: {lab.out}/profile.svg and {lab.out}/profile.pdf" in lines
    for name in ("report.html", "profile.svg", "profile.pdf"):
        assert (lab.out / name).stat().st_size > 0
    header = next(line for line in lines if "configuration" in line)
    assert [header.count(rtt) for rtt in ("0.4 ms", "11.8 ms", "22.6 ms")] == [1, 1, 1]
    for label in ("CUBIC ×1, 1 GiB", "CUBIC ×1, 256 KiB buffers, 100 ms"):
        row = next(line for line in lines if "│" in line and label in line)
        assert row.count("Gb/s") == 3
    # The table's own figures, in words.
    assert "6 runs of 2 configurations at 3 RTTs from 0.4 ms to 22.6 ms" in said
    assert "Fixed size: CUBIC ×1, 1 GiB: " in said
    assert "Fixed duration: CUBIC ×1, 256 KiB buffers, 100 ms: " in said
    # How far it was, for who waits.
    assert complained.splitlines()[-1].startswith(f"{RUNS}/{RUNS} ")


def test_a_second_time_it_measures_nothing_and_says_how_to(lab, demo):
    _, first, _ = demo()
    before = lab.log()
    status, second, complained = demo()
    assert (status, complained) == (0, "")
    assert lab.log() == before
    note = "these were measured before; to measure anew: farlink lab demo --fresh\n"
    assert note not in first
    assert second.replace(note, "") == first


def test_fresh_measures_again_and_leaves_what_is_not_of_it(lab, demo):
    demo()
    other = lab.out / "notes.txt"
    other.write_text("mine")
    old = lab.records()
    status, said, _ = demo("--fresh")
    assert status == 0
    assert "measured before" not in said
    assert measured(lab) == 2 * RUNS
    assert len(lab.records()) == len(old) == RUNS
    assert other.read_text() == "mine"


def test_the_directory_of_another_plan_is_refused_with_the_mend(lab, demo):
    demo()
    records = (lab.out / "records.jsonl").read_text()
    # Of which everything was measured, and more.
    other = PLAN.replace(', "22.6ms"', "")
    status, said, complained = demo(plan=other)
    assert (status, said) == (2, "")
    assert len(complained.splitlines()) == 1
    assert "it differs in rtts_s; name another --out, or replace what is there by --fresh" in complained
    assert (lab.out / "records.jsonl").read_text() == records
    status, said, _ = demo("--fresh", plan=other)
    assert status == 0
    assert "11.8 ms" in said
    assert "22.6 ms" not in said
