"""What cannot be copied is named, the rest is copied, and nothing wrong stands under a final name."""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import stat
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from copying import BLOCK, DONE, NONE, REFUSED, SOME_FAILED, copy, differences, leftovers, listing, understood
from emulation import FARLINK, Ended, farlink, refused, run
from reference_digest import digest

if TYPE_CHECKING:
    from collections.abc import Sequence

# To a far side on this machine, no key is needed.
CLEAR = ("--protect", "clear", "--no-auth")

# What is asked, and the words that the one line must have: the value, and the mend.
COPY: dict[tuple[str, ...], tuple[str, ...]] = {
    (): ("SOURCE",),
    ("{here}/file",): ("DESTINATION",),
    ("{here}/file", "{here}/no/such/new"): ("{here}/no/such", "mkdir -p"),
    ("{here}/file", "{here}/file/new"): ("{here}/file",),
    ("", "{here}/new"): ("empty", "."),
    ("{here}/file", ""): ("empty", "."),
    ("host:x", "other:y"): ("host:x", "other:y"),
    ("{here}/file", "host:x", "{here}/new"): ("two commands",),
    ("host:x", "other:y", "{here}/new"): ("different hosts",),
    (":x", "{here}/new"): (":x", "./:x"),
    ("{here}/file", "{here}/no such/new"): ("mkdir -p '{here}/no such'",),
    ("host::module/x", "{here}/new"): ("modules", "farlink://HOST/PATH"),
    ("{here}/file", "farlink://2001:db8::1:5300/x"): ("farlink://[2001:db8::1]:5210/PATH",),
    ("-a", "{here}/file", "{here}/new"): ("-a: ", "always copied", "farlink copy --help"),
    ("--delete", "{here}/file", "{here}/new"): ("--delete", "nothing is removed"),
    ("{here}/file", "{here}/new", "--include", "- file"): ("- file", "--exclude GLOB"),
    ("farlink:///x", "{here}/new"): ("farlink:///x", "farlink://HOST/PATH"),
    ("http://host/x", "{here}/new"): ("http://host/x", "farlink://HOST/PATH", "./http://host/x"),
    ("farlink://host", "{here}/new"): ("farlink://host", "farlink://host/PATH"),
    ("-oProxyCommand=true:x", "{here}/new"): ("-o",),
    ("--", "-oProxyCommand=true:x", "{here}/new"): ("dash",),
    ("{here}/file", "{here}/new", "--limit", "2"): ('"2"', "no unit", "10gbit"),
    ("{here}/file", "{here}/new", "--limit", "0gbit"): ('"0gbit"', "zero"),
    ("{here}/file", "{here}/new", "--limit", "24:00,2gbit"): ('"24:00"', "08:00"),
    ("{here}/file", "{here}/new", "--read-back", "--no-verify"): ("--read-back", "--no-verify"),
    ("{here}/file", "{here}/new", "--streams", "0"): ("0", "512"),
    ("{here}/file", "{here}/new", "--streams", "513"): ("513", "512"),
    ("{here}/file", "{here}/new", "--length", "3"): ('"3"', "no unit"),
    ("/dev/zero", "{here}/new", "--length", "0B"): ("--length 0B", "10GiB"),
    ("{here}/file", "{here}/new", "--manifest", "-"): ("--manifest -", "--json"),
    ("{here}/file", "{here}/new", "--record", "-"): ("--record -", "--json"),
    ("{here}/file", "{here}/new", "--record", "{here}/../x", "--manifest", "{here}/.././x"): (
        "both",
        "a file for each",
    ),
    ("{here}/file", "{here}/new", "--manifest", "{here}/file"): ("--manifest", "in what is copied"),
    ("{here}", "{here}/../new", "--manifest", "{here}/names"): ("--manifest", "in what is copied"),
    ("{here}/file", "{here}/new", "--manifest", "{here}/new"): ("--manifest", "where the copy goes"),
    ("/dev/null", "{here}/new", "--length", "1B", "--manifest", "{here}/file"): ("file", "no manifest"),
    ("/dev/null", "{here}/new", "--record", "{here}/file"): ("file", "other content than records"),
    ("/dev/zero", "{here}/new", "--length", "200TiB"): ("--length 200TiB", "128TiB"),
    (*(f"farlink://127.0.0.1:9/{number}" for number in range(1001)), "{here}/new", "--no-auth"): (
        *("1001 sources", "1000", "pattern"),
    ),
    (*(f"farlink://127.0.0.1:9/{number:0300}" for number in range(900)), "{here}/new", "--no-auth"): (
        *("bytes", "copy in parts"),
    ),
    ("{here}/file", "{here}/new", "--buffer", "64"): ('"64"', "no unit"),
    ("{here}/file", "{here}/new", "--protect", "secretly"): ("secretly", "encrypt, integrity or clear"),
    ("{here}/file", "{here}/new", "--circuit", "10gbit"): ("--circuit", "both sides are here"),
    ("{here}/file", "farlink://host/new", "--congestion", "circuit"): ("--congestion", "--circuit RATE"),
    ("{here}/file", "farlink://host/new", "--circuit", "100kbit"): ("100kbit or more", "2 cannot share"),
    ("{here}/file", "farlink://host/new", "--circuit", "1tbit"): ("1000gbit", "up to 400gbit"),
    ("{here}/file", "{here}/new", "--congestion", "cubic"): ("--congestion", "both sides are here"),
    ("{here}/file", "{here}/new", "--buffer", "1MiB"): ("--buffer", "both sides are here"),
    ("{here}/file", "{here}/new", "--auto", "--rtt", "5ms"): ("--auto", "both sides are here"),
    ("{here}/file", "{here}/new", "--bind", "127.0.0.1"): ("--bind", "both sides are here"),
    ("{here}/file", "{here}/new", "--ports", "5000-5010"): ("--ports", "HOST:PATH"),
    ("{here}/file", "farlink://host/new", "--ports", "5000-5010"): ("--ports", "HOST:PATH"),
    ("{here}/file", "farlink://host/new", "--ssh", "ssh -v"): ("--ssh", "HOST:PATH"),
    ("{here}/file", "host:x", "--identity", "{here}/key"): ("--identity", "farlink://HOST/PATH"),
    ("{here}/file", "host:x", "--known-hosts", "{here}/known"): ("--known-hosts", "farlink://HOST/PATH"),
    ("{here}/file", "host:x", "--no-auth"): ("--no-auth", "farlink://HOST/PATH"),
    ("{here}/file", "farlink://host/new", "--no-auth", "--identity", "{here}/key"): (
        "--no-auth",
        "--identity",
    ),
    ("{here}/file", "farlink://host/new", "--no-auth", "--protect", "integrity"): ("--protect clear",),
    ("/dev/zero", "{here}/new", "--length", "1MB", "--exclude", "zero"): ("--length", "--exclude"),
    ("{here}/file", "{here}/new", "--dry-run", "--record", "{here}/records"): ("--dry-run", "--record"),
    ("{here}/file", "{here}/new", "--circuit", "1gbit", "--congestion", "cubic"): (
        "--circuit",
        "--congestion",
    ),
    ("{here}/file", "{here}/new", "--exclude", "[a"): ("[a",),
    ("{here}/file", "{here}/new", "--exclude", "x" * 1001): ("1001", "1000"),
    ("{here}/file", "{here}/new", "--timeout", "3"): ('"3"', "no unit"),
    ("{here}/file", "{here}/new", "--retries", "often"): ("often",),
    ("{here}/file", "{here}/new", "--manifest", "/no/such/manifest"): ("/no/such/manifest",),
    ("{here}/file", "{here}/new", "--record", "/no/such/records"): ("/no/such/records",),
    ("{here}/file", "{here}/new", "--quiet", "--verbose"): ("--quiet", "--verbose"),
    ("{here}/file", "{here}/new", "--bind", "somewhere"): ("somewhere",),
    ("{here}/file", "farlink://127.0.0.1:9/new", "--no-auth", "--bind", "192.0.2.1"): (
        "192.0.2.1 is no address of this host",
        "--bind",
    ),
    ("{here}/file", "farlink://127.0.0.1:9/new", "--no-auth", "--bind", "::1"): ("kind of ::1", "IPv4"),
    ("{here}/file", "farlink://me@host/new", "--no-auth"): ("me@host", "leave out the user"),
    ("{here}/file", "host:x", "--ports", "9-1"): ("9-1", "lower first"),
    ("{here}/file", "host:x", "--ports", "0-70000"): ("0-70000", "65535"),
    ("{here}/file", "{here}/new", "--nosuch"): ("--nosuch",),
    ("x" * 5000, "{here}/new"): ("4095",),
    ("{here}/file", "{here}/" + "x" * 256): ("File name too long",),
}


@pytest.mark.parametrize("options", [(), ("--dry-run",)], ids=["copied", "foretold"])
@pytest.mark.parametrize("destination", ["no/such/new", "file/", "file/new"])
def test_what_cannot_be_a_destination_is_refused_also_where_nothing_is_copied(
    tmp_path: Path, destination: str, options: tuple[str, ...]
) -> None:
    (tmp_path / "file").write_bytes(b"file")
    (tmp_path / "other").write_bytes(b"other")
    before = listing(tmp_path)
    complaint = refused("copy", *options, f"{tmp_path}/other", f"{tmp_path}/{destination}")
    assert f"{tmp_path}/{destination.split('/')[0]}" in complaint
    assert listing(tmp_path) == before


@pytest.mark.parametrize("words", COPY, ids=lambda words: " ".join(words)[:80] or "nothing")
def test_copy_refuses(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "file").write_bytes(b"file")
    before = listing(tmp_path)
    complaint = refused("copy", *(word.replace("{here}", str(tmp_path)) for word in words))
    for each in COPY[words]:
        assert each.replace("{here}", str(tmp_path)) in complaint
    assert listing(tmp_path) == before


def test_a_file_that_has_more_than_its_size_says_is_not_copied_as_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    done = copy("/proc/self/status", tmp_path / "empty", tmp_path / "new", status=SOME_FAILED)
    assert "its size is 0" in done.names["status"]["reason"]
    assert list(listing(tmp_path / "new")) == [b"empty"]


def test_a_pattern_may_begin_with_a_dash(tmp_path: Path) -> None:
    for name in ("-dash", "other"):
        (tmp_path / "tree" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "tree" / name).touch()
    copy(f"{tmp_path}/tree/", tmp_path / "new", "--exclude", "-dash")
    assert [each.name for each in (tmp_path / "new").iterdir()] == ["other"]


def test_options_stand_anywhere_among_sources_and_destination(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(name.encode())
    (tmp_path / "new").mkdir()
    words = (tmp_path / "a", "--streams", "2", tmp_path / "b", "-q", tmp_path / "new", "--no-verify")
    ended = farlink("copy", *map(str, words))
    assert (ended.status, ended.stdout, ended.stderr) == (DONE, "", "")
    assert {path.name: path.read_text() for path in (tmp_path / "new").iterdir()} == {"a": "a", "b": "b"}


@pytest.mark.parametrize("others", [[], ["file"]], ids=["alone", "among others"])
def test_a_source_that_is_not_there_is_named_as_it_was_given(tmp_path: Path, others: list[str]) -> None:
    (tmp_path / "file").write_bytes(b"file")
    (tmp_path / "there").mkdir()
    sources = [str(tmp_path / name) for name in (*others, "gone")]
    ended = farlink("copy", *sources, str(tmp_path / "there"))
    assert ended.status == (SOME_FAILED if others else NONE)
    assert f"{tmp_path}/gone" in ended.complaint
    assert "No such file" in ended.complaint
    assert listing(tmp_path / "there").keys() == {os.fsencode(name) for name in others}


def test_a_far_side_of_another_version_is_told_with_both_versions(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"file")
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        port = server.getsockname()[1]
        peers = []

        def answer() -> None:
            for _ in range(2):
                peer, _ = server.accept()
                peers.append(peer)
                peer.sendall(b"farlink\n" + (99).to_bytes(2, "big"))

        threading.Thread(target=answer, daemon=True).start()
        destination = f"farlink://127.0.0.1:{port}{tmp_path}/new"
        complaint = refused("copy", str(tmp_path / "file"), destination, *CLEAR, "--streams", "1")
        for peer in peers:
            peer.close()
    assert "version 99" in complaint
    assert "same release" in complaint


def test_a_far_side_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"file")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    where = f"farlink://127.0.0.1:{port}{tmp_path}/new"
    ended = farlink("copy", str(tmp_path / "file"), where, *CLEAR, "--retries", "0")
    assert ended.status == REFUSED
    assert str(port) in ended.complaint
    assert "farlink serve" in ended.complaint


def test_where_nothing_is_begun_nothing_is_left_and_nothing_lost(tmp_path: Path) -> None:
    manifest, new, state = tmp_path / "manifest", tmp_path / "new", tmp_path / "state"
    manifest.write_text("earlier\n")
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        far = f"farlink://127.0.0.1:{nobody.getsockname()[1]}{tmp_path}/"
        for options in [(), ("--dry-run",)]:
            words = [str(FARLINK), "copy", far, str(new), *CLEAR, "--manifest", str(manifest), *options]
            ended = run(words, env=os.environ | {"XDG_STATE_HOME": str(state)})
            assert ended.status == REFUSED, ended
    assert not new.exists()
    assert manifest.read_text() == "earlier\n"
    assert [path for path in state.rglob("*") if path.is_file()] == []


def test_a_file_that_is_too_large_is_named_and_the_others_are_copied(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    # Too large for most file systems.
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        (source / "small").write_text("small")
        huge = Path(memory) / "huge"
        with huge.open("wb") as file:
            file.truncate((1 << 47) + 1)
        copied = copy(huge, source / "small", tmp_path / "new", status=SOME_FAILED)
    assert "128TiB" in copied.names["huge"]["reason"].replace(" ", "")
    assert copied.outcome("small") == "copied"


def test_as_many_streams_as_there_may_be_fit_the_usual_limit(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(5 * BLOCK))
    copy(tmp_path / "file", tmp_path / "new", "--streams", "512", through=("prlimit", "--nofile=1024:4096"))
    assert (tmp_path / "new").stat().st_size == 5 * BLOCK


def test_a_file_that_is_longer_than_may_be_written_is_named_and_others_are_copied(tmp_path: Path) -> None:
    (tmp_path / "long").write_bytes(bytes(3 * BLOCK))
    (tmp_path / "short").write_bytes(b"short")
    there = tmp_path / "there"
    there.mkdir()
    sources = (tmp_path / "long", tmp_path / "short")
    copied = copy(*sources, there, status=SOME_FAILED, through=("prlimit", f"--fsize={BLOCK}"))
    assert "too large" in copied.names["long"]["reason"]
    assert copied.outcome("short") == "copied"
    assert (there / "short").read_bytes() == b"short"


def test_of_one_directory_more_names_than_there_may_be_descriptors_are_copied(tmp_path: Path) -> None:
    source, there = tmp_path / "source", tmp_path / "there"
    source.mkdir()
    there.mkdir()
    for number in range(1500):
        (source / f"{number}").write_bytes(b"x")
    copy(*source.iterdir(), there, through=("prlimit", "--nofile=512:512"))
    # Itself it was not copied.
    shutil.copystat(source, there)
    assert differences(source, there) == []


@pytest.mark.parametrize("size", [5, 3 * BLOCK])
@pytest.mark.parametrize(
    ("source", "destination"),
    [
        ("file", "file"),
        ("file", "."),
        ("in/../file", "./"),
        ("./", "."),
        ("in/file", "in"),
        ("in", "."),
        ("in/", "leads-to-in"),
    ],
)
def test_what_would_be_copied_onto_itself_is_named_and_stays_as_it_is(
    tmp_path: Path, source: str, destination: str, size: int
) -> None:
    content = random.Random(size).randbytes(size)
    (tmp_path / "in").mkdir()
    (tmp_path / "leads-to-in").symlink_to("in")
    files = [tmp_path / "file", tmp_path / "in" / "file"]
    for path in files:
        path.write_bytes(content)
    before = [path.stat() for path in files]
    ended = farlink("copy", f"{tmp_path}/{source}", f"{tmp_path}/{destination}")
    # Nothing is amiss, as with rsync.
    assert ended.status == DONE, ended
    assert ended.complaint.endswith(": skipped, it would be copied onto itself")
    # The very file: neither its owner nor its other names, nor what somebody writes to it now, are lost.
    assert [path.stat() for path in files] == before
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("sources", [["nope/"], ["nope", "neither"], ["nope/*"]])
def test_where_there_is_nothing_to_copy_no_directory_is_made_for_it(
    tmp_path: Path, sources: list[str]
) -> None:
    ended = farlink("copy", *(f"{tmp_path}/{source}" for source in sources), f"{tmp_path}/there")
    assert ended.status == NONE, ended
    assert ended.stderr.count("No such file or directory") == len(sources)
    assert list(tmp_path.iterdir()) == []
    # Nor is it remembered: there is nothing that could be taken up.
    assert list((Path(os.environ["XDG_STATE_HOME"]) / "farlink" / "unfinished").iterdir()) == []


def test_an_empty_directory_is_copied_as_one(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    copy(f"{tmp_path}/empty/", tmp_path / "there")
    assert (tmp_path / "there").is_dir()


def test_beside_what_would_be_copied_onto_itself_the_rest_is_copied(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    for name in ("a", "there/b"):
        (tmp_path / name).write_bytes(b"file")
    copied = copy(tmp_path / "a", tmp_path / "there" / "b", tmp_path / "there")
    assert (copied.outcome("a"), copied.outcome("b")) == ("copied", "skipped")
    assert (tmp_path / "there" / "a").read_bytes() == b"file"


def test_a_copy_of_a_directory_into_itself_ends(tmp_path: Path) -> None:
    source = tmp_path / "tree"
    source.mkdir()
    (source / "file").write_bytes(b"file")
    ended = farlink("copy", str(source), str(source))
    assert ended.status == NONE, ended
    assert "it is the destination" in ended.complaint
    assert listing(source) == {b"file": f"file {b'file'.hex()}"}


def test_what_is_copied_into_a_part_of_itself_is_there_once(tmp_path: Path) -> None:
    source = tmp_path / "tree"
    for name in ("a", "new", "z"):
        (source / name).mkdir(parents=True)
        (source / name / "large").write_bytes(random.Random(name).randbytes(2 * BLOCK))
    before = listing(source)
    for _ in range(2):
        copied = copy(f"{source}/", source / "new")
        assert copied.outcome("new") == "skipped"
        assert "it is the destination" in copied.names["new"]["reason"]
        there = {name: what for name, what in before.items() if not name.startswith(b"new")}
        assert listing(source / "new") == there | {b"large": before[b"new/large"]}
    assert leftovers(source) == []


def within(
    place: Path, mount: str, *words: str, program: Sequence[str] = (str(FARLINK),)
) -> tuple[Ended, list[str]]:
    """`farlink WORDS`, or those of another program, where `place` is what `mount` mounts there.

    Also the names that are in it afterwards.
    """
    # The last line has the exit code, so that what was said stays as it was.
    script = f"""
        {mount}
        "$@"; status=$?
        echo "== $status" && cd {place} && find . -mindepth 1 -printf '%p %s\\n'
    """
    unshared = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]
    ended = run([*unshared, *program, *words])
    said, _, after = ended.stdout.rpartition("== ")
    status, *names = after.splitlines()
    return Ended(status=int(status), stdout=said, stderr=ended.stderr), names


def test_a_full_disk_fails_what_has_no_room_and_leaves_nothing_under_its_name(tmp_path: Path) -> None:
    source, there = tmp_path / "source", tmp_path / "there"
    source.mkdir()
    there.mkdir()
    (source / "a-small").write_bytes(b"small")
    (source / "large").write_bytes(random.Random(8).randbytes(6 * BLOCK))
    mount = f"mount -t tmpfs -o size=4m farlink-test {there}"
    ended, names = within(there, mount, "copy", f"{source}/", str(there), "--json", "--streams", "2")
    copied = understood(ended)
    assert copied.status == SOME_FAILED, ended
    reason = copied.names["large"]["reason"]
    assert ("reserve room for" in reason, "No space left on device" in reason) == (True, True), reason
    # The small one has room or has not, as its turn comes; it is whole or not there.
    assert [name for name in names if not name.startswith("./.farlink-")] == (
        ["./a-small 5"] if copied.outcome("a-small") == "copied" else []
    )


def test_what_a_full_disk_has_taken_stays_and_with_more_room_only_the_rest_is_sent(tmp_path: Path) -> None:
    source, there = tmp_path / "large", tmp_path / "there"
    there.mkdir()
    # A file with a hole is not reserved beforehand: three of its blocks fit.
    source.write_bytes(random.Random(8).randbytes(6 * BLOCK))
    with source.open("r+b") as file:
        file.truncate(8 * BLOCK)
    mount = f"mount -t tmpfs -o size=4m farlink-test {there}"
    # The same command, first without and then with the room that it takes.
    twice = f"""
        "$@"; echo "== $?" && ls -A {there}
        mount -o remount,size=16m {there}
        exec "$@"
    """
    words = ("copy", str(source), f"{there}/", "--json", "--streams", "1")
    ended, names = within(there, mount, "sh", "-c", twice, "sh", str(FARLINK), *words, program=())
    first, _, rest = ended.stdout.partition("== ")
    status, journal, partial, *lines = rest.splitlines()
    assert int(status) == NONE, ended
    assert "No space left on device" in first
    assert {Path(name).suffix for name in (journal, partial)} == {".part", ".journal"}
    second = understood(Ended(status=ended.status, stdout="\n".join(lines), stderr=""))
    assert second.status == DONE, ended
    assert second.record["bytes"] == 3 * BLOCK
    assert names == [f"./large {8 * BLOCK}"]
    assert second.names["large"]["blake3"] == digest(source.read_bytes()).hex()


def test_small_files_on_a_full_disk_are_whole_or_not_there(tmp_path: Path) -> None:
    source, there = tmp_path / "source", tmp_path / "there"
    source.mkdir()
    there.mkdir()
    for number in range(60):
        (source / f"{number:02}").write_bytes(bytes([number]) * 100_000)
    mount = f"mount -t tmpfs -o size=4m farlink-test {there}"
    ended, names = within(there, mount, "copy", f"{source}/", str(there), "--json")
    copied = understood(ended)
    assert copied.status == SOME_FAILED, ended
    sizes = dict(name.split() for name in names)
    assert set(sizes.values()) == {"100000"}
    assert 20 < len(sizes) < 42
    made = {path for path, line in copied.names.items() if line["outcome"] == "copied"} - {"."}
    assert {f"./{name}" for name in made} == set(sizes)


def test_a_read_only_target_is_refused_with_its_reason(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    for name, size in (("small", 10), ("large", 2 * BLOCK)):
        (tmp_path / name).write_bytes(bytes(size))
        mount = f"mount -t tmpfs -o ro farlink-test {there}"
        ended, names = within(there, mount, "copy", str(tmp_path / name), str(there))
        assert ended.status == NONE, ended
        assert "Read-only file system" in ended.stderr
        assert names == []


@pytest.mark.parametrize("size", [10, 2 * BLOCK], ids=["small", "large"])
def test_a_directory_in_the_way_of_a_file_is_named_and_stays(tmp_path: Path, size: int) -> None:
    source, there = tmp_path / "source", tmp_path / "there"
    source.mkdir()
    (there / "name" / "inner").mkdir(parents=True)
    (source / "name").write_bytes(bytes(size))
    (source / "other").write_bytes(b"other")
    copied = copy(f"{source}/", there, status=SOME_FAILED)
    assert copied.outcome("name") == "failed"
    assert "directory" in copied.names["name"]["reason"]
    assert listing(there) == {
        b"name": "directory",
        b"name/inner": "directory",
        b"other": f"file {b'other'.hex()}",
    }


def test_a_file_in_the_way_of_a_directory_is_named_and_stays(tmp_path: Path) -> None:
    source, there = tmp_path / "source", tmp_path / "there"
    (source / "name" / "deep").mkdir(parents=True)
    for name in ("file", "deep/file"):
        (source / "name" / name).write_bytes(b"x")
    there.mkdir()
    (there / "name").write_bytes(b"in the way")
    copied = copy(f"{source}/", there, status=SOME_FAILED)
    beneath = ("name/deep", "name/deep/file", "name/file")
    assert [copied.outcome(path) for path in ("name", *beneath)] == ["failed"] * 4
    # Once is enough for a person.
    first, *others = copied.stderr.splitlines()
    assert first.startswith(f"farlink: name: a file is in the way to {there / 'name'}")
    assert others == ["farlink: not copied either: 3 names beneath these (--verbose names each)"]
    told = farlink("copy", "--verbose", f"{source}/", str(there)).stderr
    assert all(f"farlink: {path}: a file is in the way" in told for path in ("name", *beneath))
    assert listing(there) == {b"name": f"file {b'in the way'.hex()}"}


@pytest.mark.parametrize("is_link", [False, True])
def test_a_destination_that_cannot_be_a_directory_is_refused_once(tmp_path: Path, is_link: bool) -> None:
    source, there = tmp_path / "source", tmp_path / "there"
    (source / "inner").mkdir(parents=True)
    for number in range(100):
        (source / f"{number}").write_bytes(b"x")
    if is_link:
        there.symlink_to("nowhere")
    else:
        there.write_bytes(b"in the way")
    line = refused("copy", str(source), str(there))
    assert str(there) in line
    assert "far end" not in line
    assert listing(tmp_path)[b"there"] == ("link nowhere" if is_link else f"file {b'in the way'.hex()}")


@pytest.mark.parametrize("kind", ["pipe", "link out", "link to directory"])
def test_what_stands_under_a_final_name_is_replaced_and_never_followed(tmp_path: Path, kind: str) -> None:
    source, there, outside = tmp_path / "source", tmp_path / "there", tmp_path / "outside"
    for directory in (source, there, outside):
        directory.mkdir()
    (outside / "file").write_bytes(b"outside")
    for name, size in (("small", 10), ("large", 2 * BLOCK)):
        (source / name).write_bytes(bytes(size))
        if kind == "pipe":
            os.mkfifo(there / name)
        else:
            (there / name).symlink_to(outside / "file" if kind == "link out" else outside)
    copy(f"{source}/", there)
    assert differences(source, there) == []
    assert listing(outside) == {b"file": f"file {b'outside'.hex()}"}


def test_a_device_is_skipped_and_named(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root can make a device")
    os.mknod(source / "null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    copied = copy(f"{source}/", tmp_path / "there")
    assert copied.outcome("null") == "skipped"
    assert "null" in copied.stderr
    assert listing(tmp_path / "there") == {}


def test_nobody_need_hear_what_a_copy_says(tmp_path: Path) -> None:
    source, there = tmp_path / "source", tmp_path / "there"
    source.mkdir()
    for number in range(2000):
        (source / f"{number:04}").write_bytes(b"file")
    # Standard output and error are pipes whose readers are gone.
    reader, writer = os.pipe()
    os.close(reader)
    words = [str(FARLINK), "copy", f"{source}/", str(there), "--verbose"]
    status = subprocess.run(words, stdout=writer, stderr=writer, check=False).returncode
    os.close(writer)
    assert status == DONE
    assert differences(source, there) == []


def test_a_record_and_a_manifest_on_a_full_disk_lose_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(BLOCK))
    words: Sequence[str] = ("copy", str(tmp_path / "file"), str(tmp_path / "copy"), "--quiet")
    ended = farlink(*words, "--record", "/dev/full")
    assert ended.status == 2
    assert '"bytes":1048576' in ended.stdout + ended.stderr, "the record is lost"
    assert (tmp_path / "copy").read_bytes() == bytes(BLOCK)
    ended = farlink(*words, "--manifest", "/dev/full")
    assert ended.status == 2
    assert "/dev/full" in ended.stderr


def test_failures_can_be_done_again_from_the_manifest(tmp_path: Path) -> None:
    source, there = tmp_path / "source", tmp_path / "there"
    source.mkdir()
    (there / "in-the-way").mkdir(parents=True)
    for name in ("fine", "in-the-way"):
        (source / name).write_bytes(b"x")
    manifest = tmp_path / "manifest"
    copy(f"{source}/", there, "--manifest", manifest, status=SOME_FAILED)
    lines = map(json.loads, manifest.read_text().splitlines())
    failed = [line["path"] for line in lines if line["outcome"] == "failed"]
    (there / "in-the-way").rmdir()
    copied = copy(*(source / name for name in failed), f"{there}/")
    assert copied.names.keys() == {"in-the-way"}
    # A directory has the time when a name in it was last changed, and a file that is copied into it is one.
    assert [each for each in differences(source, there) if not each.startswith(".d..t")] == []


@pytest.mark.parametrize("names", [("there/sub/a", "other/a"), ("there/sub", "other"), ("there/", "other/")])
def test_a_later_source_does_not_take_the_place_of_what_would_be_copied_onto_itself(
    tmp_path: Path, names: tuple[str, str]
) -> None:
    there, other = tmp_path / "there", tmp_path / "other"
    first, second = names
    destination = {"there/sub/a": there / "sub", "there/sub": there, "there/": there}[first]
    if first == "there/sub":
        other = tmp_path / "else" / "sub"
        second = "else/sub"
    for directory, content in ((there / "sub", b"first"), (there, b"first"), (other, b"later")):
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "a").write_bytes(content)
    (other / "b").write_bytes(b"later")
    copy(tmp_path / first if first[-1] != "/" else f"{there}/", f"{tmp_path}/{second}", destination)
    assert (there / "a").read_bytes() == b"first"
    assert (there / "sub" / "a").read_bytes() == b"first"
    # What the first one has nothing of is the later one's.
    assert [path.read_bytes() for path in there.rglob("b")] == ([] if first == "there/sub/a" else [b"later"])
