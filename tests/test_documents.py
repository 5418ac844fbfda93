"""The documents hold together by themselves: what can be told without the program."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from documents import Command, anchors, broken_links, commands, documents, listed_flags, make_targets
from emulation import ROOT

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("document", documents(ROOT), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(document: Path) -> None:
    assert not list(broken_links(document))


def test_every_make_target_that_is_shown_exists() -> None:
    targets = make_targets(ROOT / "Makefile")
    every = [command for document in documents(ROOT) for command in commands(document)]
    shown = {command.verb for command in every if command.program == "make"}
    assert shown
    for target in shown:
        assert target in targets or re.sub("-.*", "-%", target) in targets, target


def test_the_code_map_has_every_crate_and_no_other() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    mapped = set(re.findall(r"^`crates/(\w+)`\.", text, re.MULTILINE))
    assert mapped == {path.parent.name for path in (ROOT / "crates").glob("*/Cargo.toml")}


def test_every_path_in_the_architecture_exists() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    for path in set(re.findall(r"`((?:crates|docs|fuzz|tests|bench|plans|lab)/[\w./]*)", text)):
        assert (ROOT / path).exists() or "NAME" in path, path


def test_the_guide_has_every_variable_of_the_provider() -> None:
    read = (ROOT / "crates" / "flow" / "src" / "fabric" / "settings.rs").read_text().partition("mod tests")[0]
    # By this one a launcher sees that ranks use it: it is nobody else's.
    variables = set(re.findall(r'"(FARLINK_[A-Z_]+)"', read)) - {"FARLINK_PROOF"}
    assert len(variables) > 10, variables
    guide = (ROOT / "docs" / "guide" / "mpi.md").read_text()
    assert [name for name in sorted(variables) if f"`{name}`" not in guide] == []


def test_decisions_are_short_dated_and_listed() -> None:
    listed = (ROOT / "docs" / "decisions" / "README.md").read_text()
    for path in (ROOT / "docs" / "decisions").glob("2*.md"):
        lines = path.read_text().splitlines()
        assert len(lines) <= 25, path.name
        assert re.match(r"\d{4}-\d{2}-\d{2}-", path.name), path.name
        assert lines[2] == path.name[:10], path.name
        assert f"]({path.name})" in listed, path.name


def test_broken_documents_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One: the `first`\n\n[x](gone.md) [y](#one-the-first) [z](#two) [w](https://example.org)\n\n"
        "    [not](a-link.md)\n    farlink teleport --far x -- --not-ours\n\n"
        "## Options\n\n| a | b |\n|---|---|\n| `--to TIME\\|SIZE` | not `--here` |\n"
    )
    assert list(broken_links(page)) == ["page.md: gone.md: no such file", "page.md: #two: no such heading"]
    assert anchors(page) == {"one-the-first", "options"}
    assert list(commands(page)) == [Command(page, "farlink", "teleport", frozenset({"--far"}))]
    assert listed_flags(page, "Options") == {"--to"}
