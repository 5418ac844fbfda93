"""The course of each run, as the page draws it: rates and windows against time, and the two phases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from farlink_lab.dynamics import poincare_pairs
from farlink_lab.phases import rates_bps
from farlink_lab.profile import label_of
from farlink_lab.quantity import show_rate, show_time
from farlink_lab.words import dynamics_clause

if TYPE_CHECKING:
    from collections.abc import Mapping

    from farlink_lab.findings import Findings
    from farlink_lab.phases import Phases
    from farlink_lab.plot.palette import Look
    from farlink_lab.records import Record


def run_traces(findings: Findings, looks: Mapping[str, Look]) -> list[dict[str, Any]]:
    """One entry for each record that has samples: by configuration, then RTT, then the order of the file.

    A first sample that ends at 0 s has no length, and the run is left out.
    """
    order = {label: index for index, label in enumerate(findings.labels)}
    known = [record for record in findings.records if len(record.samples) and record.samples[0, 0] > 0]
    known.sort(key=lambda record: (order[label_of(record)], record.mode, record.rtt_s or 0.0, record.line))
    maps = {
        record.line: dynamics_clause(findings.dynamics[profile.key, rtt])
        for profile in findings.profiles
        for rtt, group in zip(profile.rtt_s.tolist(), profile.records, strict=True)
        for record in group
    }
    return [
        _entry(record, findings.phases.get(record.line), looks[label_of(record)])
        | {"map": maps.get(record.line, "this run is in no profile")}
        for record in known
    ]


def _entry(record: Record, found: Phases | None, look: Look) -> dict[str, Any]:
    _, ends, rates = rates_bps(record.samples)
    rtt = show_time(record.rtt_s) if record.rtt_s is not None else "RTT unknown"
    rate = show_rate(record.throughput_bps) if record.throughput_bps is not None else record.outcome
    repetition = (record.fields.get("lab") or {}).get("repetition")
    count = f", repetition {repetition + 1}" if isinstance(repetition, int) else ""
    entry: dict[str, Any] = {
        "group": label_of(record),
        "name": f"{rtt}{count}: {rate}",
        "colour": look.colour,
        "t": [round(float(end), 4) for end in ends],
        "gbps": [float(f"{value / 1e9:.4g}") for value in rates],
    }
    if found is not None:
        entry |= {
            "ramp": round(found.ramp_up_s, 4),
            "end": round(found.end_s, 4),
            "sustained": float(f"{found.sustained_bps / 1e9:.4g}"),
            "said": _said(found),
        }
        pairs = poincare_pairs(record.samples, since_s=found.ramp_up_s, rtt_s=record.rtt_s) / 1e9
        if len(pairs):
            entry["pairs"] = [[float(f"{value:.4g}") for value in column] for column in pairs.T]
    window = _window(record)
    return entry | ({"cwnd": window} if window else {})


def _said(found: Phases) -> str:
    if found.ramp_up_s == 0:
        return f"No ramp-up in the samples: {show_rate(found.sustained_bps)} from the first interval on."
    return (
        f"Ramp-up of {show_time(round(found.ramp_up_s, 2))} at {show_rate(found.ramp_up_bps)} on average, "
        f"then {show_rate(found.sustained_bps)} sustained."
    )


def _window(record: Record) -> dict[str, list[float]] | None:
    """The congestion windows of all streams together, MB; `None` where they are unknown."""
    streams = record.fields.get("tcp")
    if not isinstance(streams, list) or not streams:
        return None
    try:
        times = np.array(streams[0]["t_s"], dtype=np.float64)
        # Streams are asked one after another: what one said last stands until it speaks again.
        total = np.zeros_like(times)
        for stream in streams:
            at = np.searchsorted(np.array(stream["t_s"], dtype=np.float64), times, side="right") - 1
            windows = np.array(stream["cwnd_bytes"], dtype=np.float64)
            total += np.where(at >= 0, windows[np.maximum(at, 0)], 0.0)
    except (KeyError, TypeError, ValueError, IndexError):
        return None
    if times.ndim != 1 or not len(times) or not (np.isfinite(times).all() and np.isfinite(total).all()):
        return None
    return {"t": [round(float(t), 4) for t in times], "mb": [float(f"{v / 1e6:.4g}") for v in total]}
