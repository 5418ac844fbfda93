"""What a directory of transfers is laid out as, and what older ones were."""

import pyarrow as pa
import pyarrow.parquet as pq

from farlink_lab.logs import sessions
from farlink_lab.logs.engine import open_logs
from farlink_lab.logs.importing import import_logs
from farlink_lab.logs.store import part_paths
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
