"""The tables of the multicast benchmarks: what they say of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.cast.casters import ours
from support.cast.casting import Case
from support.cast.star import NOBODY, STOPPED
from support.cast.streams import Stream
from support.results import Results

if TYPE_CHECKING:
    from pathlib import Path


def test_one_fast_receiver_that_is_held_up_is_seen_beside_the_median(tmp_path: Path) -> None:
    results = Results(path=tmp_path / "results.jsonl")
    row = Stream(name="row", title="A row", count=1, size=1, casters=[ours()])
    of_case = {NOBODY.name: [1.0, 1.0, 1.0, 1.0], STOPPED.name: [3.0, 1.0, 1.0, 1.5]}
    for slow in (NOBODY, STOPPED):
        times_s = dict(zip("bcde", of_case[slow.name], strict=True))
        name = Case(caster=ours(), slow=slow).name
        for repetition in range(2):
            run = {"row": "row", "repetition": repetition, "contender": name, "times_s": times_s}
            results.add(run)
    head, _, cells = row.body(results).splitlines()
    said = dict(zip(head.split("|"), cells.split("|"), strict=True))
    said = {name.strip(): cell.strip() for name, cell in said.items()}
    assert (said["change"], said["of the slowest fast one"]) == ("+0.0%", "+50.0%")
