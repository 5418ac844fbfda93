"""Copies on one host: trees arrive as they are, where rsync would put them, and are told of."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import random
import re
import signal
import struct
import subprocess
import sys
import termios
from typing import TYPE_CHECKING

import pytest

import odd_tree
from copying import (
    BLOCK,
    INTERRUPTED,
    MOST_PACKED,
    NONE,
    REFUSED,
    SOME_FAILED,
    command,
    copy,
    differences,
    going,
    leftovers,
    listing,
    modified_ns,
)
from emulation import FARLINK, START_LIMIT_S, farlink, refused, run
from reference_digest import digest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree with everything odd in it, which no test changes."""
    path = tmp_path_factory.mktemp("odd") / "tree"
    odd_tree.make(path)
    return path


def test_rsync_finds_nothing_to_do_after_a_tree_with_everything_odd_in_it(odd: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    copied = copy(f"{odd}/", there)
    assert differences(odd, there) == []
    assert leftovers(there) == []
    # What is no file, link or directory is skipped, and said to be.
    for name in odd_tree.SKIPPED:
        assert not (there / name).exists()
        assert copied.outcome(name) == "skipped"
        assert any(name in line and "skipped" in line for line in copied.stderr.splitlines())
    names = sum(1 for path in odd.rglob("*")) + 1 - len(odd_tree.SKIPPED)
    assert copied.record["files"] == names


def test_what_is_there_already_is_written_over_and_nothing_else_is_touched(odd: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    (there / "size-1024").write_bytes(b"another content, which must go")
    (there / "holes").mkdir()
    (there / "holes" / "island").write_bytes(b"\xff" * (2 * BLOCK))
    (there / "links").mkdir()
    (there / "links" / "to-file").write_bytes(b"a file where a link belongs")
    (there / "of-somebody-else").write_bytes(b"stays")
    copy(f"{odd}/", there)
    assert differences(odd, there) == ["*deleting   of-somebody-else"]
    copy(f"{odd}/", there)
    assert differences(odd, there) == ["*deleting   of-somebody-else"]


def test_modes_and_times_are_kept_to_the_nanosecond(odd: Path, tmp_path: Path) -> None:
    copy(odd, tmp_path)
    there = tmp_path / odd.name
    for path in (odd, *odd.rglob("*")):
        copied = there / path.relative_to(odd)
        if path.name in odd_tree.SKIPPED:
            continue
        assert modified_ns(copied) == modified_ns(path), path
        if not path.is_symlink():
            assert odd_tree.mode_of(copied) == odd_tree.mode_of(path), path


def test_holes_stay_holes(odd: Path, tmp_path: Path) -> None:
    copied = copy(odd / "holes", tmp_path)
    for path in (odd / "holes").iterdir():
        there = (tmp_path / "holes" / path.name).stat()
        assert there.st_size == odd_tree.HOLES_BYTES
        # Within a block of its blocks: not the 64 MiB that it seems to have.
        assert there.st_blocks <= path.stat().st_blocks + BLOCK // 512
    # Nor do they travel.
    assert copied.record["bytes"] <= 8 * BLOCK


def test_a_file_with_holes_that_is_there_already_is_not_made_anew(odd: Path, tmp_path: Path) -> None:
    copy(odd / "holes", tmp_path)
    before = {path: (path.stat().st_ino, path.stat().st_blocks) for path in (tmp_path / "holes").iterdir()}
    again = copy(odd / "holes", tmp_path, "--resume")
    after = {path: (path.stat().st_ino, path.stat().st_blocks) for path in (tmp_path / "holes").iterdir()}
    assert before == after
    assert again.record["bytes"] == 0


@pytest.mark.parametrize("size", [0, 3, 1024, 100_000, MOST_PACKED, BLOCK, BLOCK + 1, 5 * BLOCK + 77])
def test_the_manifest_has_the_standard_digest_whatever_the_blocks(tmp_path: Path, size: int) -> None:
    content = b"abc" if size == 3 else random.Random(size).randbytes(size)
    (tmp_path / "file").write_bytes(content)
    copy(tmp_path / "file", tmp_path / "copy", "--manifest", tmp_path / "manifest")
    (line,) = (tmp_path / "manifest").read_text().splitlines()
    told = json.loads(line)
    assert told == {"path": "file", "bytes": size, "outcome": "copied", "blake3": digest(content).hex()}


def test_a_file_with_holes_has_the_digest_of_its_zeros(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        file.seek(2 * BLOCK)
        file.write(b"end")
    copied = copy(tmp_path / "file", tmp_path / "copy")
    assert copied.names["file"]["blake3"] == digest((tmp_path / "file").read_bytes()).hex()


def test_the_last_line_says_how_much_left_where_that_is_less_than_what_is_there(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        file.seek(2 * BLOCK)
        file.write(b"end")
    for name, sent in (("file", " (3B sent)"), ("end", "")):
        (tmp_path / "end").write_bytes(b"end")
        said = farlink("copy", str(tmp_path / name), str(tmp_path / f"copy of {name}")).stdout
        assert re.match(rf"1 name, \S+{re.escape(sent)} in ", said), said


def test_known_digests(tmp_path: Path) -> None:
    # The BLAKE3 paper's own: what is compared above is compared with something.
    assert digest(b"").hex() == "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
    assert digest(b"abc").hex() == "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"
    (tmp_path / "abc").write_bytes(b"abc")
    told = copy(tmp_path / "abc", tmp_path / "copy").names["abc"]
    assert told["blake3"] == "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"


def test_without_verification_there_is_no_digest_and_the_same_content(odd: Path, tmp_path: Path) -> None:
    copied = copy(f"{odd}/", tmp_path / "there", "--no-verify")
    assert differences(odd, tmp_path / "there") == []
    assert not any("blake3" in line for line in copied.names.values())


def test_a_program_is_told_of_every_name_and_of_the_whole(odd: Path, tmp_path: Path) -> None:
    copied = copy(odd, tmp_path / "there", "--manifest", tmp_path / "manifest")
    # The names are text that gives their bytes back: what is not UTF-8, control characters and % as %XX.
    names = {name.replace("%0A", "\n").replace("%FF%FE", "\udcff\udcfe") for name in copied.names}
    assert f"{odd.name}/odd/new\nline" in names
    assert f"{odd.name}/odd/not \udcff\udcfe UTF-8" in names
    assert f"{odd.name}/odd/per%2541cent" in names
    record = copied.record
    assert (record["kind"], record["mode"], record["tool"]) == ("file", "size", "farlink")
    assert (record["outcome"], record["protection"]) == ("ok", "clear")
    told = [line for line in copied.names.values() if line["outcome"] == "copied"]
    assert record["files"] == len(told)
    assert record["bytes"] == sum(line["bytes"] for line in told) - holes_bytes(odd)
    manifest = [json.loads(line) for line in (tmp_path / "manifest").read_text().splitlines()]
    assert {line["path"]: line for line in manifest} == copied.names


def holes_bytes(odd: Path) -> int:
    """Bytes of whole blocks in which there is nothing: they are told of, and do not travel."""
    empty = 0
    for path in (odd / "holes").iterdir():
        content = path.read_bytes()
        blocks = [content[at : at + BLOCK] for at in range(0, len(content), BLOCK)]
        empty += sum(len(block) for block in blocks if not any(block))
    return empty


def test_records_are_appended_one_a_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(3 * BLOCK))
    records = tmp_path / "records.jsonl"
    records.write_text('{"of": "another mover"}\n')
    for _ in range(2):
        said = farlink("copy", str(tmp_path / "file"), str(tmp_path / "copy"), "--record", str(records))
        assert said.status == 0, said
    first, *ours = records.read_text().splitlines()
    assert first == '{"of": "another mover"}'
    one, two = (json.loads(line) for line in ours)
    assert one["id"] != two["id"]
    assert one["duration_s"] > 0
    assert sum(count for _, count in one["samples"]) == one["bytes"]
    assert one["cpu_s"].keys() == {"sender", "receiver"}
    assert one["disk_s"].keys() == {"read", "write"}


def test_a_person_gets_a_summary_and_a_quiet_one_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(3 * BLOCK))
    words = ["copy", str(tmp_path / "file"), str(tmp_path / "copy")]
    said = farlink(*words)
    assert said.status == 0
    assert said.stdout.startswith("1 name, 3MiB")
    # Within one process there is no network that could bind.
    assert "bound by network" not in said.stdout
    assert said.stderr == ""
    quiet = farlink(*words, "--quiet")
    assert (quiet.status, quiet.stdout, quiet.stderr) == (0, "", "")
    assert "file" in farlink(*words, "--verbose").stderr


def on_a_terminal(words: Sequence[str]) -> tuple[int, str]:
    """The exit code of a command whose standard error is a terminal, and what stood there at any time."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
    with os.fdopen(its, "wb") as terminal:
        environment = {**os.environ, "TERM": "xterm"}
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=terminal, env=environment)
    shown = b""
    with os.fdopen(ours, "rb", buffering=0) as screen, contextlib.suppress(OSError):
        # Reading fails once nobody has the terminal.
        while more := screen.read(1 << 16):
            shown += more
    return process.wait(timeout=START_LIMIT_S), shown.decode()


def test_a_person_at_a_terminal_sees_rate_bytes_files_and_the_time_left(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("one", "other"):
        (source / name).write_bytes(random.Random(name).randbytes(8 * BLOCK))
    words = [str(FARLINK), "copy", f"{source}/", str(tmp_path / "there"), "--limit", "50mbit"]
    status, shown = on_a_terminal(words)
    assert status == 0, shown
    lines = re.findall(r"(\d+)%  ([\d.]+) Gb/s  (\S+) of 16MiB  (\d) of 3 files  (\d+) s left", shown)
    # It takes 2.7 s, and is shown five times a second where the machine lets it.
    assert len(lines) >= 2, shown
    shares = [int(share) for share, *_ in lines]
    assert shares == sorted(shares)
    assert shares[0] < shares[-1]
    assert any(float(rate) > 0 for _, rate, *_ in lines), lines
    # None of that stays behind.
    assert "Gb/s" not in shown.rsplit("\x1b[2K", 1)[-1]


def test_many_small_files_and_a_terabyte_of_holes_take_little_memory(tmp_path: Path) -> None:
    source, there = tmp_path / "source", tmp_path / "there"
    source.mkdir()
    for number in range(20_000):
        (source / f"{number}").write_bytes(b"small")
    with (source / "sparse").open("wb") as sparse:
        sparse.truncate(1 << 40)
    # Both ends are one process here; what a process takes at most counts what it was forked from, too.
    measure = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True); "
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    words = [sys.executable, "-c", measure, str(FARLINK), "copy", f"{source}/", str(there), "--quiet"]
    ended = run(words)
    assert ended.status == 0, ended
    assert int(ended.stdout) << 10 < 256 << 20
    copied = (there / "sparse").stat()
    assert copied.st_size == 1 << 40
    assert copied.st_blocks * 512 < 1 << 20
    assert len(list(there.iterdir())) == 20_001


def test_a_terminal_that_is_closed_ends_a_copy_in_order_and_not_under_nohup(tmp_path: Path) -> None:
    source, records = tmp_path / "source", tmp_path / "records"
    source.write_bytes(random.Random(8).randbytes(8 * BLOCK))
    words = command(source, tmp_path / "there", "--limit", "40mbit", "--record", records)
    with going(words) as running:
        running.wait_for(BLOCK)
        running.send(signal.SIGHUP)
        assert running.ended().status == INTERRUPTED
    assert json.loads(records.read_text())["outcome"] == "interrupted"
    with going(words, through=["nohup"]) as running:
        running.wait_for(2 * BLOCK)
        running.send(signal.SIGHUP)
        copied = running.ended()
    assert copied.status == 0, copied
    assert (tmp_path / "there").read_bytes() == source.read_bytes()


def test_a_dry_run_names_everything_and_copies_nothing(odd: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    ended = farlink("copy", f"{odd}/", str(there), "--dry-run", "--json", "--exclude", "deep")
    assert ended.status == 0, ended
    assert not there.exists()
    foretold = {line["path"]: line for line in map(json.loads, ended.stdout.splitlines())}
    copied = copy(f"{odd}/", there, "--exclude", "deep")
    assert set(foretold) == set(copied.names)
    for path, line in copied.names.items():
        assert (foretold[path]["outcome"], foretold[path]["bytes"]) == (line["outcome"], line["bytes"])


def test_a_dry_run_ends_as_the_copy_would(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    manifest = tmp_path / "manifest"
    last = '{"path":"of the last copy"}\n'
    manifest.write_text(last)
    gone, there = str(tmp_path / "gone"), str(tmp_path / "there")
    for places, status in (((gone,), NONE), ((gone, str(tmp_path / "file")), SOME_FAILED)):
        ended = farlink("copy", *places, there, "--dry-run")
        assert (ended.status, "gone" in ended.stderr + ended.stdout) == (status, True), ended
    refused = farlink("copy", gone, "host:~nobody/x", "--manifest", str(manifest))
    assert (refused.status, manifest.read_text()) == (REFUSED, last), refused
    ended = farlink("copy", str(tmp_path / "file"), there, "--dry-run", "--manifest", str(manifest))
    line = json.loads(manifest.read_text())
    assert (ended.status, line["path"], line["dry_run"]) == (0, "file", True), ended
    endless = farlink("copy", "/dev/zero", there, "--length", "3MiB", "--dry-run", "--json")
    assert json.loads(endless.stdout)["bytes"] == 3 << 20


def test_what_is_left_to_an_earlier_source_is_said(tmp_path: Path) -> None:
    for side in ("a", "b"):
        (tmp_path / side).mkdir()
        (tmp_path / side / "file").write_text(side)
    there = tmp_path / "there"
    done = farlink("copy", f"{tmp_path}/a/", f"{tmp_path}/b/", str(there))
    assert (done.status, (there / "file").read_text()) == (0, "a"), done
    assert "file: skipped, an earlier source has something of this name" in done.stderr
    assert "1 was skipped" in done.stdout
    manifest = tmp_path / "manifest"
    for how in ((), ("--dry-run",)):
        manifest.unlink(missing_ok=True)
        done = farlink(
            "copy",
            *how,
            "--json",
            "--manifest",
            str(manifest),
            f"{tmp_path}/a/",
            f"{tmp_path}/b/",
            str(there),
        )
        assert "earlier source" not in manifest.read_text() + done.stdout, done
        assert manifest.read_text().count('"path":"file"') == 1, done
        assert done.stdout.count('"path":"file"') == 1, done
        if not how:
            assert json.loads(done.stdout.splitlines()[-1])["skipped"] == 1, done


def test_what_stands_at_the_destination_is_left_to_an_earlier_source(tmp_path: Path) -> None:
    for side in ("a", "there"):
        (tmp_path / side).mkdir()
        (tmp_path / side / "file").write_text(side)
    there = tmp_path / "there"
    done = farlink("copy", "--json", f"{tmp_path}/a/file", f"{there}/file", f"{there}/")
    assert (done.status, (there / "file").read_text()) == (0, "a"), done
    assert "file: skipped, an earlier source has something of this name" in done.stderr
    assert done.stdout.count('"path":"file"') == 1, done


def test_quiet_json_is_what_became_of_each_name_and_the_record(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(bytes(range(256)) * 65536)
    for options, kinds in (((), {"progress", "path", "schema"}), (("--quiet",), {"path", "schema"})):
        there = tmp_path / f"there{len(options)}"
        done = farlink("copy", str(source), str(there), "--json", "--limit", "200mbit", *options)
        assert (done.status, done.stderr) == (0, ""), done
        said = [json.loads(line) for line in done.stdout.splitlines()]
        assert {kind for each in said for kind in ("progress", "path", "schema") if kind in each} == kinds


# The sources, each in its own directory, and a destination: what is made of it is rsync's to say.
PLACES: dict[str, Sequence[str]] = {
    "a file to a name that is free": ("file", "new"),
    "a file to a directory": ("file", "there"),
    "a file to a directory, with a slash": ("file", "there/"),
    "a file to a name with a slash": ("file", "new/"),
    "a file to a file": ("file", "old"),
    "an empty file to a name that is free": ("empty-file", "new"),
    "a large file to a name that is free": ("large", "new"),
    "a large file to a directory": ("large", "there"),
    "a directory to a name that is free": ("tree", "new"),
    "a directory to a directory": ("tree", "there"),
    "what is in a directory to a name that is free": ("tree/", "new"),
    "what is in a directory to a directory": ("tree/", "there"),
    "what is in a directory with a large file": ("heavy/", "new"),
    "a directory with a large file": ("heavy", "new"),
    "what is in a directory, by a dot": ("tree/.", "there"),
    "with two slashes": ("tree//", "there//"),
    "what is in an empty directory": ("hollow/", "new"),
    "the working directory": (".", "../made"),
    "a link to a name that is free": ("link-to-file", "new"),
    "a link to a directory": ("link-to-directory", "there"),
    "what is in the directory that a link leads to": ("link-to-directory/", "there"),
    "a dangling link": ("dangling", "there"),
    "two files to a directory": ("file", "large", "there"),
    "two files to a name that is free": ("file", "large", "new"),
    "a file and a directory": ("file", "tree", "there"),
    "what is in two directories": ("tree/", "hollow/", "new"),
    "what is in two directories that have the same names": ("tree/", "with-tree/tree/", "new"),
    "two directories of the same name": ("tree", "with-tree/tree", "there"),
    "a path of several components": ("tree/inner/leaf", "there"),
    "a directory of several components": ("tree/inner", "there"),
    "to a link that leads to a directory": ("file", "link-to-directory"),
    "a directory over one of that name": ("tree", "with-tree"),
}


def workplace(root: Path) -> Path:
    """What the sources and destinations of `PLACES` are in."""
    root.mkdir()
    (root / "file").write_bytes(b"file")
    (root / "old").write_bytes(b"an older one, longer")
    (root / "empty-file").write_bytes(b"")
    (root / "large").write_bytes(random.Random(3).randbytes(BLOCK + 9))
    (root / "tree" / "inner").mkdir(parents=True)
    (root / "tree" / "inner" / "leaf").write_bytes(b"leaf")
    (root / "tree" / "top").write_bytes(b"top")
    # Large files travel by themselves, and may be there before the directory that they are in.
    (root / "heavy").mkdir()
    (root / "heavy" / "large").write_bytes(random.Random(3).randbytes(BLOCK + 9))
    for number in range(300):
        (root / "heavy" / f"small-{number}").write_bytes(b"")
    (root / "hollow").mkdir()
    (root / "there").mkdir()
    (root / "there" / "before").write_bytes(b"before")
    (root / "with-tree" / "tree").mkdir(parents=True)
    (root / "with-tree" / "tree" / "top").write_bytes(b"an older top")
    (root / "with-tree" / "tree" / "other").write_bytes(b"other")
    (root / "link-to-file").symlink_to("file")
    (root / "link-to-directory").symlink_to("there")
    (root / "dangling").symlink_to("nowhere")
    return root


def in_place(root: Path, *words: str) -> dict[bytes, str]:
    """What is in the workplace at `root` after a command within it."""
    ended = run(["sh", "-c", 'cd "$1" && shift && exec "$@"', "sh", str(workplace(root)), *words])
    assert ended.status == 0, ended
    return listing(root.parent)


@pytest.mark.parametrize("places", PLACES.values(), ids=PLACES.keys())
def test_names_are_put_where_rsync_puts_them(tmp_path: Path, places: Sequence[str]) -> None:
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
    ours = in_place(tmp_path / "ours" / "work", str(FARLINK), "copy", *places)
    theirs = in_place(tmp_path / "theirs" / "work", "rsync", "-a", *places)
    assert ours == theirs


def test_an_empty_directory_is_put_as_a_full_one_is(tmp_path: Path) -> None:
    # rsync makes one under the new name itself, and only where it is empty.
    work = workplace(tmp_path / "work")
    copy(work / "hollow", work / "new")
    assert listing(work / "new") == {b"hollow": "directory"}


def test_so_much_is_read_of_what_has_no_end(tmp_path: Path) -> None:
    copied = copy("/dev/zero", tmp_path / "zeros", "--length", "3MiB")
    assert (tmp_path / "zeros").read_bytes() == bytes(3 * BLOCK)
    assert copied.record["outcome"] == "ok"
    copied = copy("/dev/zero", "/dev/null", "--length", "3MiB")
    assert copied.record["bytes"] == 3 * BLOCK
    # It is still the device.
    assert not os.path.isfile("/dev/null")  # noqa: PTH113
    # By itself it would be left out, and the command have done what it was asked for.
    assert "--length 10GiB" in refused("copy", "/dev/zero", str(tmp_path / "new"))
    assert "name the file itself" in refused("copy", "/dev/stdin", str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


def test_many_small_files_and_one_large_at_once(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for directory in range(10):
        (source / str(directory)).mkdir(parents=True)
        for number in range(300):
            (source / str(directory) / str(number)).write_bytes(f"{directory} {number}".encode() * 100)
    (source / "5" / "large").write_bytes(random.Random(4).randbytes(9 * BLOCK + 3))
    copied = copy(source, tmp_path / "there", "--streams", "5")
    assert differences(source, tmp_path / "there" / "source") == []
    assert copied.record["files"] == 1 + 10 + 3000 + 1


@pytest.mark.parametrize("resume", [[], ["--resume"]], ids=["sent at once", "asked first"])
def test_what_was_copied_is_copied_again_all_the_same(
    odd: Path, tmp_path: Path, resume: Sequence[str]
) -> None:
    copy(f"{odd}/", tmp_path / "there")
    copied = copy(f"{odd}/", tmp_path / "there", *resume)
    assert differences(odd, tmp_path / "there") == []
    if resume:
        # Small files that are there are proven to be by their digests, and do not travel.
        assert copied.outcome("size-1024") == "same"


def test_the_limit_holds_on_one_host_too(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(random.Random(5).randbytes(8 * BLOCK))
    record = copy(tmp_path / "file", tmp_path / "copy", "--limit", "50mbit").record
    # No faster than asked, but for the burst that may leave at once.
    assert (record["bytes"] - (256 << 10)) * 8 / record["duration_s"] <= 50e6 * 1.02


def test_what_a_low_limit_holds_up_is_not_sent_twice(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(MOST_PACKED + 600_000))
    # Its one block takes longer than one may on its way, were there no limit.
    record = copy(tmp_path / "file", tmp_path / "copy", "--limit", "1500kbit", "--streams", "4").record
    assert record["bytes"] == MOST_PACKED + 600_000


@pytest.mark.parametrize("how", ["SIGINT", "SIGTERM"])
def test_an_interrupted_copy_keeps_what_it_has_for_the_next(tmp_path: Path, how: str) -> None:
    source, there = tmp_path / "file", tmp_path / "copy"
    source.write_bytes(random.Random(6).randbytes(16 * BLOCK))
    with going(command(source, there, "--limit", "60mbit", "--streams", "2")) as copying:
        copying.wait_for(5 * BLOCK)
        copying.send(signal.Signals[how])
        first = copying.ended()
    assert first.status == INTERRUPTED
    assert first.record["outcome"] == "interrupted"
    assert not there.exists()
    assert leftovers(tmp_path)
    second = copy(source, there)
    assert there.read_bytes() == source.read_bytes()
    assert leftovers(tmp_path) == []
    assert second.record["bytes"] <= source.stat().st_size - copying.acknowledged + 2 * BLOCK


def test_two_copies_to_one_file_at_a_time_are_refused(tmp_path: Path) -> None:
    source, there = tmp_path / "file", tmp_path / "copy"
    source.write_bytes(random.Random(7).randbytes(8 * BLOCK))
    with going(command(source, there, "--limit", "30mbit")) as copying:
        copying.wait_for(2 * BLOCK)
        # It is at it for as long as it takes.
        copying.process.send_signal(signal.SIGSTOP)
        second = copy(source, there, status=NONE)
        copying.process.send_signal(signal.SIGCONT)
        assert "another farlink" in second.stderr
        assert copying.ended().status == 0
    assert there.read_bytes() == source.read_bytes()


@pytest.mark.parametrize("source", ["heavy/", "heavy/."])
def test_a_large_file_does_not_take_the_place_of_its_directory(tmp_path: Path, source: str) -> None:
    # Asked first what is there, it is named before the directory that it is in.
    work = workplace(tmp_path / "work")
    copy(f"{work}/{source}", work / "new", "--resume")
    assert differences(work / "heavy", work / "new") == []


@pytest.mark.parametrize("streams", ["1", "4"])
def test_more_files_than_a_process_may_open_are_copied(tmp_path: Path, streams: str) -> None:
    source, there = tmp_path / "source", tmp_path / "there"
    source.mkdir()
    # Each goes in blocks, and has two descriptors while it comes.
    for number in range(700):
        with (source / f"{number:04}").open("wb") as file:
            file.truncate(300 << 10)
            file.write(number.to_bytes(8, "big"))
    limited = ("sh", "-c", 'ulimit -n 1024; exec "$@"', "sh")
    copy(f"{source}/", there, "--streams", streams, through=limited)
    assert differences(source, there) == []
