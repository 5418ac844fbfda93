"""Whose runs are advised from: one directory may have those of several movers, and of files and memory."""

from __future__ import annotations

import json

import pytest

import synthetic
from farlink_lab.advice import Adviser
from farlink_lab.choice import Task
from farlink_lab.ground import AdviceError, ground
from farlink_lab.recommendation import recommendation, told
from farlink_lab.records import parse_record

RTT_S = 0.07


def made(**changes):
    """Runs of one configuration at every RTT, from memory to memory where nothing else is said."""
    kept = [each for each in synthetic.campaign(repetitions=2) if each["mode"] == "size"]
    return [
        each
        | changes
        | {"lab": each["lab"] | {"configuration": f"{changes}", "run": f"{changes} {each['lab']['run']}"}}
        for each in kept
    ]


def copies():
    return made(kind="file", protection="encrypted", streams=8, congestion="bbr")


def read(records):
    return [parse_record(json.dumps(each).encode(), line=n) for n, each in enumerate(records, 1)]


@pytest.fixture
def mixed(tmp_path):
    synthetic.write(tmp_path, made() + copies())
    return tmp_path


def test_a_model_of_one_mover_is_saved_from_a_directory_of_several(lab, mixed):
    path = mixed / "profile.json"
    done = lab.here("advise", mixed, "--save", path)
    assert done.returncode == 2
    (complaint,) = done.stderr.splitlines()
    assert "of farlink and of farlink copy, and a profile model is of one mover: say which with" in complaint
    assert complaint.endswith("--mover farlink or --mover copy")
    for word, streams, measured_with in (
        ("farlink", 1, None),
        ("copy", 8, "farlink copy"),
        ("farlink copy", 8, "farlink copy"),
    ):
        done = lab.here("advise", mixed, "--save", path, "--mover", word)
        assert done.returncode == 0, done.stderr
        saved = json.loads(path.read_text())
        assert [one["streams"] for one in saved["configurations"]] == [streams]
        assert saved.get("measured_with") == measured_with


def test_advice_is_of_the_mover_that_was_named(lab, mixed):
    asked = ("advise", mixed, "--rtt", "70ms", "--bytes", "2GB", "--json")
    both = json.loads(lab.here(*asked).stdout)
    assert len(both["ranking"]) == 2
    for word, kind in (("farlink", "memory"), ("copy", "file")):
        found = json.loads(lab.here(*asked, "--mover", word).stdout)
        assert (found["advice"]["kind"], found["runner_up"]) == (kind, None)
    done = lab.here(*asked, "--mover", "rsync")
    assert done.returncode == 2
    assert (
        done.stderr == "farlink: --mover: no run that counts is of rsync: there are runs of copy, farlink\n"
    )


def test_another_tool_is_advised_where_ours_ran_beside_it_and_it_is_named():
    records = read(made() + made(tool="iperf3"))
    assert {choice.tool for choice in ground(records, mover="iperf3").choices} == {"iperf3"}
    assert {choice.tool for choice in ground(records).choices} == {"farlink"}


def test_no_copy_is_advised_for_a_duration():
    ten = Task(mode="duration", amount=10.0)
    advice = Adviser(ground(read(made() + copies())), ten).advice(RTT_S)
    assert [one.choice.kind for one in advice.ranking] == ["memory"]
    assert any("farlink copy is not in it: a copy is over when its files" in note for note in advice.notes)
    assert not any(line.strip().startswith("farlink copy FROM") for line in told(advice))
    assert len(recommendation(advice)["ranking"]) == 1
    with pytest.raises(
        AdviceError, match=r"--seconds: the runs are of farlink copy.*say how much with --bytes"
    ):
        Adviser(ground(read(copies())), ten).advice(RTT_S)


def test_that_memory_and_copies_are_ranked_together_is_said():
    size = Task(mode="size", amount=2e9)
    both, alone = (
        Adviser(ground(read(made() + copies()), mover=mover), size).advice(RTT_S) for mover in (None, "copy")
    )
    (note,) = [each for each in both.notes if "ranked together" in each]
    assert note.endswith("for one of them alone name --mover farlink or --mover copy")
    assert not any("ranked together" in each for each in alone.notes)


@pytest.mark.parametrize("protection", ["clear", "encrypted"])
def test_that_a_copy_was_measured_in_clear_is_said(protection):
    records = read(made(kind="file", protection=protection))
    advice = Adviser(ground(records), Task(mode="size", amount=2e9)).advice(RTT_S)
    assert any("measured in clear: others on the path can" in each for each in advice.notes) == (
        protection == "clear"
    )


def test_a_copy_is_advised_for_a_size():
    advice = Adviser(ground(read(copies())), Task(mode="size", amount=2e9)).advice(RTT_S)
    assert "  farlink copy FROM TO --congestion bbr --streams 8 --protect encrypt" in told(advice)


def test_advice_of_a_file_with_a_broken_line_is_told_and_that_is_in_the_exit_code(lab, tmp_path):
    synthetic.write(tmp_path, synthetic.campaign(repetitions=2), broken=True)
    done = lab.here("advise", tmp_path, "--rtt", "70ms", "--bytes", "50GB", "--save", tmp_path / "p.json")
    assert done.returncode == 2, "not all could be read"
    assert "records.jsonl: line 3: not JSON" in done.stderr
    assert "farlink memory" in done.stdout
    assert (tmp_path / "p.json").exists()


def test_what_the_nearest_did_is_of_what_is_advised_and_not_of_a_copy_that_is_not_in_it():
    short = made(kind="file", protection="encrypted", bytes=1_000_000, duration_s=0.3)
    advice = Adviser(ground(read(made() + short)), Task(mode="duration", amount=60.0)).advice(RTT_S)
    (note,) = [each for each in advice.notes if "the nearest that" in each]
    assert "; the nearest that what is advised did is 6.1" in note
    ten = [each for each in synthetic.campaign() if each["lab"]["configuration"] == "CUBIC ×1"]
    just = read([each for each in ten if each["mode"] == "duration"] + short)
    advice = Adviser(ground(just), Task(mode="duration", amount=10.0)).advice(RTT_S)
    assert not any("those of others tell of it" in each for each in advice.notes)


def test_of_a_size_the_nearest_is_that_of_what_is_advised():
    small = made(kind="file", protection="encrypted", bytes=5_000_000, duration_s=0.3)
    advice = Adviser(ground(read(made() + small)), Task(mode="size", amount=20e9)).advice(RTT_S)
    assert advice.best.choice.kind == "memory"
    assert any("; the nearest that what is advised did is 2 GiB" in each for each in advice.notes)
