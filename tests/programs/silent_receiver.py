"""Fetches a directory from a server and acknowledges nothing; prints how many names came.

usage: silent_receiver.py ADDRESS PORT SOURCE NAMES
"""

import secrets
import socket
import struct
import sys

from copy_wire import HELLO, LIMIT_S, Control, message, request

PACK = 4


def fetched(address: str, port: int, source: str, names: int) -> int:
    """How many names came in packs, until there were `names` or the server waited for something."""
    token = secrets.token_hex(16)
    asked = request(token=token, destination="")
    inner = asked["copy"]["request"]
    inner.update(way="reverse", sources=[source])
    del inner["destination"]
    with (
        socket.create_connection((address, port), timeout=LIMIT_S) as peer,
        socket.create_connection((address, port), timeout=LIMIT_S) as data,
    ):
        peer.sendall(HELLO + message(asked))
        data.sendall(b"fardata\n" + bytes.fromhex(token) + struct.pack(">H", 0))
        control, frames = Control(peer), Control(data)
        control.take(len(HELLO))
        assert "accept" in control.next()["copy"], control.heard
        count = 0
        while count < names and len(head := frames.take(5)) == 5:
            kind, length = struct.unpack(">BI", head)
            body = frames.take(length)
            if kind == PACK:
                count += entries(body[4:])
        return count


def entries(body: bytes) -> int:
    """How many names a pack has."""
    count = at = 0
    while at < len(body):
        kind, _, _, _, length = struct.unpack_from(">BHqIH", body, at)
        at += 17 + length
        if kind == 0:
            (size,) = struct.unpack_from(">Q", body, at)
            at += 8 + 32 + size
        elif kind == 2:
            (length,) = struct.unpack_from(">H", body, at)
            at += 2 + length
        count += 1
    return count


if __name__ == "__main__":
    address, port, source, names = sys.argv[1:]
    try:
        print(fetched(address, int(port), source, int(names)))
    except TimeoutError:
        print("it waited")
