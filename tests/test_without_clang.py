"""Where there was no clang at build time, everything but our own congestion controls is there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from emulation import ROOT, Emulation, run

# It builds for minutes, which no limit of a test is to cut short.
pytestmark = [pytest.mark.alone, pytest.mark.timeout(300, func_only=True)]

NO_CLANG = "/nonexistent/clang"
OURS = ("bbr_tso", "circuit", "htcp", "scalable", "suss")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, built without clang: of the packages that the unit tests were built with."""
    command = ["cargo", "build", "--quiet", "--package", "farlink-cli", "--message-format", "json"]
    # Without symbols, which nobody looks at, our own packages are others than the unit tests'.
    without = {"CLANG": NO_CLANG, "CARGO_PROFILE_DEV_DEBUG": "0"}
    build = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **without}, stdout=subprocess.PIPE, check=True
    )
    messages = [json.loads(line) for line in build.stdout.splitlines()]
    (made,) = [message["executable"] for message in messages if message.get("executable")]
    # Nobody is to take it for the whole program.
    return Path(shutil.move(made, tmp_path_factory.mktemp("without-clang") / "farlink"))


def test_the_list_says_what_is_missing_and_how_to_get_it(built: Path) -> None:
    entries = {entry["name"]: entry for entry in json.loads(run([str(built), "congestion", "--json"]).stdout)}
    assert entries["reno"]["state"] == "available"
    for name in OURS:
        assert entries[name]["state"] == "unavailable"
        assert f"built without {NO_CLANG}: install clang and build again" in entries[name]["reason"]


def test_transfers_work_and_a_circuit_is_refused_with_the_reason(built: Path) -> None:
    with (
        Emulation(options=["--rate", "100mbit"]) as emulation,
        emulation.background("b", str(built), "serve") as server,
    ):
        assert server.stdout is not None
        assert "listening on" in server.stdout.readline()
        ended = emulation.on("a", str(built), "memory", "b", "--bytes", "1MiB")
        assert ended.status == 0, ended
        ended = emulation.on("a", str(built), "memory", "b", "--bytes", "1MiB", "--circuit", "100mbit")
    assert ended.status == 2
    assert "install clang and build again" in ended.complaint
