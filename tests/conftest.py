"""What every end-to-end test needs: the binary, and connections to run it over."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from emulation import FARLINK, Emulation

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Tests of the sources need no binary.
WITHOUT_BINARY = frozenset({"test_layering.py", "test_documents.py"})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Stop at once, with the mend, where the binary is wanted and not there."""
    if FARLINK.exists():
        return
    if any(item.path.name not in WITHOUT_BINARY for item in items):
        pytest.exit(f"{FARLINK} is not there: run 'make build', or set FARLINK", returncode=2)


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> None:
    """What is started ends by SIGINT and SIGHUP: a background job ignores the one, and nohup(1) the other."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def plain_terminal() -> None:
    """Help and tables as wide as they like, without colours."""
    os.environ.update({"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb", "LC_ALL": "C.UTF-8"})


@pytest.fixture(scope="module")
def pair() -> Iterator[Emulation]:
    """Two hosts, 10 ms apart, for tests that change nothing."""
    with Emulation(options=["--rate", "1gbit", "--rtt", "10ms", "--seed", "7"]) as emulation:
        yield emulation


@pytest.fixture(scope="session", autouse=True)
def homes_of_their_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Not the keys of whoever runs the tests, nor what copies of theirs left."""
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        os.environ[name] = str(tmp_path_factory.mktemp(name.lower()))


@pytest.fixture(autouse=True)
def nothing_remembered(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor what another test's copies showed of a path that may have the same addresses."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))


@pytest.fixture(scope="module")
def near() -> Iterator[Emulation]:
    """Two hosts, 10 ms apart, on a connection that leaves the machine time for disks."""
    with Emulation(options=["--rate", "200mbit", "--rtt", "10ms", "--seed", "7"]) as emulation:
        yield emulation


@pytest.fixture
def feed(tmp_path: Path) -> Path:
    """A directory that is watched."""
    path = tmp_path / "feed"
    path.mkdir()
    return path
