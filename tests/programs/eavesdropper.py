"""Keeps datagrams of a multicast group, and sends such to it.

usage: eavesdropper.py keep GROUP PORT COUNT FILE
       eavesdropper.py send GROUP PORT FILE FROM_PORT
       eavesdropper.py repeat GROUP PORT

`keep` joins the group, prints a line when it is there, and ends when it has written COUNT datagrams to FILE,
each behind its length (two bytes, big endian). `send` sends those of a FILE, from a port of this host.
`repeat` joins, prints a line when it is there, sends each datagram that it hears once more, and prints a
line.
"""

import socket
import struct
import sys
from pathlib import Path

# Longer than any test listens: nothing that a test started may outlive it for ever.
LIMIT_S = 60
MOST = 65_535
LENGTH = struct.Struct(">H")


def joined(group: str, port: int) -> socket.socket:
    """A socket of the group, which other sockets of the host may be in too."""
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    receiver.settimeout(LIMIT_S)
    receiver.bind((group, port))
    receiver.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group) + bytes(4))
    print("ready", flush=True)
    return receiver


def sending() -> socket.socket:
    """A socket whose datagrams this host does not hear itself."""
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)
    return sender


def keep(group: str, port: int, count: int, file: Path) -> None:
    """Write `count` datagrams to `file`."""
    with joined(group, port) as receiver:
        datagrams = [receiver.recv(MOST) for _ in range(count)]
    file.write_bytes(b"".join(LENGTH.pack(len(datagram)) + datagram for datagram in datagrams))


def send(group: str, port: int, file: Path, from_port: int) -> None:
    """Send what is in `file`."""
    rest = file.read_bytes()
    with sending() as sender:
        sender.bind(("", from_port))
        while rest:
            (length,) = LENGTH.unpack_from(rest)
            sender.sendto(rest[LENGTH.size : LENGTH.size + length], (group, port))
            rest = rest[LENGTH.size + length :]


def repeat(group: str, port: int) -> None:
    """Send each datagram once more."""
    with joined(group, port) as receiver, sending() as sender:
        while True:
            sender.sendto(receiver.recv(MOST), (group, port))
            print("repeated", flush=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["keep", group, port, count, file]:
            keep(group, int(port), int(count), Path(file))
        case ["send", group, port, file, from_port]:
            send(group, int(port), Path(file), int(from_port))
        case ["repeat", group, port]:
            repeat(group, int(port))
        case _:
            sys.exit(__doc__)
