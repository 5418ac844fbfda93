"""Sends the UDP datagrams of its host's other programs once more, and such as nobody sent, as if from them.

usage: forger.py DEVICE

For each datagram that leaves by DEVICE, from one port of it to another: the same again, one with a bit
flipped, one of another version, one of random bytes, and one that left long ago. It prints a line when it
listens, and one for each twenty that it heard, until it is ended.
"""

import contextlib
import os
import random
import socket
import struct
import sys
import time

# Longer than any test listens: nothing that a test started may outlive it for ever.
LIMIT_S = 60
# What packet sockets call all protocols (of one alone they do not see what leaves), IPv4, and leaving.
ALL, IPV4, OUTGOING = 0x0003, 0x0800, 4
UDP_HEADER = struct.Struct(">HHHH")
MOST = 1 << 16
# Larger ones are many that the kernel has not cut yet.
LONGEST_PACKET = 9000
KEPT = 64


def packet(address: bytes, header: bytes, ports: tuple[int, int], content: bytes) -> bytes:
    """One like it with other content: without a checksum, so that it is the program that must look."""
    head = bytearray(header)
    length = len(header) + UDP_HEADER.size + len(content)
    head[2:4] = struct.pack(">H", length)
    assert bytes(head[16:20]) == address
    return bytes(head) + UDP_HEADER.pack(*ports, UDP_HEADER.size + len(content), 0) + content


def forged(content: bytes, draw: random.Random) -> bytes:
    """The content with one bit that is another."""
    changed = bytearray(content)
    if changed:
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def main(device: str) -> None:
    """Listen and send until the time is over."""
    draw = random.Random(7)
    listener = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ALL))
    listener.bind((device, ALL))
    listener.settimeout(LIMIT_S)
    sender = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    sent: set[bytes] = set()
    kept: list[bytes] = []
    heard, end = 0, time.monotonic() + LIMIT_S
    print("ready", flush=True)
    while time.monotonic() < end:
        seen, where = listener.recvfrom(MOST)
        if where[1] != IPV4 or where[2] != OUTGOING or len(seen) > LONGEST_PACKET:
            continue
        header = seen[: 4 * (seen[0] & 15)]
        if header[9] != socket.IPPROTO_UDP:
            continue
        # It hears itself, too.
        if seen[len(header) + UDP_HEADER.size :] in sent:
            continue
        source, destination, _, _ = UDP_HEADER.unpack_from(seen, len(header))
        content = seen[len(header) + UDP_HEADER.size :]
        heard += 1
        if len(kept) < KEPT:
            kept.append(content)
        other = bytes([content[0] + 1]) + content[1:]
        contents = [
            *(content, forged(content, draw), other),
            *(os.urandom(draw.randrange(1400)), draw.choice(kept)),
        ]
        sent.update(contents)
        for each in contents:
            with contextlib.suppress(OSError):
                whole = packet(header[16:20], header, (source, destination), each)
                sender.sendto(whole, (socket.inet_ntoa(header[16:20]), 0))
        if heard % 20 == 0:
            print(f"heard {heard}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
