"""What others send to the group of a session: it is counted, dropped, and harms nobody."""

from __future__ import annotations

import contextlib
import random
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from casting import GROUP, SENDER, Running, receiver, receivers, sender, wait_for
from copying import Keys, leftovers
from emulation import FARLINK, START_LIMIT_S, Emulation, next_line

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

pytestmark = pytest.mark.pair

PROGRAM = (sys.executable, str(Path(__file__).parent / "programs" / "eavesdropper.py"))
ADDRESS, PORT = GROUP.split(":")
# Somebody who can hear the group and send to it, and takes no part.
STRANGER = "e"

# A packet's clear header is version, reserved, number (48 bits) and session: crates/wire/src/cast/packet.rs.
CLEAR = struct.Struct(">BBHIQ")
VERSION = 0xC1
OVERHEAD = 16 + 24 + 16

# Opens connections to an address and port, and says nothing over any of them.
SILENT = """
import socket, sys, time
held = [socket.create_connection((sys.argv[1], int(sys.argv[2]))) for _ in range(300)]
print("ready", flush=True)
time.sleep(60)
"""


@pytest.fixture(scope="module")
def star() -> Iterator[Emulation]:
    """Five hosts around a core: one sends, three receive, one is a stranger."""
    with Emulation(options=("--hosts", "5", "--rate", "1gbit", "--rtt", "4ms", "--seed", "5")) as emulation:
        yield emulation


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A file that takes half a second at the rate of tests, so that receivers count while it comes."""
    path = tmp_path / "source" / "file.bin"
    path.parent.mkdir()
    path.write_bytes(random.Random(6).randbytes(12_000_000))
    return path


@contextlib.contextmanager
def keeping(emulation: Emulation, count: int, file: Path) -> Iterator[subprocess.Popen[str]]:
    """The stranger keeps the next `count` datagrams of the group in `file`."""
    with emulation.background(STRANGER, *PROGRAM, "keep", ADDRESS, PORT, str(count), str(file)) as process:
        assert process.stdout is not None
        assert next_line(process.stdout, process) == "ready\n"
        yield process


def datagrams(file: Path) -> list[bytes]:
    """Those that were kept."""
    rest, found = file.read_bytes(), []
    while rest:
        (length,) = struct.unpack_from(">H", rest)
        found.append(rest[2 : 2 + length])
        rest = rest[2 + length :]
    return found


def inject(emulation: Emulation, file: Path, packets: list[bytes]) -> None:
    """The stranger sends `packets` to the group, from the port that a session's come from."""
    file.write_bytes(b"".join(struct.pack(">H", len(packet)) + packet for packet in packets))
    emulation.output(STRANGER, *PROGRAM, "send", ADDRESS, PORT, str(file), PORT)


def forged(session: int, number: int, payload: bytes) -> bytes:
    """A packet whose clear header is right, and whose seal cannot be."""
    return CLEAR.pack(VERSION, 0, number >> 32, number & 0xFFFF_FFFF, session) + payload


def of_an_earlier_session(emulation: Emulation, tmp_path: Path, source: Path) -> list[bytes]:
    """Packets of a session that has ended."""
    kept = tmp_path / "older"
    with (
        keeping(emulation, 20, kept) as keeper,
        receiver(emulation, "b", "null:") as receiving,
        sender(emulation, source) as sending,
    ):
        assert (receiving.end()[0], sending.end()[0]) == (0, 0)
        keeper.wait(timeout=START_LIMIT_S)
    return datagrams(kept)


def test_what_strangers_send_is_counted_and_everything_arrives(
    star: Emulation, source: Path, tmp_path: Path
) -> None:
    older = of_an_earlier_session(star, tmp_path, source)
    draw = random.Random(8)
    noise = [draw.randbytes(draw.randrange(1, 1400)) for _ in range(50)]
    kept = tmp_path / "own"
    with (
        receivers(star, tmp_path, ["b", "c"]) as there,
        keeping(star, 4, kept) as keeper,
        sender(star, source, options=wait_for(3)) as sending,
    ):
        for _ in there:
            sending.until("joined")
        keeper.wait(timeout=START_LIMIT_S)
        own = datagrams(kept)
        session = CLEAR.unpack_from(own[0])[-1]
        assert session != CLEAR.unpack_from(older[0])[-1]
        # Numbers that are far ahead: they must not move what a receiver takes for late.
        seals = [
            forged(session, (1 << 40) + number, draw.randbytes(OVERHEAD + 800 - 16)) for number in range(50)
        ]
        strange = [*noise, *seals, *older, *own]
        draw.shuffle(strange)
        # The session is young: it would give way to another.
        inject(star, tmp_path / "strange", strange)
        assert sending.until("others")["others"]["address"] == star.address(STRANGER)
        # Nothing but a third receiver was waited for.
        with receiver(star, "d", tmp_path / "d", "--from", star.address(SENDER)) as last:
            ends = [each.end() for each in there]
            assert last.end()[0] == 0
        status, record = sending.end()
    assert (status, [code for code, _ in ends]) == (0, [0, 0]), record
    for host in ("b", "c", "d"):
        assert (tmp_path / host / source.name).read_bytes() == source.read_bytes()
    assert leftovers(tmp_path) == []
    for _, end in ends:
        # Some of the session's own were sent before it was let in: they are none of those that it may have.
        assert 0 <= len(strange) - end["cast"]["refused"] <= len(own)
        # A busy machine may drop a few of them; forged ones are ahead by far more.
        assert end["cast"]["lost"] < len(strange)
        assert end["cast"]["duplicates"] == 0


def test_a_session_whose_packets_all_come_again_is_as_any_other(
    star: Emulation, source: Path, tmp_path: Path
) -> None:
    with (
        sender(star, source, options=wait_for(2)) as sending,
        receiver(star, "b", tmp_path / "b") as first,
    ):
        sending.until("joined")
        with star.background(STRANGER, *PROGRAM, "repeat", ADDRESS, PORT) as repeating:
            assert repeating.stdout is not None
            assert [repeating.stdout.readline() for _ in range(3)] == ["ready\n", "repeated\n", "repeated\n"]
            # What it hears first may be the stranger's: it finds the sender nevertheless.
            with receiver(star, "c", tmp_path / "c") as second:
                (code, record), (second_code, _) = first.end(), second.end()
            status, _ = sending.end()
    assert (status, code, second_code) == (0, 0, 0)
    for host in ("b", "c"):
        assert (tmp_path / host / source.name).read_bytes() == source.read_bytes()
    assert record["cast"]["refused"] >= 2
    assert record["cast"]["duplicates"] == 0


def test_a_forger_that_was_there_first_only_delays(star: Emulation, source: Path, tmp_path: Path) -> None:
    with receiver(star, "b", tmp_path / "b") as receiving:
        inject(star, tmp_path / "first", [forged(77, 0, bytes(OVERHEAD - 16))])
        # It goes to where the packet came from, where nobody listens.
        said = receiving.until("waiting")["waiting"]["reason"]
        assert star.address(STRANGER) in said
        with sender(star, source) as sending:
            assert (receiving.end()[0], sending.end()[0]) == (0, 0)
    assert (tmp_path / "b" / source.name).read_bytes() == source.read_bytes()


def test_one_session_after_the_other_is_taken_whatever_a_stranger_sends_between(
    star: Emulation, source: Path, tmp_path: Path
) -> None:
    second = source.with_name("second.bin")
    second.write_bytes(source.read_bytes()[::-1])
    into = tmp_path / "b"
    words = ("receive", "--group", GROUP, "--into", str(into), "--no-auth", "--json")
    with star.background("b", str(FARLINK), "cast", *words, "--from", star.address(SENDER)) as process:
        receiving = Running(process=process)
        receiving.until("ready")
        for file in (source, second):
            inject(star, tmp_path / "strange", [forged(77, 0, bytes(OVERHEAD - 16))])
            with sender(star, file) as sending:
                assert receiving.until("path")["path"] == file.name
                assert sending.end()[0] == 0
            assert receiving.until("schema")["outcome"] == "ok"
    assert (into / second.name).read_bytes() == second.read_bytes()


@pytest.mark.parametrize("through", [(), ("prlimit", "--nofile=64:64")])
def test_connections_that_say_nothing_keep_nobody_out(
    star: Emulation, source: Path, tmp_path: Path, through: tuple[str, ...]
) -> None:
    with (
        sender(star, source, through=through) as sending,
        star.background("c", sys.executable, "-I", "-c", SILENT, star.address(SENDER), PORT) as silent,
    ):
        assert silent.stdout is not None
        assert next_line(silent.stdout, silent) == "ready\n"
        with receiver(star, "b", tmp_path / "b") as receiving:
            assert (receiving.end()[0], sending.end()[0]) == (0, 0)


def test_a_session_gives_way_only_to_one_that_proves_itself(
    star: Emulation, source: Path, tmp_path: Path
) -> None:
    (tmp_path / "ours").mkdir()
    (tmp_path / "theirs").mkdir()
    ours, theirs = Keys(tmp_path / "ours"), Keys(tmp_path / "theirs")
    ours.make_known(star.address(SENDER), int(PORT))
    with (
        sender(star, source, options=tuple(theirs.serve_options), keyed=True, host=STRANGER),
        receiver(star, "b", tmp_path / "b", *ours.copy_options, keyed=True) as waiting,
    ):
        # It hears the stranger's session first, does not trust it, and goes on listening.
        reason = waiting.until("waiting")["waiting"]["reason"]
        assert star.address(STRANGER) in reason
        assert str(ours.known) in reason
        options = (*ours.serve_options, *wait_for(2))
        with sender(star, source, options=options, keyed=True) as sending:
            assert sending.until("others")["others"]["address"] == star.address(STRANGER)
            words = ("send", "--group", GROUP, "--rate", "100mbit", "--quiet", *ours.serve_options)
            younger = star.on("c", str(FARLINK), "cast", *words, str(source))
            assert younger.status == 2
            assert "in use" in younger.stderr
            assert star.address(SENDER) in younger.stderr
            named = (*ours.copy_options, "--from", star.address(SENDER))
            with receiver(star, "d", tmp_path / "d", *named, keyed=True) as second:
                codes = [second.end()[0], waiting.end()[0]]
            assert (codes, sending.end()[0]) == ([0, 0], 0)
    for host in ("b", "d"):
        assert (tmp_path / host / source.name).read_bytes() == source.read_bytes()
