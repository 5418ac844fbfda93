"""The far end that ssh starts: by hand, and through a real sshd between emulated hosts."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from typing import TYPE_CHECKING

import pytest

import ssh
from copy_wire import VERSION
from emulation import COMMAND_LIMIT_S, FARLINK, MARK, Emulation, farlink, next_line
from test_keys import key_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


# Where its public key goes.
CLIENT = "CLIENT"


@pytest.fixture
def client(tmp_path: Path) -> str:
    """The public key of a client, whose identity is in `tmp_path`."""
    return key_of(farlink("keygen", "--identity", str(tmp_path / "identity")))


def options(tmp_path: Path, place: str, key: object) -> list[str]:
    """Those of `farlink memory` to a far end at `place` that shows `key`."""
    known = tmp_path / "known_hosts"
    known.write_text(f"{place} {key}\n")
    return ["--identity", str(tmp_path / "identity"), "--known-hosts", str(known)]


def far_end(command: list[str], invitation: str, mark: str = "") -> subprocess.Popen[str]:
    """`farlink far-end`, which `command` starts, and which has heard `invitation`."""
    far = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, MARK: mark},
    )
    assert far.stdin is not None
    far.stdin.write(invitation + "\n")
    far.stdin.flush()
    return far


def answer_of(far: subprocess.Popen[str]) -> dict[str, object]:
    """What it answers."""
    assert far.stdout is not None
    mark, body = next_line(far.stdout, far).split(" ", 1)
    assert mark == "farlink-far-end"
    answer: dict[str, object] = json.loads(body)
    return answer


def ended(far: subprocess.Popen[str]) -> int:
    """Its exit code, once nobody can say anything to it any more."""
    assert far.stdin is not None
    far.stdin.close()
    return far.wait(timeout=COMMAND_LIMIT_S)


def test_a_far_end_listens_as_it_is_asked_and_ends_with_its_input(client: str, tmp_path: Path) -> None:
    asked = json.dumps({"version": VERSION, "key": client, "bind": "127.0.0.1", "ports": "46310-46390"})
    far = far_end([str(FARLINK), "far-end"], asked)
    ready = answer_of(far)["ready"]
    assert isinstance(ready, dict)
    assert ready["host"] == socket.gethostname()
    port = ready["port"]
    assert 46310 <= port < 46390
    memory = ["memory", f"127.0.0.1:{port}", "--bytes", "1MiB", "--quiet"]
    moved = farlink(*memory, *options(tmp_path, f"127.0.0.1:{port}", ready["key"]))
    assert moved.status == 0, moved
    # Nobody else, from this machine neither.
    refused = farlink(*memory)
    assert refused.status == 2
    assert "takes clients with keys only" in refused.complaint
    assert ended(far) == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 20)


@pytest.mark.parametrize(
    ("invitation", "words"),
    [
        ({"version": 9}, "version 9"),
        ("hello", "malformed"),
        ({"version": VERSION, "key": "farlink-ed25519 AAAA"}, "malformed"),
        ({"version": VERSION, "key": CLIENT, "bind": "192.0.2.1"}, "listen on 192.0.2.1"),
        ({"version": VERSION, "key": CLIENT, "ports": "9-8"}, "malformed"),
    ],
)
def test_a_far_end_answers_why_it_cannot(
    client: str, invitation: str | dict[str, object], words: str
) -> None:
    asked = invitation if isinstance(invitation, str) else json.dumps(invitation).replace(CLIENT, client)
    far = far_end([str(FARLINK), "far-end"], asked)
    assert words in str(answer_of(far)["failed"])
    assert far.wait(timeout=COMMAND_LIMIT_S) == 2


@pytest.fixture(scope="module")
def reached(pair: Emulation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ssh.Sshd]:
    """An sshd on host b of the pair."""
    if reason := ssh.missing():
        pytest.skip(reason)
    with ssh.sshd(pair, "b", tmp_path_factory.mktemp("sshd")) as running:
        yield running


def test_ssh_starts_a_far_end_that_is_reached_beside_it(
    pair: Emulation, reached: ssh.Sshd, client: str, tmp_path: Path
) -> None:
    command = pair.command("a", *reached.words("b", "farlink far-end"))
    far = far_end(command, json.dumps({"version": VERSION, "key": client}), pair.mark)
    ready = answer_of(far)["ready"]
    assert isinstance(ready, dict)
    place = f"b:{ready['port']}"
    memory = [str(FARLINK), "memory", place, "--bytes", "1MiB", "--json", "--quiet"]
    record = json.loads(pair.output("a", *memory, *options(tmp_path, place, ready["key"])))
    assert (record["outcome"], record["bytes"]) == ("ok", 1 << 20)
    assert ended(far) == 0
    assert pair.on("a", *memory, *options(tmp_path, place, ready["key"])).status == 2


def test_a_channel_through_ssh_joins_the_far_ends_port(
    pair: Emulation, reached: ssh.Sshd, client: str
) -> None:
    command = pair.command("a", *reached.words("b", "farlink far-end"))
    far = far_end(command, json.dumps({"version": VERSION, "key": client, "bind": "127.0.0.1"}), pair.mark)
    ready = answer_of(far)["ready"]
    assert isinstance(ready, dict)
    channel = reached.words("b", f"farlink far-end --channel 127.0.0.1:{ready['port']}")
    # A greeting in clear is answered through the channel, and refused.
    said = pair.on("a", *channel, stdin="farlink\n")
    assert said.status == 0, said
    assert "takes clients with keys only" in said.stdout
    assert ended(far) == 0
    assert "Connection refused" in pair.on("a", *channel).stderr
