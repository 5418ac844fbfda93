"""Files by multicast over emulated hosts: everybody gets everything, whoever loses or comes late."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
from typing import TYPE_CHECKING, Any

import pytest

from casting import (
    GROUP,
    GROUP6,
    RATE,
    RECEIVERS,
    SENDER,
    SLOW,
    file_of,
    files,
    impaired,
    kill,
    lossy,
    receiver,
    sender,
    session,
    tell,
    wait_for,
)
from copying import leftovers
from emulation import FARLINK, Emulation

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.pair

STAR = ("--hosts", "4", "--rate", "1gbit", "--rtt", "10ms", "--seed", "7")


@pytest.fixture(scope="module")
def star() -> Iterator[Emulation]:
    """Four hosts around a core, for tests that change nothing for long."""
    with Emulation(options=STAR) as emulation:
        yield emulation


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of all sizes in a few directories: none of them empty, since a session sends files alone."""
    top = tmp_path_factory.mktemp("source") / "tree"
    random.seed(11)
    sizes = {
        "empty": 0,
        "one": 1,
        "a packet": 1300,
        "some/packets": 20_000,
        "some/more.bin": 700_001,
        "a/b/c/deep": 3_000_000,
        "block": 1 << 20,
        "name with\nfeed": 50,
        **{f"small/{number:03}": random.randrange(60_000) for number in range(60)},
    }
    for name, size in sizes.items():
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(random.randbytes(size))
        os.utime(path, ns=(1_600_000_000_123_456_789, 1_600_000_000_123_456_789))
    return top


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A file that takes a second or more at RATE."""
    path = tmp_path / "source" / "large.bin"
    path.parent.mkdir()
    path.write_bytes(random.Random(3).randbytes(40_000_000))
    return path


def test_files_arrive_identical_at_every_receiver(star: Emulation, tree: Path, tmp_path: Path) -> None:
    with session(star, tree, tmp_path) as (sending, all_of_them):
        ends = [each.end() for each in all_of_them]
        status, record = sending.end()
    assert [status for status, _ in ends] == [0, 0, 0]
    assert status == 0, record
    for host in RECEIVERS:
        assert files(tmp_path / host / "tree") == files(tree)
        assert leftovers(tmp_path / host) == []
    size = sum(len(content) for content, _, _ in files(tree).values())
    assert (record["kind"], record["outcome"], record["bytes"]) == ("cast", "ok", size)
    assert [each["complete"] for each in record["cast"]["receivers"]] == [True] * 3
    assert all(record["bytes"] == size and record["kind"] == "cast" for _, record in ends)
    assert len({record["cast"]["seed"] for _, record in ends}) == 3
    assert record["rtt_s"] == ends[0][1]["rtt_s"] == pytest.approx(0.01)
    assert record["disk_s"]["read"] > 0
    receivers_cpu = [each["cpu_s"] for each in record["cast"]["receivers"]]
    assert record["cpu_s"]["receiver"] == pytest.approx(sum(receivers_cpu))
    for _, end in ends:
        assert end["cpu_s"].keys() == {"receiver"}
        assert end["disk_s"].keys() == {"write"}
        # 8 MiB, twice that where so much came at once, as from a host that stood still.
        assert end["buffer_bytes"] in {8 << 20 << step for step in range(4)}
        # With announcements and digests, and none of it twice.
        assert size < sum(came for _, came in end["samples"]) < 1.05 * size + 100_000
        assert end["samples"][-1][0] <= end["duration_s"] + 1e-9
    # Once to all of them, and no more.
    assert record["cast"]["first_pass_bytes"] < 1.05 * size + 100_000


def test_files_arrive_over_ipv6(star: Emulation, tree: Path, tmp_path: Path) -> None:
    with (
        lossy(star, "c", "2%"),
        receiver(star, "b", tmp_path / "b", group=GROUP6) as one,
        receiver(star, "c", tmp_path / "c", group=GROUP6) as lossy_one,
        sender(star, tree, options=wait_for(2), group=GROUP6) as sending,
    ):
        joined = [sending.until("joined")["joined"]["address"] for _ in range(2)]
        (code, record), (lossy_code, lossy_record) = one.end(), lossy_one.end()
        status, sent = sending.end()
    assert (status, code, lossy_code) == (0, 0, 0)
    assert sorted(joined) == sorted(star.address(host, ipv6=True) for host in ("b", "c"))
    for host in ("b", "c"):
        assert files(tmp_path / host / "tree") == files(tree)
    assert (record["cast"]["lost"], record["cast"]["group"]) == (0, GROUP6)
    assert lossy_record["cast"]["repaired_bytes"] > 0
    # Headers of IPv6 and UDP, and our own: a packet fills the MTU of 9,000 bytes.
    assert sent["cast"]["payload_bytes"] == 9000 - 48 - 56


def test_one_that_loses_much_gets_everything_too(star: Emulation, tree: Path, tmp_path: Path) -> None:
    with lossy(star, "d", "5%"), session(star, tree, tmp_path) as (sending, all_of_them):
        ends = dict(zip(RECEIVERS, (each.end() for each in all_of_them), strict=True))
        status, record = sending.end()
    assert (status, [code for code, _ in ends.values()]) == (0, [0, 0, 0])
    for host in RECEIVERS:
        assert files(tmp_path / host / "tree") == files(tree)
    lost = {host: end["cast"]["lost"] for host, (_, end) in ends.items()}
    assert lost["d"] > 0
    assert (lost["b"], lost["c"]) == (0, 0)
    assert ends["d"][1]["cast"]["repaired_bytes"] > 0
    # What one alone lacks goes to it alone: the group has no second copy of it to read.
    assert record["cast"]["unicast_repair_bytes"] > record["cast"]["multicast_repair_bytes"]


def test_packets_that_come_twice_late_or_damaged_do_no_harm(
    star: Emulation, tree: Path, tmp_path: Path
) -> None:
    with (
        impaired(star, "b", duplicate="5%", reorder="5%,20ms", corrupt="2%"),
        session(star, tree, tmp_path) as (sending, all_of_them),
    ):
        ends = dict(zip(RECEIVERS, (each.end() for each in all_of_them), strict=True))
        status, _ = sending.end()
    assert (status, [code for code, _ in ends.values()]) == (0, [0, 0, 0])
    for host in RECEIVERS:
        assert files(tmp_path / host / "tree") == files(tree)
        assert leftovers(tmp_path / host) == []
    meddled = ends["b"][1]["cast"]
    # Twice is a replay; the kernel drops what is damaged; what comes behind its repair was there already.
    assert min(meddled["refused"], meddled["lost"], meddled["duplicates"], meddled["repaired_bytes"]) > 0
    # A packet may have been under way when a receiver was let in: it is none of those that it may have.
    assert all(ends[host][1]["cast"]["refused"] < min(5, meddled["refused"]) for host in ("c", "d"))
    # Nothing had to come a second time.
    assert all(end["cast"]["caught_up"] == 0 for _, end in ends.values())


def test_a_receiver_with_few_descriptors_stores_a_stream_of_large_files(
    star: Emulation, tmp_path: Path
) -> None:
    # Of nearly each file something is lost, and repaired long after it: so many are not whole at a time. What
    # both lack goes to the group, and the rest to one.
    source = tmp_path / "source"
    source.mkdir()
    for number in range(200):
        (source / f"{number}").write_bytes(random.Random(number).randbytes(300_000))
    few = ("prlimit", "--nofile=90:90")
    with (
        lossy(star, "b", "5%"),
        lossy(star, "c", "5%"),
        receiver(star, "b", tmp_path / "b", through=few) as receiving,
        receiver(star, "c", "null:") as another,
        sender(star, source, options=wait_for(2)) as sending,
    ):
        assert receiving.end()[0] == 0
        assert another.end()[0] == 0
        assert sending.end()[0] == 0
    assert files(tmp_path / "b" / "source") == files(source)


def test_repairs_of_what_has_come_since_spoil_nothing(star: Emulation, large: Path, tmp_path: Path) -> None:
    # Runs of packets are lost, others are late and asked for: of a frame of repairs a part may have come.
    # Not all of a run: TCP's own packets, one after ever longer pauses, would take minutes to pass it.
    with (
        impaired(star, "b", loss="gemodel:0.5%,8%,40%", reorder="10%,60ms"),
        impaired(star, "c", loss="gemodel:0.5%,8%,40%", reorder="10%,60ms"),
        receiver(star, "b", tmp_path / "b") as one,
        receiver(star, "c", "null:") as other,
        sender(star, large, options=(*wait_for(2), "--repair-rate", "200mbit")) as sending,
    ):
        ends = [one.end(), other.end()]
        status, _ = sending.end()
    assert (status, [code for code, _ in ends]) == (0, [0, 0])
    assert (tmp_path / "b" / large.name).read_bytes() == large.read_bytes()
    for _, end in ends:
        said = end["cast"]
        assert min(said["duplicates"], said["repaired_bytes"]) > 0
        assert (said["caught_up"], said["failed"]) == (0, 0)


def test_what_everybody_loses_is_repaired_to_the_group(star: Emulation, tree: Path, tmp_path: Path) -> None:
    with lossy(star, SENDER, "2%"), session(star, tree, tmp_path) as (sending, all_of_them):
        codes = [each.end()[0] for each in all_of_them]
        status, record = sending.end()
    assert (status, codes) == (0, [0, 0, 0])
    for host in RECEIVERS:
        assert files(tmp_path / host / "tree") == files(tree)
    # What they ask for within milliseconds of each other, on a busy machine a part of it: all of it does in
    # crates/flow/tests/cast/repairs.rs.
    assert record["cast"]["multicast_repair_bytes"] > 0


def test_nothing_is_kept_where_only_digests_are_compared(star: Emulation, tree: Path, tmp_path: Path) -> None:
    with lossy(star, "b", "3%"), receiver(star, "b", "null:") as checking, sender(star, tree) as sending:
        code, record = checking.end()
        status, _ = sending.end()
    assert (status, code, record["outcome"]) == (0, 0, "ok")
    assert record["files"] == len(files(tree))
    assert list(tmp_path.iterdir()) == []


def test_standard_input_arrives_as_a_file(star: Emulation, tmp_path: Path) -> None:
    words = ("--group", GROUP, "--rate", RATE, "--no-auth", "--quiet", "--name", "from/a pipe", "-")
    with receiver(star, "b", tmp_path / "b") as receiving:
        ended = star.on(SENDER, str(FARLINK), "cast", "send", *words, stdin="what was piped\n" * 9000)
        assert receiving.end()[0] == 0
    assert ended.status == 0, ended
    assert (tmp_path / "b" / "from" / "a pipe").read_text() == "what was piped\n" * 9000


def test_the_records_of_both_ends_are_appended(star: Emulation, large: Path, tmp_path: Path) -> None:
    kept = {end: tmp_path / f"{end}.jsonl" for end in ("send", "receive")}
    kept["send"].write_text('{"an earlier": "line"}\n')
    with (
        receiver(star, "b", "null:", "--record", str(kept["receive"])) as receiving,
        sender(star, large, options=("--record", str(kept["send"]))) as sending,
    ):
        (code, received), (status, sent) = receiving.end(), sending.end()
    assert (status, code) == (0, 0)
    lines = {end: [json.loads(line) for line in path.read_text().splitlines()] for end, path in kept.items()}
    assert lines == {"send": [{"an earlier": "line"}, sent], "receive": [received]}
    assert sent["id"] != received["id"]


def test_quiet_ends_tell_programs_what_happens_and_not_how_it_goes(
    star: Emulation, large: Path, tmp_path: Path
) -> None:
    with (
        receiver(star, "b", tmp_path / "b", "--quiet") as quiet,
        receiver(star, "c", tmp_path / "c") as other,
        sender(star, large, options=(*wait_for(2), "--quiet")) as sending,
    ):
        assert any("progress" in each for each in other.rest())
        for end in (quiet, sending):
            said = end.rest()
            assert not any("progress" in each for each in said)
            assert any("joined" in each for each in said)
            assert said[-1]["outcome"] == "ok"


def test_branches_may_be_near_and_far(star: Emulation, tree: Path, tmp_path: Path) -> None:
    star.change("--rtt", "90ms", target="/c")
    try:
        with (
            lossy(star, "b", "2%"),
            lossy(star, "c", "2%"),
            session(star, tree, tmp_path) as (sending, all_of_them),
        ):
            ends = dict(zip(RECEIVERS, (each.end() for each in all_of_them), strict=True))
            status, record = sending.end()
    finally:
        star.change("--rtt", "10ms", target="/c")
    assert (status, [code for code, _ in ends.values()]) == (0, [0, 0, 0])
    for host in RECEIVERS:
        assert files(tmp_path / host / "tree") == files(tree)
    rtt_s = {each["address"]: each["rtt_s"] for each in record["cast"]["receivers"]}
    near, far = (rtt_s[star.address(host)] for host in ("b", "c"))
    assert far > near + 0.03
    # What one lacks is no reason to send to the other again, nor what is still under way to it.
    lost = {host: end["cast"]["lost"] for host, (_, end) in ends.items()}
    assert lost["d"] == 0
    assert min(lost["b"], lost["c"]) > 0
    assert all(end["cast"]["caught_up"] == 0 for _, end in ends.values())


def test_a_late_receiver_gets_what_it_missed(star: Emulation, large: Path, tmp_path: Path) -> None:
    with receiver(star, "b", tmp_path / "b") as early, sender(star, large, rate=SLOW) as sending:
        while early.until("progress")["progress"]["bytes"] < 5_000_000:
            pass
        with receiver(star, "c", tmp_path / "c", "--from", star.address(SENDER)) as late:
            codes = [early.end()[0], late.end()[0]]
        status, record = sending.end()
    assert (status, codes) == (0, [0, 0])
    assert (tmp_path / "c" / large.name).read_bytes() == large.read_bytes()
    assert len(record["cast"]["receivers"]) == 2


def test_a_receiver_that_was_killed_goes_on_with_what_it_has(
    star: Emulation, large: Path, tmp_path: Path
) -> None:
    into = tmp_path / "b"
    with (
        sender(star, large, options=wait_for(2), rate=SLOW) as sending,
        receiver(star, "c", "null:") as other,
    ):
        with receiver(star, "b", into) as first:
            while first.until("progress")["progress"]["bytes"] < 10_000_000:
                pass
            kill(star, str(into))
            first.wait()
        assert leftovers(into) != []
        with receiver(star, "b", into, "--from", star.address(SENDER)) as again:
            code, record = again.end()
        codes = [code, other.end()[0]]
        status, _ = sending.end()
    assert (status, codes) == (0, [0, 0])
    assert (into / large.name).read_bytes() == large.read_bytes()
    assert leftovers(into) == []
    assert keeps_what_is_proven(record)


def test_a_receiver_that_was_given_up_and_goes_on_comes_back(
    star: Emulation, large: Path, tmp_path: Path
) -> None:
    into = tmp_path / "b"
    options = (*wait_for(2), "--timeout", "5s")
    with (
        sender(star, large, options=options, rate=SLOW) as sending,
        receiver(star, "b", into) as stopped,
        receiver(star, "c", "null:") as other,
    ):
        while stopped.until("progress")["progress"]["bytes"] < 5_000_000:
            pass
        # As a host that was suspended: its connection is still there when it goes on.
        tell(star, f"--into {into}", signal.SIGSTOP)
        while not sending.until("left")["left"]["lost"]:
            pass
        tell(star, f"--into {into}", signal.SIGCONT)
        assert stopped.until("joined")["joined"]["again"]
        codes = [stopped.end()[0], other.end()[0]]
        status, record = sending.end()
    assert (status, codes) == (0, [0, 0]), record
    assert (into / large.name).read_bytes() == large.read_bytes()
    assert [each["complete"] for each in record["cast"]["receivers"]] == [True, True]


def test_a_receiver_that_was_lost_before_anything_was_sent_lacks_nothing(
    star: Emulation, tmp_path: Path
) -> None:
    source = file_of(tmp_path / "source", 50_000)
    lost, *others = ((host, tmp_path / host) for host in RECEIVERS)
    with (
        contextlib.ExitStack() as stack,
        sender(star, source, options=wait_for(len(others))) as sending,
    ):
        stack.enter_context(receiver(star, *lost))
        sending.until("joined")
        kill(star, f"--into {lost[1]} ")
        sending.until("left")
        receiving = [stack.enter_context(receiver(star, *other)) for other in others]
        status, record = sending.end()
        assert [each.end()[0] for each in receiving] == [0] * len(others)
    assert (status, len(record["cast"]["receivers"])) == (0, len(others)), record


def test_a_sender_that_was_killed_is_waited_for(star: Emulation, large: Path, tmp_path: Path) -> None:
    into = tmp_path / "b"
    with receiver(star, "b", into) as receiving:
        with sender(star, large, rate=SLOW) as first:
            while receiving.until("progress")["progress"]["bytes"] < 10_000_000:
                pass
            kill(star, "cast send")
            first.wait()
        assert receiving.until("lost")["lost"]["at"].startswith(star.address(SENDER))
        with sender(star, large) as second:
            code, record = receiving.end()
            status, _ = second.end()
    assert (status, code) == (0, 0)
    assert (into / large.name).read_bytes() == large.read_bytes()
    assert leftovers(into) == []
    assert keeps_what_is_proven(record)


def keeps_what_is_proven(record: dict[str, Any]) -> bool:
    """Whether a receiver of the large file had proven blocks of it, which did not come again."""
    kept, came = record["cast"]["kept_bytes"], sum(came for _, came in record["samples"])
    # With its announcement and digest.
    all_came = record["bytes"] + kept == 40_000_000
    return bool(kept > 0 and all_came and 40_000_000 < kept + came < 40_000_200)
