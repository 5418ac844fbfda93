"""What is done to a copy while it runs: an end killed, a stream killed, a link cut; what memory it takes."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from support import page
from support.connection import FARLINK, Connection
from support.contenders import Contender, Job, gridftp, ours, serving
from support.copies import (
    DESTINATION,
    PLACE,
    SOURCE,
    clear,
    make_file,
    make_sparse,
    make_tree,
    servers,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from support.results import Results, Run

GIB = 1 << 30
RATE = ("--rate", "10gbit", "--prefault", "2GiB")
KILLED_BYTES = GIB
POINTS = 10
PEER_POINTS = 3
BLOCK = 1 << 20
# A file whose every byte is its own: a block in a wrong place is a wrong file.
MAKE_RANDOM = """
import os, sys
os.makedirs(os.path.dirname(sys.argv[1]), exist_ok=True)
with open(sys.argv[1], "wb") as file:
    for _ in range(int(sys.argv[2]) >> 24):
        file.write(os.urandom(1 << 24))
"""
# The blocks that are written, as the journal beside a partial file has them: 40 bytes, and 40 for each
# (crates/wire/src/journal.rs).
COUNT_BLOCKS = """
import glob, os, sys
rows = set()
for name in glob.glob(os.path.join(sys.argv[1], ".farlink-*.journal")):
    bytes = open(name, "rb").read()
    rows |= {bytes[at : at + 4] for at in range(40, len(bytes) - 39, 40)}
print(len(rows))
"""
FILE = Job(source=SOURCE, destination=DESTINATION)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Something that is done to a copy, and what became of it."""

    name: str
    title: str
    run: Callable[[Results], None]
    head: Sequence[str]

    def table(self, runs: Sequence[Run]) -> str:
        """What became of it."""
        rows = [[run["contender"], *(run["cells"].get(cell, "") for cell in self.head[1:])] for run in runs]
        return page.table(self.head, rows)


def digest(connection: Connection, host: str, path: str) -> str:
    """Of a file on a host; empty where there is none."""
    said = connection.run(host, "sh", "-c", f"test -f {path} && sha256sum {path} || true")
    return said.split()[0] if said else ""


def networks(connection: Connection) -> frozenset[str]:
    """The network namespaces of the connection's hosts."""
    return frozenset(connection.run(host, "readlink", "/proc/self/ns/net").strip() for host in "ab")


def processes(hosts: frozenset[str], words: str) -> list[int]:
    """Processes in the networks of `hosts` whose command begins with `words`, as they are seen from here."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and os.readlink(entry / "ns" / "net") in hosts:  # noqa: PTH115
                said = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if said.startswith(words):
                    found.append(int(entry.name))
    return found


def start(connection: Connection, contender: Contender, *options: str) -> subprocess.Popen[str]:
    """The copy, running."""
    command = contender.command(connection, FILE)
    return subprocess.Popen(
        connection.on("a", *command, *options),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def kill(
    connection: Connection, contender: Contender, *, end: str, point: float, took_s: float
) -> dict[str, str]:
    """One end killed after the share `point` of the time that a copy takes, and then the same command."""
    clear(connection, FILE)
    verb = "copy" if end == "client" else "serve"
    words = f"{FARLINK} {verb} "
    if not contender.ours:
        words = "globus-url-copy " if end == "client" else "globus-gridftp-server "
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(contextlib.ExitStack())
        server.enter_context(serving(connection, contender.server))
        options = ["--json", "--retries", "0"] if contender.ours else []
        process = start(connection, contender, *options)
        time.sleep(point * took_s)
        for victim in processes(networks(connection), words):
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
        process.communicate()
        first = process.returncode
        there = connection.run("b", "sh", "-c", f"stat -c %s {DESTINATION} 2>/dev/null || echo none").strip()
        if end == "server":
            server.close()
            stack.enter_context(serving(connection, contender.server))
        had = blocks_there(connection)
        # The far end may need a moment to notice: the same command is given until it has.
        for _ in range(20):
            again = start(connection, contender, *options)
            more, errors = again.communicate()
            if again.returncode == 0 or "another farlink" not in errors:
                break
            time.sleep(0.5)
    same = again.returncode == 0 and digest(connection, "b", DESTINATION) == digest(connection, "a", SOURCE)
    cells = {
        "end": end,
        "at": f"{point:.0%}",
        "first ended with": str(first),
        "under the final name": there if there == "none" else f"{int(there) / KILLED_BYTES:.0%}",
        "the same command": "identical" if same else f"failed ({again.returncode})",
    }
    if contender.ours and again.returncode == 0:
        # What was killed when all was done had put it in its place.
        written = had * BLOCK if there == "none" else int(there)
        sent = next(line["bytes"] for line in lines(more) if "schema" in line)
        cells["had"] = f"{written / KILLED_BYTES:.1%}"
        cells["sent again"] = f"{(sent + written - KILLED_BYTES) / KILLED_BYTES:.2%}"
    return cells


def blocks_there(connection: Connection) -> int:
    """Blocks that are written, once no more are: the far end goes on with what has come."""
    directory, counted = str(Path(DESTINATION).parent), [-1]
    for _ in range(60):
        counted.append(int(connection.run("b", sys.executable, "-I", "-c", COUNT_BLOCKS, directory)))
        if counted[-1] == counted[-2]:
            break
        time.sleep(0.5)
    return counted[-1]


def lines(text: str) -> list[Run]:
    """The objects in what a copy said; its last line may be half of one."""
    found = []
    for line in text.splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            found.append(json.loads(line))
    return found


def kills(results: Results) -> None:
    """Either end killed at random points, ours and GridFTP."""
    contenders = {ours("farlink copy"): POINTS, gridftp(4, buffer=None): PEER_POINTS}
    with Connection(*RATE, "--rtt", "91.6ms") as connection:
        connection.run("a", sys.executable, "-I", "-c", MAKE_RANDOM, SOURCE, str(KILLED_BYTES))
        connection.run("b", "mkdir", "-p", PLACE)
        for contender, points in contenders.items():
            with serving(connection, contender.server):
                # The first finds memory that nobody has touched.
                for _ in range(3):
                    clear(connection, FILE)
                    began = time.monotonic()
                    start(connection, contender).communicate()
                    took_s = time.monotonic() - began
            draw = random.Random(contender.name)
            for number in range(points):
                for end in ("client", "server"):
                    point = draw.uniform(0.1, 0.9)
                    if results.has("kill", f"{contender.name}, {end}", number):
                        continue
                    cells = kill(connection, contender, end=end, point=point, took_s=took_s)
                    # One that was done already was not killed.
                    while contender.ours and cells["first ended with"] == "0":
                        point *= 0.8
                        cells = kill(connection, contender, end=end, point=point, took_s=took_s)
                    name = f"{contender.name}, {end}"
                    results.add({"row": "kill", "contender": name, "repetition": number, "cells": cells})
                    print("kill", name, cells, flush=True)


def destroy_stream(connection: Connection) -> None:
    """Destroys the connection of host a that has carried most."""
    shown = connection.run("a", "ss", "-tniHO", "state", "established")
    carried = {}
    for line in shown.splitlines():
        words = line.split()
        sent = [int(word.partition(":")[2]) for word in words if word.startswith("bytes_sent:")]
        carried[words[2].rpartition(":")[2]] = sum(sent)
    port = max(carried, key=lambda each: carried[each])
    connection.run("a", "ss", "-K", "-tnH", "state", "established", "sport", "=", f":{port}")


def cut(connection: Connection) -> None:
    """Nothing passes for three seconds."""
    connection.link("--cut")
    time.sleep(3)
    connection.link("--restore")


def disturbances(results: Results) -> None:
    """One of eight streams killed, and the link cut, in the middle."""
    contenders = (ours("farlink copy", "--streams", "8"), gridftp(8, buffer=None))
    harms: dict[str, Callable[[Connection], None]] = {
        "nothing": lambda _: None,
        "one of 8 streams killed": destroy_stream,
        "the link cut for 3 s": cut,
    }
    with Connection(*RATE, "--rtt", "91.6ms") as connection, servers(connection, contenders):
        make_file(connection, 4 * GIB)
        connection.run("b", "mkdir", "-p", PLACE)
        for number in range(3):
            for harm, do in harms.items():
                for contender in contenders:
                    name = f"{contender.name}: {harm}"
                    if results.has("disturbed", name, number):
                        continue
                    clear(connection, FILE)
                    began = time.monotonic()
                    process = start(connection, contender)
                    time.sleep(2.5)
                    do(connection)
                    # A peer that waits for what is gone would wait for ever.
                    try:
                        process.communicate(timeout=120)
                    except subprocess.TimeoutExpired:
                        process.terminate()
                        process.communicate()
                    took_s = time.monotonic() - began
                    same = digest(connection, "b", DESTINATION) == digest(connection, "a", SOURCE)
                    cells = {
                        "ended with": str(process.returncode),
                        "identical": "yes" if same else "no",
                        "s": f"{took_s:.2f}",
                    }
                    results.add({"row": "disturbed", "contender": name, "repetition": number, "cells": cells})
                    print("disturbed", name, cells, flush=True)


def most_memory(hosts: frozenset[str], words: str) -> int:
    """What the processes whose command begins with `words` have had in memory at most, in bytes."""
    most = 0
    for process in processes(hosts, words):
        with contextlib.suppress(OSError):
            status = Path(f"/proc/{process}/status").read_text()
            most = max(
                most, *(int(x.split()[1]) << 10 for x in status.splitlines() if x.startswith("VmHWM:"))
            )
    return most


def memory(results: Results) -> None:
    """What both ends have in memory at most, for many files and for one that seems large."""
    made: dict[str, Callable[[Connection], None]] = {
        "1,000,000 files of 64 bytes": lambda each: make_tree(each, count=1_000_000, size=64),
        "1 TB sparse file, 1 GiB of data": lambda each: make_sparse(each, size=10**12, written=GIB),
    }
    contender = ours("farlink copy")
    for name, make in made.items():
        if results.has("memory", name, 0):
            continue
        with Connection(*RATE, "--rtt", "0.4ms") as connection, serving(connection, contender.server):
            make(connection)
            hosts = networks(connection)
            began = time.monotonic()
            process = start(connection, contender)
            client = 0
            # The client's peak is read while it lives: as often as it could grow by much.
            while process.poll() is None:
                client = max(client, most_memory(hosts, f"{FARLINK} copy "))
                time.sleep(0.02)
            took_s = time.monotonic() - began
            server = most_memory(hosts, f"{FARLINK} serve ")
            there = connection.run(
                "b", "sh", "-c", f"find {DESTINATION} -type f | wc -l; du -sm {DESTINATION}"
            )
            files, size = there.split()[:2]
            cells = {
                "client, MiB": f"{client / 2**20:.0f}",
                "server, MiB": f"{server / 2**20:.0f}",
                "ended with": str(process.returncode),
                "files there": files,
                "MiB there": size,
                "s": f"{took_s:.1f}",
            }
            results.add({"row": "memory", "contender": name, "repetition": 0, "cells": cells})
            print("memory", name, cells, flush=True)


TRIALS = {
    trial.name: trial
    for trial in (
        Trial(
            name="kill",
            title="Either end killed at a random point, then the same command: 1 GiB file, 91.6 ms",
            run=kills,
            head=(
                *("", "at", "first ended with", "under the final name", "the same command"),
                *("had", "sent again"),
            ),
        ),
        Trial(
            name="disturbed",
            title="A stream killed, the link cut: 4 GiB file, 91.6 ms, 2.5 s after the start",
            run=disturbances,
            head=("", "ended with", "identical", "s"),
        ),
        Trial(
            name="memory",
            title="Memory of each end",
            run=memory,
            head=("", "client, MiB", "server, MiB", "ended with", "files there", "MiB there", "s"),
        ),
    )
}
