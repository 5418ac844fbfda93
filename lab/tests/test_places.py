"""Directories and files that stand where another kind was to be named: the refusal says what reads them."""

from __future__ import annotations

import json

import pytest

import synthetic


@pytest.fixture
def home(lab, monkeypatch):
    """A directory of records, one of imported logs, and one of neither."""
    monkeypatch.chdir(lab.home)
    for name in ("measured", "empty"):
        (lab.home / name).mkdir()
    record = synthetic.record(source="a", destination="b", duration_s=1.0)
    (lab.home / "measured" / "records.jsonl").write_text(json.dumps(record) + "\n")
    done = lab.here("logs", "import", "measured/records.jsonl", "--out", "logged")
    assert done.returncode == 0, done.stderr
    return lab


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("report logged/transfers.json", "it is of imported logs: 'farlink lab logs report logged' reports"),
        ("analyse measured/none.jsonl", "name the directory that 'farlink lab profile --out DIR' wrote"),
        ("report logged", "it has imported logs: 'farlink lab logs report logged' reports of them"),
        (
            "report empty",
            "name the directory that 'farlink lab profile --out DIR' wrote, or a file of --record",
        ),
        ("logs report measured", "it has records: 'farlink lab report "),
        ("logs report logged/transfers.json", "name the directory that the file is in: "),
        ("logs report measured/records.jsonl", "import it first: 'farlink lab logs import "),
        ("logs report empty", "name the directory that 'farlink lab logs import --out DIR' wrote"),
        (
            "logs import measured --out out",
            "'farlink lab report measured' reports of them; as a log name measured/records.jsonl",
        ),
        ("logs import logged --out out", "it has imported logs: 'farlink lab logs report logged' reports of"),
        ("logs import empty --out out", "not a regular file: name a log, or several"),
    ],
)
def test_the_refusal_says_what_reads_it(home, words, said):
    done = home.here(*words.split())
    assert done.returncode == 2
    (complaint,) = done.stderr.splitlines()
    assert said in complaint


def test_a_file_of_records_is_read_as_one_of_a_directory(home):
    kept = home.home / "kept.jsonl"
    kept.write_bytes((home.home / "measured" / "records.jsonl").read_bytes())
    of_file, of_directory = (home.here("analyse", name, "--json") for name in ("kept.jsonl", "measured"))
    assert (of_file.returncode, of_file.stdout) == (0, of_directory.stdout)
    assert home.here("compare", "kept.jsonl", "measured").returncode == 0
    done = home.here("report", "kept.jsonl")
    assert done.returncode == 0, done.stderr
    page = (home.home / "kept.jsonl.html").read_text()
    assert "farlink lab report kept.jsonl" in page
    assert "farlink lab profile" not in page.partition("<footer>")[2], "it was measured by no plan"
    assert (home.home / "kept.jsonl.profile.svg").exists()
    before = kept.read_bytes()
    done = home.here("report", "kept.jsonl", "--out", "kept.jsonl")
    assert done.returncode == 2
    assert "the records are there" in done.stderr
    assert kept.read_bytes() == before


@pytest.mark.parametrize("words", [("report",), ("logs", "report"), ("logs", "import")])
def test_a_name_that_cannot_be_looked_at_is_one_line(home, words):
    done = home.here(*words, "x" * 300, *(("--out", "there") if words[-1] == "import" else ()))
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "File name too long" in done.stderr
