"""`farlink memory --auto`: what a profile model makes a transfer ask for, over emulated hosts."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from emulation import FARLINK, Emulation, farlink
from test_memory import moved, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def near() -> Iterator[Emulation]:
    """Two hosts 20 ms apart, with `farlink serve` on host b."""
    with Emulation(options=["--rtt", "20ms"]) as one, serving(one):
        yield one


def configuration(congestion: str, streams: int, rates: list[float], **more: Any) -> dict[str, Any]:
    """A configuration with a throughput for each of three RTTs, whatever the size or duration."""
    return {
        "congestion": congestion,
        "streams": streams,
        "size_bps": [[rate, rate] for rate in rates],
        "duration_bps": [[rate, rate] for rate in rates],
        **more,
    }


# Up to 100 ms Reno with three streams is best, at 200 ms CUBIC with one.
MODEL = {
    "schema": 1,
    "kind": "profile model",
    "made": "2026-11-21T15:00:00Z",
    "rate_bps": 1e10,
    "goodput_bps": 9.9e9,
    "loss": 0,
    "rtt_s": [0.001, 0.1, 0.2],
    "bytes": [1e6, 1e12],
    "seconds": [1, 1000],
    "configurations": [
        configuration("cubic", 1, [5e9, 5e9, 4e9], block_bytes=1 << 20),
        configuration("reno", 3, [9e9, 9e9, 1e9], buffer_bytes=1 << 20),
        configuration("cubic", 4, [4e9, 4e9, 3e9]),
    ],
}


def saved(directory: Path, **changes: Any) -> Path:
    path = directory / f"{uuid.uuid4().hex}.json"
    path.write_text(json.dumps(MODEL | changes))
    return path


def test_the_model_chooses_by_the_round_trip_that_is_measured(near: Emulation, tmp_path: Path) -> None:
    record = moved(near, "--bytes", "1MiB", f"--auto={saved(tmp_path)}")
    assert (record["congestion"], record["streams"], record["buffer_bytes"]) == ("reno", 3, 1 << 20)
    reason = record["congestion_reason"]
    assert "the profile model of 2026-11-21" in reason
    assert "of a connection of" in reason
    assert "the most of 3" in reason
    assert "reno with 3 streams, buffers of 1MiB" in reason


def test_what_the_model_assumes_is_said_with_the_choice(near: Emulation, tmp_path: Path) -> None:
    known = [configuration("reno", 3, [9e9, 9e9, 1e9], measured_rtt_s=[0.001, 0.002])]
    caveats = {"notes": ["the loss was assumed"], "measured_with": "iperf3", "configurations": known}
    reason = moved(near, "--bytes", "1MiB", f"--auto={saved(tmp_path, **caveats)}")["congestion_reason"]
    assert "; extrapolated, it was measured from 1ms to 2ms" in reason
    assert "; the loss was assumed" in reason
    assert "; measured with iperf3: that farlink memory reaches as much is assumed" in reason
    # What was measured at this round trip goes before what is only thought to be faster.
    both = {"configurations": [*known, configuration("cubic", 1, [5e9, 5e9, 4e9])]}
    record = moved(near, "--bytes", "1MiB", f"--auto={saved(tmp_path, **both)}")
    assert (record["congestion"], record["streams"]) == ("cubic", 1)
    assert "extrapolated" not in record["congestion_reason"]
    # Measuring took a round trip, and is part of the command.
    assert record["setup_s"] >= 3 * 0.020 * 0.99


def test_a_round_trip_that_is_named_is_not_measured(near: Emulation, tmp_path: Path) -> None:
    record = moved(near, "--bytes", "1MiB", f"--auto={saved(tmp_path)}", "--rtt", "200ms")
    assert (record["congestion"], record["streams"]) == ("cubic", 1)
    assert "over a round trip of 200ms" in record["congestion_reason"]
    assert "buffer_bytes" not in record


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        (("--streams", "4"), ("cubic", 4)),
        (("--congestion", "cubic"), ("cubic", 1)),
        # The model knows of no such thing: what was asked for stands, the rest is the model's best.
        (("--streams", "2"), ("reno", 2)),
    ],
)
def test_what_is_named_on_the_command_line_wins(
    near: Emulation, tmp_path: Path, options: tuple[str, ...], chosen: tuple[str, int]
) -> None:
    record = moved(near, "--bytes", "1MiB", f"--auto={saved(tmp_path)}", *options)
    assert (record["congestion"], record["streams"]) == chosen
    unknown = "what was asked for on the command line it does not know"
    assert (unknown in record["congestion_reason"]) == (options == ("--streams", "2"))


def test_what_this_host_lacks_is_passed_over_and_said(near: Emulation, tmp_path: Path) -> None:
    first = configuration("nosuch", 8, [9.9e9, 9.9e9, 9.9e9])
    path = saved(tmp_path, configurations=[first, *MODEL["configurations"]])  # type: ignore[misc]
    record = moved(near, "--bytes", "1MiB", f"--auto={path}")
    assert (record["congestion"], record["streams"]) == ("reno", 3)
    assert "not nosuch" in record["congestion_reason"]


def test_a_model_declares_no_rate(near: Emulation, tmp_path: Path) -> None:
    held = configuration("circuit", 2, [9.9e9, 9.9e9, 9.9e9], declared_bps=10_000_000_000)
    path = saved(tmp_path, configurations=[held, *MODEL["configurations"]])  # type: ignore[misc]
    record = moved(near, "--bytes", "1MiB", f"--auto={path}")
    assert (record["congestion"], record["streams"]) == ("reno", 3)
    assert "declared_bps" not in record
    assert "not circuit, which it expects more of: name the rate" in record["congestion_reason"]
    alone = saved(tmp_path, configurations=[held])
    ended = near.on("a", str(FARLINK), "memory", "b", "--bytes", "1MiB", f"--auto={alone}")
    assert ended.status == 2
    assert "the model has circuits alone" in ended.complaint


def test_a_circuit_that_the_model_does_not_know_has_buffers_of_its_own(
    near: Emulation, tmp_path: Path
) -> None:
    record = moved(near, "--bytes", "1MiB", f"--auto={saved(tmp_path)}", "--circuit", "1gbit")
    assert (record["congestion"], record["declared_bps"], record["streams"]) == ("circuit", 1_000_000_000, 3)
    assert record.get("buffer_bytes") != 1 << 20, "that is another configuration's"


def test_the_far_end_sends_by_it_too(near: Emulation, tmp_path: Path) -> None:
    record = moved(near, "--bytes", "1MiB", f"--auto={saved(tmp_path)}", "--reverse")
    assert (record["congestion"], record["streams"]) == ("reno", 3)


def test_the_usual_place_is_the_users_data(near: Emulation, tmp_path: Path) -> None:
    (tmp_path / "farlink").mkdir()
    saved(tmp_path).rename(tmp_path / "farlink" / "profile.json")
    command = [str(FARLINK), "memory", "b", "--bytes", "1MiB", "--auto", "--json", "--quiet"]
    said = near.output("a", "env", f"XDG_DATA_HOME={tmp_path}", *command)
    assert json.loads(said)["congestion"] == "reno"


def test_a_round_trip_outside_the_model_is_refused(near: Emulation, tmp_path: Path) -> None:
    ended = near.on(
        "a", str(FARLINK), "memory", "b", "--bytes", "1MiB", f"--auto={saved(tmp_path)}", "--rtt", "1s"
    )
    assert ended.status == 2
    assert "outside the model's 1ms to 200ms" in ended.complaint


def test_no_model_in_the_usual_place_is_one_line_with_the_command_that_makes_it(tmp_path: Path) -> None:
    ended = farlink("memory", "127.0.0.1", "--auto", env={"XDG_DATA_HOME": str(tmp_path)})
    assert ended.status == 2
    place = tmp_path / "farlink" / "profile.json"
    assert f"no profile model at {place}" in ended.complaint
    assert f"farlink lab advise DIR --save {place}" in ended.complaint


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not a profile model"),
        ('{"schema":1,"kind":"recipe"}', "recipe"),
        (json.dumps(MODEL | {"schema": 9}), "version 9"),
        (json.dumps(MODEL | {"rtt_s": [0.2, 0.1, 0.001]}), "rtt_s"),
    ],
)
def test_a_file_that_is_no_model_is_named_with_the_reason(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "profile.json"
    path.write_text(text)
    ended = farlink("memory", "127.0.0.1", f"--auto={path}")
    assert ended.status == 2
    assert str(path) in ended.complaint
    assert said in ended.complaint


def test_a_round_trip_without_auto_is_refused() -> None:
    ended = farlink("memory", "127.0.0.1", "--rtt", "10ms")
    assert ended.status == 2
    assert "--auto" in ended.complaint


def test_a_model_of_the_lab_is_understood(near: Emulation, tmp_path: Path) -> None:
    example = FARLINK.parents[2] / "examples" / "campaign"
    path = tmp_path / "profile.json"
    ended = farlink("lab", "advise", str(example), "--save", str(path))
    assert ended.status == 0, ended
    record = moved(near, "--bytes", "1MiB", f"--auto={path}")
    known = json.loads(path.read_text())["configurations"]
    assert record["congestion"] in {one["congestion"] for one in known}
    assert "the profile model of" in record["congestion_reason"]
