"""Sends super-packets of numbered datagrams that a number determines, or says which of them came.

usage: datagrams.py receive ADDRESS
       datagrams.py send ADDRESS PORT SIZE COUNT
       datagrams.py end ADDRESS PORT

`receive` prints its port, and when the end comes one object of JSON: the numbers of the datagrams that came,
in their order, and how many of them were not as they were sent. `send` hands as many datagrams of SIZE bytes
to the kernel at a time as it takes (UDP segmentation offload), of which the last is shorter, and prints how
many that are.
"""

import json
import socket
import struct
import sys

# Longer than any test listens: nothing that a test started may outlive it for ever.
LIMIT_S = 60
# asm-generic/socket.h and linux/udp.h: Python does not name them.
SO_RCVBUFFORCE, UDP_SEGMENT = 33, 103
# linux/udp.h: UDP_MAX_SEGMENTS, before it was doubled; what an IPv4 packet holds of them.
MOST_SEGMENTS, MOST_BYTES = 64, 65_507
# Room for every datagram of a test while its reader waits for a processor.
BUFFER = 256 << 20
# Number and length.
HEAD = struct.Struct(">II")
FILLING = bytes(range(251)) * 40
# Of a super-packet's last datagram, which is shorter: odd, for the checksum's sake.
LAST = 101


def receive(address: str) -> None:
    """Print the port; when the end comes, which datagrams came and how many were damaged."""
    numbers, damaged = [], 0
    with socket.socket(family_of(address), socket.SOCK_DGRAM) as receiver:
        receiver.settimeout(LIMIT_S)
        try:
            receiver.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER)
        except PermissionError:
            receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
        receiver.bind((address, 0))
        print(receiver.getsockname()[1], flush=True)
        while came := receiver.recv(MOST_BYTES):
            number, size = HEAD.unpack_from(came) if len(came) >= HEAD.size else (-1, 0)
            numbers.append(number)
            damaged += came != datagram(number, size)
    print(json.dumps({"numbers": numbers, "damaged": damaged}), flush=True)


def send(address: str, port: int, size: int, count: int) -> None:
    """Send `count` datagrams, numbered from 0."""
    together = min(MOST_SEGMENTS, (MOST_BYTES - LAST) // size + 1)
    with socket.socket(family_of(address), socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, size)
        for first in range(0, count, together):
            *whole, last = range(first, min(first + together, count))
            made = [datagram(number, size) for number in whole]
            sender.sendto(b"".join([*made, datagram(last, min(LAST, size))]), (address, port))
    print(together)


def end(address: str, port: int) -> None:
    """Send the end: an empty datagram."""
    with socket.socket(family_of(address), socket.SOCK_DGRAM) as sender:
        sender.sendto(b"", (address, port))


def datagram(number: int, size: int) -> bytes:
    """The datagram of that number: neighbours share nothing that stands at the same place."""
    start = number % 251
    return HEAD.pack(number & 0xFFFF_FFFF, size) + FILLING[start : start + size - HEAD.size]


def family_of(address: str) -> socket.AddressFamily:
    """IPv6 for addresses with a colon."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["receive", address]:
            receive(address)
        case ["send", address, port, size, count]:
            send(address, int(port), int(size), int(count))
        case ["end", address, port]:
            end(address, int(port))
        case _:
            sys.exit(__doc__)
