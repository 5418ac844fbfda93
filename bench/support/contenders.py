"""Who copies: ours and its peers, each with the server that it needs on host b and its command on host a."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from farlink_lab.movers import files
from farlink_lab.movers.rsync import CONFIGURATION as RSYNC_CONFIGURATION

from support.connection import FARLINK, ROOT, Connection, served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

WORK = ROOT / "target" / "bench-copies"
GRIDFTP_PORT, RSYNC_PORT, SSH_PORT, OURS_PORT, KEYED_PORT = 2811, 8873, 2222, 5210, 5310
READY_LIMIT_S = 30.0
# Command : Debian's package that has it.
NEEDED = {
    "globus-url-copy": "globus-gass-copy-progs",
    "globus-gridftp-server": "globus-gridftp-server-progs",
    "rsync": "rsync",
    "sshd": "openssh-server",
    "ssh": "openssh-client",
    "rclone": "rclone",
    "ss": "iproute2",
}


def need() -> None:
    """Ends the bench, with what to install, where something is missing."""
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    missing = sorted({package for command, package in NEEDED.items() if shutil.which(command) is None})
    if missing:
        install = f"apt-get install --no-install-recommends {' '.join(missing)}"
        raise SystemExit(f"the peers need {', '.join(missing)}, on Debian: {install}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is copied, on host a, and where to, on host b.

    Attributes:
        source: A file, a directory, or what has no end, of which `length` bytes are read.
        destination: What it is on host b.

    """

    source: str
    destination: str
    length: int | None = None
    tree: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One way of copying.

    Attributes:
        server: The server that it needs, by its name in `serving`.
        command: What runs on host a.
        ours: Whether it leaves a record of ours.
        again: Whether it begins with what a copy before it showed of the path.

    """

    name: str
    server: str
    command: Callable[[Connection, Job], list[str]]
    ours: bool = False
    again: bool = False


def ours(name: str, *options: str, way: str = "clear", again: bool = False) -> Contender:
    """`farlink copy` to a `farlink serve`: in `clear` without keys, `keyed`, or by `ssh`.

    What it remembers of paths is used and kept where it is to begin `again`, and not at all elsewhere.
    """
    remembers = ["env", f"XDG_STATE_HOME={WORK / 'state'}"] if again else []
    forgets = [] if again else ["--no-careful-resume"]

    def command(connection: Connection, job: Job) -> list[str]:
        if way == "ssh":
            place = f"root@{connection.address('b')}:{job.destination}"
            reach = ["--ssh", f"ssh -F {WORK / 'ssh' / 'client'}"]
        else:
            port = OURS_PORT if way == "clear" else KEYED_PORT
            place = f"farlink://{connection.address('b')}:{port}{job.destination}"
            reach = ["--protect", "clear", "--no-auth"] if way == "clear" else keyed_options()
        length = [] if job.length is None else ["--length", f"{job.length}B"]
        return [*remembers, FARLINK, "copy", job.source, place, *reach, *length, *forgets, *options]

    server = {"clear": "farlink", "keyed": "farlink with keys", "ssh": "sshd"}[way]
    return Contender(name=name, server=server, command=command, ours=True, again=again)


def gridftp(streams: int, *options: str, buffer: int | None = 128 << 20) -> Contender:
    """`globus-url-copy -fast` by `streams` streams, with socket buffers of `buffer` bytes or the kernel's."""

    def command(connection: Connection, job: Job) -> list[str]:
        words = ["globus-url-copy", "-fast", "-p", str(streams), *options]
        if buffer is not None:
            words += ["-tcp-bs", str(buffer)]
        if job.length is not None:
            words += ["-len", str(job.length)]
        slash = "/" if job.tree else ""
        far = f"ftp://{connection.address('b')}:{GRIDFTP_PORT}{job.destination}{slash}"
        return [*words, *(["-r", "-cd"] if job.tree else []), f"file://{job.source}{slash}", far]

    said = " ".join(("-fast", f"-p {streams}", *options))
    buffers = "" if buffer is None else f", {buffer >> 20} MiB"
    return Contender(name=f"globus-url-copy {said}{buffers}", server="gridftp", command=command)


def rsync() -> Contender:
    """Rsync to its daemon, without ssh."""

    def command(connection: Connection, job: Job) -> list[str]:
        name = Path(job.destination).name
        far = f"rsync://{connection.address('b')}:{RSYNC_PORT}/farlink/{name}"
        return ["rsync", "-a", f"{job.source}/" if job.tree else job.source, far]

    return Contender(name="rsync, daemon", server="rsync", command=command)


def tar() -> Contender:
    """What tar makes, through ssh."""

    def command(connection: Connection, job: Job) -> list[str]:
        ssh = f"ssh -F {WORK / 'ssh' / 'client'} root@{connection.address('b')}"
        far = f"mkdir -p {job.destination} && tar -C {job.destination} -xf -"
        return ["sh", "-c", f"tar -C {job.source} -cf - . | {ssh} '{far}'"]

    return Contender(name="tar over ssh", server="sshd", command=command)


def rclone(transfers: int) -> Contender:
    """Rclone over sftp, so many files at a time, without a process at the far end for the digest of each."""

    def command(connection: Connection, job: Job) -> list[str]:
        far = (
            f":sftp,host={connection.address('b')},port={SSH_PORT},user=root,"
            f"key_file={WORK / 'ssh' / 'key'},shell_type=unix,"
            f"disable_hashcheck=true:{job.destination}"
        )
        many = ["--transfers", str(transfers), "--checkers", str(transfers)]
        # No configuration of whoever runs the bench.
        return ["rclone", "--config", "/dev/null", "copy", *many, job.source, far]

    return Contender(name=f"rclone sftp, {transfers} at a time", server="sshd", command=command)


def keyed_options() -> list[str]:
    """What a client needs that shows a key."""
    return ["--identity", str(WORK / "keys" / "client"), "--known-hosts", str(WORK / "keys" / "known")]


def make_keys() -> None:
    """Keys for ours and for ssh, once."""
    keys, ssh = WORK / "keys", WORK / "ssh"
    for directory in (keys, ssh):
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True, mode=0o700)
    for end in ("client", "server"):
        command = [FARLINK, "keygen", "--identity", str(keys / end)]
        said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        line = next(line for line in said.splitlines() if "farlink-ed25519 " in line)
        (keys / f"{end}.pub").write_text(line[line.index("farlink-ed25519") :] + "\n")
    (keys / "authorized").write_text(f"read=/ write=/ {(keys / 'client.pub').read_text()}")
    for name in ("key", "host"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(ssh / name)]
        subprocess.run(command, check=True)
    shutil.copy(ssh / "key.pub", ssh / "authorized")
    # What ssh starts by the name farlink is what is measured.
    (WORK / "bin").mkdir(exist_ok=True)
    (WORK / "bin" / "farlink").unlink(missing_ok=True)
    (WORK / "bin" / "farlink").symlink_to(Path(FARLINK).resolve())
    # A home without start-up files: what they take is nobody's to measure.
    (WORK / "home").mkdir(exist_ok=True)
    (ssh / "server").write_text(
        f"Port {SSH_PORT}\nHostKey {ssh / 'host'}\nAuthorizedKeysFile {ssh / 'authorized'}\n"
        "PermitRootLogin prohibit-password\nPasswordAuthentication no\nUsePAM no\nStrictModes no\n"
        "PidFile none\nSubsystem sftp internal-sftp\n"
        f"SetEnv PATH={WORK / 'bin'}:/usr/bin:/bin HOME={WORK / 'home'}\n"
    )
    (ssh / "client").write_text(
        f"Port {SSH_PORT}\nIdentityFile {ssh / 'key'}\nIdentitiesOnly yes\nStrictHostKeyChecking no\n"
        "UserKnownHostsFile /dev/null\nLogLevel ERROR\nControlMaster no\n"
    )


@contextlib.contextmanager
def serving(connection: Connection, server: str) -> Iterator[None]:
    """The server of that name on host b, from when it listens until the context ends."""
    if server == "sshd":
        # Where sshd wants to be; Debian makes it when the service starts.
        Path("/run/sshd").mkdir(exist_ok=True)
    key = ("--keys", str(WORK / "keys" / "authorized"), "--identity", str(WORK / "keys" / "server"))
    keyed = (FARLINK, "serve", "--port", str(KEYED_PORT), "--bind", connection.address("b"), *key)
    gridftp = (*files.UNPRIVILEGED, "globus-gridftp-server", "-c", "/dev/null", "-s", "-aa")
    rsync = (*files.UNPRIVILEGED, "rsync", "--daemon", "--no-detach", f"--config={RSYNC_CONFIGURATION}")
    # Ours says when it listens; of the others the port is looked at.
    known = f"{connection.address('b')}:{KEYED_PORT} {(WORK / 'keys' / 'server.pub').read_text()}"
    (WORK / "keys" / "known").write_text(known)
    commands: dict[str, tuple[Sequence[str], int | None]] = {
        "farlink": ((FARLINK, "serve", "--port", str(OURS_PORT), "--no-auth"), None),
        "farlink with keys": (keyed, None),
        "gridftp": ((*gridftp, "-p", str(GRIDFTP_PORT)), GRIDFTP_PORT),
        "rsync": ((*rsync, f"--port={RSYNC_PORT}", "--log-file=/dev/null"), RSYNC_PORT),
        "sshd": (("/usr/sbin/sshd", "-D", "-e", "-f", str(WORK / "ssh" / "server")), SSH_PORT),
    }
    command, port = commands[server]
    process = connection.start("b", *command)
    try:
        if port is None:
            served(process, "listening on")
        else:
            _wait_for(connection, port, process)
        yield
    finally:
        process.terminate()
        process.wait()


def _wait_for(connection: Connection, port: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + READY_LIMIT_S
    while not connection.run("b", "ss", "-Hltn", "sport", "=", f":{port}").strip():
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"{process.args!r} does not listen on port {port}")
        time.sleep(0.05)
