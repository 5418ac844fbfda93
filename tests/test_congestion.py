"""Congestion controls that the kernel lacks: listed, loaded on demand, gone afterwards, and as they claim."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import tempfile
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest

from emulation import FARLINK, Emulation, farlink, run, wait_until
from test_memory import moved, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.alone

OURS = ("htcp", "scalable")
# H-TCP's arithmetic, as in the kernel's tcp_htcp.c.
BETA_MIN, BETA_MAX = 64 / 128, 102 / 128
# After recovery, until the window stands.
SETTLED_S = 0.03
# A sample is taken each 10 ms.
SEEN_S = 0.03


def listed() -> dict[str, dict[str, str]]:
    """What `farlink congestion` lists, by name."""
    return {entry["name"]: entry for entry in json.loads(farlink("congestion", "--json").stdout)}


def needs_loading(name: str) -> None:
    """Skips where the kernel has `name` itself, or nobody may load ours."""
    if listed()[name]["state"] != "loadable":
        pytest.skip(f"{name}: {listed()[name]}")


def wait_until_gone(name: str) -> None:
    """The kernel unloads `name` with the last process that has it, and that may have ended a moment ago."""
    wait_until(lambda: listed()[name]["state"] == "loadable")


def test_the_kernels_and_ours_are_listed() -> None:
    entries = listed()
    assert entries["reno"] == {"name": "reno", "state": "available", "origin": "kernel"}
    assert entries.keys() >= set(OURS)
    text = farlink("congestion").stdout
    assert [line.split()[0] for line in text.splitlines()] == list(entries)


def test_an_unknown_one_is_refused_with_those_that_there_are() -> None:
    ended = farlink("emulate", "--congestion", "vegan", "--", "true")
    assert ended.status == 2
    assert ended.stderr.startswith('farlink: there is no congestion control "vegan": available are ')
    assert "cubic" in ended.stderr


def test_an_ordinary_user_is_told_what_loading_takes() -> None:
    for name in OURS:
        needs_loading(name)
    directory = Path(tempfile.mkdtemp(prefix="ordinary-user-"))
    try:
        directory.chmod(0o755)
        shutil.copy2(FARLINK, directory / "farlink")
        become = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        ended = run([*become, str(directory / "farlink"), "congestion", "--json"])
    finally:
        shutil.rmtree(directory)
    entries = {entry["name"]: entry for entry in json.loads(ended.stdout)}
    assert entries["reno"]["state"] == "available"
    allowed = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control").read_text().split()
    assert {name for name, each in entries.items() if each["state"] == "available"} == set(allowed)
    for name in OURS:
        assert entries[name]["state"] == "unavailable"
        assert "CAP_BPF" in entries[name]["reason"]
        assert "origin" not in entries[name]


def test_a_kernel_that_is_too_old_for_a_program_is_named_with_what_it_needs() -> None:
    for name in (*OURS, "circuit", "bbr_tso", "suss"):
        needs_loading(name)
    # The kernel says to whom this starts that it is 2.6.
    ended = run(["setarch", "--uname-2.6", str(FARLINK), "congestion", "--json"])
    entries = {entry["name"]: entry for entry in json.loads(ended.stdout)}
    for name, least in (
        ("bbr_tso", "6.10"),
        ("circuit", "6.10"),
        ("htcp", "6.4"),
        ("scalable", "6.4"),
        ("suss", "6.10"),
    ):
        assert entries[name]["state"] == "unavailable"
        assert entries[name]["reason"].startswith(f"it needs Linux {least} or later, and this is 2.6.")


@pytest.fixture(scope="module")
def lossy() -> Iterator[Emulation]:
    """A connection on which every 3,000th segment is lost, far below its rate, and segments travel singly."""
    # An RTT at which H-TCP's scaling by whole eighths does not depend on a millisecond more.
    options = ["--rate", "1gbit", "--rtt", "98ms", "--mtu", "1500", "--loss", "every:3000"]
    with Emulation(options=options) as one, serving(one):
        for host in ("a", "b"):
            (device,) = set(one.output(host, "ls", "/sys/class/net").split()) - {"lo"}
            one.output(host, "ip", "link", "set", "dev", device, "gso_max_segs", "1")
        yield one


@pytest.mark.parametrize("name", OURS)
def test_it_is_loaded_for_a_transfer_and_gone_afterwards(lossy: Emulation, name: str) -> None:
    needs_loading(name)
    record = moved(lossy, "--bytes", "1MiB", "--congestion", name)
    assert (record["congestion"], record["congestion_origin"]) == (name, "bpf")
    wait_until_gone(name)


def test_a_killed_transfer_leaves_no_program_behind(lossy: Emulation) -> None:
    needs_loading("scalable")
    command = [str(FARLINK), "memory", "b", "--seconds", "60", "--congestion", "scalable"]

    def is_in_use() -> bool:
        return " scalable " in lossy.output("a", "ss", "--tcp", "--all", "--numeric", "--info")

    with lossy.background("a", *command) as started:
        # Its name goes as soon as the connections have it.
        wait_until(is_in_use)
        pid = int(run(["pgrep", "--newest", "--full", "memory b --seconds 60"]).stdout)
        os.kill(pid, signal.SIGKILL)
        started.wait()
    # What was written is sent to its end.
    wait_until(lambda: not is_in_use())
    wait_until_gone("scalable")
    # And a later start has it again.
    assert moved(lossy, "--bytes", "1MiB", "--congestion", "scalable")["congestion_origin"] == "bpf"


@pytest.mark.parametrize(
    ("options", "chosen", "reason"),
    [
        ((), "cubic", "the round trip of "),
        (("--reverse",), "cubic", "the round trip of "),
        (("--buffer", "1MiB"), "cubic", "the buffer bounds the window"),
    ],
)
def test_the_sender_chooses_where_that_is_asked(
    lossy: Emulation, options: tuple[str, ...], chosen: str, reason: str
) -> None:
    record = moved(lossy, "--bytes", "1MiB", "--congestion", "auto", *options)
    assert (record["congestion"], record["congestion_origin"]) == (chosen, "kernel")
    assert record["congestion_reason"].startswith(reason)
    assert record["congestion_chosen"]


@pytest.mark.parametrize("options", [["--congestion", "cubic"], ["--congestion", "reno"], []])
def test_a_server_that_sends_memory_has_what_its_route_and_its_host_give(options: list[str]) -> None:
    with Emulation(options=["--rtt", "20ms", *options]) as one, serving(one):
        run([*one.command("b"), "sysctl", "-qw", "net.ipv4.tcp_congestion_control=reno"])
        record = moved(one, "--bytes", "1MiB", "--reverse")
        assert record["congestion"] == (options[1] if options else "reno")
        assert "congestion_chosen" not in record


def test_over_a_long_round_trip_the_sender_chooses_what_does_not_stop_at_a_loss() -> None:
    with Emulation(options=["--rtt", "300ms"]) as one, serving(one):
        record = moved(one, "--bytes", "1MiB", "--congestion", "auto")
    assert record["congestion"] in ("bbr", "htcp")
    # What it was measured to be.
    found = re.search(r"round trip of ([\d.]+) ?ms", record["congestion_reason"])
    assert found, record["congestion_reason"]
    assert 300 <= float(found[1]) < 400


def test_many_connections_with_bbr_tso_send_larger_pieces() -> None:
    needs_loading("bbr_tso")
    sent = {}
    # Each of 16 has 4.9 KB in a millisecond, which are 3 segments, and 13 in 4.
    options = ["--rate", "622mbit", "--rtt", "96ms", "--mtu", "1500"]
    with Emulation(options=options) as one, serving(one):
        for name in ("bbr", "bbr_tso"):
            before = one.show()["links"][0]
            record = moved(one, "--seconds", "6", "--congestion", name, "--streams", "16")
            after = one.show()["links"][0]
            assert record["congestion"] == name
            counted = {key: after[key] - before[key] for key in ("segments", "packets")}
            sent[name] = counted["segments"] / counted["packets"]
    assert sent["bbr_tso"] > 1.5 * sent["bbr"]


def test_slow_start_grows_by_four_with_suss() -> None:
    needs_loading("suss")
    most: dict[str, float] = {}
    with Emulation(options=["--rate", "1gbit", "--rtt", "200ms", "--mtu", "1500"]) as one, serving(one):
        # A sender that is held up shows delays of its own, at which it does not: one that did is enough.
        for name in ("cubic", "suss", "suss", "suss"):
            if most.get(name, 0) > 3:
                break
            record = moved(one, "--bytes", "16MiB", "--congestion", name, "--interval", "20ms")
            assert record["congestion"] == name
            # What waits for 8 ms is taken for a queue.
            if record["emulator"]["late_max_s"] > record["rtt_s"] / 50:
                pytest.skip(f"the machine did not keep up: {record['emulator']}")
            (trace,) = record["tcp"]
            windows = list(zip(trace["t_s"], trace["cwnd_bytes"], strict=True))
            # From one round to the next: of samples that are a round trip apart, before the path is full.
            grew = max(
                later / window
                for t, window in windows
                for until, later in windows
                if 0 <= until - t <= record["rtt_s"] and later < 4 << 20
            )
            most[name] = max(grew, most.get(name, 0))
    assert most["cubic"] < 3 < most["suss"] < 5


def test_a_copy_over_a_long_path_that_is_not_known_begins_with_suss_and_nothing_of_it_stays() -> None:
    needs_loading("suss")
    if Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip() not in {"cubic", "bbr"}:
        pytest.skip("this machine's administrator has chosen another")
    with Emulation(options=["--rate", "1gbit", "--rtt", "200ms"]) as one, serving(one, "--no-auth"):
        command = [
            str(FARLINK),
            "copy",
            "/dev/zero",
            "farlink://b/dev/null",
            "--length",
            "20GiB",
            "--no-auth",
        ]
        with one.background("a", *command) as started:
            wait_until(lambda: listed()["suss"]["state"] == "available")
            (pid,) = run(
                ["pgrep", "--newest", "--full", "copy /dev/zero farlink://b/dev/null"]
            ).stdout.split()
            os.kill(int(pid), signal.SIGKILL)
            started.wait()
    wait_until_gone("suss")


def test_hosts_may_default_to_it_and_two_may_share_it() -> None:
    needs_loading("htcp")
    with Emulation(options=["--congestion", "htcp"]) as one, serving(one):
        assert listed()["htcp"]["origin"] == "bpf"
        with Emulation(options=["--congestion", "htcp"]):
            pass
        # The second found it there and took nothing away.
        assert listed()["htcp"]["state"] == "available"
        assert moved(one, "--bytes", "1MiB")["congestion"] == "htcp"
    wait_until_gone("htcp")


def test_what_is_asked_for_is_not_undone_by_a_route_with_another() -> None:
    with Emulation(options=["--congestion", "reno"]) as one, serving(one):
        assert moved(one, "--bytes", "1MiB")["congestion"] == "reno"
        assert moved(one, "--bytes", "1MiB", "--congestion", "cubic")["congestion"] == "cubic"
        if listed().get("circuit", {}).get("state") == "loadable":
            assert moved(one, "--bytes", "1MiB", "--circuit", "10gbit")["congestion"] == "circuit"


def test_nothing_stays_loaded_after_sigkill() -> None:
    needs_loading("scalable")
    with Emulation(options=["--congestion", "scalable"]) as emulation:
        os.kill(emulation.process.pid, signal.SIGKILL)
        emulation.process.wait()
        # The kernel unloads it as it ends the emulation's processes, moments later.
        with Emulation(options=["--congestion", "scalable"]) as other:
            assert other.show()["congestion"] == "scalable"
    wait_until_gone("scalable")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    """From one loss to the next: windows in segments, times in seconds."""

    before: int
    """The window when the loss was noticed."""
    samples: list[tuple[float, int]]
    """Time since the connection had recovered, and the window."""

    @property
    def share(self) -> float:
        """What the loss left of the window."""
        return self.samples[0][1] / self.before

    @property
    def growth(self) -> int:
        """Segments that it grew by."""
        return self.samples[-1][1] - self.samples[0][1]


def cycles(record: dict[str, Any]) -> list[Cycle]:
    """Those after slow start that are whole; skips the test where round trips grew by a fifth or more."""
    if record["emulator"]["late_max_s"] > record["rtt_s"] / 5:
        pytest.skip(f"the machine did not keep up: {record['emulator']}")
    (trace,) = record["tcp"]
    rows = [
        (t, window // (record["mtu"] - 52), again)
        for t, window, again in zip(trace["t_s"], trace["cwnd_bytes"], trace["retransmits"], strict=True)
    ]
    losses = [at for at in range(1, len(rows)) if rows[at][2] > rows[at - 1][2]]
    found = []
    last = -1.0
    for at, following in pairwise(losses):
        # What is sent again while an earlier loss is mended finds the window on its way down.
        alone, last = rows[at][0] - last > 2 * record["rtt_s"], rows[at][0]
        # Where the thread that samples was held up, what it saw last was not what there was.
        if rows[at][0] - rows[at - 1][0] > SEEN_S:
            continue
        # In slow start it doubles in a round trip: the last sample is not what it was at the loss.
        earlier = [window for t, window, _ in rows[:at] if t < rows[at][0] - record["rtt_s"]]
        is_steady = bool(earlier) and rows[at - 1][1] < 1.5 * earlier[-1]
        # What was lost is sent again as the loss is noticed, and acknowledged a round trip later.
        recovered = rows[at][0] + record["rtt_s"]
        samples = [
            (t - recovered, window) for t, window, _ in rows[at:following] if t > recovered + SETTLED_S
        ]
        is_seen = bool(samples) and samples[0][0] < SETTLED_S + SEEN_S
        if alone and is_steady and is_seen and len(samples) >= 50:
            found.append(Cycle(before=rows[at - 1][1], samples=samples))
    return found


def test_scalable_tcp_grows_and_shrinks_as_the_kernels(lossy: Emulation) -> None:
    needs_loading("scalable")
    found = []
    # What samples may be kept from it by a busy machine: up to three copies, until enough was seen.
    for _ in range(3):
        record = moved(lossy, "--seconds", "15", "--interval", "10ms", "--congestion", "scalable")
        found += cycles(record)
        if len(found) >= 4:
            break
    assert len(found) >= 4
    # An eighth less, and a segment more for every 100 acknowledged: 1% a round trip.
    assert 1 - median(cycle.share for cycle in found) == pytest.approx(0.125, rel=0.1)
    ratios = []
    for cycle in found:
        (start, first), (end, _) = cycle.samples[0], cycle.samples[-1]
        ratios.append(cycle.growth / (first * (1.01 ** ((end - start) / record["rtt_s"]) - 1)))
    assert median(ratios) == pytest.approx(1, abs=0.1)


def test_h_tcp_grows_and_shrinks_as_the_kernels(lossy: Emulation) -> None:
    needs_loading("htcp")
    shares, growths = [], []
    # A loss leaves RTTmin/RTTmax within bounds: near the upper one over a queue that stays empty, or the
    # lower one where the throughput had changed by a fifth: always at first. A busy machine may change
    # it in each cycle of one copy, or keep cycles from being seen: there are up to three copies until enough
    # were, and two alike.
    for _ in range(3):
        before = packets(lossy)
        record = moved(lossy, "--seconds", "20", "--interval", "10ms", "--congestion", "htcp")
        after = packets(lossy)
        per_ack = (after["a"] - before["a"]) / (after["b"] - before["b"])
        for cycle in cycles(record):
            shares.append(cycle.share)
            beta = round(128 * min(max(cycle.share, BETA_MIN), BETA_MAX))
            expected = kernels_htcp(cycle.samples, beta=beta, rtt=record["rtt_s"], per_ack=per_ack)
            growths.append((cycle.growth, expected))
        is_long = any(expected >= 20 for _, expected in growths)
        if len(shares) >= 5 and is_long and max(shares) > 0.9 * BETA_MAX:
            break
    assert len(shares) >= 5
    assert all(0.9 * BETA_MIN < share < 1.1 * BETA_MAX for share in shares), shares
    assert min(shares) == pytest.approx(BETA_MIN, rel=0.1)
    assert max(shares) == pytest.approx(BETA_MAX, rel=0.1)
    # Whatever disturbs the machine makes acknowledgements come together, which this arithmetic counts for
    # less, or takes samples from it, so that a cycle seems to begin later than it did: the cycles that were
    # not disturbed say what it does. Segments are whole at both ends of a cycle, so that a short one's ratio
    # is coarse: not one in five may grow by more than this, to a segment at either, and a long one has to
    # reach it.
    too_much = [(growth, expected) for growth, expected in growths if growth > 1.1 * expected + 2]
    assert len(too_much) <= len(growths) // 5, growths
    assert any(growth >= 0.9 * expected for growth, expected in growths if expected >= 20), growths
    assert median(growth / expected for growth, expected in growths) > 0.8, growths


def packets(emulation: Emulation) -> dict[str, int]:
    """Packets that each host has sent."""
    return {link["from"]: link["packets"] for link in emulation.show()["links"]}


def kernels_htcp(samples: list[tuple[float, int]], *, beta: int, rtt: float, per_ack: float) -> int:
    """Segments by which a window grows by tcp_htcp.c: its htcp_cong_avoid and htcp_alpha_update."""
    second = 1_000_000

    def alpha(since: float) -> int:
        passed, factor = int(since * second), 1
        if passed > second:
            passed -= second
            factor = 1 + (10 * passed + (passed // 2) ** 2 // second) // second
        scale = min(max((second << 3) // int(10 * rtt * second), 4), 80)
        return 2 * max((factor << 3) // scale, 1) * (128 - beta)

    (now, first), (end, _) = samples[0], samples[-1]
    window, count, step = first, 0.0, alpha(now)
    while now < end:
        now += per_ack * rtt / window
        if count * step / 128 >= window:
            window, count, step = window + 1, 0.0, alpha(now)
        else:
            count += per_ack
    return window - first
