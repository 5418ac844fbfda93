"""Numbered datagrams in super-packets: `send` sends so many, `receive` says how many of them came.

The kernel cuts what one call hands over into datagrams (UDP_SEGMENT), and hands over many at once
(UDP_GRO), so that they cross the emulator as super-packets.

usage: numbered_datagrams.py send ADDRESS PORT COUNT SIZE BITS_PER_SECOND
       numbered_datagrams.py receive
"""

from __future__ import annotations

import socket
import struct
import sys
import time
from pathlib import Path

UDP_SEGMENT, UDP_GRO = 103, 104
RECEIVE_BUFFER_FORCED = 33
BUFFER = 256 << 20
MOST_BYTES = 65_000
NUMBER = struct.Struct("!Q")
# The last ones may be lost: the receiver goes on until nothing has come for so long.
QUIET_S = 2.0


def send(address: str, port: str, count: int, size: int, rate: float) -> None:
    """Sends `count` datagrams of `size` bytes, each with its number, no faster than `rate`."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        out.connect((address, int(port)))
        out.setsockopt(socket.SOL_UDP, UDP_SEGMENT, size)
        at_once = MOST_BYTES // size
        burst = bytearray(at_once * size)
        begun = time.monotonic()
        for first in range(0, count, at_once):
            here = min(at_once, count - first)
            for place in range(here):
                NUMBER.pack_into(burst, place * size, first + place)
            out.send(memoryview(burst)[: here * size])
            due = begun + 8 * (first + here) * size / rate
            while time.monotonic() < due:
                pass


def receive() -> None:
    """Says its port, then how many different numbers came, and for how many there was no room."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as into:
        into.setsockopt(socket.SOL_SOCKET, RECEIVE_BUFFER_FORCED, BUFFER)
        into.setsockopt(socket.SOL_UDP, UDP_GRO, 1)
        into.bind(("0.0.0.0", 0))
        print(into.getsockname()[1], flush=True)
        came: set[int] = set()
        while True:
            burst, extra, _, _ = into.recvmsg(1 << 16, socket.CMSG_SPACE(4))
            size = next(
                (struct.unpack("i", data)[0] for _, kind, data in extra if kind == UDP_GRO), len(burst)
            )
            came.update(NUMBER.unpack_from(burst, at)[0] for at in range(0, len(burst), size))
            into.settimeout(QUIET_S)
            try:
                into.recv(1, socket.MSG_PEEK)
            except TimeoutError:
                break
    with Path("/proc/net/snmp").open(encoding="utf-8") as counters:
        names, values = (line.split() for line in counters if line.startswith("Udp:"))
    print(len(came), dict(zip(names, values, strict=True))["RcvbufErrors"], flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "send":
        send(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]), float(sys.argv[6]))
    else:
        receive()
