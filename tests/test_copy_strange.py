"""Copies to file systems that show other owners and keep no modes, as some of the network do: by bindfs."""

from __future__ import annotations

import os
import random
import signal
from typing import TYPE_CHECKING

import pytest

from copying import BLOCK, SOME_FAILED, Copied, command, copy, going, leftovers, modified_ns
from strange import is_mountable, strange

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(not is_mountable(), reason="needs bindfs and /dev/fuse")

SIZE = 16 * BLOCK
LARGE, SMALL = random.Random(5).randbytes(SIZE), b"small"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A tree with a file in blocks and a small one."""
    tree = tmp_path / "source"
    (tree / "within").mkdir(parents=True)
    (tree / "large").write_bytes(LARGE)
    (tree / "within" / "small").write_bytes(SMALL)
    for path in (tree / "large", tree / "within" / "small"):
        path.chmod(0o640)
        os.utime(path, ns=(0, 1_234_567_890_000_000_000))
    return tree


def has_all(there: Path) -> bool:
    """Whether the content of all that is copied is there."""
    return (there / "large").read_bytes() == LARGE and (there / "within" / "small").read_bytes() == SMALL


def kill_halfway(source: Path, there: Path) -> None:
    """Begins a copy, and kills it when half of the large file is there."""
    with going(command(f"{source}/", there, "--limit", "80mbit", "--retries", "0")) as copying:
        copying.wait_for(SIZE // 2)
        copying.send(signal.SIGKILL)
        copying.wait()


@pytest.mark.parametrize("owner", ["nobody", "own"])
def test_a_copy_that_was_killed_goes_on_whoever_its_files_belong_to(
    source: Path, tmp_path: Path, owner: str
) -> None:
    options = ["--force-user=nobody"] if owner == "nobody" else []
    with strange(tmp_path, *options) as there:
        kill_halfway(source, there)
        again = copy(f"{source}/", there)
        assert again.record["bytes"] <= SIZE // 2 + BLOCK
        assert has_all(there)
        assert leftovers(there) == []


def test_a_partial_file_that_another_made_is_begun_anew(source: Path, tmp_path: Path) -> None:
    with strange(tmp_path) as there:
        kill_halfway(source, there)
        for path in (tmp_path / "beneath").glob(".farlink-*"):
            os.chown(path, 12_345, -1)
        assert copy(f"{source}/", there).record["bytes"] >= SIZE
        assert has_all(there)


def test_holes_stay_where_none_can_be_made_again(source: Path, tmp_path: Path) -> None:
    with (source / "large").open("r+b") as large:
        large.truncate(512 << 20)
    with strange(tmp_path) as there:
        kill_halfway(source, there)
        again = copy(f"{source}/", there)
        assert again.record["bytes"] <= SIZE // 2 + BLOCK
    copied = tmp_path / "beneath" / "large"
    assert copied.stat().st_size == 512 << 20
    assert copied.stat().st_blocks * 512 <= SIZE + (1 << 20)
    with copied.open("rb") as large:
        assert large.read(SIZE) == LARGE


def refused(copied: Copied, *words: str) -> None:
    """That the content is there, and every file that lacks something is told with its reason."""
    for name in ("large", "within/small"):
        assert copied.outcome(name) == "failed"
        reason = copied.names[name]["reason"]
        assert all(word in reason for word in ("is there", *words)), reason


def test_modes_that_are_not_kept_do_not_cost_the_content(source: Path, tmp_path: Path) -> None:
    with strange(tmp_path, "--chmod-deny", "--create-with-perms=0755") as there:
        for _ in range(2):
            copied = copy(f"{source}/", there, status=SOME_FAILED)
            refused(copied, "mode", "Operation not permitted")
            assert has_all(there)
            assert modified_ns(there / "large") == modified_ns(source / "large")
            assert leftovers(there) == []


def test_a_mode_that_is_right_anyway_is_nothing_to_tell_of(source: Path, tmp_path: Path) -> None:
    for path in (source, source / "within", source / "large", source / "within" / "small"):
        path.chmod(0o755)
    with strange(tmp_path, "--chmod-deny", "--create-with-perms=0755") as there:
        copied = copy(f"{source}/large", there)
        assert copied.outcome("large") == "copied"
        assert (there / "large").read_bytes() == LARGE
