"""A disk that gives no more, or takes no more: what is there counts, and nothing is half written."""

import errno
import io
import json
import os
from pathlib import Path

import pytest

from farlink_lab.logs import store as stores
from farlink_lab.logs.block import BLOCK_BYTES
from farlink_lab.logs.following import follow
from farlink_lab.logs.importing import import_logs
from farlink_lab.logs.store import REFUSED, Store, part_paths, read_ledger
from farlink_lab.logs.transfer import LogError
from log_lines import line, rows, write


class Damaged(io.FileIO):
    """A file whose disk gives its first bytes alone."""

    good = 0

    def readinto(self, buffer):
        """What is good of it."""
        if self.tell() >= self.good:
            raise OSError(errno.EIO, "Input/output error")
        return super().readinto(memoryview(buffer)[: self.good - self.tell()])


def damaged(monkeypatch, path, good):
    """Has the file of that path give so many bytes and no more."""
    usual = Path.open

    def opened(self, mode="r", *args, **kwargs):
        if self != path or mode != "rb":
            return usual(self, mode, *args, **kwargs)
        file = Damaged(self)
        file.good = good
        return io.BufferedReader(file)

    monkeypatch.setattr(Path, "open", opened)


def test_a_log_that_cannot_be_read_on_counts_as_far_as_it_was(tmp_path, monkeypatch):
    many = BLOCK_BYTES // len(line(0)) + 1000
    log = write(tmp_path / "log", [line(at) for at in range(many)])
    whole = write(tmp_path / "whole", [line(-5)])
    good = log.stat().st_size - 500
    damaged(monkeypatch, log, good)
    done = import_logs([log, whole], out=tmp_path / "out", mapping=None, zone="UTC")
    assert done.unreadable == ()
    assert [source.refused for source in read_ledger(tmp_path / "out").sources] == [{"cut-short": 1}, {}]
    kept = done.sources[0].kept
    assert (many - 3 <= kept < many, done.rows) == (True, kept + 1)
    (said,) = map(json.loads, (tmp_path / "out" / REFUSED).read_text().splitlines())
    assert (said["line"], "Input/output error" in said["detail"]) == (kept + 1, True)


def test_a_log_that_cannot_be_read_at_all_is_named(tmp_path, monkeypatch):
    log, out = write(tmp_path / "log", [line(0)]), tmp_path / "out"
    damaged(monkeypatch, log, 0)
    done = import_logs([log], out=out, mapping=None, zone="UTC")
    assert (len(done.unreadable), out.exists()) == (1, False)


def test_a_followed_log_that_cannot_be_read_on_counts_as_far_as_it_was(tmp_path, monkeypatch):
    log, out = write(tmp_path / "log", [line(0), line(1)]), tmp_path / "out"
    with monkeypatch.context() as patch:
        damaged(patch, log, len(line(0)) + 9)
        with pytest.raises(LogError, match="Input/output error"):
            list(follow(log, out=out, mapping=None, zone="UTC", once=True))
    assert len(rows(out)) == 1
    (step,) = follow(log, out=out, mapping=None, zone="UTC", once=True)
    assert (step.added, read_ledger(out).duplicates) == (1, 0)


def full(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


WHERE = {
    "part": (stores.pq, "write_table"),
    "tidied part": (stores.pq, "ParquetWriter"),
    "day": (Store, "_new_path"),
    "refused": (stores, "_append"),
    "ledger": (stores.os, "fsync"),
}


@pytest.mark.parametrize("where", WHERE)
def test_a_full_disk_is_said_of_the_directory_and_nothing_of_the_import_counts(tmp_path, monkeypatch, where):
    log, out = write(tmp_path / "log", [line(0), "nonsense"]), tmp_path / "out"
    import_logs([log], out=out, mapping=None, zone="UTC")
    before = (rows(out), read_ledger(out))
    more = write(tmp_path / "more", [line(0), line(1), "more nonsense"])
    with monkeypatch.context() as patch:
        patch.setattr(*WHERE[where], full)
        # Whether it is found while lines are read or at the end.
        patch.setattr(stores, "_ASIDE_AT_ONCE", 0)
        with pytest.raises(LogError, match=f"{out}: No space left on device: make room"):
            import_logs([more], out=out, mapping=None, zone="UTC")
    assert (rows(out), read_ledger(out)) == before
    done = import_logs([more], out=out, mapping=None, zone="UTC")
    assert (done.rows, len(read_ledger(out).sources)) == (2, 2)
    said = [json.loads(each)["text"] for each in (out / REFUSED).read_text().splitlines()]
    assert said == ["nonsense", "more nonsense"]
    assert {path.name for path in out.glob("day=*/*")} == {path.name for path in part_paths(out)}


def test_what_is_added_to_a_file_is_added_whole_or_not(tmp_path):
    path = tmp_path / "lines"

    def lines():
        yield b"one\n"
        yield b"x" * 100_000
        full()

    for before in (None, b"zero\n"):
        if before is not None:
            path.write_bytes(before)
        with pytest.raises(OSError, match="No space"):
            stores._append(path, lines())
        assert path.read_bytes() == (before or b"")
