"""The pages of results: a row that is measured by itself takes its own place, and leaves the others'."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.page import Section, write_rows
from support.results import Results

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def write(path: Path, *sections: Section) -> str:
    """The page of these sections."""
    write_rows(path, title="A page", question="How?", command="make bench-page", sections=sections)
    return path.read_text()


def test_what_was_not_measured_again_stays_as_the_page_has_it(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.with_suffix(".notes.md").write_text("## What it shows\n\nMuch.\n")
    first = Section(title="First", body="| 1 |", made="2026-11-01; a machine")
    second = Section(title="Second", body="| 2 |\n\nText.", made="2026-11-01; a machine")
    before = write(path, first, second)
    assert before.count("## ") == 3
    left = [Section(title=each.title, body="", made="") for each in (first, second)]
    assert write(path, *left) == before
    again = Section(title="First", body="| 3 |", made="2026-11-02; another machine")
    after = write(path, again, left[1])
    assert after == before.replace("| 1 |", "| 3 |").replace(first.made, again.made, 1)
    # What was never measured is not there.
    third = Section(title="Third", body="", made="")
    assert write(path, left[0], third, left[1]) == after


def test_a_row_says_when_and_where_its_runs_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = Results(path=tmp_path / "results.jsonl")
    for day, where in (("2026-11-02", "a machine"), ("2026-11-01", "another"), ("2026-11-02", "a machine")):
        monkeypatch.setattr("support.page.today", lambda day=day: day)
        monkeypatch.setattr("support.page.machine", lambda where=where: where)
        results.add({"row": "row", "contender": "ours", "repetition": 0})
    section = results.section("row", "A row", lambda: "| 1 |")
    assert section == Section(
        title="A row", body="| 1 |", made="2026-11-01 to 2026-11-02; a machine; another"
    )
    assert not results.section("other", "Another", lambda: "| 2 |").body
