"""What tells configurations apart: runs of two ways to move data are never taken for one."""

from __future__ import annotations

import json

import pytest

import synthetic
from farlink_lab.advice import Adviser
from farlink_lab.choice import Choice, ChoiceError, Task, choice_asked, choice_of
from farlink_lab.ground import ground
from farlink_lab.plan_file import parse_plan
from farlink_lab.profile_model import ModelFileError, profile_model
from farlink_lab.quantity import parse_size, write_size
from farlink_lab.recommendation import recommendation, told
from farlink_lab.records import parse_record
from farlink_lab.schedule import schedule
from farlink_lab.search import PlanSearch

TEN_SECONDS = Task(mode="duration", amount=10.0)
COMMAND = "farlink on x/a -- globus-url-copy {} -p 4 -tcp-bs 65536 file:///source ftp://198.18.0.2:2811/d"


def runs(rate, *, configuration, lab=None, **changes):
    """Three runs at each RTT, with samples that tell of other amounts."""
    made = []
    for rtt in synthetic.RTTS_S:
        for repetition in range(3):
            noisy = rate * (1 - 0.01 * repetition)
            fields = synthetic.record(
                mode="duration",
                duration_s=10.0,
                bytes=round(noisy * 10 / 8),
                rtt_s=rtt,
                samples=synthetic.samples(ramp_s=0.5, rate_bps=noisy, seconds=10.0, tau_s=rtt),
                lab={
                    "configuration": configuration,
                    "run": f"{configuration} {rtt} {repetition}",
                    **(lab or {}),
                },
                **changes,
            )
            made.append(parse_record(json.dumps(fields).encode(), line=len(made) + 1))
    return made


def best(records, task=TEN_SECONDS):
    return Adviser(ground(records), task).advice(0.0456)


GRIDFTP = {"tool": "globus-url-copy", "kind": "file", "protection": "clear"}


@pytest.mark.parametrize(
    ("fast", "plain"),
    [
        ({"options": "-fast"}, {}),
        ({"command": COMMAND.format("-fast")}, {"command": COMMAND.format("")}),
    ],
)
def test_the_options_of_a_mover_are_part_of_what_is_chosen(fast, plain):
    advice = best(
        runs(9e9, configuration="with", lab=fast, **GRIDFTP)
        + runs(3e9, configuration="without", lab=plain, **GRIDFTP)
    )
    names = {one.choice.name: one.throughput_bps for one in advice.ranking}
    assert names["globus-url-copy -fast: cubic ×1, full buffers"] == pytest.approx(9e9, rel=0.05)
    assert names["globus-url-copy: cubic ×1, full buffers"] == pytest.approx(3e9, rel=0.05)
    assert recommendation(advice)["advice"]["options"] == "-fast"


def test_two_commands_of_one_program_are_two_choices():
    advice = best(
        runs(9e9, configuration="a", lab={"template": "t -x {seconds}", "server": "s"}, tool="t")
        + runs(3e9, configuration="b", lab={"template": "t {seconds}", "server": "s"}, tool="t")
    )
    assert advice.best.choice.name == "t (t -x {seconds} | s): cubic ×1, full buffers"
    assert advice.best.throughput_bps > 2 * advice.runner_up.throughput_bps
    # Earlier labs did not note the templates, and their labels differ.
    earlier = runs(9e9, configuration="a", tool="t") + runs(3e9, configuration="b", tool="t")
    assert len(ground(earlier).choices) == 2


def test_copies_with_other_protection_are_told_apart_and_have_the_flag():
    copies = runs(9e9, configuration="clear", kind="file", protection="clear")
    copies += runs(3e9, configuration="encrypted", kind="file", protection="encrypted")
    advice = best(copies, Task(mode="size", amount=1e10))
    assert advice.best.choice.name == "farlink copy, clear: cubic ×1, full buffers"
    assert "  farlink copy FROM TO --congestion cubic --streams 1 --protect clear" in told(advice)
    assert advice.runner_up.choice.flags.endswith("--protect encrypt")
    assert advice.runner_up.throughput_bps < 0.5 * advice.best.throughput_bps
    with pytest.raises(ModelFileError, match=r"differ in what --auto cannot choose \(clear, encrypted\)"):
        profile_model(ground(copies))
    one = profile_model(ground(copies[: len(copies) // 2]))
    assert one["protection"] == "clear"


def test_a_model_has_only_what_a_reader_can_choose():
    good = runs(9e9, configuration="good", buffer_bytes=4 << 20)
    odd = runs(3e9, configuration="odd", buffer_bytes=1000)
    saved = profile_model(ground(good + odd))
    assert [one["buffer_bytes"] for one in saved["configurations"]] == [4 << 20]
    assert any("farlink has no such streams, buffers or blocks: cubic" in note for note in saved["notes"])
    with pytest.raises(ModelFileError, match="could choose none of what was measured"):
        profile_model(ground(odd))


def test_blocks_are_learnt_apart():
    advice = best(
        runs(9e9, configuration="large", block_bytes=1 << 20)
        + runs(3e9, configuration="small", block_bytes=1 << 14)
    )
    assert advice.best.throughput_bps == pytest.approx(9e9, rel=0.1)
    assert advice.runner_up.throughput_bps == pytest.approx(3e9, rel=0.1)
    assert advice.runner_up.choice.flags.endswith("--block 16KiB")


def test_a_search_tells_options_and_commands_apart():
    text = (
        'rtts = ["1ms"]\n[[configuration]]\nlabel = "{options}"\nmover = "globus-url-copy"\nbytes = "1GB"\n'
    )
    for keys, count in (
        ('options = ["", "-fast"]', 2),
        ('options = "-fast"\n[[configuration]]\ncommand = "x {bytes}"\nbytes = "1GB"', 2),
    ):
        plan = parse_plan(text + keys, name="x")
        search = PlanSearch(plan, schedule(plan))
        assert len(search.search.choices) == count
    assert search.search.choices[0].kind == "file"


def test_a_choice_asked_for_is_the_one_that_its_records_show():
    (configuration,) = parse_plan(
        'rtts = ["1ms"]\n[[configuration]]\nmover = "rsync"\noptions = "--whole-file  -W"\nbytes = "1GB"\n'
        'congestion = "cubic"\n',
        name="x",
    ).configurations
    record = synthetic.record(
        tool="rsync", kind="file", protection="clear", lab={"options": "--whole-file  -W"}
    )
    assert choice_of(parse_record(json.dumps(record).encode())) == choice_asked(configuration)


@pytest.mark.parametrize(
    "changes", [{"streams": 0}, {"buffer_bytes": 0}, {"block_bytes": -1}, {"declared_bps": 0}]
)
def test_a_choice_that_cannot_be_is_a_named_error(changes):
    fields = {"tool": "farlink", "congestion": "cubic", "streams": 1, "buffer_bytes": None}
    with pytest.raises(ChoiceError, match=f"{next(iter(changes))} of"):
        Choice(**fields | changes)


@pytest.mark.parametrize("amount", [0.0, -1.0, float("nan"), float("inf")])
def test_a_task_of_nothing_is_a_named_error(amount):
    with pytest.raises(ChoiceError, match="nothing to do"):
        Task(mode="size", amount=amount)


def test_a_size_of_nothing_is_refused_in_one_line(lab, tmp_path):
    synthetic.write(tmp_path, synthetic.campaign())
    done = lab.run("advise", tmp_path, "--rtt", "50ms", "--bytes", "0B")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("rate", "written"),
    [
        (10_000_000_000, "10gbit"),
        (2_500_000_000, "2500mbit"),
        (9_584_640_000, "9584640kbit"),
        (1_000_000_001, "1000000001bit"),
        (12_000_000_000_000, "12000gbit"),
    ],
)
def test_a_declared_rate_is_written_in_whole_units(rate, written):
    choice = Choice(tool="farlink", congestion="circuit", streams=1, buffer_bytes=None, declared_bps=rate)
    assert choice.flags == f"--circuit {written} --streams 1"


@pytest.mark.parametrize(
    ("size", "written"),
    [
        (1_000_000_000, "1GB"),
        (2 << 30, "2GiB"),
        (64 << 20, "64MiB"),
        (1_024_000, "1000KiB"),
        (1_001, "1001B"),
        (50 * 10**12, "50TB"),
    ],
)
def test_a_size_is_written_in_whole_units(size, written):
    assert write_size(size) == written
    assert parse_size(written) == size


@pytest.mark.parametrize(
    ("task", "flags"),
    [
        (Task(mode="size", amount=1e9), "--bytes 1GB"),
        (Task(mode="duration", amount=30.0), "--seconds 30"),
        (Task(mode="duration", amount=0.5), "--seconds 0.5"),
    ],
)
def test_the_command_that_is_advised_says_what_it_is_to_do(task, flags):
    advice = best(runs(8e9, configuration="CUBIC ×1"), task)
    assert f"  farlink memory HOST {flags} --congestion cubic --streams 1" in told(advice)
