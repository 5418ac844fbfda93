"""What is missing for a start is said with the command that mends it, and changes nothing."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from emulation import FARLINK, ROOT, Ended, run

if TYPE_CHECKING:
    from collections.abc import Iterator

SETUP = ROOT / "scripts" / "setup"
NOBODY = 65534
# What the script itself is made of.
OWN = ("cut", "grep", "head", "id", "sort")
# Of those that it looks for in PATH; `cc` and `mpicc` stand for the headers too.
TOOLS = (
    *(
        "cc",
        "pkg-config",
        "clang",
        "ping",
        "pgrep",
        "iperf3",
        "nuttcp",
        "rsync",
        "rclone",
        "fi_info",
        "mpirun",
        "mpicc",
    ),
    *("lmp", "ssh", "globus-url-copy", "uftp", "udp-sender", "tcpdump", "bindfs", "java", "chromium"),
    "chromedriver",
)
# Those it also looks for where administrators' programs are, whatever PATH says.
OF_ADMINISTRATORS = ("ip", "sshd", "globus-gridftp-server")


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine with as few programs as a test likes: a directory, which is all of PATH."""

    directory: Path

    def install(self, name: str, script: str = "exit 0") -> None:
        """A program that does but this."""
        path = self.directory / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def without(self, *names: str) -> None:
        """As if they had not been installed."""
        for name in names:
            (self.directory / name).unlink()

    def setup(self, *command: str) -> Ended:
        """The script as an ordinary user runs it, with a command to run beside it."""
        become = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if os.geteuid() == 0 else []
        user = [str(shutil.which("setpriv")), *become] if become else []
        return run([*user, str(shutil.which("env")), "-i", f"PATH={self.directory}", *self.script, *command])

    @property
    def script(self) -> tuple[str, ...]:
        """Where everybody may read it."""
        return (str(shutil.which("bash")), str(self.directory / "setup"))


@pytest.fixture
def machine() -> Iterator[Machine]:
    """A machine on which nothing is missing."""
    directory = Path(tempfile.mkdtemp(prefix="ordinary-user-"))
    try:
        directory.chmod(0o755)
        shutil.copy2(SETUP, directory / "setup")
        made = Machine(directory)
        for name in OWN:
            (directory / name).symlink_to(str(shutil.which(name)))
        for name in (*TOOLS, *OF_ADMINISTRATORS, "cargo"):
            made.install(name)
        made.install("rustc", "echo rustc 1.95.0")
        made.install("python3", "echo 3.11.2")
        # It is for root alone: whoever runs it here has failed.
        made.install("apt-get", "echo apt-get was run; exit 1")
        yield made
    finally:
        shutil.rmtree(directory)


def lacking() -> list[str]:
    """What the machine that the tests run on lacks, and no PATH can lend: a module of its own Python."""
    ended = run(["/usr/bin/python3", "-c", "import mpi4py"])
    return [] if ended.status == 0 else ["python3-mpi4py"]


def told(*packages: str) -> str:
    """The line that names what is missing, and the command."""
    names = " ".join(packages)
    return (
        f"setup: missing: {names}; to install them run: "
        f"sudo apt-get install --yes --no-install-recommends {names}"
    )


def test_where_nothing_is_missing_it_says_nothing(machine: Machine) -> None:
    if lacking():
        pytest.skip(f"this machine lacks {lacking()}")
    assert machine.setup() == Ended(status=0, stdout="", stderr="")


def test_a_command_is_run_where_all_is_there_that_it_may_need(machine: Machine) -> None:
    machine.install("prepare", 'echo "prepared $*"; exit "$2"')
    for status in (0, 7):
        command = ("python3", "prepare", "the-lab", str(status))
        ended = machine.setup(*command)
        assert (ended.status, ended.stdout) == (status, f"prepared the-lab {status}\n")
    # What only tests use may be missing.
    machine.without("uftp")
    assert machine.setup("python3", "prepare", "it", "7").status == 7
    machine.without("clang")
    ended = machine.setup("python3", "prepare", "it", "7")
    assert (ended.status, ended.stdout) == (1, "")


def test_an_ordinary_user_gets_the_command_for_what_is_needed(machine: Machine) -> None:
    machine.without("clang", "nuttcp", "ping")
    ended = machine.setup()
    assert (ended.status, ended.stdout) == (1, ""), ended
    assert ended.stderr.splitlines() == [
        told("clang", "iputils-ping", "nuttcp", *lacking()),
        "setup: cannot go on without: clang ping nuttcp",
    ]


def test_a_compiler_that_is_missing_takes_its_headers_with_it(machine: Machine) -> None:
    machine.without("cc")
    ended = machine.setup()
    assert ended.status == 1, ended
    needed = ("build-essential", "libelf-dev", "zlib1g-dev", "libfabric-dev")
    assert ended.stderr.splitlines()[0] == told(*needed, *lacking())


def test_it_goes_on_without_what_only_some_tests_use(machine: Machine) -> None:
    machine.without("rsync", "uftp")
    ended = machine.setup()
    assert (ended.status, ended.stdout) == (0, ""), ended
    first, second = ended.stderr.splitlines()
    assert first == told("rsync", *lacking(), "uftp")
    assert second.startswith("setup: going on without rsync ")
    assert second.endswith("uftp: the tests, plans and benches that use them cannot run")


def test_another_packager_gets_the_names(machine: Machine) -> None:
    machine.without("iperf3", "apt-get")
    ended = machine.setup()
    assert ended.status == 1, ended
    names = " ".join(["iperf3", *lacking()])
    first, _ = ended.stderr.splitlines()
    assert first == (
        f"setup: missing, by their names on Debian: {names}; install them with this system's packager"
    )


@pytest.mark.parametrize(
    ("name", "script", "words"),
    [
        ("cargo", None, ("Rust 1.95", "cargo is not in PATH", "https://rustup.rs")),
        ("rustc", "echo rustc 1.80.1", ("Rust 1.95", "this is 1.80.1", "rustup update stable")),
        ("python3", None, ("Python 3.11", "python3 is not in PATH", "make PYTHON=")),
        ("python3", "echo 3.9.18", ("Python 3.11", "python3 is 3.9.18", "make PYTHON=")),
    ],
)
def test_a_language_that_is_missing_or_too_old_is_one_line(
    machine: Machine, name: str, script: str | None, words: tuple[str, ...]
) -> None:
    if script is None:
        machine.without(name)
    else:
        machine.install(name, script)
    ended = machine.setup()
    assert ended.status == 1
    assert ended.complaint.startswith("setup: ")
    for each in words:
        assert each in ended.complaint


def test_the_lab_that_is_not_installed_is_one_line_with_the_mend(tmp_path: Path) -> None:
    # A binary of its own: what stands beside the other is no business of it.
    alone = tmp_path / "farlink"
    shutil.copy2(FARLINK, alone)
    ended = run([str(alone), "lab", "demo"], env={"PATH": str(tmp_path)})
    assert (ended.status, ended.stdout) == (2, ""), ended
    assert ended.complaint.startswith("farlink: farlink-lab is not installed: ")
    assert "make setup" in ended.complaint


def test_the_lab_is_found_beside_the_binary_before_path(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    for directory, said in ((tmp_path, "beside"), (tmp_path / "other", "path")):
        lab = directory / "farlink-lab"
        lab.write_text(f'#!/bin/sh\necho "{said} $FARLINK $*"\nexit 7\n')
        lab.chmod(0o755)
    alone = tmp_path / "farlink"
    shutil.copy2(FARLINK, alone)
    ended = run([str(alone), "lab", "report", "x y"], env={"PATH": str(tmp_path / "other")})
    assert (ended.status, ended.stdout) == (7, f"beside {alone} report x y\n"), ended
    (tmp_path / "farlink-lab").unlink()
    ended = run([str(alone), "lab", "report"], env={"PATH": str(tmp_path / "other")})
    assert (ended.status, ended.stdout) == (7, f"path {alone} report\n"), ended
