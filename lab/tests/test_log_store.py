"""What a directory of transfers is laid out as, and what older ones were."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from farlink_lab.logs import sessions
from farlink_lab.logs.engine import open_logs
from farlink_lab.logs.importing import import_logs
from farlink_lab.logs.store import Store, part_paths
from farlink_lab.logs.transfer import LogError
from log_lines import line, write

READ = {"start_us", "end_us", "bytes"}


def imported(directory, log):
    return import_logs([log], out=directory, mapping=None, zone="UTC")


def encodings(path):
    group = pq.read_metadata(path).row_group(0)
    columns = map(group.column, range(group.num_columns))
    return {column.path_in_schema: set(column.encodings) for column in columns}


def gathered(directory):
    with open_logs(directory) as logs:
        found = sessions.gather(logs, gaps_s=[60])
        return logs.rows(sessions.named(found, sessions.sessions(found, gap_s=60)))


def test_what_every_analysis_reads_is_packed_whether_written_once_or_tidied(tmp_path):
    log = write(tmp_path / "log", [line(at, NBYTES=10**6 + at) for at in range(50)])
    imported(tmp_path / "d", log)
    # The same lines again: their day is made one file without them.
    assert imported(tmp_path / "d", log).duplicates == 50
    for path in [*part_paths(tmp_path / "d"), *imported_parts(tmp_path / "e", log)]:
        found = encodings(path)
        assert all("DELTA_BINARY_PACKED" in found[name] for name in READ), found


def imported_parts(directory, log):
    imported(directory, log)
    return part_paths(directory)


def test_a_directory_of_the_first_layout_is_analysed_and_added_to(tmp_path):
    first, second = (
        write(tmp_path / f"log{day}", [line(86_400 * day + 50 * at) for at in range(40)]) for day in (0, 1)
    )
    for name in ("old", "new"):
        imported(tmp_path / name, first)
    for path in part_paths(tmp_path / "old"):
        table = pq.ParquetFile(path).read()
        # Nor did what DuckDB wrote say of a column that it is never empty.
        pq.write_table(pa.table({name: table[name] for name in table.column_names}), path, compression="zstd")
        assert not any("DELTA_BINARY_PACKED" in each for each in encodings(path).values())
    assert gathered(tmp_path / "old") == gathered(tmp_path / "new")
    for log, duplicates, transfers in ((second, 0, [40, 40]), (first, 40, [40, 40])):
        for name in ("old", "new"):
            assert imported(tmp_path / name, log).duplicates == duplicates
        found = gathered(tmp_path / "old")
        assert found == gathered(tmp_path / "new")
        assert [each["transfers"] for each in found] == transfers


def of_first_day(directory):
    return {path.name for path in (directory / "day=2026-11-21").iterdir()}


def test_an_analysis_that_runs_while_an_import_commits_sees_the_state_before(tmp_path):
    logs_of = [write(tmp_path / f"log{at}", [line(at)]) for at in range(12)]
    out = tmp_path / "out"
    import_logs([logs_of[0]], out=out, mapping=None, zone="UTC")
    before = of_first_day(out)
    with open_logs(out) as logs:
        for log in (*logs_of, logs_of[1]):
            # The last has a duplicate: its day is made one file, without those that it had.
            imported(out, log)
        assert logs.rows(logs.transfers.count().name("n").as_table()) == [{"n": 1}]
        found = sessions.gather(logs, gaps_s=[60])
        assert sessions.transfer_throughput(logs, found).count == 1
        assert before <= of_first_day(out)
        # Others see the state after, while both are open.
        with open_logs(out) as others:
            assert others.count == 12
    with Store(out):
        pass
    assert of_first_day(out) == {path.name for path in part_paths(out)}


def test_a_directory_that_knows_no_readers_is_read_and_stays_as_it_is(tmp_path):
    imported(tmp_path / "d", write(tmp_path / "log", [line(0)]))
    (tmp_path / "d" / ".readers").unlink()
    found = sorted(path.name for path in (tmp_path / "d").iterdir())
    assert len(gathered(tmp_path / "d")) == 1
    assert sorted(path.name for path in (tmp_path / "d").iterdir()) == found


def opened(directory, analysis, **options):
    with open_logs(directory, **options) as logs:
        return analysis(logs)


@pytest.mark.parametrize(
    "analysis",
    [lambda logs: logs.rows(logs.transfers), lambda logs: sessions.gather(logs, gaps_s=[60])],
    ids=["duckdb", "stretches"],
)
def test_a_file_that_is_gone_while_it_is_read_is_one_line(tmp_path, analysis):
    imported(tmp_path / "d", write(tmp_path / "log", [line(0)]))

    def lost(logs):
        part_paths(tmp_path / "d")[0].unlink()
        return analysis(logs)

    with pytest.raises(LogError, match="import the logs again"):
        opened(tmp_path / "d", lost)


def test_a_file_of_a_caller_that_is_gone_is_the_callers(tmp_path):
    imported(tmp_path / "d", write(tmp_path / "log", [line(0)]))
    with pytest.raises(FileNotFoundError, match="mine"):
        opened(tmp_path / "d", lambda _: (tmp_path / "mine").read_text())


def test_a_memory_too_small_for_the_engine_is_one_line(tmp_path):
    imported(tmp_path / "d", write(tmp_path / "log", [line(0)]))
    with pytest.raises(LogError, match="--memory: 1,000 bytes are too few") as said:
        opened(tmp_path / "d", lambda logs: logs.rows(logs.transfers), memory_bytes=1000)
    assert "\n" not in str(said.value)
