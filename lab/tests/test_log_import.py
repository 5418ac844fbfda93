"""Lines of logs become transfers; what cannot be one is counted, named and kept aside."""

import bz2
import gzip
import json
import lzma

import numpy as np
import pyarrow as pa
import pytest

from farlink_lab.logs import block, gridftp, sessions, stamp
from farlink_lab.logs.block import Cutter, blocks
from farlink_lab.logs.engine import open_logs
from farlink_lab.logs.expansion import MOST_AT_ONCE, pieces
from farlink_lab.logs.following import follow
from farlink_lab.logs.importing import import_logs, told
from farlink_lab.logs.mapping import read_mapping
from farlink_lab.logs.store import REFUSED, Store, part_paths, read_ledger
from farlink_lab.logs.transfer import LogError
from farlink_lab.places import LEDGER
from log_lines import BASE_US, SEEN, imported, line, rows, write


def refused(directory):
    path = directory / REFUSED
    return [json.loads(each) for each in path.read_text().splitlines()] if path.exists() else []


def test_a_line_that_a_server_wrote_is_read_whole(tmp_path):
    imported(tmp_path, [SEEN])
    (row,) = rows(tmp_path / "out")
    assert row == {
        "start_us": BASE_US,
        "end_us": BASE_US + 9408,
        "bytes": 20_971_520,
        "source": "127.0.0.1",
        "destination": "vm",
        "server": "vm",
        "user": "anonymous",
        "file": "/d/a.bin",
        "streams": 4,
        "stripes": 1,
        "block_bytes": 262_144,
        "buffer_bytes": 3_939_840,
        "retransmits": 0,
        **dict.fromkeys(("rtt_s", "sender_cpu_s", "receiver_cpu_s", "read_s", "write_s")),
    }


def test_what_a_server_sends_goes_from_it(tmp_path):
    imported(tmp_path, [line(TYPE="RETR", retrans="1,0,2,0")])
    (row,) = rows(tmp_path / "out")
    assert (row["source"], row["destination"], row["retransmits"]) == ("vm", "127.0.0.1", 3)


def test_lines_by_columns_and_one_by_one_are_the_same(tmp_path):
    names = ["/d/a.bin", "/d/ä ö.bin", "/d/b=c.bin", "/d/two words.bin", "/d/TYPE= in it"]
    kinds = ["STOR", "RETR", "ESTO", "ERET"]
    lines = [
        line(at, 1 + at / 7, FILE=names[at % 5], TYPE=kinds[at % 4], NBYTES=1 + at, STREAMS=1 + at % 3)
        for at in range(200)
    ]
    data = "".join(each + "\n" for each in lines).encode()
    (whole,) = blocks([data])
    together = gridftp.parse(whole)
    alone = [gridftp.parse(next(iter(blocks([(each + "\n").encode()])))) for each in lines]
    for name in ("start_us", "end_us", "bytes", "source", "destination", "file", "streams"):
        one_by_one = [value for each in alone for value in each.columns[name].to_pylist()]
        assert together.columns[name].to_pylist() == one_by_one
    assert together.columns["file"].to_pylist() == [names[at % 5] for at in range(200)]
    assert together.index.tolist() == list(range(200))


def test_lines_of_several_shapes_come_in_their_order(tmp_path):
    changes = [{}, {"retrans": None}, {"retrans": None, "TASKID": None}, {"VOLUME": None}, {"EXTRA": "new"}]
    lines = [line(at, FILE=f"/d/{at}", **changes[at % 5]) for at in range(3000)]
    lines[7] = "nonsense"
    done = imported(tmp_path, lines)
    assert done.sources[0].refused == {"broken": 1}
    found = [row["file"] for row in rows(tmp_path / "out")]
    assert found == [f"/d/{at}" for at in range(3000) if at != 7]


@pytest.mark.parametrize(
    "pack", [gzip.compress, bz2.compress, lzma.compress, None], ids=["gz", "bz2", "xz", "zst"]
)
def test_a_compressed_log_is_the_same_log(tmp_path, pack):
    text = "".join(line(at) + "\n" for at in range(50)).encode()
    path = tmp_path / "log"
    # Rotated logs are often several members one after the other.
    whole = pa.compress(text, "zstd", asbytes=True) if pack is None else pack(text[:3000]) + pack(text[3000:])
    path.write_bytes(whole)
    import_logs([path], out=tmp_path / "out", mapping=None, zone="UTC")
    assert [row["start_us"] for row in rows(tmp_path / "out")] == [BASE_US + at * 10**6 for at in range(50)]


@pytest.mark.parametrize(
    "pack", [gzip.compress, bz2.compress, lzma.compress, None], ids=["gz", "bz2", "xz", "zst"]
)
def test_of_a_compressed_log_that_is_cut_short_the_whole_lines_count(tmp_path, pack):
    rng = np.random.default_rng(1)
    lines = [line(at, FILE=f"/d/{rng.bytes(60).hex()}") for at in range(9000)]
    text = "".join(each + "\n" for each in lines).encode()
    whole = pa.compress(text, "zstd", asbytes=True) if pack is None else pack(text)
    (tmp_path / "log").write_bytes(whole[: len(whole) * 9 // 10])
    done = import_logs([tmp_path / "log"], out=tmp_path / "out", mapping=None, zone="UTC")
    assert done.sources[0].refused == {"cut-short": 1}
    found = [row["file"] for row in rows(tmp_path / "out")]
    assert found == [each.split("FILE=")[1].split(" ")[0] for each in lines[: len(found)]]
    assert len(found) > 4000
    (said,) = refused(tmp_path / "out")
    assert said["line"] == len(found) + 1


def test_what_a_small_file_expands_to_is_never_held_whole(tmp_path):
    (tmp_path / "bomb").write_bytes(gzip.compress(bytes(1 << 28)))
    sizes = [len(piece) for piece in pieces(tmp_path / "bomb")]
    assert sum(sizes) == 1 << 28
    assert max(sizes) <= MOST_AT_ONCE


def test_a_giant_line_is_passed_over_in_bounded_memory():
    cutter = Cutter(block_bytes=1 << 20)
    head, tail = (line(0) + "\n").encode(), (line(1) + "\n").encode()
    most = 0
    found = []
    for piece in (head, *[b"x" * (1 << 18)] * 4000, b"\n", tail):
        found += list(cutter.give(piece))
        most = max(most, cutter.held_bytes)
    found += list(cutter.finish())
    assert most <= (1 << 21) + (1 << 18)
    lines = [each.line(at) for each in found for at in range(each.lines)]
    assert lines == [head[:-1], b"", tail[:-1]]
    long = [(each.first_line + at, begun[:3]) for each in found for at, begun in each.too_long]
    assert long == [(2, b"xxx")]
    assert found[-1].end == len(head) + 4000 * (1 << 18) + 1 + len(tail)


def test_a_long_line_within_a_block_is_named_and_the_others_stand(tmp_path):
    done = imported(tmp_path, [line(0), "y" * (block.MOST_LINE_BYTES + 1), line(1)])
    assert done.sources[0].refused == {"too-long": 1}
    assert done.rows == 2
    assert refused(tmp_path / "out")[0]["line"] == 2


@pytest.mark.parametrize("first", ["y" * (block.BLOCK_BYTES + 1), "\n" * 500], ids=["giant", "blank"])
def test_what_a_log_is_may_show_only_after_its_first_lines(tmp_path, first):
    done = imported(tmp_path, [first, line(0), line(1)])
    assert done.rows == 2
    again = follow(tmp_path / "transfers.log", out=tmp_path / "f", mapping=None, zone="UTC", once=True)
    assert sum(step.added for step in again) == 2
    assert rows(tmp_path / "f") == rows(tmp_path / "out")


BAD = {
    "ends-first": line(took_s=-5),
    "wrong-year": line(START="19700101000000.000000"),
    "zero-size": line(NBYTES=0),
    "negative-size": line(NBYTES=-5),
    "too-large": line(NBYTES=1 << 54),
    "too-slow": line(took_s=40 * 86_400),
    "failed": line(CODE=426),
    "no-file": line(TYPE="MLSD"),
    "wrong-type": line(NBYTES="many"),
    "broken": "Nov 21 03:36:08 vm kernel: not a transfer",
}


@pytest.mark.parametrize("kind", BAD)
def test_a_line_that_is_no_transfer_is_counted_named_and_kept_aside(tmp_path, kind):
    done = imported(tmp_path, [line(0), BAD[kind], line(1)])
    assert done.sources[0].refused == {kind: 1}
    assert done.rows == 2
    (said,) = refused(tmp_path / "out")
    assert (said["line"], said["reason"], said["text"]) == (2, kind, BAD[kind])
    assert said["detail"]


def test_the_good_lines_among_all_bad_ones_are_analysed(tmp_path):
    good = [line(0), line(30), line(500)]
    done = imported(tmp_path, [good[0], *BAD.values(), good[1], "x" * (2 << 20), good[2], good[0]])
    assert done.sources[0].refused == {**dict.fromkeys(BAD, 1), "too-long": 1}
    assert done.duplicates == 1
    with open_logs(tmp_path / "out") as logs:
        found = sessions.gather(logs, gaps_s=[60])
        told = logs.rows(sessions.named(found, sessions.sessions(found, gap_s=60)))
        assert sessions.transfer_throughput(logs, found).count == 3
    assert [(each["transfers"], each["duration_s"]) for each in told] == [(2, 31.0), (1, 1.0)]


@pytest.mark.parametrize(
    "change", [{"START": "20261321033608.000000"}, {"START": "2026"}, {"NBYTES": None}, {"DATE": "x" * 21}]
)
def test_a_line_with_a_broken_word_is_broken(tmp_path, change):
    done = imported(tmp_path, [line(0), line(**change), line(1)])
    assert done.sources[0].refused == {"broken": 1}


def test_duplicates_count_once_within_a_log_and_across_imports(tmp_path):
    done = imported(tmp_path, [line(0), line(1), line(0)])
    assert (done.duplicates, done.rows) == (1, 2)
    again = imported(tmp_path, [line(1), line(2)])
    assert (again.duplicates, again.rows) == (1, 3)
    other = write(tmp_path / "other.log", [line(2), line(3)])
    done = import_logs([other], out=tmp_path / "out", mapping=None, zone="UTC")
    assert (done.duplicates, done.rows) == (1, 4)
    # That a log of the same name has the same lines is not kept.
    assert read_ledger(tmp_path / "out").duplicates == 2


def test_a_log_that_is_imported_again_leaves_what_one_import_leaves(tmp_path):
    names = ["a.log", "b.log", "a.log-1"]
    logs = [write(tmp_path / name, [line(at), line(at), f"nonsense {name}"]) for at, name in enumerate(names)]
    for _ in range(3):
        done = import_logs([*logs, logs[0]], out=tmp_path / "out", mapping=None, zone="UTC")
        assert [source.refused for source in done.sources] == [{"broken": 1}] * 3
        assert read_ledger(tmp_path / "out").duplicates == 3
        assert [each["text"] for each in refused(tmp_path / "out")] == [f"nonsense {name}" for name in names]
    write(logs[0], [line(0)])
    import_logs([logs[0]], out=tmp_path / "out", mapping=None, zone="UTC")
    assert [each["file"] for each in refused(tmp_path / "out")] == [str(log) for log in logs[1:]]


def test_a_withheld_destination_is_noted_and_the_transfer_stands(tmp_path):
    done = imported(tmp_path, [line(0, DEST=None), line(1, DEST="[0.0.0.0]"), line(2)])
    assert done.sources[0].notes == {"no-destination": 2}
    assert done.rows == 3


def test_transfers_lie_by_the_day_of_their_start(tmp_path):
    imported(tmp_path, [line(0), line(86_400), line(86_401)])
    days = [(part.day, part.rows) for part in read_ledger(tmp_path / "out").parts]
    assert days == [("2026-11-21", 1), ("2026-11-22", 2)]
    assert {path.parent.name for path in part_paths(tmp_path / "out")} == {"day=2026-11-21", "day=2026-11-22"}


def test_what_was_not_committed_does_not_count_and_is_cleared_away(tmp_path):
    imported(tmp_path, [line(0)])
    left = tmp_path / "out" / "day=2026-11-21" / "left.parquet"
    left.write_bytes(b"half a file")
    assert len(rows(tmp_path / "out")) == 1
    with Store(tmp_path / "out"):
        assert not left.exists()
        with pytest.raises(LogError, match="another import"), Store(tmp_path / "out"):
            pass


def test_a_directory_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("precious")
    with pytest.raises(LogError, match="something else"):
        imported(tmp_path, [line(0)])
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["thesis.txt"]


def test_partitions_of_another_tool_are_left_alone(tmp_path):
    theirs = tmp_path / "out" / "day=2024-01-01" / "part-0.parquet"
    theirs.parent.mkdir(parents=True)
    theirs.write_bytes(b"precious")
    with pytest.raises(LogError, match=r"something else \(day=2024-01-01\)"):
        imported(tmp_path, [line(0)])
    assert theirs.read_bytes() == b"precious"
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["day=2024-01-01"]


def test_transfers_whose_ledger_was_lost_are_left_alone(tmp_path):
    imported(tmp_path, [line(0)])
    (part,) = part_paths(tmp_path / "out")
    (tmp_path / "out" / LEDGER).unlink()
    for _ in range(2):
        with pytest.raises(LogError, match=f"no {LEDGER}"):
            imported(tmp_path, [line(1)])
    assert part.exists()


def test_a_first_import_that_was_killed_is_begun_again(tmp_path):
    with Store(tmp_path / "out"):
        left = tmp_path / "out" / "day=2026-11-21" / "left.parquet"
        left.parent.mkdir()
        left.write_bytes(b"half a file")
        found = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    # As it was before the end of the store cleared it away.
    left.parent.mkdir()
    for path, content in found.items():
        path.write_bytes(content)
    with pytest.raises(LogError, match="import FILE"):
        part_paths(tmp_path / "out")
    assert imported(tmp_path, [line(0)]).rows == 1
    assert not left.exists()


MAPPING = """
[columns]
start = "began"
duration = { name = "took", unit = "ms" }
bytes = { name = "size", unit = "MiB" }
source = "from"
destination = "to"
[only]
state = ["DONE"]
"""


def mapped(tmp_path, text, mapping=MAPPING, zone="UTC"):
    (tmp_path / "map.toml").write_text(mapping)
    (tmp_path / "t.csv").write_text(text)
    found = read_mapping(tmp_path / "map.toml")
    return import_logs([tmp_path / "t.csv"], out=tmp_path / "out", mapping=found, zone=zone)


def test_a_table_is_read_by_its_mapping(tmp_path):
    done = mapped(
        tmp_path,
        "from,to,began,took,size,state\n"
        "a,b,2026-11-21T03:36:08.243840Z,1500,2,DONE\n"
        '"c, of d",b,2026-11-21 04:36:09+01:00,10,0.5,DONE\n'
        "a,b,1795232169,10,0.5,FAILED\n"
        "a,b,2026-11-21 03:36:10,ten,2,DONE\n"
        "a,b,2026-11-21 03:36:11,10,2\n",
    )
    first, second = rows(tmp_path / "out")
    assert (first["start_us"], first["end_us"], first["bytes"]) == (BASE_US, BASE_US + 1_500_000, 2 << 20)
    assert (second["source"], second["bytes"]) == ("c, of d", 1 << 19)
    assert second["start_us"] - first["start_us"] == 756_160
    assert done.sources[0].refused == {"failed": 1, "wrong-type": 1, "broken": 1}
    assert [each["line"] for each in refused(tmp_path / "out")] == [4, 5, 6]


def test_a_table_whose_rows_mix_zones_says_so(tmp_path):
    done = mapped(
        tmp_path,
        "from,to,began,took,size,state\na,b,2026-07-01 12:00:00,10,2,DONE\n"
        "a,b,2026-07-01T12:00:00Z,10,2,DONE\n",
        zone="America/Denver",
    )
    assert done.sources[0].notes == {"mixed-zones": 1}
    utc, local = rows(tmp_path / "out")
    assert local["start_us"] - utc["start_us"] == 6 * 3600 * 10**6


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("columns = 1", "columns"),
        ("[columns]\nstart='a'\nbytes='b'", "end and duration"),
        ("[columns]\nstart='a'\nend='b'", "bytes"),
        ("[columns]\nstart='a'\nend='b'\nbytes={name='c', unit='MBit'}", "MBit"),
        ("[columns]\nstart='a'\nend='b'\nbytes='c'\nwidth='d'", "width"),
        ("rows = 2", "rows"),
        ("[columns", "TOML"),
        ("delimiter = '::'\n[columns]\nstart='a'\nend='b'\nbytes='c'", "delimiter"),
    ],
)
def test_a_mapping_that_means_nothing_is_refused_with_its_key(tmp_path, text, words):
    (tmp_path / "map.toml").write_text(text)
    with pytest.raises(LogError, match=words):
        read_mapping(tmp_path / "map.toml")


def test_a_heading_without_a_mapped_column_is_refused(tmp_path):
    with pytest.raises(LogError, match="took"):
        mapped(tmp_path, "from,to,began,size,state\n")


JSON = {
    "farlink": {
        "schema": 1, "kind": "file", "mode": "size", "outcome": "ok",
        "started": "2026-11-21T03:36:08.243840123Z",
        "duration_s": 2.5, "bytes": 1000, "source": "a", "destination": "b", "streams": 8,
        "cpu_s": {"sender": 1.5, "receiver": 2.0},
    },
    "fts": {
        "tr_timestamp_start": "1795232168243", "tr_timestamp_complete": 1795232170743, "f_size": "1000",
        "src_hostname": "a", "dst_hostname": "b", "t_final_transfer_state": "Ok", "nstreams": "8",
    },
    "rucio": {
        "event_type": "transfer-done",
        "payload": {
            "started_at": "2026-11-21 03:36:08.243000", "transferred_at": "2026-11-21 03:36:10.743000",
            "bytes": 1000, "src-rse": "a", "dst-rse": "b",
        },
    },
    "xrootd": {
        "start_time": 1795232168, "end_time": 1795232171, "operation_time": 3,
        "server_hostname": "a", "host": "b", "read": 1000, "write": 0, "filename": "/f",
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", JSON)
def test_reports_of_other_movers_are_read_as_they_are(tmp_path, kind):
    done = imported(tmp_path, [json.dumps(JSON[kind])])
    assert done.sources[0].refused == {}
    (row,) = rows(tmp_path / "out")
    assert abs(row["start_us"] - BASE_US) < 250_000
    assert 2.4e6 < row["end_us"] - row["start_us"] < 3.1e6
    assert (row["bytes"], row["source"], row["destination"]) == (1000, "a", "b")


def test_a_farlink_record_keeps_its_cpu_times(tmp_path):
    bad = [json.dumps({**JSON["farlink"], "outcome": outcome}) for outcome in ("failed", "interrupted")]
    done = imported(tmp_path, [json.dumps(JSON["farlink"]), *bad, *bad[1:], '{"a": 1}', "{"])
    assert done.sources[0].refused == {"failed": 1, "interrupted": 2, "no-transfer": 1, "broken": 1}
    said = "\n".join(told(done, out=tmp_path / "out"))
    assert "  1 cannot be read\n  1 is of a transfer that failed\n" in said
    assert "  2 are of transfers that were interrupted\n  1 is JSON of no shape that is known" in said
    (row,) = rows(tmp_path / "out")
    assert (row["sender_cpu_s"], row["receiver_cpu_s"], row["streams"]) == (1.5, 2.0, 8)


def test_a_file_that_is_no_log_is_named_and_the_others_are_read(tmp_path):
    (tmp_path / "notes.txt").write_text("hello\nworld\n")
    good = write(tmp_path / "good.log", [line(0)])
    done = import_logs(
        [tmp_path / "notes.txt", tmp_path / "gone.log", tmp_path, good],
        out=tmp_path / "out",
        mapping=None,
        zone="UTC",
    )
    assert done.rows == 1
    assert [said.split(": ")[1][:7] for said in done.unreadable] == ["neither", "No such", "not a r"]


def test_a_broken_log_of_which_nothing_can_be_read_is_named_and_leaves_nothing(lab):
    cut = lab.home / "cut.gz"
    cut.write_bytes(gzip.compress("".join(f"{line(at)}\n" for at in range(50)).encode())[:60])
    (lab.home / "p.toml").write_text("x = 1\n")
    for path, said in (
        (cut, "no line of it can be read: get the log again"),
        (lab.home / "p.toml", "neither"),
    ):
        done = lab.here("logs", "import", path, "--out", lab.out / "made" / "too")
        assert (done.returncode, done.stdout) == (2, "")
        assert f"{path}: " in done.stderr
        assert said in done.stderr
        assert not lab.out.exists()
    # What was there before stays, and is told.
    good = write(lab.home / "good.log", [line(0)])
    assert lab.here("logs", "import", good, "--out", lab.out).returncode == 0
    done = lab.here("logs", "import", cut, "--out", lab.out)
    assert (done.returncode, done.stdout) == (2, f"1 transfer in {lab.out}\n")
    assert len(rows(lab.out)) == 1
    (lab.home / "empty").mkdir()
    assert lab.here("logs", "import", cut, "--out", lab.home / "empty").returncode == 2
    assert list((lab.home / "empty").iterdir()) == []


@pytest.mark.parametrize("text", ["20261121033608.253248", "20240229235959.999999", "19991231235960.000000"])
def test_a_stamp_by_digits_is_the_stamp_by_words(text):
    digits = np.frombuffer(text.encode(), np.uint8).reshape(1, -1)
    micros, good = stamp.stamps_us(digits)
    assert good[0]
    assert micros[0] == stamp.stamp_us(text)


@pytest.mark.parametrize("text", ["20260230000000.000000", "20261300000000.000000", "2026112103360a.253248"])
def test_a_stamp_that_is_no_time_is_none_either_way(text):
    digits = np.frombuffer(text.encode(), np.uint8).reshape(1, -1)
    assert not stamp.stamps_us(digits)[1][0]
    with pytest.raises(stamp.StampError):
        stamp.stamp_us(text)
