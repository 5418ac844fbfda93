"""Sessions for three gaps and circuits, as one would write them in pandas: what bench/logs.py compares with.

Prints the number of sessions of each gap as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pandas as pd  # type: ignore[import-untyped]

GAPS_US = (0, 60_000_000, 120_000_000)
SETUPS_S = (60.0, 0.05)
FACTOR = 10
QUARTILES = [0.0, 0.25, 0.5, 0.75, 1.0]


def main() -> None:
    """Reads, sorts once, and groups for each gap."""
    columns = ["start_us", "end_us", "bytes", "source", "destination"]
    files = sorted(Path(sys.argv[1]).glob("day=*/*.parquet"))
    table = pd.concat([pd.read_parquet(path, columns=columns) for path in files], ignore_index=True)
    took = (table.end_us - table.start_us) / 1e6
    rate = (8 * table.bytes / took)[took > 0]
    rate.quantile(QUARTILES)
    q3 = rate.quantile(0.75)
    keys = ["source", "destination"]
    table = table.sort_values([*keys, "start_us"], ignore_index=True)
    pairs = table.groupby(keys, sort=False)
    latest = pairs.end_us.cummax().groupby([table.source, table.destination], sort=False).shift()
    idle = table.start_us - latest
    counts = {}
    for gap_us in GAPS_US:
        session = (latest.isna() | (idle > gap_us)).cumsum()
        found = table.groupby(session, sort=False).agg(
            start_us=("start_us", "first"),
            end_us=("end_us", "max"),
            bytes=("bytes", "sum"),
            transfers=("bytes", "size"),
        )
        duration = (found.end_us - found.start_us) / 1e6
        for values in (found.bytes, duration, 8 * found.bytes / duration):
            values.quantile(QUARTILES)
            values.mean()
        for setup_s in SETUPS_S:
            fits = found.bytes >= FACTOR * setup_s * q3 / 8
            fits.mean()
            found.transfers[fits].sum() / found.transfers.sum()
        counts[str(gap_us / 1e6)] = len(found)
    print(json.dumps(counts))


if __name__ == "__main__":
    main()
