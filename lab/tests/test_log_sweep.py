"""The sweep finds the same beginnings however its stream is cut, and those that the definition finds."""

import numpy as np
import pyarrow as pa
import pytest

from farlink_lab.logs import sweep


def beginnings(pair, start, end, size, gap):
    """By the definition, transfer by transfer."""
    found = []
    latest, moved, number, last = None, 0, 0, None
    for each in zip(pair, start, end, size, strict=True):
        if each[0] != last:
            latest, moved, number, last = None, 0, 0, each[0]
        if latest is None:
            found.append((each[0], each[1], None, None, None))
        elif each[1] - latest > gap:
            found.append((each[0], each[1], latest, moved, number))
        latest = each[2] if latest is None else max(latest, each[2])
        moved, number = moved + each[3], number + 1
    return found


@pytest.mark.parametrize("rows", [1, 7, 64, 10_000])
@pytest.mark.parametrize("gap", [0, 5])
def test_a_stream_in_batches_has_the_beginnings_of_the_definition(rows, gap):
    rng = np.random.default_rng(3)
    pair = np.sort(rng.integers(1, 9, 500)).astype(np.int32)
    start = rng.integers(0, 4000, 500)
    order = np.lexsort([start, pair])
    start = start[order]
    end, size = start + rng.integers(0, 30, 500), rng.integers(1, 10**9, 500)
    names = ["pair", "start_us", "end_us", "bytes"]
    whole = pa.table([pa.array(each) for each in (pair, start, end, size)], names=names)
    made = sweep.starts(whole.to_batches(max_chunksize=rows), least_gap_us=gap)
    found = [tuple(row.values()) for batch in made for row in batch.to_pylist()]
    expected = beginnings(*(each.tolist() for each in (pair, start, end, size)), gap)
    assert found == expected
