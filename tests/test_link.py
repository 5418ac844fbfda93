"""`farlink link`: parts of a connection changed, cut, restored and told of, while it runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from emulation import FARLINK, Emulation, next_line, refused

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def star() -> Iterator[Emulation]:
    """Three hosts around a core."""
    with Emulation(options=["--hosts", "3", "--rate", "1gbit", "--rtt", "4ms"]) as emulation:
        yield emulation


def passes(emulation: Emulation, source: str, destination: str) -> bool:
    """Whether one of a few echoes comes back; what is cut has no other chance."""
    options = ("-c", "3", "-i", "0.05", "-W", "2")
    return emulation.ping(source, emulation.address(destination), *options).status == 0


def ends(shown: dict[str, Any]) -> set[tuple[str, str]]:
    """From where to where each link that is shown goes."""
    return {(each["from"], each["to"]) for each in shown["links"]}


def test_restore_of_the_whole_restores_pairs_too(star: Emulation) -> None:
    star.change("--cut", target="/a..b")
    shown = star.show()
    assert shown["cut_pairs"] == [["a", "b"]]
    assert not any(each["cut"] for each in shown["links"])
    assert "a and b: cut" in star.change().stdout
    assert not passes(star, "a", "b")
    assert passes(star, "a", "c")
    star.change("--restore")
    assert "cut_pairs" not in star.show()
    assert passes(star, "a", "b")


def test_two_hosts_are_a_pair_that_the_whole_restores() -> None:
    with Emulation(options=["--rtt", "1ms"]) as emulation:
        emulation.change("--cut", target="/b..a")
        assert emulation.show()["cut_pairs"] == [["a", "b"]]
        assert not passes(emulation, "a", "b")
        emulation.change("--restore")
        assert passes(emulation, "a", "b")


def test_one_access_link_is_cut_and_restored(star: Emulation) -> None:
    star.change("--cut", target="/c")
    assert [each["cut"] for each in star.show()["links"] if "c" in (each["from"], each["to"])] == [True, True]
    assert not passes(star, "a", "c")
    assert passes(star, "a", "b")
    star.change("--restore", target="/c")
    assert passes(star, "a", "c")


def test_what_is_not_named_stays_also_where_a_link_has_its_own() -> None:
    with Emulation(options=["--hosts", "3", "--rtt", "4ms"]) as emulation:
        emulation.change("--loss", "5%", target="/c")
        emulation.change("--rtt", "20ms")
        for each in emulation.show()["links"]:
            is_own = "c" in (each["from"], each["to"])
            assert (each["loss"], each["delay_s"]) == (0.05 if is_own else 0.0, 0.005)
        # The lines say what is a link's own.
        emulation.change("--rate", "500mbit", "--rtt", "60ms", target="/c")
        lines = {line.partition(":")[0].strip() for line in emulation.change().stdout.splitlines()}
        own = "500mbit delay 30ms loss 5%"
        assert {f"c to core {own}", f"core to c {own}", "a to core", "core to b"} <= lines
        emulation.change("--rate", "10gbit", "--rtt", "10ms", target="/c")
        emulation.change("--loss", "0%")
        assert {each["loss"] for each in emulation.show()["links"]} == {0.0}


def test_a_part_is_shown_by_itself(star: Emulation) -> None:
    assert ends(json.loads(star.change("--json", target="/c").stdout)) == {("c", "core"), ("core", "c")}
    both = ends(json.loads(star.change("--json", target="/a..c").stdout))
    assert both == {("a", "core"), ("core", "a"), ("c", "core"), ("core", "c")}
    assert len(ends(star.show())) == 6


@pytest.mark.parametrize("part", ["/z", "/a..z", "/a..a"])
def test_a_part_that_is_not_there_is_not_shown_either(star: Emulation, part: str) -> None:
    assert part.rpartition(".")[2].lstrip("/") in refused("link", star.name + part)


REFUSED = {
    ("--rate", "10tbit", "--rtt", "1h"): "RTT",
    ("--rate", "1tbit", "--rtt", "9s"): "at most",
    ("--queue", "0ms"): "zero",
    ("--jitter", "1s"): "jitter",
}


@pytest.mark.parametrize("options", REFUSED, ids=" ".join)
def test_an_access_link_refuses_what_a_connection_refuses(star: Emulation, options: tuple[str, ...]) -> None:
    before = [(each["rate_bps"], each["delay_s"]) for each in star.show()["links"]]
    assert REFUSED[options] in refused("link", f"{star.name}/c", *options)
    assert [(each["rate_bps"], each["delay_s"]) for each in star.show()["links"]] == before


def test_sonet_has_one_rate_on_every_link() -> None:
    with Emulation(options=["--hosts", "3", "--framing", "sonet"]) as emulation:
        for target in ("", "/c"):
            assert "9.58464gbit" in refused("link", emulation.name + target, "--rate", "1gbit")


def test_a_star_refuses_a_period_that_it_cannot_keep(star: Emulation) -> None:
    options = ("--loss", "every:2")
    for command in (("emulate", "--hosts", "3", *options, "--", "true"), ("link", star.name, *options)):
        complaint = refused(*command)
        assert "every:2" in complaint
        assert "every:25" in complaint


def test_a_record_tells_of_the_path_as_its_links_are(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    with Emulation(options=["--hosts", "3", "--rate", "1gbit", "--rtt", "4ms"]) as emulation:
        emulation.change("--rate", "200mbit", "--rtt", "18ms", "--queue", "20ms", target="/c")
        emulation.change("--loss", "0.5%", target="/b")
        for far in "cb":
            with emulation.background(far, str(FARLINK), "serve") as server:
                assert server.stdout is not None
                assert next_line(server.stdout, server).startswith("listening on ")
                options = ("--bytes", "1MiB", "--record", str(file))
                emulation.output("a", str(FARLINK), "memory", emulation.address(far), *options)
    to_c, to_b = (json.loads(line) for line in file.read_text().splitlines())
    assert (to_c["rate_bps"], to_c["loss"], to_c["queue_bytes"]) == (200_000_000, 0.0, 500_000)
    assert to_c["rtt_s"] == pytest.approx(0.02)
    assert to_c["goodput_bps"] == pytest.approx(200e6 * 8948 / 9038)
    assert (to_b["rate_bps"], to_b["queue_bytes"]) == (1_000_000_000, 6_250_000)
    assert to_b["rtt_s"] == pytest.approx(0.004)
    assert to_b["loss"] == pytest.approx(0.005)
