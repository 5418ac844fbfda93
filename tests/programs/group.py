"""Receives datagrams of a multicast group, or sends some.

usage: group.py receive GROUP PORT [SOURCE]
       group.py listen GROUP PORT
       group.py send GROUP PORT COUNT
       group.py send-at-once GROUP PORT COUNT

It says nothing of interfaces: a group is reached as on any host. `receive` joins, of one SOURCE alone where
that is named; `listen` has the port without joining. Both print a line when they are ready, and one a
datagram: its number. `send-at-once` hands all to the kernel in one piece (UDP segmentation offload).
"""

import ipaddress
import socket
import struct
import sys

SIZE = 1000
# Longer than any test listens: nothing that a test started may outlive it for ever.
LIMIT_S = 60
# linux/udp.h and linux/in.h: Python does not name them.
UDP_SEGMENT = 103
IP_ADD_SOURCE_MEMBERSHIP = 39


def receive(group: str, port: int, *, joins: bool, source: str | None = None) -> None:
    """Print the number of each datagram of `group`."""
    with socket.socket(family_of(group), socket.SOCK_DGRAM) as receiver:
        receiver.settimeout(LIMIT_S)
        # Not the group's address: who did not join would not see what comes astray.
        receiver.bind(("::" if family_of(group) == socket.AF_INET6 else "0.0.0.0", port))
        packed = ipaddress.ip_address(group).packed
        if joins and source:
            wanted = packed + bytes(4) + ipaddress.ip_address(source).packed
            receiver.setsockopt(socket.IPPROTO_IP, IP_ADD_SOURCE_MEMBERSHIP, wanted)
        elif joins and family_of(group) == socket.AF_INET6:
            receiver.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, packed + struct.pack("@I", 0))
        elif joins:
            receiver.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, packed + bytes(4))
        print("ready", flush=True)
        while True:
            print(int(receiver.recv(SIZE).split()[0]), flush=True)


def send(group: str, port: int, count: int, *, at_once: bool) -> None:
    """Send `count` datagrams, numbered from 0."""
    datagrams = [f"{number} ".encode().ljust(SIZE, b"x") for number in range(count)]
    with socket.socket(family_of(group), socket.SOCK_DGRAM) as sender:
        if at_once:
            sender.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, SIZE)
            datagrams = [b"".join(datagrams)]
        for datagram in datagrams:
            sender.sendto(datagram, (group, port))


def family_of(address: str) -> socket.AddressFamily:
    """IPv6 for addresses with a colon."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["receive", group, port]:
            receive(group, int(port), joins=True)
        case ["receive", group, port, source]:
            receive(group, int(port), joins=True, source=source)
        case ["listen", group, port]:
            receive(group, int(port), joins=False)
        case ["send", group, port, count]:
            send(group, int(port), int(count), at_once=False)
        case ["send-at-once", group, port, count]:
            send(group, int(port), int(count), at_once=True)
        case _:
            sys.exit(__doc__)
