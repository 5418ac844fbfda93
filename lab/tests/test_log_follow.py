"""A log that grows is imported as it grows: nothing twice, nothing lost, whatever ends it."""

import gzip
import json
import os

import pytest

from farlink_lab.logs.following import Follower, follow
from farlink_lab.logs.store import REFUSED, Store, read_ledger
from farlink_lab.logs.transfer import LogError
from log_lines import line, rows, write


def append(path, text):
    with path.open("a") as file:
        file.write(text)


def once(path, out):
    return sum(step.added for step in follow(path, out=out, mapping=None, zone="UTC", once=True))


def test_an_unfinished_line_waits_for_its_end(tmp_path):
    path, out = write(tmp_path / "log", [line(0)]), tmp_path / "out"
    with Store(out) as store:
        follower = Follower(path=path, store=store, mapping=None, zone="UTC")
        assert follower.step().added == 1
        text = line(1)
        append(path, text[:100])
        assert follower.step().added == 0
        append(path, text[100:] + "\n" + line(2)[:7])
        assert follower.step().added == 1
        assert len(rows(out)) == 2
        follower.close()


def test_a_follower_goes_on_where_another_ended(tmp_path):
    path, out = write(tmp_path / "log", [line(0), line(1)]), tmp_path / "out"
    assert once(path, out) == 2
    append(path, line(2) + "\nnonsense\n")
    assert once(path, out) == 1
    assert once(path, out) == 0
    ledger = read_ledger(out)
    assert len(rows(out)) == 3
    assert (ledger.duplicates, ledger.sources[0].lines, ledger.sources[0].refused) == (0, 4, {"broken": 1})


def test_what_was_read_and_not_committed_is_read_again(tmp_path):
    path, out = write(tmp_path / "log", [line(0)]), tmp_path / "out"
    assert once(path, out) == 1
    append(path, line(1) + "\n")
    with Store(out) as store:
        follower = Follower(path=path, store=store, mapping=None, zone="UTC")
        # As if the process had ended between the reading and the ledger.
        follower._take_new()
        follower.close()
    assert once(path, out) == 1
    assert len(rows(out)) == 2
    assert read_ledger(out).duplicates == 0


def test_a_rotated_log_is_read_to_its_end_and_then_the_new_one(tmp_path):
    path, out = write(tmp_path / "log", [line(0)]), tmp_path / "out"
    with Store(out) as store:
        follower = Follower(path=path, store=store, mapping=None, zone="UTC")
        follower.step()
        path.rename(tmp_path / "log.1")
        append(tmp_path / "log.1", line(1) + "\n" + line(2))
        follower.step()
        write(path, [line(3)])
        follower.step()
        follower.step()
        follower.close()
    assert len(rows(out)) == 4
    assert read_ledger(out).sources[0].lines == 4


def rotate(path, *, to="log.1"):
    path.rename(path.parent / to)
    return write(path, [])


def test_a_tail_that_was_rotated_between_two_runs_is_read(tmp_path):
    path, out = write(tmp_path / "log", [line(0)]), tmp_path / "out"
    assert once(path, out) == 1
    append(path, line(1) + "\n" + line(2))
    append(rotate(path), line(3) + "\n")
    assert once(path, out) == 3
    append(path, line(4) + "\n")
    assert once(path, out) == 1
    assert (len(rows(out)), read_ledger(out).duplicates) == (5, 0)


def test_a_server_that_goes_on_in_a_rotated_log_is_heard_until_it_writes_the_new_one(tmp_path):
    path, out = write(tmp_path / "log", [line(0)]), tmp_path / "out"
    assert once(path, out) == 1
    rotate(path)
    for _ in range(2):
        # It was not told yet.
        assert once(path, out) == 0
    append(tmp_path / "log.1", line(1) + "\n")
    assert once(path, out) == 1
    append(path, line(2) + "\n")
    assert once(path, out) == 1
    assert len(rows(out)) == 3


def test_lines_that_come_with_the_rotation_are_read(tmp_path, monkeypatch):
    path, out = write(tmp_path / "log", [line(0)]), tmp_path / "out"
    look = Follower._was_replaced

    def rotated(follower):
        # After the last look at the old file, and before the look at its name.
        append(path, line(1) + "\n")
        append(rotate(path), line(2) + "\n")
        monkeypatch.setattr(Follower, "_was_replaced", look)
        return look(follower)

    monkeypatch.setattr(Follower, "_was_replaced", rotated)
    assert once(path, out) == 3
    assert len(rows(out)) == 3


def test_a_rotated_log_that_is_gone_is_warned_of(tmp_path):
    path, out = write(tmp_path / "log", [line(0)]), tmp_path / "out"
    assert once(path, out) == 1
    append(path, line(1) + "\n")
    (tmp_path / "log.1.gz").write_bytes(gzip.compress(path.read_bytes()))
    # Were it removed, its number might be given to the new one.
    (tmp_path / "there").mkdir()
    path.rename(tmp_path / "there" / "log.1")
    write(path, [line(2)])
    first, *more = follow(path, out=out, mapping=None, zone="UTC", once=True)
    assert (first.added, more) == (1, [])
    (warning,) = first.warnings
    assert "log.1.gz" in warning
    assert once(path, out) == 0


def test_another_log_with_the_number_of_one_that_is_gone_is_read_from_its_beginning(tmp_path):
    path, out = write(tmp_path / "log", [line(0)]), tmp_path / "out"
    assert once(path, out) == 1
    # As long, and with the inode: a new file may get that of one that was compressed and removed.
    write(path, [line(1)])
    first, *more = follow(path, out=out, mapping=None, zone="UTC", once=True)
    assert (first.added, len(first.warnings), more) == (1, 1, [])
    append(path, line(2) + "\n")
    (step,) = follow(path, out=out, mapping=None, zone="UTC", once=True)
    assert (step.added, step.warnings) == (1, ())


def test_of_a_log_that_was_rotated_twice_the_one_between_is_warned_of(tmp_path):
    path, out = write(tmp_path / "log", [line(0)]), tmp_path / "out"
    assert once(path, out) == 1
    append(path, line(1) + "\n")
    rotate(path, to="log.2")
    append(path, line(2) + "\n")
    append(rotate(path), line(3) + "\n")
    os.utime(tmp_path / "log.2", (1, 1))
    (first,) = follow(path, out=out, mapping=None, zone="UTC", once=True)
    (warning,) = first.warnings
    assert (first.added, str(tmp_path / "log.1") in warning) == (2, True)


def test_refused_lines_are_numbered_in_the_file_that_has_them(tmp_path):
    path, out = write(tmp_path / "log", [line(at) for at in range(5)]), tmp_path / "out"
    assert once(path, out) == 5
    append(rotate(path), line(6) + "\n")
    assert once(path, out) == 1
    append(path, "nonsense\n")
    once(path, out)
    (said,) = map(json.loads, (out / REFUSED).read_text().splitlines())
    assert (said["line"], read_ledger(out).sources[0].lines) == (2, 7)


def test_a_log_that_was_copied_and_truncated_is_read_from_its_beginning(tmp_path):
    path, out = write(tmp_path / "log", [line(at) for at in range(5)]), tmp_path / "out"
    with Store(out) as store:
        follower = Follower(path=path, store=store, mapping=None, zone="UTC")
        follower.step()
        path.write_text(line(9) + "\n")
        follower.step()
        follower.step()
        follower.close()
    assert len(rows(out)) == 6


def test_many_steps_leave_few_files(tmp_path):
    path, out = write(tmp_path / "log", [line(0)]), tmp_path / "out"
    with Store(out) as store:
        follower = Follower(path=path, store=store, mapping=None, zone="UTC")
        for at in range(1, 80):
            follower.step()
            append(path, line(at) + "\n")
        follower.step()
        follower.close()
        store.commit()
    ledger = read_ledger(out)
    assert (ledger.rows, len(ledger.parts) <= 9) == (80, True)


def test_a_compressed_log_is_not_followed(tmp_path):
    (tmp_path / "log").write_bytes(b"\x1f\x8b\x08\x00")
    with pytest.raises(LogError, match="compressed"):
        once(tmp_path / "log", tmp_path / "out")
