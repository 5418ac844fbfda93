"""Transfer records from what `iperf3 --json` printed, on paths that the lab did not emulate.

Of every version from 3.0 on: a field that a version lacks is absent in the record. What iperf3's report means
is in its manual (iperf3(1)) and in `iperf_api.c`: times are seconds on the clock of the end that counts, RTTs
microseconds.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from farlink_lab import model
from farlink_lab.error import LabError
from farlink_lab.movers import MoverError
from farlink_lab.movers.iperf3 import samples_of, traces_of
from farlink_lab.movers.window import fields_within
from farlink_lab.records import parse_record

SCHEMA = 1
MICROSECOND = 1e-6
# How iperf3's own message begins where somebody ended it.
INTERRUPTED = "interrupt"


class ReportError(LabError):
    """A text that is no report of iperf3, or one of a run that no record can stand for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownPath:
    """What the user knows of the path that was measured, and iperf3 does not say.

    Attributes:
        rtt_s: Round-trip time; `None` takes the least that the sender's kernel saw.
        rate_bps: The wire's rate, bits per second.
        framing: `ethernet`, `sonet` or `none`: what the goodput is reckoned with, where the rate is known.
    """

    rtt_s: float | None = None
    rate_bps: int | None = None
    framing: str = "ethernet"


def reports(text: str) -> list[dict[str, Any]]:
    """The reports in `text`: one, several one after the other, or one as `--json-stream` prints it.

    Raises:
        ReportError: where it is not JSON, or JSON of something else.
    """
    values, rest, decoder = [], text.strip(), json.JSONDecoder()
    while rest:
        try:
            value, end = decoder.raw_decode(rest)
        except json.JSONDecodeError as error:
            reason = f"{error.msg[0].lower()}{error.msg[1:]}"
            line = text.count("\n", 0, len(text.rstrip()) - len(rest) + error.pos) + 1
            raise ReportError(
                f"not JSON at line {line}: {reason}: give what 'iperf3 --json' printed"
            ) from error
        except RecursionError as error:
            raise ReportError("no report of iperf3: nested too deeply") from error
        if not isinstance(value, dict):
            raise ReportError("no report of iperf3: give what 'iperf3 --json' printed")
        values.append(value)
        rest = rest[end:].lstrip()
    if values and all("event" in value for value in values):
        values = [_of_events(values)]
    if not values:
        raise ReportError("it is empty: give what 'iperf3 --json' printed")
    if not all(isinstance(value.get("start"), dict) or "error" in value for value in values):
        raise ReportError("no report of iperf3: it has no start: give what 'iperf3 --json' printed")
    return values


def _of_events(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The report of which `--json-stream` (iperf3 3.18 and later) printed the parts."""
    report: dict[str, Any] = {"intervals": []}
    for event in events:
        if event["event"] == "interval":
            report["intervals"].append(event.get("data"))
        else:
            report[str(event["event"])] = event.get("data")
    return report


def record_of(report: Mapping[str, Any], *, path: KnownPath, written_s: float) -> dict[str, Any]:
    """The record of one report; of a run that failed, a record that says so.

    Args:
        report: One of `reports`.
        path: What the user knows of the path.
        written_s: When the report was written, seconds since 1970: the start of a run that failed before it
            noted its own.

    Raises:
        ReportError: where no record can stand for it: not TCP, both ways at once, its start left out, no RTT.
    """
    try:
        record = _record(report, path=path, written_s=written_s)
        parse_record(json.dumps(record).encode())
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, OSError) as error:
        raise ReportError(f"it cannot be understood: {type(error).__name__} at {error}") from error
    return record


def _record(report: Mapping[str, Any], *, path: KnownPath, written_s: float) -> dict[str, Any]:
    start = report.get("start") or {}
    test = start.get("test_start") or {}
    _refuse(report, test)
    reverse, sender = bool(test.get("reverse")), _sender(report, reverse=bool(test.get("reverse")))
    ends = start.get("connected") or [{}]
    hosts = [ends[0].get("local_host"), ends[0].get("remote_host")]
    mtu = _mtu(sender)
    record: dict[str, Any] = {
        "schema": SCHEMA,
        "id": identity(report),
        "kind": "memory",
        "mode": "size" if test.get("bytes") or test.get("blocks") else "duration",
        "started": _started(start, written_s=written_s),
        "bytes": 0,
        "rtt_s": path.rtt_s or _rtt_s(sender),
        "rate_bps": path.rate_bps,
        "mtu": mtu,
        "streams": test.get("num_streams"),
        "buffer_bytes": start.get("sock_bufsize") or None,
        "block_bytes": test.get("blksize"),
        "source": hosts[reverse],
        "destination": hosts[not reverse],
        "tool": "iperf3",
        "version": str(start.get("version", "unknown")).removeprefix("iperf "),
        "protection": "clear",
        "outcome": "ok",
    }
    if path.rate_bps is not None:
        record["framing"] = path.framing
        if mtu is not None:
            record["goodput_bps"] = model.goodput_bps(rate_bps=path.rate_bps, mtu=mtu, framing=path.framing)
    error = report.get("error")
    if error:
        outcome = "interrupted" if str(error).startswith(INTERRUPTED) else "failed"
        record |= {"outcome": outcome, "error": str(error)}
    else:
        if record["rtt_s"] is None:
            raise ReportError("the sender's kernel told no RTT: give the path's, as in --rtt 91.6ms")
        record |= _moved(report, sender, reverse=reverse, rtt_s=record["rtt_s"])
    return {key: value for key, value in record.items() if value is not None}


def identity(report: Mapping[str, Any]) -> str:
    """32 hexadecimal digits that are the same for the same report."""
    return hashlib.sha256(json.dumps(report, sort_keys=True).encode()).hexdigest()[:32]


def _refuse(report: Mapping[str, Any], test: Mapping[str, Any]) -> None:
    protocol = test.get("protocol", "TCP")
    if protocol != "TCP":
        raise ReportError(
            f"it measured {protocol}, and profiles are of TCP: measure without --udp and --sctp"
        )
    if test.get("bidirectional") or "sum_sent_bidir_reverse" in (report.get("end") or {}):
        raise ReportError("it moved data both ways at once: measure each way by itself, without --bidir")
    if test.get("omit"):
        raise ReportError(
            f"it left out its first {test['omit']} s, and with them the ramp-up: measure without --omit"
        )


def _sender(report: Mapping[str, Any], *, reverse: bool) -> Mapping[str, Any]:
    """The report of the end that sent; empty where it is not there."""
    found = report.get("server_output_json") if reverse else report
    return found if isinstance(found, Mapping) else {}


def _receiver(report: Mapping[str, Any], *, reverse: bool) -> Mapping[str, Any]:
    return _sender(report, reverse=not reverse)


def _started(start: Mapping[str, Any], *, written_s: float) -> str:
    stamp = start.get("timestamp") or {}
    seconds = stamp["timemillisecs"] / 1000 if "timemillisecs" in stamp else stamp.get("timesecs", written_s)
    return f"{datetime.fromtimestamp(seconds, tz=UTC):%Y-%m-%dT%H:%M:%S.%fZ}"


def _rtt_s(sender: Mapping[str, Any]) -> float | None:
    """The least RTT that the sender's kernel saw; of old versions the mean, or the least of the intervals."""
    ends = [stream.get("sender") or {} for stream in (sender.get("end") or {}).get("streams", ())]
    rows = [row for interval in sender.get("intervals", ()) for row in interval.get("streams", ())]
    for values in (
        [end.get("min_rtt") for end in ends],
        [row.get("rtt") for row in rows],
        [end.get("mean_rtt") for end in ends],
    ):
        known = [value for value in values if value]
        if known:
            return round(float(min(known)) * MICROSECOND, 9)
    return None


def _mtu(sender: Mapping[str, Any]) -> int | None:
    rows = [row for interval in sender.get("intervals", ()) for row in interval.get("streams", ())]
    return max((row["pmtu"] for row in rows if row.get("pmtu")), default=None)


def _moved(
    report: Mapping[str, Any], sender: Mapping[str, Any], *, reverse: bool, rtt_s: float
) -> dict[str, Any]:
    """What arrived, in which time, at what cost, by the receiver's clock."""
    end, test = report["end"], report["start"]["test_start"]
    sent, received = end["sum_sent"], end["sum_received"]
    arrived, seconds = int(received["bytes"]), float(received["end"] - received["start"])
    asked = test.get("bytes") or (test.get("blocks") or 0) * test["blksize"]
    if arrived < asked:
        raise ReportError(
            f"its clock stopped when {arrived} of {asked} bytes had arrived, as iperf3's does with a size: "
            "measure for a time (--time)"
        )
    if arrived == 0 or seconds <= 0:
        return {"outcome": "failed", "error": "nothing arrived"}
    fields: dict[str, Any] = {
        "duration_s": seconds,
        # Totals count until the last byte has arrived, a round trip or more after the time was over.
        "asked_s": None if asked or not test.get("duration") else float(test["duration"]),
        "bytes": arrived,
        "cpu_s": _cpu_s(end, sent=sent, received=received, reverse=reverse),
        "congestion": end.get("sender_tcp_congestion"),
        "retransmits": sent.get("retransmits"),
        "tcp": traces_of(sender["intervals"]) if sender.get("intervals") else None,
        "buffers": _buffers(report, reverse=reverse),
    }
    receiver = _receiver(report, reverse=reverse)
    if not asked and test.get("duration") and receiver.get("intervals"):
        # The sender's word to start takes half a round trip to the client. Forwards, the receiver's clock
        # starts that much before the first byte may leave; in reverse, when the first byte arrives.
        samples = samples_of(receiver["intervals"])
        if reverse:
            samples = [[ends + rtt_s, moved] for ends, moved in samples]
        # Where its intervals end early, its totals stand.
        with contextlib.suppress(MoverError):
            fields |= fields_within(
                samples,
                moved=arrived,
                cpu_s=fields["cpu_s"],
                rtt_s=rtt_s,
                duration_s=float(test["duration"]),
            )
            del fields["asked_s"]
    return {key: value for key, value in fields.items() if value not in (None, [])}


def _cpu_s(
    end: Mapping[str, Any], *, sent: Mapping[str, Any], received: Mapping[str, Any], reverse: bool
) -> dict[str, float] | None:
    """Both percentages are of the wall time of the test; `host` is the client."""
    cpu = end.get("cpu_utilization_percent")
    if not cpu or "host_total" not in cpu or "remote_total" not in cpu:
        return None
    shares = (cpu["remote_total"], cpu["host_total"]) if reverse else (cpu["host_total"], cpu["remote_total"])
    return {
        "sender": shares[0] / 100 * (sent["end"] - sent["start"]),
        "receiver": shares[1] / 100 * (received["end"] - received["start"]),
    }


def _buffers(report: Mapping[str, Any], *, reverse: bool) -> dict[str, int] | None:
    """As granted, where one was asked for: what the kernel tunes was still small when they were read."""
    if not report["start"].get("sock_bufsize"):
        return None
    send = (_sender(report, reverse=reverse).get("start") or {}).get("sndbuf_actual")
    receive = (_receiver(report, reverse=reverse).get("start") or {}).get("rcvbuf_actual")
    return {"send": send, "receive": receive} if send and receive else None
