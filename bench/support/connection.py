"""An emulated connection for a bench, driven through the command line as a user would."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from farlink_lab.run import child

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]
# Touching kernel memory beforehand takes seconds.
START_LIMIT_S = 120.0
FARLINK = os.environ.get("FARLINK") or str(ROOT / "target" / "release" / "farlink")
# The emulator's threads, in the order of the hosts that send over them.
LINKS = ("link a-b", "link b-a")
# A bench may have several connections at a time.
NUMBERS = itertools.count(1)


class Connection:
    """Hosts a and b, joined as `options` of `farlink emulate` say, for as long as the context lasts."""

    def __init__(self, *options: str) -> None:
        self.options = options
        self.name = f"bench-{os.getpid()}-{next(NUMBERS)}"

    def __enter__(self) -> Self:
        command = [FARLINK, "emulate", "--name", self.name, "--json", *self.options]
        # It ends with the bench, however that ends, and with it everything on its hosts: files, too.
        self.process = child.start(command, stderr=Path("/dev/null"))
        line = child.first_line(self.process, limit_s=START_LIMIT_S)
        if not line:
            raise SystemExit(f"{' '.join(command)} did not come up")
        self.started: dict[str, Any] = json.loads(line)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()

    def address(self, host: str) -> str:
        """The IPv4 address of `host`."""
        return str(next(each["ipv4"] for each in self.started["hosts"] if each["name"] == host))

    def on(self, host: str, *command: str) -> list[str]:
        """The command line that runs `command` on `host`."""
        return [FARLINK, "on", f"{self.name}/{host}", "--", *command]

    def run(self, host: str, *command: str) -> str:
        """What `command` prints on `host`."""
        return subprocess.run(self.on(host, *command), stdout=subprocess.PIPE, text=True, check=True).stdout

    def start(self, host: str, *command: str) -> subprocess.Popen[str]:
        """`command` running on `host`, with its output to read."""
        command_line = self.on(host, *command)
        return subprocess.Popen(command_line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def bind_links(self, cores: Sequence[int]) -> None:
        """Has each link of two hosts driven by the processor among `cores` that its sender's rank has."""
        mine = f"--name\0{self.name}\0".encode()
        for task in Path("/proc").glob("[0-9]*/task/[0-9]*"):
            # It may end meanwhile.
            with contextlib.suppress(OSError):
                name = (task / "comm").read_text().strip()
                if name in LINKS and mine in (task / "cmdline").read_bytes():
                    os.sched_setaffinity(int(task.name), {cores[LINKS.index(name)]})

    def link(self, *options: str) -> dict[str, Any]:
        """The connection's state, after the changes that `options` ask for."""
        command = [FARLINK, "link", self.name, "--json", *options]
        state: dict[str, Any] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
        return state


def late(before: dict[str, Any], after: dict[str, Any], share: float, *, link: int = 0) -> float:
    """The lateness, in seconds, that `share` of a link's packets did not pass between two states."""
    was = dict(before["links"][link]["late"])
    counts = [(bound, count - was.get(bound, 0)) for bound, count in after["links"][link]["late"]]
    total, seen = sum(count for _, count in counts), 0
    for bound, count in counts:
        seen += count
        if seen >= share * total:
            return float(bound)
    return 0.0


def served(process: subprocess.Popen[str], words: str) -> None:
    """Waits until `process` prints a line with `words`."""
    assert process.stdout is not None
    for line in process.stdout:
        if words in line:
            return
    raise SystemExit(f"{process.args!r} ended before it said {words!r}")


def quantile(values: Sequence[float], share: float) -> float:
    """The value that `share` of `values` do not pass."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
