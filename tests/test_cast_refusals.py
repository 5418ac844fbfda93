"""What a session refuses, and whom: one clear line, and nobody else is disturbed."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

from casting import (
    GROUP,
    GROUP6,
    RECEIVERS,
    SENDER,
    Running,
    file_of,
    kill,
    receiver,
    receivers,
    sender,
    tell,
    wait_for,
)
from copying import Keys, leftovers
from emulation import FARLINK, START_LIMIT_S, Emulation, Ended, farlink, refused, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.pair

SEND = ("cast", "send", "--group", GROUP, "--rate", "100mbit")
RECEIVE = ("cast", "receive", "--group", GROUP)


@pytest.fixture(scope="module")
def star() -> Iterator[Emulation]:
    """Four hosts around a core."""
    with Emulation(options=("--hosts", "4", "--rate", "1gbit", "--rtt", "4ms", "--seed", "9")) as emulation:
        yield emulation


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A small file to send."""
    path = tmp_path / "source.bin"
    path.write_bytes(bytes(range(256)) * 4000)
    return path


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (("--group", "10.0.0.1:7000"), ("10.0.0.1:7000", "no address of multicast", "239.0.0.0/8")),
        (("--group", "239.1.1.1"), ("239.1.1.1", "a port", "239.1.1.1:7000")),
        (("--group", "239.1.1.1:0"), ("239.1.1.1:0", "1 to 65535")),
        (("--group", "[ff02::1]:7000", "--no-auth"), ("[ff02::1]:7000", "--interface", "ff15::/16")),
        (("--timeout", "0s"), ("0s", "100ms to 600s")),
        (("--rate", "600"), ('"600"', "no unit")),
        (("--rate", "0mbit"), ("0mbit", "zero")),
        (("--ttl", "0"), ("0", "--ttl", "1..=255")),
        (("--receivers", "0"), ("0", "--receivers")),
        (("--receivers", "x"), ('"x"', "write 1 or more")),
        (("--interface", "nosuch0", "--no-auth"), ("nosuch0", "no interface")),
        (("--identity", "/no/such/key"), ("/no/such/key", "farlink keygen")),
        (("--name", "out.nc"), ("--name", "standard input", "leave it out")),
    ],
)
def test_what_a_sender_cannot_do_is_refused(
    source: Path, asked: tuple[str, ...], words: tuple[str, ...]
) -> None:
    given = {"--group": GROUP, "--rate": "100mbit"}
    usual = [word for name, value in given.items() if name not in asked for word in (name, value)]
    said = refused("cast", "send", *usual, *asked, str(source))
    assert all(word in said for word in words), said


def test_a_source_that_nothing_is_sent_of_is_refused(source: Path, tmp_path: Path) -> None:
    link = tmp_path / "latest"
    link.symlink_to(source)
    said = refused(*SEND, "--no-auth", str(link))
    assert all(word in said for word in (str(link), "symbolic link", "name what it leads to")), said
    said = refused(*SEND, "--no-auth", "/dev/null")
    assert "no file and no directory" in said, said


def test_a_source_that_is_not_there_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    assert str(missing) in refused(*SEND, "--no-auth", str(missing))


@pytest.mark.parametrize("sources", [["-", "{source}"], ["{source}", "-"], ["-", "--watch", "{source}"]])
def test_standard_input_may_not_have_the_name_of_another_source(tmp_path: Path, sources: list[str]) -> None:
    source = tmp_path / "out.nc"
    source.mkdir()
    words = [each.format(source=source) for each in sources]
    said = refused(*SEND, "--no-auth", "--name", "out.nc", *words)
    assert len(said.splitlines()) == 1, said
    assert all(word in said for word in ("standard input", str(source), '"out.nc"', "--name")), said


def test_standard_input_is_named_once() -> None:
    said = refused(*SEND, "--no-auth", "-", "-")
    assert all(word in said for word in ("standard input", "2 times", "write one -")), said


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    said = refused(*RECEIVE, "--no-auth", "--into", str(tmp_path / "no" / "such"))
    assert str(tmp_path / "no") in said
    assert "mkdir -p" in said


def test_a_directory_that_may_not_be_written_to_is_named_before_anything_comes(tmp_path: Path) -> None:
    script = 'mount -t tmpfs -o ro farlink-test "$0" && exec "$@"'
    receiver = [str(FARLINK), *RECEIVE, "--no-auth", "--into", str(tmp_path)]
    ended = run(["unshare", "-rm", "sh", "-c", script, str(tmp_path), *receiver])
    assert ended.status == 2, ended
    assert str(tmp_path) in ended.complaint
    assert "Read-only" in ended.complaint


def test_a_host_that_others_reach_needs_keys(source: Path) -> None:
    script = """
        ip link set lo up && ip address add 192.0.2.1/24 dev lo
        ip route add 239.0.0.0/8 dev lo src 192.0.2.1
        exec "$@"
    """
    command = [str(FARLINK), *SEND, "--no-auth", str(source)]
    ended = run(["unshare", "-rn", "sh", "-c", script, "sh", *command])
    assert ended.status == 2, ended
    assert "192.0.2.1" in ended.complaint
    assert "no keys" in ended.complaint


def test_no_route_to_the_group_is_said(source: Path) -> None:
    ended = run(["unshare", "-rn", str(FARLINK), *SEND, "--no-auth", str(source)])
    assert ended.status == 2, ended
    assert GROUP in ended.complaint
    assert "no route" in ended.complaint
    assert "--interface" in ended.complaint


LINK = "ip link set lo up && ip link add wire type veth peer name far && ip address flush dev wire"


@pytest.mark.parametrize("verb", ["send", "receive"])
@pytest.mark.parametrize(
    ("group", "script", "interface", "words"),
    [
        (GROUP, f"{LINK} && ip link set wire up", "wire", ("wire has no IPv4 address",)),
        (GROUP, f"{LINK} && ip address add 192.0.2.1/24 dev wire", "wire", ("wire is down", "ip link set")),
        (GROUP6, f"{LINK} && ip link set wire addrgenmode none up", "wire", ("wire has no IPv6 address",)),
        (GROUP6, f"{LINK}", "wire", ("wire is down",)),
        (GROUP6, "true", None, (GROUP6, "no route", "--interface")),
        (GROUP6, "ip link set lo up", None, (GROUP6, "no route", "--interface")),
        (GROUP, "ip link set lo up", None, (GROUP, "no route", "--interface")),
    ],
)
def test_an_interface_that_brings_nothing_is_refused(
    source: Path, verb: str, group: str, script: str, interface: str | None, words: tuple[str, ...]
) -> None:
    ends = {"send": ("--rate", "100mbit", str(source)), "receive": ("--into", "null:", "--once")}
    named = () if interface is None else ("--interface", interface)
    command = (str(FARLINK), "cast", verb, "--group", group, "--no-auth", *named, *ends[verb])
    ended = run(["unshare", "-rn", "sh", "-c", f'{script} && exec "$@"', "sh", *command])
    assert ended.status == 2, ended
    assert all(word in ended.complaint for word in words), ended
    assert "os error" not in ended.complaint
    assert "another session" not in ended.complaint


@pytest.mark.parametrize("named", [True, False])
def test_a_receiver_that_hears_nothing_says_so(star: Emulation, source: Path, *, named: bool) -> None:
    sender_is = ("--from", star.address(SENDER)) if named else ()
    with (
        sender(star, source, options=wait_for(2)),
        # Nothing comes there.
        receiver(star, "b", "null:", "--interface", "lo", *sender_is) as deaf,
    ):
        said = deaf.until("unheard")["unheard"]
    assert (said["group"], said["interface"]) == (GROUP, "lo")


def test_a_receiver_that_hears_nothing_gets_everything_over_its_connection(
    star: Emulation, source: Path, tmp_path: Path
) -> None:
    lonely = ("--interface", "lo", "--from", star.address(SENDER))
    with receiver(star, "b", tmp_path / "b", *lonely) as deaf, sender(star, source) as sending:
        said = deaf.until("unheard")["unheard"]
        status, record = deaf.end()
        complaint = deaf.complaints()
        assert sending.end()[0] == 0
    assert (status, record["outcome"]) == (0, "ok")
    assert record["cast"]["caught_up"] == record["cast"]["products"] > 0
    # Long before what was sent is held no longer.
    assert record["duration_s"] < 10
    assert said["sender"].startswith(star.address(SENDER))
    assert [words in complaint for words in (GROUP, "interface lo", "--interface")] == [True] * 3, complaint


def test_a_receiver_that_hears_nothing_joins_again_where_the_routes_lead_by_then(
    star: Emulation, tmp_path: Path
) -> None:
    feed = tmp_path / "feed"
    feed.mkdir()
    route = f"{GROUP.partition(':')[0]}/32 dev lo"
    assert star.on("b", "sh", "-c", f"ip link set lo up && ip route add {route}").status == 0
    with (
        sender(star, options=("--watch", str(feed))) as sending,
        receiver(star, "b", tmp_path / "b", "--from", star.address(SENDER)) as deaf,
    ):
        sending.until("joined")
        file_of(feed / "one", 5_000)
        assert deaf.until("outcome")["outcome"] == "stored"
        assert deaf.until("progress")["progress"]["packets"] == 0
        assert star.on("b", "ip", "route", "del", *route.split()).status == 0
        # What tells that there is nothing to send is heard as well.
        deadline = time.monotonic() + START_LIMIT_S
        while deaf.until("progress")["progress"]["packets"] == 0:
            assert time.monotonic() < deadline
        tell(star, "--watch", signal.SIGINT)
        assert (deaf.end()[0], sending.end()[0]) == (0, 0)


def test_a_receiver_out_of_the_groups_reach_takes_one_session_after_the_other(
    star: Emulation, source: Path, tmp_path: Path
) -> None:
    second = source.with_name("second.bin")
    second.write_bytes(source.read_bytes()[::-1])
    named = ("--interface", "lo", "--from", star.address(SENDER))
    words = (*RECEIVE, "--into", str(tmp_path / "b"), "--no-auth", "--json", *named)
    with star.background("b", str(FARLINK), *words) as process:
        deaf = Running(process=process)
        deaf.until("ready")
        for file in (source, second):
            # It waits for a receiver, and nothing of it is heard there.
            with sender(star, file) as sending:
                assert deaf.until("schema")["outcome"] == "ok"
                assert sending.end()[0] == 0
    assert (tmp_path / "b" / second.name).read_bytes() == second.read_bytes()


def test_nothing_to_send_is_said_before_anybody_is_let_in(star: Emulation, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with receiver(star, "b", "null:", "--wait", "2s") as receiving:
        ended = star.on(SENDER, str(FARLINK), *SEND, "--no-auth", "--quiet", str(tmp_path / "empty"))
        assert receiving.process.wait(timeout=START_LIMIT_S) == 2
        assert "could be joined within 2s" in receiving.complaints()
    assert (ended.status, "nothing to send" in ended.complaint) == (2, True), ended


def test_a_route_that_comes_back_soon_costs_nobody_anything(star: Emulation, source: Path) -> None:
    route = ("multicast", "ff00::/8", "dev", "farlink0", "table", "local")
    with (
        receiver(star, "b", "null:", group=GROUP6) as receiving,
        sender(star, source, rate="1mbit", group=GROUP6) as sending,
    ):
        while receiving.until("progress")["progress"]["bytes"] == 0:
            pass
        star.output(SENDER, "ip", "-6", "route", "delete", *route)
        try:
            # Of the eight that it takes, for which a packet leaves each few milliseconds.
            time.sleep(1)
        finally:
            star.output(SENDER, "ip", "-6", "route", "add", *route)
        status, record = sending.end()
        received, _ = receiving.end()
    assert (status, received, record["outcome"]) == (0, 0, "ok"), sending.complaints()
    assert record["cast"]["multicast_repair_bytes"] + record["cast"]["unicast_repair_bytes"] > 50_000


def test_a_route_that_is_taken_away_for_longer_than_is_waited_breaks_a_session_off(
    star: Emulation, source: Path
) -> None:
    # Of IPv4 the kernel needs none, where packets have an address to come from.
    route = ("multicast", "ff00::/8", "dev", "farlink0", "table", "local")
    with (
        receiver(star, "b", "null:", "--timeout", "3s", group=GROUP6) as receiving,
        sender(star, source, rate="2mbit", group=GROUP6, options=("--timeout", "3s")) as sending,
    ):
        while receiving.until("progress")["progress"]["bytes"] == 0:
            pass
        star.output(SENDER, "ip", "-6", "route", "delete", *route)
        try:
            status, record = sending.end()
        finally:
            star.output(SENDER, "ip", "-6", "route", "add", *route)
        said = sending.complaints()
    # Not 2, which says that nothing was begun.
    assert (status, record["outcome"]) == (3, "failed")
    assert record["cast"]["first_pass_bytes"] > 0
    assert "no route" in said
    assert len(said.splitlines()) == 1, said


def test_a_group_that_is_in_use_is_left_to_who_has_it(star: Emulation, source: Path, tmp_path: Path) -> None:
    with sender(star, source) as first:
        second = star.on("b", str(FARLINK), *SEND, "--no-auth", "--quiet", str(source))
        assert second.status == 2, second
        assert star.address(SENDER) in second.complaint
        assert "in use" in second.complaint
        with receiver(star, "c", tmp_path / "c", "--from", star.address(SENDER)) as receiving:
            assert receiving.end()[0] == 0
        assert first.end()[0] == 0
        # It is not taken for a receiver that was turned away.
        said = first.complaints()
        assert "as another sender does that asks whether the group is in use" in said, said


def test_of_two_that_begin_at_once_one_has_the_group(source: Path, tmp_path: Path) -> None:
    # Each begins to send before it can have heard the other.
    with (
        Emulation(options=("--hosts", "3", "--rate", "1gbit", "--rtt", "400ms")) as far,
        receiver(far, "c", tmp_path / "c") as receiving,
        sender(far, source) as one,
        sender(far, source, host="b") as another,
    ):
        said = [each.process.communicate(timeout=60)[1] for each in (one, another)]
        codes = [each.process.returncode for each in (one, another)]
        assert sorted(codes) == [0, 2], said
        assert "in use" in said[codes.index(2)]
        assert receiving.end()[0] == 0
    assert (tmp_path / "c" / source.name).read_bytes() == source.read_bytes()


def test_a_port_that_is_taken_is_said(star: Emulation, source: Path) -> None:
    with sender(star, source):
        ended = star.on(SENDER, str(FARLINK), *SEND, "--no-auth", "--quiet", str(source))
    assert (ended.status, "7000" in ended.complaint) == (2, True), ended


def keyed(star: Emulation, keys: Keys) -> tuple[str, ...]:
    """The options of a sender with keys, which its receivers know."""
    keys.make_known(star.address(SENDER), 7000)
    return tuple(keys.serve_options)


def test_files_arrive_under_keys(star: Emulation, source: Path, tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    options = keyed(star, keys)
    with (
        sender(star, source, options=options, keyed=True) as sending,
        receiver(star, "b", tmp_path / "b", *keys.copy_options, keyed=True) as receiving,
    ):
        code, record = receiving.end()
        assert (code, sending.end()[0]) == (0, 0)
    assert (tmp_path / "b" / source.name).read_bytes() == source.read_bytes()
    assert record["protection"] == "encrypted"


def test_a_wrong_key_is_refused_at_both_ends(star: Emulation, source: Path, tmp_path: Path) -> None:
    (tmp_path / "ours").mkdir()
    (tmp_path / "others").mkdir()
    keys, others = Keys(tmp_path / "ours"), Keys(tmp_path / "others")
    options = keyed(star, keys)
    keyed(star, others)

    def attempt(*credentials: str) -> Ended:
        # Who is only heard of ends nothing: the sender is named.
        named = ("--from", star.address(SENDER))
        words = (*RECEIVE, "--into", "null:", "--once", "--quiet", *named, *credentials)
        return star.on("b", str(FARLINK), *words)

    with sender(star, source, options=options, keyed=True) as sending:
        # It has another key of the sender's host.
        unknown = attempt(*keys.copy_options[:2], *others.copy_options[2:])
        # The sender does not know its key.
        stranger = attempt(*others.copy_options[:2], *keys.copy_options[2:])
        # It shows none.
        plain = attempt("--no-auth", "--timeout", "2s")
        with receiver(star, "c", "null:", *keys.copy_options, keyed=True) as receiving:
            assert receiving.end()[0] == 0
        assert sending.end()[0] == 0
    assert (unknown.status, stranger.status) == (2, 2)
    assert star.address(SENDER) in unknown.complaint
    assert str(others.known) in unknown.complaint
    assert others.public["client"].split()[-1] in stranger.complaint
    assert plain.status == 2
    assert "--no-auth is for both, or for neither" in plain.complaint


@pytest.mark.parametrize("grant", ["", "read={elsewhere}", "write={top}"])
def test_a_key_that_may_not_read_what_is_sent_gets_nothing(
    star: Emulation, source: Path, tmp_path: Path, grant: str
) -> None:
    (tmp_path / "ours").mkdir()
    (tmp_path / "theirs").mkdir()
    keys, theirs = Keys(tmp_path / "ours", grant=f"read={source.parent}"), Keys(tmp_path / "theirs")
    options = keyed(star, keys)
    line = grant.format(elsewhere=tmp_path / "ours", top=tmp_path)
    with keys.authorized.open("a") as file:
        file.write(f"{line} {theirs.public['client']} of another\n")
    named = ("--from", star.address(SENDER))
    credentials = (*theirs.copy_options[:2], *keys.copy_options[2:])
    with sender(star, source, options=options, keyed=True) as sending:
        words = (*RECEIVE, "--into", str(tmp_path / "b"), "--once", "--quiet", *named, *credentials)
        (tmp_path / "b").mkdir()
        refusal = star.on("b", str(FARLINK), *words)
        # The other one is not disturbed.
        with receiver(star, "c", tmp_path / "c", *keys.copy_options, keyed=True) as receiving:
            assert receiving.end()[0] == 0
        status, record = sending.end()
        said = sending.complaints()
    assert (status, [each["name"] for each in record["cast"]["receivers"]]) == (0, ["c"])
    assert (tmp_path / "c" / source.name).read_bytes() == source.read_bytes()
    assert (refusal.status, list((tmp_path / "b").iterdir())) == (2, [])
    for told in (refusal.complaint, said):
        assert len(told.splitlines()) == 1, told
        assert f"the key {theirs.public['client']} may not read {source}" in told
        assert f'needs read="{source.parent}"' in told


def test_who_waits_for_a_session_in_vain_is_told_who_refused(
    star: Emulation, source: Path, tmp_path: Path
) -> None:
    (tmp_path / "open").mkdir()
    keys = Keys(tmp_path, grant=f"read={tmp_path / 'open'}")
    words = (*RECEIVE, "--into", "null:", "--quiet", "--wait", "6s", *keys.copy_options)
    with sender(star, source, options=keyed(star, keys), keyed=True):
        ended = star.on("b", str(FARLINK), *words)
    last = ended.stderr.splitlines()[-1]
    assert ended.status == 2
    assert f"could be joined within 6s: {star.address(SENDER)}:" in last, ended
    assert f"may not read {source}" in last


def test_who_waits_in_vain_for_a_sender_that_is_not_trusted_is_told_so(
    star: Emulation, source: Path, tmp_path: Path
) -> None:
    (tmp_path / "ours").mkdir()
    (tmp_path / "others").mkdir()
    keys, others = Keys(tmp_path / "ours"), Keys(tmp_path / "others")
    keyed(star, others)
    words = (*RECEIVE, "--into", "null:", "--quiet", "--wait", "6s")
    credentials = (*keys.copy_options[:2], *others.copy_options[2:])
    with sender(star, source, options=keyed(star, keys), keyed=True):
        ended = star.on("b", str(FARLINK), *words, *credentials)
    last = ended.stderr.splitlines()[-1]
    assert ended.status == 2
    assert f"could be joined within 6s: {star.address(SENDER)}" in last, ended
    assert str(others.known) in last


def test_a_refusal_is_said_after_a_session_as_before_the_first(
    star: Emulation, source: Path, tmp_path: Path
) -> None:
    (tmp_path / "open").mkdir()
    allowed = tmp_path / "open" / "allowed.bin"
    allowed.write_bytes(source.read_bytes())
    keys = Keys(tmp_path, grant=f"read={allowed.parent}")
    options = keyed(star, keys)
    words = (*RECEIVE, "--into", str(tmp_path / "b"), "--json", "--from", star.address(SENDER))
    with star.background("b", str(FARLINK), *words, *keys.copy_options) as process:
        receiving = Running(process=process)
        receiving.until("ready")
        with sender(star, allowed, options=options, keyed=True) as sending:
            assert receiving.until("schema")["outcome"] == "ok"
            assert sending.end()[0] == 0
        with sender(star, source, options=options, keyed=True):
            complaint = process.communicate(timeout=START_LIMIT_S)[1]
    assert (process.returncode, f"may not read {source}" in complaint) == (2, True), complaint


def test_what_is_piped_or_watched_must_be_readable_too(star: Emulation, source: Path, tmp_path: Path) -> None:
    keys = Keys(tmp_path, grant=f"read={source}")
    options = keyed(star, keys)
    (tmp_path / "feed").mkdir()
    words = (*RECEIVE, "--into", "null:", "--once", "--quiet", "--from", star.address(SENDER))
    sends = [str(FARLINK), *SEND, "--json", *options]
    for sent, needed in ((("--watch", str(tmp_path / "feed")), tmp_path / "feed"), (("-",), "/")):
        with star.background(SENDER, *sends, *sent) as process:
            running = Running(process=process)
            running.until("ready")
            refusal = star.on("b", str(FARLINK), *words, *keys.copy_options)
            kill(star, "cast send")
            running.wait()
        assert (refusal.status, f'needs read="{needed}"' in refusal.complaint) == (2, True), refusal


def test_a_receiver_whose_disk_is_full_alone_goes_without(star: Emulation, tmp_path: Path) -> None:
    large = tmp_path / "large.bin"
    large.write_bytes(bytes(8_000_000))
    # A /dev/shm of the host's own, of which all but little is taken.
    small = "/dev/shm/small"
    star.output("d", "sh", "-c", f"mkdir -p {small} && mount -t tmpfs -o size=2m none {small}")
    try:
        with (
            receivers(star, tmp_path, RECEIVERS[:2]) as others,
            receiver(star, "d", small) as full,
            sender(star, large, options=wait_for(3)) as sending,
        ):
            codes = [each.end()[0] for each in others]
            code, _ = full.end()
            status, record = sending.end()
            said = full.complaints()
    finally:
        star.on("d", "umount", small)
    assert (codes, code, status) == ([0, 0], 1, 1)
    assert "large.bin" in said
    assert "No space left" in said
    whole = {each["name"]: each["complete"] for each in record["cast"]["receivers"]}
    assert sorted(whole.values()) == [False, True, True]
    assert all((tmp_path / host / large.name).read_bytes() == large.read_bytes() for host in RECEIVERS[:2])
    assert leftovers(tmp_path) == []


def test_an_unknown_name_is_said(star: Emulation) -> None:
    words = (*RECEIVE, "--into", "null:", "--no-auth", "--from", "nosuch.invalid", "--once")
    ended = star.on("b", str(FARLINK), *words)
    assert (ended.status, "nosuch.invalid" in ended.complaint) == (2, True), ended


def test_keys_that_do_not_read_are_said_before_anybody_is_waited_for(tmp_path: Path) -> None:
    known, identity = tmp_path / "known", tmp_path / "identity"
    known.write_text("host and no key\n")
    assert farlink("keygen", "--identity", str(identity)).status == 0
    said = refused(*RECEIVE, "--into", "null:", "--identity", str(identity), "--known-hosts", str(known))
    assert f"{known}, line 1" in said


def test_cast_alone_shows_its_verbs() -> None:
    ended = farlink("cast")
    assert ended.status == 2
    assert "receive" in ended.stderr + ended.stdout
