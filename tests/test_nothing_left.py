"""However an emulation ends, nothing of it is left: no process, namespace, device, mount, socket or file."""

from __future__ import annotations

import contextlib
import os
import random
import shlex
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from casting import kill, receiver, sender
from emulation import FARLINK, MARK, Emulation, farlink, marked, next_line, wait_for_end, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

pytestmark = pytest.mark.alone

# Where programs of this kind leave things.
PLACES = ("/run", "/run/netns", "/run/lock", "/tmp", "/dev/shm", "/var/lib", "/var/tmp")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What an emulation might change outside its own namespaces."""

    devices: frozenset[str]
    files: frozenset[str]
    mounts: frozenset[str]

    @classmethod
    def now(cls) -> Surroundings:
        """As they are."""
        files = set()
        for place in PLACES:
            with contextlib.suppress(OSError):
                files |= {entry.path for entry in os.scandir(place) if is_of_an_emulation(entry.name)}
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        return cls(
            frozenset(os.listdir("/sys/class/net")),  # noqa: PTH208 - names are wanted, not paths
            frozenset(files),
            frozenset(line.split(" ", 1)[1] for line in mounts),
        )

    def beyond(self, before: Surroundings) -> frozenset[str]:
        """What is there now and was not `before`."""
        return (self.devices | self.files | self.mounts) - (before.devices | before.files | before.mounts)


def is_of_an_emulation(name: str) -> bool:
    """Whether a file's name says so: a lab that runs at the same time keeps files of its own."""
    return "farlink" in name and not name.startswith("farlink-lab")


def namespaces(processes: list[int]) -> set[str]:
    """The namespaces of `processes` that are not this process's own."""
    kinds = ("net", "mnt", "uts", "pid", "ipc", "user")
    own = {str(Path(f"/proc/self/ns/{kind}").readlink()) for kind in kinds}
    found = set()
    for process in processes:
        for kind in kinds:
            with contextlib.suppress(OSError):
                found.add(str(Path(f"/proc/{process}/ns/{kind}").readlink()))
    return found - own


def holders(wanted: set[str]) -> list[str]:
    """What keeps any of the `wanted` namespaces alive: processes, descriptors, mounts."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and not has_ended(entry):
            for directory in (entry / "ns", entry / "fd"):
                with contextlib.suppress(OSError):
                    for link in directory.iterdir():
                        with contextlib.suppress(OSError):
                            if str(link.readlink()) in wanted:
                                found.append(str(link))
    mounts = Path("/proc/self/mountinfo").read_text()
    return found + [name for name in wanted if name in mounts]


def has_ended(process: Path) -> bool:
    """Whether `process` is but an exit code that its parent has not yet asked for."""
    try:
        # The state stands behind the name, which may contain anything.
        return (process / "stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def sockets(name: str) -> list[str]:
    """Sockets outside that bear the emulation's name."""
    return [line for line in Path("/proc/net/unix").read_text().splitlines() if name in line]


def handles_of(processes: Iterable[int]) -> list[int]:
    """Handles to wait on, of those `processes` that still run."""
    handles = []
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            handles.append(os.pidfd_open(process))
    return handles


def wait_for_sleepers(mark: str, count: int) -> None:
    """Wait until `count` processes of `mark` sleep: between two programs nothing tells whose one is."""
    wait_until(lambda: sum(said.startswith("sleep 1000") for said in marked(mark).values()) == count)


def end_and_look(mark: str, end: Callable[[], object]) -> None:
    """Take note of what runs under `mark`, let `end` end it, and look for what is left."""
    running = marked(mark)
    assert running
    inside = namespaces(list(running))
    handles = handles_of(running)
    end()
    wait_for_end(handles)
    assert marked(mark) == {}
    assert holders(inside) == []


@pytest.mark.parametrize("how", ["SIGINT", "SIGTERM", "SIGKILL", "SIGHUP"])
def test_nothing_is_left_of_an_emulation_that_a_signal_ended(how: str) -> None:
    before = Surroundings.now()
    with contextlib.ExitStack() as stack:
        emulation = stack.enter_context(Emulation(options=["--hosts", "3", "--rtt", "1ms"]))
        # A command in the foreground of `farlink on`, and one that left it for good.
        still_there = stack.enter_context(
            emulation.background("b", "sh", "-c", "echo ready; exec sleep 1000")
        )
        assert still_there.stdout is not None
        next_line(still_there.stdout, still_there)
        daemon = emulation.on("c", "sh", "-c", "setsid sleep 1000 <&- >&- 2>&- &")
        assert daemon.status == 0
        wait_for_sleepers(emulation.mark, 2)

        def end() -> None:
            emulation.process.send_signal(signal.Signals[how])
            # `wait_for_end` waits on handles; the two that this process started it must also reap.
            emulation.process.wait(timeout=30)
            still_there.wait(timeout=30)

        end_and_look(emulation.mark, end)
        assert sockets(emulation.name) == []
    assert Surroundings.now().beyond(before) == set()


def test_nothing_is_left_where_the_emulator_itself_is_killed() -> None:
    before = Surroundings.now()
    with Emulation(options=["--rtt", "1ms"]) as emulation:
        first = [process for process in marked(emulation.mark) if is_first_of_its_namespace(process)]
        assert len(first) == 1, marked(emulation.mark)

        def end() -> None:
            os.kill(first[0], signal.SIGKILL)
            assert emulation.process.wait(timeout=30) != 0

        end_and_look(emulation.mark, end)
        assert sockets(emulation.name) == []
    assert Surroundings.now().beyond(before) == set()


def is_first_of_its_namespace(process: int) -> bool:
    """Whether `process` is process 1 of a PID namespace below this one."""
    status = Path(f"/proc/{process}/status").read_text()
    numbers = next(line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:"))
    return len(numbers) > 1 and numbers[-1] == "1"


def test_a_command_takes_what_it_left_running_with_it() -> None:
    before = Surroundings.now()
    mark = os.urandom(16).hex()
    # The command that stays behind holds standard output: this returns only when it, too, has ended.
    ended = farlink("emulate", "--rtt", "1ms", "--", "sh", "-c", "sleep 1000 & exit 3", env={MARK: mark})
    assert ended.status == 3, ended
    assert marked(mark) == {}
    assert Surroundings.now().beyond(before) == set()


@pytest.mark.parametrize("how", ["SIGTERM", "SIGKILL"])
def test_nothing_is_left_of_a_command_whose_emulation_a_signal_ended(how: str) -> None:
    before = Surroundings.now()
    mark = os.urandom(16).hex()
    process = subprocess.Popen(
        [str(FARLINK), "emulate", "--rtt", "1ms", "--", "sh", "-c", "echo ready; exec sleep 1000"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, MARK: mark},
    )
    assert process.stdout is not None
    next_line(process.stdout, process)

    def end() -> None:
        process.send_signal(signal.Signals[how])
        assert process.wait(timeout=30) != 0

    end_and_look(mark, end)
    assert Surroundings.now().beyond(before) == set()


def test_a_name_is_free_again_after_a_kill() -> None:
    with Emulation(options=["--rtt", "1ms"]) as first:
        handles = handles_of(marked(first.mark))
        first.kill()
        wait_for_end(handles)
    with Emulation(options=["--rtt", "1ms"], name=first.name) as second:
        assert second.show()["name"] == first.name


def test_a_multicast_session_that_was_killed_leaves_what_is_half_there_and_nothing_else(
    tmp_path: Path,
) -> None:
    source, into = tmp_path / "source", tmp_path / "into"
    content = random.Random(2).randbytes(60_000_000)
    source.write_bytes(content)
    # What comes by standard input is kept in a file meanwhile.
    piped = ("sh", "-c", f'exec "$@" <{shlex.quote(str(source))}', "sh")
    words = ("--name", "large")
    before = Surroundings.now()
    with Emulation(options=["--hosts", "3", "--rate", "1gbit", "--rtt", "4ms"]) as emulation:
        with (
            receiver(emulation, "b", into) as receiving,
            sender(emulation, "-", options=words, through=piped) as sending,
        ):
            while receiving.until("progress")["progress"]["bytes"] < 5_000_000:
                pass
            for end in ("send", "receive"):
                kill(emulation, f"cast {end}")
            sending.wait()
            receiving.wait()
        assert [said for said in marked(emulation.mark).values() if f"{FARLINK} cast" in said] == []
        assert sorted(path.suffix for path in into.iterdir()) == [".journal", ".part"]
        assert Surroundings.now().files == before.files
        # Port and group are free again, and what was half there becomes whole.
        with (
            receiver(emulation, "b", into) as receiving,
            sender(emulation, "-", options=words, through=piped) as sending,
        ):
            assert (receiving.end()[0], sending.end()[0]) == (0, 0)
        assert [path.name for path in into.iterdir()] == ["large"]
        assert (into / "large").read_bytes() == content
    assert Surroundings.now().beyond(before) == set()
