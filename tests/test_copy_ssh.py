"""Copies to and from a host that a real sshd lets in, where nothing else listens before or afterwards."""

from __future__ import annotations

import os
import pwd
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ssh
from copying import BLOCK, REFUSED, Copied, copy, differences, leftovers
from emulation import FARLINK, Emulation, run, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

FIRST_PORT, LAST_PORT = 46410, 46490
# Of both families: names of hosts lead to either.
CLOSED = f"""
for family in -4 -6; do
    ip $family rule add pref 1 lookup local
    ip $family rule del pref 0
    ip $family rule add pref 0 iif farlink0 ipproto tcp dport {FIRST_PORT}-{LAST_PORT} blackhole
done
"""
OPEN = f"""
for family in -4 -6; do
    ip $family rule del pref 0 iif farlink0 ipproto tcp dport {FIRST_PORT}-{LAST_PORT} blackhole
    ip $family rule add pref 0 lookup local
    ip $family rule del pref 1
done
"""


@pytest.fixture(scope="module")
def reached(near: Emulation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ssh.Sshd]:
    """An sshd on host b."""
    if reason := ssh.missing():
        pytest.skip(reason)
    with ssh.sshd(near, "b", tmp_path_factory.mktemp("sshd")) as running:
        yield running


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A tree with a file in blocks, a small one, a link and an empty directory."""
    tree = tmp_path / "source"
    (tree / "empty").mkdir(parents=True)
    (tree / "large").write_bytes(random.Random(16).randbytes(3 * BLOCK + 5))
    (tree / "small").write_bytes(b"small")
    (tree / "link").symlink_to("small")
    return tree


def places(way: str, source: Path, there: Path) -> tuple[str, str]:
    """Source and destination of a copy of a tree to or from b."""
    return (f"{source}/", f"b:{there}") if way == "push" else (f"b:{source}/", str(there))


def copied(emulation: Emulation, command: str, *words: str | os.PathLike[str], host: str = "a") -> Copied:
    """A copy by `command` in place of ssh, run to its end on `host`."""
    return copy(*words, "--ssh", command, through=emulation.command(host))


def listening(emulation: Emulation) -> set[int]:
    """The ports on which something listens on b."""
    shown = emulation.output("b", "ss", "--no-header", "--listening", "--tcp", "--numeric")
    return {int(line.split()[3].rpartition(":")[2]) for line in shown.splitlines()}


@pytest.mark.parametrize("way", ["push", "pull"])
def test_what_ssh_started_ends_by_itself_and_is_not_killed(
    near: Emulation, reached: ssh.Sshd, source: Path, tmp_path: Path, way: str
) -> None:
    # Who waits for the far end's last words has closed what that waits for.
    ended, command = tmp_path / "ended", tmp_path / "ssh"
    command.write_text(f'#!/bin/sh\n{reached.command} "$@"\necho $? > {ended}\n')
    command.chmod(0o755)
    there = tmp_path / "there"
    result = copied(near, str(command), *places(way, source, there))
    assert result.status == 0, result
    assert ended.read_text() == "0\n"
    assert differences(source, there) == []


@pytest.mark.parametrize("way", ["push", "pull"])
def test_a_tree_goes_to_a_port_that_was_named_and_nothing_listens_afterwards(
    near: Emulation, reached: ssh.Sshd, source: Path, tmp_path: Path, way: str
) -> None:
    before, there = listening(near), tmp_path / "there"
    ports = ("--ports", f"{FIRST_PORT}-{LAST_PORT}", "--limit", "50mbit")
    done = copied(near, reached.command, *places(way, source, there), *ports)
    assert differences(source, there) == []
    assert leftovers(there) == []
    assert done.stderr == ""
    record = done.record
    assert (record["protection"], record["outcome"]) == ("encrypted", "ok")
    assert (record["source"], record["destination"]) == (("a", "b") if way == "push" else ("b", "a"))
    wait_until(lambda: listening(near) == before)


@pytest.fixture
def closed(near: Emulation) -> Iterator[None]:
    """No connection to a port of b comes in, but to ssh's."""
    near.output("b", "sh", "-ec", CLOSED)
    try:
        yield
    finally:
        near.output("b", "sh", "-ec", OPEN)


@pytest.mark.usefixtures("closed")
@pytest.mark.parametrize("way", ["push", "pull"])
def test_where_no_port_is_reached_there_it_connects_here(
    near: Emulation, reached: ssh.Sshd, source: Path, tmp_path: Path, way: str
) -> None:
    there = tmp_path / "there"
    ports = ("--ports", f"{FIRST_PORT}-{LAST_PORT}")
    done = copied(near, reached.command, *places(way, source, there), *ports)
    assert differences(source, there) == []
    assert leftovers(there) == []
    (said,) = done.stderr.splitlines()
    assert "cannot be reached (no answer)" in said, said
    here = int(said.rpartition("it connects to port ")[2].split()[0])
    assert FIRST_PORT <= here < LAST_PORT
    assert (done.record["protection"], done.record["outcome"]) == ("encrypted", "ok")


@pytest.mark.parametrize("way", ["push", "pull"])
def test_where_no_port_is_reached_data_go_through_ssh_and_that_is_said(
    near: Emulation, reached: ssh.Sshd, source: Path, tmp_path: Path, way: str
) -> None:
    # Its address leads nowhere: ssh goes through another host, as through a gateway.
    inner = tmp_path / "ssh_config"
    through = f"ssh -F {reached.home}/ssh_config -W {near.address('b')}:22 b"
    inner.write_text(
        f"Host b\nHostName 192.0.2.1\nProxyCommand {through}\nInclude {reached.home}/ssh_config\n"
    )
    there = tmp_path / "there"
    done = copied(near, f"ssh -F {inner}", *places(way, source, there), "--streams", "2")
    assert differences(source, there) == []
    (said,) = done.stderr.splitlines()
    assert all(words in said for words in ("cannot be reached", "going through ssh", "--ports")), said
    assert done.record["protection"] == "encrypted"
    # A login shell that greets is understood where it talks with ssh alone, and not among data.
    noisy = tmp_path / "noisy"
    noisy.write_text(f'#!/bin/sh\necho Welcome\nexec ssh -F {inner} "$@"\n')
    noisy.chmod(0o755)
    there = tmp_path / "nowhere"
    words = [str(FARLINK), "copy", *places(way, source, there), "--ssh", str(noisy), "--retries", "0"]
    spoiled = run([*near.command("a"), *words])
    assert spoiled.status == REFUSED, spoiled
    assert "its login shell prints it, and `ssh b true` must print nothing" in spoiled.stderr


def test_a_host_without_farlink_is_sent_it_once(
    near: Emulation, source: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if reason := ssh.missing():
        pytest.skip(reason)
    home = tmp_path / "home"
    home.mkdir()
    # On the other host, whose port nobody has.
    bare = ssh.sshd(near, "a", tmp_path_factory.mktemp("sshd"), has_farlink=False, env={"HOME": str(home)})
    with bare as running:
        said = [
            copied(near, running.command, f"{source}/", f"a:{tmp_path / name}", host="b").stderr
            for name in ("first", "second")
        ]
    assert "there is no farlink on a: sending this one" in said[0]
    assert said[1] == ""
    assert [path.parent for path in home.rglob("farlink*") if path.is_file()] == [home / ".cache" / "farlink"]
    for name in ("first", "second"):
        assert differences(source, tmp_path / name) == []


@pytest.fixture
def users_own(reached: ssh.Sshd, tmp_path: Path) -> Iterator[Path]:
    """The directory of ssh's files in the user's home, and what is to be seen there."""
    # By the password file, as ssh has it, whatever HOME says.
    home = Path(pwd.getpwuid(os.getuid()).pw_dir) / ".ssh"
    was_there = home.exists()
    home.mkdir(mode=0o700, exist_ok=True)
    mine = tmp_path / "ssh"
    mine.mkdir(mode=0o700)
    text = (reached.home / "ssh_config").read_text()
    # A name that only this file knows, and a user whom the command names.
    own = text.replace("Host *\nUser root\n", "Host elsewhere\nHostName b\nUser nobody\n")
    (mine / "config").write_text(own)
    yield mine
    if not was_there:
        home.rmdir()


@pytest.mark.parametrize("way", ["push", "pull"])
def test_ssh_itself_has_the_users_own_configuration(
    near: Emulation, users_own: Path, source: Path, tmp_path: Path, way: str
) -> None:
    there = tmp_path / "there"
    far = "root@elsewhere"
    words = (f"{source}/", f"{far}:{there}") if way == "push" else (f"{far}:{source}/", str(there))
    home = Path(pwd.getpwuid(os.getuid()).pw_dir) / ".ssh"
    seen = ("unshare", "--mount", "sh", "-c", f'mount --bind {users_own} {home} && exec "$@"', "sh")
    done = copy(*words, through=[*near.command("a"), *seen])
    assert differences(source, there) == []
    record = done.record
    assert {record["source"], record["destination"]} == {"a", "b"}
