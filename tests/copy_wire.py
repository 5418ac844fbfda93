"""What the two ends of a copy say, spoken by hand: for peers that say what ours never would.

The layouts are those of crates/wire/src/{message,frame}.rs.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from reference_digest import digest

if TYPE_CHECKING:
    import threading

VERSION = 7
HELLO = b"farlink\n" + struct.pack(">H", VERSION)
PREAMBLE_BYTES = 26
FILE, DIRECTORY, SYMLINK = 0, 1, 2
END = struct.pack(">BI", 6, 0)
# Longer than any test lets a peer wait.
LIMIT_S = 60.0

HOST = {"name": "peer", "kernel": "0", "cores": 1, "clock": "of-its-own"}
STAGES = {"disk": 0, "digest": 0, "network": 0, "cpu": 0, "threads": 1}
SENT = {
    "cpu": 0,
    "buffer": 0,
    "retransmits": 0,
    "congestion": "cubic",
    "origin": None,
    "mtu": 1500,
    "zero_copy": False,
}
ACCOUNT = {"stages": STAGES, "transport": SENT, "busy": 0, "receiver_limited": 0, "buffer_limited": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One name that is copied."""

    path: bytes
    kind: int = FILE
    content: bytes = b""
    target: bytes = b""
    mode: int = 0o644
    mtime_s: int = 1_000_000_000
    mtime_ns: int = 0
    size: int | None = None

    def encode(self) -> bytes:
        """As it travels, without its content."""
        head = struct.pack(">BHqI", self.kind, self.mode, self.mtime_s, self.mtime_ns)
        path = struct.pack(">H", len(self.path)) + self.path
        rest = b""
        if self.kind == FILE:
            rest = struct.pack(">Q", len(self.content) if self.size is None else self.size)
        elif self.kind == SYMLINK:
            rest = struct.pack(">H", len(self.target)) + self.target
        return head + path + rest


def frame(kind: int, body: bytes, *, length: int | None = None) -> bytes:
    """A frame; `length` where it lies."""
    return struct.pack(">BI", kind, len(body) if length is None else length) + body


def file(number: int, entry: Entry, *, sparse: int = 0) -> bytes:
    """The frame that says what file comes in blocks."""
    return frame(1, struct.pack(">IB", number, sparse) + entry.encode())


def block(number: int, index: int, content: bytes, *, of: bytes, length: int | None = None) -> bytes:
    """A block and its digest; `of` is the whole file."""
    size = 1 << 20
    alone = len(of) <= size
    said = digest(content, offset=index * size, root=alone)
    head = struct.pack(">III", number, index, len(content) if length is None else length)
    return frame(2, head) + content + said


def blocks(number: int, content: bytes) -> bytes:
    """All blocks of a file, of 1 MiB each."""
    size = 1 << 20
    cut = [content[at : at + size] for at in range(0, len(content), size)]
    return b"".join(block(number, index, each, of=content) for index, each in enumerate(cut))


def holes(number: int, *runs: tuple[int, int]) -> bytes:
    """Blocks of a file in which there is nothing."""
    return frame(3, struct.pack(">I", number) + b"".join(struct.pack(">II", *run) for run in runs))


def pack(number: int, *entries: Entry, kind: int = 4) -> bytes:
    """Small files, links and directories."""
    body = struct.pack(">I", number)
    for each in entries:
        body += each.encode()
        if each.kind == FILE:
            body += digest(each.content) + each.content
    return frame(kind, body)


def message(value: object) -> bytes:
    """A message of the control connection."""
    body = json.dumps(value).encode()
    return struct.pack(">I", len(body)) + body


def total(*, files: int = 0, packs: int = 0, entries: int = 1, size: int = 0) -> bytes:
    """The message by which a sender says how much there was."""
    return message({"copy": {"total": {"files": files, "packs": packs, "entries": entries, "bytes": size}}})


def request(*, token: str, destination: str) -> dict[str, Any]:
    """What a client asks that pushes."""
    asked = {
        "token": token,
        "way": "forward",
        "destination": destination,
        "several": False,
        "key": token,
        "resume": False,
        "protect": "clear",
        "verify": True,
        "fsync": False,
        "streams": 1,
        "interval": 100_000_000,
        "patience": 1_000_000_000,
        "host": HOST,
    }
    return {"copy": {"request": asked}}


@dataclass(slots=True)
class Control:
    """A control connection: messages out, and what the far side said."""

    peer: socket.socket
    heard: list[Any] = field(default_factory=list)

    def take(self, count: int) -> bytes:
        """The next `count` bytes; fewer where it ends."""
        held = b""
        while len(held) < count:
            more = self.peer.recv(count - len(held))
            if not more:
                break
            held += more
        return held

    def next(self) -> Any:
        """The next message; `None` where there are no more."""
        head = self.take(4)
        if len(head) < 4:
            return None
        (length,) = struct.unpack(">I", head)
        said = json.loads(self.take(length))
        self.heard.append(said)
        return said

    def to_the_end(self) -> None:
        """Listen until the far side ends, and give it the account that it waits for."""
        with contextlib.suppress(OSError):
            while (said := self.next()) is not None:
                if isinstance(said, dict) and "finished" in said.get("copy", {}):
                    self.peer.sendall(message({"copy": {"sent": ACCOUNT}}))


def foretold(path: str, *, size: int, modified_s: int) -> bytes:
    """The message that says that a file would be copied."""
    return message({"copy": {"foretold": {"path": path, "bytes": size, "node": {"f": [modified_s, 0]}}}})


def push(
    address: str,
    port: int,
    *,
    destination: str,
    frames: bytes,
    messages: bytes,
    asked: dict[str, Any] | None = None,
) -> list[Any]:
    """Do as a client that pushes, and asks for more: what the server said, after `frames` and `messages`."""
    token = digest(destination.encode() + frames[:4096]).hex()[:32]
    with (
        socket.create_connection((address, port), timeout=LIMIT_S) as peer,
        socket.create_connection((address, port), timeout=LIMIT_S) as data,
    ):
        control = Control(peer)
        whole = request(token=token, destination=destination)
        whole["copy"]["request"] |= asked or {}
        peer.sendall(HELLO + message(whole))
        data.sendall(b"fardata\n" + bytes.fromhex(token) + struct.pack(">H", 0))
        control.take(len(HELLO))
        # A server that has enough may stop listening in the middle.
        with contextlib.suppress(OSError):
            data.sendall(frames)
        with contextlib.suppress(OSError):
            peer.sendall(messages)
        with contextlib.suppress(OSError):
            data.shutdown(socket.SHUT_WR)
        control.to_the_end()
        return control.heard


def serve_one(
    listener: socket.socket,
    *,
    frames: bytes,
    messages: bytes,
    endless: bytes = b"",
    begun: threading.Event | None = None,
) -> list[Any]:
    """Do as a server from which a client pulls by one stream: what it said, after `frames` and `messages`.

    Says `endless` again and again behind them, and sets `begun` once it has.
    """
    peers: dict[bytes, socket.socket] = {}
    with contextlib.ExitStack() as stack:
        while len(peers) < 2:
            try:
                peer = stack.enter_context(listener.accept()[0])
            except OSError:
                return []
            peer.settimeout(LIMIT_S)
            peers[Control(peer).take(8)] = peer
        control, data = Control(peers[b"farlink\n"]), peers[b"fardata\n"]
        control.take(2)
        control.peer.sendall(HELLO)
        control.next()
        control.peer.sendall(message({"copy": {"accept": {"host": HOST}}}))
        Control(data).take(PREAMBLE_BYTES - 8)
        with contextlib.suppress(OSError):
            data.sendall(frames)
        with contextlib.suppress(OSError):
            control.peer.sendall(messages)
            while endless:
                control.peer.sendall(endless)
                if begun is not None:
                    begun.set()
        with contextlib.suppress(OSError):
            data.shutdown(socket.SHUT_WR)
        control.to_the_end()
        return control.heard
