"""What an ordinary user may not read, write or change is named, and the rest is copied."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from copying import (
    BLOCK,
    DONE,
    MOST_PACKED,
    NONE,
    SOME_FAILED,
    differences,
    leftovers,
    modified_ns,
    understood,
)
from emulation import FARLINK, Ended, run

if TYPE_CHECKING:
    from collections.abc import Iterator

NOBODY = 65534


@pytest.fixture(scope="module")
def ordinary() -> Iterator[Path]:
    """A directory of an ordinary user, with the binary."""
    directory = Path(tempfile.mkdtemp(prefix="ordinary-user-"))
    try:
        directory.chmod(0o755)
        shutil.copy2(FARLINK, directory / "farlink")
        yield directory
    finally:
        shutil.rmtree(directory)


def as_nobody(place: Path, *words: str) -> Ended:
    """`farlink WORDS` as an ordinary user: root may read and write everything."""
    become = []
    if os.geteuid() == 0:
        become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    return run([*become, "env", f"XDG_STATE_HOME={place}/state", f"{place}/farlink", *words])


def given_away(*paths: Path) -> None:
    """Make `paths` the ordinary user's."""
    if os.geteuid() == 0:
        for path in paths:
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


def test_an_unreadable_file_is_named_and_the_others_are_copied(ordinary: Path) -> None:
    source, there = ordinary / "unreadable", ordinary / "unreadable-there"
    for directory in (source, source / "open", source / "closed", there):
        directory.mkdir()
    names = ["a", "open/small", "open/large", "closed/within", "z"]
    for name in names:
        (source / name).write_bytes(random.Random(name).randbytes(2 * BLOCK if "large" in name else 99))
    (source / "secret-small").write_bytes(b"secret")
    (source / "secret-large").write_bytes(bytes(2 * BLOCK))
    given_away(there, source, *source.rglob("*"))
    for name in ("secret-small", "secret-large", "closed"):
        (source / name).chmod(0)
    ended = as_nobody(ordinary, "copy", f"{source}/", str(there), "--json")
    (source / "closed").chmod(0o755)
    copied = understood(ended)
    assert copied.status == SOME_FAILED, ended
    for name in ("secret-small", "secret-large", "closed"):
        assert copied.outcome(name) == "failed"
        assert "Permission denied" in copied.names[name]["reason"]
        assert any(name in line and "Permission denied" in line for line in ended.stderr.splitlines())
    assert not list(there.glob("secret*"))
    for name in ("a", "open/small", "open/large", "z"):
        assert (there / name).read_bytes() == (source / name).read_bytes()
        assert copied.outcome(name) == "copied"
    assert leftovers(there) == []
    # A script can do the failures again, and only these.
    assert copied.record["outcome"] == "failed"
    assert copied.record["files"] >= 4
    # The directory that cannot be listed is one name, though it is there.
    assert copied.record["error"] == "3 of 9 names were not copied"


def test_a_directory_that_cannot_be_listed_is_one_name(ordinary: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("there is nobody else")
    source, there = ordinary / "unlisted", ordinary / "unlisted-there"
    for directory in (source, source / "closed", there, there / "one", there / "other"):
        directory.mkdir()
    (there / "other" / "closed").write_bytes(b"in the way")
    given_away(there, *there.rglob("*"), source, *source.rglob("*"))
    (source / "closed").chmod(0)
    # Of the first it is made, of the second it is not even that; alone it is all that there was.
    cases = (
        (f"{source}/", there / "one", SOME_FAILED, "1 of 2"),
        (f"{source}/", there / "other", SOME_FAILED, "1 of 2"),
        (f"{source / 'closed'}", there / "one", NONE, "1 of 1"),
    )
    for named, destination, status, said in cases:
        copied = understood(as_nobody(ordinary, "copy", named, str(destination), "--json"))
        assert copied.status == status, copied
        assert copied.record["error"] == f"{said} names were not copied"
        assert as_nobody(ordinary, "copy", named, str(destination), "--dry-run").status == status


def test_a_dry_run_says_what_cannot_be_read(ordinary: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("there is nobody else")
    source, there = ordinary / "secrets", ordinary / "secrets-there"
    source.mkdir()
    there.mkdir()
    (source / "open").write_bytes(b"said")
    (source / "secret").write_bytes(b"kept")
    (source / "secret").chmod(0o600)
    given_away(source, there)
    cases = (
        (source / "secret", NONE, "0 names, 0B, would be copied; 1 name would not"),
        (source, SOME_FAILED, "2 names, 4B, would be copied; 1 name would not"),
        (source / "open", 0, "1 name, 4B, would be copied"),
    )
    for named, status, total in cases:
        told = as_nobody(ordinary, "copy", str(named), str(there), "--dry-run")
        copied = as_nobody(ordinary, "copy", str(named), str(there))
        assert (told.status, copied.status) == (status, status), (told, copied)
        assert told.stderr.splitlines()[-1] == f"farlink: {total}"
        if status:
            assert told.stderr.splitlines()[0] == copied.stderr.splitlines()[0]
            assert "Permission denied" in told.stderr
        quiet = as_nobody(ordinary, "copy", str(named), str(there), "--dry-run", "--quiet")
        assert "would be copied" not in quiet.stderr
    proc = run([str(FARLINK), "copy", "/proc/cpuinfo", str(there), "--dry-run"])
    assert (proc.status, "as of files in /proc" in proc.stderr) == (NONE, True), proc


def test_a_tree_of_somebody_elses_that_is_as_it_should_be_is_no_failure(ordinary: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("there is nobody else")
    source, there = ordinary / "shared", ordinary / "shared-there"
    for directory in (source, there):
        (directory / "sub").mkdir(parents=True)
        (directory / "sub" / "file").write_bytes(b"file")
        for path in (directory / "sub" / "file", directory / "sub", directory):
            os.utime(path, (1_500_000_000, 1_500_000_000))
    given_away(source, *source.rglob("*"))
    told = as_nobody(ordinary, "copy", f"{source}/", str(there), "--update", "--dry-run")
    assert (told.status, told.stdout) == (DONE, "")
    assert as_nobody(ordinary, "copy", f"{source}/", str(there), "--update").status == DONE
    # One that is not is one.
    os.utime(there / "sub", (1_400_000_000, 1_400_000_000))
    assert as_nobody(ordinary, "copy", f"{source}/", str(there), "--update").status == SOME_FAILED


def test_an_update_says_whose_mode_it_cannot_set(ordinary: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("there is nobody else")
    source, there = ordinary / "modes", ordinary / "modes-there"
    sizes = {"small": 99, "large": MOST_PACKED + 1}
    for directory in (source, there):
        directory.mkdir()
        for name, size in sizes.items():
            for whose in ("ours", "theirs", "alike"):
                path = directory / f"{whose}-{name}"
                path.write_bytes(bytes(size))
                path.chmod(0o640)
                os.utime(path, (1_500_000_000, 1_500_000_000))
    given_away(source, *source.iterdir(), there, *there.glob("ours-*"))
    # Its owner may not read it, and may let himself.
    for path in there.glob("ours-*"):
        path.chmod(0)
    for path in there.glob("theirs-*"):
        path.chmod(0o644)
    copied = understood(as_nobody(ordinary, "copy", f"{source}/", f"{there}/", "--update", "--json"))
    assert copied.status == SOME_FAILED, copied
    # Nothing of them was sent for that.
    assert copied.record["bytes"] == 0
    for name in sizes:
        assert copied.outcome(f"theirs-{name}") == "failed"
        assert "its mode cannot be set: Operation not permitted" in copied.names[f"theirs-{name}"]["reason"]
        assert copied.outcome(f"ours-{name}") == copied.outcome(f"alike-{name}") == "same"
        modes = {path.name: path.stat().st_mode & 0o777 for path in there.glob(f"*-{name}")}
        assert modes == {f"ours-{name}": 0o640, f"theirs-{name}": 0o644, f"alike-{name}": 0o640}
        # It stays whose it is.
        assert (there / f"theirs-{name}").stat().st_uid == 0


def test_more_unreadable_files_than_may_be_open_are_each_named(ordinary: Path) -> None:
    source, there = ordinary / "many-unreadable", ordinary / "many-unreadable-there"
    for directory in (source, there):
        directory.mkdir()
    for number in range(3000):
        with (source / f"secret{number}").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, MOST_PACKED + 1)
    (source / "z").write_bytes(bytes(2 * BLOCK))
    given_away(there, source, *source.iterdir())
    for path in source.glob("secret*"):
        path.chmod(0)
    copied = understood(as_nobody(ordinary, "copy", f"{source}/", str(there), "--json"))
    shutil.rmtree(source)
    assert copied.status == SOME_FAILED
    assert copied.outcome("z") == "copied"
    failed = [name for name, told in copied.names.items() if "Permission denied" in told.get("reason", "")]
    assert len(failed) == 3000
    assert [path.name for path in there.iterdir()] == ["z"]


def test_a_directory_that_may_not_be_written_to_is_named(ordinary: Path) -> None:
    source, there = ordinary / "readable", ordinary / "read-only-there"
    for directory in (source, source / "open", there, there / "locked"):
        directory.mkdir()
    (source / "locked").mkdir()
    (source / "locked" / "file").write_bytes(b"file")
    (source / "open" / "file").write_bytes(b"file")
    given_away(source, *source.rglob("*"), there)
    (there / "locked").chmod(0o555)
    copied = understood(as_nobody(ordinary, "copy", f"{source}/", str(there), "--json"))
    if os.geteuid() == 0:
        # It is root's, and so neither written to nor changed.
        assert copied.status == SOME_FAILED
        assert "Permission denied" in copied.names["locked/file"]["reason"]
    assert (there / "open" / "file").read_bytes() == b"file"
    assert leftovers(there) == []


def test_of_what_may_not_be_put_anywhere_nothing_is_said_to_be_copied(ordinary: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("there is nobody else")
    source, there = ordinary / "refused", ordinary / "of-another"
    for directory in (source, source / "inner", there):
        directory.mkdir()
    (source / "file").write_bytes(b"file")
    # As old as the source it would be as it should be.
    os.utime(there, (0, 0))
    given_away(source, *source.rglob("*"))
    for options in ((), ("--json",)):
        ended = as_nobody(ordinary, "copy", f"{source}/", str(there), *options)
        assert ended.status == NONE, ended
        said = "0 names" if not options else '"error":"3 of 3 names were not copied"'
        assert said in ended.stdout, ended


def test_a_directory_that_is_not_known_to_be_on_the_disk_is_one_failure(ordinary: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("there is nobody else")
    source, there = ordinary / "to-a-drop-box", ordinary / "drop-box"
    for directory in (source, there):
        directory.mkdir()
    (source / "file").write_bytes(b"file")
    given_away(source, source / "file")
    there.chmod(0o733)
    # Of the second the destination is one of the names, and the file is put in it.
    cases = ((str(source), SOME_FAILED, "1 of 3"), (f"{source}/", NONE, "2 of 2"))
    for named, status, said in cases:
        copied = understood(as_nobody(ordinary, "copy", "--fsync", named, str(there), "--json"))
        assert copied.status == status, copied
        assert copied.record["error"] == f"{said} names were not copied"


@pytest.mark.parametrize("options", [(), ("--resume",)], ids=["anew", "resumed"])
def test_what_is_in_a_directory_for_reading_only_is_copied_again(
    ordinary: Path, options: tuple[str, ...]
) -> None:
    # The source's mode is that of the copy, in which the next command writes.
    source = ordinary / f"closed-{len(options)}"
    there = ordinary / f"closed-{len(options)}-there"
    for directory in (source, source / "in", source / "in" / "it", there):
        directory.mkdir()
    for name, size in (("large", BLOCK + 5), ("in/it/large", 2 * BLOCK), ("in/small", 9)):
        (source / name).write_bytes(random.Random(name).randbytes(size))
    given_away(there, source, *source.rglob("*"))
    for directory in (source / "in" / "it", source / "in", source):
        directory.chmod(0o555)
    for version in range(2):
        changed = source / "in" / "it" / "large"
        changed.write_bytes(random.Random(version).randbytes(2 * BLOCK))
        copied = understood(as_nobody(ordinary, "copy", f"{source}/", str(there), "--json", *options))
        assert copied.status == DONE, copied
        assert {line["outcome"] for line in copied.names.values()} <= {"copied", "same"}
        assert differences(source, there) == []
        assert {path.stat().st_mode & 0o777 for path in (there, there / "in", there / "in" / "it")} == {0o555}
    assert leftovers(there) == []


@pytest.mark.parametrize("mode", [0o600, 0o444, 0])
def test_a_directory_that_nobody_may_search_is_opened_and_copied_again(ordinary: Path, mode: int) -> None:
    source, there = ordinary / f"shut-{mode}", ordinary / f"shut-{mode}-there"
    for directory in (source, source / "in", there):
        directory.mkdir()
    (source / "in" / "file").write_bytes(b"first")
    given_away(there, source, *source.rglob("*"))
    for version in (b"first", b"second"):
        (source / "in" / "file").write_bytes(version)
        copied = understood(as_nobody(ordinary, "copy", f"{source}/", str(there), "--json"))
        assert copied.status == DONE, copied
        assert differences(source, there) == []
        (there / "in").chmod(mode)
    (there / "in").chmod(0o755)
    assert leftovers(there) == []


def test_a_directory_that_its_owner_closed_and_that_is_not_copied_stays_closed(
    ordinary: Path,
) -> None:
    source, there = ordinary / "into-closed", ordinary / "closed-by-its-owner"
    source.write_bytes(bytes(2 * BLOCK))
    there.mkdir()
    given_away(source, there)
    there.chmod(0o555)
    ended = as_nobody(ordinary, "copy", str(source), str(there))
    assert ended.status != DONE
    assert "Permission denied" in ended.stderr
    assert there.stat().st_mode & 0o777 == 0o555
    assert list(there.iterdir()) == []


def test_a_file_of_another_that_is_the_same_stays_or_is_replaced(ordinary: Path) -> None:
    source, there = ordinary / "mine", ordinary / "of-several"
    content = random.Random(3).randbytes(3 * BLOCK)
    source.mkdir()
    there.mkdir()
    for name in ("as-it-is", "touched"):
        (source / name).write_bytes(content)
        shutil.copy2(source / name, there / name)
    os.utime(there / "touched", (1, 1))
    stays = (there / "as-it-is").stat().st_ino
    given_away(source, *source.iterdir(), there)
    copied = understood(as_nobody(ordinary, "copy", f"{source}/", str(there), "--json", "--resume"))
    assert copied.status == DONE, copied
    for name in ("as-it-is", "touched"):
        assert (there / name).read_bytes() == content
        assert modified_ns(there / name) == modified_ns(source / name)
    assert (there / "as-it-is").stat().st_ino == stays
    assert leftovers(there) == []


def test_a_directory_of_another_whose_mode_stays_is_named(ordinary: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("there is nobody else")
    source, there = ordinary / "with-modes", ordinary / "without-modes"
    for directory in (source, source / "theirs", there, there / "theirs"):
        directory.mkdir()
    (source / "theirs" / "file").write_bytes(b"file")
    (source / "theirs").chmod(0o750)
    given_away(source, *source.rglob("*"), there)
    (there / "theirs").chmod(0o777)
    copied = understood(as_nobody(ordinary, "copy", f"{source}/", str(there), "--json"))
    assert copied.status == SOME_FAILED, copied
    assert "" not in copied.names
    assert copied.outcome("theirs") == "failed"
    assert "not permitted" in copied.names["theirs"]["reason"]
    assert (there / "theirs" / "file").read_bytes() == b"file"
