"""Hosts and the link between them, as programs on the hosts see them."""

from __future__ import annotations

import contextlib
import ipaddress
import re
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from emulation import (
    FARLINK,
    ROOT,
    Emulation,
    farlink,
    next_line,
    refused,
    round_trips_ms,
    run,
    wait_until,
)

STREAM = str(ROOT / "tests" / "programs" / "stream.py")
# A ping that takes longer than this over what was asked is no busy machine but a fault.
SANITY_MS = 2000.0


def received(emulation: Emulation, *, length: int, ipv6: bool = False, seed: int = 1) -> tuple[str, str]:
    """What `a` sent to `b` and what `b` received: digest and length of each."""
    address = emulation.address("b", ipv6=ipv6)
    with emulation.background("b", sys.executable, STREAM, "receive", address) as receiver:
        assert receiver.stdout is not None
        port = next_line(receiver.stdout, receiver).strip()
        sent = emulation.output("a", sys.executable, STREAM, "send", address, port, str(length), str(seed))
        got = next_line(receiver.stdout, receiver)
    return sent.strip(), got.strip()


# A packet that wakes the emulator is believed to have come up to 0.05 ms earlier, once each way: what an idle
# processor takes to wake is not the connection's.
CREDIT_MS = 0.1


def fastest_ms(emulation: Emulation, source: str, address: str, count: int = 3) -> float:
    """The shortest of `count` round trips; none may be lost or take absurdly long."""
    ended = emulation.ping(source, address, "-c", str(count), "-i", "0.01", "-W", "5")
    assert ended.status == 0, ended
    found = re.search(r"= ([\d.]+)/[\d.]+/([\d.]+)/", ended.stdout)
    assert found, ended
    assert float(found[2]) < float(found[1]) + SANITY_MS
    return float(found[1])


def link_of(shown: dict[str, Any], source: str, destination: str) -> dict[str, Any]:
    """One direction of what `farlink link --json` shows."""
    found: dict[str, Any] = next(
        each for each in shown["links"] if (each["from"], each["to"]) == (source, destination)
    )
    return found


def test_a_command_runs_on_host_a_with_the_addresses_in_its_environment() -> None:
    ended = farlink(
        "emulate", "--rate", "1gbit", "--rtt", "1ms", "--",
        "sh", "-c", "hostname; echo $FARLINK_A $FARLINK_B $FARLINK_A6 $FARLINK_B6; ping -n -c 1 $FARLINK_B",
    )  # fmt: skip
    assert ended.status == 0, ended
    name, addresses, *_ = ended.stdout.splitlines()
    assert name == "a"
    versions = [ipaddress.ip_address(each).version for each in addresses.split()]
    assert versions == [4, 4, 6, 6]


@pytest.mark.parametrize("status", [0, 1, 7, 130])
def test_the_exit_code_of_the_command_is_passed_on(status: int) -> None:
    assert farlink("emulate", "--rtt", "1ms", "--", "sh", "-c", f"exit {status}").status == status


def test_the_command_has_standard_input_and_output_as_if_run_directly() -> None:
    text = "one\ntwo\n"
    ended = farlink("emulate", "--rtt", "1ms", "--", "sh", "-c", "cat; echo aside >&2", stdin=text)
    assert (ended.stdout, ended.stderr, ended.status) == (text, "aside\n", 0)


def test_a_command_that_is_not_there_is_one_clear_line() -> None:
    name = f"no-such-{uuid.uuid4().hex}"
    ended = farlink("emulate", "--rtt", "1ms", "--", name)
    # As env(1) and the shells have it.
    assert ended.status == 127
    assert name in ended.complaint


def test_on_passes_input_output_and_exit_code(pair: Emulation) -> None:
    ended = pair.on("b", "sh", "-c", "cat; echo aside >&2; exit 9", stdin="through\n")
    assert (ended.stdout, ended.stderr, ended.status) == ("through\n", "aside\n", 9)


def test_on_without_a_command_is_a_shell(pair: Emulation) -> None:
    ended = run([str(FARLINK), "on", f"{pair.name}/b"], stdin="hostname; exit 5\n", env={"SHELL": "/bin/sh"})
    assert (ended.stdout, ended.status) == ("b\n", 5)


def test_a_host_has_its_own_name(pair: Emulation) -> None:
    assert [pair.output(host, "hostname").strip() for host in "ab"] == ["a", "b"]


@pytest.mark.parametrize("host", ["a", "b"])
@pytest.mark.parametrize("name", ["a", "b"])
@pytest.mark.parametrize("database", ["ahostsv4", "ahostsv6"])
def test_hosts_know_each_other_by_name(pair: Emulation, host: str, name: str, database: str) -> None:
    address = pair.output(host, "getent", database, name).split()[0]
    assert address == pair.address(name, ipv6=database == "ahostsv6")


def test_a_host_has_its_own_shared_memory(pair: Emulation) -> None:
    name = f"/dev/shm/{uuid.uuid4().hex}"
    pair.output("a", "touch", name)
    assert pair.on("a", "test", "-e", name).status == 0
    assert pair.on("b", "test", "-e", name).status == 1
    assert not Path(name).exists()


def test_a_host_has_its_loopback(pair: Emulation) -> None:
    for address in ("127.0.0.1", "::1"):
        assert pair.ping("a", address, "-c", "1", "-W", "5").status == 0


@pytest.mark.parametrize("ipv6", [False, True], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("rtt_ms", [0.4, 11.8, 91.6, 366])
def test_a_round_trip_takes_at_least_the_rtt(rtt_ms: float, ipv6: bool) -> None:
    with Emulation(options=["--rate", "10gbit", "--rtt", f"{rtt_ms}ms"]) as emulation:
        for source, destination in ("ab", "ba"):
            address = emulation.address(destination, ipv6=ipv6)
            assert fastest_ms(emulation, source, address) >= rtt_ms - CREDIT_MS


def test_the_rtt_changes_while_it_runs() -> None:
    with Emulation(options=["--rtt", "1ms"]) as emulation:
        for rtt_ms in (150.0, 20.0, 45.6):
            emulation.change("--rtt", f"{rtt_ms}ms")
            assert emulation.show()["rtt_s"] == pytest.approx(rtt_ms / 1e3)
            assert fastest_ms(emulation, "a", emulation.address("b")) >= rtt_ms - CREDIT_MS


def test_a_stream_takes_at_least_its_time_at_the_rate() -> None:
    length = 2_500_000
    with Emulation(options=["--rate", "20mbit", "--rtt", "1ms"]) as emulation:
        before = time.monotonic()
        sent, got = received(emulation, length=length)
        took = time.monotonic() - before
    assert sent == got
    assert took >= length * 8 / 20e6


def test_what_other_traffic_takes_of_the_rate_is_not_left_for_a_stream() -> None:
    length, rate, background = 3_000_000, 40e6, 20e6
    for _ in range(3):
        with Emulation(options=["--rate", "40mbit", "--rtt", "1ms", "--background", "20mbit"]) as emulation:
            before = time.monotonic()
            sent, got = received(emulation, length=length)
            took = time.monotonic() - before
            shown = emulation.show()
        assert sent == got
        assert shown["background_bps"] == background
        there = link_of(shown, "a", "b")
        # What of the other traffic found no place, or came after the stream's last byte had taken its own,
        # was no hindrance: packets of the MTU in Ethernet's 38 bytes, and a queue's worth.
        unhindered = there["background_dropped"]["queue"] * (9000 + 38) * 8 / background
        unhindered += there["queue_max_bytes"] * 8 / rate
        least = length * 8 / (rate - background) - unhindered
        assert took >= least
        # Of a machine that stood still much comes at once, and finds no place.
        if least > 1.5 * length * 8 / rate:
            return
    pytest.fail("it would take as long without other traffic")


def test_other_traffic_begins_and_ends_while_it_runs() -> None:
    def background(emulation: Emulation) -> tuple[int, int]:
        shown = emulation.show()
        return shown["background_bps"], link_of(shown, "a", "b")["background_packets"]

    def has_grown(emulation: Emulation, packets: int) -> bool:
        return background(emulation)[1] > packets

    with Emulation(options=["--rate", "100mbit", "--rtt", "1ms", "--background", "50mbit"]) as emulation:
        wait_until(lambda: has_grown(emulation, 0))
        emulation.change("--background", "none")
        rate, packets = background(emulation)
        assert rate == 0
        # 50 Mb/s are 7 packets in 10 ms.
        assert emulation.ping("a", emulation.address("b"), "-c", "3", "-i", "0.01", "-W", "5").status == 0
        assert background(emulation) == (0, packets)
        emulation.change("--background", "50mbit,on-off:10ms")
        assert background(emulation)[0] == 25_000_000
        wait_until(lambda: has_grown(emulation, packets))


def test_other_traffic_shares_the_queue_and_what_finds_no_place_is_counted() -> None:
    options = ["--rate", "40mbit", "--rtt", "1ms", "--queue", "30kB", "--background", "20mbit,on-off:50ms"]
    with Emulation(options=options) as emulation:
        sent, got = received(emulation, length=1_000_000)
        shown = emulation.show()
    assert sent == got
    # Mean of a load that is there half of the time.
    assert shown["background_bps"] == 10_000_000
    there = link_of(shown, "a", "b")
    assert there["background_packets"] > 0
    assert there["dropped"]["queue"] > 0, there
    assert there["queue_max_bytes"] <= 30_000


def test_jitter_makes_round_trips_shorter_and_longer_and_keeps_their_order() -> None:
    with Emulation(options=["--rtt", "20ms", "--jitter", "5ms"]) as emulation:
        ended = emulation.ping("a", emulation.address("b"), "-c", "30", "-i", "0.002", "-W", "5")
    found = round_trips_ms(ended.stdout)
    assert len(found) == 30
    assert 10 - CREDIT_MS <= min(found) < 19
    numbers = [int(each) for each in re.findall(r"icmp_seq=(\d+)", ended.stdout)]
    assert numbers == sorted(numbers)


def test_a_cut_connection_carries_nothing_until_it_is_restored() -> None:
    with Emulation(options=["--rtt", "1ms"]) as emulation:
        address = emulation.address("b")
        emulation.change("--cut")
        assert emulation.ping("a", address, "-c", "1", "-W", "1").status == 1
        assert link_of(emulation.show(), "a", "b")["dropped"]["cut"] >= 1
        emulation.change("--restore")
        assert fastest_ms(emulation, "a", address) >= 1 - CREDIT_MS


def test_losing_everything_loses_everything_until_it_is_taken_back() -> None:
    with Emulation(options=["--rtt", "1ms", "--loss", "100%"]) as emulation:
        address = emulation.address("b")
        assert emulation.ping("a", address, "-c", "1", "-W", "1").status == 1
        assert link_of(emulation.show(), "a", "b")["dropped"]["loss"] >= 1
        emulation.change("--loss", "0%")
        assert fastest_ms(emulation, "a", address) >= 1 - CREDIT_MS


def test_periodic_loss_takes_every_nth_segment() -> None:
    with Emulation(options=["--rtt", "1ms", "--loss", "every:5"]) as emulation:
        emulation.ping("a", emulation.address("b"), "-c", "40", "-i", "0.002", "-W", "1")
        there = link_of(emulation.show(), "a", "b")
    assert there["segments"] >= 40
    assert abs(there["dropped"]["loss"] - there["segments"] / 5) <= 1


def test_duplicates_arrive_twice() -> None:
    with Emulation(options=["--rtt", "1ms", "--duplicate", "100%"]) as emulation:
        ended = emulation.ping("a", emulation.address("b"), "-c", "3", "-i", "0.01", "-W", "5")
        assert "DUP!" in ended.stdout
        assert link_of(emulation.show(), "a", "b")["duplicated"] >= 3


@pytest.mark.parametrize("ipv6", [False, True], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("mtu", [1500, 9000])
def test_a_stream_arrives_whole_and_in_order_whatever_the_link_does(mtu: int, ipv6: bool) -> None:
    options = ["--rate", "1gbit", "--rtt", "4ms", "--mtu", str(mtu), "--seed", "3"]
    options += ["--loss", "0.5%", "--reorder", "1%", "--duplicate", "1%", "--corrupt", "0.5%"]
    with Emulation(options=options) as emulation:
        sent, got = received(emulation, length=8_000_003, ipv6=ipv6)
        there = link_of(emulation.show(), "a", "b")
    assert sent == got
    for what in ("reordered", "duplicated", "corrupted"):
        assert there[what] > 0, there
    assert there["dropped"]["loss"] > 0, there


@pytest.mark.parametrize("ipv6", [False, True], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("mtu", [1500, 9000])
def test_a_sound_link_carries_super_packets_and_loses_none_on_the_wire(mtu: int, ipv6: bool) -> None:
    options = ["--rate", "10gbit", "--rtt", "2ms", "--mtu", str(mtu)]
    with Emulation(options=options) as emulation:
        sent, got = received(emulation, length=64_000_000, ipv6=ipv6)
        there = link_of(emulation.show(), "a", "b")
    assert sent == got
    assert there["segments"] > there["packets"], "nothing crossed as a super-packet"
    assert (there["dropped"]["loss"], there["dropped"]["cut"], there["corrupted"]) == (0, 0, 0)


@pytest.mark.parametrize("ipv6", [False, True], ids=["IPv4", "IPv6"])
def test_the_receiving_kernel_sees_the_damage(ipv6: bool) -> None:
    with Emulation(options=["--rate", "1gbit", "--rtt", "1ms", "--corrupt", "2%"]) as emulation:
        sent, got = received(emulation, length=4_000_000, ipv6=ipv6)
        assert sent == got
        names, values = re.findall(
            r"^Tcp: (.*)$", emulation.output("b", "cat", "/proc/net/snmp"), re.MULTILINE
        )
    counters = dict(zip(names.split(), map(int, values.split()), strict=True))
    assert counters["InCsumErrors"] > 0


@pytest.mark.parametrize(("ipv6", "headers"), [(False, 28), (True, 48)], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("mtu", [1500, 9000])
def test_the_largest_packet_is_the_mtu(mtu: int, ipv6: bool, headers: int) -> None:
    with Emulation(options=["--rtt", "1ms", "--mtu", str(mtu)]) as emulation:
        address = emulation.address("b", ipv6=ipv6)
        options = ("-c", "1", "-W", "5", "-M", "do", "-s")
        assert emulation.ping("a", address, *options, str(mtu - headers)).status == 0
        assert emulation.ping("a", address, *options, str(mtu - headers + 1)).status == 1


def test_the_hosts_default_congestion_control_is_the_one_asked_for() -> None:
    program = (
        "import socket, sys\n"
        "with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as peer:\n"
        "    name = peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)\n"
        "    print(name.rstrip(bytes(1)).decode())\n"
    )
    with Emulation(options=["--rtt", "1ms", "--congestion", "reno"]) as emulation:
        assert emulation.show()["congestion"] == "reno"
        for ipv6 in (False, True):
            address = emulation.address("b", ipv6=ipv6)
            with emulation.background("b", sys.executable, STREAM, "receive", address) as receiver:
                assert receiver.stdout is not None
                port = next_line(receiver.stdout, receiver).strip()
                used = emulation.output("a", sys.executable, "-c", program, address, port)
            assert used.strip() == "reno"


def test_a_star_joins_every_pair_and_one_pair_can_be_cut() -> None:
    with Emulation(options=["--hosts", "4", "--rtt", "8ms"]) as emulation:
        assert [each["name"] for each in emulation.started["hosts"]] == ["a", "b", "c", "d"]
        for source, destination in ("ab", "bc", "cd", "da", "ac", "bd"):
            assert fastest_ms(emulation, source, emulation.address(destination), count=1) >= 8 - CREDIT_MS
        emulation.change("--cut", target="/a..b")
        assert emulation.ping("a", emulation.address("b"), "-c", "1", "-W", "1").status == 1
        assert emulation.ping("a", emulation.address("c"), "-c", "1", "-W", "5").status == 0
        emulation.change("--restore", target="/a..b")
        assert emulation.ping("a", emulation.address("b"), "-c", "1", "-W", "5").status == 0


def test_one_access_link_changes_alone() -> None:
    with Emulation(options=["--hosts", "3", "--rtt", "4ms"]) as emulation:
        emulation.change("--rate", "1gbit", "--loss", "5%", target="/c")
        for each in emulation.show()["links"]:
            changed = "c" in (each["from"], each["to"])
            assert (each["rate_bps"], each["loss"]) == ((1e9, 0.05) if changed else (1e10, 0.0))
        emulation.change("--loss", "100%", target="/c")
        assert emulation.ping("a", emulation.address("c"), "-c", "1", "-W", "1").status == 1
        assert emulation.ping("a", emulation.address("b"), "-c", "1", "-W", "5").status == 0


def test_as_many_hosts_as_there_may_be_reach_each_other() -> None:
    with Emulation(options=["--hosts", "32", "--rate", "100mbit", "--rtt", "4ms"]) as emulation:
        names = [each["name"] for each in emulation.started["hosts"]]
        assert names == [*(chr(ord("a") + i) for i in range(26)), "aa", "ab", "ac", "ad", "ae", "af"]
        assert fastest_ms(emulation, "a", emulation.address("af"), count=1) >= 4 - CREDIT_MS
        assert fastest_ms(emulation, "af", emulation.address("z", ipv6=True), count=1) >= 4 - CREDIT_MS
        assert emulation.output("af", "hostname").strip() == "af"


def test_the_queue_changes_while_it_runs_and_as_a_time_it_follows_the_rate() -> None:
    with Emulation(options=["--rate", "1gbit", "--rtt", "1ms"]) as emulation:
        assert emulation.show()["queue_bytes"] == 6_250_000
        emulation.change("--queue", "20ms")
        assert emulation.show()["queue_bytes"] == 2_500_000
        emulation.change("--rate", "100mbit")
        assert emulation.show()["queue_bytes"] == 250_000
        emulation.change("--queue", "9038B")
        emulation.change("--rate", "10mbit")
        assert emulation.show()["queue_bytes"] == 9038
        # A queue of one packet holds one, whatever is sent at once.
        emulation.on("a", "ping", "-n", "-c", "20", "-l", "20", "-s", "8000", "-W", "1", "b")
        there = link_of(emulation.show(), "a", "b")
        assert there["dropped"]["queue"] > 0, there


def test_two_emulations_do_not_meet() -> None:
    with Emulation(options=["--rtt", "1ms"]) as one, Emulation(options=["--rtt", "1ms"]) as other:
        assert one.name != other.name
        assert one.ping("a", one.address("b"), "-c", "3", "-i", "0.01", "-W", "5").status == 0
        for emulation, echoes in ((one, 3), (other, 0)):
            snmp = emulation.output("b", "cat", "/proc/net/snmp")
            names, values = re.findall(r"^Icmp: (.*)$", snmp, re.MULTILINE)
            counters = dict(zip(names.split(), map(int, values.split()), strict=True))
            assert counters["InEchos"] == echoes


def test_what_it_shows_is_what_was_asked(pair: Emulation) -> None:
    shown = pair.show()
    assert shown["name"] == pair.name
    assert shown["seed"] == 7
    assert (shown["rate_bps"], shown["rtt_s"], shown["loss"]) == (1_000_000_000, 0.01, 0.0)
    assert (shown["framing"], shown["mtu"], shown["background_bps"]) == ("ethernet", 9000, 0)
    # 50 ms at the rate, unless asked otherwise.
    assert shown["queue_bytes"] == 6_250_000
    assert shown["goodput_bps"] == pytest.approx(1e9 * (9000 - 52) / (9000 + 38), rel=1e-6)
    assert {(each["from"], each["to"]) for each in shown["links"]} >= {("a", "b"), ("b", "a")}
    for each in shown["hosts"]:
        assert ipaddress.ip_address(each["ipv4"]) in ipaddress.ip_network("198.18.0.0/15")
        assert ipaddress.ip_address(each["ipv6"]) in ipaddress.ip_network("2001:2::/48")
    assert shown.keys() == pair.started.keys()


def test_a_host_can_ask_for_its_own_connection(pair: Emulation) -> None:
    inside = pair.output("a", str(FARLINK), "link", "--json")
    assert f'"name":"{pair.name}"' in inside.replace(": ", ":")


def settings() -> dict[str, str]:
    """What this machine's kernel is set to, of what an emulation might want otherwise."""
    found = {}
    for directory in ("net/core", "net/ipv4", "vm"):
        for path in Path("/proc/sys", directory).iterdir():
            # Whoever loads a congestion control changes the list of them; some files can only be written to.
            if path.is_file() and "congestion" not in path.name:
                with contextlib.suppress(OSError):
                    found[str(path)] = path.read_text()
    return found


def test_hosts_have_buffers_for_a_full_connection_and_this_machine_stays_as_it_is() -> None:
    before = settings()
    with Emulation(options=["--prefault", "64MiB"]) as emulation:
        for name in ("tcp_rmem", "tcp_wmem"):
            for host in "ab":
                most = int(emulation.output(host, "cat", f"/proc/sys/net/ipv4/{name}").split()[2])
                # 10 Gb/s for 366 ms, and the kernel's own structures as much again.
                assert most >= 2 * 457_500_000, name
        assert settings() == before
        shown = emulation.show()
        assert shown["asked"]["prefault"] == "64MiB"
        assert not [note for note in shown["notes"] if "prefault" in note]
        assert emulation.ping("a", emulation.address("b"), "-c", "1", "-W", "5").status == 0


def test_sonet_is_the_payload_rate_of_an_oc_192() -> None:
    with Emulation(options=["--framing", "sonet", "--rtt", "1ms"]) as emulation:
        shown = emulation.show()
    assert (shown["framing"], shown["rate_bps"]) == ("sonet", 9_584_640_000)
    assert shown["goodput_bps"] == pytest.approx(9.58464e9 * (9000 - 52) / (9000 + 9), rel=1e-6)


def test_without_framing_packets_alone_take_the_rate() -> None:
    with Emulation(options=["--framing", "none", "--rate", "5gbit", "--rtt", "1ms"]) as emulation:
        shown = emulation.show()
        assert (shown["framing"], shown["rate_bps"]) == ("none", 5_000_000_000)
        assert shown["goodput_bps"] == pytest.approx(5e9 * (9000 - 52) / 9000, rel=1e-6)
        emulation.change("--rate", "3gbit")
        shown = emulation.show()
    assert shown["goodput_bps"] == pytest.approx(3e9 * (9000 - 52) / 9000, rel=1e-6)


def test_sonet_takes_its_own_rate_and_no_other() -> None:
    said = farlink("emulate", "--framing", "sonet", "--rate", "9.58464gbit", "--", "true")
    assert (said.status, said.stdout) == (0, ""), said
    for rate in ("9.58463gbit", "10gbit", "2.5gbit"):
        assert "9.58464gbit" in refused("emulate", "--framing", "sonet", "--rate", rate, "--", "true")


def test_a_name_that_is_taken_is_refused_and_its_owner_is_left_alone(pair: Emulation) -> None:
    assert pair.name in refused("emulate", "--name", pair.name, "--rtt", "1ms")
    assert fastest_ms(pair, "a", pair.address("b")) >= 10 - CREDIT_MS


def test_an_emulated_host_emulates_no_others(pair: Emulation) -> None:
    ended = pair.on("a", str(FARLINK), "emulate", "--rtt", "1ms", "--", "true")
    assert (ended.status, len(ended.stderr.splitlines())) == (2, 1), ended
    assert "outside of it" in ended.stderr


def test_an_ignored_hangup_ends_nothing() -> None:
    # As nohup(1) has it. What it would end dies of it at once; else the pause is all that this takes.
    command = "trap '' HUP; exec \"$0\" emulate -- sh -c 'kill -HUP $PPID; sleep 0.3; echo stayed'"
    ended = run(["sh", "-c", command, str(FARLINK)])
    assert (ended.status, ended.stdout) == (0, "stayed\n"), ended


# As fast as it can: packets come and go all the time, and few at once.
STEADY = """
import socket, sys, time
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
while True:
    out.sendto(bytes(1400), (sys.argv[1], 9))
    time.sleep(0.00003)
"""


def test_a_link_under_load_is_shown_and_changed_while_that_goes_on() -> None:
    with Emulation(options=["--rate", "1gbit", "--rtt", "100ms"]) as emulation:
        sending = emulation.background("a", sys.executable, "-c", STEADY, emulation.address("b"))
        with sending as process:
            wait_until(lambda: emulation.show()["links"][0]["packets"] > 5_000)
            assert emulation.change("--rtt", "60ms").status == 0
            assert emulation.show()["rtt_s"] == 0.06
            assert process.poll() is None


# Sends more than passes, and is killed with it.
UNDELIVERED = """
import socket, sys
if sys.argv[1] == "receive":
    listener = socket.create_server(("0.0.0.0", 5000))
    print(flush=True)
    listener.accept()[0].recv(1)
    sys.stdin.read()
else:
    out = socket.create_connection((sys.argv[2], 5000))
    out.setblocking(False)
    while True:
        try:
            out.send(bytes(1 << 20))
        except BlockingIOError:
            print(flush=True)
            sys.stdin.read()
"""


def orphans() -> int:
    """TCP connections of this machine that no process has any more, and that still have something to say."""
    found = re.search(r"^TCP: .* orphan (\d+)", Path("/proc/net/sockstat").read_text(), re.MULTILINE)
    assert found
    return int(found[1])


@pytest.mark.alone
def test_no_connection_outlives_its_emulation() -> None:
    before = orphans()
    with Emulation(options=["--rate", "100mbit", "--rtt", "50ms"]) as emulation:
        words = [sys.executable, "-c", UNDELIVERED]
        with (
            emulation.background("b", *words, "receive") as receiver,
            emulation.background("a", *words, "send", emulation.address("b")) as sender,
        ):
            for process in (receiver, sender):
                assert process.stdout is not None
                next_line(process.stdout, process)
    wait_until(lambda: orphans() <= before)
