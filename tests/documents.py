"""What the documents claim: their links, their commands and the flags that their pages list."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
_SKIPPED = frozenset({"target", ".git", ".venv", "node_modules"})
_FENCED = re.compile(r"^```[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?:^|\n\n)((?: {4}[^\n]*\n?)+)")
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True, slots=True)
class Command:
    """A command line of `farlink` or `make` that a document shows."""

    document: Path
    program: str
    # The verbs: two or three where the first has verbs of its own.
    verb: str
    flags: frozenset[str]


def documents(root: Path) -> list[Path]:
    """Every Markdown file of ours under `root`."""
    found = []
    for path in sorted(root.iterdir()):
        if path.name in _SKIPPED or path.name.endswith(".egg-info"):
            continue
        if path.is_dir():
            found += documents(path)
        elif path.suffix == ".md":
            found.append(path)
    return found


def broken_links(document: Path) -> Iterator[str]:
    """Links of `document` into the repository that lead nowhere."""
    for target in _LINK.findall(_without_code(document.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (document.parent / name).resolve() if name else document
        if not path.exists():
            yield f"{document.name}: {target}: no such file"
        elif anchor and anchor not in anchors(path):
            yield f"{document.name}: {target}: no such heading"


def anchors(document: Path) -> set[str]:
    """The fragments by which the headings of `document` are reached."""
    titles = re.findall(r"^#+ +(.*?)\s*$", _without_blocks(document.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def commands(document: Path) -> Iterator[Command]:
    """The command lines of `farlink` and `make` in the code blocks of `document`."""
    for block in code_blocks(document.read_text()):
        for line in block.replace("\\\n", " ").splitlines():
            # Two spaces or more, or a hash, part a command from a remark beside it.
            command = re.split(r" {3,}| #", line.strip())[0]
            for part in re.split(r" -- | \| | && |; ", command):
                words = part.removesuffix("&").split()
                if len(words) >= 2 and words[0] in ("farlink", "make") and not words[1].startswith("-"):
                    with_verbs = words[1] in ("lab", "cast", "mpi")
                    depth = 3 if words[1:3] == ["lab", "logs"] else 2 if with_verbs else 1
                    verb = " ".join(words[1 : 1 + depth])
                    yield Command(document, words[0], verb, frozenset(FLAG.findall(part)))


def code_blocks(text: str) -> list[str]:
    """Fenced and indented blocks of code."""
    fenced = _FENCED.findall(text)
    indented = _INDENTED.findall(_FENCED.sub("", text))
    return [re.sub(r"^ {4}", "", block, flags=re.MULTILINE) for block in indented] + fenced


def listed_flags(page: Path, heading: str) -> set[str]:
    """The flags in the first column of the tables below `heading` of `page`."""
    section = re.search(
        rf"^## {re.escape(heading)}\s*$(.*?)(?=^## |\Z)", page.read_text(), re.MULTILINE | re.DOTALL
    )
    assert section, f"{page.name} has no section {heading!r}"
    rows = re.findall(r"^\| (`--[^|]*(?:\\\|[^|]*)*)\|", section[1], re.MULTILINE)
    return {flag for row in rows for flag in FLAG.findall(row)}


def make_targets(makefile: Path) -> set[str]:
    """The targets that a person calls by name."""
    return set(re.findall(r"^([a-z%-]+):(?!=)", makefile.read_text(), re.MULTILINE))


def _without_code(text: str) -> str:
    return re.sub(r"`[^`\n]*`(?!\])", "", _without_blocks(text))


def _without_blocks(text: str) -> str:
    return _INDENTED.sub("\n\n", _FENCED.sub("", text))
