"""Transfers whose sender chose its congestion control by the path: one way to move data, whatever it was."""

from __future__ import annotations

import json

import numpy as np
import pytest

import synthetic
from farlink_lab.advice import Adviser
from farlink_lab.analysis import analysis, told
from farlink_lab.choice import Task, choice_asked, choice_of
from farlink_lab.expectation import loss_limit_bps
from farlink_lab.findings import find
from farlink_lab.ground import ground
from farlink_lab.plan_file import parse_plan
from farlink_lab.prediction import allowed_bps, loss_counts
from farlink_lab.profile import label_of, profiles
from farlink_lab.profile_model import ModelFileError, profile_model
from farlink_lab.recommendation import recommendation
from farlink_lab.recommendation import told as advised
from farlink_lab.records import parse_lines

SIZE = 2 << 30
# As `farlink copy` has them where the host's default is CUBIC.
CONTROLS = dict(zip(synthetic.RTTS_S, ["cubic"] * 3 + ["bbr"] * 4, strict=True))
COPY = {"kind": "file", "protection": "encrypted", "streams_chosen": True}


def made(*, control=None, rate_bps=9e9, **changes):
    """Three transfers at each RTT, each with the congestion control of its path, or with `control`."""
    return [
        synthetic.record(
            rtt_s=rtt,
            bytes=SIZE,
            duration_s=8 * SIZE / rate_bps * (1 + 0.01 * repetition),
            congestion=control or chosen,
            congestion_chosen=None if control else True,
            **{"lab": None} | changes,
        )
        for rtt, chosen in CONTROLS.items()
        for repetition in range(3)
    ]


def read(records):
    return parse_lines(json.dumps(each).encode() for each in records)


def test_whatever_the_sender_chose_they_are_one_profile():
    (profile,), _ = profiles(read(made(**COPY)).records)
    assert profile.label == "farlink copy auto ×auto 2 GiB over 10.0 Gb/s, MTU 9000, queue 62.5 MB"
    assert (profile.congestion, profile.congestion_usual) == (None, tuple(CONTROLS.values()))
    assert [profile.congestion_at(rtt) for rtt in (0.0, 1.0)] == ["cubic", "bbr"]


def test_one_that_was_asked_for_is_another_configuration():
    found, _ = profiles(read(made() + made(control="cubic")).records)
    assert [" auto " in profile.label for profile in found] == [False, True]
    assert {label_of(one) for one in read(made(control="cubic")).records} == {found[0].label}


def test_losses_limit_each_rtt_by_its_own_congestion_control():
    reading = read(made(loss=1e-3))
    (profile,), _ = profiles(reading.records)
    allowed = allowed_bps(profile, profile.rtt_s) / profile.capacity_bps
    assert loss_counts(profile)
    assert (allowed < 1).tolist() == [name == "cubic" for name in CONTROLS.values()]
    stood = ground(reading.records)
    (choice,) = stood.choices
    limits = [loss_limit_bps(choice, rtt, wire=stood.measured) for rtt in CONTROLS]
    assert [limit is not None for limit in limits] == [name == "cubic" for name in CONTROLS.values()]


def test_an_analysis_says_which_at_each_rtt():
    findings = find(read(made(**COPY)))
    (one,) = analysis(findings)["configurations"]
    assert (one["congestion"], one["congestion_chosen"]) == (None, True)
    assert [at["congestion"] for at in one["profile"]] == list(CONTROLS.values())
    assert sum("bbr, streams 1, runs 3" in line for line in told(findings)) == 4


@pytest.mark.parametrize(
    ("what", "name", "flags"),
    [
        ({}, "auto ×1, full buffers", "--congestion auto --streams 1"),
        (COPY, "farlink copy, encrypted: auto ×auto, full buffers", "--protect encrypt"),
        (
            COPY | {"buffer_bytes": 1 << 26},
            "farlink copy, encrypted: auto ×auto, buffers of 64 MiB",
            "--congestion auto --buffer 64MiB --protect encrypt",
        ),
    ],
)
def test_they_are_advised_as_what_chooses_by_itself(what, name, flags):
    slow = {key: value for key, value in what.items() if key not in ("streams_chosen", "buffer_bytes")}
    records = read(made(**what) + made(control="cubic", rate_bps=4e9, **slow)).records
    advice = Adviser(ground(records), Task(mode="size", amount=SIZE)).advice(0.12)
    assert (advice.best.choice.name, advice.best.choice.flags) == (name, flags)
    assert advice.best.measured_s == synthetic.RTTS_S
    assert recommendation(advice)["advice"]["congestion"] == "auto"
    assert any(flags in line for line in advised(advice))


def test_a_model_leaves_them_out_and_says_so():
    saved = profile_model(ground(read(made() + made(control="cubic")).records))
    assert [one["congestion"] for one in saved["configurations"]] == ["cubic"]
    (note,) = [note for note in saved["notes"] if "to the path: " in note]
    assert note.endswith(": auto ×1, full buffers")
    with pytest.raises(ModelFileError, match=r"or which congestion control, .* --streams and --congestion"):
        profile_model(ground(read(made()).records))


@pytest.mark.parametrize(
    ("command", "left"),
    [
        ("farlink copy {source} x:/y --json", True),
        ("farlink copy {source} x:/y --json --streams 4", True),
        ("farlink copy {source} x:/y --json --congestion auto --buffer 64MiB", True),
        ("farlink memory {address} --bytes {bytes} --json -C auto", True),
        ("farlink memory {address} --bytes {bytes} --json", False),
        ("farlink copy {source} x:/y --json --buffer 64MiB", False),
        ("farlink copy {source} x:/y --json --circuit=10gbit", False),
        ("farlink copy {source} x:/y --json -Ccubic", False),
        ("cp copy {source} x:/y", False),
    ],
)
def test_a_plan_names_those_whose_sender_chooses(command, left):
    plan = f'rtts = ["1ms"]\n[[configuration]]\nbytes = "1GB"\ncommand = "{command}"\n'
    (configuration,) = parse_plan(plan, name="x").configurations
    assert (" auto ×" in configuration.label) == left
    assert choice_asked(configuration).congestion == ("auto" if left else None)


def test_of_several_at_one_rtt_the_most_frequent_counts():
    records = made(**COPY)
    records[-1]["congestion"] = "cubic"
    (profile,), _ = profiles(read(records).records)
    assert profile.congestion_usual[-1] == "bbr"
    assert choice_of(read(records).records[-1]).congestion == "auto"
    assert np.isfinite(profile.median_bps).all()
