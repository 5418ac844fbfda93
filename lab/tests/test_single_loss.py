"""Single losses found in windows whose laws are known, step by step, and told on the page."""

from __future__ import annotations

import json

import pytest
from plotly import graph_objects

import synthetic
from farlink_lab.findings import find
from farlink_lab.plot.losses import loss_figure
from farlink_lab.plot.palette import looks
from farlink_lab.records import read_records
from farlink_lab.report import write_report
from farlink_lab.single_loss import HEADERS, cubic_peaks
from farlink_lab.words import headlines

RTT_S, STEP_S, MTU = 0.05, 0.01, 9000
# Every so often one segment is lost.
EVERY_S, SECONDS = 3.0, 30.0


def scalable(window, _seconds, _missing):
    return window * 0.01 / RTT_S


def cubic(_window, seconds, missing):
    # d/dt of 0.4 (t - K)^3, whose K is when what is missing from the peak has grown again.
    return 1.2 * (seconds - (missing / 0.4) ** (1 / 3)) ** 2


def htcp(_window, seconds, _missing):
    # Half of the window is left; two eighths of a tenth of a second are half of RTT_S.
    later = max(seconds - 1, 0)
    return max((1 + int(10 * later + (later / 2) ** 2)) * 8 // 16, 1) / RTT_S


LAWS = {"scalable": (scalable, 0.875), "cubic": (cubic, 0.7), "htcp": (htcp, 0.5)}


def course(name, *, window=2000.0, at_once=1):
    """The columns of a stream, its window in bytes: each loss is noticed, then repaired in a round trip."""
    grow, left = LAWS[name]
    columns = {column: [] for column in ("t_s", "cwnd_bytes", "srtt_s", "retransmits")}
    now, lost_at, again, peak, missing = 0.0, 0.0, 0, 0.0, 0.0
    while now < SECONDS:
        now = round(now + STEP_S, 6)
        if now - lost_at >= EVERY_S - 1e-9:
            # RFC 9438, 4.7.
            peak = window if window >= peak else window * 0.85
            lost_at, again, window = now, again + at_once, window * left
            missing = max(peak - window, 0)
        elif now - lost_at > RTT_S:
            window += grow(window, now - lost_at - RTT_S, missing) * STEP_S
        for column, value in zip(columns, (now, round(window) * (MTU - HEADERS), RTT_S, again), strict=True):
            columns[column].append(value)
    return {"stream": 0, **columns}


def made(name, *, loss=0.0001, streams=1, **changes):
    return synthetic.record(
        mode="duration",
        rtt_s=RTT_S,
        mtu=MTU,
        loss=loss,
        duration_s=SECONDS,
        congestion=name,
        samples=synthetic.samples(ramp_s=0, rate_bps=1e9, seconds=SECONDS, tau_s=RTT_S),
        tcp=[course(name, **changes)] * streams,
        lab={"plan": "x", "run": name, "configuration": name, "repetition": 0},
    )


def courses(tmp_path, records):
    return find(read_records(synthetic.write(tmp_path, records))).losses


@pytest.mark.parametrize("name", LAWS)
def test_what_a_loss_takes_and_the_growth_are_those_of_the_law(tmp_path, name):
    (found,) = courses(tmp_path, [made(name)])
    assert len(found.cycles) >= 6
    assert found.taken == pytest.approx(1 - LAWS[name][1], rel=0.05)
    assert found.growth == pytest.approx(found.growth_published, rel=0.05)


def test_the_law_of_another_is_seen_to_be_another(tmp_path):
    record = made("scalable")
    record["congestion"] = "cubic"
    (found,) = courses(tmp_path, [record])
    assert found.growth > 1.3 * found.growth_published


def test_who_loses_before_the_last_peak_aims_lower():
    # RFC 9438, 4.7: 190 lies under 200 and counts as 161, over which 165 lies.
    assert cubic_peaks([200.0, 190.0, 165.0]) == [200.0, 161.0, 165.0]


@pytest.mark.parametrize(
    "changes", [{"loss": 0.0}, {"at_once": 2}, {"streams": 2}], ids=["no loss", "two at once", "two streams"]
)
def test_what_is_no_single_loss_is_none(tmp_path, changes):
    assert courses(tmp_path, [made("scalable", **changes)]) == ()


def test_a_window_that_is_no_number_is_left_out(tmp_path):
    record = made("scalable")
    record["tcp"][0]["cwnd_bytes"][7] = None
    assert courses(tmp_path, [record]) == ()


def test_the_page_tells_and_draws_them(tmp_path):
    synthetic.write(tmp_path, [made(name) for name in LAWS])
    report = write_report(tmp_path)
    text, findings = report.page.read_text(), report.findings
    assert "What one loss does" in text
    assert "12.5%<small>Kelly, 2003</small>" in text
    said = [sentence for sentence in headlines(findings) if "single loss" in sentence]
    assert [sentence.split(" at ")[0] for sentence in said] == sorted(LAWS)
    assert "scalable at 50 ms: a single loss took 12.0% of the window (published: 12.5%)" in said[-1]
    figure = loss_figure(findings.losses, looks(findings.labels))
    assert len(figure["data"]) == 2 * len(findings.losses)
    graph_objects.Figure(json.loads(json.dumps(figure)))
    beneath = [trace for trace in figure["data"] if trace.get("yaxis") == "y2"]
    # Before its loss each window is the measure of itself, and at the loss it steps down.
    for trace in beneath:
        before = [y for x, y in zip(trace["x"], trace["y"], strict=True) if x < 0]
        assert before[-1] == pytest.approx(100)
        assert min(trace["y"]) < 90


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("rtt_s", [1e-4, 1e-9, 1e-300])
def test_a_law_is_untold_of_more_round_trips_than_any_window_grows_for(tmp_path, name, rtt_s):
    record = made(name)
    record["tcp"][0]["srtt_s"] = [rtt_s] * len(record["tcp"][0]["t_s"])
    synthetic.write(tmp_path, [record])
    report = write_report(tmp_path)
    (course,) = report.findings.losses
    told = [said for said in headlines(report.findings) if "single loss" in said]
    assert len(told) == (course.growth_published is not None)
    assert course.growth_published is None or (name, rtt_s) in {("cubic", 1e-4), ("htcp", 1e-4)}
    assert "<small>Kelly, 2003</small>" in report.page.read_text() or name != "scalable"


def test_losses_of_late_runs_are_called_late(tmp_path):
    record = made("scalable")
    record["emulator"] = {"late_max_s": 0.1, "late_p99_s": 0.1, "overrun": True}
    synthetic.write(tmp_path, [record])
    report = write_report(tmp_path)
    said = [sentence for sentence in headlines(report.findings) if "single loss" in sentence]
    assert said[0].startswith("scalable at 50 ms (late): a single loss took")
    assert "<td>50 ms<small>late</small></td>" in report.page.read_text()


def test_without_losses_the_page_is_silent_of_them(tmp_path):
    synthetic.write(tmp_path, [made("scalable", loss=0.0)])
    assert "What one loss does" not in write_report(tmp_path).page.read_text()
