"""The row that asks whether mpi4py's own tests pass, over Open MPI's TCP, libfabric's and ours."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from programs.mpi4py_suite import NOT_OURS
from support import page
from support.mpi_job import MPIRUN, PROGRAMS, RXM, TCP, TRANSPORTS, WORK, ours
from support.mpi_rows import WITHOUT, measured

if TYPE_CHECKING:
    from pathlib import Path

    from support.mpi_job import Way
    from support.mpi_rows import Run
    from support.results import Results

MODULES = ("test_p2p_*", "test_cco_*", "test_pickle*", "test_msgspec*", "test_comm*")
RANKS = 3
LIMIT_S = 60.0
# Open MPI 4.1 over libfabric does not acknowledge a synchronous message that a matched probe found, whatever
# the provider: mpi4py receives its pickled objects by such probes unless told otherwise.
UNMATCHED = {"MPI4PY_RC_RECV_MPROBE": "0"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """mpi4py's own tests, point to point and collective, each module in a job of its own."""

    name: str = "mpi4py"
    title: str = "mpi4py's own test suite, three ranks on one host"

    def run(self, results: Results, repetitions: int) -> None:
        """Measures what is not measured yet of it."""
        del repetitions
        place = WORK / "mpi4py"
        if not place.exists():
            fetch()
        modules = sorted(path.stem for pattern in MODULES for path in place.glob(f"test/{pattern}.py"))
        far = (ours(each, label=WITHOUT, FARLINK_SHM="0") for each in TRANSPORTS)
        for way in (TCP, RXM, *(ours(each) for each in TRANSPORTS), *far):

            def take(way: Way = way) -> Run:
                began, ran, bad = time.monotonic(), 0, set()
                for module in modules:
                    found, failed = tried(way, place / "test" / "runtests.py", module)
                    ran += found
                    bad |= failed
                return {"ran": ran, "bad": sorted(bad), "took_s": time.monotonic() - began}

            measured(results, self.name, way.name, 1, take)

    def body(self, results: Results) -> str:
        """What was measured, in Markdown."""
        lines = [
            [
                run["contender"],
                run.get("ran", "–"),
                "none" if run.get("bad") == [] else ", ".join(run.get("bad", [run.get("failed")])),
            ]
            for run in results.of(self.name)
        ]
        said = "\n".join(f"- `{part}`: {reason}" for part, reason in NOT_OURS.items())
        return (
            f"{page.table(['over', 'tests, of all ranks', 'that failed'], lines)}\n\n"
            f"Left out, for they fail alike over libfabric's own providers:\n\n{said}"
        )


def tried(way: Way, runner: Path, module: str) -> tuple[int, set[str]]:
    """How many tests of a module ran, of all ranks together, and the names of those that failed on any."""
    words = [*MPIRUN, "-n", str(RANKS), *way.words(), "/usr/bin/python3"]
    words += [str(PROGRAMS / "mpi4py_suite.py"), str(runner), "--no-builddir", "--no-threads", "-q"]
    words += ["-i", f"{module}$"]
    try:
        done = subprocess.run(
            words,
            env={**os.environ, **UNMATCHED, **way.environment},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 0, {f"{module} (did not end)"}
    return judged(module, done.returncode, done.stdout + done.stderr)


def judged(module: str, code: int, said: str) -> tuple[int, set[str]]:
    """As `tried`, of how a module's job ended: a rank may crash behind its last test, or before."""
    counts = [int(each) for each in re.findall(r"Ran (\d+) test", said)]
    bad = set(re.findall(r"^(?:FAIL|ERROR): (\S+ \S+)", said, re.MULTILINE))
    if len(counts) < RANKS:
        bad.add(f"{module} (of {RANKS} ranks {len(counts)} came to its end)")
    if code != 0 and not bad:
        bad.add(f"{module} (ended with {code})")
    return sum(counts), bad


def fetch() -> None:
    """The source of mpi4py, of the version that is installed: its tests are not in the package."""
    version = subprocess.run(
        ["/usr/bin/python3", "-c", "import mpi4py; print(mpi4py.__version__)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    WORK.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:"]
    subprocess.run([*words, "-d", str(WORK), f"mpi4py=={version}"], check=False)
    (archive,) = WORK.glob(f"mpi4py-{version}*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(WORK, filter="data")
    (WORK / f"mpi4py-{version}").rename(WORK / "mpi4py")
