"""What a hostile sender says: the same for a server that is asked for `wanted`, and for a client that pushes.

Each case is frames of the data connection and messages of the control connection. None may write outside the
target, and none may make the receiver believe that all is well.
"""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING

from copy_wire import DIRECTORY, END, SYMLINK, Entry, block, blocks, file, frame, holes, message, pack, total

if TYPE_CHECKING:
    from collections.abc import Callable

BLOCK = 1 << 20
CONTENT = random.Random(20).randbytes(2 * BLOCK + 5)

Case = tuple[bytes, bytes]


def honest() -> Case:
    """What no receiver has anything against: else the cases would show nothing."""
    entries = [
        Entry(path=b"wanted", kind=DIRECTORY, mode=0o755),
        Entry(path=b"wanted/small", content=b"small"),
        Entry(path=b"wanted/link", kind=SYMLINK, target=b"small"),
    ]
    large = Entry(path=b"wanted/large", content=CONTENT)
    frames = pack(0, *entries) + file(0, large) + blocks(0, CONTENT) + END
    return frames, total(files=1, packs=1, entries=4, size=len(CONTENT) + 5)


def small(path: bytes) -> Case:
    """A small file at `path`."""
    return pack(0, Entry(path=path, content=b"escaped")) + END, total(packs=1)


def large(path: bytes) -> Case:
    """A file in blocks at `path`."""
    return file(0, Entry(path=path, content=CONTENT)) + blocks(0, CONTENT) + END, total(files=1)


def through_a_link(outside: bytes, *, apart: bool, in_blocks: bool) -> Case:
    """A link to `outside`, and a file behind it."""
    link = Entry(path=b"wanted/link", kind=SYMLINK, target=outside)
    wanted = Entry(path=b"wanted", kind=DIRECTORY, mode=0o755)
    behind = Entry(path=b"wanted/link/file", content=CONTENT if in_blocks else b"escaped")
    if in_blocks:
        return pack(0, wanted, link) + file(0, behind) + blocks(0, CONTENT) + END, total(files=1, packs=1)
    if apart:
        return pack(0, wanted, link) + pack(1, behind) + END, total(packs=2)
    return pack(0, wanted, link, behind) + END, total(packs=1)


def swapped(outside: bytes) -> Case:
    """A directory that becomes a link after something was put into it."""
    entries = [
        Entry(path=b"wanted", kind=DIRECTORY, mode=0o755),
        Entry(path=b"wanted/inner", kind=DIRECTORY, mode=0o755),
        Entry(path=b"wanted/inner/first", content=b"first"),
    ]
    swap = Entry(path=b"wanted/inner", kind=SYMLINK, target=outside)
    second = Entry(path=b"wanted/inner/file", content=b"where it belongs")
    return pack(0, *entries) + pack(1, swap) + pack(2, second) + END, total(packs=3)


def root_as_link(outside: bytes) -> Case:
    """A link in place of all that was asked for, and a file behind it."""
    link = Entry(path=b"wanted", kind=SYMLINK, target=outside)
    return pack(0, link, Entry(path=b"wanted/file", content=b"escaped")) + END, total(packs=1)


def many_huge() -> Case:
    """As many files as may be open, each as large as can be, of which nothing comes."""
    said = (file(n, Entry(path=b"wanted/%d" % n, size=1 << 38), sparse=1) for n in range(1000))
    return b"".join(said) + END, total(files=1000)


def nested() -> bytes:
    """A message of brackets."""
    body = b"[" * 200_000
    return struct.pack(">I", len(body)) + body


def skipped(path: str, reason: str) -> bytes:
    """A name that the sender says it did not copy."""
    return message({"copy": {"skipped": {"path": path, "lack": "failed", "reason": reason}}})


# What each sends, made of the name of a directory outside the target.
CASES: dict[str, Callable[[bytes], Case]] = {
    "up": lambda _: small(b"../escaped"),
    "up, in blocks": lambda _: large(b"../escaped"),
    "up from within": lambda _: small(b"wanted/../../escaped"),
    "absolute": lambda outside: small(outside + b"/escaped"),
    "absolute, in blocks": lambda outside: large(outside + b"/escaped"),
    "an empty component": lambda _: small(b"wanted//escaped"),
    "a dot": lambda _: small(b"wanted/./escaped"),
    "a NUL": lambda _: small(b"wanted\0escaped"),
    "a component that is too long": lambda _: small(b"wanted/" + b"x" * 256),
    "a path that is too long": lambda _: small(b"wanted/" + b"x/" * 2100 + b"x"),
    "a file behind a link": lambda outside: through_a_link(outside, apart=False, in_blocks=False),
    "a file behind a link of another pack": lambda o: through_a_link(o, apart=True, in_blocks=False),
    "a file in blocks behind a link": lambda o: through_a_link(o, apart=True, in_blocks=True),
    "a directory that becomes a link": swapped,
    "the root as a link": root_as_link,
    "a device": lambda _: (pack(0, Entry(path=b"wanted", kind=3)) + END, total(packs=1)),
    "the mode of a device": lambda _: (
        pack(0, Entry(path=b"wanted", mode=0o20666, content=b"x")) + END,
        total(packs=1),
    ),
    "too many nanoseconds": lambda _: (
        pack(0, Entry(path=b"wanted", mtime_ns=10**9, content=b"x")) + END,
        total(packs=1),
    ),
    "a link to nothing": lambda _: (pack(0, Entry(path=b"wanted", kind=SYMLINK)) + END, total(packs=1)),
    # With nothing to come the receiver might be done before it looked at the frame.
    "a frame of another kind": lambda _: (frame(7, b"x"), total(packs=1)),
    "a frame that is too long": lambda _: (frame(1, b"x", length=0xFFFF_FFFF), total(files=1)),
    "a pack that is too long": lambda _: (frame(4, b"x", length=64 << 20), total(packs=1)),
    "a pack of too many": lambda _: (
        pack(0, *(Entry(path=b"wanted-%d" % n, kind=DIRECTORY) for n in range(4097))) + END,
        total(packs=1),
    ),
    "a small file that is too large": lambda _: (
        pack(0, Entry(path=b"wanted", content=bytes((256 << 10) + 1))) + END,
        total(packs=1),
    ),
    "a file as large as numbers go": lambda _: (
        file(0, Entry(path=b"wanted", size=(1 << 64) - 1)),
        total(files=1),
    ),
    "a file as large as may be": lambda _: (
        file(0, Entry(path=b"wanted", size=1 << 57)) + END,
        total(files=1),
    ),
    "a sparse one as large as may be": lambda _: (
        file(0, Entry(path=b"wanted", size=1 << 57), sparse=1) + holes(0, (0, 1 << 31)) + END,
        total(files=1),
    ),
    "many huge files": lambda _: many_huge(),
    "a file of nothing": lambda _: (file(0, Entry(path=b"wanted", size=0)) + END, total(files=1)),
    "a block of no file": lambda _: (block(9, 0, b"x" * 100, of=b"x" * 100) + END, total(files=1)),
    "a block behind the end": lambda _: (
        file(0, Entry(path=b"wanted", content=CONTENT)) + block(0, 77, CONTENT[:BLOCK], of=CONTENT) + END,
        total(files=1),
    ),
    "a block that is too long for its place": lambda _: (
        file(0, Entry(path=b"wanted", content=CONTENT)) + block(0, 2, CONTENT[:BLOCK], of=CONTENT) + END,
        total(files=1),
    ),
    "a block as long as numbers go": lambda _: (
        file(0, Entry(path=b"wanted", content=CONTENT))
        + block(0, 0, CONTENT[:BLOCK], of=CONTENT, length=0xFFFF_FFFF)
        + END,
        total(files=1),
    ),
    "holes behind the end": lambda _: (
        file(0, Entry(path=b"wanted", content=CONTENT), sparse=1) + holes(0, (0, 0xFFFF_FFFF)) + END,
        total(files=1),
    ),
    "holes that overflow": lambda _: (
        file(0, Entry(path=b"wanted", content=CONTENT), sparse=1) + holes(0, (0xFFFF_FFFF, 2)) + END,
        total(files=1),
    ),
    "holes out of order": lambda _: (
        file(0, Entry(path=b"wanted", content=CONTENT), sparse=1) + holes(0, (1, 1), (0, 1)) + END,
        total(files=1),
    ),
    "two files of one number": lambda _: (
        file(0, Entry(path=b"wanted", content=CONTENT)) + file(0, Entry(path=b"wanted", size=77)) + END,
        total(files=1),
    ),
    "a damaged block, and no other": lambda _: (
        file(0, Entry(path=b"wanted", content=CONTENT))
        + blocks(0, CONTENT[:-1] + bytes([CONTENT[-1] ^ 1]))[:-32]
        + bytes(32)
        + END,
        total(files=1),
    ),
    "fewer files than were said": lambda _: (END, total(files=3, packs=7)),
    "a message that is too long": lambda _: (END, struct.pack(">I", 0xFFFF_FFFF) + b"x" * 100_000),
    "a message of brackets": lambda _: (END, nested()),
    "a message that is none": lambda _: (END, message({"copy": {"conquer": {}}})),
    "half a message": lambda _: (END, total(files=1)[:-3]),
    "a message of the other end": lambda _: (END, message({"copy": {"acknowledged": [{"b": [0, 0]}]}})),
    "a request": lambda _: (END, message({"stop": None}) + message("stop")),
    "words for the screen": lambda _: (
        END,
        skipped("wanted/\x1b[2Jclean", "\x1b]0;title\x07\nfarlink: all is well")
        + message({"failed": {"cause": "lasting", "words": "\x1b[2J\r\nall is well"}}),
    ),
}


def truncated(seed: int) -> Case:
    """The honest stream, ended somewhere."""
    frames, messages = honest()
    return frames[: random.Random(seed).randrange(len(frames))], messages


def flipped(seed: int) -> Case:
    """The honest stream with one bit changed: most of them in content, some in what is said of it."""
    frames, messages = honest()
    draw = random.Random(seed)
    at = draw.randrange(len(frames)) if seed % 2 else draw.randrange(400)
    changed = bytearray(frames)
    changed[at] ^= 1 << draw.randrange(8)
    return bytes(changed), messages
