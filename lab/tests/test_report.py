"""The report, opened in a real browser without a network."""

from __future__ import annotations

import errno
import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from plotly import graph_objects
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select

import synthetic
from farlink_lab.demo import profile_table
from farlink_lab.error import LabError
from farlink_lab.findings import find
from farlink_lab.plot.figures import cost_figure, health_figure, model_figure, profile_figure
from farlink_lab.plot.next_transfer import next_transfer_figure
from farlink_lab.plot.palette import looks
from farlink_lab.plot.regimes import BEND_COLOURS, phases_figure, regimes_figure
from farlink_lab.profile import profiles
from farlink_lab.records import parse_lines, read_records
from farlink_lab.report import write_report
from farlink_lab.words import comparisons, headlines

FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *(
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--window-size=1200,1000",
    ),
)
FIGURES = (
    *("profile-size", "regimes-size", "next-size", "model-size"),
    *("profile-duration", "regimes-duration", "next-duration", "model-duration"),
    *("phases", "trace", "poincare", "cost", "health"),
)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    directory = tmp_path_factory.mktemp("campaign")
    synthetic.write(directory, synthetic.campaign(), broken=True)
    return write_report(directory, command="farlink lab report campaign")


@pytest.fixture(scope="module")
def browser(report, tmp_path_factory):
    options = Options()
    options.binary_location = "/usr/bin/chromium"
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('browser')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    try:
        driver.get(report.page.as_uri())
        deadline = time.monotonic() + 60
        while not driver.execute_script("return document.documentElement.dataset.ready"):
            assert time.monotonic() < deadline, "the page was never ready"
            time.sleep(0.05)
        yield driver
    finally:
        driver.quit()


def axis(browser, figure, name):
    return browser.execute_script(f"return document.getElementById('{figure}')._fullLayout.{name}.type")


def choose(browser, selector):
    browser.execute_script("document.querySelector(arguments[0]).click()", selector)


def settle(browser, condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "the page did not follow"
        time.sleep(0.05)


def test_every_figure_is_drawn(browser):
    assert browser.execute_script("return document.documentElement.dataset.ready") == "yes"
    for figure in FIGURES:
        plot = browser.find_element(By.CSS_SELECTOR, f"#{figure} .main-svg")
        assert plot.size["width"] > 300, figure
        assert plot.size["height"] > 300, figure
        drawn = browser.execute_script(
            "return [...document.querySelectorAll(`#${arguments[0]} .scatterlayer path`)]"
            ".filter((path) => path.getBoundingClientRect().width > 0).length",
            figure,
        )
        assert drawn > 0, figure


def test_the_map_of_winners_is_drawn_with_its_legend(browser):
    place = browser.find_element(By.ID, "winners")
    assert place.find_element(By.CSS_SELECTOR, ".heatmaplayer image").size["width"] > 200
    assert "cubic ×1, full buffers" in place.find_element(By.CSS_SELECTOR, ".legend").text
    assert (
        "model of its own" in place.find_element(By.XPATH, "..").find_element(By.TAG_NAME, "figcaption").text
    )


def test_the_console_is_quiet_and_nothing_is_fetched(browser, report):
    assert browser.get_log("browser") == []
    asked = [
        message["params"]["request"]["url"]
        for entry in browser.get_log("performance")
        if (message := json.loads(entry["message"])["message"])["method"] == "Network.requestWillBeSent"
        # The browser's own first page asks too.
        and message["params"]["documentURL"] == report.page.as_uri()
    ]
    assert report.page.as_uri() in asked
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []


def test_the_axes_switch(browser):
    for value in ("log", "linear"):
        choose(browser, f"input[data-axis=x][value={value}]")
        choose(browser, f"input[data-axis=y][value={value}]")
        for figure in ("profile-size", "profile-duration"):
            settle(browser, lambda f=figure, v=value: axis(browser, f, "xaxis") == v)
            settle(browser, lambda f=figure, v=value: axis(browser, f, "yaxis") == v)


def test_the_selection_shows_another_run(browser):
    select = Select(browser.find_element(By.ID, "run"))
    slow = next(option for option in select.options if option.text.startswith("366 ms"))
    select.select_by_value(slow.get_attribute("value"))
    said = browser.find_element(By.ID, "run-said")
    settle(browser, lambda: "Ramp-up of" in said.text)
    shapes = "return document.getElementById('trace')._fullLayout.shapes.length"
    settle(browser, lambda: browser.execute_script(shapes) == 2)


def test_the_legend_hides_a_configuration_everywhere(browser):
    shown = (
        "return FIGURES.map((id) => document.getElementById(id).data.filter((trace) =>"
        " trace.meta.label === 'CUBIC ×1' && trace.visible).length)"
    ).replace("FIGURES", json.dumps(["profile-size", "profile-duration", "cost"]))
    button = '.legend button[data-label="CUBIC ×1"]'
    choose(browser, button)
    settle(browser, lambda: browser.execute_script(shown) == [0, 0, 0])
    choose(browser, button)
    settle(browser, lambda: 0 not in browser.execute_script(shown))


def test_the_page_fits_a_phone(browser):
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True},
    )
    try:
        settle(browser, lambda: browser.execute_script("return document.documentElement.scrollWidth") <= 390)
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_what_records_say_is_text_and_never_markup(browser, report):
    assert "the far side <b>closed</b> the connection" in browser.page_source.replace("&lt;", "<").replace(
        "&gt;", ">"
    )
    assert "<b>closed" not in report.page.read_text()


def test_what_was_left_out_is_told(report):
    text = report.page.read_text()
    assert "1 run where the emulator fell behind, 1 run that failed" in text
    assert "line 3: not JSON" in text
    assert [broken.number for broken in report.broken] == [3]


def test_late_points_are_told_and_drawn_hollow(tmp_path):
    synthetic.write(tmp_path, synthetic.late_campaign())
    report = write_report(tmp_path)
    findings, text = report.findings, report.page.read_text()
    assert "The emulator fell behind in 20 of 56 runs. Where an RTT had a run without that" in text
    assert "8 points had none and are late and drawn hollow" in text
    assert "judged on 7 RTTs, 2 of them late: " in text
    assert "Hollow marks are late" in text
    assert ": late, in its profile" in text
    assert all("late" in said for said in headlines(findings) if "Left out" not in said)
    look = looks(findings.labels)
    for draw in (profile_figure, model_figure):
        symbols = [
            trace["marker"]["symbol"]
            for trace in draw(findings, "duration", look)["data"]
            if len(trace["x"]) == len(synthetic.RTTS_S) and "marker" in trace
        ]
        assert symbols
        for each in symbols:
            assert [symbol.endswith("-open") for symbol in each] == [True, True, *[False] * 5]
    graph_objects.Figure(
        json.loads(json.dumps(profile_figure(findings, "size", look)).replace("ink", "black"))
    )
    table = profile_table(findings)
    for column in table.columns[1:3]:
        assert all(str(cell).endswith("*") for cell in column.cells)
    assert not any("*" in str(cell) for column in table.columns[3:] for cell in column.cells)
    assert "* late: the emulator fell behind" in table.caption


def test_without_late_points_nothing_speaks_of_them(report):
    assert not any("late" in said for said in headlines(report.findings))
    assert profile_table(report.findings).caption is None
    assert "Hollow marks" not in report.page.read_text()


@pytest.mark.parametrize(
    "changes",
    [
        {"queue_bytes": 6_250_000},
        {"rate_bps": 1_000_000_000},
        {"loss": 1e-4},
        {"mtu": 1500},
        {"framing": "sonet"},
        {"background_bps": 3_000_000_000},
        {"kind": "file"},
        {"congestion": "bbr"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_tools_are_compared_where_they_did_the_same_over_the_same_connection(report, changes):
    said = "CUBIC ×1, 10 s, against iperf3 CUBIC ×1: "
    assert any(each.startswith(said) for each in headlines(report.findings))
    assert compared(report, theirs={})
    assert not compared(report, theirs=changes)


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_tools_that_protect_files_otherwise_are_not_compared(report, kind):
    ours, theirs = ({"kind": kind, "protection": protection} for protection in ("encrypted", "clear"))
    assert compared(report, ours=ours, theirs=theirs) == (kind == "memory")
    assert compared(report, ours={**theirs, "background_bps": 0}, theirs=theirs)


def compared(report, *, ours=None, theirs):
    """Whether tools are compared whose records say this besides."""
    made = [{**each, **(theirs if each["tool"] == "iperf3" else ours or {})} for each in synthetic.campaign()]
    found, _ = profiles(parse_lines(json.dumps(each).encode() for each in made).records)
    return bool(comparisons(replace(report.findings, profiles=found)))


def test_regimes_are_coloured_and_their_numbers_stand_beneath(report):
    findings, text = report.findings, report.page.read_text()
    drawn = regimes_figure(findings, "duration", looks(findings.labels))["data"]
    (key,) = [profile.key for profile in findings.profiles if profile.buffer_bytes]
    small = [
        trace["line"]["color"]
        for trace in drawn
        if trace["meta"]["label"] == "CUBIC ×1, 256 KiB buffers" and trace["mode"] == "lines"
    ]
    assert findings.regimes[key].regime == "all convex"
    assert small
    assert set(small) <= {BEND_COLOURS["convex"], BEND_COLOURS["undecided"]}
    for said in ("<th>τ_T</th><th>C_U</th><th>C_CC</th><th>UCC</th><th>T_R</th><th>θ_S</th>", "our reading"):
        assert said in text
    assert "For a run's own phases that is an identity" in text.replace("&#x27;", "'")


def test_the_chosen_run_has_its_map(browser):
    select = Select(browser.find_element(By.ID, "run"))
    quick = next(option for option in select.options if option.text.startswith("0.4 ms"))
    select.select_by_value(quick.get_attribute("value"))
    said = browser.find_element(By.ID, "map-said")
    settle(browser, lambda: "at this RTT: " in said.text)
    points = "return document.getElementById('poincare').data[1].x.length"
    settle(browser, lambda: browser.execute_script(points) > 5)


def test_the_next_transfer_is_drawn_between_rtts_that_are_not_late(tmp_path, report):
    findings = report.findings
    drawn = next_transfer_figure(findings, "duration", looks(findings.labels))
    boxes = [trace for trace in drawn["data"] if trace.get("fill") == "toself"]
    gaps = [gap for profile in findings.of_mode("duration") for gap in findings.intervals[profile.key]]
    assert len(boxes) == len(gaps)
    assert boxes[0]["x"][:2] == pytest.approx([1e3 * gaps[0].from_s, 1e3 * gaps[0].to_s])
    assert "Where the next transfer lies" in report.page.read_text()
    means = [
        trace["error_y"]
        for trace in regimes_figure(findings, "duration", looks(findings.labels))["data"]
        if "error_y" in trace
    ]
    assert len(means) == len(findings.of_mode("duration"))
    synthetic.write(tmp_path, synthetic.late_campaign())
    text = write_report(tmp_path).page.read_text()
    assert "Late RTTs bound nothing and are left out." in text
    assert "2 of 7 RTTs late" in text


def test_small_buffers_are_convex_throughout(report):
    (key,) = [profile.key for profile in report.findings.profiles if profile.buffer_bytes]
    assert report.findings.shapes[key].throughout == "convex"


def test_the_paper_figures_are_written(report):
    assert report.figures[0].read_text().startswith("<?xml")
    assert report.figures[1].read_bytes().startswith(b"%PDF")


def test_the_same_records_give_the_same_page(report):
    before = report.page.read_bytes(), report.figures[0].read_bytes()
    again = write_report(report.page.parent, command="farlink lab report campaign")
    assert (again.page.read_bytes(), again.figures[0].read_bytes()) == before


def test_figures_are_what_plotly_takes(report):
    findings = report.findings
    look = looks(findings.labels)
    figures = [cost_figure(findings, look), health_figure(findings, look), phases_figure(findings, look)]
    figures += [
        draw(findings, mode, look)
        for draw in (profile_figure, regimes_figure, next_transfer_figure, model_figure)
        for mode in ("size", "duration")
    ]
    for figure in figures:
        plain = json.loads(json.dumps(figure).replace('"ink"', '"black"'))
        graph_objects.Figure(plain)


@pytest.mark.parametrize(
    "changes", [{}, {"samples": None, "cpu_s": None, "emulator": None, "goodput_bps": None, "lab": None}]
)
def test_one_lone_record_makes_a_report(tmp_path, changes):
    synthetic.write(tmp_path, [synthetic.record(**changes)])
    text = write_report(tmp_path).page.read_text()
    assert "1 run of 1 configuration at 1 RTT" in text


def test_records_of_failures_alone_make_a_report(tmp_path):
    synthetic.write(
        tmp_path, [synthetic.record(outcome="failed", error="no route to host", duration_s=None, bytes=0)]
    )
    report = write_report(tmp_path)
    text = report.page.read_text()
    assert "No run can be counted" in text
    assert "profile.svg" not in text
    assert report.figures == ()
    assert not list(tmp_path.glob("profile.*"))


def test_where_no_run_counts_one_line_says_why(lab):
    lab.out.mkdir()
    failed = synthetic.record(outcome="failed", error="no route to host", duration_s=None, bytes=0)
    synthetic.write(lab.out, [failed, {**failed, "outcome": "interrupted"}, synthetic.record(limit_bps=1e9)])
    done = lab.here("report", lab.out)
    assert (done.returncode, done.stdout) == (2, f"report: {lab.out}/report.html\n")
    assert done.stderr == (
        "farlink: no run counts (1 run that failed, 1 run that was interrupted, 1 run that --limit held to a "
        "rate), so there is nothing to draw or to tell: measure with 'farlink lab profile'\n"
    )


def test_reports_beside_each_other_keep_their_figures(tmp_path):
    synthetic.write(tmp_path, synthetic.campaign(repetitions=1))
    for page, figures in (("report.html", "profile"), ("x.html", "x.profile"), ("y.1.html", "y.1.profile")):
        written = write_report(tmp_path, out=tmp_path / page)
        assert [path.name for path in written.figures] == [f"{figures}.svg", f"{figures}.pdf"]
        assert f"<code>{figures}.svg</code> and <code>{figures}.pdf</code>" in written.page.read_text()
    assert len(list(tmp_path.glob("*.pdf"))) == 3


def test_nothing_to_report_is_one_line(tmp_path):
    (tmp_path / "records.jsonl").write_text("{\n")
    with pytest.raises(LabError, match=r"no record in it: line 1: not JSON[^,]*: name the direc"):
        write_report(tmp_path)
    (tmp_path / "records.jsonl").write_text("\n{\n[]\n")
    with pytest.raises(LabError, match=r"line 2: not JSON.*, and 1 more broken line: name the direc"):
        write_report(tmp_path)
    (tmp_path / "records.jsonl").write_text("")
    with pytest.raises(LabError, match="no record in it: run 'farlink lab profile' first"):
        write_report(tmp_path)
    with pytest.raises(LabError, match="No such file"):
        write_report(tmp_path / "none")


def test_broken_lines_are_named_on_standard_error(lab):
    lab.out.mkdir()
    synthetic.write(lab.out, synthetic.campaign(repetitions=1), broken=True)
    done = lab.run("report", lab.out, "--out", lab.home / "page.html")
    assert done.returncode == 2, "not all could be read"
    assert len(done.stderr.splitlines()) == 1
    assert "records.jsonl: line 3: not JSON at column 18" in done.stderr
    assert Path(lab.home / "page.html").exists()
    assert find(read_records(lab.out / "records.jsonl")).profiles


def test_a_page_that_would_be_a_directory_is_refused_before_records_are_read(lab, tmp_path):
    for out in (".", "/"):
        done = lab.run("report", tmp_path / "none", "--out", out)
        assert done.returncode == 2
        (complaint,) = done.stderr.splitlines()
        assert f"--out: {out} is a directory: name a file" in complaint


def test_a_directory_that_is_not_there_is_not_made_for_a_page(lab):
    lab.out.mkdir()
    synthetic.write(lab.out, synthetic.campaign(repetitions=1))
    for words in (
        ("report", lab.out, "--out"),
        ("logs", "report", lab.out, "--out"),
    ):
        done = lab.here(*words, lab.home / "none" / "x.html")
        assert done.returncode == 2
        none = lab.home / "none"
        assert done.stderr == (
            f"farlink: {words[-1]}: {none}/x.html: {none} is no directory: make it, or name another file\n"
        )
    assert not (lab.home / "none").exists()


def test_a_report_that_goes_elsewhere_leaves_its_campaign_alone_and_names_what_cannot_be_written(tmp_path):
    campaign, elsewhere = tmp_path / "campaign", tmp_path / "reports" / "may"
    campaign.mkdir()
    elsewhere.mkdir(parents=True)
    synthetic.write(campaign, synthetic.campaign(repetitions=1))
    written = write_report(campaign, out=elsewhere / "page.html")
    assert [path.name for path in campaign.iterdir()] == ["records.jsonl"]
    assert sorted(elsewhere.iterdir()) == sorted([written.page, *written.figures])
    # What is in the way of a figure is named, and the page is there.
    svg, pdf = written.figures
    assert (svg.name, pdf.name) == ("page.profile.svg", "page.profile.pdf")
    written.page.unlink()
    svg.unlink()
    svg.mkdir()
    with pytest.raises(LabError, match=f"{svg}: Is a directory: make room, or name another --out"):
        write_report(campaign, out=elsewhere / "page.html")
    assert written.page.exists()
    # So is a page that may not be, under its own name.
    with pytest.raises(LabError, match=r"^/sys/page\.html: [^:]*: name another --out$"):
        write_report(campaign, out=Path("/sys/page.html"))
    with pytest.raises(LabError, match="name a page"):
        write_report(campaign, out=elsewhere / "profile.pdf")


def test_a_directory_that_may_not_be_written_is_named_and_what_was_begun_is_not(tmp_path, monkeypatch):
    synthetic.write(tmp_path, synthetic.campaign(repetitions=1))

    def refuse(to, *_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(to))

    monkeypatch.setattr(Path, "write_text", refuse)
    page = tmp_path / "report.html"
    said = f"^{page}: Read-only file system: write it elsewhere with --out FILE$"
    with pytest.raises(LabError, match=said):
        write_report(tmp_path)
