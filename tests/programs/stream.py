"""Sends or receives a stream that a seed determines, and prints its SHA-256 and length.

usage: stream.py receive ADDRESS
       stream.py send ADDRESS PORT BYTES SEED
"""

import hashlib
import random
import socket
import sys

PIECE = 1 << 20
# Longer than any test lets a stream run: nothing that a test started may outlive it for ever.
LIMIT_S = 120


def receive(address: str) -> None:
    """Print the port, then the digest and the length of what one peer sends to it."""
    with socket.create_server((address, 0), family=family_of(address)) as server:
        server.settimeout(LIMIT_S)
        print(server.getsockname()[1], flush=True)
        peer, _ = server.accept()
    digest, length = hashlib.sha256(), 0
    with peer:
        peer.settimeout(LIMIT_S)
        while piece := peer.recv(PIECE):
            digest.update(piece)
            length += len(piece)
    print(digest.hexdigest(), length)


def send(address: str, port: int, length: int, seed: int) -> None:
    """Send the stream of `seed` and print its digest and length."""
    source, digest = random.Random(seed), hashlib.sha256()
    with socket.create_connection((address, port), timeout=LIMIT_S) as peer:
        for start in range(0, length, PIECE):
            piece = source.randbytes(min(PIECE, length - start))
            digest.update(piece)
            peer.sendall(piece)
    print(digest.hexdigest(), length)


def family_of(address: str) -> socket.AddressFamily:
    """IPv6 for addresses with a colon."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["receive", address]:
            receive(address)
        case ["send", address, port, length, seed]:
            send(address, int(port), int(length), int(seed))
        case _:
            sys.exit(__doc__)
