"""Whatever a line has in it, it is a transfer or it is set aside: it never ends an import."""

import io
import json
import sys

import pytest

from farlink_lab.logs.importing import import_logs
from farlink_lab.logs.mapping import read_mapping
from farlink_lab.logs.store import REFUSED, read_ledger
from farlink_lab.terminal import say
from log_lines import imported, line, rows, write


def refused(directory):
    return [json.loads(each) for each in (directory / REFUSED).read_text().splitlines()]


def among_others(tmp_path, bad, *, many=150):
    """What comes of a line among so many others that they are read by columns."""
    lines = [line(at) for at in range(many)]
    lines[many // 2] = bad
    done = imported(tmp_path, lines)
    assert done.sources[0].lines == many
    return done


@pytest.mark.parametrize("bad", ["{}\r\r", "{}\r"], ids=["two", "one"])
def test_a_line_that_ends_in_carriage_returns_is_a_line(tmp_path, bad):
    done = among_others(tmp_path, bad.format(line(75, FILE="/d/b.bin")))
    assert (done.rows, done.sources[0].refused) == (150, {})
    assert rows(tmp_path / "out")[75]["file"] == "/d/b.bin"


def test_a_carriage_return_within_a_line_ends_no_line(tmp_path):
    done = among_others(tmp_path, line(75, FILE="/d/a\rb.bin"))
    assert (done.rows, done.sources[0].refused) == (150, {})
    assert rows(tmp_path / "out")[75]["file"] == "/d/a\rb.bin"


def test_a_carriage_return_within_a_broken_line_leaves_the_others_alone(tmp_path):
    done = among_others(tmp_path, "half a \rline\r")
    assert (done.rows, done.sources[0].refused) == (149, {"broken": 1})
    (said,) = refused(tmp_path / "out")
    assert said["line"] == 76


@pytest.mark.parametrize("number", ["4294967295", "2147483648", "-2147483649", "9" * 5000, str(1 << 63)])
@pytest.mark.parametrize("key", ["STREAMS", "STRIPES"])
def test_a_number_out_of_range_is_set_aside(tmp_path, key, number):
    done = among_others(tmp_path, line(75, **{key: number}))
    assert (done.rows, done.sources[0].refused) == (149, {"wrong-type": 1})
    assert key in refused(tmp_path / "out")[0]["detail"]


@pytest.mark.parametrize("number", ["NBYTES", "BLOCK", "BUFFER"])
def test_a_number_longer_than_any_is_set_aside(tmp_path, number):
    done = among_others(tmp_path, line(75, **{number: "9" * 5000}))
    assert (done.rows, done.sources[0].refused) == (149, {"wrong-type": 1})


@pytest.mark.parametrize("text", ["99999999999999999999", "²", "1,²", "9" * 5000, ",".join(["9" * 18] * 10)])
def test_retransmissions_that_are_no_counts_are_not_known(tmp_path, text):
    done = among_others(tmp_path, line(75, retrans=text))
    assert (done.rows, done.sources[0].refused) == (150, {})
    assert rows(tmp_path / "out")[75]["retransmits"] is None


RECORD = {
    "schema": 1, "kind": "file", "mode": "size", "outcome": "ok", "started": "2026-11-21T03:36:08Z",
    "duration_s": 2.5, "bytes": 1000, "source": "a", "destination": "b", "streams": 8,
}  # fmt: skip


def test_half_a_character_in_json_is_a_question_mark(tmp_path):
    done = imported(tmp_path, [json.dumps(RECORD), json.dumps({**RECORD, "source": "caf\udce9"})])
    assert (done.rows, done.sources[0].refused) == (2, {})
    assert [row["source"] for row in rows(tmp_path / "out")] == ["a", "caf?"]


@pytest.mark.parametrize("bad", [{**RECORD, "bytes": "caf\udce9"}, {"caf\udce9": 1}])
def test_half_a_character_in_what_is_refused_is_kept(tmp_path, bad):
    done = imported(tmp_path, [json.dumps(RECORD), json.dumps(bad)])
    assert (done.rows, sum(done.sources[0].refused.values())) == (1, 1)
    assert "caf\udce9" in refused(tmp_path / "out")[0]["detail"]


@pytest.mark.parametrize("number", ["9" * 5000, "9" * 21, "-" + "9" * 5000])
@pytest.mark.parametrize("key", ["bytes", "streams", "duration_s", "started"])
def test_a_text_of_many_digits_is_set_aside(tmp_path, key, number):
    done = imported(tmp_path, [json.dumps(RECORD), json.dumps({**RECORD, key: number})])
    assert (done.rows, done.sources[0].refused) == (1, {"wrong-type": 1})


def test_a_whole_number_of_many_digits_is_set_aside(tmp_path):
    (tmp_path / "map.toml").write_text(
        'columns = { start = "began", duration = "took", bytes = { name = "size", unit = "MiB" } }'
    )
    row = {"began": "2026-11-21T03:36:08Z", "took": 1, "size": 10}
    log = write(tmp_path / "log", [json.dumps({**row, "size": size}) for size in (10, 10**400)])
    done = import_logs([log], out=tmp_path / "out", mapping=read_mapping(tmp_path / "map.toml"), zone="UTC")
    assert (done.rows, done.sources[0].refused) == (1, {"wrong-type": 1})


def test_a_log_whose_name_is_no_text_is_imported(tmp_path):
    log = tmp_path / "caf\udce9"
    write(log, [line(0), "nonsense"])
    import_logs([log], out=tmp_path / "out", mapping=None, zone="UTC")
    assert [source.name for source in read_ledger(tmp_path / "out").sources] == [str(log)]
    assert refused(tmp_path / "out")[0]["file"] == str(log)


def test_a_name_that_is_no_text_is_told(monkeypatch):
    told = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(told, encoding="utf-8"))
    say("caf\udce9: 2 lines")
    assert told.getvalue() == b"caf\\udce9: 2 lines\n"
