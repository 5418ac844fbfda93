"""A file system that shows other owners and keeps no modes, by bindfs."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

from emulation import run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def is_mountable() -> bool:
    """Whether there is what it needs."""
    return shutil.which("bindfs") is not None and os.access("/dev/fuse", os.W_OK)


@contextlib.contextmanager
def strange(place: Path, *options: str) -> Iterator[Path]:
    """A file system in `place`, which is on another one underneath."""
    beneath, there = place / "beneath", place / "there"
    for directory in (beneath, there):
        directory.mkdir()
    process = subprocess.Popen(["bindfs", "-f", *options, beneath, there])
    try:
        device = place.stat().st_dev
        while there.stat().st_dev == device:
            assert process.poll() is None, "bindfs does not mount"
        yield there
    finally:
        run(["umount", str(there)])
        # A host that was emulated meanwhile has the mount, too, and would keep it from its end.
        process.terminate()
        process.wait()
