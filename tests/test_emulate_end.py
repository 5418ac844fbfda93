"""How an emulation ends, and what it says then."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import pytest

from emulation import FARLINK, Emulation, next_line, run, wait_until

# A command that ends by itself only behind all that a test waits for.
LONG = ("sleep", "300")


@pytest.mark.parametrize("words", [("emulate", "--rtt", "1ms"), ("on", "{name}/b")])
def test_whoever_ignores_the_ends_of_children_is_told_of_the_commands_end(
    pair: Emulation, words: tuple[str, ...]
) -> None:
    command = [str(FARLINK), *(word.format(name=pair.name) for word in words), "--", "sh", "-c", "exit 7"]
    assert run(["sh", "-c", "trap '' CHLD; exec \"$@\"", "sh", *command]).status == 7


def children(process: int) -> list[int]:
    """The processes that `process` has started."""
    return [int(each) for each in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def test_an_interrupt_before_the_command_is_there_ends_it_all() -> None:
    ours, its = pty.openpty()
    try:
        process = subprocess.Popen(
            [str(FARLINK), "emulate", "--rtt", "1ms", "--prefault", "256MiB", "--", *LONG],
            stdin=its,
            stdout=its,
            stderr=its,
            # The terminal's ^C goes to its foreground group.
            preexec_fn=lambda: os.login_tty(its),
        )
        wait_until(lambda: bool(children(process.pid)) or process.poll() is not None)
        os.write(ours, b"\x03")
        assert process.wait(timeout=60) == 130
    finally:
        os.close(its)
        os.close(ours)


@pytest.mark.parametrize("hosts", [2, 3])
def test_a_host_whose_device_is_gone_ends_the_emulation_with_one_line(hosts: int) -> None:
    with Emulation(options=["--hosts", str(hosts), "--rtt", "1ms"]) as emulation:
        emulation.on("a", "ip", "link", "delete", "farlink0")
        assert emulation.process.wait(timeout=60) == 2
        assert emulation.process.stderr is not None
        said = emulation.process.stderr.read()
        assert "the emulation has ended: a host's device" in said, said


def test_an_emulation_that_could_not_say_that_it_is_up_is_no_success() -> None:
    with Path("/dev/full").open("wb") as full:
        process = subprocess.Popen(
            [str(FARLINK), "emulate", "--rtt", "1ms", "--json"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert process.stderr is not None
    assert "write the standard output: No space left" in next_line(process.stderr, process)
    process.terminate()
    assert process.wait(timeout=60) == 2
