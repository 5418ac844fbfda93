"""A source that changes under a copy: what changed is named and not copied, and all else is."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest

from copying import BLOCK, SOME_FAILED, command, going, leftovers, listing

if TYPE_CHECKING:
    from pathlib import Path


def slowed(source: Path, there: Path) -> list[str]:
    """A copy by one stream, slow enough for a test to change the source behind its back."""
    return command(f"{source}/", there, "--limit", "40mbit", "--streams", "1")


def test_a_source_that_vanishes_is_named_and_the_others_are_copied(tmp_path: Path) -> None:
    source, there = tmp_path / "source", tmp_path / "there"
    source.mkdir()
    for name in ("a", "y", "z"):
        (source / name).write_bytes(random.Random(name).randbytes(6 * BLOCK))
    with going(slowed(source, there)) as copying:
        copying.wait_for(BLOCK)
        (source / "y").unlink()
        copied = copying.ended()
    assert copied.status == SOME_FAILED
    assert copied.outcome("y") == "failed"
    assert "y" in copied.stderr
    assert listing(there) == listing(source)
    assert leftovers(there) == []


@pytest.mark.parametrize("how", ["grows", "shrinks", "is written over"])
def test_a_source_that_changes_while_it_is_read_is_not_copied(tmp_path: Path, how: str) -> None:
    source, there = tmp_path / "source", tmp_path / "there"
    source.mkdir()
    for name in ("a", "b"):
        (source / name).write_bytes(random.Random(name).randbytes(6 * BLOCK))
    with going(slowed(source, there)) as copying:
        copying.wait_for(2 * BLOCK)
        with (source / "a").open("r+b") as file:
            if how == "grows":
                file.seek(0, os.SEEK_END)
                file.write(b"more")
            elif how == "shrinks":
                file.truncate(BLOCK)
            else:
                file.seek(5 * BLOCK)
                file.write(b"changed")
        copied = copying.ended()
    assert copied.status == SOME_FAILED
    assert copied.outcome("a") == "failed"
    assert "while it was read" in copied.names["a"]["reason"]
    assert listing(there).keys() == {b"b"}
    assert (there / "b").read_bytes() == (source / "b").read_bytes()
