"""What leaves a host, and when: how much more than a declared rate in any 10 ms, as tcpdump sees it leave."""

from __future__ import annotations

import contextlib
import struct
import subprocess
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

DEVICE = "farlink0"
# What Ethernet puts around a packet: preamble 8, header 14, FCS 4, gap 12.
FRAMING = 38
NANOSECONDS = 0xA1B23C4D
FILE_HEADER = 24
RECORD = struct.Struct("<IIII")
TCP = 6
# Headers fit; the payload's length is in the record.
SNAPPED = 128
WINDOW_S = 0.01


@contextlib.contextmanager
def watched(on: Callable[..., list[str]], host: str, into: Path) -> Iterator[None]:
    """Writes the heads of what `host` sends by TCP to the capture `into`, with the kernel's time of each."""
    options = ["-i", DEVICE, "-Q", "out", "-s", str(SNAPPED), "-B", "65536", "--time-stamp-precision=nano"]
    command = on(host, "tcpdump", *options, "-Z", "root", "-w", str(into), "tcp")
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    said = process.stderr
    if said is None or not any("listening on" in line for line in said):
        raise RuntimeError(f"tcpdump did not start: {' '.join(command)}")
    try:
        yield
    finally:
        process.terminate()
        rest = said.read()
        process.wait()
    if "\n0 packets dropped by kernel" not in f"\n{rest}":
        raise RuntimeError(f"tcpdump missed packets: {rest}")


def departures(capture: Path, mtu: int) -> tuple[np.ndarray, np.ndarray]:
    """When each packet of `capture` left, in seconds, and its bytes on the wire.

    What is handed to the device as one, to be cut into segments (GSO), counts with the headers and framing
    of them all.
    """
    data = capture.read_bytes()
    if struct.unpack_from("<I", data)[0] != NANOSECONDS:
        raise ValueError(f"{capture} is not a capture with nanoseconds")
    times: list[float] = []
    sizes: list[int] = []
    at = FILE_HEADER
    while at + RECORD.size <= len(data):
        second, nanosecond, kept, length = RECORD.unpack_from(data, at)
        packet = data[at + RECORD.size : at + RECORD.size + kept]
        at += RECORD.size + kept
        is_ipv6 = packet[0] >> 4 == 6
        if packet[6 if is_ipv6 else 9] != TCP:
            continue
        header = 40 if is_ipv6 else 4 * (packet[0] & 15)
        header += 4 * (packet[header + 12] >> 4)
        payload = length - header
        segments = max(1, -(-payload // (mtu - header)))
        times.append(second + nanosecond * 1e-9)
        sizes.append(payload + segments * (header + FRAMING))
    return np.array(times), np.array(sizes)


def excess(capture: Path, rate_bps: float, mtu: int, window_s: float = WINDOW_S) -> float:
    """The most bytes that left in any `window_s` beyond what `rate_bps` of the wire carries in it."""
    times, sizes = departures(capture, mtu)
    if not len(times):
        raise ValueError(f"{capture} has no packet")
    sums = np.concatenate([[0], np.cumsum(sizes)])
    first = np.searchsorted(times, times - window_s)
    most = float(np.max(sums[1:] - sums[first]))
    return most - rate_bps / 8 * window_s
