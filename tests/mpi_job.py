"""MPI programs on emulated hosts and on this one, run by `farlink mpi run`."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from emulation import FARLINK, ROOT, Emulation, run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from emulation import Ended

PROGRAMS = ROOT / "tests" / "programs"
AGENT = PROGRAMS / "mpi_agent.py"
# What came with the virtual environment: MPICH, whose programs have the names of Open MPI's.
ENVIRONMENT = Path(sys.prefix) / "bin"
TRANSPORTS = ("rc", "xrc", "ud", "dc")


def of_the_system(name: str) -> str:
    """The system's program of that name, also where the virtual environment is the first place to look."""
    places = [each for each in os.get_exec_path() if Path(each) != ENVIRONMENT]
    return shutil.which(name, path=os.pathsep.join(places)) or name


MPIRUN = (of_the_system("mpirun"), "--allow-run-as-root", "--oversubscribe")


def compiled(name: str, into: Path, *, compiler: str = of_the_system("mpicc")) -> str:
    """The program of that name, made by `mpicc`."""
    program = into / name
    subprocess.run([compiler, "-O1", "-o", str(program), str(PROGRAMS / f"{name}.c")], check=True)
    return str(program)


def here(ranks: int, *command: str, options: Sequence[str] = (), env: dict[str, str] | None = None) -> Ended:
    """A program whose ranks are all on this host."""
    words = [str(FARLINK), "mpi", "run", *options, "--", *MPIRUN, "-n", str(ranks), *command]
    return run(words, env=env)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Emulated hosts on which ranks run."""

    emulation: Emulation
    agent: Path

    def words(self, where: str, options: Sequence[str], *command: str) -> list[str]:
        """The command line, on host a, that runs a program with ranks on the hosts that `where` names."""
        # Open MPI names what it keeps in /tmp by host and process, of which two emulations have the same.
        own = ("--mca", "orte_tmpdir_base", str(self.agent.parent))
        remote = (*own, "--mca", "plm_rsh_agent", str(self.agent), "-host", where)
        return [str(FARLINK), "mpi", "run", *options, "--", *MPIRUN, *remote, *command]

    def run(self, where: str, *command: str, options: Sequence[str] = (), **env: str) -> Ended:
        """A program run to its end with ranks on the hosts that `where` names."""
        words = self.words(where, options, *exported(env), *command)
        return run(self.emulation.command("a", *words), env=env)

    @contextlib.contextmanager
    def background(
        self, where: str, *command: str, options: Sequence[str] = (), **env: str
    ) -> Iterator[subprocess.Popen[str]]:
        """A program that runs on them until the context ends."""
        words = [f"{name}={value}" for name, value in env.items()]
        line = self.words(where, options, *exported(env), *command)
        with self.emulation.background("a", "env", *words, *line) as process:
            yield process


def exported(env: dict[str, str]) -> list[str]:
    """What has `mpirun` hand variables on."""
    return [word for name in env for word in ("-x", name)]


@contextlib.contextmanager
def site(place: Path, *options: str) -> Iterator[Site]:
    """Hosts as `options` of `farlink emulate` say, with what `mpirun` starts its daemons by."""
    socket = place / "socket"
    with Emulation(options=options) as emulation:
        words = [sys.executable, str(AGENT), "serve", str(socket), str(FARLINK), emulation.name]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=os.environ) as server:
            try:
                assert server.stdout is not None
                assert server.stdout.readline() == "listening\n"
                agent = place / "agent"
                agent.write_text(f'#!/bin/sh\nexec {sys.executable} {AGENT} run {socket} "$@"\n')
                agent.chmod(0o755)
                yield Site(emulation=emulation, agent=agent)
            finally:
                server.kill()
