"""Copies in which the path decided how many streams there were: one way to move data, whatever the number."""

from __future__ import annotations

import json

import numpy as np
import pytest

import synthetic
from farlink_lab import model
from farlink_lab.advice import Adviser
from farlink_lab.analysis import analysis, told
from farlink_lab.choice import Task
from farlink_lab.findings import find
from farlink_lab.ground import ground
from farlink_lab.prediction import predict
from farlink_lab.profile import label_of, profiles
from farlink_lab.profile_model import ModelFileError, profile_model
from farlink_lab.recommendation import recommendation
from farlink_lab.recommendation import told as advised
from farlink_lab.records import parse_lines

SIZE = 2 << 30
# As `farlink copy` has them on a host of four cores: one for each 7 MiB of 10 Gb/s from 5 ms on.
STREAMS = dict(zip(synthetic.RTTS_S, (4, 8, 8, 8, 16, 32, 32), strict=True))


def copies(*, streams=None, factor=1.0, **changes):
    """Three copies at each RTT, by the model of as many streams as the path decided, or of `streams`."""
    made = []
    for rtt, chosen in STREAMS.items():
        for repetition in range(3):
            rate = model.slow_start_of_size_bps(
                rtt,
                capacity_bps=synthetic.CAPACITY_BPS,
                size_bytes=SIZE,
                streams=streams or chosen,
                window_bytes=synthetic.WINDOW_BYTES,
                arrival=True,
            )
            rate = rate.item() * factor * (1 - 0.01 * repetition)
            fields = {"kind": "file", "protection": "encrypted", "lab": None, "congestion": "bbr"}
            fields |= {"streams": streams or chosen, "streams_chosen": None if streams else True}
            made.append(
                synthetic.record(rtt_s=rtt, bytes=SIZE, duration_s=8 * SIZE / rate, **fields | changes)
            )
    return made


def read(made):
    return parse_lines(json.dumps(each).encode() for each in made)


def test_whatever_number_the_path_asked_for_they_are_one_profile():
    (profile,), _ = profiles(read(copies()).records)
    assert profile.label == "farlink copy BBR ×auto 2 GiB over 10.0 Gb/s, MTU 9000, queue 62.5 MB"
    assert (profile.rtt_s.tolist(), profile.repetitions) == (list(synthetic.RTTS_S), 3)
    assert (profile.streams, profile.streams_median.tolist()) == (None, list(STREAMS.values()))


def test_a_number_that_was_asked_for_is_another_configuration():
    found, _ = profiles(read(copies() + copies(streams=8)).records)
    assert ["×auto" in profile.label for profile in found] == [False, True]
    assert {label_of(one) for one in read(copies(streams=8)).records} == {found[0].label}


def test_the_model_has_the_streams_of_each_rtt():
    (profile,), _ = profiles(read(copies()).records)
    prediction = predict(profile)
    assert np.abs(prediction.residual) == pytest.approx(np.full(7, 0.01), abs=1e-3)
    # Between the RTTs in proportion, beyond them as the nearest.
    between = np.sqrt(synthetic.RTTS_S[3] * synthetic.RTTS_S[4])
    at = profile.streams_at(np.array([0.0, synthetic.RTTS_S[4], between, 1.0]))
    assert at == pytest.approx([4, 16, np.sqrt(8 * 16), 32])


def test_windows_and_losses_are_those_of_each_rtts_streams():
    limits = {"buffer_bytes": 262144, "congestion": "cubic", "loss": 1e-4}
    (profile,), _ = profiles(read(copies(**limits)).records)
    (fixed,), _ = profiles(read(copies(streams=32, **limits)).records)
    ours, theirs = predict(profile).at_rtts_bps, predict(fixed).at_rtts_bps
    assert ours[-2:] == pytest.approx(theirs[-2:])
    assert ours[4] < 0.6 * theirs[4]


def test_an_analysis_says_how_many_at_each_rtt():
    findings = find(read(copies()))
    (one,) = analysis(findings)["configurations"]
    assert (one["streams"], one["streams_chosen"]) == (None, True)
    assert [at["streams"] for at in one["profile"]] == list(STREAMS.values())
    assert "the path decided how many streams" in one["model"]["inflection_reason"]
    assert sum("streams 32, runs 3" in line for line in told(findings)) == 2
    (other,) = analysis(find(read(copies(streams=8))))["configurations"]
    assert (other["streams"], other["streams_chosen"], other["profile"][0]["streams"]) == (8, False, 8)


def test_they_are_advised_without_a_number():
    records = read(copies() + copies(streams=2, factor=0.5)).records
    advice = Adviser(ground(records), Task(mode="size", amount=SIZE)).advice(0.12)
    assert advice.best.choice.name == "farlink copy, encrypted: bbr ×auto, full buffers"
    assert "  farlink copy FROM TO --congestion bbr --protect encrypt" in advised(advice)
    assert recommendation(advice)["advice"]["streams"] is None
    assert advice.best.measured_s == synthetic.RTTS_S
    assert advice.best.residual == pytest.approx(-0.01, abs=0.02)
    assert advice.best.low_bps is not None


def test_a_model_leaves_them_out_and_says_so():
    saved = profile_model(ground(read(copies() + copies(streams=8)).records))
    assert [one["streams"] for one in saved["configurations"]] == [8]
    (note,) = [note for note in saved["notes"] if "to the path: " in note]
    assert note.endswith(": farlink copy, encrypted: bbr ×auto, full buffers")
    assert not any("no such streams" in note for note in saved["notes"])
    with pytest.raises(ModelFileError, match=r"the path decided how many streams .* measure with --streams"):
        profile_model(ground(read(copies()).records))
