"""What the lab itself runs on an emulated host: it makes a file mover's source, and watches what arrives.

It runs there as a program of its own, by `python -I`, and needs nothing but Python's own library.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

# Small enough to be drawn at once, large enough that no tool finds it again and spares the sending.
PATTERN_BYTES = 16 << 20
WATCH_INTERVAL_S = 0.1


def fill(path: Path, size: int) -> None:
    """Makes the file at `path` of `size` random bytes, repeated after `PATTERN_BYTES`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pattern = os.urandom(min(size, PATTERN_BYTES))
    with path.open("wb", buffering=0) as file:
        left = size
        while left > 0:
            left -= file.write(memoryview(pattern)[: min(left, PATTERN_BYTES)])


def touch(path: Path, size: int) -> None:
    """Has the memory of a file of `size` bytes at `path` ready, without leaving a file."""
    fill(path, size)
    path.unlink()


def arrived_bytes(directory: Path) -> int:
    """Bytes that are there of all files in `directory`; holes that wait for their data do not count."""
    total = 0
    for entry in os.scandir(directory):
        # A tool may rename a file meanwhile.
        try:
            found = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue
        total += min(found.st_size, found.st_blocks * 512)
    return total


def watch(directory: Path) -> None:
    """Says, ten times a second, the monotonic clock and what has arrived in `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    while True:
        sys.stdout.write(f"{time.monotonic():.6f} {arrived_bytes(directory)}\n")
        sys.stdout.flush()
        time.sleep(WATCH_INTERVAL_S)


def _main(verb: str, path: str, *rest: str) -> None:
    if verb == "fill":
        fill(Path(path), int(rest[0]))
    elif verb == "touch":
        touch(Path(path), int(rest[0]))
    elif verb == "watch":
        watch(Path(path))
    else:
        sys.stdout.write(f"{arrived_bytes(Path(path))}\n")


if __name__ == "__main__":
    try:
        _main(*sys.argv[1:])
    except OSError as error:
        sys.exit(f"{error.filename or sys.argv[2]}: {error.strerror}")
