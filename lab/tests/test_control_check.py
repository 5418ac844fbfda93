"""Congestion controls that nobody has: refused before a run, where `farlink` would load them they are not."""

from __future__ import annotations

import pytest

import farlink_lab.run.congestion as checked
from farlink_lab.plan_file import parse_plan
from farlink_lab.run.congestion import with_controls
from farlink_lab.schedule import schedule

PLAN = """
name = "small"
rtts = ["0.4ms"]
[[configuration]]
congestion = ["cubic", "{}"]
seconds = 0.1
"""
KERNELS = "reno cubic bbr\n"


@pytest.fixture(autouse=True)
def kernel(monkeypatch, tmp_path):
    """One without modules, and with these."""
    path = tmp_path / "available"
    path.write_text(KERNELS)
    monkeypatch.setattr(checked, "AVAILABLE", path)
    monkeypatch.setattr(checked, "_is_module", lambda name: name == "a_module")


@pytest.mark.parametrize("verb", ["profile", "search"])
def test_a_control_that_nobody_has_is_refused_before_the_directory_is_made(lab, verb):
    budget = ("--budget", "9s") if verb == "search" else ()
    done = lab.here(verb, lab.plan(PLAN.format("none_such")), *budget, "--out", lab.out)
    assert done.returncode == 2
    assert done.stderr == (
        'farlink: the plan names congestion control "none_such", which neither this kernel nor farlink has: '
        "available are bbr, circuit, cubic, htcp, reno: write one of these\n"
    )
    assert not lab.out.exists()
    assert [call[0] for call in lab.log()] == ["congestion"]


def test_the_hosts_default_is_looked_at_too(lab):
    plan = PLAN.format("bbr") + '[connection]\ncongestion = "none_such"\n'
    done = lab.here("profile", lab.plan(plan), "--out", lab.out)
    assert done.returncode == 2
    assert '"none_such", which neither' in done.stderr


@pytest.mark.parametrize("name", ["htcp", "a_module", "bbr"])
def test_what_the_kernel_or_farlink_has_or_loads_is_measured(lab, name):
    done = lab.here("profile", lab.plan(PLAN.format(name)), "--out", lab.out)
    assert done.returncode == 0, done.stderr
    assert sorted(record["congestion"] for record in lab.records()) == sorted(["cubic", name])


def test_what_cannot_be_loaded_is_refused_with_the_reason(lab):
    done = lab.here("profile", lab.plan(PLAN.format("htcp")), "--out", lab.out, FAKE_NO_HTCP="1")
    assert done.returncode == 2
    assert (
        '"htcp", which is not in this kernel and cannot be loaded (run it as root): available' in done.stderr
    )
    assert "circuit, cubic, reno: write" in done.stderr


def test_of_what_was_begun_only_what_is_left_is_looked_at(lab):
    plan = lab.plan(PLAN.format("htcp"))
    assert lab.here("profile", plan, "--out", lab.out, FAKE_FAIL="400000").returncode == 2
    again = ("profile", plan, "--out", lab.out)
    assert "each of 2 runs failed" in lab.here(*again, FAKE_NO_HTCP="1").stderr
    assert "cannot be loaded" in lab.here(*again, "--retry-failed", FAKE_NO_HTCP="1").stderr


def test_a_farlink_that_does_not_say_keeps_nobody_from_measuring(lab):
    done = lab.here("profile", lab.plan(PLAN.format("none_such")), "--out", lab.out, FAKE_MUTE="1")
    assert done.returncode == 0, done.stderr
    assert len(lab.records()) == 2


def test_a_demo_goes_without_them_and_says_so(lab, monkeypatch):
    for name, value in lab.environment(FAKE_NO_HTCP="1").items():
        monkeypatch.setenv(name, value)
    runs = schedule(parse_plan(PLAN.format("htcp"), name="small"))
    kept, said = with_controls(runs)
    assert [run.configuration.congestion for run in kept] == ["cubic"]
    assert said.startswith(
        'left out are 1 of 2 runs, of congestion control "htcp", which is not in this kernel'
    )
    assert with_controls(kept) == (kept, "")
