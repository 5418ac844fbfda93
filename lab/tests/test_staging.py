"""The files of file movers: made, watched, and refused where there is no room."""

from __future__ import annotations

import subprocess
import sys

import pytest

from farlink_lab.run import child, on_host
from farlink_lab.run.server import Serving
from farlink_lab.run.staging import NoRoomError, Staging, check_room


def test_a_source_is_of_its_size_and_does_not_compress(tmp_path):
    path = tmp_path / "new" / "source"
    on_host.fill(path, on_host.PATTERN_BYTES + 5)
    data = path.read_bytes()
    assert len(data) == on_host.PATTERN_BYTES + 5
    assert data[:5] == data[-5:]
    assert len(set(data[:4096])) > 200


def test_touching_memory_leaves_no_file(tmp_path):
    on_host.touch(tmp_path / "room", 4096)
    assert not list(tmp_path.iterdir())


def test_a_file_with_holes_has_not_arrived(tmp_path):
    with (tmp_path / "half").open("wb") as file:
        file.write(b"x" * 8192)
        file.truncate(1 << 20)
    assert on_host.arrived_bytes(tmp_path) == 8192


def test_samples_add_up_to_what_was_moved(tmp_path):
    watched = tmp_path / "watched"
    # Before the start, at rest, while a file is renamed, too much, after the end, and a line cut short.
    watched.write_text("9.9 0\n10.1 0\n10.2 400\n10.3 0\n10.4 5000\n11.5 1000\n11.6")
    staging = Staging(emulation=None, watched=watched)
    samples = staging.samples(started_s=10.0, wall_s=1.0, size_bytes=1000)
    assert [end for end, _ in samples] == pytest.approx([0.1, 0.2, 0.3, 0.4, 1.0])
    assert [arrived for _, arrived in samples] == [0, 400, 0, 600, 0]


def test_a_file_that_has_no_room_is_refused():
    check_room(1, label="x")
    with pytest.raises(NoRoomError, match=r"big: a file of .* is kept in memory at both ends"):
        check_room(10**17, label="big")


def test_a_childs_cpu_is_its_own_and_its_childrens():
    spin = "import time\nend = time.process_time() + 0.05\nwhile time.process_time() < end: pass\n"
    twice = f"import subprocess, sys\n{spin}subprocess.run([sys.executable, '-c', {spin!r}])\n"
    before = child.ended_cpu_s()
    process = child.start([sys.executable, "-c", twice])
    process.wait()
    child.end(process)
    assert child.ended_cpu_s() - before >= 0.1
    assert Serving().cpu_s is None


def test_descendants_are_found_over_generations():
    process = child.start(["sh", "-c", "sh -c 'echo up; sleep 600 & wait' & wait"])
    try:
        assert child.first_line(process, limit_s=30.0) == "up"
        names = subprocess.run(
            ["ps", "-o", "comm=", *map(str, child.descendants(process))],
            capture_output=True,
            text=True,
            check=False,
        )
        assert "sh" in names.stdout.split()
    finally:
        child.end(process)
    assert child.descendants(process) == []
