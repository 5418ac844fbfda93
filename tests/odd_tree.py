"""A tree with everything in it that trees have in practice, and some movers lose."""

from __future__ import annotations

import os
import random
import socket
import stat
from typing import TYPE_CHECKING

from copying import BLOCK, MOST_PACKED

if TYPE_CHECKING:
    from pathlib import Path

ODD_NAMES = (
    b"new\nline",
    b"not \xff\xfe UTF-8",
    "übergrößt 漢字 🜂".encode(),
    b"n" * 255,
    b"-rf",
    b"--delete",
    b"per%41cent",
    b"back\\slash",
    b"a*?[b]{c}",
    b"\"quotes' `and` $(others)",
    b" a blank in front and behind ",
    b"tab\tescape\x1b[31m",
    b"...",
    b".hidden",
    b"~",
    b"colon:name",
    b"farlink-like.part",
)
SIZES = (0, 1, 1023, 1024, MOST_PACKED, MOST_PACKED + 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5)
# Seconds and nanoseconds, also from before 1970 and from after 2038.
TIMES_NS = (1, 1_000_000_000, -1_500_000_000, 5_000_000_000_123_456_789, 981_173_106_987_654_321)
MODES = (0o400, 0o600, 0o644, 0o755, 0o4755, 0o2750)
HOLES_BYTES = 64 << 20
# What cannot be copied.
SKIPPED = ("pipe", "socket")


def make(root: Path) -> None:
    """The tree, at `root`, which must not exist."""
    draw = random.Random(5)
    root.mkdir()
    for size in SIZES:
        (root / f"size-{size}").write_bytes(draw.randbytes(size))
    odd = root / "odd"
    odd.mkdir()
    for name in ODD_NAMES:
        (odd / os.fsdecode(name)).write_bytes(name)
        inner = odd / "directories" / os.fsdecode(name)
        inner.mkdir(parents=True)
        (inner / os.fsdecode(name)).write_bytes(name)
    for number, mode in enumerate(MODES):
        path = root / f"mode-{mode:o}"
        path.write_bytes(b"mode")
        path.chmod(mode)
        os.utime(path, ns=(0, TIMES_NS[number % len(TIMES_NS)]))
    links(root / "links")
    holes(root / "holes")
    (root / "empty" / "of" / "everything").mkdir(parents=True)
    closed = root / "closed"
    closed.mkdir()
    (closed / "within").write_bytes(b"in a directory that cannot be written to")
    deep = root / "deep"
    for level in range(40):
        deep = deep / f"level {level}"
    deep.mkdir(parents=True)
    (deep / "bottom").write_bytes(b"here")
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        # A socket's name may have 107 bytes: from within, it has few.
        before = os.open(".", os.O_RDONLY)
        try:
            os.chdir(root)
            listener.bind("socket")
        finally:
            os.fchdir(before)
            os.close(before)
    for path in sorted(root.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            os.utime(path, ns=(0, TIMES_NS[len(path.name) % len(TIMES_NS)]))
    closed.chmod(0o555)
    root.chmod(0o751)


def links(directory: Path) -> None:
    """Symbolic links of all kinds."""
    directory.mkdir()
    targets = {
        "to-file": b"../size-1024",
        "to-directory": b"../odd",
        "out-of-the-tree": b"/etc/passwd",
        "up": b"..",
        "to-itself": b"to-itself",
        "dangling": b"no\nsuch \xff file",
        "long": b"x/" * 2000,
    }
    for name, target in targets.items():
        os.symlink(target, os.fsencode(directory / name))  # noqa: PTH211 - the target is bytes
    os.utime(directory / "to-file", ns=(0, TIMES_NS[4]), follow_symlinks=False)


def holes(directory: Path) -> None:
    """Files most of which is not there."""
    directory.mkdir()
    for name, written in {
        "island": [(HOLES_BYTES // 2 + 4096, b"island" * 1000)],
        "nothing": [],
        "both-ends": [(0, b"first"), (HOLES_BYTES - 4, b"last")],
        "behind": [(0, random.Random(6).randbytes(2 * BLOCK))],
    }.items():
        path = directory / name
        with path.open("wb") as file:
            for at, content in written:
                file.seek(at)
                file.write(content)
            file.truncate(HOLES_BYTES)


def mode_of(path: Path) -> int:
    """Its permission bits."""
    return stat.S_IMODE(path.stat(follow_symlinks=False).st_mode)
