"""Ends that know each other by keys: made, listed, refused, read again."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import random
import re
import signal
import socket
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from copy_wire import HELLO
from copying import BROKEN, NONE
from emulation import (
    COMMAND_LIMIT_S,
    FARLINK,
    Emulation,
    Ended,
    farlink,
    next_line,
    refused,
    run,
    wait_until,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

# An address of documentation (RFC 5737), which no host has: whoever comes from it is on no machine of ours.
PUBLIC = "192.0.2.7"


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """A client's and a server's files."""

    home: Path

    @classmethod
    def made(cls, home: Path) -> Keys:
        """Keys of both ends, where each knows the other as 127.0.0.1, PUBLIC and b."""
        keys = cls(home=home)
        client, server = (
            key_of(farlink("keygen", "--identity", str(home / end))) for end in ("client", "server")
        )
        keys.listed.write_text(f"# who may come\nread=/usr {client} a test\n")
        keys.known.write_text("".join(f"{host} {server}\n" for host in ("127.0.0.1:5999", PUBLIC, "b")))
        return keys

    @property
    def listed(self) -> Path:
        """The server's authorized_keys."""
        return self.home / "authorized_keys"

    @property
    def known(self) -> Path:
        """The client's known_hosts."""
        return self.home / "known_hosts"

    @property
    def of_server(self) -> list[str]:
        """The options of `farlink serve`."""
        return ["--identity", str(self.home / "server"), "--keys", str(self.listed)]

    @property
    def of_client(self) -> list[str]:
        """The options of `farlink memory`."""
        return ["--identity", str(self.home / "client"), "--known-hosts", str(self.known)]


def key_of(ended: Ended) -> str:
    """The public key that `farlink keygen` printed."""
    assert ended.status == 0, ended
    assert ended.stderr == "", ended
    kind, key = ended.stdout.split()
    assert kind == "farlink-ed25519"
    return f"{kind} {key}"


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    """Keys of both ends."""
    return Keys.made(tmp_path)


@contextlib.contextmanager
def serving(*options: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """`farlink serve` on 127.0.0.1, and its port."""
    server = subprocess.Popen(
        [str(FARLINK), "serve", "--bind", "127.0.0.1", "--port", "0", *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        line = next_line(server.stdout, server)
        assert line.startswith("listening on 127.0.0.1:")
        yield server, int(line.rsplit(":", 1)[1])
    finally:
        server.terminate()
        server.communicate(timeout=COMMAND_LIMIT_S)


def moved(keys: Keys, port: int) -> Ended:
    """What `farlink memory` says of a server with keys on 127.0.0.1 at `port`."""
    known = keys.known.read_text().replace("127.0.0.1:5999", f"127.0.0.1:{port}")
    keys.known.write_text(known)
    return farlink("memory", f"127.0.0.1:{port}", "--bytes", "1MiB", "--json", "--quiet", *keys.of_client)


def test_a_key_is_made_once_and_shown_again(tmp_path: Path) -> None:
    home = {"XDG_CONFIG_HOME": str(tmp_path)}
    made = key_of(farlink("keygen", env=home))
    path = tmp_path / "farlink" / "identity"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert key_of(farlink("keygen", "--show", env=home)) == made
    again = farlink("keygen", env=home)
    assert again.status == 2
    assert f"{path} is there already" in again.complaint
    assert key_of(farlink("keygen", "--show", "--identity", str(path))) == made


def test_a_key_that_is_missing_or_that_others_may_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "identity"
    assert f"farlink keygen --identity {path}" in refused("keygen", "--show", "--identity", str(path))
    key_of(farlink("keygen", "--identity", str(path)))
    path.chmod(0o640)
    complaint = refused("keygen", "--show", "--identity", str(path))
    assert "mode 0640" in complaint
    assert f"chmod 600 {path}" in complaint


def test_a_server_and_a_client_with_keys_move_memory(keys: Keys) -> None:
    with serving(*keys.of_server) as (_, port):
        ended = moved(keys, port)
        assert ended.status == 0, ended
        record = json.loads(ended.stdout)
        assert (record["outcome"], record["bytes"], record["protection"]) == ("ok", 1 << 20, "clear")
        # On the same machine nobody needs one.
        assert farlink("memory", f"127.0.0.1:{port}", "--bytes", "1MiB", "--quiet").status == 0


def test_keys_are_read_again_on_sighup_and_a_bad_list_changes_nothing(keys: Keys) -> None:
    listed = keys.listed.read_text()
    with serving(*keys.of_server) as (server, port):
        assert server.stderr is not None

        def reread(text: str) -> str:
            keys.listed.write_text(text)
            server.send_signal(signal.SIGHUP)
            assert server.stderr is not None
            return next_line(server.stderr, server)

        assert "0 keys are let in" in reread("# nobody\n")
        assert "lists no key" in next_line(server.stderr, server)
        ended = moved(keys, port)
        assert ended.status == 2
        assert "does not let this key in: add a line" in ended.complaint
        # Which a copy learns when it has opened everything.
        ended = farlink("copy", str(keys.listed), f"farlink://127.0.0.1:{port}/x", *keys.of_client)
        assert ended.status == 2
        assert "does not let this key in: add a line" in ended.complaint
        assert "1 key is let in" in reread(listed)
        assert moved(keys, port).status == 0
        complaint = reread(listed + "read=data x\n")
        assert f"{keys.listed}, line 3" in complaint
        assert "the keys of before stay" in complaint
        assert moved(keys, port).status == 0


def test_a_hangup_while_the_keys_are_read_for_the_first_time_ends_no_server(keys: Keys) -> None:
    listed = keys.listed.read_text()
    keys.listed.unlink()
    os.mkfifo(keys.listed, 0o600)
    command = [str(FARLINK), "serve", "--bind", "127.0.0.1", "--port", "0", *keys.of_server]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            # It is open when it is read.
            with keys.listed.open("w") as being_read:
                server.send_signal(signal.SIGHUP)
                being_read.write(listed)
            assert server.stdout is not None
            assert next_line(server.stdout, server).startswith("listening on ")
        finally:
            server.terminate()
        assert server.wait(timeout=COMMAND_LIMIT_S) == 0


def test_a_server_says_its_key_and_what_its_list_may_not_have_been_meant_to_say(
    keys: Keys, tmp_path: Path
) -> None:
    public = re.findall(r"farlink-ed25519 \S+", keys.listed.read_text())[0]
    keys.listed.write_text(f"{public} ann\n")
    with serving(*keys.of_server) as (server, port):
        assert server.stdout is not None
        assert server.stderr is not None
        own = key_of(farlink("keygen", "--show", "--identity", keys.of_server[1]))
        assert own in next_line(server.stdout, server)
        assert f"{public} (ann) may copy nothing" in next_line(server.stderr, server)
        # As ssh has it, and so one path.
        keys.listed.write_text(f"read={tmp_path},write={tmp_path} {public} ann\n")
        server.send_signal(signal.SIGHUP)
        assert "1 key is let in" in next_line(server.stderr, server)
        assert f"read={tmp_path},write={tmp_path}, which is not there" in next_line(server.stderr, server)
        for words, doubt in (
            (f"write={keys.listed} {public}\n", f"write={keys.listed}, which is no directory"),
            ("# nobody yet\n", f"{keys.listed} lists no key"),
        ):
            keys.listed.write_text(words)
            server.send_signal(signal.SIGHUP)
            assert "let in" in next_line(server.stderr, server)
            assert doubt in next_line(server.stderr, server)
        ended = farlink("copy", str(keys.listed), f"farlink://127.0.0.1:{port}{tmp_path}/x", *keys.of_client)
        assert ended.status == 2


def test_a_server_does_not_start_on_a_list_that_does_not_read(keys: Keys) -> None:
    keys.listed.write_text("read=/a/../b farlink-ed25519 AAAA\n")
    complaint = refused("serve", "--port", "0", *keys.of_server)
    assert f"{keys.listed}, line 1" in complaint
    assert complaint.count("absolute path") == 1
    keys.listed.chmod(0o666)
    assert f"chmod go-w {keys.listed}" in refused("serve", "--port", "0", *keys.of_server)


def test_a_server_takes_as_many_transfers_as_it_may(keys: Keys) -> None:
    with serving("--connections", "1", *keys.of_server) as (_, port):
        target = ["memory", f"127.0.0.1:{port}", "--quiet"]
        long = subprocess.Popen(
            [str(FARLINK), *target[:-1], "--seconds", "600", "--verbose"], stderr=subprocess.PIPE, text=True
        )
        try:
            assert long.stderr is not None
            # The first line of progress: it moves.
            next_line(long.stderr, long)
            ended = farlink(*target, "--bytes", "1MiB")
            assert ended.status == 2
            assert "the server is busy with 1 transfer: try again later" in ended.complaint
        finally:
            long.send_signal(signal.SIGINT)
            long.communicate(timeout=COMMAND_LIMIT_S)
        # Its place is free as soon as the server has noticed.
        wait_until(lambda: farlink(*target, "--bytes", "1MiB").status == 0)


def test_a_server_says_what_became_of_each_copy_and_whom_it_refused_once(keys: Keys, tmp_path: Path) -> None:
    [key] = re.findall(r"farlink-ed25519 \S+", keys.listed.read_text())
    keys.listed.write_text("# nobody\n")
    source, there = tmp_path / "source", tmp_path / "there"
    source.mkdir()
    (source / "file").write_bytes(b"content")
    (there / "file" / "in-the-way").mkdir(parents=True)
    with serving("--verbose", *keys.of_server) as (server, port):
        keys.known.write_text(keys.known.read_text().replace("127.0.0.1:5999", f"127.0.0.1:{port}"))

        def copied(*places: str) -> Ended:
            """A copy with this end's keys."""
            return run([str(FARLINK), "copy", *places, "--streams", "8", *keys.of_client])

        far = f"farlink://127.0.0.1:{port}"
        assert copied(f"{source}/", f"{far}{there}").status == 2
        keys.listed.write_text(f"read=/ write=/ {key} who\n")
        server.send_signal(signal.SIGHUP)
        assert server.stderr is not None
        told: list[str] = []
        while not told or "1 key is let in" not in told[-1]:
            told.append(next_line(server.stderr, server))
        assert len([line for line in told if "does not list" in line]) == 1, told
        assert copied(f"{source}/", f"{far}{there}").status == 1
        assert copied(f"{far}{source}/", str(tmp_path / "pulled")).status == 0
        # Its size is 0, and it has content: the sender fails, and only that knows.
        assert copied("/proc/cpuinfo", f"{far}{there}/").status == NONE
        assert copied(f"{far}/proc/cpuinfo", str(tmp_path / "pulled")).status == NONE
        rest: list[str] = []
        # Each copy has a line when it starts, and one when it has ended.
        while len(rest) < 8:
            rest.append(next_line(server.stderr, server))
    ends = [line.partition(": ")[2].strip() for line in rest if "streams" not in line]
    # What ends last of two behind each other may be said first.
    assert sorted(ends) == [
        "0B received",
        "0B sent; 1 name was not sent",
        "7B received; 1 name was not stored",
        "7B sent",
    ], rest


def test_who_is_one_client_too_many_is_told_to_try_again_later(keys: Keys, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"what is copied")
    [key] = re.findall(r"farlink-ed25519 \S+", keys.listed.read_text())
    keys.listed.write_text(f"read=/ write=/ {key} who\n")
    with serving("--connections", "1", *keys.of_server) as (_, port), contextlib.ExitStack() as open_ends:
        keys.known.write_text(keys.known.read_text().replace("127.0.0.1:5999", f"127.0.0.1:{port}"))
        # Two that are talked with, as the greeting shows, and ask for nothing.
        for _ in range(2):
            peer = open_ends.enter_context(socket.create_connection(("127.0.0.1", port)))
            peer.sendall(HELLO)
            assert peer.recv(len(HELLO), socket.MSG_WAITALL) == HELLO
        there = f"farlink://127.0.0.1:{port}{tmp_path / 'copied'}"
        copied = run([str(FARLINK), "copy", str(source), there, "--retries", "0", *keys.of_client])
        measured = farlink("memory", f"127.0.0.1:{port}", "--quiet", "--bytes", "1MiB")
        words = "the server talks with 2 clients already: try again later"
        assert words in copied.stderr
        assert words in measured.complaint
        assert (copied.status, measured.status) == (BROKEN, 2)


def test_a_transfer_that_takes_more_memory_than_a_server_may_is_refused(keys: Keys) -> None:
    assert "--memory 5MiB is less than any transfer takes: write at least 6MiB" in refused(
        "serve", "--port", "0", "--memory", "5MiB", *keys.of_server
    )
    with serving("--memory", "16MiB", *keys.of_server) as (server, port):
        assert server.stderr is not None
        assert "so that none will be served: that is 27MiB and more" in next_line(server.stderr, server)
        asked = ["memory", f"127.0.0.1:{port}", "--quiet", "--bytes", "1MiB", "--streams"]
        ended = farlink(*asked, "64")
        assert ended.status == 2
        assert "all together may take 16MiB: ask for fewer streams" in ended.complaint
        assert farlink(*asked, "1").status == 0


def test_a_copy_is_one_of_the_transfers_that_a_server_takes(keys: Keys, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(random.Random(5).randbytes(8 << 20))
    [key] = re.findall(r"farlink-ed25519 \S+", keys.listed.read_text())
    keys.listed.write_text(f"read=/ write=/ {key} who\n")
    with serving("--connections", "1", *keys.of_server) as (_, port):
        known = keys.known.read_text().replace("127.0.0.1:5999", f"127.0.0.1:{port}")
        keys.known.write_text(known)

        def copy(name: str, *options: str) -> list[str]:
            """A copy to the server."""
            there = f"farlink://127.0.0.1:{port}{tmp_path / name}"
            return [str(FARLINK), "copy", str(source), there, "--json", *options, *keys.of_client]

        words = copy("first", "--limit", "4mbit")
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as first:
            assert first.stdout is not None
            next_line(first.stdout, first)
            ended = run(copy("second", "--retries", "0"))
            assert (ended.status, (tmp_path / "second").exists()) == (BROKEN, False), ended
            assert "the server is busy with 1 transfer: try again later" in ended.stderr
            first.send_signal(signal.SIGINT)
            assert first.wait(timeout=COMMAND_LIMIT_S) == 130
        wait_until(lambda: run(copy("second")).status == 0)
        assert (tmp_path / "second").read_bytes() == source.read_bytes()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_server_becomes_the_user_that_it_is_told(keys: Keys) -> None:
    nobody = pwd.getpwnam("nobody")
    os.chown(keys.listed, nobody.pw_uid, -1)
    with serving("--user", "nobody", *keys.of_server) as (server, port):
        status = Path(f"/proc/{server.pid}/status").read_text()
        rows = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        assert rows["Uid"].split() == [str(nobody.pw_uid)] * 4
        assert rows["Gid"].split() == [str(nobody.pw_gid)] * 4
        assert int(rows["CapEff"], 16) == int(rows["CapPrm"], 16) == 0
        assert moved(keys, port).status == 0
        # Whom it became does not reach the directory of the list: that is said before anybody relies on it.
        server.terminate()
        assert "SIGHUP will change nothing before nobody may read" in server.communicate(timeout=20)[1]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_server_that_became_another_user_reads_its_keys_again() -> None:
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        keys = Keys.made(Path(place))
        keys.listed.chmod(0o644)
        with serving("--user", "nobody", *keys.of_server) as (server, port):
            assert moved(keys, port).status == 0
            keys.listed.write_text("# nobody\n")
            server.send_signal(signal.SIGHUP)
            assert server.stderr is not None
            assert next_line(server.stderr, server) == "farlink: 0 keys are let in\n"


@pytest.fixture(scope="module")
def public() -> Iterator[Emulation]:
    """Two hosts, of which b has a public address too, and a knows the way."""
    with Emulation(options=["--rate", "1gbit", "--rtt", "10ms"]) as emulation:
        emulation.output("b", "ip", "address", "add", f"{PUBLIC}/32", "dev", "lo")
        emulation.output("a", "ip", "route", "add", f"{PUBLIC}/32", "via", "198.18.0.2")
        yield emulation


def test_others_than_this_machine_need_a_key(public: Emulation, keys: Keys, tmp_path: Path) -> None:
    with public.background("b", str(FARLINK), "serve", "--port", "0", *keys.of_server) as server:
        assert server.stdout is not None
        port = int(next_line(server.stdout, server).rsplit(":", 1)[1])
        keys.known.write_text(keys.known.read_text().replace(f"{PUBLIC} ", f"{PUBLIC}:{port} "))
        memory = [str(FARLINK), "memory", f"{PUBLIC}:{port}", "--bytes", "1MiB", "--json", "--quiet"]
        assert json.loads(public.output("a", *memory, *keys.of_client))["outcome"] == "ok"
        # Over the emulated connection memory needs none.
        assert public.on("a", str(FARLINK), "memory", f"b:{port}", "--bytes", "1MiB", "--quiet").status == 0
        # Whoever has none is told before anything is said to the server.
        without = run(public.command("a", *memory), env={"XDG_CONFIG_HOME": str(tmp_path / "none")})
        assert without.status == 2
        assert "farlink keygen" in without.stderr
        # And whoever would say it in clear is not heard.
        script = (
            "import socket,sys\n"
            f"s=socket.create_connection(('{PUBLIC}',{port}),20)\n"
            "s.sendall(b'farlink\\n\\0\\1')\n"
            "got=b''\n"
            "while chunk:=s.recv(4096): got+=chunk\n"
            "sys.stdout.write(repr(got))"
        )
        said = public.output("a", "python3", "-c", script)
        assert f"{PUBLIC} takes clients with keys only" in said


def test_a_server_without_keys_does_not_listen_where_others_reach_it(public: Emulation) -> None:
    ended = public.on("b", str(FARLINK), "serve", "--bind", PUBLIC, "--port", "0")
    assert ended.status == 2
    assert f"others than this machine reach {PUBLIC}, and there are no keys" in ended.complaint


def test_a_server_whose_key_is_unknown_or_another_is_told_with_the_mend(keys: Keys) -> None:
    with serving(*keys.of_server, "--verbose") as (server, port):
        known = keys.known.read_text()
        keys.known.write_text("")
        ended = moved(keys, port)
        shown = known.split()[1:3]
        assert ended.status == 2
        assert f"add this line to {keys.known}: 127.0.0.1:{port} {' '.join(shown)}" in ended.stderr
        # Whoever runs the server sees whose list it is.
        assert server.stderr is not None
        assert "the client does not trust this server's key" in next_line(server.stderr, server)
        other = key_of(farlink("keygen", "--identity", str(keys.home / "other")))
        keys.known.write_text(f"127.0.0.1:{port} {other}\n")
        ended = moved(keys, port)
        assert ended.status == 2
        assert f"{keys.known}, line 1, has {other}: somebody may be in between" in ended.stderr
