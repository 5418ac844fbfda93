"""Passes TCP connections on to a port of the same host, and harms one data connection on its way.

usage: meddler.py ADDRESS PORT TO_PORT HOW AT
       HOW is flip (one bit) or kill (reset the connection), after AT bytes in either direction

It prints `listening`, and then what it did.
"""

import contextlib
import socket
import struct
import sys
import threading

PIECE = 1 << 16
# What opens a data connection.
MAGIC = b"fardata\n"
# Longer than any test lets a connection wait.
LIMIT_S = 120


class Harm:
    """What is done once, to whichever data connection gets there first."""

    def __init__(self, how: str, at: int) -> None:
        self.how, self.at = how, at
        self.done = False
        self.lock = threading.Lock()

    def is_due(self, passed: int) -> bool:
        """Whether it is to be done to a connection over which `passed` bytes went, which happens once."""
        with self.lock:
            due = not self.done and passed > self.at
            self.done |= due
            return due


def passes(source: socket.socket, to: socket.socket, harm: Harm | None) -> None:
    """Pass on what comes from `source` until it ends."""
    passed = 0
    with contextlib.suppress(OSError):
        while piece := bytearray(source.recv(PIECE)):
            passed += len(piece)
            if harm and harm.is_due(passed):
                print(harm.how, "after", passed, flush=True)
                if harm.how == "kill":
                    for each in (source, to):
                        # No linger: what is in the buffers is thrown away, and a reset is sent, as soon as
                        # nobody waits in the socket any longer.
                        each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                        each.shutdown(socket.SHUT_RD)
                        each.close()
                    return
                piece[len(piece) // 2] ^= 0x10
            to.sendall(piece)
        to.shutdown(socket.SHUT_WR)


def meddle(peer: socket.socket, address: str, port: int, harm: Harm) -> None:
    """Connect `peer` through."""
    first = b""
    with contextlib.suppress(OSError):
        while len(first) < len(MAGIC) and (more := peer.recv(len(MAGIC) - len(first))):
            first += more
    with contextlib.suppress(OSError):
        to = socket.create_connection((address, port), timeout=LIMIT_S)
        mine = harm if first == MAGIC else None
        threading.Thread(target=passes, args=(to, peer, mine), daemon=True).start()
        # The greeting is no payload: what is harmed comes behind it.
        to.sendall(first)
        passes(peer, to, mine)


if __name__ == "__main__":
    address, port, to_port, how, at = sys.argv[1:]
    with socket.create_server((address, int(port)), backlog=64) as server:
        print("listening", flush=True)
        harm = Harm(how, int(at))
        while True:
            peer, _ = server.accept()
            peer.settimeout(LIMIT_S)
            threading.Thread(target=meddle, args=(peer, address, int(to_port), harm), daemon=True).start()
