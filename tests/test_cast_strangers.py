"""What others send to the group of a session: it is counted, dropped, and harms nobody."""

from __future__ import annotations

import contextlib
import random
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from casting import GROUP, SENDER, receiver, receivers, sender, wait_for
from copying import leftovers
from emulation import START_LIMIT_S, Emulation, next_line

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

pytestmark = pytest.mark.alone

PROGRAM = (sys.executable, str(Path(__file__).parent / "programs" / "eavesdropper.py"))
ADDRESS, PORT = GROUP.split(":")
# Somebody who can hear the group and send to it, and takes no part.
STRANGER = "e"

# A packet's clear header is version, reserved, number (48 bits) and session: crates/wire/src/cast/packet.rs.
CLEAR = struct.Struct(">BBHIQ")
VERSION = 0xC1
OVERHEAD = 16 + 24 + 16

# A session gives way to an older one for 2.5 s; it tells its progress each 0.2 s at most.
TELLINGS_OF_A_YOUNG_SESSION = 14


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
    """The stranger sends `packets` to the group."""
    file.write_bytes(b"".join(struct.pack(">H", len(packet)) + packet for packet in packets))
    emulation.output(STRANGER, *PROGRAM, "send", ADDRESS, PORT, str(file))


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
        for _ in range(TELLINGS_OF_A_YOUNG_SESSION):
            sending.until("progress")
        strange = [*noise, *seals, *older, *own]
        draw.shuffle(strange)
        inject(star, tmp_path / "strange", strange)
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
        # A packet or two may have been under way when it was let in: they are none of those that it may have.
        assert 0 <= end["cast"]["refused"] - len(strange) < 5
        assert (end["cast"]["lost"], end["cast"]["duplicates"]) == (0, 0)


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
