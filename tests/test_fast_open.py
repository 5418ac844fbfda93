"""TCP Fast Open: who has been to a server speaks with its first segment, and nobody loses by it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from copying import Ends, Keys, ends
from emulation import FARLINK, START_LIMIT_S, Emulation, next_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROTECTIONS = ("clear without keys", "clear", "integrity", "encrypt")
BYTES = 3_000_000
# Drops whatever opens a connection and has more than headers and options.
FIREWALL = """
table inet narrow {
  chain inbound {
    type filter hook input priority 0;
    tcp flags & (syn | ack) == syn meta length > 84 counter drop
  }
}
"""


@pytest.fixture
def path() -> Iterator[Emulation]:
    """A connection whose hosts have not met."""
    with Emulation(options=["--rate", "1gbit", "--rtt", "10ms"]) as emulation:
        yield emulation


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    """Keys of a client and of a server, which trust each other."""
    return Keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture(params=PROTECTIONS)
def both(request: pytest.FixtureRequest, path: Emulation, keys: Keys) -> Iterator[Ends]:
    """Both ends, without keys, and with keys in every protection."""
    if request.param == PROTECTIONS[0]:
        with ends(path) as found:
            yield found
        return
    with ends(path, keys=keys, protect=request.param) as found:
        yield found


def counted(emulation: Emulation, host: str, name: str) -> int:
    """One of the counters of TCP that a host's kernel has."""
    names, values, *_ = emulation.output(host, "cat", "/proc/net/netstat").splitlines()
    return dict(zip(names.split()[1:], map(int, values.split()[1:]), strict=True))[name]


def there_and_back(both: Ends, directory: Path, *options: str) -> None:
    """A file copied to the server and from it is what it was."""
    directory.mkdir()
    source, there, back = (directory / name for name in ("source", "there", "back"))
    source.write_bytes(os.urandom(BYTES))
    both.copy(source, both.far(there), *options)
    both.copy(both.far(there), back, *options)
    assert there.read_bytes() == source.read_bytes() == back.read_bytes()


# And how many connections begin each copy, however late answers come: more may be opened where they do.
@pytest.mark.parametrize(
    ("options", "begun"), [((), 8), (("--streams", "3"), 3), (("--circuit", "500mbit"), 2)]
)
def test_who_has_been_there_speaks_with_the_first_segment(
    both: Ends, tmp_path: Path, options: tuple[str, ...], begun: int
) -> None:
    path = both.emulation
    there_and_back(both, tmp_path / "first", *options)
    # The first copy has no cookie, the second has.
    spoken = counted(path, "a", "TCPFastOpenActive")
    assert spoken > 0
    there_and_back(both, tmp_path / "second", *options)
    assert counted(path, "a", "TCPFastOpenActive") >= spoken + 2 * begun
    assert counted(path, "b", "TCPFastOpenPassive") >= spoken + 2 * begun


def test_a_host_that_does_not_let_it_is_reached_as_ever(both: Ends, tmp_path: Path) -> None:
    path = both.emulation
    path.output("b", "sysctl", "--write", "net.ipv4.tcp_fastopen=1")
    there_and_back(both, tmp_path / "first")
    there_and_back(both, tmp_path / "second")
    assert counted(path, "a", "TCPFastOpenActive") == 0


def test_a_host_that_lets_it_no_longer_is_reached_as_ever(both: Ends, tmp_path: Path) -> None:
    path = both.emulation
    there_and_back(both, tmp_path / "first")
    path.output("b", "sysctl", "--write", "net.ipv4.tcp_fastopen=1")
    spoken = counted(path, "b", "TCPFastOpenPassive")
    for turn in ("second", "third"):
        there_and_back(both, tmp_path / turn)
    assert counted(path, "b", "TCPFastOpenPassive") == spoken
    # They were tried with the cookie of before.
    assert counted(path, "a", "TCPFastOpenActiveFail") > 0


def test_a_cookie_of_another_key_is_replaced(both: Ends, tmp_path: Path) -> None:
    path = both.emulation
    there_and_back(both, tmp_path / "first")
    spoken = counted(path, "b", "TCPFastOpenPassive")
    key = "-".join(f"{part:08x}" for part in range(1, 5))
    path.output("b", "sysctl", "--write", f"net.ipv4.tcp_fastopen_key={key}")
    there_and_back(both, tmp_path / "second")
    assert counted(path, "b", "TCPFastOpenPassiveFail") > 0
    there_and_back(both, tmp_path / "third")
    assert counted(path, "b", "TCPFastOpenPassive") > spoken


def test_a_firewall_that_drops_first_segments_with_words_only_delays(both: Ends, tmp_path: Path) -> None:
    path = both.emulation
    there_and_back(both, tmp_path / "first")
    spoken = counted(path, "b", "TCPFastOpenPassive")
    assert path.on("b", "nft", "--file", "-", stdin=FIREWALL).status == 0
    there_and_back(both, tmp_path / "second")
    assert counted(path, "b", "TCPFastOpenPassive") == spoken
    assert counted(path, "a", "TCPFastOpenActiveFail") > 0


def test_connections_that_are_not_needed_are_nothing_to_tell(keys: Keys, tmp_path: Path) -> None:
    """Over a short path there are fewer than begin; the others have spoken when they are closed."""
    with Emulation(options=["--rate", "10gbit", "--rtt", "0.4ms"]) as path:
        both = Ends(
            emulation=path,
            serve_options=[*keys.serve_options, "--verbose"],
            copy_options=["--protect", "encrypt", *keys.copy_options],
        )
        keys.make_known(path.address("b"), both.port)
        with path.background("b", *both.serve_command) as server:
            assert server.stdout is not None
            assert next_line(server.stdout, server).startswith("listening on ")
            for turn in range(3):
                there_and_back(both, tmp_path / str(turn))
            server.terminate()
            _, told = server.communicate(timeout=START_LIMIT_S)
        assert counted(path, "b", "TCPFastOpenPassive") > 0
    moved = [line.rpartition(" ")[2] for line in told.splitlines() if "streams" not in line]
    assert sorted(moved) == ["received"] * 3 + ["sent"] * 3, told


@pytest.mark.parametrize("way", [(), ("--reverse",)], ids=["forward", "reverse"])
def test_memory_moves_so_too(path: Emulation, way: tuple[str, ...]) -> None:
    address = path.address("b")
    with path.background("b", str(FARLINK), "serve") as server:
        assert server.stdout is not None
        assert next_line(server.stdout, server).startswith("listening on ")
        before = 0
        for turn in range(3):
            # Of the first, some may be late enough to have the cookie of the others.
            before = counted(path, "a", "TCPFastOpenActive") if turn == 1 else before
            command = (str(FARLINK), "memory", address, "--bytes", "10MB", "--streams", "4", "--json", *way)
            ended = path.on("a", *command)
            assert ended.status == 0, ended
    assert counted(path, "a", "TCPFastOpenActive") - before == 8
