"""A copy over a path that was used before begins with half of what it carried, where it is still the same."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from copying import Ends, ends
from emulation import Emulation, farlink

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 1 << 20
ATTEMPTS = 3
SIZE = 32 * MIB
# The path carries 396 Mb/s; what comes at once to a machine that was held up looks like more.
MOST_CARRIED = 515e6


@pytest.fixture(scope="module")
def far() -> Iterator[Ends]:
    """A path that holds 15 MB. Loading a congestion control takes a busy machine less than its round trip."""
    states = {each["name"]: each["state"] for each in json.loads(farlink("congestion", "--json").stdout)}
    if states["circuit"] == "unavailable":
        pytest.skip("nobody may load a congestion control here")
    if Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip() not in {"cubic", "bbr"}:
        pytest.skip("this machine's administrator has chosen another")
    emulation = Emulation(options=["--rate", "400mbit", "--rtt", "300ms", "--seed", "7"])
    with emulation, ends(emulation) as both:
        yield both


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A file of some blocks."""
    path = tmp_path / "file"
    path.write_bytes(random.Random(11).randbytes(SIZE))
    return path


def paths() -> list[Path]:
    """What is remembered of paths."""
    directory = Path(os.environ["XDG_STATE_HOME"]) / "farlink" / "paths"
    return list(directory.iterdir()) if directory.exists() else []


def remembered() -> dict[str, Any]:
    """Of the only path."""
    (path,) = paths()
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def remember(both: Ends, rate: float, rtt_s: float, way: str = "to") -> Path:
    """As if a copy had seen that."""
    name = f"{way} {both.emulation.address('b')}:{both.port}"
    content = {"path": name, "rate": int(rate), "rtt": int(rtt_s * 1e9), "is_full": True}
    (path,) = paths()
    path.write_text(json.dumps(content))
    return path


def first(both: Ends, source: str | Path, destination: str | Path) -> dict[str, Any]:
    """The record of a copy after which something is remembered.

    Over a path that a busy machine holds up for long it may have carried too little for that.
    """
    for _ in range(ATTEMPTS):
        record: dict[str, Any] = both.copy(source, destination, "--fsync").record
        if paths():
            return record
    pytest.fail("nothing is remembered of any copy")


def resumed(
    both: Ends, source: str | Path, destination: str | Path, rate: float | None = None
) -> tuple[dict[str, Any], float]:
    """The record of a copy that was begun with what is remembered, or with `rate`; and that rate.

    A busy machine may lose or hold up some of the first packets: then it is begun as any other.
    """
    for _ in range(ATTEMPTS):
        if rate is not None:
            remember(both, rate, 0.3)
        before = remembered()["rate"]
        record: dict[str, Any] = both.copy(source, destination, "--fsync").record
        if "careful_resume" in record:
            return record, before
    pytest.fail("no copy was begun with what is remembered")


@pytest.mark.parametrize("way", ["to", "from"])
def test_the_second_copy_begins_with_half_of_what_the_first_showed(
    far: Ends, source: Path, tmp_path: Path, way: str
) -> None:
    there = tmp_path / "copy"
    places = (source, far.far(there)) if way == "to" else (far.far(source), there)
    slowly = first(far, *places)
    assert "careful_resume" not in slowly
    before = remembered()
    assert before["path"] == f"{way} {far.emulation.address('b')}:{far.port}"
    # What a jump is of use for, and no more than the path carries.
    assert 170e6 < before["rate"] < MOST_CARRIED
    assert before["rtt"] == pytest.approx(0.3e9, rel=0.1)
    second, rate = resumed(far, *places)
    assert second["careful_resume"]["jump_bps"] == rate // 2
    assert second["congestion"] in {"bbr", "bbr_tso"}
    assert second["streams"] == 8 < slowly["streams"]
    assert there.read_bytes() == source.read_bytes()


def test_who_does_not_want_it_has_no_part_in_it(far: Ends, source: Path, tmp_path: Path) -> None:
    places = (source, far.far(tmp_path / "copy"))
    assert "careful_resume" not in far.copy(*places, "--no-careful-resume").record
    assert paths() == []
    first(far, *places)
    before = remembered()
    for words in (
        ["--no-careful-resume"],
        ["--limit", "1gbit"],
        ["--congestion", "cubic"],
        ["--buffer", "8MiB"],
    ):
        (tmp_path / "copy").unlink()
        assert "careful_resume" not in far.copy(*places, *words).record, words
    assert remembered() == before


def test_a_path_that_became_slower_is_given_up_and_remembered_so(
    far: Ends, source: Path, tmp_path: Path
) -> None:
    there = tmp_path / "copy"
    first(far, source, far.far(there))
    # A sixth of the jump is there, and room for less of the rest.
    for _ in range(ATTEMPTS):
        record, _ = resumed(far, source, far.far(there), 5e9)
        assert record["careful_resume"]["jump_bps"] == 2_500_000_000
        outcome = record["careful_resume"]["outcome"]
        # Where the sender itself is held up it sends less than that.
        assert outcome in {"retreated", "unvalidated"}
        if outcome == "retreated":
            break
    assert outcome == "retreated"
    assert remembered()["rate"] < MOST_CARRIED
    assert there.read_bytes() == source.read_bytes()


def test_a_path_with_another_round_trip_is_begun_anew(far: Ends, source: Path, tmp_path: Path) -> None:
    there = tmp_path / "copy"
    first(far, source, far.far(there))
    remember(far, 400e6, 0.15)
    there.unlink()
    record = far.copy(source, far.far(there)).record
    assert "careful_resume" not in record
    assert there.read_bytes() == source.read_bytes()


def test_what_cannot_be_read_or_written_hinders_nothing(
    far: Ends, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "copy"
    first(far, source, far.far(there))
    for damaged in (b"", b"{", b'{"path": 3}', os.urandom(4096)):
        (path,) = paths()
        path.write_bytes(damaged)
        there.unlink()
        assert "careful_resume" not in far.copy(source, far.far(there)).record
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/self")
    there.unlink()
    assert "careful_resume" not in far.copy(source, far.far(there)).record
    assert there.read_bytes() == source.read_bytes()
