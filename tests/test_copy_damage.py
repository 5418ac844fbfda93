"""What is damaged or lost on its way costs itself and no more: a block comes again, a stream is replaced."""

from __future__ import annotations

import contextlib
import random
import sys
from typing import TYPE_CHECKING

import pytest

from copying import BLOCK, MEDDLED_PORT, Copied, Ends, Keys, ends, leftovers
from emulation import ROOT, Emulation, next_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SIZE = 16 * BLOCK + 4321
METHODS = ["clear without keys", "clear", "integrity", "encrypt"]


@contextlib.contextmanager
def meddled(both: Ends, how: str, at: int) -> Iterator[str]:
    """The far end's URL through a program that does `how` after `at` bytes of a data connection."""
    program = ROOT / "tests" / "programs" / "meddler.py"
    address = both.emulation.address("b")
    words = [sys.executable, str(program), address, str(MEDDLED_PORT), str(both.port), how, str(at)]
    with both.emulation.background("b", *words) as meddler:
        assert meddler.stdout is not None
        assert next_line(meddler.stdout, meddler) == "listening\n"
        yield f"farlink://{address}:{MEDDLED_PORT}"
        # It did what it is for.
        assert next_line(meddler.stdout, meddler).startswith(how)


@pytest.fixture(scope="module", params=METHODS)
def both(
    request: pytest.FixtureRequest, near: Emulation, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ends]:
    """Both ends, in every protection."""
    if request.param == "clear without keys":
        with ends(near) as found:
            yield found
        return
    keys = Keys(tmp_path_factory.mktemp("keys"))
    with ends(near, keys=keys, protect=request.param) as found:
        yield found


def meddled_copy(both: Ends, tmp_path: Path, *, way: str, how: str) -> Copied:
    """A copy by four streams, one of which is harmed."""
    source, there = tmp_path / "file", tmp_path / "copy"
    source.write_bytes(random.Random(how).randbytes(SIZE))
    with meddled(both, how, 2 * BLOCK + 100_000) as far:
        places = (str(source), f"{far}{there}") if way == "push" else (f"{far}{source}", str(there))
        with both.copying(*places, "--streams", "4") as copying:
            return copying.ended()


@pytest.mark.parametrize("way", ["push", "pull"])
def test_a_bit_that_is_flipped_on_its_way_never_gets_a_final_name(
    both: Ends, tmp_path: Path, way: str
) -> None:
    copied = meddled_copy(both, tmp_path, way=way, how="flip")
    there = tmp_path / "copy"
    assert copied.status == 0, copied
    assert there.read_bytes() == (tmp_path / "file").read_bytes()
    assert leftovers(tmp_path) == []
    if "encrypt" in both.copy_options:
        # TLS ends the stream: what was on its way there is sent again, and comes once.
        assert SIZE <= copied.record["bytes"] <= SIZE + 6 * BLOCK
        assert "broke" in copied.stderr
    else:
        # The block again whose digest is wrong, and no other.
        assert SIZE < copied.record["bytes"] <= SIZE + BLOCK


@pytest.mark.parametrize("way", ["push", "pull"])
def test_a_stream_that_is_reset_is_replaced_and_costs_what_was_on_it(
    both: Ends, tmp_path: Path, way: str
) -> None:
    copied = meddled_copy(both, tmp_path, way=way, how="kill")
    assert copied.status == 0, copied
    assert (tmp_path / "copy").read_bytes() == (tmp_path / "file").read_bytes()
    assert leftovers(tmp_path) == []
    assert "broke" in copied.stderr
    # What was in the buffers of that stream on both hosts and of what meddled may come twice.
    assert copied.record["bytes"] <= SIZE + 12 * BLOCK
