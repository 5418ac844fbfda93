"""MPI programs where something goes wrong: who is lost is told, nobody waits for ever, and others go on."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from emulation import FARLINK, START_LIMIT_S, run, wait_until
from mpi_job import MPIRUN, PROGRAMS, TRANSPORTS, Site, compiled, here, site

if TYPE_CHECKING:
    from collections.abc import Iterator

# Within which the loss of a peer is told; where nothing is asked for it is 20 s, longer than the cut.
TIMEOUT_S = 3.0
# Peers are looked after at thirds of that, and given as long to answer; on a busy machine slow is no failure.
TOLD_WITHIN_S = 2 * TIMEOUT_S + 10.0
CUT_S = 5.0
# Bytes of a message, as `fi_info` has it.
LONGEST = 1 << 40
DEVICE = "farlink0"
# Of the messages program.
SECTIONS = 11
# Takes what was sent to its port from a host: nothing comes, and nobody is told. TCP goes on.
WITHOUT_UDP = f"""
ip rule add pref 1 lookup local
ip rule del pref 0
ip rule add pref 0 iif {DEVICE} ipproto udp blackhole
"""
WITH_UDP = f"""
ip rule del pref 0 iif {DEVICE} ipproto udp blackhole
ip rule add pref 0 lookup local
ip rule del pref 1
"""

# Ranks wait for messages with a processor each.
pytestmark = pytest.mark.pair


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the programs are."""
    place = tmp_path_factory.mktemp("programs")
    for name in ("mpi_messages", "mpi_stencil", "mpi_survivors"):
        compiled(name, place)
    return place


@pytest.fixture(scope="module")
def star(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Three hosts around a core."""
    options = ("--hosts", "3", "--rate", "1gbit", "--rtt", "4ms", "--mtu", "9000", "--seed", "2")
    with site(tmp_path_factory.mktemp("site"), *options) as place:
        yield place


def heard(process: subprocess.Popen[str]) -> str:
    """The next line of a job that goes on."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "it ended"
    return line


def until_gone_on(process: subprocess.Popen[str]) -> str:
    """What a job has said when both survivors have gone on: Open MPI's launcher may not end after that."""
    said = ""
    while len(re.findall(r"rank \d: went on", said)) < 2:
        said += heard(process)
    return said


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_who_waits_for_a_dead_peer_is_told_and_others_go_on(
    star: Site, programs: Path, transport: str
) -> None:
    # Open MPI itself would end the job; what its ranks are told is Farlink's.
    command = ("--enable-recovery", str(programs / "mpi_survivors"), "kill")
    options = ("--transport", transport)
    with star.background(
        "a:1,b:1,c:1", *command, options=options, FARLINK_PEER_TIMEOUT=f"{TIMEOUT_S}s"
    ) as process:
        said = until_gone_on(process)
    told = {int(rank): float(after) for rank, after in re.findall(r"rank (\d): error after ([\d.]+) s", said)}
    assert set(told) == {0, 1}, said
    assert all(after < TOLD_WITHIN_S for after in told.values()), said


@pytest.mark.parametrize("verb", ["send", "probe"])
def test_who_only_sends_or_probes_is_told_of_the_dead_too(star: Site, programs: Path, verb: str) -> None:
    command = ("--enable-recovery", str(programs / "mpi_survivors"), "kill", verb)
    with star.background("a:1,b:1,c:1", *command, FARLINK_PEER_TIMEOUT=f"{TIMEOUT_S}s") as process:
        first = heard(process)
        found = re.match(r"lost (\d+)", first)
        assert found, first
        complaint = re.compile(rf"farlink: rank (\d) on [ab] has lost rank 2 \(process {found[1]} at ")
        # Open MPI ends a program that probes for who is lost, and the other perhaps before it is told.
        whom = {"0", "1"} if verb == "send" else {"0"}
        assert process.stderr is not None
        errors = ""
        while len(set(complaint.findall(errors))) < len(whom):
            line = process.stderr.readline()
            assert line, f"it ended: {errors}"
            errors += line
        if verb == "send":
            assert set(re.findall(r"rank (\d): error after", until_gone_on(process))) == whom


def test_a_dead_rank_takes_no_other_of_its_host_along(star: Site, programs: Path) -> None:
    command = ("--enable-recovery", str(programs / "mpi_survivors"), "kill")
    options = ("--transport", "xrc")
    # Which of the two on host b receives for both is chosen anew each time.
    for _ in range(4):
        with star.background(
            "a:1,b:2", *command, options=options, FARLINK_PEER_TIMEOUT=f"{TIMEOUT_S}s"
        ) as process:
            said = until_gone_on(process)
        assert set(re.findall(r"rank (\d): error after", said)) == {"0", "1"}, said


def test_who_waits_for_a_peer_out_of_reach_is_told_and_others_go_on(star: Site, programs: Path) -> None:
    words = (str(programs / "mpi_survivors"), "wait")
    with star.background("a:1,b:1,c:1", *words, FARLINK_PEER_TIMEOUT=f"{TIMEOUT_S}s") as process:
        while "lost" not in heard(process):
            pass
        try:
            for other in "ab":
                star.emulation.change("--cut", target=f"/{other}..c")
            # What rank 1 says comes by the launcher's own connection, which is not cut.
            said = until_gone_on(process)
        finally:
            for other in "ab":
                star.emulation.change("--restore", target=f"/{other}..c")
    told = [float(after) for after in re.findall(r"rank \d: error after ([\d.]+) s", said)]
    assert len(told) == 2, said
    assert all(after < TOLD_WITHIN_S for after in told), said


@contextlib.contextmanager
def without_udp(star: Site, hosts: str) -> Iterator[None]:
    """No datagram comes in at these hosts until the context ends."""
    for host in hosts:
        star.emulation.output(host, "sh", "-ec", WITHOUT_UDP)
    try:
        yield
    finally:
        for host in hosts:
            star.emulation.output(host, "sh", "-ec", WITH_UDP)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_hosts_between_which_no_udp_passes_are_told_so(
    star: Site, programs: Path, tmp_path: Path, transport: str
) -> None:
    words = (str(programs / "mpi_stencil"), "8", "8", "2")
    figures = tmp_path / "figures"
    options = ("--transport", transport, "--stats", str(figures))
    with without_udp(star, "ac"):
        ended = star.run("a:1,c:1", *words, options=options, FARLINK_PEER_TIMEOUT="2s")
    assert ended.status != 0
    lines = [line for line in ended.stderr.splitlines() if "farlink: " in line]
    assert any("is UDP open between the hosts" in line for line in lines), ended.stderr
    # Open MPI ends them without a word.
    ranks = [json.loads(line) for line in figures.read_text().splitlines()]
    assert any(each["failed_peers"] for each in ranks if not each["closed"]), ranks
    assert star.run("a:1,c:1", *words).status == 0


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_forged_and_replayed_datagrams_change_nothing(
    star: Site, programs: Path, tmp_path: Path, transport: str
) -> None:
    figures = tmp_path / "figures"
    forger = (sys.executable, str(PROGRAMS / "forger.py"), DEVICE)
    options = ("--transport", transport, "--rate", "1gbit", "--stats", str(figures))
    with contextlib.ExitStack() as stack:
        forgers = [stack.enter_context(star.emulation.background(host, *forger)) for host in "ab"]
        for each in forgers:
            assert each.stdout is not None
            assert each.stdout.readline() == "ready\n"
        ended = star.run("a:1,b:1", str(programs / "mpi_messages"), options=options)
        for each in forgers:
            assert each.stdout is not None
            assert "heard" in each.stdout.readline()
    assert (ended.status, ended.stdout.count(": well")) == (0, SECTIONS), ended
    versions = [line for line in ended.stderr.splitlines() if "have the same Farlink on all hosts" in line]
    # Each rank says it once.
    assert len(versions) == len(set(versions)) == 2, ended.stderr
    for each in map(json.loads, figures.read_text().splitlines()):
        assert each["datagrams_refused"] > 0
        assert each["nonsense"] == 0


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_link_that_is_cut_for_five_seconds_goes_on_where_it_was(
    star: Site, programs: Path, transport: str
) -> None:
    words = (str(programs / "mpi_stencil"), "32", "500", "600")
    options = ("--transport", transport, "--rate", "1gbit")
    with star.background("a:1,b:1", *words, options=options) as process:
        assert process.stdout is not None
        while "begun" not in heard(process):
            pass
        star.emulation.change("--cut", target="/b")
        time.sleep(CUT_S)
        # Without the cut it would have ended long ago.
        assert process.poll() is None
        star.emulation.change("--restore", target="/b")
        assert process.wait(timeout=60) == 0
        alone = run([*MPIRUN, "-n", "1", *words]).stdout.split()
        assert process.stdout.read().split()[:2] == alone[1:3]


def test_processes_of_another_job_are_not_heard(star: Site, programs: Path) -> None:
    keys = [secrets.token_hex(32) for _ in range(2)]
    program = str(programs / "mpi_stencil")
    words = [
        *("-n", "1", "env", f"FARLINK_JOB_KEY={keys[0]}", program, "8", "8", "2", ":"),
        *("-n", "1", "env", f"FARLINK_JOB_KEY={keys[1]}", program, "8", "8", "2"),
    ]
    ended = star.run("a:1,b:1", *words, FARLINK_PEER_TIMEOUT="2s")
    assert ended.status != 0
    assert "is FARLINK_JOB_KEY the same on all hosts?" in ended.stderr, ended.stderr


def test_a_message_longer_than_any_may_be_is_refused_and_others_go_on(programs: Path) -> None:
    ended = here(2, str(programs / "mpi_messages"), "too-long", str(LONGEST + 4096))
    assert (ended.status, "too-long: well" in ended.stdout) == (0, True), ended


def had_by_ranks() -> dict[str, set[str]]:
    """What ranks on this host, and who runs them, have: names of sockets, shared memory, directories."""
    # Abstract names end with the last process that has the socket; here they begin with an @.
    sockets = re.findall(r"@farlink-[0-9a-f]{16}$", Path("/proc/self/net/unix").read_text(), re.MULTILINE)
    # Memory has no name, and ends with the last process that has it: mapped, or as a descriptor.
    memory = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            memory |= set(re.findall(r" (\d+) +/memfd:farlink", maps.read_text()))
    directories = (str(each) for each in Path(tempfile.gettempdir()).glob("farlink-mpi-*"))
    return {"sockets": set(sockets), "memory": memory, "directories": set(directories)}


def test_a_killed_rank_leaves_nothing_behind(programs: Path) -> None:
    before = had_by_ranks()

    def had() -> list[str]:
        """What there is that was not there before."""
        return [kind for kind, all_of_it in had_by_ranks().items() if all_of_it - before[kind]]

    words = [str(FARLINK), "mpi", "run", "--", *MPIRUN, "-n", "3", str(programs / "mpi_survivors"), "wait"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        [rank] = re.findall(r"lost (\d+)", heard(process))
        assert had() == ["sockets", "memory", "directories"]
        os.kill(int(rank), signal.SIGKILL)
        assert process.wait(timeout=START_LIMIT_S) != 0
    # The launcher may end before the last of them.
    wait_until(lambda: not had())
    wait_until(lambda: not Path("/proc", rank).exists())


@pytest.mark.parametrize(
    ("name", "value", "mend"),
    [
        ("FARLINK_TRANSPORT", "tcp", "rc, xrc, ud, dc"),
        ("FARLINK_JOB_KEY", "abc", "64 hexadecimal digits"),
        ("FARLINK_DCIS", "0", "from 1 to 1024"),
    ],
)
def test_a_wrong_variable_is_named_with_its_mend(programs: Path, name: str, value: str, mend: str) -> None:
    ended = here(
        1, "env", f"{name}={value}", str(programs / "mpi_stencil"), "8", "8", "2", options=("--unproven",)
    )
    assert ended.status != 0
    lines = [line for line in ended.stderr.splitlines() if line.startswith("farlink: ")]
    assert any(name in line and mend in line for line in lines), ended.stderr
