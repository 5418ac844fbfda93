"""Emulated connections: started, changed, asked for their counters and ended, by the command line."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from farlink_lab.error import LabError
from farlink_lab.run import child

if TYPE_CHECKING:
    from collections.abc import Sequence

    from farlink_lab.plan import Connection

# Hosts are up in a third of a second; a busy machine may take longer.
START_LIMIT_S = 30.0
COMMAND_LIMIT_S = 20.0
SENDER, RECEIVER = "a", "b"
# What both hosts' buffers hold at most of a connection, in bandwidth-delay products.
PREFAULT_PRODUCTS = 4


class EmulationError(LabError):
    """A connection that could not be emulated, in the words of `farlink`."""


def find_farlink() -> str:
    """The path of the `farlink` program: as it started us, beside us, or in PATH.

    Raises:
        EmulationError: where it is in none of these places.
    """
    named = os.environ.get("FARLINK")
    if named:
        if os.access(named, os.X_OK):
            return named
        raise EmulationError(
            f"FARLINK names {named}, which is no program: build it with 'cargo build --release'"
        )
    beside = Path(sys.argv[0]).parent / "farlink"
    found = str(beside) if os.access(beside, os.X_OK) and beside.is_file() else shutil.which("farlink")
    if found is None:
        raise EmulationError(
            "the farlink program is not in PATH: start the lab by 'farlink lab', or put the program's path "
            "in FARLINK"
        )
    return found


def prefault_bytes(connection: Connection, *, longest_rtt_s: float) -> int:
    """Kernel memory for the hosts' buffers, which where free memory is taken back is slow to touch first."""
    return 1 + int(PREFAULT_PRODUCTS * connection.rate_bps * longest_rtt_s / 8)


class Emulation:
    """One connection between hosts a and b, which ends with the block it was started for."""

    def __init__(
        self,
        farlink: str,
        connection: Connection,
        *,
        congestion: str | None,
        rtt_s: float,
        longest_rtt_s: float,
    ) -> None:
        self.farlink = farlink
        self.connection = connection
        self.congestion = congestion
        self.name = f"lab-{os.getpid()}-{secrets.token_hex(4)}"
        self.state: dict[str, Any] = {}
        self.prefault_bytes = prefault_bytes(connection, longest_rtt_s=longest_rtt_s)
        self._rtt_s, self._queue = rtt_s, connection.queue
        self._process: child.Process | None = None

    def __enter__(self) -> Self:
        wanted = self.connection
        command = [
            *(self.farlink, "emulate", "--name", self.name, "--json", "--rtt", _time(self._rtt_s)),
            *("--rate", f"{wanted.rate_bps}bit", "--queue", wanted.queue, "--framing", wanted.framing),
            *("--mtu", str(wanted.mtu), "--seed", str(wanted.seed)),
            *("--prefault", f"{self.prefault_bytes}B"),
        ]
        if wanted.loss:
            command += ["--loss", str(wanted.loss)]
        if wanted.background_bps is not None:
            period = wanted.background_on_off_s
            shape = "" if period is None else f",on-off:{_time(period)}"
            command += ["--background", f"{wanted.background_bps}bit{shape}"]
        if self.congestion is not None:
            command += ["--congestion", self.congestion]
        with child.unnamed(1) as (errors,):
            self._process = child.start(command, stderr=errors)
            try:
                line = child.first_line(self._process, limit_s=START_LIMIT_S)
                if line is None:
                    self.close()
                    said = (
                        child.last_line(errors) or f"farlink emulate was not ready in {START_LIMIT_S:.0f} s"
                    )
                    raise EmulationError(_told(said))
                self.state = _object(line)
            except BaseException:
                self.close()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process is not None and self._process.poll() is None

    def close(self) -> None:
        """Ends it, and with it whatever runs on its hosts."""
        if self._process is not None:
            child.end(self._process)
            self._process = None

    def on(self, host: str, command: Sequence[str]) -> tuple[str, ...]:
        """`command` as one that runs on an emulated host."""
        return (self.farlink, "on", f"{self.name}/{host}", "--", *command)

    def run_on(self, host: str, command: Sequence[str], *, limit_s: float = COMMAND_LIMIT_S) -> str:
        """What `command` says on a host, run to its end.

        Raises:
            EmulationError: where it fails, with its last words.
        """
        return self._run(self.on(host, command), limit_s=limit_s)

    def address(self, host: str) -> str:
        """The IPv4 address of a host: the C of every formula is for IPv4.

        Raises:
            EmulationError: where the emulation has no such host.
        """
        for known in self.state.get("hosts", ()):
            if known.get("name") == host and isinstance(known.get("ipv4"), str):
                return str(known["ipv4"])
        raise EmulationError(f"farlink emulate named no address of host {host}")

    def set_rtt(self, rtt_s: float) -> None:
        """Changes the round-trip time, where it is another.

        Raises:
            EmulationError: in farlink's words.
        """
        if rtt_s != self._rtt_s:
            self._run((self.farlink, "link", self.name, "--rtt", _time(rtt_s)))
            self._rtt_s = rtt_s

    def set_queue(self, queue: str | None) -> None:
        """Changes what the bottleneck holds, where it is another; `None` is the connection's own.

        Raises:
            EmulationError: in farlink's words.
        """
        wanted = queue or self.connection.queue
        if wanted != self._queue:
            self._run((self.farlink, "link", self.name, "--queue", wanted))
            self._queue = wanted

    def show(self) -> dict[str, Any]:
        """What the connection is and has counted, as `farlink link NAME --json` prints it.

        Raises:
            EmulationError: in farlink's words.
        """
        self.state = _object(self._run((self.farlink, "link", self.name, "--json")))
        return self.state

    def listens(self, host: str, port: int) -> bool:
        """Whether something on the host listens on a TCP port."""
        tables = self.run_on(host, ("cat", "/proc/net/tcp", "/proc/net/tcp6"))
        # proc(5): local address and port in hexadecimal; state 0A is LISTEN.
        rows = (row.split() for row in tables.splitlines())
        return any(len(row) > 3 and row[1].endswith(f":{port:04X}") and row[3] == "0A" for row in rows)

    def _run(self, command: Sequence[str], *, limit_s: float = COMMAND_LIMIT_S) -> str:
        process = child.start(command)
        try:
            said, complained = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise EmulationError(f"{' '.join(command[1:])}: no answer in {limit_s:.0f} s") from None
        finally:
            child.end(process)
        if process.returncode != 0:
            lines = complained.strip().splitlines()
            raise EmulationError(
                _told(lines[-1]) if lines else f"{' '.join(command[1:])}: status {process.returncode}"
            )
        return said


def _object(line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except json.JSONDecodeError:
        value = None
    if not isinstance(value, dict):
        raise EmulationError(
            f"farlink said {line[:80]!r} where the connection was expected: do lab and farlink fit?"
        )
    return value


def _told(line: str) -> str:
    return line.removeprefix("farlink: ")


def _time(seconds: float) -> str:
    return f"{round(seconds * 1e9)}ns"
