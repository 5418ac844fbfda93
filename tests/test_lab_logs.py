"""Logs that a real GridFTP server writes over an emulated connection have the sessions that the test made."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from emulation import FARLINK, START_LIMIT_S, Emulation, farlink, next_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PORT = 2811
# The hexadecimal of 2811, and the state that is LISTEN: proc(5).
LISTENS = ":0AFB "
# As root the server would take another user for anonymous sessions.
UNPRIVILEGED = ("unshare", "--user", "--map-user=65534", "--map-group=65534")
SIZES = (3_000_000, 20_000, 700_000)


@pytest.fixture(scope="module")
def connection() -> Iterator[Emulation]:
    """Two hosts, 20 ms apart."""
    with Emulation(options=["--rate", "200mbit", "--rtt", "20ms", "--seed", "7"]) as emulation:
        yield emulation


@contextmanager
def server(connection: Emulation, log: Path) -> Iterator[None]:
    """A GridFTP server on host b that logs its transfers, in a zone that is not UTC."""
    zone = ("env", "TZ=America/Denver")
    program = (
        "globus-gridftp-server",
        "-c",
        "/dev/null",
        "-s",
        "-aa",
        "-p",
        str(PORT),
        "-log-transfer",
        str(log),
    )
    with connection.background("b", *zone, *UNPRIVILEGED, *program) as process:
        wait_until_listening(connection, process)
        yield


def wait_until_listening(connection: Emulation, process: subprocess.Popen[str]) -> None:
    """Until the server waits for connections."""
    deadline = time.monotonic() + START_LIMIT_S
    while True:
        tables = connection.output("b", "cat", "/proc/net/tcp", "/proc/net/tcp6")
        if any(LISTENS in line and " 0A " in line for line in tables.splitlines()):
            return
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "no server"
        time.sleep(0.05)


def put(connection: Emulation, source: Path, name: Path, *options: str) -> None:
    """Sends a file from a to b."""
    url = f"ftp://{connection.address('b')}:{PORT}{name}"
    ended = connection.on("a", "globus-url-copy", *options, f"file://{source}", url)
    assert ended.status == 0, ended


def fetch(connection: Emulation, name: Path, target: Path) -> None:
    """Fetches a file from b to a."""
    url = f"ftp://{connection.address('b')}:{PORT}{name}"
    ended = connection.on("a", "globus-url-copy", url, f"file://{target}")
    assert ended.status == 0, ended


def files(home: Path) -> list[Path]:
    """Files of `SIZES`."""
    made = []
    for number, size in enumerate(SIZES):
        path = home / f"f{number}"
        path.write_bytes(bytes([number]) * size)
        made.append(path)
    return made


def sessions(out: Path, gap: str) -> list[dict[str, object]]:
    """The sessions of an imported log."""
    ended = farlink("lab", "logs", "sessions", str(out), "--gap", gap, "--list")
    assert ended.status == 0, ended
    return [json.loads(line) for line in ended.stdout.splitlines()]


def test_the_sessions_of_a_real_log_are_those_that_were_made(connection: Emulation, tmp_path: Path) -> None:
    log, out = tmp_path / "transfers.log", tmp_path / "out"
    begun = time.time()
    with server(connection, log):
        for path in files(tmp_path):
            put(connection, path, tmp_path / f"{path.name}.there", "-p", "2")
        for path in files(tmp_path)[:2]:
            fetch(connection, tmp_path / f"{path.name}.there", tmp_path / f"{path.name}.back")
    ended = time.time()
    done = farlink("lab", "logs", "import", str(log), "--out", str(out))
    assert done.status == 0, done
    assert "5 lines, 5 transfers" in done.stdout, done
    # One after the other: with no gap each is a session, with ten minutes each direction is one.
    assert [each["transfers"] for each in sessions(out, "0s")] == [1] * 5
    there, back = sessions(out, "10min")
    assert (there["transfers"], there["bytes"]) == (3, sum(SIZES))
    assert (back["transfers"], back["bytes"]) == (2, sum(SIZES[:2]))
    assert there["source"] == back["destination"] == connection.address("a")
    for each in (there, back):
        # The server's zone is not UTC, and its log is all the same.
        assert begun - 1 <= int(str(each["start_us"])) / 1e6 <= int(str(each["end_us"])) / 1e6 <= ended + 1
    again = farlink("lab", "logs", "import", str(log), "--out", str(out))
    assert "5 duplicates" in again.stdout, again


def test_a_log_is_followed_while_the_server_writes_it(connection: Emulation, tmp_path: Path) -> None:
    log, out = tmp_path / "transfers.log", tmp_path / "out"
    first, *others = files(tmp_path)
    with server(connection, log):
        put(connection, first, tmp_path / "there")
        follower = ("lab", "logs", "follow", str(log), "--out", str(out))
        with following(follower) as process:
            assert process.stdout is not None
            seen = added(next_line(process.stdout, process))
            for path in others:
                put(connection, path, tmp_path / f"{path.name}.there")
            while seen < 3:
                seen += added(next_line(process.stdout, process))
    (session,) = sessions(out, "10min")
    assert (session["transfers"], session["bytes"]) == (3, sum(SIZES))


def added(line: str) -> int:
    """How many transfers a line of `follow` tells of."""
    return int(line.split()[0])


@contextmanager
def following(command: tuple[str, ...]) -> Iterator[subprocess.Popen[str]]:
    """`farlink lab logs follow`, ended as Ctrl-C would end it; it must end well."""
    process = subprocess.Popen([str(FARLINK), *command], stdout=subprocess.PIPE, text=True)
    try:
        yield process
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=START_LIMIT_S) == 0
    finally:
        process.kill()
        process.wait()
