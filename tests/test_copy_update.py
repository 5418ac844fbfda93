"""`farlink copy --update`: what is newer at the destination stays; what is as old and as long is not read."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from copying import (
    BLOCK,
    MOST_PACKED,
    REFUSED,
    SOME_FAILED,
    command,
    copy,
    ends,
    going,
    leftovers,
    modified_ns,
)
from emulation import FARLINK, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from copying import Ends
    from emulation import Emulation

# Of a file whose copy is interrupted, which takes ten seconds by itself.
BLOCKS = 48

# Small files travel together, and large ones in blocks.
SIZES = {"empty": 0, "small": 1000, "large": 3 * BLOCK + 5}

OLD, NEW = 1_500_000_000, 1_600_000_000


@pytest.fixture(scope="module")
def clear(near: Emulation) -> Iterator[Ends]:
    """Both ends, and no keys: nobody else reaches an emulated host."""
    with ends(near) as both:
        yield both


def put(path: Path, letter: str, size: int, at: int) -> None:
    """A file of `size` bytes that was changed at a time."""
    path.write_bytes(letter.encode() * size)
    os.utime(path, (at, at))


def fill(source: Path, there: Path) -> dict[str, str]:
    """Files at both ends, those that come of s and those that stand of t: what each is to be in the end."""
    source.mkdir()
    there.mkdir()
    wanted = {}
    for name, size in SIZES.items():
        for case, (comes, stands), stays in (
            ("newer", (OLD, NEW), True),
            ("same", (OLD, OLD), True),
            ("older", (NEW, OLD), False),
        ):
            put(source / f"{case}-{name}", "s", size, comes)
            put(there / f"{case}-{name}", "t", size, stands)
            wanted[f"{case}-{name}"] = "t" * size if stays else "s" * size
        put(source / f"absent-{name}", "s", size, OLD)
        wanted[f"absent-{name}"] = "s" * size
        # As old, and not as long.
        put(source / f"longer-{name}", "s", size + 1, OLD)
        put(there / f"longer-{name}", "t", size, OLD)
        wanted[f"longer-{name}"] = "s" * (size + 1)
        # A link is no older file.
        put(source / f"link-{name}", "s", size, OLD)
        (there / f"link-{name}").symlink_to("nowhere")
        wanted[f"link-{name}"] = "s" * size
    return wanted


def content(directory: Path) -> dict[str, str]:
    """What is in the files of a directory."""
    return {path.name: path.read_text() for path in directory.iterdir()}


@pytest.mark.parametrize("way", ["here", "to", "from"])
def test_what_is_newer_or_as_old_and_as_long_stays(clear: Ends, tmp_path: Path, way: str) -> None:
    source, there = tmp_path / "source", tmp_path / "there"
    wanted = fill(source, there)
    if way == "here":
        copied = copy(f"{source}/", f"{there}/", "--update")
    elif way == "to":
        copied = clear.copy(f"{source}/", clear.far(there), "--update")
    else:
        copied = clear.copy(f"{clear.far(source)}/", there, "--update")
    assert content(there) == wanted
    stayed = [name for name in SIZES for name in (f"newer-{name}", f"same-{name}")]
    outcomes = {name: copied.outcome(name) for name in wanted}
    became = {"newer": "newer", "same": "same"}
    assert outcomes == {name: became.get(name.partition("-")[0], "copied") for name in wanted}
    assert copied.record["newer"] == len(SIZES)
    # Nobody knows the digest of what nobody has read.
    assert not any("blake3" in copied.names[name] for name in stayed)
    moved = sum(len(text) for name, text in wanted.items() if name not in stayed)
    assert copied.record["bytes"] == moved
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("way", ["here", "to", "from"])
@pytest.mark.parametrize("is_there", [True, False])
def test_what_would_come_is_told_and_nothing_done(
    clear: Ends, tmp_path: Path, way: str, *, is_there: bool
) -> None:
    source, there = tmp_path / "source", tmp_path / "there"
    wanted = fill(source, there)
    os.mkfifo(source / "pipe")
    for directory in (source, there):
        (directory / "sub").mkdir()
        (directory / "sub" / "link").symlink_to("same")
        os.utime(directory / "sub", (OLD, OLD))
        os.utime(directory, (OLD, OLD))
    destination = there if is_there else tmp_path / "new"
    before = everything(tmp_path)
    ends = {
        "here": (copy, f"{source}/", f"{destination}/"),
        "to": (clear.copy, f"{source}/", f"{clear.far(destination)}/"),
        "from": (clear.copy, f"{clear.far(source)}/", f"{destination}/"),
    }
    run, of, to = ends[way]
    told = run(of, to, "--update", "--dry-run")
    became = {"newer": "newer", "same": "same"} if is_there else {}
    outcomes = {name: became.get(name.partition("-")[0], "copied") for name in wanted}
    kept = "same" if is_there else "copied"
    outcomes |= {".": kept, "sub": kept, "sub/link": kept, "pipe": "skipped"}
    assert {name: line["outcome"] for name, line in told.names.items()} == outcomes
    assert everything(tmp_path) == before


@pytest.mark.parametrize("way", ["here", "to", "from"])
def test_what_is_in_the_way_is_told_beforehand(clear: Ends, tmp_path: Path, way: str) -> None:
    source, there = tmp_path / "source", tmp_path / "there"
    for directory in (source / "directory", there / "file", there / "aside", source / "linked"):
        directory.mkdir(parents=True)
    put(source / "file", "s", 10, OLD)
    put(there / "directory", "t", 10, OLD)
    put(source / "directory" / "within", "s", 10, OLD)
    put(source / "linked" / "within", "s", 10, OLD)
    (there / "linked").symlink_to("aside")
    put(there / "last", "t", 10, OLD)
    (source / "last").symlink_to("last")
    ways = {
        "here": (copy, f"{source}/", f"{there}/"),
        "to": (clear.copy, f"{source}/", f"{clear.far(there)}/"),
        "from": (clear.copy, f"{clear.far(source)}/", f"{there}/"),
    }
    run, of, to = ways[way]
    told = run(of, to, "--update", "--dry-run", status=SOME_FAILED)
    before = everything(there)
    came = run(of, to, "--update", status=SOME_FAILED)
    failing = ["directory", "directory/within", "file", "last", "linked", "linked/within"]
    for each in (told, came):
        assert sorted(name for name in each.names if each.outcome(name) == "failed") == failing
    assert {name: told.names[name]["reason"] for name in failing} == {
        name: came.names[name]["reason"] for name in failing
    }
    assert everything(there) == before
    assert (there / "last").read_text() == "t" * 10
    # Whose words they are is told where that is another host.
    far = clear.emulation.address("b") if way == "to" else None
    for each in (told, came):
        assert {each.names[name].get("host") for name in failing} == {far}
        assert (f"farlink: file: on {far}: " in each.stderr) == (way == "to")
    if way != "to":
        # What is in the way here is so without an update, too.
        told = run(of, to, "--dry-run", status=SOME_FAILED)
        assert sorted(name for name in told.names if told.outcome(name) == "failed") == failing
    # A destination that cannot be what it has to be.
    put(tmp_path / "x", "x", 1, OLD)
    for options in (("--update", "--dry-run"), ("--dry-run",))[: 1 if way == "to" else 2]:
        refused = run(of.rstrip("/"), str(to).replace("/there/", "/x"), *options, status=REFUSED)
        assert "a file is in the way to" in refused.stderr
        assert refused.names == {}


@pytest.mark.parametrize("way", ["here", "to"])
def test_to_a_device_everything_goes_also_by_an_update(clear: Ends, tmp_path: Path, way: str) -> None:
    source = tmp_path / "source"
    source.mkdir()
    put(source / "large", "s", 3 * MOST_PACKED, OLD)
    put(source / "small", "s", 10, OLD)
    run_, device = (copy, "/dev/null") if way == "here" else (clear.copy, clear.far("/dev/null"))
    for options in (("--update",), ("--update", "--dry-run"), ("--dry-run",)):
        told = run_(source, device, *options)
        assert {told.outcome(name) for name in told.names} == {"copied"}
        assert len(told.names) == 3
    # What is in a directory, and several sources, need one.
    for dry in ([], ["--dry-run"]):
        refused = copy(f"{source}/", "/dev/null", *dry, status=REFUSED)
        assert "a file is in the way to /dev/null" in refused.stderr


def test_many_names_are_told_once_and_in_their_order(clear: Ends, tmp_path: Path) -> None:
    source, there = tmp_path / "source", tmp_path / "there"
    there.mkdir()
    for number in range(9000):
        directory = source / f"{number // 1000}"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"{number}").touch()
        if number % 1000 == 500:
            os.mkfifo(directory / "pipe")
    lines = [
        [line["path"] for line in map(json.loads, told.stdout.splitlines())]
        for told in (
            run(command(f"{source}/", there, "--update", "--dry-run")),
            run(
                [
                    *clear.on_client,
                    *command(f"{source}/", clear.far(there), *clear.copy_options, "--update", "-n"),
                ]
            ),
        )
    ]
    assert len(lines[0]) == len(set(lines[0])) == 9000 + 9 + 9 + 1
    assert lines[1] == lines[0]


@pytest.mark.parametrize("options", [(), ("--exclude", "*")])
def test_a_destination_that_is_refused_is_refused_by_a_dry_run(
    clear: Ends, tmp_path: Path, options: tuple[str, ...]
) -> None:
    (tmp_path / "file").touch()
    nowhere = clear.far(tmp_path / "no" / "such")
    refused = run(
        [
            *clear.on_client,
            *command(tmp_path / "file", nowhere, *clear.copy_options, "--update", "-n", *options),
        ]
    )
    assert refused.status == REFUSED, refused
    assert "mkdir -p" in refused.complaint


def test_a_dry_run_names_only_what_would_come_and_warns_where_more_is_looked_at(tmp_path: Path) -> None:
    source, there = tmp_path / "source", tmp_path / "there"
    fill(source, there)
    at = ("--update", "--dry-run")

    def said(*options: str) -> str:
        line = [str(FARLINK), "copy", f"{source}/", str(there), *at, *options]
        return subprocess.run(line, stdout=subprocess.PIPE, text=True, check=True).stdout

    names = {line.split("  ", 1)[1] for line in said().splitlines()}
    assert not any(name.startswith(("newer", "same")) for name in names), names
    assert {f"older-{name}" for name in SIZES} <= names
    verbose = said("--verbose")
    assert "newer-large (newer there)" in verbose
    assert "same-large (was there)" in verbose
    warned = copy(f"{source}/", there, *at, "--resume")
    assert "with --resume files that are as old and as long are compared by the copy itself" in warned.stderr
    assert warned.outcome("same-large") == "same"


def everything(directory: Path) -> dict[str, tuple[float, int, int]]:
    """Time, size and mode of all that is beneath a directory."""
    found = {path: path.lstat() for path in directory.rglob("*")}
    return {str(path): (each.st_mtime_ns, each.st_size, each.st_mode) for path, each in found.items()}


def test_a_tree_that_was_copied_is_not_read_again(tmp_path: Path) -> None:
    source, there = tmp_path / "source", tmp_path / "there"
    source.mkdir()
    for number in range(20):
        put(source / f"{number}", "s", MOST_PACKED // 10 * number, OLD + number)
    copy(f"{source}/", there)
    # What is in them by now would be told from what came, if anybody looked.
    for path in there.iterdir():
        at = path.stat().st_mtime_ns
        path.write_bytes(b"t" * path.stat().st_size)
        path.chmod(0o600)
        os.utime(path, ns=(at, at))
    copied = copy(f"{source}/", there, "--update")
    assert {copied.outcome(f"{number}") for number in range(20)} == {"same"}
    assert copied.record["bytes"] == 0
    assert all(set(path.read_bytes()) <= {ord("t")} for path in there.iterdir())
    # Modes and times are right all the same.
    assert all(path.stat().st_mode == (source / path.name).stat().st_mode for path in there.iterdir())
    assert all(modified_ns(path) == modified_ns(source / path.name) for path in there.iterdir())


def test_an_update_that_was_interrupted_is_taken_up(tmp_path: Path) -> None:
    source, there = tmp_path / "source", tmp_path / "there"
    source.mkdir()
    there.mkdir()
    put(source / "file", "s", BLOCKS * BLOCK, NEW)
    put(there / "file", "t", BLOCKS * BLOCK, OLD)
    interrupt(source, there)
    copied = copy(f"{source}/", f"{there}/", "--update")
    assert (copied.outcome("file"), content(there)) == ("copied", {"file": "s" * BLOCKS * BLOCK})
    assert 0 < copied.record["bytes"] < BLOCKS * BLOCK
    assert (there / "file").stat().st_mtime == NEW
    assert leftovers(tmp_path) == []
    # Another version has come meanwhile, and stays; what was begun does not.
    put(source / "file", "u", BLOCKS * BLOCK, NEW + 1)
    interrupt(source, there)
    put(there / "file", "t", 10, NEW + 2)
    assert copy(f"{source}/", f"{there}/", "--update").outcome("file") == "newer"
    assert content(there) == {"file": "t" * 10}
    assert leftovers(tmp_path) == []


def interrupt(source: Path, there: Path) -> None:
    """Kill such a copy when some of it is there."""
    with going(command(f"{source}/", f"{there}/", "--update", "--limit", "40mbit")) as running:
        running.wait_for(2 * BLOCK)
        running.send(signal.SIGKILL)
        assert running.ended().status == -signal.SIGKILL
    assert leftovers(there) != []


@pytest.mark.parametrize(
    ("begun", "next_"),
    [((), ()), (("--exclude", "none"), ()), ((), ("--exclude", "none"))],
    ids=["same", "of more", "of less"],
)
def test_what_is_left_of_a_copy_that_ended_badly_is_compared_though_it_is_as_old_and_as_long(
    tmp_path: Path, begun: tuple[str, ...], next_: tuple[str, ...]
) -> None:
    source, there = tmp_path / "source", tmp_path / "there"
    source.mkdir()
    there.mkdir()
    for name in SIZES:
        put(source / name, "s", SIZES[name], OLD)
    put(source / "long", "s", BLOCKS * BLOCK, OLD)
    with going(command(f"{source}/", f"{there}/", "--update", "--limit", "40mbit", *begun)) as running:
        running.wait_for(2 * BLOCK)
        running.send(signal.SIGKILL)
        running.ended()
    # As after a crash of the host: they have their names, and zeros that nobody has written.
    for name in SIZES:
        put(there / name, "\0", SIZES[name], OLD)
    copied = copy(f"{source}/", f"{there}/", "--update", *next_)
    assert content(there) == {path.name: path.read_text() for path in source.iterdir()}
    assert copied.outcome("small") == "copied"
    # That one ended well, and one of all that there is.
    copy(f"{source}/", f"{there}/", "--update")
    for words in (begun, next_):
        assert copy(f"{source}/", f"{there}/", "--update", *words).record["bytes"] == 0


def test_a_name_that_failed_has_the_next_update_compare_nothing(tmp_path: Path) -> None:
    source, there = tmp_path / "source", tmp_path / "volume" / "there"
    source.mkdir()
    there.mkdir(parents=True)
    for name in SIZES:
        put(source / name, "s", SIZES[name], OLD)
    # What a file cannot take the place of.
    put(source / "fails", "s", 1, OLD)
    (there / "fails").mkdir()
    copied = copy(f"{source}/", f"{there}/", "--update", status=SOME_FAILED)
    assert copied.outcome("fails") == "failed"
    for name in SIZES:
        put(there / name, "t", SIZES[name], OLD)
    # Nor where one between was refused.
    there.parent.rename(tmp_path / "unmounted")
    copy(f"{source}/", f"{there}/", "--update", status=REFUSED)
    (tmp_path / "unmounted").rename(there.parent)
    copied = copy(f"{source}/", f"{there}/", "--update", status=SOME_FAILED)
    assert [copied.outcome(name) for name in SIZES] == ["same"] * len(SIZES)
    assert all(set((there / name).read_bytes()) <= {ord("t")} for name in SIZES)
    # A copy that is none looks at them.
    (there / "fails").rmdir()
    copied = copy(f"{source}/", f"{there}/")
    assert [copied.outcome(name) for name in SIZES if SIZES[name]] == ["copied"] * (len(SIZES) - 1)


def test_a_sparse_file_that_stays_counts_for_what_is_in_it(clear: Ends, tmp_path: Path) -> None:
    source, there = tmp_path / "source", tmp_path / "there"
    source.mkdir()
    there.mkdir()
    for directory in (source, there):
        with (directory / "sparse").open("wb") as file:
            file.truncate(1 << 34)
            file.seek(1 << 33)
            file.write(b"x")
        os.utime(directory / "sparse", (OLD, OLD))
    put(source / "large", "s", 5 * BLOCK, OLD)
    copied = clear.copy(f"{clear.far(source)}/", there, "--update")
    assert (copied.outcome("sparse"), copied.outcome("large")) == ("same", "copied")
    assert copied.record["bytes"] == 5 * BLOCK
    assert all(each["bytes"] <= 6 * BLOCK for each in copied.progress)
