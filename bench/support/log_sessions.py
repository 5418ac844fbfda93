"""The analysis of pandas_sessions.py by the functions that a notebook calls: for bench/logs.py.

usage: log_sessions.py DIR

Prints the same JSON, so that the answers can be compared too.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farlink_lab.logs import circuits, sessions
from farlink_lab.logs.engine import open_logs

if TYPE_CHECKING:
    from farlink_lab.logs.circuits import Share
    from farlink_lab.logs.sessions import SessionSummary
    from farlink_lab.logs.summary import Summary

GAPS_S = (0.0, 60.0, 120.0)


def main() -> None:
    """Sessions of all gaps once, their summaries, and the shares for circuits."""
    begun = time.perf_counter()
    with open_logs(Path(sys.argv[1])) as logs:
        gaps_s = sorted({*GAPS_S, *circuits.MORE_GAPS_S})
        gathered = sessions.gather(logs, gaps_s=gaps_s)
        throughput = sessions.transfer_throughput(logs, gathered)
        told = sessions.summaries(logs, gathered, gaps_s=GAPS_S)
        base = circuits.Case(gap_s=60.0, setup_s=60.0, factor=circuits.FACTOR, rate_bps=throughput.q3)
        table = circuits.share_table(logs, gathered, rate_bps=throughput.q3)
        moved = circuits.sensitivity(logs, gathered, throughput=throughput, base=base)
    answer = {
        "throughput_bps": throughput.as_json(),
        "gaps": [of_gap(each) for each in told],
        "shares": [of_case(each) for each in (*table, *(case for of in moved.values() for case in of))],
    }
    print(json.dumps({"seconds": time.perf_counter() - begun, "answer": answer}))


def of_gap(told: SessionSummary) -> dict[str, Any]:
    """The sessions of a gap."""
    return {
        "gap_s": told.gap_s,
        "sessions": told.sessions,
        "transfers": told.transfers,
        "size_bytes": numbers(told.size_bytes),
        "duration_s": numbers(told.duration_s),
        "throughput_bps": numbers(told.throughput_bps),
    }


def numbers(summary: Summary | None) -> dict[str, float] | None:
    """The numbers of a distribution."""
    return None if summary is None else summary.as_json()


def of_case(share: Share) -> dict[str, Any]:
    """The share of sessions that are long enough for a circuit."""
    names = ("gap_s", "setup_s", "factor", "rate_bps", "sessions", "suitable_sessions", "suitable_transfers")
    return {name: getattr(share, name) for name in (*names, "suitable_bytes")}


if __name__ == "__main__":
    main()
