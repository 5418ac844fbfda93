"""Who sends to a group: `farlink cast` and its peers, each with what its receivers and its sender run."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from support.connection import FARLINK

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.cast.star import Star

GROUP = "239.1.1.1:7000"
NULL = "null:"
SMALL_BUFFER = 64 << 10
# What UFTP allows at most; the kernel grants `net.core.rmem_max` of it.
LARGE_BUFFER = 104_857_600
# Headers and extensions of UFTP, by its manual, and IP's and UDP's.
UFTP_HEADERS = 100
# Its largest block: 8850 is refused.
UFTP_BLOCK = 8800
UDPCAST_RENDEZVOUS, UDPCAST_DATA = "239.2.1.1", "239.2.1.2"
NEEDED = {
    "uftp": "uftp",
    "uftpd": "uftp",
    "udp-sender": "udpcast",
    "udp-receiver": "udpcast",
    "ip": "iproute2",
}


def need() -> None:
    """Ends the bench, with what to install, where something is missing."""
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    missing = sorted({package for command, package in NEEDED.items() if shutil.which(command) is None})
    if missing:
        install = f"apt-get install --no-install-recommends {' '.join(missing)}"
        raise SystemExit(f"the bench needs {', '.join(missing)}, on Debian: {install}")


@cache
def offers(verb: str, option: str) -> bool:
    """Whether `farlink cast VERB` has an option."""
    said = subprocess.run([FARLINK, "cast", verb, "--help"], stdout=subprocess.PIPE, text=True, check=True)
    return f"{option} " in said.stdout


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is sent.

    Attributes:
        source: A file, or a directory, on the sender's host.
        into: A directory on each receiver's host, or `null:`.
        rate_bps: Of the wire; `None` for as fast as the tool can.
        mtu: Of every link, bytes.
        files: How many arrive at each receiver.
        tree: Whether `source` is a directory.

    """

    source: str
    into: str
    rate_bps: int | None
    mtu: int
    files: int = 1
    tree: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Caster:
    """One way of sending to a group.

    Attributes:
        receive: What runs on a receiver's host, with a receive buffer of so many bytes, or a large one.
        send: What runs on the sender's host.
        program: The process of `receive` that reads the group's packets.
        ready: Words of a receiver that waits.
        began: Words of the sender before its first packet of data; ours has that in its record.
        stored: Words of a receiver for each file, or for the only stream that it gets.
        streams: Whether all files are one stream, and `stored` is said once.
        ours: Whether both ends leave records.

    """

    name: str
    receive: Callable[[Star, str, Job, int | None], list[str]]
    send: Callable[[Star, Job], list[str]]
    program: str
    ready: str
    began: str
    stored: str
    streams: bool = False
    ours: bool = False


def ours(
    name: str = "farlink cast", *options: str, rate: str | None = None, receive: tuple[str, ...] = ()
) -> Caster:
    """`farlink cast`, with more options of its sender; `rate` in place of the job's."""

    def receiver(_: Star, __: str, job: Job, buffer: int | None) -> list[str]:
        size = [] if buffer is None else ["--buffer", f"{buffer}B"]
        into = ["--into", job.into, "--once", "--json", "--no-auth"]
        return [FARLINK, "cast", "receive", "--group", GROUP, *into, *size, *receive]

    def sender(star: Star, job: Job) -> list[str]:
        wanted = rate or (f"{job.rate_bps}bit" if job.rate_bps else "auto")
        many = ["--receivers", str(len(star.receivers)), "--json", "--no-auth"]
        slash = "/" if job.tree else ""
        return [
            *(FARLINK, "cast", "send", "--group", GROUP, "--rate", wanted),
            *(*many, *options, job.source + slash),
        ]

    return Caster(
        name=name,
        receive=receiver,
        send=sender,
        program=FARLINK,
        ready='"ready"',
        began="",
        stored='"stored"',
        ours=True,
    )


def uftp(name: str = "UFTP", *options: str, rate_kbps: int | None = None) -> Caster:
    """UFTP, with more options of its sender; `rate_kbps` in place of the job's, -1 for as fast as it can."""

    def identifier(star: Star, host: str) -> str:
        return "0x" + "".join(f"{int(part):02X}" for part in star.address(host).split("."))

    def receiver(star: Star, host: str, job: Job, buffer: int | None) -> list[str]:
        size = str(LARGE_BUFFER if buffer is None else buffer)
        place = ["-D", job.into, "-I", star.interface(host), "-U", identifier(star, host)]
        return ["uftpd", "-d", "-t", "-q", "-B", size, "-c", "20971520", *place]

    def sender(star: Star, job: Job) -> list[str]:
        rate = rate_kbps or (job.rate_bps // 1000 if job.rate_bps else -1)
        clients = ",".join(identifier(star, host) for host in star.receivers)
        block = str(min(job.mtu - UFTP_HEADERS, UFTP_BLOCK))
        place = ["-I", star.interface(star.sender), "-H", clients]
        return ["uftp", "-R", str(rate), "-B", str(LARGE_BUFFER), "-b", block, *place, *options, job.source]

    return Caster(
        name=name,
        receive=receiver,
        send=sender,
        program="uftpd",
        ready="UFTP version",
        began="Starting pass 1",
        stored="File transfer complete",
    )


def udpcast(name: str = "udpcast", *options: str, rate_bps: int | None = None) -> Caster:
    """Udpcast; of a directory it sends what tar makes of it. Without a rate it sends as fast as it can."""

    def receiver(star: Star, host: str, job: Job, buffer: int | None) -> list[str]:
        size = LARGE_BUFFER if buffer is None else buffer
        words = f"udp-receiver {common(star, host)} --rcvbuf {size}"
        if job.tree:
            return ["sh", "-c", f"{words} | tar -C {job.into} -xf -"]
        file = "/dev/null" if job.into == NULL else f"{job.into}/{Path(job.source).name}"
        return ["sh", "-c", f"exec {words} --nosync --file {file}"]

    def sender(star: Star, job: Job) -> list[str]:
        rate = rate_bps or job.rate_bps
        limit = f"--max-bitrate {rate}" if rate else ""
        many = f"--min-receivers {len(star.receivers)} --mcast-data-address {UDPCAST_DATA} --full-duplex"
        # A receiver that is not there yet when the sender first says who it is would never be found.
        many += " --rexmit-hello-interval 200"
        words = f"udp-sender {common(star, star.sender)} {many} {limit} {' '.join(options)}"
        if job.tree:
            return ["sh", "-c", f"tar -C {job.source} -cf - . | {words}"]
        return ["sh", "-c", f"exec {words} --file {job.source}"]

    def common(star: Star, host: str) -> str:
        place = f"--interface {star.interface(host)} --mcast-rdv-address {UDPCAST_RENDEZVOUS}"
        return f"{place} --ttl 8 --nokbd --no-progress"

    return Caster(
        name=name,
        receive=receiver,
        send=sender,
        program="udp-receiver",
        ready="UDP receiver",
        began="Starting transfer",
        stored="Transfer complete",
        streams=True,
    )
