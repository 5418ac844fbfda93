"""The records file: whole lines or none, one writer."""

from __future__ import annotations

import errno
import os

import pytest

from farlink_lab.run.journal import Journal, JournalError


def test_a_full_disk_leaves_what_stood_and_says_the_record(tmp_path, monkeypatch):
    path = tmp_path / "records.jsonl"
    with Journal(path) as journal:
        journal.append({"n": 1})

        def full(*_):
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "write", full)
        with pytest.raises(JournalError, match=r'No space left on device: make room .* was \{"n":2\}'):
            journal.append({"n": 2})
    assert path.read_text() == '{"n":1}\n'


def test_a_short_write_is_taken_back(tmp_path, monkeypatch):
    path = tmp_path / "records.jsonl"
    write = os.write
    with Journal(path) as journal:
        journal.append({"n": 1})
        monkeypatch.setattr(os, "write", lambda file, line: write(file, line[:3]))
        with pytest.raises(JournalError, match="could not be written whole"):
            journal.append({"n": 2})
    assert path.read_text() == '{"n":1}\n'


def test_a_line_cut_short_does_not_swallow_the_next(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_text('{"n":')
    with Journal(path) as journal:
        journal.append({"n": 2})
    assert path.read_text() == '{"n":\n{"n":2}\n'


def test_there_is_one_writer(tmp_path):
    path = tmp_path / "records.jsonl"
    with Journal(path), pytest.raises(JournalError, match="another campaign is writing there"), Journal(path):
        pass


def test_a_record_is_replaced_in_its_place_and_nothing_else(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_text('{"id":"a","n":1}\n{"id":\n{"id":"b","n":1}\n')
    with Journal(path) as journal:
        journal.replace({"b": {"id": "b", "n": 2}, "none": {"id": "none"}})
        with pytest.raises(JournalError, match="another campaign"), Journal(path):
            pass
        journal.append({"id": "c"})
    assert path.read_text() == '{"id":"a","n":1}\n{"id":\n{"id":"b","n":2}\n{"id":"c"}\n'
    assert [each.name for each in tmp_path.iterdir()] == ["records.jsonl"]
