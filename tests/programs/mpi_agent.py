"""What mpirun on one emulated host starts its daemons on the others with, as it would with ssh.

A host of an emulation cannot enter another. So one of these serves outside, and the other, which is mpirun's
launch agent, hands it the command and its own standard input, output and error, and ends as the command does.

usage: mpi_agent.py serve SOCKET FARLINK EMULATION
       mpi_agent.py run SOCKET HOST COMMAND...

The server prints `listening`.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

# Longer than any command with its environment.
LONGEST = 1 << 17
# What ssh says when it is it that failed.
FAILED = 255


def serve(path: str, farlink: str, emulation: str) -> None:
    """Start what is asked for, until it is ended."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.bind(path)
        server.listen()
        print("listening", flush=True)
        while True:
            peer, _ = server.accept()
            threading.Thread(target=start, args=(peer, farlink, emulation), daemon=True).start()


def start(peer: socket.socket, farlink: str, emulation: str) -> None:
    """Run one command on a host, and tell how it ended."""
    with peer, contextlib.suppress(OSError):
        said, descriptors, _, _ = socket.recv_fds(peer, LONGEST, 3)
        host, *command = json.loads(said)
        words = [farlink, "on", f"{emulation}/{host}", "--", "sh", "-c", " ".join(command)]
        stdin, stdout, stderr = descriptors
        try:
            status = subprocess.call(words, stdin=stdin, stdout=stdout, stderr=stderr)
        finally:
            for each in descriptors:
                os.close(each)
        peer.send(str(status).encode())


def run(path: str, words: list[str]) -> int:
    """Have `words` (a host and a command) run, and wait for its exit code."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
        peer.connect(path)
        socket.send_fds(peer, [json.dumps(words).encode()], [0, 1, 2])
        said = peer.recv(64)
    return int(said) if said else FAILED


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", path, farlink, emulation]:
            try:
                serve(path, farlink, emulation)
            finally:
                Path(path).unlink(missing_ok=True)
        case ["run", path, *words] if len(words) > 1:
            sys.exit(run(path, words))
        case _:
            sys.exit(__doc__)
