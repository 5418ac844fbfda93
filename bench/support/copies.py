"""Copies as the bench measures them: files in memory, one run after the other, results that stay."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from farlink_lab.run import on_host

from support.connection import Connection, late
from support.contenders import WORK, Contender, Job, serving

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from support.results import Run

# Each emulated host has its own, which ends with it.
PLACE = "/dev/shm/farlink"
SOURCE, DESTINATION = f"{PLACE}/source", f"{PLACE}/destination"
ON_HOST = (sys.executable, "-I", on_host.__file__)

# Besides a file's own size: what lies in queues and buffers.
WARM = 2 << 30

# Makes a tree: directory, files, bytes of each. A thousand files a directory.
MAKE_TREE = """
import os, sys
root, files, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
content = os.urandom(size + files)
for number in range(files):
    if number % 1000 == 0:
        directory = f"{root}/{number // 1000:04}"
        os.makedirs(directory)
    with open(f"{directory}/{number:07}", "wb") as file:
        file.write(content[number : number + size])
"""
MAKE_SPARSE = """
import os, sys
path, size, written = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
os.makedirs(os.path.dirname(path), exist_ok=True)
with open(path, "wb") as file:
    file.truncate(size)
    for number in range(written >> 24):
        file.seek(number * (size // (written >> 24)) & ~0xFFF)
        file.write(os.urandom(1 << 24))
"""
COUNT = "import os, sys; print(sum(len(files) for _, _, files in os.walk(sys.argv[1])))"


def make_file(connection: Connection, size: int) -> None:
    """A source of `size` bytes."""
    connection.run("a", *ON_HOST, "fill", SOURCE, str(size))


def make_tree(connection: Connection, *, count: int, size: int) -> None:
    """A source of `count` files of `size` bytes each."""
    connection.run("a", sys.executable, "-I", "-c", MAKE_TREE, SOURCE, str(count), str(size))
    connection.run("b", "mkdir", "-p", PLACE)


def make_sparse(connection: Connection, *, size: int, written: int) -> None:
    """A source that seems to have `size` bytes, and has `written`."""
    connection.run("a", sys.executable, "-I", "-c", MAKE_SPARSE, SOURCE, str(size), str(written))
    connection.run("b", "mkdir", "-p", PLACE)


def arrived(connection: Connection, job: Job) -> int:
    """Bytes of the file that is there, or files of the tree."""
    if job.length is not None:
        return job.length
    if job.tree:
        return int(connection.run("b", sys.executable, "-I", "-c", COUNT, job.destination))
    return int(connection.run("b", "stat", "-c", "%s", job.destination))


@contextlib.contextmanager
def servers(connection: Connection, contenders: Sequence[Contender]) -> Iterator[None]:
    """Every server that one of `contenders` needs."""
    with contextlib.ExitStack() as stack:
        for server in sorted({each.server for each in contenders}):
            stack.enter_context(serving(connection, server))
        yield


def warm(connection: Connection, size: int) -> None:
    """Has the machine below give memory now: it takes back what is free, and who touches that next waits."""
    connection.run("b", *ON_HOST, "touch", f"{PLACE}/warm", str(WARM + size))


def clear(connection: Connection, job: Job) -> None:
    """Removes what an earlier run left at the destination."""
    if job.destination.startswith(PLACE):
        connection.run("b", "sh", "-c", f"rm -rf {job.destination} {PLACE}/.farlink-* {PLACE}/.destination*")


def measure(
    connection: Connection, contender: Contender, job: Job, *, wanted: int, limit_s: float = 900.0
) -> Run:
    """One whole command: its time, whether all has arrived, and what the emulator was late by."""
    clear(connection, job)
    warm(connection, 0 if job.tree or job.length else wanted)
    before = connection.link()
    record = WORK / "record.jsonl"
    record.unlink(missing_ok=True)
    command = contender.command(connection, job)
    if contender.ours:
        command += ["--record", str(record)]
    began = time.monotonic()
    process = subprocess.Popen(
        connection.on("a", *command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        said, errors = process.communicate(timeout=limit_s)
        status = process.returncode
    except subprocess.TimeoutExpired:
        process.terminate()
        process.communicate()
        status, said, errors = -1, "", f"longer than {limit_s:.0f} s"
    wall_s = time.monotonic() - began
    after = connection.link()
    run: Run = {
        "contender": contender.name,
        "wall_s": wall_s,
        "goodput_bps": after["goodput_bps"],
        "rtt_s": after["rtt_s"],
        "overrun": late(before, after, 0.99) > after["overrun_limit_s"],
    }
    if status != 0:
        return run | {"error": (errors.strip().splitlines() or [f"exit code {status}"])[-1][:300]}
    there = arrived(connection, job)
    if there != wanted:
        return run | {"error": f"{there} of {wanted} at the destination"}
    if contender.ours:
        kept = json.loads(record.read_text())
        fields = ("bytes", "duration_s", "setup_s", "cpu_s", "disk_s", "congestion", "retransmits", "streams")
        run["record"] = {field: kept.get(field) for field in fields}
        _, _, bound = said.partition("bound by ")
        run["bound"] = bound.strip().partition(";")[0].partition(",")[0]
    return run


def limit_ratio(run: Run) -> float:
    """Design's, of the data phase: what no transfer can beat, by what this one took."""
    limit = run["rtt_s"] / 2 + 8 * run["record"]["bytes"] / run["goodput_bps"]
    return float(limit / run["record"]["duration_s"])
