"""Unmodified MPI programs over `libfarlink-fi.so`: what they say arrives, whatever the link."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from emulation import FARLINK, ROOT, run
from mpi_job import ENVIRONMENT, MPIRUN, TRANSPORTS, Site, compiled, here, site

if TYPE_CHECKING:
    from collections.abc import Iterator

SECTIONS = 11
MELT = """
units lj
lattice fcc 0.8442
region box block 0 6 0 6 0 6
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 3.0 87287 loop geom
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
fix 1 all nve
thermo 10
run 50
"""

# Ranks wait for messages with a processor each.
pytestmark = pytest.mark.pair


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the programs are."""
    place = tmp_path_factory.mktemp("programs")
    for name in ("mpi_messages", "mpi_stencil"):
        compiled(name, place)
    return place


@pytest.fixture(scope="module")
def lossy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Two hosts with a link between them that loses one packet in fifty."""
    options = ("--rate", "1gbit", "--rtt", "4ms", "--mtu", "9000", "--loss", "2%", "--seed", "5")
    with site(tmp_path_factory.mktemp("site"), *options) as place:
        yield place


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_every_kind_of_message_arrives_over_a_link_that_loses_some(
    lossy: Site, programs: Path, tmp_path: Path, transport: str
) -> None:
    figures = tmp_path / "figures"
    options = ("--transport", transport, "--rate", "1gbit", "--stats", str(figures))
    ended = lossy.run("a:2,b:2", str(programs / "mpi_messages"), options=options)
    assert ended.status == 0, ended
    assert ended.stdout.count(": well") == SECTIONS, ended.stdout
    ranks = [json.loads(line) for line in figures.read_text().splitlines()]
    assert len(ranks) == 4
    assert {each["transport"] for each in ranks} == {transport}
    assert all(each["closed"] for each in ranks)
    guide = (ROOT / "docs" / "guide" / "mpi.md").read_text()
    table = guide.partition("## Statistics")[2].partition("## ")[0]
    named = {
        name
        for row in re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    }
    assert all(set(each) == named for each in ranks)
    assert sum(each["retransmits"] for each in ranks) > 0
    memory = ("bytes_of_peers", "bytes_of_responders", "bytes_sent_kept", "bytes_unexpected_most")
    assert all(each[name] > 0 for each in ranks for name in memory)
    # Data leave in runs.
    assert sum(each["datagrams_out"] for each in ranks) > sum(each["socket_writes"] for each in ranks)
    # It did lose some, and nothing but messages came.
    assert sum(each["datagrams_lost"] for each in ranks) > 0
    assert all(each["nonsense"] == 0 for each in ranks)
    # One process of a host receives for the other, where that is how it is meant.
    assert (sum(each["forwarded"] for each in ranks) > 0) == (transport == "xrc")


def test_ranks_of_one_host_share_memory_and_leave_none_behind(programs: Path, tmp_path: Path) -> None:
    before = set(Path("/dev/shm").iterdir())
    figures = tmp_path / "figures"
    ended = here(3, str(programs / "mpi_messages"), options=("--stats", str(figures)))
    assert (ended.status, ended.stdout.count(": well")) == (0, SECTIONS), ended
    ranks = [json.loads(line) for line in figures.read_text().splitlines()]
    assert [each["datagrams_sent"] for each in ranks] == [0, 0, 0]
    left = {each.name for each in set(Path("/dev/shm").iterdir()) - before}
    assert not {each for each in left if "farlink" in each}


def test_a_stencil_has_the_result_that_one_process_has(lossy: Site, programs: Path) -> None:
    words = (str(programs / "mpi_stencil"), "32", "500", "40")
    alone = run([*MPIRUN, "-n", "1", *words]).stdout.split()
    ended = lossy.run("a:2,b:2", *words, options=("--rate", "1gbit"))
    assert ended.status == 0, ended
    assert ended.stdout.split()[-3] == alone[-3]


def test_lammps_has_the_same_output_as_over_open_mpis_own_transport(tmp_path: Path) -> None:
    script = tmp_path / "melt.in"
    script.write_text(MELT)
    words = ("lmp", "-in", str(script), "-log", "none")
    theirs = run([*MPIRUN, "-n", "2", "--mca", "pml", "ob1", *words])
    ours = here(2, *words)
    assert (theirs.status, ours.status) == (0, 0), ours
    thermo = re.compile(r"^ +\d+ +-?[\d.]+ .*$", re.MULTILINE)
    assert len(thermo.findall(ours.stdout)) >= 6
    assert thermo.findall(ours.stdout) == thermo.findall(theirs.stdout)


@pytest.mark.skipif(not (ENVIRONMENT / "mpiexec").exists(), reason="the package mpich is not installed")
def test_programs_of_mpich_run_over_it_on_one_host_and_on_two(lossy: Site, tmp_path: Path) -> None:
    compiler, mpiexec = (str(ENVIRONMENT / name) for name in ("mpicc", "mpiexec"))
    program = compiled("mpi_messages", tmp_path, compiler=compiler)
    remote = ("-launcher", "rsh", "-launcher-exec", str(lossy.agent), "-hosts", "a,b", "-iface", "farlink0")
    for through, where in (([], ()), (lossy.emulation.command("a"), remote)):
        figures = tmp_path / f"figures-{len(where)}"
        words = [str(FARLINK), "mpi", "run", "--rate", "1gbit", "--stats", str(figures), "--"]
        ended = run([*through, *words, mpiexec, *where, "-n", "2", program])
        assert (ended.status, ended.stdout.count(": well")) == (0, SECTIONS), ended
        ranks = [json.loads(line) for line in figures.read_text().splitlines()]
        assert [each["datagrams_sent"] > 0 for each in ranks] == [bool(where)] * 2, ranks


def test_fi_info_shows_it() -> None:
    ended = run(["fi_info", "-p", "farlink", "-v"], env={"FI_PROVIDER_PATH": str(FARLINK.parent / "fabric")})
    assert ended.status == 0, ended
    assert "provider: farlink" in ended.stdout or "prov_name: farlink" in ended.stdout
    assert all(word in ended.stdout for word in ("FI_TAGGED", "FI_DIRECTED_RECV", "FI_MULTI_RECV"))


@pytest.mark.parametrize("whose", ["mpich", "open-mpi"])
def test_a_send_that_returns_at_once_waits_for_no_receive(tmp_path: Path, whose: str) -> None:
    if whose == "mpich" and not (ENVIRONMENT / "mpiexec").exists():
        pytest.skip("the package mpich is not installed")
    compiler = {"compiler": str(ENVIRONMENT / "mpicc")} if whose == "mpich" else {}
    launcher = (str(ENVIRONMENT / "mpiexec"),) if whose == "mpich" else MPIRUN
    program = compiled("mpi_flood", tmp_path, **compiler)
    # 128 MB, of which both ends together keep less where nobody receives.
    words = [str(FARLINK), "mpi", "run", "--", *launcher, "-n", "2", program, "8000", "16000"]
    ended = run(words)
    assert (ended.status, ended.stdout.split("\n")[:2]) == (0, ["sent", "received, 0 wrong"]), ended


@pytest.mark.parametrize("shared_memory", ["1", "0"])
def test_a_child_that_a_rank_forked_is_refused_and_its_parent_goes_on(
    tmp_path: Path, shared_memory: str
) -> None:
    program = compiled("mpi_fork", tmp_path)
    ended = here(2, program, "100", env={"FARLINK_SHM": shared_memory})
    assert ended.status == 0, ended
    assert sorted(ended.stdout.splitlines()) == ["rank 0: 0 wrong", "rank 1: 0 wrong"]
