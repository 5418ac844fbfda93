"""The buffers of a circuit: as much as its path holds, refused with the mend where that is not granted."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from emulation import FARLINK, Emulation, farlink, next_line, refused, run
from test_memory import serving

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NOBODY = 65534
ORDINARY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
# What everybody is granted here, and a circuit whose margin alone, 20 ms of its rate, is half as much again.
GRANTED = max(int(Path(f"/proc/sys/net/core/{limit}").read_text()) for limit in ("rmem_max", "wmem_max"))
MEGABITS = GRANTED * 8 * 3 // 2 // 20_000 + 1
RATE = f"{MEGABITS}mbit"


@pytest.fixture(scope="module", autouse=True)
def restricted() -> None:
    """Skips where nobody may load `circuit`, or everybody may have large buffers."""
    entries = {entry["name"]: entry for entry in json.loads(farlink("congestion", "--json").stdout)}
    if entries["circuit"]["state"] == "unavailable":
        pytest.skip(str(entries["circuit"]))
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    if MEGABITS > 150_000:
        pytest.skip("everybody may have any buffer here")


@pytest.fixture(scope="module")
def program() -> Iterator[str]:
    """The binary where everybody may run it."""
    directory = Path(tempfile.mkdtemp(prefix="ordinary-user-"))
    directory.chmod(0o755)
    shutil.copy2(FARLINK, directory / "farlink")
    yield str(directory / "farlink")
    shutil.rmtree(directory)


@contextlib.contextmanager
def listening(*command: str, options: Sequence[str] = ()) -> Iterator[str]:
    """The address of a server on this host that `command` starts."""
    command = (*command, "serve", "--port", "0", *options)
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        found = re.search(r"127\.0\.0\.1:(\d+)", next_line(server.stdout, server))
        assert found
        yield f"127.0.0.1:{found[1]}"
    finally:
        server.terminate()
        server.communicate()


def test_a_receiver_without_its_buffer_is_refused_with_the_setting_that_grants_it(program: str) -> None:
    # The far end, which root started, would send; this one may not have such a buffer.
    with listening(str(FARLINK)) as address:
        options = [address, "--reverse", "--bytes", "1MiB", "--circuit", RATE]
        ended = run([*ORDINARY, program, "memory", *options])
    assert ended.status == 2
    assert "over a round trip of " in ended.complaint
    assert "sysctl -w net.core.rmem_max=" in ended.complaint
    assert "start farlink serve again" not in ended.complaint


def test_an_ordinary_receiver_gets_a_circuit_that_needs_no_more_than_everybody_is_granted(
    program: str,
) -> None:
    with listening(str(FARLINK)) as address:
        options = [address, "--reverse", "--bytes", "64KiB", "--circuit", "10mbit", "--json"]
        ended = run([*ORDINARY, program, "memory", *options])
    assert ended.status == 0, ended
    assert json.loads(ended.stdout)["congestion"] == "circuit"


def test_a_server_that_became_somebody_else_keeps_the_buffers_that_its_listener_was_granted() -> None:
    with listening(str(FARLINK), options=["--user", "nobody"]) as address:
        ended = farlink("memory", address, "--bytes", "1MiB", "--circuit", RATE, "--json")
    assert ended.status == 0, ended
    assert json.loads(ended.stdout)["buffers"]["receive"] >= 2 * GRANTED


def test_a_server_without_rights_refuses_and_says_that_it_must_be_started_again(program: str) -> None:
    with listening(*ORDINARY, program) as address:
        said = refused("memory", address, "--bytes", "1MiB", "--circuit", RATE)
    assert "refused: on host " in said
    assert "sysctl -w net.core.rmem_max=" in said
    assert said.endswith("`, and start farlink serve again")


@pytest.mark.parametrize("reverse", [False, True])
def test_a_copy_is_told_why_its_circuit_is_refused(program: str, reverse: bool) -> None:
    emulation = Emulation(options=["--rate", "100mbit", "--rtt", "10ms"])
    server = [*ORDINARY, program, "serve", "--no-auth"]
    with emulation, emulation.background("b", *server) as served:
        assert served.stdout is not None
        next_line(served.stdout, served)
        far = "farlink://b/etc/passwd" if reverse else "farlink://b/dev/null"
        places = [far, "/dev/null"] if reverse else ["/etc/passwd", far]
        options = ["--no-auth", "--protect", "clear", "--circuit", RATE, "--streams", "1"]
        ended = emulation.on("a", str(FARLINK), "copy", *places, *options)
    assert ended.status == 2, ended
    # Who sends must also be able to load the program.
    words = "could not be loaded" if reverse else "over a round trip of "
    assert "on host b: " in ended.complaint
    assert words in ended.complaint or "sysctl -w net.core.wmem_max=" in ended.complaint


def test_one_window_that_is_too_small_for_the_path_is_refused_with_the_streams_that_it_takes() -> None:
    options = ["--rate", "100mbit", "--rtt", "400ms"]
    with Emulation(options=options) as emulation, serving(emulation):
        ended = emulation.on("a", str(FARLINK), "memory", "b", "--bytes", "1MiB", "--circuit", "32gbit")
    assert ended.status == 2
    assert "no window is large enough for 32gbit" in ended.complaint
    assert "--streams 2" in ended.complaint
