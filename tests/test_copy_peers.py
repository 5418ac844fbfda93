"""A peer that means ill: nothing outside the target changes, memory stays bounded, an error says so."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import hostile
from copy_wire import Entry, frame, pack, serve_one, total
from copying import BROKEN, Ends, differences, ends, listing
from emulation import FARLINK, ROOT, START_LIMIT_S, Emulation, run

if TYPE_CHECKING:
    from collections.abc import Iterator

# What an end may have in memory at most, whatever its peer says.
MOST_MEMORY = 512 << 20
INTERRUPTED = 130
SEEDS = range(12)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A target, and what is around it and must not change."""

    root: Path

    @property
    def target(self) -> Path:
        """Where the copy goes."""
        return self.root / "target"

    @property
    def outside(self) -> Path:
        """A directory that a hostile peer would like to write to."""
        return self.root / "outside"

    def around(self) -> dict[bytes, str]:
        """Everything but what is in the target, which may seem to be terabytes."""
        beside = {os.fsencode(path.name): str(path.lstat().st_mode) for path in self.root.iterdir()}
        return beside | listing(self.outside)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A target in a directory with something else in it."""
    place = Place(root=tmp_path / "root")
    place.target.mkdir(parents=True)
    place.outside.mkdir()
    (place.outside / "file").write_bytes(b"of somebody else")
    (place.root / "escaped-not").write_bytes(b"beside")
    return place


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulled:
    """A client that has ended."""

    status: int
    stderr: str
    most_memory: int


def pull(place: Place, case: hostile.Case, *, patience: str = "1s") -> Pulled:
    """`farlink copy` of `wanted` from a server that says `case`."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(START_LIMIT_S)
        frames, messages = case
        server = threading.Thread(
            target=serve_one, args=(listener,), kwargs={"frames": frames, "messages": messages}, daemon=True
        )
        server.start()
        source = f"farlink://127.0.0.1:{listener.getsockname()[1]}/data/wanted"
        options = [
            "--protect",
            "clear",
            "--no-auth",
            "--streams",
            "1",
            "--retries",
            "0",
            "--timeout",
            patience,
        ]
        errors = place.root.parent / "stderr"
        with errors.open("wb") as stderr:
            process = subprocess.Popen(
                [str(FARLINK), "copy", source, f"{place.target}/", *options],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
            )
            try:
                _, status, usage = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
            finally:
                if process.returncode is None:
                    process.kill()
        # Where no client came, nobody waits for it any longer.
        listener.shutdown(socket.SHUT_RDWR)
        server.join(START_LIMIT_S)
    text = errors.read_text()
    return Pulled(status=process.returncode, stderr=text, most_memory=usage.ru_maxrss << 10)


def test_an_honest_server_that_speaks_by_hand_is_understood(place: Place) -> None:
    before = place.around()
    pulled = pull(place, hostile.honest(), patience="30s")
    assert (pulled.status, pulled.stderr) == (0, "")
    assert (place.target / "wanted" / "large").read_bytes() == hostile.CONTENT
    assert (place.target / "wanted" / "small").read_bytes() == b"small"
    assert (place.target / "wanted" / "link").readlink() == Path("small")
    assert place.around() == before


def check_refused(pulled: Pulled) -> None:
    """That it failed with few clear lines, none of which does anything to a screen, and little memory."""
    assert pulled.status in (1, 2, 3, 4), pulled
    lines = pulled.stderr.splitlines()
    assert lines, pulled
    assert len(lines) <= 3, pulled
    assert all(line.startswith("farlink: ") for line in lines), pulled
    assert "panicked" not in pulled.stderr
    assert all(character.isprintable() for line in lines for character in line), pulled
    assert pulled.most_memory < MOST_MEMORY, pulled


@pytest.mark.parametrize("name", hostile.CASES)
def test_a_hostile_server_writes_nothing_outside_the_target(place: Place, name: str) -> None:
    before = place.around()
    check_refused(pull(place, hostile.CASES[name](os.fsencode(place.outside))))
    assert place.around() == before
    # What was asked for is not there either, unless it is whole.
    files = (path for path in place.target.rglob("*") if path.is_file() and path.stat().st_size < 100)
    assert not [path for path in files if path.read_bytes() == b"escaped"]


def test_what_breaks_off_midway_is_no_refusal(place: Place) -> None:
    begun = pack(0, Entry(path=b"wanted", content=b"wanted"))
    pulled = pull(place, (begun + frame(7, b"no frame"), total(packs=2)))
    assert pulled.status == BROKEN
    assert (place.target / "wanted").read_bytes() == b"wanted"


def test_a_server_that_never_stops_talking_keeps_nobody_from_ending(place: Place) -> None:
    begun = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(START_LIMIT_S)
        talk = hostile.skipped("wanted/x", "it does not please") * 1000
        said = {"frames": b"", "messages": b"", "endless": talk, "begun": begun}
        server = threading.Thread(target=serve_one, args=(listener,), kwargs=said, daemon=True)
        server.start()
        source = f"farlink://127.0.0.1:{listener.getsockname()[1]}/data/wanted"
        options = ["--protect", "clear", "--no-auth", "--streams", "1", "--quiet"]
        with subprocess.Popen(
            [str(FARLINK), "copy", source, f"{place.target}/", *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            try:
                assert begun.wait(START_LIMIT_S)
                process.send_signal(signal.SIGTERM)
                assert process.wait(START_LIMIT_S) == INTERRUPTED
            finally:
                process.kill()
        listener.shutdown(socket.SHUT_RDWR)
        server.join(START_LIMIT_S)


@pytest.mark.parametrize("path", [b"other", b".bashrc", b"wanted2", b"wanted2/file", b"Wanted", b""])
def test_a_server_gives_no_name_that_was_not_asked_for(place: Place, path: bytes) -> None:
    pulled = pull(place, hostile.small(path))
    assert pulled.status != 0
    assert listing(place.target) == {}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("how", [hostile.truncated, hostile.flipped], ids=["truncated", "flipped"])
def test_a_stream_that_is_damaged_leaves_no_wrong_file(place: Place, how: Any, seed: int) -> None:
    before = place.around()
    pulled = pull(place, how(seed))
    assert place.around() == before
    assert "panicked" not in pulled.stderr
    assert pulled.most_memory < MOST_MEMORY
    for path, content in {"large": hostile.CONTENT, "small": b"small"}.items():
        # A changed name or mode is nobody's to notice in clear; changed content is.
        found = place.target / "wanted" / path
        assert not found.exists() or found.read_bytes() == content
    if how is hostile.truncated:
        assert pulled.status != 0


@pytest.fixture(scope="module")
def both(near: Emulation) -> Iterator[Ends]:
    """A server on an emulated host, to which no client needs a key."""
    with ends(near) as found:
        yield found


def push(both: Ends, place: Place, case: str) -> list[Any]:
    """What the server says to a client that pushes `case`."""
    program = ROOT / "tests" / "programs" / "hostile_client.py"
    address = both.emulation.address("b")
    words = [str(program), address, str(both.port), f"{place.target}/", case, str(place.outside)]
    ended = run([*both.on_client, "env", f"PYTHONPATH={ROOT / 'tests'}", sys.executable, *words])
    assert ended.status == 0, ended
    return [json.loads(line) for line in ended.stdout.splitlines()]


def most_memory(process: int) -> int:
    """What a process has had in memory at most, in bytes."""
    status = Path(f"/proc/{process}/status").read_text()
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM:"))


def test_an_honest_client_that_speaks_by_hand_is_understood(both: Ends, place: Place) -> None:
    before = place.around()
    said = push(both, place, "honest")
    assert any("finished" in each["copy"] for each in said if isinstance(each, dict) and "copy" in each)
    assert (place.target / "wanted" / "large").read_bytes() == hostile.CONTENT
    assert place.around() == before


def bad_ends(said: list[Any]) -> bool:
    """Whether the server said that something was wrong, or ended without saying that all was well."""
    inner = [each.get("copy", each) for each in said if isinstance(each, dict)]
    if any("rejected" in each or "failed" in each or "refuse" in each for each in inner):
        return True
    return not any("finished" in each for each in inner)


@pytest.mark.parametrize("name", hostile.CASES)
def test_a_hostile_client_writes_nothing_outside_the_target(both: Ends, place: Place, name: str) -> None:
    before = place.around()
    said = push(both, place, name)
    assert place.around() == before
    assert bad_ends(said), said
    assert most_memory(both.server_process()) < MOST_MEMORY


def test_a_dry_run_does_not_look_behind_a_link(both: Ends, place: Place) -> None:
    (place.outside / "file").write_bytes(b"four")
    os.utime(place.outside / "file", (1000, 1000))
    (place.target / "link").symlink_to(place.outside)
    said = [each["copy"] for each in push(both, place, "foretold:link/file") if "copy" in each]
    [[judged]] = [each["judged"] for each in said if "judged" in each]
    assert "a symbolic link is in the way" in judged["f"]


@pytest.mark.parametrize(
    ("path", "verdicts"),
    [
        ("file", ["c"]),
        ("other", ["w"]),
        # What is as old and as long beside the target is nobody's to learn of.
        ("../outside/file", None),
        ("/outside/file", None),
    ],
)
def test_a_dry_run_tells_nothing_of_what_is_outside_the_target(
    both: Ends, place: Place, path: str, verdicts: list[str] | None
) -> None:
    (place.target / "file").write_bytes(b"four")
    (place.outside / "file").write_bytes(b"four")
    for directory in (place.target, place.outside):
        os.utime(directory / "file", (1000, 1000))
    before = place.around() | listing(place.target)
    heard = push(both, place, f"foretold:{path}")
    assert any("leads elsewhere" in each["refuse"]["words"] for each in heard if "refuse" in each) == (
        verdicts is None
    ), heard
    said = [each["copy"] for each in heard if "copy" in each]
    judged = [each["judged"] for each in said if "judged" in each]
    assert judged == ([] if verdicts is None else [[{"v": each} for each in verdicts]])
    assert place.around() | listing(place.target) == before


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("how", ["truncated", "flipped"])
def test_a_client_whose_stream_is_damaged_leaves_no_wrong_file(
    both: Ends, place: Place, how: str, seed: int
) -> None:
    before = place.around()
    said = push(both, place, f"{how}:{seed}")
    assert place.around() == before
    # A changed name or mode is nobody's to notice in clear.
    if how == "truncated":
        assert bad_ends(said), said
    for path, content in {"large": hostile.CONTENT, "small": b"small"}.items():
        found = place.target / "wanted" / path
        assert not found.exists() or found.read_bytes() == content


def test_a_server_serves_on_after_all_of_that(both: Ends, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "file").write_bytes(random.Random(21).randbytes(3 << 20))
    process = both.server_process()
    for name in ("many huge files", "a message of brackets", "flipped:7"):
        place = Place(root=tmp_path / name.replace(":", "-"))
        place.target.mkdir(parents=True)
        push(both, place, name)
    both.copy(f"{source}/", both.far(tmp_path / "there"))
    assert differences(source, tmp_path / "there") == []
    assert both.server_process() == process


def test_small_files_come_though_nobody_acknowledges_any(both: Ends, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    for number in range(9_000):
        (tree / f"{number}").write_bytes(b"small")
    program = ROOT / "tests" / "programs" / "silent_receiver.py"
    words = [str(program), both.emulation.address("b"), str(both.port), f"{tree}/", "9001"]
    ended = run([*both.on_client, "env", f"PYTHONPATH={ROOT / 'tests'}", sys.executable, *words])
    # With the directory itself: were each file, or each pack, waited for, there would be one of them.
    assert (ended.status, ended.stdout) == (0, "9001\n"), ended
