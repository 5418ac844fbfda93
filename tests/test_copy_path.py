"""How a copy sends where nobody says how: over a short path otherwise than over a long one."""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from copying import BLOCK, MEDDLED_PORT, Ends, ends
from emulation import ROOT, Emulation, farlink, next_line, run

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def short() -> Iterator[Ends]:
    """Two hosts in one room, whose administrator has chosen a congestion control."""
    with Emulation(options=["--rate", "500mbit", "--rtt", "0.4ms"]) as emulation, ends(emulation) as both:
        for host in "ab":
            run([*emulation.command(host), "sysctl", "-qw", "net.ipv4.tcp_congestion_control=reno"])
        yield both


@pytest.fixture(scope="module")
def long() -> Iterator[Ends]:
    """The same, and a country between them."""
    with Emulation(options=["--rate", "500mbit", "--rtt", "20ms"]) as emulation, ends(emulation) as both:
        for host in "ab":
            run([*emulation.command(host), "sysctl", "-qw", "net.ipv4.tcp_congestion_control=reno"])
        yield both


@pytest.fixture(scope="module")
def far() -> Iterator[Ends]:
    """Hosts whose path holds what many windows do."""
    with Emulation(options=["--rate", "500mbit", "--rtt", "100ms"]) as emulation, ends(emulation) as both:
        yield both


@pytest.fixture(scope="module")
def slow() -> Iterator[Ends]:
    """A path over which one block takes a second."""
    options = ["--rate", "8mbit", "--rtt", "20ms", "--mtu", "1500", "--queue", "200ms"]
    with Emulation(options=options) as emulation, ends(emulation) as both:
        yield both


def few() -> int:
    """Streams over a path that holds little."""
    return min(max(os.cpu_count() or 2, 2), 8)


def fewest(both: Ends, *words: str | Path) -> int:
    """The streams of the copy that had the fewest: a busy machine adds to the round trip."""
    records = [both.copy(*words).record for _ in range(3)]
    assert all(record["streams_chosen"] for record in records)
    assert all(("congestion_chosen" in record) == ("--buffer" not in words) for record in records)
    return min(int(record["streams"]) for record in records)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A file of some blocks."""
    path = tmp_path / "file"
    path.write_bytes(random.Random(5).randbytes(16 * BLOCK + 99))
    return path


def places(both: Ends, source: Path, there: Path, way: str) -> tuple[str | Path, str | Path]:
    """From where to where: the end that was reached receives, or sends."""
    return (source, both.far(there)) if way == "to" else (both.far(source), there)


# The round trip that its connections measure is to be the path's: on a busy machine it may be more than 5 ms.
@pytest.mark.timed
@pytest.mark.parametrize("way", ["to", "from"])
def test_over_a_short_path_it_sends_with_cubic_and_says_why(
    short: Ends, source: Path, tmp_path: Path, way: str
) -> None:
    record = short.copy(*places(short, source, tmp_path / "copy", way)).record
    assert record["congestion"] == "cubic"
    # A busy machine may take 5 ms for the first round trip, by which they are counted.
    assert record["streams"] in {few(), 8}
    assert "shorter than 5ms" in record["congestion_reason"]
    assert "reno" in record["congestion_reason"]
    assert (tmp_path / "copy").read_bytes() == source.read_bytes()


@pytest.mark.parametrize("way", ["to", "from"])
def test_over_a_long_path_it_sends_as_the_host_does(
    long: Ends, source: Path, tmp_path: Path, way: str
) -> None:
    record = long.copy(*places(long, source, tmp_path / "copy", way)).record
    assert record["congestion"] == "reno"
    assert "congestion_reason" not in record


# What another process has loaded goes with that process, and a copy that wanted it then has the kernel's.
@pytest.mark.timed
@pytest.mark.parametrize("way", ["to", "from"])
def test_a_copy_that_fills_a_long_path_goes_on_with_bbr(far: Ends, tmp_path: Path, way: str) -> None:
    settings = Path("/proc/sys/net/ipv4")
    default = (settings / "tcp_congestion_control").read_text().strip()
    if default not in {"cubic", "bbr"}:
        pytest.skip("this machine's administrator has chosen another")
    if "bbr" not in (settings / "tcp_available_congestion_control").read_text().split():
        pytest.skip("this kernel has no BBR")
    known = {entry["name"]: entry["state"] for entry in json.loads(farlink("congestion", "--json").stdout)}
    expected = "bbr" if known["bbr_tso"] == "unavailable" else "bbr_tso"
    source = tmp_path / "large"
    source.write_bytes(random.Random(6).randbytes(64 << 20))
    record = far.copy(*places(far, source, tmp_path / "copy", way)).record
    assert record["congestion"] == expected
    reason = record.get("congestion_reason", "")
    assert reason.startswith("cubic, this host's default, takes too long") == (default == "cubic")
    in_larger_pieces = default == "bbr" and expected == "bbr_tso"
    assert reason.startswith("bbr, this host's default, in larger pieces") == in_larger_pieces
    assert (tmp_path / "copy").read_bytes() == source.read_bytes()


def test_a_copy_that_ends_before_it_knows_its_path_says_so(far: Ends, tmp_path: Path) -> None:
    if Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip() not in {"cubic", "bbr"}:
        pytest.skip("this machine's administrator has chosen another")
    source = tmp_path / "small"
    source.write_bytes(b"a few bytes")
    record = far.copy(source, far.far(tmp_path / "copy")).record
    assert record["congestion"] == "cubic"
    assert "ended before" in record["congestion_reason"]


@pytest.fixture(scope="module")
def routed() -> Iterator[Ends]:
    """Hosts whose routes have a congestion control of their own, which connections get as they are opened."""
    options = ["--rate", "500mbit", "--rtt", "20ms", "--congestion", "reno"]
    with Emulation(options=options) as emulation, ends(emulation) as both:
        yield both


def test_what_a_route_has_of_its_own_is_kept_where_nobody_chose(
    routed: Ends, source: Path, tmp_path: Path
) -> None:
    assert routed.copy(source, routed.far(tmp_path / "copy")).record["congestion"] == "reno"


def test_what_somebody_chose_is_not_undone_by_the_route(routed: Ends, source: Path, tmp_path: Path) -> None:
    there = tmp_path / "copy"
    record = routed.copy(source, routed.far(there), "--congestion", "cubic", "--streams", "2").record
    assert (record["congestion"], record["streams"]) == ("cubic", 2)
    record = routed.copy(routed.far(source), tmp_path / "back", "--congestion", "cubic").record
    assert record["congestion"] == "cubic"


@pytest.mark.parametrize("named", [("--congestion", "reno"), ("--buffer", "1MiB")])
def test_what_somebody_chose_is_kept(
    short: Ends, source: Path, tmp_path: Path, named: tuple[str, str]
) -> None:
    record = short.copy(source, short.far(tmp_path / "copy"), *named).record
    assert record["congestion"] == "reno"
    assert "congestion_reason" not in record


def test_a_choice_that_is_left_to_the_sender_begins_with_cubic(
    short: Ends, source: Path, tmp_path: Path
) -> None:
    record = short.copy(source, short.far(tmp_path / "copy"), "--congestion", "auto").record
    assert record["congestion"] == "cubic"


# As above: what a busy machine adds may be worth a stream.
@pytest.mark.timed
@pytest.mark.parametrize("way", ["to", "from"])
def test_a_long_path_has_more_streams_than_a_short_one(
    far: Ends, source: Path, tmp_path: Path, way: str
) -> None:
    there = tmp_path / "copy"
    both = places(far, source, there, way)
    # 10 Gb/s for 100 ms, by 7 MiB; a limit of a tenth holds less than 8 of these.
    assert fewest(far, *both) == 18
    assert far.copy(*both, "--limit", "1gbit").record["streams"] == 8
    assert far.copy(*both, "--limit", "400mbit").record["streams"] == few()
    assert far.copy(*both, "--streams", "3").record["streams"] == 3
    assert there.read_bytes() == source.read_bytes()


# As above.
@pytest.mark.timed
def test_small_buffers_are_made_up_for_by_more_streams(far: Ends, source: Path, tmp_path: Path) -> None:
    assert 60 <= fewest(far, source, far.far(tmp_path / "copy"), "--buffer", "2MiB") <= 63


def test_another_stream_takes_the_place_of_one_that_breaks(short: Ends, source: Path, tmp_path: Path) -> None:
    there = tmp_path / "copy"
    program = ROOT / "tests" / "programs" / "meddler.py"
    address = short.emulation.address("b")
    words = [sys.executable, str(program), address, str(MEDDLED_PORT), str(short.port), "kill", str(BLOCK)]
    with short.emulation.background("b", *words) as meddler:
        assert meddler.stdout is not None
        assert next_line(meddler.stdout, meddler) == "listening\n"
        with short.copying(str(source), f"farlink://{address}:{MEDDLED_PORT}{there}") as copying:
            copied = copying.ended()
        assert next_line(meddler.stdout, meddler).startswith("kill")
    assert copied.status == 0, copied
    assert there.read_bytes() == source.read_bytes()


@pytest.mark.parametrize("way", ["to", "from"])
def test_over_a_slow_path_idle_streams_leave_blocks_to_those_on_which_they_move(
    slow: Ends, source: Path, tmp_path: Path, way: str
) -> None:
    size = 5 * BLOCK
    os.truncate(source, size)
    record = slow.copy(*places(slow, source, tmp_path / "copy", way), "--streams", "8").record
    assert (tmp_path / "copy").read_bytes() == source.read_bytes()
    # No block has arrived twice.
    assert record["bytes"] == size
