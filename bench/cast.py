"""Does a slow receiver of `farlink cast` cost the others nothing, and how fast is it? Writes bench/cast.md.

Every row of the page is measured by itself, ours and the peers' commands in turn over the same emulated
hosts; what was measured stays under target/bench-cast, and an interrupted bench goes on where it was.

usage: cast.py [--row NAME]... [--repetitions N] [--again] [--page]
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from support import page
from support.cast.casters import need
from support.cast.casting import WORK
from support.cast.fastest import Rates
from support.cast.feed import Feed
from support.cast.rates import Auto, Groups, Retransmission
from support.cast.realtime import Realtime
from support.cast.scale import Scale
from support.cast.streams import KIB, MB, MIB, Stream, Study
from support.results import Results, asked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from support.cast.casting import Row

REPETITIONS = 3
ROWS: Sequence[Row] = (
    Study(name="study", rate_bps=600 * MB, mtu=1500),
    # Seven at the study's rate are more than two cores carry: what fits, in rate and in packets.
    Study(name="study-400", rate_bps=400 * MB, mtu=1500),
    Study(name="study-9000", rate_bps=600 * MB, mtu=9000, turns=10),
    Stream(
        name="stream-16",
        title="16 files of 8 MiB to four receivers, 380 Mb/s, the first with a receive buffer of 64 KiB",
        count=16,
        size=8 * MIB,
    ),
    Stream(
        name="stream-300",
        title="300 files of 40 KiB to four receivers, likewise",
        count=300,
        size=40 * KIB,
    ),
    Realtime(),
    Retransmission(),
    Auto(),
    Groups(),
    Groups(name="groups-4", receivers=4),
    Feed(),
    # Thirty receivers in packets of 1500 bytes keep two cores busy: the same where that is not measured.
    Feed(name="feed-9000", mtu=9000),
    Rates(),
    Scale(),
)


def write(results: Results) -> None:
    """The page, of all that was measured."""

    def section(row: Row) -> page.Section:
        # Of receivers in virtual time a table is kept.
        is_there = row.name == "scale"
        return results.section(row.name, row.title, lambda: row.body(results), is_there=is_there)

    page.write_rows(
        Path(__file__).with_suffix(".md"),
        title="Does a slow receiver of farlink cast cost the others nothing, and how fast is it?",
        question="Files to the receivers of a group over emulated hosts (short RTT), all hosts and the "
        "emulator on the same cores, files in memory; ours (AES-256-GCM) and the peers' commands in "
        "turn. A time is from the sender's first packet of data until the receiver says that its last "
        "file is there; what comes before, which takes UFTP two seconds, does not count. Fast "
        "receivers are all but the slow one. Medians and ranges; `n` is how many runs went well, "
        "`late` in how many the emulator fell behind: they are counted with the others.",
        command="make bench-cast",
        sections=map(section, ROWS),
    )


def main() -> None:
    """Measures what is not measured yet, and writes the page."""
    wanted = asked(
        "Measure farlink cast beside its peers; write bench/cast.md.", [row.name for row in ROWS], REPETITIONS
    )
    results = Results(path=WORK / "results.jsonl")
    if wanted.again:
        results.forget(wanted.rows)
        if "scale" in wanted.rows:
            (WORK / "scale.csv").unlink(missing_ok=True)
    if not wanted.page:
        need()
        for row in ROWS:
            if row.name in wanted.rows:
                row.run(results, wanted.repetitions)
    write(results)


if __name__ == "__main__":
    main()
