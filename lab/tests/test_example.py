"""The campaign that comes with the sources: its report says what was measured, whatever that is."""

from __future__ import annotations

import json
import re
import shutil
from html import unescape
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from farlink_lab.plot.figures import model_figure, profile_figure
from farlink_lab.plot.palette import looks
from farlink_lab.prediction import limit_curve
from farlink_lab.quantity import show_time
from farlink_lab.report import write_report

EXAMPLE = Path(__file__).parents[2] / "examples" / "campaign"
RTTS = 7
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    directory = tmp_path_factory.mktemp("example") / "campaign"
    shutil.copytree(EXAMPLE, directory)
    return write_report(directory, command="farlink lab report examples/campaign")


@pytest.fixture(scope="module")
def text(report):
    """The page's words, without markup."""
    page = report.page.read_text()
    body = page[page.index("<body") : page.index("</footer>")]
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", body)).split())


def named(report, name, mode):
    (profile,) = [each for each in report.findings.of_mode(mode) if each.label == name]
    return profile


def test_every_line_of_it_is_a_record_and_a_run_of_its_plan(report):
    assert report.broken == ()
    assert len(report.findings.records) == 63
    assert report.findings.left_out.failed == report.findings.left_out.incomplete == 0


def test_it_says_that_small_buffers_are_convex_throughout(report, text):
    small = named(report, "CUBIC ×1, 256 KiB buffers", "duration")
    assert report.findings.shapes[small.key].throughout == "convex"
    assert re.search(
        r"Fixed duration: CUBIC ×1, 256 KiB buffers, 3 s: [^;]+; convex throughout \([^)]+\)\.", text
    )


def test_it_sets_the_fixed_duration_against_slow_start_with_residuals(report, text):
    full = named(report, "CUBIC ×1", "duration")
    prediction = report.findings.predictions[full.key]
    low, high = (f"{100 * each:+.1f}%".replace("-", "−") for each in sorted(prediction.residual)[:: RTTS - 1])
    assert (
        f"CUBIC ×1, 10 s, against slow start then capacity: {low} to {high} of the model, farthest at" in text
    )
    drawn = model_figure(report.findings, "duration", looks(report.findings.labels))["data"]
    (residuals,) = [trace for trace in drawn if trace["name"] == "CUBIC ×1, 10 s: residual"]
    assert residuals["yaxis"] == "y2"
    measured = full.median_bps / prediction.at_rtts_bps - 1
    assert residuals["y"] == pytest.approx(100 * measured, abs=1e-3)
    (curve,) = [trace for trace in drawn if trace["name"] == "CUBIC ×1, 10 s: model"]
    # Slow start costs more the longer the round trip: it never rises.
    assert np.all(np.diff(curve["y"]) <= 1e-9)


def test_it_says_where_the_fixed_size_profiles_turn_and_how_sure_that_is(report, text):
    turned = 0
    for profile in report.findings.of_mode("size"):
        shape = report.findings.shapes[profile.key]
        said = re.search(
            rf"Fixed size: {re.escape(profile.name)}: [^;]*; (.*?) \((?!within)([^()]*)\)\. ", text
        )
        assert said, profile.name
        where, how_sure = said.groups()
        assert "one run a point: shape only" in how_sure
        for region in shape.regions:
            bend = "straight (within 1%)" if region.bend == "straight" else region.bend
            first, last = show_time(region.first_s), show_time(region.last_s)
            at = f"at {first}" if region.points == 1 else f"from {first} to {last}"
            assert (f"{bend} throughout" if shape.throughout else f"{bend} {at}") in where
        for low, high in shape.turns():
            assert f"between {show_time(low)} and {show_time(high)}" in where
        assert ("it turns convex" in where) == bool(shape.turns())
        # Every RTT but the first and the last is in one of them.
        assert sum(region.points for region in shape.regions) == RTTS - 2
        turned += len({region.bend for region in shape.regions}) > 1
    # A held rate has no slow start to lose, and stays straight; all that search turn.
    assert turned == len(report.findings.of_mode("size")) - 1


def test_the_limit_is_drawn_and_nothing_measured_is_above_it(report):
    findings = report.findings
    page = report.page.read_text()
    for mode, amount in (("size", "2 GiB"), ("duration", "10 s")):
        drawn = profile_figure(findings, mode, looks(findings.labels))["data"]
        (limit,) = [trace for trace in drawn if trace["name"] == f"limit of {amount}"]
        assert len(limit["x"]) > 100
        assert json.dumps(f"limit of {amount}")[1:-1] in page
        for profile in findings.of_mode(mode):
            curve = limit_curve(profile)
            at_rtts = np.interp(profile.rtt_s, curve.rtt_s, curve.throughput_bps)
            assert np.all(profile.median_bps <= 1.02 * at_rtts), profile.name


def test_the_figure_for_a_paper_has_both_panels_and_its_labels(report):
    drawing = ET.fromstring(report.figures[0].read_bytes())
    panels = [
        each.get("id") for each in drawing.iter(f"{SVG}g") if (each.get("id") or "").startswith("axes_")
    ]
    assert panels == ["axes_1", "axes_2"]
    # Letters are drawn; what they spell stands beside them.
    words = re.findall(r"<!-- (.*?) -->", report.figures[0].read_text())
    for each in ("Fixed size", "Fixed duration"):
        assert words.count(each) == 1
    for each in ("RTT, ms", "throughput, Gb/s"):
        assert words.count(each) == 2
    for profile in report.findings.profiles:
        assert profile.name in words
    assert "limit of 2 GiB" in words
    assert "limit of 10 s" in words
    for rtt in ("0.4", "91.6", "366"):
        assert words.count(rtt) == 2
