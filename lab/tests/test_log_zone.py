"""Local times of logs become UTC, through both changes of the clocks."""

import numpy as np
import pytest

from farlink_lab.logs.transfer import US, LogError
from farlink_lab.logs.zone import Zone
from log_lines import imported, line, rows

HOUR = 3600 * US


def utc(text):
    return int(np.datetime64(text, "us").astype(np.int64))


def converted(zone, pairs):
    start, end = (np.array([utc(pair[at]) for pair in pairs]) for at in (0, 1))
    return zone.to_utc(start, end)


def test_summer_and_winter_have_their_own_offset():
    start, _, skipped = converted(
        Zone(name="Europe/Zurich"),
        [("2026-01-10T12:00", "2026-01-10T12:01"), ("2026-07-10T12:00", "2026-07-10T12:01")],
    )
    assert start.tolist() == [utc("2026-01-10T11:00"), utc("2026-07-10T10:00")]
    assert not skipped.any()


def test_a_time_that_clocks_skipped_is_told():
    # In Denver 02:00 to 03:00 of 8 March 2026 were never shown.
    _, _, skipped = converted(Zone(name="America/Denver"), [("2026-03-08T02:30", "2026-03-08T03:10")])
    assert skipped.tolist() == [True]


def test_the_hour_that_clocks_show_twice_is_told_apart_by_the_order_of_the_log():
    # In Denver 01:00 to 02:00 of 1 November 2026 came twice: 07:00 and 08:00 UTC.
    zone = Zone(name="America/Denver")
    start, end, skipped = converted(
        zone,
        [
            ("2026-11-01T00:50", "2026-11-01T00:55"),
            ("2026-11-01T01:10", "2026-11-01T01:20"),
            ("2026-11-01T01:40", "2026-11-01T01:50"),
            ("2026-11-01T01:50", "2026-11-01T01:05"),
            ("2026-11-01T01:06", "2026-11-01T01:15"),
            ("2026-11-01T01:30", "2026-11-01T01:50"),
            ("2026-11-01T02:10", "2026-11-01T02:20"),
        ],
    )
    assert ((start - utc("2026-11-01T06:00")) / HOUR * 60).round().tolist() == [
        50,
        70,
        100,
        110,
        126,
        150,
        190,
    ]
    assert ((end - utc("2026-11-01T06:00")) / HOUR * 60).round().tolist() == [55, 80, 110, 125, 135, 170, 200]
    assert zone.repeated == 5
    assert not skipped.any()


def test_the_order_holds_across_blocks():
    zone = Zone(name="America/Denver")
    converted(zone, [("2026-11-01T01:40", "2026-11-01T01:50")])
    start, _, _ = converted(zone, [("2026-11-01T01:10", "2026-11-01T01:12")])
    assert start.tolist() == [utc("2026-11-01T08:10")]
    # Not back by much, but in the same hour, which has come for the second time.
    start, _, _ = converted(zone, [("2026-11-01T01:40", "2026-11-01T01:48")])
    assert start.tolist() == [utc("2026-11-01T08:40")]


def test_a_log_in_local_time_is_imported_as_such(tmp_path):
    imported(tmp_path, [line(0)], zone="Asia/Tokyo")
    (row,) = rows(tmp_path / "out")
    assert row["start_us"] == utc("2026-11-20T18:36:08.243840")


def test_a_zone_that_nobody_knows_is_refused(tmp_path):
    with pytest.raises(LogError, match="Mars/Olympus"):
        imported(tmp_path, [line(0)], zone="Mars/Olympus")
