"""Copies between emulated hosts: both ways, by few streams and many, protected or not, within a limit."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest

import odd_tree
from copying import BLOCK, NONE, REFUSED, SOME_FAILED, Ends, Keys, differences, ends, leftovers, listing
from emulation import FARLINK, Emulation, farlink, run
from test_auto import saved

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Of what a machine that stands still for a moment may spoil.
ATTEMPTS = 3
PROTECTIONS = {"clear": "clear", "integrity": "integrity", "encrypt": "encrypted"}


@pytest.fixture(scope="module")
def clear(near: Emulation) -> Iterator[Ends]:
    """Both ends, and no keys: nobody else reaches an emulated host."""
    with ends(near) as both:
        yield both


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    """Keys of a client and of a server, which trust each other."""
    return Keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module", params=["clear without keys", *PROTECTIONS])
def both(request: pytest.FixtureRequest, near: Emulation) -> Iterator[Ends]:
    """Both ends, without keys, and with keys in every protection."""
    if request.param == "clear without keys":
        with ends(near) as found:
            yield found
        return
    found_keys: Keys = request.getfixturevalue("keys")
    with ends(near, keys=found_keys, protect=request.param) as found:
        yield found


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree with everything odd in it, which no test changes."""
    path = tmp_path_factory.mktemp("odd") / "tree"
    odd_tree.make(path)
    return path


@pytest.mark.parametrize("way", ["push", "pull"])
def test_rsync_finds_nothing_to_do_after_an_odd_tree(both: Ends, odd: Path, tmp_path: Path, way: str) -> None:
    there = tmp_path / "there"
    places = (f"{odd}/", both.far(there)) if way == "push" else (f"{both.far(odd)}/", there)
    copied = both.copy(*places)
    assert differences(odd, there) == []
    assert leftovers(there) == []
    for name in odd_tree.SKIPPED:
        assert copied.outcome(name) == "skipped"
    record = copied.record
    assert (record["kind"], record["outcome"]) == ("file", "ok")
    hosts = ("a", "b") if way == "push" else ("b", "a")
    assert (record["source"], record["destination"]) == hosts
    wanted = both.copy_options[both.copy_options.index("--protect") + 1]
    assert record["protection"] == PROTECTIONS[wanted]


@pytest.mark.parametrize("streams", [1, 8, 32])
@pytest.mark.parametrize("way", ["push", "pull"])
def test_any_number_of_streams_carries_any_number_of_blocks(
    clear: Ends, tmp_path: Path, way: str, streams: int
) -> None:
    source, there = tmp_path / "file", tmp_path / "copy"
    source.write_bytes(random.Random(streams).randbytes(20 * BLOCK + 17))
    places = (source, clear.far(there)) if way == "push" else (clear.far(source), there)
    record = clear.copy(*places, "--streams", str(streams)).record
    assert there.read_bytes() == source.read_bytes()
    assert record["streams"] == streams
    # What a stream has for too long, as where processors are busy, another brings, too.
    assert 20 * BLOCK + 17 <= record["bytes"] < 40 * BLOCK
    assert sum(count for _, count in record["samples"]) == record["bytes"]


@pytest.mark.parametrize("way", ["push", "pull"])
def test_the_record_knows_the_connection_and_both_ends(clear: Ends, tmp_path: Path, way: str) -> None:
    source = tmp_path / "file"
    source.write_bytes(random.Random(1).randbytes(8 * BLOCK))
    places: list[Path | str] = [source, clear.far(tmp_path / "copy")]
    if way == "pull":
        places = [clear.far(source), tmp_path / "copy"]
    asked = ["--streams", "3", "--congestion", "reno", "--buffer", "1MiB"]
    record = clear.copy(*places, *asked).record
    shown = clear.emulation.show()
    for field in ("rate_bps", "rtt_s", "loss", "queue_bytes", "framing", "mtu", "seed"):
        assert record[field] == shown[field], field
    assert (record["streams"], record["congestion"], record["buffer_bytes"]) == (3, "reno", 1 << 20)
    assert (record["files"], record["bytes"], record["schema"]) == (1, 8 * BLOCK, 1)
    assert record["cpu_s"].keys() == {"sender", "receiver"}
    assert record["hosts"]["source"]["kernel"] == os.uname().release
    # Nothing is faster than the limit: half a round trip and the bytes at the goodput.
    assert record["duration_s"] >= record["rtt_s"] / 2 + record["bytes"] * 8 / record["goodput_bps"] * 0.99


@pytest.mark.parametrize("way", ["push", "pull"])
def test_a_sender_that_may_choose_its_congestion_control_says_why(
    clear: Ends, tmp_path: Path, way: str
) -> None:
    source, there = tmp_path / "file", tmp_path / "copy"
    source.write_bytes(random.Random(4).randbytes(2 * BLOCK))
    places = (source, clear.far(there)) if way == "push" else (clear.far(source), there)
    record = clear.copy(*places, "--congestion", "auto").record
    assert record["congestion"] == "cubic"
    assert "the round trip of" in record["congestion_reason"]


@pytest.mark.parametrize("way", ["push", "pull"])
def test_what_is_read_back_from_the_disk_is_the_same(
    clear: Ends, odd: Path, tmp_path: Path, way: str
) -> None:
    there = tmp_path / "there"
    places = (f"{odd}/", clear.far(there)) if way == "push" else (f"{clear.far(odd)}/", there)
    clear.copy(*places, "--read-back")
    assert differences(odd, there) == []


@pytest.mark.parametrize("way", ["push", "pull"])
def test_the_limit_follows_the_time_of_day(clear: Ends, tmp_path: Path, way: str) -> None:
    source, there = tmp_path / "file", tmp_path / "copy"
    source.write_bytes(random.Random(12).randbytes(32 * BLOCK))
    places = (source, clear.far(there)) if way == "push" else (clear.far(source), there)
    now = datetime.now().astimezone()
    ends_at = now + timedelta(seconds=4)
    begin, end = (f"{then:%H:%M:%S}" for then in (now - timedelta(seconds=60), ends_at))
    # At the first rate it would take a minute and a half.
    record = clear.copy(*places, "--limit", f"{end},off {begin},3mbit").record
    assert record["duration_s"] < 40
    assert datetime.now().astimezone() >= ends_at.replace(microsecond=0)
    assert there.read_bytes() == source.read_bytes()


@pytest.mark.timed
@pytest.mark.parametrize("way", ["push", "pull"])
def test_the_limit_is_kept_within_two_in_a_hundred(tmp_path: Path, way: str) -> None:
    source, there = tmp_path / "file", tmp_path / "copy"
    source.write_bytes(random.Random(2).randbytes(32 * BLOCK))
    emulation = Emulation(options=["--rate", "100mbit", "--rtt", "20ms"])
    with emulation, ends(emulation) as both:
        places = (source, both.far(there)) if way == "push" else (both.far(source), there)
        fastest = 0.0
        # What a machine that stands still for longer than the limit saves up loses is lost to the copy.
        for _ in range(ATTEMPTS):
            there.unlink(missing_ok=True)
            record = both.copy(*places, "--limit", "50mbit").record
            rate = record["bytes"] * 8 / record["duration_s"]
            assert rate <= 1.02 * 50e6
            fastest = max(fastest, rate)
            if fastest >= 0.98 * 50e6:
                break
    assert fastest >= 0.98 * 50e6


@pytest.mark.parametrize("way", ["push", "pull"])
def test_a_declared_rate_is_held_by_two_streams_to_the_disk(clear: Ends, tmp_path: Path, way: str) -> None:
    states = {each["name"]: each["state"] for each in json.loads(farlink("congestion", "--json").stdout)}
    if states["circuit"] == "unavailable":
        pytest.skip("nobody may load a congestion control here")
    source, there = tmp_path / "file", tmp_path / "copy"
    source.write_bytes(random.Random(3).randbytes(8 * BLOCK))
    places = (source, clear.far(there)) if way == "push" else (clear.far(source), there)
    record = clear.copy(*places, "--circuit", "150mbit", "--fsync").record
    assert there.read_bytes() == source.read_bytes()
    assert (record["congestion"], record["declared_bps"], record["streams"]) == ("circuit", 150e6, 2)
    assert record["bytes"] * 8 / record["duration_s"] <= 150e6


def test_a_profile_model_chooses_for_files_too(clear: Ends, tmp_path: Path) -> None:
    source, there = tmp_path / "file", tmp_path / "copy"
    source.write_bytes(random.Random(6).randbytes(2 * BLOCK))
    record = clear.copy(source, clear.far(there), f"--auto={saved(tmp_path)}").record
    assert there.read_bytes() == source.read_bytes()
    assert (record["congestion"], record["streams"], record["buffer_bytes"]) == ("reno", 3, 1 << 20)
    assert "the profile model of 2026-11-21" in record["congestion_reason"]
    assert "; measured with farlink memory: that farlink copy reaches as much" in record["congestion_reason"]
    assert not {"streams_chosen", "congestion_chosen"} & record.keys()
    own = {"measured_with": "farlink copy", "protection": "clear"}
    record = clear.copy(source, clear.far(tmp_path / "own"), f"--auto={saved(tmp_path, **own)}").record
    assert "measured with" not in record["congestion_reason"]
    other = own | {"protection": "encrypted"}
    record = clear.copy(source, clear.far(tmp_path / "other"), f"--auto={saved(tmp_path, **other)}").record
    assert "; measured with data encrypted: that clear costs no more" in record["congestion_reason"]


def test_connections_come_from_the_address_that_was_named(
    near: Emulation, keys: Keys, tmp_path: Path
) -> None:
    source, there, other = tmp_path / "file", tmp_path / "copy", "198.18.0.77"
    source.write_bytes(random.Random(7).randbytes(4 * BLOCK))
    (device,) = set(near.output("a", "ls", "/sys/class/net").split()) - {"lo"}
    near.output("a", "ip", "address", "add", f"{other}/32", "dev", device)
    with ends(near, keys=keys, protect="encrypt") as both:
        words = ("--bind", other, "--limit", "50mbit", "--streams", "2")
        with both.copying(source, both.far(there), *words) as copying:
            copying.wait_for(BLOCK)
            # It is not to end before it was looked at.
            copying.send(signal.SIGSTOP)
            shown = near.output("a", "ss", "-tnHO", "state", "established", "dport", f"= :{both.port}")
            copying.send(signal.SIGCONT)
            assert copying.ended().status == 0
    # Control and two of data.
    assert [line.split()[2].rpartition(":")[0] for line in shown.splitlines()] == [other] * 3
    assert there.read_bytes() == source.read_bytes()


def test_sources_on_a_far_host_may_be_several(clear: Ends, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    there = tmp_path / "there"
    clear.copy(clear.far(tmp_path / "one"), clear.far(tmp_path / "two"), there)
    for name in ("one", "two"):
        assert differences(tmp_path / name, there / name) == []


def test_a_pattern_of_a_far_source_stands_for_what_is_there(clear: Ends, tmp_path: Path) -> None:
    source, there = tmp_path / "source", tmp_path / "there"
    files = ("run1/a.h5", "run1/.b.h5", "run2/c.h5", "run2/log", "run?/d.h5", "notes")
    for name in files:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(name)

    def copied(*patterns: str) -> set[str]:
        shutil.rmtree(there, ignore_errors=True)
        clear.copy(*(clear.far(source / pattern) for pattern in patterns), there)
        return {os.fsdecode(name) for name, kind in listing(there).items() if kind != "directory"}

    assert copied("run[12]*/*.h5") == {"a.h5", "c.h5"}
    assert copied("n*s", "*/log") == {"notes", "log"}
    # One name that is matched goes into the destination, too; what is called so is meant itself.
    assert copied("run?") == {"run?/d.h5"}
    none = run(
        [*clear.on_client, str(FARLINK), "copy", clear.far(source / "x*"), str(there), *clear.copy_options]
    )
    assert none.status == NONE
    assert "x*" in none.complaint
    assert "No such file" in none.complaint


@pytest.mark.parametrize("way", ["push", "pull"])
def test_of_a_list_nothing_else_is_copied(clear: Ends, tmp_path: Path, way: str) -> None:
    source, there, listed = tmp_path / "source", tmp_path / "there", tmp_path / "listed"
    for name in ("a/one", "a/two", "b/three"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(name)
    listed.write_text("a/two\nb\n")
    places = [str(source), clear.far(there)] if way == "push" else [clear.far(source), str(there)]
    clear.copy(*places, "--files-from", listed)
    assert {name for name, kind in listing(there).items() if kind != "directory"} == {b"a/two", b"b/three"}


@pytest.mark.parametrize("way", ["push", "pull"])
def test_what_cannot_be_copied_is_named_to_the_client_whichever_end_it_is(
    clear: Ends, tmp_path: Path, way: str
) -> None:
    source, there = tmp_path / "source", tmp_path / "there"
    source.mkdir()
    (there / "in-the-way").mkdir(parents=True)
    for name in ("fine", "in-the-way"):
        (source / name).write_bytes(b"x")
    os.mkfifo(source / "pipe")
    places = (f"{source}/", clear.far(there)) if way == "push" else (f"{clear.far(source)}/", there)
    copied = clear.copy(*places, status=SOME_FAILED)
    assert {path: line["outcome"] for path, line in copied.names.items() if path != "."} == {
        "fine": "copied",
        "in-the-way": "failed",
        "pipe": "skipped",
    }
    assert "in-the-way" in copied.stderr


@pytest.mark.parametrize("way", ["push", "pull"])
def test_what_is_not_there_is_refused_with_the_far_ends_words(clear: Ends, tmp_path: Path, way: str) -> None:
    (tmp_path / "file").write_bytes(b"x")
    places = [str(tmp_path / "file"), clear.far(tmp_path / "no" / "such" / "new")]
    if way == "pull":
        places = [clear.far(tmp_path / "gone"), str(tmp_path / "new")]
    ended = run([*clear.on_client, str(FARLINK), "copy", *places, *clear.copy_options])
    # A source that is not there is a name that was not copied; a destination without a place is refused.
    assert ended.status == (REFUSED if way == "push" else NONE), ended
    missing = tmp_path / "no" / "such"
    assert (f"make it with `mkdir -p {missing}`" if way == "push" else "No such file") in ended.complaint
    assert not (tmp_path / "new").exists()


def test_a_dry_run_of_a_pull_names_everything_and_copies_nothing(
    clear: Ends, odd: Path, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    words = ["copy", f"{clear.far(odd)}/", str(there), "--dry-run", "--json", "--exclude", "deep"]
    ended = run([*clear.on_client, str(FARLINK), *words, *clear.copy_options])
    assert ended.status == 0, ended
    assert not there.exists()
    foretold = {line["path"]: line["outcome"] for line in map(json.loads, ended.stdout.splitlines())}
    copied = clear.copy(f"{clear.far(odd)}/", there, "--exclude", "deep")
    assert foretold == {path: line["outcome"] for path, line in copied.names.items()}


def test_a_dry_run_over_a_slow_path_says_its_last_name(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    # More than the kernels keep between the ends, so that the walk ends long before the last of it is there.
    for number in range(6000):
        (source / f"{number:0100}").touch()
    with Emulation(options=["--rate", "20mbit", "--rtt", "40ms"]) as slow, ends(slow) as both:
        words = ["copy", f"{both.far(source)}/", str(tmp_path / "there"), "--dry-run", "--json"]
        ended = run([*both.on_client, str(FARLINK), *words, *both.copy_options])
    assert ended.status == 0, ended.complaint
    assert len(ended.stdout.splitlines()) == 6001


def test_a_dry_run_of_a_push_asks_nobody(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    ended = farlink("copy", str(tmp_path / "file"), f"farlink://host.invalid{tmp_path}/new", "--dry-run")
    assert ended.status == 0, ended
    assert "file" in ended.stdout


def test_many_sessions_at_a_time_are_kept_apart(clear: Ends, tmp_path: Path) -> None:
    sources = [tmp_path / str(number) for number in range(3)]
    for number, source in enumerate(sources):
        source.write_bytes(random.Random(number).randbytes((number + 2) * BLOCK + number))
    slowly = ("--limit", "50mbit")
    with (
        clear.copying(sources[0], clear.far(tmp_path / "to-0"), *slowly) as first,
        clear.copying(sources[1], clear.far(tmp_path / "to-1"), *slowly) as second,
        clear.copying(clear.far(sources[2]), tmp_path / "to-2", *slowly) as third,
    ):
        ended = [each.ended() for each in (first, second, third)]
    assert [each.status for each in ended] == [0, 0, 0]
    for number, source in enumerate(sources):
        assert (tmp_path / f"to-{number}").read_bytes() == source.read_bytes()


def test_a_directory_that_is_granted_keeps_its_own_mode(near: Emulation, tmp_path: Path) -> None:
    granted, source = tmp_path / "granted", tmp_path / "source"
    for directory in (granted, source, source / "within"):
        directory.mkdir()
    (source / "file").write_text("pushed")
    granted.chmod(0o2770)
    (source / "within").chmod(0o711)
    source.chmod(0o555)
    keys = Keys(tmp_path, grant=f"write={granted}")
    with ends(near, keys=keys, protect="encrypt") as both:
        both.copy(f"{source}/", both.far(granted))
        both.copy(f"{source}/", both.far(f"{granted}/."))
        both.copy(f"{source}/", both.far(granted / "below"))
    assert granted.stat().st_mode & 0o7777 == 0o2770
    assert (granted / "file").read_text() == "pushed"
    # What is beneath it is the client's.
    assert (granted / "within").stat().st_mode & 0o777 == 0o711
    assert (granted / "below").stat().st_mode & 0o777 == 0o555


@pytest.mark.parametrize("way", ["push", "pull"])
def test_a_key_reaches_what_its_line_grants_and_nothing_else(
    near: Emulation, tmp_path: Path, way: str
) -> None:
    granted, secret = tmp_path / "granted", tmp_path / "granted-not"
    for directory in (granted, secret):
        directory.mkdir()
        (directory / "file").write_text(directory.name)
    (granted / "out").symlink_to(secret)
    (tmp_path / "file").write_text("pushed")
    keys = Keys(tmp_path, grant=f"read={granted} write={granted}")
    with ends(near, keys=keys, protect="encrypt") as both:
        inside = "pushed" if way == "push" else "copy"
        (both.copy(tmp_path / "file", both.far(granted / inside)) if way == "push" else
         both.copy(both.far(granted / "file"), tmp_path / inside))  # fmt: skip
        for place in (secret, granted / ".." / secret.name, granted / "out"):
            new = place / "new" if way == "push" else tmp_path / "new"
            places = (tmp_path / "file", both.far(new)) if way == "push" else (both.far(place / "file"), new)
            ended = run([*both.on_client, str(FARLINK), "copy", *map(str, places), *both.copy_options])
            # Outside the grant is refused; a link within it that leads out is a name that cannot be read.
            assert ended.status in (NONE, REFUSED), ended
            assert str(place.name) in ended.complaint
            assert not new.exists()
        if way == "pull":
            # What is granted itself, by its name, and what is in it.
            both.copy(both.far(granted), tmp_path / "whole")
            assert (tmp_path / "whole" / "granted" / "file").read_text() == granted.name
            both.copy(f"{both.far(granted)}/", tmp_path / "within")
            assert (tmp_path / "within" / "file").read_text() == granted.name
            both.copy(both.far(granted / "f*"), tmp_path / "like")
            assert [path.name for path in (tmp_path / "like").iterdir()] == ["file"]
            words = ["copy", both.far(granted / "o*" / "*"), str(tmp_path / "led"), *both.copy_options]
            assert run([*both.on_client, str(FARLINK), *words]).status == NONE
    assert (secret / "file").read_text() == secret.name
    assert sorted(path.name for path in secret.iterdir()) == ["file"]
