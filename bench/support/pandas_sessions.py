"""Sessions and circuits in pandas: what bench/logs.py compares with.

usage: pandas_sessions.py plain|tuned DIR

`plain` is as one would write it: sessions are a function of the transfers and a gap. `tuned` is as one would
after a day with a profiler: pairs are numbers, and one sort serves all gaps. Both read five columns alone.
Prints what `sessions` for gaps of 0, 1 and 2 minutes and `circuits` print as JSON, as far as they can be
compared, and the seconds that it took from the start of `main`.
"""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd  # type: ignore[import-untyped]

GAPS_S = (0.0, 60.0, 120.0)
SETUPS_S = (60.0, 0.05)
FACTOR = 10.0
# One parameter at a time, the others as above with a gap of a minute.
FACTORS = (2.0, 5.0, 10.0, 20.0, 50.0)
MORE_SETUPS_S = (0.05, 1.0, 10.0, 60.0, 300.0)
MORE_GAPS_S = (0.0, 10.0, 60.0, 120.0, 600.0)
KEYS = ["source", "destination"]
NAMES = ("min", "q1", "median", "q3", "max")


def main() -> None:
    """Reads, finds the sessions of each gap, and tells of them."""
    begun = time.perf_counter()
    table = read(Path(sys.argv[2]))
    took = (table.end_us - table.start_us) / 1e6
    throughput = summary((8 * table.bytes / took)[took > 0])
    gaps_s = sorted({*GAPS_S, *MORE_GAPS_S})
    if sys.argv[1] == "plain":
        found = {gap_s: plain(table, gap_s) for gap_s in gaps_s}
    else:
        found = tuned(table, gaps_s)
    rates = [throughput[name] for name in ("q1", "median", "q3", "max")]
    q3 = throughput["q3"]
    cases = [(gap_s, setup_s, FACTOR, q3) for gap_s in GAPS_S for setup_s in SETUPS_S]
    cases += [(60.0, 60.0, factor, q3) for factor in FACTORS]
    cases += [(60.0, setup_s, FACTOR, q3) for setup_s in MORE_SETUPS_S]
    cases += [(60.0, 60.0, FACTOR, rate) for rate in rates]
    cases += [(gap_s, 60.0, FACTOR, q3) for gap_s in MORE_GAPS_S]
    answer = {
        "throughput_bps": throughput,
        "gaps": [told(gap_s, found[gap_s]) for gap_s in GAPS_S],
        "shares": [share(found[case[0]], case) for case in cases],
    }
    print(json.dumps({"seconds": time.perf_counter() - begun, "answer": answer}))


def plain(table: pd.DataFrame, gap_s: float) -> pd.DataFrame:
    """The sessions of a gap."""
    ordered = table.sort_values([*KEYS, "start_us"], ignore_index=True)
    latest = ordered.groupby(KEYS).end_us.cummax()
    before = latest.groupby([ordered[key] for key in KEYS]).shift()
    # The first of a pair has no latest end, which is no number and more than no gap.
    number = (~(ordered.start_us - before <= gap_s * 1e6)).cumsum()
    return ordered.groupby([*KEYS, number.rename("session")]).agg(
        start_us=("start_us", "min"),
        end_us=("end_us", "max"),
        bytes=("bytes", "sum"),
        transfers=("bytes", "count"),
    )


def tuned(table: pd.DataFrame, gaps_s: list[float]) -> dict[float, pd.DataFrame]:
    """The sessions of each gap: sorted once, and grouped once for each gap."""
    # Pairs as numbers: twice as fast as sorting and grouping by two columns of text.
    table["pair"] = table.groupby(KEYS, sort=False, observed=True).ngroup()
    table = table.drop(columns=KEYS).sort_values(["pair", "start_us"], ignore_index=True)
    latest = table.groupby("pair", sort=False).end_us.cummax()
    before = latest.groupby(table.pair, sort=False).shift()
    # The first of a pair has no latest end, which is no number and more than no gap.
    idle_us = table.start_us - before
    return {gap_s: sessions(table, ~(idle_us <= gap_s * 1e6)) for gap_s in gaps_s}


def read(directory: Path) -> pd.DataFrame:
    """The five columns that are needed."""
    files = sorted(directory.glob("day=*/*.parquet"))
    columns = ["start_us", "end_us", "bytes", *KEYS]
    return pd.read_parquet(files, columns=columns, partitioning=None).dropna(subset=KEYS)


def sessions(table: pd.DataFrame, begins: pd.Series) -> pd.DataFrame:
    """The sessions that begin where `begins` says."""
    return table.groupby(begins.cumsum(), sort=False).agg(
        start_us=("start_us", "first"),
        end_us=("end_us", "max"),
        bytes=("bytes", "sum"),
        transfers=("bytes", "size"),
    )


def told(gap_s: float, found: pd.DataFrame) -> dict[str, Any]:
    """The sessions of a gap, as `sessions --json` tells them."""
    duration = (found.end_us - found.start_us) / 1e6
    return {
        "gap_s": gap_s,
        "sessions": len(found),
        "transfers": int(found.transfers.sum()),
        "size_bytes": summary(found.bytes),
        "duration_s": summary(duration),
        "throughput_bps": summary((8 * found.bytes / duration)[duration > 0]),
    }


def summary(values: pd.Series) -> dict[str, float]:
    """Least, quartiles, mean and most."""
    quartiles = values.quantile([0.0, 0.25, 0.5, 0.75, 1.0])
    return {
        "count": len(values),
        **{name: float(value) for name, value in zip(NAMES, quartiles, strict=True)},
        "mean": float(values.mean()),
    }


def share(found: pd.DataFrame, case: tuple[float, float, float, float]) -> dict[str, Any]:
    """The share of sessions that are long enough for a circuit, as `circuits --json` tells it."""
    gap_s, setup_s, factor, rate_bps = case
    fits = found[found.bytes >= math.ceil(factor * setup_s * rate_bps / 8)]
    return {
        "gap_s": gap_s,
        "setup_s": setup_s,
        "factor": factor,
        "rate_bps": rate_bps,
        "sessions": len(found),
        "suitable_sessions": len(fits),
        "suitable_transfers": int(fits.transfers.sum()),
        "suitable_bytes": int(fits.bytes.sum()),
    }


if __name__ == "__main__":
    main()
