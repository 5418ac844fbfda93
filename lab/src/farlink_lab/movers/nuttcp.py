"""nuttcp 6.1.2 and later: the receiving end's count, from `-fparse`.

It cannot choose its congestion control: the lab gives it hosts whose default is the one that was asked for.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from farlink_lab.movers.mover import Finished, MoverError, Server
from farlink_lab.movers.window import fields_within

if TYPE_CHECKING:
    from farlink_lab.plan import Configuration

CONTROL_PORT = 5000
INTERVAL_S = 0.1
# Before its end, the client stops telling the receiver's intervals.
UNTOLD_ROUND_TRIPS = 3
MOST_STREAMS = 128
_MEBIBYTE = 1 << 20
_FIELD = re.compile(r"([A-Za-z_]+)=([0-9.]+)")


class Nuttcp:
    """The tool of the data-transfer studies."""

    name = "nuttcp"
    package = "nuttcp"
    chooses_congestion = False
    lab_measures = False

    def programs(self, configuration: Configuration) -> dict[str, str]:  # noqa: ARG002
        """One program at both ends."""
        return {self.name: self.package}

    def moves_files(self, configuration: Configuration) -> bool:  # noqa: ARG002
        """From memory to memory."""
        return False

    def refusal(self, configuration: Configuration) -> str | None:
        """Fixed sizes, parts of seconds, very many streams, and buffers that are no whole KiB."""
        if configuration.size_bytes is not None:
            return "bytes: the lab runs nuttcp for a fixed duration only: give seconds"
        if configuration.duration_s is not None and not configuration.duration_s.is_integer():
            return f"seconds: nuttcp takes whole seconds, {configuration.duration_s:g} are not"
        if configuration.declared_bps is not None:
            return "circuit: nuttcp declares no rate: leave it out, or measure with farlink"
        if configuration.streams > MOST_STREAMS:
            return f"streams: nuttcp has at most {MOST_STREAMS}"
        if configuration.buffer_bytes is not None and configuration.buffer_bytes % 1024:
            return f"buffer: nuttcp takes whole KiB, {configuration.buffer_bytes} bytes are not"
        return None

    def version_command(self, program: str) -> tuple[str, ...]:
        """`nuttcp -V`."""
        return (program, "-V")

    def version(self, said: str) -> str:
        """The number of `nuttcp-6.1.2`."""
        found = re.search(r"nuttcp-([0-9.]+)", said)
        return found[1] if found else "unknown"

    def server(self, program: str, *, configuration: Configuration) -> Server:  # noqa: ARG002
        """One test, in the foreground; it does not say when it listens."""
        return Server(command=(program, "-1", "--nofork", f"-P{CONTROL_PORT}"), ready_port=CONTROL_PORT)

    def client(
        self, program: str, *, configuration: Configuration, address: str, rtt_s: float
    ) -> tuple[str, ...]:
        """Payload from memory, with the receiver's intervals.

        The client stops telling those two round trips before its end, so it runs for so much longer, in whole
        seconds as it must: what counts is the time that was asked (`window`).
        """
        seconds = math.ceil((configuration.duration_s or 0.0) + UNTOLD_ROUND_TRIPS * rtt_s + INTERVAL_S)
        command = [
            *(program, f"-P{CONTROL_PORT}", f"-T{seconds}", f"-i{INTERVAL_S}", "-fparse"),
            f"-N{configuration.streams}",
        ]
        if configuration.buffer_bytes is not None:
            command.append(f"-w{configuration.buffer_bytes // 1024}k")
        return (*command, address)

    def result(self, finished: Finished, *, configuration: Configuration, rtt_s: float) -> dict[str, Any]:
        """What the receiver counted, cut to the time that was asked (`window`).

        Raises:
            MoverError: with nuttcp's own words.
        """
        rows = [dict(_FIELD.findall(line)) for line in finished.stdout.splitlines()]
        total = next((row for row in reversed(rows) if "real_seconds" in row), None)
        if total is None:
            if any("real_sec" in row for row in rows) and not finished.stderr.strip():
                raise MoverError("nuttcp ended before its summary")
            raise MoverError(finished.complaint)
        try:
            return _fields(total, rows, duration_s=configuration.duration_s or 0.0, rtt_s=rtt_s)
        except (KeyError, ValueError) as error:
            raise MoverError(
                f"nuttcp's report cannot be understood: {type(error).__name__} at {error}"
            ) from error


def _fields(
    total: dict[str, str], rows: list[dict[str, str]], *, duration_s: float, rtt_s: float
) -> dict[str, Any]:
    moved, seconds = _moved(total, seconds="real_seconds")
    cpu_s = None
    if "tx_cpu" in total and "rx_cpu" in total:
        cpu_s = {
            "sender": float(total["tx_cpu"]) / 100 * seconds,
            "receiver": float(total["rx_cpu"]) / 100 * seconds,
        }
    samples: list[list[float]] = []
    now = 0.0
    for row in rows:
        if "real_sec" in row:
            arrived, span = _moved(row, seconds="real_sec")
            now += span
            samples.append([now, arrived])
    fields = fields_within(samples, moved=moved, cpu_s=cpu_s, rtt_s=rtt_s, duration_s=duration_s)
    if "retrans" in total:
        fields["retransmits"] = int(total["retrans"])
    return fields


def _moved(row: dict[str, str], *, seconds: str) -> tuple[int, float]:
    """Bytes and seconds; the seconds by the rate, which has more digits than the printed time."""
    moved = float(row["megabytes"]) * _MEBIBYTE
    rate = float(row["rate_Mbps"]) * 1e6
    return round(moved), 8 * moved / rate if rate > 0 else float(row[seconds])
