"""MPI programs as the bench runs them: on one host or over emulated ones, by any transport."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from support.connection import FARLINK, ROOT, Connection

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

WORK = ROOT / "target" / "bench-mpi"
PROGRAMS = ROOT / "bench" / "programs"
SHARED_PROGRAMS = ROOT / "tests" / "programs"
PROVIDERS = Path(os.environ.get("FARLINK_PROVIDERS") or ROOT / "target" / "release" / "fabric")
MPIRUN = ("mpirun", "--allow-run-as-root", "--oversubscribe")
# Each emulated host believes that the processors are its own: the first ranks of all would share one.
UNBOUND = ("--bind-to", "none")
LIMIT_S = 1800.0
TRANSPORTS = ("rc", "xrc", "ud", "dc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """What carries an MPI program's messages.

    Attributes:
        name: In the page.
        parameters: Of Open MPI.
        environment: What ranks have besides.

    """

    name: str
    parameters: dict[str, str]
    environment: dict[str, str] = field(default_factory=dict)

    def words(self) -> list[str]:
        """What `mpirun` is told."""
        words = [word for name, value in self.parameters.items() for word in ("--mca", name, value)]
        return [*words, *(word for name in self.environment for word in ("-x", name))]


TCP = Way(name="Open MPI over TCP", parameters={"pml": "ob1", "btl": "tcp,self"})
# What is longer than 64 KiB waits for its receiver otherwise, which takes a round trip more: ours does not.
EAGER_TCP = Way(
    name="Open MPI over TCP with 4 MiB at once",
    parameters={"pml": "ob1", "btl": "tcp,self", "btl_tcp_eager_limit": str(4 << 20)},
)
UCX = Way(
    name="Open MPI over UCX's TCP",
    parameters={"pml": "ucx", "pml_ucx_tls": "any", "pml_ucx_devices": "any"},
    environment={"UCX_TLS": "tcp,self"},
)
NET = Way(
    name="libfabric's net",
    parameters={"pml": "cm", "mtl": "ofi", "opal_common_ofi_provider_include": "net"},
)

RXM = Way(
    name="libfabric's tcp;ofi_rxm",
    parameters={"pml": "cm", "mtl": "ofi", "opal_common_ofi_provider_include": "tcp;ofi_rxm"},
)


def ours(transport: str, *, rate: str = "", label: str = "", **environment: str) -> Way:
    """Farlink's provider, with a known rate or one to be sought; `label` says what else is special."""
    said = {
        "FI_PROVIDER_PATH": str(PROVIDERS),
        "FARLINK_JOB_KEY": secrets.token_hex(32),
        "FARLINK_TRANSPORT": transport,
        **({"FARLINK_RATE": rate} if rate else {}),
        **environment,
    }
    name = f"farlink {transport}{label}" + ("" if rate or "FARLINK_SHM" in environment else ", rate sought")
    parameters = {"pml": "cm", "mtl": "ofi", "opal_common_ofi_provider_include": "farlink"}
    return Way(name=name, parameters=parameters, environment=said)


def compiled(source: Path) -> str:
    """The program that `source` is, made by `mpicc`."""
    WORK.mkdir(parents=True, exist_ok=True)
    program = WORK / source.stem
    subprocess.run(["mpicc", "-O2", "-o", str(program), str(source)], check=True)
    return str(program)


def run_here(way: Way, ranks: int, *command: str) -> str:
    """What a program prints whose ranks are all on this host."""
    return output([*MPIRUN, "-n", str(ranks), *way.words(), *command], way)


def output(command: Sequence[str], way: Way) -> str:
    """What a command prints that has a way's environment."""
    done = subprocess.run(
        command,
        env={**os.environ, **way.environment},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if done.returncode:
        raise FailedError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout


class FailedError(Exception):
    """A program that did not end well: a finding, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Emulated hosts on which ranks run."""

    connection: Connection
    agent: Path

    def run(self, way: Way, hosts: Sequence[str], *command: str, ranks_a_host: int = 1) -> str:
        """What a program prints with so many ranks on each of `hosts`."""
        where = ",".join(f"{host}:{ranks_a_host}" for host in hosts)
        # Open MPI names what it keeps in /tmp by host and process, of which two emulations have the same.
        own = ("--mca", "orte_tmpdir_base", str(self.agent.parent))
        words = [*MPIRUN, *UNBOUND, *own, "--mca", "plm_rsh_agent", str(self.agent), "-host", where]
        words += [*way.words(), *command]
        return output(self.connection.on("a", *words), way)


@contextlib.contextmanager
def site(*options: str) -> Iterator[Site]:
    """Hosts as `options` of `farlink emulate` say, with what `mpirun` starts its daemons by."""
    serving = SHARED_PROGRAMS / "mpi_agent.py"
    with Connection(*options) as connection, tempfile.TemporaryDirectory() as place:
        socket = Path(place) / "socket"
        words = [sys.executable, str(serving), "serve", str(socket), FARLINK, connection.name]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
            try:
                if server.stdout is None or server.stdout.readline() != "listening\n":
                    raise SystemExit(f"{' '.join(words)} did not come up")
                agent = Path(place) / "agent"
                agent.write_text(f'#!/bin/sh\nexec {sys.executable} {serving} run {socket} "$@"\n')
                agent.chmod(0o755)
                yield Site(connection=connection, agent=agent)
            finally:
                server.kill()
