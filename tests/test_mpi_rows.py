"""What the rows of bench/mpi.md say of runs that failed."""

from __future__ import annotations

from typing import Any

from support.mpi_rows import compared, shown
from support.mpi_suite import judged

WELL = "Ran 7 tests in 0.1s\n\nOK\n"


def test_a_module_passes_where_every_rank_came_to_its_end_and_well() -> None:
    """A rank that crashes says nothing more, and what it ran before is not all."""
    assert judged("test_p2p_buf", 0, 3 * WELL) == (21, set())
    assert judged("test_p2p_buf", 139, 3 * WELL) == (21, {"test_p2p_buf (ended with 139)"})
    lacking = {"test_p2p_buf (of 3 ranks 2 came to its end)"}
    assert judged("test_p2p_buf", 0, 2 * WELL) == (14, lacking)
    assert judged("test_p2p_buf", 139, 2 * WELL) == (14, lacking)
    said = f"FAIL: testSend (test_p2p_buf.TestP2PBufSelf)\n{3 * WELL}"
    assert judged("test_p2p_buf", 1, said) == (21, {"testSend (test_p2p_buf.TestP2PBufSelf)"})


def test_a_cell_says_how_many_of_its_runs_failed() -> None:
    """What is left of several is no median of all."""
    assert shown([2.0]) == "2.0"
    assert shown([1.0, 2.0, 3.0], runs=3) == "2.0 (1.0-3.0)"
    assert shown([1.0, 3.0], runs=3) == "2.0 (1.0-3.0), 1 of 3 failed"
    assert (shown([]), shown([], runs=1), shown([], runs=3)) == ("failed", "failed", "3 of 3 failed")
    runs: list[dict[str, Any]] = [
        {"contender": f"case, {way}", **found}
        for way, found in (
            ("a", {"seconds": 4}),
            ("b", {"seconds": 2}),
            ("b", {"failed": "why"}),
        )
    ]
    assert "| case | 4.0 | 2.0, 1 of 2 failed, 2.0× |" in compared(runs, "seconds", "s", 1)
