"""`farlink mpi`: what it sets and hands on, whom it believes, what it refuses. The launchers are scripts."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from emulation import COMMAND_LIMIT_S, FARLINK, Ended, run, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OPEN_MPI = "mpirun (Open MPI) 4.1.4"
MPICH = "HYDRA build details:"

# What a rank that uses Farlink leaves, and one of two that does.
PROVEN = """echo '{"host": "a", "rank": 0, "local": 1, "size": 1}' > "$FARLINK_PROOF/1" """
HALF_PROVEN = PROVEN.replace('"local": 1', '"local": 2')


@dataclass(frozen=True, slots=True)
class Installed:
    """A directory in which `farlink` is installed, with temporary files of its own."""

    farlink: Path
    temporary: Path

    def __call__(self, *args: str, **env: str) -> Ended:
        """`farlink mpi ARGS`."""
        return run([str(self.farlink), "mpi", *args], env={"TMPDIR": str(self.temporary), **env})

    def complaint(self, *args: str, **env: str) -> str:
        """The one line of a command that is refused."""
        ended = self(*args, **env)
        assert (ended.status, ended.stdout) == (2, ""), ended
        return ended.complaint


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """`farlink` with a library beside it that only lies there."""
    root = tmp_path_factory.mktemp("installed")
    (root / "fabric").mkdir()
    (root / "fabric" / "libfarlink-fi.so").write_bytes(b"\x7fELF")
    (root / "tmp").mkdir()
    shutil.copy(FARLINK, root / "farlink")
    return Installed(root / "farlink", root / "tmp")


@pytest.fixture
def launcher(tmp_path: Path) -> Callable[..., str]:
    """Makes a launcher that says that it is `version`, and does `what`."""

    def make(what: str, *, version: str = OPEN_MPI, name: str = "mpirun") -> str:
        script = tmp_path / name
        script.write_text(
            f'#!/bin/sh\nif [ "$1" = --version ]; then echo {shlex.quote(version)}; exit 0; fi\n{what}\n'
        )
        script.chmod(0o755)
        return str(script)

    return make


def exported(text: str) -> dict[str, str]:
    """The variables of `export NAME=VALUE` lines, as a shell reads them."""
    words = [shlex.split(line) for line in text.splitlines()]
    assert all(len(each) == 2 and each[0] == "export" for each in words), text
    return dict(each[1].split("=", 1) for each in words)


def test_env_prints_what_each_mpi_needs(installed: Installed) -> None:
    directory = str(installed.farlink.parent / "fabric")
    ended = installed(
        "env", "--mpi", "open-mpi", "--transport", "xrc", "--rate", "10gbit", "--interface", "a b"
    )
    assert ended.status == 0, ended
    variables = exported(ended.stdout)
    assert len(bytes.fromhex(variables.pop("FARLINK_JOB_KEY"))) == 32
    assert variables == {
        "FI_PROVIDER_PATH": directory,
        "OMPI_MCA_pml": "cm",
        "OMPI_MCA_mtl": "ofi",
        "OMPI_MCA_opal_common_ofi_provider_include": "farlink",
        "OMPI_MCA_btl": "self,vader",
        "OMPI_MCA_osc": "^ucx",
        "OMPI_MCA_bml_r2_show_unreach_errors": "0",
        "FI_PROVIDER": "farlink",
        "FARLINK_TRANSPORT": "xrc",
        "FARLINK_RATE": "10000000000bit",
        "FARLINK_INTERFACE": "a b",
    }
    variables = exported(installed("env", "--mpi", "mpich").stdout)
    assert variables["MPIR_CVAR_CH4_NETMOD"] == "ofi"
    assert variables["FI_PROVIDER"] == "farlink"


def test_ranks_get_the_variables_and_nobody_sees_the_key(
    installed: Installed, launcher: Callable[..., str]
) -> None:
    program = launcher(f'echo "$@"; echo "$FARLINK_JOB_KEY $FARLINK_EAGER $FI_PROVIDER"; {PROVEN}')
    # What the user has for other programs changes nothing.
    said = {"FARLINK_SHM": "0", "FI_PROVIDER": "tcp"}
    ended = installed("run", "--eager", "64KiB", "--", program, "-n", "2", "./x", **said)
    assert (ended.status, ended.stderr) == (0, ""), ended
    words, values = ended.stdout.splitlines()
    key, eager, provider = values.split()
    assert len(key) == 64
    assert (eager, provider) == ("65536B", "farlink")
    names = ["FARLINK_EAGER", "FARLINK_JOB_KEY", "FARLINK_PROOF", "FARLINK_SHM"]
    words_of_names = [f"-x {name}" for name in (*names, "FI_PROVIDER", "FI_PROVIDER_PATH")]
    assert words == " ".join([*words_of_names, "-n 2 ./x"])
    # What MPICH is started with, ranks have.
    program = launcher(f'echo "$@ $FI_PROVIDER"; {PROVEN}', version=MPICH)
    assert installed("run", "--", program, "./x").stdout == "./x farlink\n"


@pytest.mark.parametrize(
    ("what", "status", "words"),
    [
        ("true", 1, "no rank"),
        (HALF_PROVEN, 1, "1 of 2 ranks on a"),
        # The launcher has said why, or MPI has, in words of its own.
        ("exit 3", 3, "no rank of this host began with Farlink"),
        (f"{HALF_PROVEN}\nexit 3", 3, "1 of 2 ranks on a"),
        ('rm -r "$FARLINK_PROOF"', 0, "is not known"),
        (f"{PROVEN}\nexit 3", 3, ""),
        ("kill -9 $$", 137, ""),
    ],
)
def test_a_job_over_another_network_does_not_pass(
    installed: Installed, launcher: Callable[..., str], what: str, status: int, words: str
) -> None:
    ended = installed("run", "--", launcher(what))
    assert ended.status == status, ended
    assert (words in ended.complaint) if words else ended.stderr == "", ended
    assert not list(installed.temporary.iterdir())


def test_what_cannot_be_proven_passes_where_that_is_said(
    installed: Installed, launcher: Callable[..., str]
) -> None:
    assert installed("run", "--unproven", "--", launcher('test -z "$FARLINK_PROOF"')).status == 0


def test_a_launcher_that_is_asked_about_itself_starts_no_ranks(
    installed: Installed, launcher: Callable[..., str]
) -> None:
    for question in ("--version", "--help"):
        ended = installed("run", "--", launcher("echo answered"), question)
        assert ended.status == 0, ended
        assert not ended.stderr, ended


def test_a_launcher_is_not_told_to_take_another_network(
    installed: Installed, launcher: Callable[..., str]
) -> None:
    program = launcher(PROVEN, version=MPICH)
    said = installed.complaint("run", "--", program, "-n", "2", "-genv", "MPIR_CVAR_NOLOCAL", "0", "./x")
    assert "MPIR_CVAR_NOLOCAL is 0 behind the launcher" in said
    # What stands there as farlink sets it, and what is a program's own.
    assert installed("run", "--", program, "-genv", "MPIR_CVAR_NOLOCAL", "1", "true").status == 0
    assert installed("run", "--", program, "true", "-genv", "MPIR_CVAR_NOLOCAL", "0").status == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_signals_are_passed_on(
    installed: Installed, launcher: Callable[..., str], number: signal.Signals
) -> None:
    name = number.name.removeprefix("SIG")
    # It says when it may be sent one, and sleeps in the background so that it hears it at once.
    what = f"end() {{ kill $!; {PROVEN}; exit 7; }}\ntrap end {name}\nsleep 60 & echo ready\nwait"
    # What a shell starts in the background ignores SIGINT, and a script cannot trap what it ignores.
    heard = ("env", "--default-signal=INT")
    with subprocess.Popen(
        [*heard, installed.farlink, "mpi", "run", "--", launcher(what)],
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(installed.temporary)},
        start_new_session=True,
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(number)
        assert process.wait(COMMAND_LIMIT_S) == 7
    assert not list(installed.temporary.iterdir())


# Says which signals it has had, and can be stopped, until there is nothing more to read.
COUNTS_SIGNALS = """
import signal, sys
for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGTSTP, signal.SIGCONT):
    signal.signal(number, lambda number, _: print(signal.Signals(number).name, flush=True))
print("ready", flush=True)
sys.exit(7 if sys.stdin.read() == "" else 1)
"""


@contextlib.contextmanager
def told(installed: Installed, launcher: Callable[..., str]) -> Iterator[tuple[int, Callable[[], str]]]:
    """A job, and what its launcher says next of what it was told; it ends with the context."""
    what = f"exec {sys.executable} -c {shlex.quote(COUNTS_SIGNALS)}"
    with subprocess.Popen(
        [installed.farlink, "mpi", "run", "--unproven", "--", launcher(what)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        # In this session: nobody stops a group that nobody can have go on.
        process_group=0,
    ) as process:
        try:
            assert process.stdin
            assert process.stdout
            assert process.stdout.readline() == "ready\n"
            yield process.pid, process.stdout.readline
            process.stdin.close()
            assert process.stdout.read() == ""
            assert process.wait(COMMAND_LIMIT_S) == 7
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def test_what_the_whole_group_is_sent_is_not_passed_on_again(
    installed: Installed, launcher: Callable[..., str]
) -> None:
    with told(installed, launcher) as (process, heard):
        for _ in range(3):
            os.killpg(process, signal.SIGHUP)
            assert heard() == "SIGHUP\n"
            # Of two that wait it hears the lower number first: what it did about the group's is done.
            os.kill(process, signal.SIGTERM)
            assert heard() == "SIGTERM\n"


def state_of(process: int) -> dict[str, str]:
    """What the kernel says of a process."""
    return dict(line.split(":\t") for line in Path(f"/proc/{process}/status").read_text().splitlines())


def takes(process: int, number: signal.Signals) -> bool:
    """Whether it blocks a signal, to read it instead: once it goes on after one that stopped it."""
    return bool(int(state_of(process)["SigBlk"], 16) >> (number - 1) & 1)


def test_a_job_is_stopped_and_continued_with_its_run(
    installed: Installed, launcher: Callable[..., str]
) -> None:
    with told(installed, launcher) as (process, heard):
        for send in (os.kill, os.kill, os.killpg):
            send(process, signal.SIGTSTP)
            assert heard() == "SIGTSTP\n"
            wait_until(lambda: state_of(process)["State"].startswith("T"))
            send(process, signal.SIGCONT)
            assert heard() == "SIGCONT\n"
            wait_until(lambda: takes(process, signal.SIGTSTP))


REFUSED: dict[tuple[str, ...], tuple[str, ...]] = {
    ("run", "--", "no-such-mpirun"): ("no-such-mpirun", "PATH"),
    ("run", "--mpi", "mpich", "--", "/no/such/program"): ("/no/such/program",),
    ("run", "--", "true"): ('"true"', "--mpi open-mpi"),
    ("run", "--mpi", "mpich", "--", "mpirun.openmpi", "-n", "1", "true"): ("Open MPI's", "leave out --mpi"),
    ("run",): ("COMMAND",),
    ("env", "--transport", "tcp"): ("tcp", "rc, xrc, ud, dc"),
    ("env", "--rate", "10"): ('"10"', "no unit", "10gbit"),
    ("env", "--rate", "1kbit"): ("--rate 1kbit", "1mbit or more"),
    ("env", "--rate", "-1gbit"): ("below zero", "10gbit"),
    ("env", "--dcis", "0"): ('"0"', "1 to"),
    ("env", "--transport", "rc", "--dcis", "4"): ("--dcis", "--transport is rc", "leave one out"),
    ("env", "--transport", "ud", "--dci-policy", "lru"): ("--dci-policy", "--transport is ud"),
    ("env", "--dci-policy", "hash"): ("hash", "dcs_quota"),
    ("env", "--eager", "much"): ("much", "unit"),
    ("env", "--eager", "99TiB"): ("--eager 99TiB", "64MiB or less"),
    ("env", "--mpi", "intel"): ("intel", "open-mpi", "mpich"),
    ("env", "--stats", ""): ("--stats",),
    ("run", "--mpi", "mpich", "--stats", "/no/such/place", "--", "true"): ("--stats /no/such/place",),
    ("run", "--mpi", "mpich", "--interface", "no-such", "--", "true"): ("--interface", '"no-such"', "lo ("),
    ("run", "--", "mpirun.openmpi", "--host", "a,b", "--app", "file"): ("--app", ": between them"),
    ("run", "--", "mpirun.openmpi", "--mca", "pml", "ob1", "-n", "1", "true"): (
        "OMPI_MCA_pml is ob1 behind the launcher",
        "leave it out",
    ),
    ("run", "--", "mpirun.openmpi", "-x", "FI_PROVIDER=tcp", "true"): ("FI_PROVIDER is tcp", "leave it out"),
    ("run", "mpirun"): ("'mpirun'", "write -- before the command"),
    ("env", "--mpi", "mpich", "--interface", ""): ("--interface",),
}


@pytest.mark.parametrize("arguments", REFUSED, ids=" ".join)
def test_what_is_wrong_is_said_in_one_line(installed: Installed, arguments: tuple[str, ...]) -> None:
    complaint = installed.complaint(*arguments)
    for words in REFUSED[arguments]:
        assert words in complaint


def test_an_option_of_another_transport_than_the_environments_is_refused(installed: Installed) -> None:
    complaint = installed.complaint("env", "--dcis", "4", FARLINK_TRANSPORT="ud")
    assert "--dcis" in complaint
    assert "FARLINK_TRANSPORT is ud" in complaint
    assert installed("env", "--dcis", "4", FARLINK_TRANSPORT="dc").status == 0
    assert installed("env", "--dcis", "4", "--transport", "dc", FARLINK_TRANSPORT="ud").status == 0


@pytest.mark.parametrize("arguments", [("env", "--mpi", "open-mpi"), ("run", "--", "mpirun", "true")])
def test_what_every_rank_would_refuse_of_the_environment_is_refused_once(
    installed: Installed, arguments: tuple[str, ...]
) -> None:
    assert "FARLINK_RATE" in installed.complaint(*arguments, FARLINK_RATE="10")
    complaint = installed.complaint(*arguments, FARLINK_SHM="maybe")
    assert 'FARLINK_SHM="maybe"' in complaint
    assert "0, 1" in complaint


def test_a_variable_that_is_mistyped_is_told_of_and_the_job_goes_on(installed: Installed) -> None:
    said = {"FARLINK_TRANSPROT": "rc", "FARLINK_A": "10.0.0.1", "FARLINK_HOME": "/opt"}
    ended = installed("env", "--mpi", "open-mpi", **said)
    assert ended.status == 0
    assert "export FARLINK_JOB_KEY=" in ended.stdout
    [line] = ended.stderr.splitlines()
    assert "FARLINK_TRANSPROT" in line
    assert line.endswith("is FARLINK_TRANSPORT meant?")


def test_what_open_mpi_would_refuse_is_refused_before_it_starts(
    installed: Installed, launcher: Callable[..., str]
) -> None:
    variable = {"OMPI_MCA_mca_base_env_list": "HOME"}
    said = installed.complaint("run", "--", launcher("true"), "./program", **variable)
    assert "OMPI_MCA_mca_base_env_list is set" in said
    assert "unset it" in said
    assert (
        installed("run", "--unproven", "--", launcher("exit 3", version=MPICH), "./x", **variable).status == 3
    )


def test_a_launcher_of_another_mpi_is_refused(installed: Installed, launcher: Callable[..., str]) -> None:
    complaint = installed.complaint("run", "--", launcher("true", version="Intel(R) MPI Library"))
    assert "--mpi" in complaint


def test_without_the_library_it_says_how_to_make_it(tmp_path: Path) -> None:
    alone = Installed(tmp_path / "farlink", tmp_path)
    shutil.copy(FARLINK, alone.farlink)
    for arguments in (("env", "--mpi", "mpich"), ("run", "--", "mpirun")):
        complaint = alone.complaint(*arguments)
        assert "libfarlink-fi.so" in complaint
        assert "make build" in complaint


def test_the_library_brings_none_of_ours_into_a_program() -> None:
    """It is built beside the program, and has nothing of what that alone needs (libelf, zlib)."""
    library = FARLINK.parent / "fabric" / "libfarlink-fi.so"
    needed = re.findall(r"\(NEEDED\).*\[(\S+)\]", run(["readelf", "--dynamic", str(library)]).stdout)
    assert "libc.so.6" in needed
    assert all(name.startswith(("libc.so", "libgcc_s.so", "libm.so", "ld-linux")) for name in needed), needed
