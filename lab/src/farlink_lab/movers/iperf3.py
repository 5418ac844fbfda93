"""iperf3 3.12 and later: what the receiving end counted, from `--json --get-server-output`.

Fixed duration only: with a size and large buffers iperf3 stops its clock when the bytes have left the
program, before they have arrived.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from farlink_lab.movers.mover import Finished, MoverError, Server
from farlink_lab.movers.window import fields_within

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from farlink_lab.plan import Configuration

INTERVAL_S = 0.1
CONTROL_PORT = 5201
# iperf3's own bound.
MOST_STREAMS = 128


class Iperf3:
    """The tool most people measure with."""

    name = "iperf3"
    package = "iperf3"
    chooses_congestion = True
    lab_measures = False

    def programs(self, configuration: Configuration) -> dict[str, str]:  # noqa: ARG002
        """One program at both ends."""
        return {self.name: self.package}

    def moves_files(self, configuration: Configuration) -> bool:  # noqa: ARG002
        """From memory to memory."""
        return False

    def refusal(self, configuration: Configuration) -> str | None:
        """Fixed sizes, parts of seconds and very many streams."""
        if configuration.size_bytes is not None:
            return "bytes: iperf3 with a size stops its clock before the data have arrived: give seconds"
        if configuration.duration_s is not None and not configuration.duration_s.is_integer():
            return f"seconds: iperf3 takes whole seconds, {configuration.duration_s:g} are not"
        if configuration.declared_bps is not None:
            return "circuit: iperf3 declares no rate: leave it out, or measure with farlink"
        if configuration.streams > MOST_STREAMS:
            return f"streams: iperf3 has at most {MOST_STREAMS}"
        return None

    def version_command(self, program: str) -> tuple[str, ...]:
        """`iperf3 --version`."""
        return (program, "--version")

    def version(self, said: str) -> str:
        """The second word of `iperf 3.12 (cJSON 1.7.15)`."""
        words = said.split()
        return words[1] if len(words) > 1 else "unknown"

    def server(self, program: str, *, configuration: Configuration) -> Server:  # noqa: ARG002
        """One test, with intervals as fine as ours, which it tells the client only where it speaks JSON."""
        command = (program, "--server", "--one-off", "--interval", str(INTERVAL_S), "--json")
        return Server(command=command, ready_port=CONTROL_PORT)

    def client(
        self,
        program: str,
        *,
        configuration: Configuration,
        address: str,
        rtt_s: float,  # noqa: ARG002
    ) -> tuple[str, ...]:
        """Payload from memory, for whole seconds."""
        command = [
            *(program, "--client", address, "--json", "--get-server-output"),
            *("--interval", str(INTERVAL_S), "--time", f"{configuration.duration_s:g}"),
            *("--parallel", str(configuration.streams)),
        ]
        if configuration.congestion is not None:
            command += ["--congestion", configuration.congestion]
        if configuration.buffer_bytes is not None:
            command += ["--window", str(configuration.buffer_bytes)]
        return tuple(command)

    def result(self, finished: Finished, *, configuration: Configuration, rtt_s: float) -> dict[str, Any]:
        """What both ends reported, the receiver's intervals cut to the time that was asked (`window`).

        Raises:
            MoverError: with iperf3's own words, or where a field is not where it should be.
        """
        try:
            report = json.loads(finished.stdout)
        except (ValueError, RecursionError):
            raise MoverError(finished.complaint) from None
        if isinstance(report, dict) and report.get("error"):
            raise MoverError(f"iperf3: {report['error']}")
        try:
            return _fields(report, configuration=configuration, rtt_s=rtt_s)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise MoverError(
                f"iperf3's report cannot be understood: {type(error).__name__} at {error}"
            ) from error


def _fields(report: Mapping[str, Any], *, configuration: Configuration, rtt_s: float) -> dict[str, Any]:
    end, start = report["end"], report["start"]
    received, sent = end["sum_received"], end["sum_sent"]
    granted = end.get("sender_tcp_congestion")
    if configuration.congestion is not None and granted != configuration.congestion:
        raise MoverError(
            f"iperf3 was asked for congestion control {configuration.congestion} and used {granted}"
        )
    server = report.get("server_output_json")
    if not server:
        raise MoverError("iperf3's server did not report its intervals")
    cpu = end.get("cpu_utilization_percent")
    # Both percentages are of the wall time of the test, user and system together.
    cpu_s = cpu and {
        "sender": cpu["host_total"] / 100 * (sent["end"] - sent["start"]),
        "receiver": cpu["remote_total"] / 100 * (received["end"] - received["start"]),
    }
    fields: dict[str, Any] = {
        "version": start["version"].removeprefix("iperf "),
        **fields_within(
            samples_of(server["intervals"]),
            moved=int(received["bytes"]),
            cpu_s=cpu_s,
            rtt_s=rtt_s,
            duration_s=configuration.duration_s or 0.0,
        ),
        "congestion": granted,
        "block_bytes": start["test_start"]["blksize"],
        "retransmits": sent.get("retransmits"),
        "tcp": traces_of(report["intervals"]),
    }
    if configuration.buffer_bytes is not None:
        send, receive = start.get("sndbuf_actual"), server["start"].get("rcvbuf_actual")
        if send and receive:
            fields["buffers"] = {"send": send, "receive": receive}
    return {key: value for key, value in fields.items() if value is not None and value != []}


def samples_of(intervals: Sequence[Mapping[str, Any]]) -> list[list[float]]:
    """`[end, bytes]` of each interval of the receiver, on its clock."""
    samples: list[list[float]] = []
    for interval in intervals:
        total = interval["sum"]
        if not samples or total["end"] > samples[-1][0]:
            samples.append([total["end"], int(total["bytes"])])
    return samples


def traces_of(intervals: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What the sender's kernel said of each stream; iperf3 does not show the pacing rate."""
    count = min((len(interval["streams"]) for interval in intervals), default=0)
    traces = []
    for stream in range(count):
        rows = [interval["streams"][stream] for interval in intervals]
        if not all("snd_cwnd" in row and "rtt" in row for row in rows):
            return []
        sent_again = 0
        traces.append(
            {
                "stream": stream,
                "t_s": [row["end"] for row in rows],
                "cwnd_bytes": [row["snd_cwnd"] for row in rows],
                "srtt_s": [row["rtt"] / 1e6 for row in rows],
                "retransmits": [sent_again := sent_again + row["retransmits"] for row in rows],
                "pacing_bps": [None for _ in rows],
            }
        )
    return traces
