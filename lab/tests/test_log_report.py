"""The command line of logs: what it prints, writes and refuses."""

import io
import json
import os
import re
import subprocess
import sys
import textwrap
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

import pytest

from farlink_lab.cli import main
from farlink_lab.logs.synthesis import FIRST_DAY_US
from farlink_lab.logs.transfer import US
from log_lines import line, write


def run(*arguments):
    """The lab's command line, in this process: each start of its own would take a second."""
    out, err = io.StringIO(), io.StringIO()
    words = ["farlink-lab", "logs", *map(str, arguments)]
    with redirect_stdout(out), redirect_stderr(err), patch.object(sys, "argv", words):
        try:
            main()
            status = 0
        except SystemExit as end:
            status = end.code
    return subprocess.CompletedProcess(words, status, out.getvalue(), err.getvalue())


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two months of a made log, as Parquet."""
    home = tmp_path_factory.mktemp("made")
    done = run("synth", "--transfers", 20_000, "--days", 60, "--seed", 3, "--out", home / "d")
    assert done.returncode == 0, done.stderr
    return home / "d"


@pytest.mark.parametrize(
    ("verb", "keys"),
    [
        ("sessions", {"gaps", "transfer_throughput_bps", "without_both_ends"}),
        ("circuits", {"table", "sensitivity", "without_both_ends"}),
        ("plan", {"terms", "policies", "months"}),
        ("variance", {"throughput_bps", "iqr_bps", "concurrency", "factors", "verdict"}),
    ],
)
def test_an_analysis_prints_one_object_and_draws_a_figure(made, tmp_path, verb, keys):
    done = run(verb, made, "--json", "--figure", tmp_path / "figure.svg")
    assert done.returncode == 0, done.stderr
    assert keys <= set(json.loads(done.stdout))
    assert (tmp_path / "figure.svg").read_text().lstrip().startswith("<?xml")


def test_counters_of_the_link_are_told_beside_the_transfers(made, tmp_path):
    lines = [f"{FIRST_DAY_US // US + 300 * (at + 1)},{10**10 + at}" for at in range(60 * 288)]
    (tmp_path / "link.csv").write_text("\n".join(["time,bytes", *lines]) + "\n")
    done = run("variance", made, "--snmp", tmp_path / "link.csv", "--json")
    assert done.returncode == 0, done.stderr
    link = json.loads(done.stdout)["link"]
    assert link["overall"]["intervals"] > 0
    assert len(link["quartiles"]) == 4
    said = run("variance", made, "--snmp", tmp_path / "link.csv").stdout
    assert "other traffic" in said


def test_what_the_guide_shows_to_a_notebook_runs(made):
    guide = Path(__file__).parents[2] / "docs" / "logs.md"
    block = re.search(r"^    from pathlib import Path\n(?:(?:    .*)?\n)+", guide.read_text(), re.MULTILINE)
    code = textwrap.dedent(block[0]).replace('Path("transfers")', f"Path({str(made)!r})")
    names = {}
    exec(code, names)
    assert [(share.gap_s, share.setup_s) for share in names["table"]][:2] == [(0.0, 60.0), (0.0, 0.05)]


def test_the_tables_say_their_unit(made):
    assert "sizes in MiB of 1,048,576 bytes" in run("sessions", made, "--unit", "MiB").stdout
    assert "sizes in MB of 1,000,000 bytes" in run("sessions", made).stdout


def test_sessions_are_listed_one_a_line(made):
    listed = [json.loads(each) for each in run("sessions", made, "--list").stdout.splitlines()]
    told = json.loads(run("sessions", made, "--json").stdout)["gaps"][0]
    assert len(listed) == told["sessions"]
    assert sum(each["transfers"] for each in listed) == 20_000


def test_the_report_is_one_page_with_its_figures_in_it(made, tmp_path):
    done = run("report", made, "--out", tmp_path / "page.html")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "page.html").read_text()
    assert "https://" not in page.partition('id="plotly"')[0]
    for identity in ("sessions", "circuits", "plan", "months", "variance", "factors"):
        assert f'id="{identity}"' in page
    assert "20,000 transfers, of " in page


def test_a_page_of_a_log_that_withholds_its_ends_says_so(tmp_path):
    path = write(tmp_path / "log", [line(at, 1 + at % 7, DEST=None) for at in range(30)])
    assert run("import", path, "--out", tmp_path / "d").returncode == 0
    assert run("report", tmp_path / "d").returncode == 0
    page = (tmp_path / "d" / "report.html").read_text()
    assert "withheld" in page
    # They are of one session, and that is said.
    assert "1 sessions are too few" in page


def test_an_import_tells_what_it_refused(tmp_path):
    path = write(tmp_path / "log", [line(0), line(0), line(1, NBYTES=-1), "nonsense", line(2, DEST=None)])
    done = run("import", path, tmp_path / "gone.log", "--out", tmp_path / "d")
    assert done.returncode == 2
    assert "gone.log: No such file" in done.stderr
    assert "5 lines, 3 transfers" in done.stdout
    for words in (
        "1 has a size below zero",
        "1 cannot be read",
        "1 names no source",
        "1 duplicate, each kept once",
    ):
        assert words in done.stdout


_FEED = ("service", "--mean", "1mbit", "--peak", "2mbit", "--fan-out", "3")
REFUSED = {
    ("import", "{log}"): "--out",
    ("import", "{log}", "--out", "{d}", "--zone", "Nowhere"): "Nowhere",
    ("import", "{log}", "--out", "{d}", "--map", "{gone}"): "gone",
    ("sessions", "{gone}"): "farlink lab logs import",
    ("sessions", "{made}", "--gap", "60"): "no unit",
    ("sessions", "{made}", "--min-bytes", "100"): "no unit",
    ("sessions", "{made}", "--engine", "oracle"): "duckdb",
    ("sessions", "{made}", "--figure", "{gone}.bmp"): ".svg",
    ("sessions", "{made}", "--list", "--figure", "{d}.svg"): "leave out --figure",
    ("sessions", "{made}", "--list", "--json"): "leave out --json",
    ("circuits", "{made}", "--factor", "0"): "--factor",
    ("circuits", "{made}", "--rate", "fast"): "--rate",
    ("plan", "{made}", "--capacity", "-1gbit"): "below zero",
    ("circuits", "{made}", "--factor", "inf"): "--factor",
    ("plan", "{made}", "--factor", "-1"): "--factor",
    ("plan", "{made}", "--factor", "inf"): "--factor",
    ("plan", "{made}", "--factor", "nan"): "--factor",
    ("variance", "{made}", "--sizes", "3GB"): "30GB..34GB",
    ("variance", "{made}", "--sizes", "4GB..3GB"): "4GB..3GB",
    ("variance", "{made}", "--source", "nobody"): "--source: no transfer has the source nobody: there are",
    ("variance", "{made}", "--snmp", "{gone}"): "time,bytes",
    ("variance", "{made}", "--zone", "Nowhere"): "Nowhere",
    ("service", "--fan-out", "3"): "--mean",
    ("service", "--mean", "1mbit", "--peak", "2mbit"): "--topology",
    ("service", "--mean", "3mbit", "--peak", "2mbit", "--fan-out", "3"): "--peak",
    (*_FEED, "--held", "-1"): "--held: -1 of 3 receivers cannot have a product: 0 to 3",
    (*_FEED, "--held", "4"): "--held: 4 of 3 receivers cannot have a product: 0 to 3",
    ("synth", "--transfers", "0", "--out", "{d}"): "--transfers",
    ("synth", "--transfers", "5"): "--lines",
    ("follow", "{gone}", "--out", "{d}", "--once"): "gone",
}


@pytest.mark.parametrize("words", REFUSED, ids=" ".join)
def test_what_makes_no_sense_is_refused_in_one_line(made, tmp_path, words):
    log = write(tmp_path / "log", [line(0)])
    places = {"log": log, "d": tmp_path / "d", "gone": tmp_path / "gone", "made": made}
    done = run(*(word.format(**places) for word in words))
    assert done.returncode == 2, done
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert REFUSED[words] in done.stderr


# Beside a directory that is not there: who names the option has not looked for the logs.
REFUSED_FIRST = {
    ("sessions", "--figure", "{gone}.bmp"): ".svg, .pdf, .png",
    ("sessions", "--figure", "{gone}/figure.svg"): "is no directory: make it",
    ("circuits", "--figure", "{there}"): "is a directory: name a file",
    ("circuits", "--figure", "{long}.svg"): "File name too long",
    ("circuits", "--rate", "fast"): "--rate",
    ("plan", "--rate", "fast"): "--rate",
    ("plan", "--setup", "1"): "--setup",
    ("plan", "--hold", "1"): "--hold",
    ("plan", "--gap", "1"): "--gap",
    ("plan", "--figure", "."): "--figure: . is a directory",
    ("variance", "--zone", "Nowhere"): "--zone",
    ("variance", "--seed", "-1"): "--seed",
    ("variance", "--figure", "{gone}"): ".svg, .pdf, .png",
    ("report", "--out", "."): "--out: . is a directory: name a file, as in report.html",
    ("report", "--out", "{there}"): "is a directory",
    ("report", "--zone", "Nowhere"): "--zone",
    ("report", "--seed", "-1"): "--seed",
}


@pytest.mark.parametrize("words", REFUSED_FIRST, ids=" ".join)
def test_options_are_refused_before_the_logs_are_opened(tmp_path, words):
    places = {"gone": tmp_path / "gone", "there": tmp_path, "long": tmp_path / ("x" * 300)}
    verb, *options = (word.format(**places) for word in words)
    done = run(verb, tmp_path / "no logs", *options)
    assert done.returncode == 2, done
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert REFUSED_FIRST[words] in done.stderr


def test_an_answer_is_not_lost_where_its_figure_cannot_be_written(made, tmp_path):
    for verb in ("sessions", "circuits", "plan", "variance"):
        # Where it is drawn before it has its name.
        (tmp_path / f".figure.svg.{os.getpid()}").symlink_to("/dev/full")
        done = run(verb, made, "--json", "--figure", tmp_path / "figure.svg")
        assert done.returncode == 2
        assert json.loads(done.stdout)
        (complaint,) = done.stderr.splitlines()
        assert "figure.svg: No space left on device" in complaint
        assert list(tmp_path.iterdir()) == []
