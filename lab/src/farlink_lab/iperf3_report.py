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
# Of a stream of events without its last.
CUT = "interrupted: its report breaks off before the end"


class ReportError(LabError):
    """A text that is no report of iperf3, or one of a run that no record can stand for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownPath:
    """What the user knows of the path that was measured, and iperf3 does not say.

    Attributes:
        rtt_s: Round-trip time; `None` takes the least that the sender's kernel saw.
        rate_bps: The wire's rate, bits per second.
        framing: `ethernet`, `sonet` or `none`: what the goodput is reckoned with, where the rate is known;
            `None` takes Ethernet.
        mtu: Largest IP packet, bytes; `None` takes what the sender's kernel knew of the path.
    """

    rtt_s: float | None = None
    rate_bps: int | None = None
    framing: str | None = None
    mtu: int | None = None

    def with_known(self, fields: Mapping[str, Any]) -> KnownPath:
        """The same with what an earlier record of the same report has of the path, where this has nothing."""
        return KnownPath(
            rtt_s=self.rtt_s or fields.get("rtt_s"),
            rate_bps=self.rate_bps or fields.get("rate_bps"),
            framing=self.framing or fields.get("framing"),
            mtu=self.mtu or fields.get("mtu"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reports:
    """What a text held.

    Attributes:
        found: Its reports, in their order.
        refused: Why the rest of it is none, a line each.
    """

    found: tuple[dict[str, Any], ...]
    refused: tuple[str, ...] = ()


def reports(text: str) -> Reports:
    """The reports in `text`: one, several one after the other, or as `--json-stream` prints them.

    One that breaks off costs the others nothing: reading goes on at the next line that begins one.

    Raises:
        ReportError: where there is none: it is not JSON, or JSON of something else.
    """
    found: list[dict[str, Any]] = []
    refused: list[str] = []
    events: list[dict[str, Any]] = []
    decoder, at, broken = json.JSONDecoder(), 0, False
    while (at := _next(text, at)) < len(text):
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            refused.append(_no_json(text, error))
            at, broken = _resumed(text, at, error), True
            continue
        if isinstance(value, dict) and "event" in value:
            # iperf3 3.18 and later; several runs may have been appended to one file.
            if value["event"] == "start" and events:
                found.append(_of_events(events))
                events = []
            events.append(value)
        elif isinstance(value, dict) and (isinstance(value.get("start"), dict) or "error" in value):
            found.append(value)
        elif isinstance(value, dict):
            refused.append("no report of iperf3: it has no start: give what 'iperf3 --json' printed")
        else:
            refused.append("no report of iperf3: give what 'iperf3 --json' printed")
    if events:
        found.append(_of_events(events))
        if broken and "error" in found[-1] and found[-1]["error"] == CUT:
            # The line at which the stream broke off is told by the record itself.
            refused = refused[:-1]
    if not found:
        raise ReportError(refused[0] if refused else "it is empty: give what 'iperf3 --json' printed")
    return Reports(found=tuple(found), refused=tuple(refused))


def _next(text: str, at: int) -> int:
    """Where the next value may begin."""
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _no_json(text: str, error: ValueError | RecursionError) -> str:
    if isinstance(error, RecursionError):
        return "no report of iperf3: nested too deeply"
    if not isinstance(error, json.JSONDecodeError):
        return "no report of iperf3: a number in it has more digits than anything has"
    reason = f"{error.msg[0].lower()}{error.msg[1:]}"
    line = text.count("\n", 0, error.pos) + 1
    return f"not JSON at line {line}: {reason}: give what 'iperf3 --json' printed"


def _resumed(text: str, at: int, error: ValueError | RecursionError) -> int:
    """Where the next report begins after one that breaks off: iperf3 indents all but the first brace."""
    places = [place + 1 for place in [text.find("\n{", at)] if place >= 0]
    if isinstance(error, json.JSONDecodeError) and at < error.pos < len(text) and text[error.pos] == "{":
        places.append(error.pos)
    return min(places, default=len(text))


def _of_events(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The report of which `--json-stream` printed the parts; one that breaks off was interrupted."""
    report: dict[str, Any] = {"intervals": []}
    for event in events:
        if event["event"] == "interval":
            report["intervals"].append(event.get("data"))
        else:
            report[str(event["event"])] = event.get("data")
    if "end" not in report:
        report.setdefault("error", CUT)
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
    mtu = path.mtu or _mtu(sender)
    framing = path.framing or "ethernet"
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
        record["framing"] = framing
        if mtu is not None:
            record["goodput_bps"] = model.goodput_bps(rate_bps=path.rate_bps, mtu=mtu, framing=framing)
    error = report.get("error")
    if error:
        outcome = "interrupted" if str(error).startswith(INTERRUPTED) else "failed"
        record |= {"outcome": outcome, "error": str(error)}
        record |= _until_then(report, sender, reverse=reverse, rtt_s=record["rtt_s"])
    else:
        if record["rtt_s"] is None:
            raise ReportError("the sender's kernel told no RTT: give the path's, as in --rtt 91.6ms")
        record |= _moved(report, sender, reverse=reverse, rtt_s=record["rtt_s"])
    return {key: value for key, value in record.items() if value is not None}


def identity(report: Mapping[str, Any]) -> str:
    """32 hexadecimal digits that are the same for the same report."""
    return hashlib.sha256(json.dumps(report, sort_keys=True).encode()).hexdigest()[:32]


def _refuse(report: Mapping[str, Any], test: Mapping[str, Any]) -> None:
    if "accepted_connection" in (report.get("start") or {}):
        raise ReportError(
            "it is the server's, which has the two ends the other way round and only its own side: import "
            "what the client printed"
        )
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


def _until_then(
    report: Mapping[str, Any], sender: Mapping[str, Any], *, reverse: bool, rtt_s: float | None
) -> dict[str, Any]:
    """What had been measured when a run ended before its time; what the report does not say is absent."""
    test = (report.get("start") or {}).get("test_start") or {}
    fields: dict[str, Any] = {}
    with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError, IndexError):
        if test.get("duration") and not test.get("bytes") and not test.get("blocks"):
            fields["asked_s"] = float(test["duration"])
        fields["tcp"] = traces_of(sender["intervals"]) if sender.get("intervals") else None
    with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError, IndexError):
        receiver = _receiver(report, reverse=reverse)
        # Forwards the receiver's clock starts half a round trip early, in reverse as much late: see `_moved`.
        late = (rtt_s or 0.0) / 2 * (1 if reverse else -1)
        samples = [[ends + late, moved] for ends, moved in samples_of(receiver.get("intervals") or [])]
        received = (report.get("end") or {}).get("sum_received") or {}
        counted = [sample for sample in samples if sample[0] > 0]
        if counted:
            early = sum(moved for ends, moved in samples if ends <= 0)
            counted[0][1] += early
            fields |= {"bytes": int(sum(moved for _, moved in counted)), "duration_s": counted[-1][0]}
            fields["samples"] = counted
        elif received.get("bytes"):
            fields |= {"bytes": int(received["bytes"]), "duration_s": received["end"] - received["start"]}
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
