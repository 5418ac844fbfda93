"""`farlink copy` run through the command line, and what came of it looked at from outside."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import select
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emulation import FARLINK, MARK, START_LIMIT_S, Emulation, Ended, farlink, marked, next_line, run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# What the program says with its exit code.
DONE, SOME_FAILED, REFUSED, BROKEN, NONE, INTERRUPTED = 0, 1, 2, 3, 4, 130

# Bytes of a block of every file of less than 256 GiB, and of the largest file that has none.
BLOCK = 1 << 20
MOST_PACKED = 256 << 10

# Where what meddles with connections listens.
MEDDLED_PORT = 7000

_PORTS = itertools.count(5210, 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """A copy that has ended, and what it said with `--json`."""

    status: int
    stderr: str
    names: dict[str, dict[str, Any]]
    progress: list[dict[str, Any]]
    records: list[dict[str, Any]]

    @property
    def record(self) -> dict[str, Any]:
        """The transfer's record."""
        (record,) = self.records
        return record

    def outcome(self, path: str) -> str:
        """What became of the name `path`."""
        return str(self.names[path]["outcome"])


def command(*args: str | os.PathLike[str]) -> list[str]:
    """The command line of a copy that tells a program how it goes."""
    return [str(FARLINK), "copy", *(os.fspath(each) for each in args), "--json"]


def copy(*args: str | os.PathLike[str], through: Sequence[str] = (), status: int = DONE) -> Copied:
    """A copy run to its end, which must be `status`; `through` is what it is run by."""
    ended = run([*through, *command(*args)])
    copied = understood(ended)
    assert copied.status == status, ended
    return copied


def understood(ended: Ended) -> Copied:
    """What a copy with `--json` said."""
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    told = [line for line in lines if "outcome" in line and "path" in line]
    # A directory may be made, and what is in it not be read: that it failed in part is what counts.
    names = {line["path"]: line for line in sorted(told, key=lambda line: str(line["outcome"] == "failed"))}
    return Copied(
        status=ended.status,
        stderr=ended.stderr,
        names=names,
        progress=[line["progress"] for line in lines if "progress" in line],
        records=[line for line in lines if "schema" in line],
    )


def differences(source: Path, destination: Path) -> list[str]:
    """What rsync would still do to make `destination` the same tree as `source`, FIFOs and the like apart."""
    options = ["-an", "--no-D", "--info=nonreg0", "--checksum", "--itemize-changes", "--delete"]
    ended = run(["rsync", *options, f"{source}/", f"{destination}/"])
    assert ended.status == 0, ended
    return ended.stdout.splitlines()


def leftovers(directory: Path) -> list[str]:
    """Names of partial files, journals and the like beneath `directory`."""
    return [str(path) for path in directory.rglob(".farlink-*")]


def listing(directory: Path) -> dict[bytes, str]:
    """Every name beneath `directory`, and whether it is a file (with its content), a link or a directory."""
    found = {}
    root = os.fsencode(directory)
    for base, directories, files in os.walk(root):
        for name in (*directories, *files):
            path = os.path.join(base, name)  # noqa: PTH118 - names are bytes
            relative = os.path.relpath(path, root)
            if os.path.islink(path):  # noqa: PTH114
                found[relative] = f"link {os.fsdecode(os.readlink(path))}"  # noqa: PTH115
            elif os.path.isdir(path):  # noqa: PTH112
                found[relative] = "directory"
            else:
                found[relative] = f"file {Path(os.fsdecode(path)).read_bytes().hex()}"
    return found


def modified_ns(path: Path) -> int:
    """Its own modification time, in nanoseconds, also of a symbolic link."""
    return path.stat(follow_symlinks=False).st_mtime_ns


def flip(path: Path, at: int) -> None:
    """Change one bit of the byte at `at`."""
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 0x10]))


@dataclass(slots=True, kw_only=True)
class Ends:
    """A client on host a of an emulated connection and a `farlink serve` on host b, with the same files."""

    emulation: Emulation
    serve_options: Sequence[str]
    copy_options: Sequence[str]
    # One of its own: servers of several tests may be on one host.
    port: int = field(default_factory=lambda: next(_PORTS))
    server: subprocess.Popen[str] | None = field(default=None)
    server_pid: int = field(default=0)

    @property
    def on_client(self) -> list[str]:
        """What a command is run by on the client's host."""
        return self.emulation.command("a")

    def far(self, path: Path | str) -> str:
        """`path` as the client names it on the server's host."""
        return f"farlink://{self.emulation.address('b')}:{self.port}{path}"

    def copy(self, *args: str | os.PathLike[str], status: int = DONE) -> Copied:
        """A copy from or to the server, run to its end."""
        return copy(*args, *self.copy_options, through=self.on_client, status=status)

    @property
    def serve_command(self) -> list[str]:
        """What is run on the server's host."""
        return [str(FARLINK), "serve", "--port", str(self.port), *self.serve_options]

    def start_server(self) -> None:
        """Start it, and wait until it listens."""
        self.server = subprocess.Popen(
            self.emulation.command("b", *self.serve_command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, MARK: self.emulation.mark},
        )
        assert self.server.stdout is not None
        assert next_line(self.server.stdout, self.server).startswith("listening on ")
        # Found now: when it is to be ended, what goes on is not to end meanwhile.
        self.server_pid = self.server_process()

    def server_process(self) -> int:
        """The server's own process, which another started."""
        (found,) = processes(self.emulation, f"serve --port {self.port}")
        return found

    def restart_server(self) -> None:
        """End it as a failing machine would, and start it again."""
        os.kill(self.server_pid, signal.SIGKILL)
        assert self.server is not None
        self.server.wait(timeout=START_LIMIT_S)
        self.start_server()

    def stop_server(self) -> None:
        """End it, where it runs."""
        if self.server is not None and self.server.poll() is None:
            self.server.terminate()
            self.server.wait(timeout=START_LIMIT_S)

    @contextlib.contextmanager
    def copying(self, *args: str | os.PathLike[str]) -> Iterator[Running]:
        """A copy that is going on."""
        with going(
            command(*args, *self.copy_options), through=self.on_client, emulation=self.emulation
        ) as it:
            yield it


@contextlib.contextmanager
def ends(emulation: Emulation, *, keys: Keys | None = None, protect: str = "clear") -> Iterator[Ends]:
    """Both ends, the server running, until the context ends; without `keys`, nobody needs one."""
    both = Ends(
        emulation=emulation,
        serve_options=["--no-auth"] if keys is None else keys.serve_options,
        copy_options=["--protect", protect, *(["--no-auth"] if keys is None else keys.copy_options)],
    )
    if keys is not None:
        keys.make_known(emulation.address("b"), both.port, MEDDLED_PORT)
    try:
        both.start_server()
        yield both
    finally:
        both.stop_server()


class Keys:
    """A directory with the identities of both ends, and who may do what."""

    def __init__(self, directory: Path, *, grant: str = "read=/ write=/") -> None:
        self.directory = directory
        self.public = {}
        for end in ("client", "server"):
            ended = farlink("keygen", "--identity", str(directory / end))
            assert ended.status == 0, ended
            found = re.search(r"farlink-ed25519 \S+", ended.stdout)
            assert found, ended
            self.public[end] = found[0]
        self.authorized, self.known = directory / "authorized_keys", directory / "known_hosts"
        self.authorized.write_text(f"{grant} {self.public['client']} of a test\n")

    def make_known(self, address: str, *ports: int) -> None:
        """Have the client know the server at `address`, and no other."""
        self.known.write_text("".join(f"{address}:{port} {self.public['server']}\n" for port in ports))

    @property
    def serve_options(self) -> list[str]:
        """What a server is given."""
        return ["--keys", str(self.authorized), "--identity", str(self.directory / "server")]

    @property
    def copy_options(self) -> list[str]:
        """What a client is given."""
        return ["--identity", str(self.directory / "client"), "--known-hosts", str(self.known)]


def processes(emulation: Emulation, verb: str) -> list[int]:
    """The processes of `farlink VERB` on emulated hosts, without those by which they were started."""
    return [each for each, said in marked(emulation.mark).items() if said.startswith(f"{FARLINK} {verb} ")]


@dataclass(slots=True, kw_only=True)
class Running:
    """A copy that is going on."""

    process: subprocess.Popen[bytes]
    emulation: Emulation | None
    # What the receiver has acknowledged, as far as it was told.
    acknowledged: int = 0
    said: bytes = b""
    seen: int = 0
    # The processes of the copy on emulated hosts, once it has said something.
    victims: list[int] = field(default_factory=list)

    def wait_for(self, count: int) -> None:
        """Wait until the receiver has acknowledged `count` bytes."""
        while self.acknowledged < count:
            line = json.loads(self._next_line())
            assert "schema" not in line, f"it ended before it had {count} bytes: {line}"
            self.acknowledged = max(self.acknowledged, line.get("progress", {}).get("bytes", 0))

    def _next_line(self) -> bytes:
        assert self.process.stdout is not None
        descriptor = self.process.stdout.fileno()
        while (end := self.said.find(b"\n", self.seen)) < 0:
            ready, _, _ = select.select([descriptor], [], [], START_LIMIT_S)
            more = os.read(descriptor, 1 << 16) if ready else b""
            assert more, f"no line within {START_LIMIT_S} s, or it ended: {self.said.decode()}"
            self.said += more
        line = self.said[self.seen : end]
        self.seen = end + 1
        # It is itself by now, and goes on: when it is to be signalled there may be little time.
        if self.emulation is not None and not self.victims:
            self.victims = processes(self.emulation, "copy")
        return line

    def send(self, what: signal.Signals) -> None:
        """Signal the copy itself, not what started it."""
        victims = self.victims
        if self.emulation is None:
            victims = [self.process.pid]
        elif not victims:
            victims = processes(self.emulation, "copy")
        assert victims
        for each in victims:
            os.kill(each, what)

    def wait(self) -> int:
        """Its exit code, when it has ended."""
        self.process.communicate(timeout=2 * START_LIMIT_S)
        return self.process.returncode

    def ended(self) -> Copied:
        """What it said by its end."""
        stdout, stderr = self.process.communicate(timeout=2 * START_LIMIT_S)
        whole = (self.said + stdout).decode()
        return understood(Ended(status=self.process.returncode, stdout=whole, stderr=stderr.decode()))


@contextlib.contextmanager
def going(
    words: Sequence[str], *, through: Sequence[str] = (), emulation: Emulation | None = None
) -> Iterator[Running]:
    """`words` running until the context ends."""
    mark = {} if emulation is None else {MARK: emulation.mark}
    process = subprocess.Popen(
        [*through, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **mark},
    )
    try:
        yield Running(process=process, emulation=emulation)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
