"""The latency model against the study's example and its tables."""

from __future__ import annotations

import math
import sys

import pytest

from farlink_lab.cli import main
from farlink_lab.latency import (
    MOST_LOSS,
    Group,
    crossover_receivers,
    multicast_s,
    repaired,
    servers_for_parity,
    transmissions,
    unicast_repair_bytes,
    unicast_s,
)
from farlink_lab.latency_account import account, as_json, told

SIZE = 125e6
EXAMPLE = Group(receivers=50, sender_bps=1e9, sender_link_bps=10e9, receiver_bps=1e9, receiver_link_bps=100e6)


def group_of(receivers: int) -> Group:
    return Group(
        receivers=receivers, sender_bps=1e9, sender_link_bps=10e9, receiver_bps=1e9, receiver_link_bps=100e6
    )


def test_the_studys_example_takes_50_s_by_unicast_and_10_s_by_multicast() -> None:
    assert unicast_s(EXAMPLE, size_bytes=SIZE) == pytest.approx(50)
    assert multicast_s(EXAMPLE, size_bytes=SIZE) == pytest.approx(10)


def test_a_mebibyte_is_not_what_the_example_means() -> None:
    assert unicast_s(EXAMPLE, size_bytes=125 * 2**20) == pytest.approx(52.43, abs=0.005)
    assert multicast_s(EXAMPLE, size_bytes=125 * 2**20) == pytest.approx(10.49, abs=0.005)


def test_five_servers_are_as_fast_as_multicast_and_six_no_faster() -> None:
    times = [unicast_s(EXAMPLE, size_bytes=SIZE, servers=k) for k in range(1, 7)]
    assert times == pytest.approx([50, 25, 16.67, 12.5, 10, 10], abs=0.005)
    assert servers_for_parity(EXAMPLE) == 5


def test_no_number_of_servers_helps_where_the_senders_link_is_the_bottleneck() -> None:
    narrow = Group(receivers=50, sender_bps=1e9, sender_link_bps=4e9, receiver_link_bps=100e6)
    assert servers_for_parity(narrow) is None
    assert unicast_s(narrow, size_bytes=SIZE, servers=100) == pytest.approx(12.5)


def test_unicast_is_as_fast_up_to_the_crossover_and_slower_above() -> None:
    assert crossover_receivers(EXAMPLE) == pytest.approx(10)
    counts = (1, 10, 11, 20, 50, 100)
    times = [unicast_s(group_of(n), size_bytes=SIZE) for n in counts]
    assert times == pytest.approx([10, 10, 11, 20, 50, 100])
    assert {multicast_s(group_of(n), size_bytes=SIZE) for n in counts} == {10.0}


@pytest.mark.parametrize(
    ("loss", "receivers", "unicast", "multicast"),
    [
        (0.001, 50, 1.05, 1.05),
        (0.001, 1000, 2.00, 1.63),
        (0.01, 10, 1.10, 1.10),
        (0.01, 50, 1.50, 1.40),
        (0.01, 100, 2.00, 1.64),
        (0.01, 1000, 11.0, 2.10),
        (0.05, 10, 1.50, 1.43),
        (0.05, 50, 3.50, 2.05),
        (0.05, 100, 6.00, 2.23),
        (0.1, 10, 2.00, 1.76),
        (0.1, 50, 6.00, 2.44),
        (0.1, 100, 11.0, 2.74),
    ],
)
def test_repairs_cost_what_the_table_says(
    loss: float, receivers: int, unicast: float, multicast: float
) -> None:
    sent = unicast_repair_bytes(size_bytes=1, receivers=receivers, loss=loss)
    assert sent == pytest.approx(unicast, abs=0.005)
    assert transmissions(receivers, loss) == pytest.approx(multicast, abs=0.005)


def test_transmissions_to_one_receiver_are_geometric() -> None:
    assert transmissions(1, 0.25) == pytest.approx(1 / 0.75)
    assert transmissions(1000, 0) == 1
    assert math.isinf(transmissions(3, 1))


def test_repairs_by_unicast_take_the_rate_of_the_session_or_another_that_is_named() -> None:
    found = repaired(EXAMPLE, size_bytes=SIZE, loss=0.01, turnaround_s=0.1)
    # 50 receivers, 1.25 MB each, over 100 Mb/s.
    assert found.unicast_s == pytest.approx(10 + 0.1 + 8 * 1.25e6 * 50 / 100e6)
    # What the sender has beside the multicast.
    beside = repaired(EXAMPLE, size_bytes=SIZE, loss=0.01, turnaround_s=0.1, repair_bps=900e6)
    assert beside.unicast_s == pytest.approx(10 + 0.1 + 8 * 1.25e6 * 50 / 900e6)
    assert found.multicast_s == pytest.approx(10 * transmissions(50, 0.01) + 0.1)
    assert found.cheaper == "multicast"
    limited = repaired(EXAMPLE, size_bytes=SIZE, loss=0.01, repair_bps=50e6)
    assert limited.unicast_s == pytest.approx(10 + 10)
    none = repaired(EXAMPLE, size_bytes=SIZE, loss=0, turnaround_s=0.1)
    assert none.unicast_s == none.multicast_s == pytest.approx(10)
    assert none.cheaper == "unicast"


def test_headers_lengthen_the_multicast() -> None:
    assert multicast_s(EXAMPLE, size_bytes=SIZE, overhead=0.05) == pytest.approx(10.5)


def test_what_no_group_has_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one receiver"):
        Group(receivers=0, sender_bps=1e9)
    with pytest.raises(ValueError, match="more than 0"):
        Group(receivers=1, sender_bps=0)
    with pytest.raises(ValueError, match="finite"):
        Group(receivers=1, sender_bps=math.inf)
    with pytest.raises(ValueError, match="below 1"):
        repaired(EXAMPLE, size_bytes=SIZE, loss=1)


def test_the_account_says_the_numbers_of_the_example() -> None:
    stated = account(EXAMPLE, size_bytes=SIZE, overhead=0, loss=0.01, rtt_s=None)
    text = "\n".join(told(stated))
    for said in (
        "125 MB to 50 receivers",
        "50 s",
        "10 s at 100 Mb/s",
        "1/5 of the time",
        "servers for parity: 5",
    ):
        assert said in text
    assert "1.5 times the size sent" in text
    assert "1.4 times the size sent" in text
    members = as_json(stated)
    assert members["unicast_s"] == pytest.approx(50)
    assert members["cheaper"] == "multicast"


def test_an_account_takes_the_rate_of_repairs() -> None:
    # A row of bench/latency.md: 10 MB to eight receivers of 50 Mb/s, 5% lost, RTT 4 ms.
    share = (9000 - 28 - 56) / (9000 + 38)
    group = Group(receivers=8, sender_bps=200e6 * share, receiver_link_bps=50e6 * share)
    said = [
        account(group, size_bytes=1e7, overhead=0, loss=0.05, rtt_s=4e-3, repair_bps=rate).repaired
        for rate in (None, 50e6 * share)
    ]
    assert said[0] == said[1]
    assert said[0] is not None
    assert said[0].unicast_s == pytest.approx(2.275, abs=5e-4)
    assert said[0].multicast_s == pytest.approx(2.206, abs=5e-4)


def test_an_account_without_bounds_leaves_them_out() -> None:
    wide = Group(receivers=2, sender_bps=1e9)
    stated = account(wide, size_bytes=SIZE, overhead=0, loss=None, rtt_s=None)
    assert as_json(stated)["group"] == {"receivers": 2, "sender_bps": 1e9}
    assert "repaired" not in as_json(stated)
    assert stated.crossover_receivers == 1


@pytest.mark.parametrize("receivers", [1, 2, 3, 50])
@pytest.mark.parametrize("overhead", [0.0, 0.05, 0.5, 1.5])
@pytest.mark.parametrize("receiver_bps", [1e8, 4e8, 1e9, 3e9, math.inf])
def test_crossover_and_parity_are_where_the_times_say(
    receivers: int, overhead: float, receiver_bps: float
) -> None:
    group = Group(receivers=receivers, sender_bps=1e9, sender_link_bps=7.5e9, receiver_bps=receiver_bps)
    multicast = multicast_s(group, size_bytes=SIZE, overhead=overhead)

    def as_fast(servers: int) -> bool:
        return unicast_s(group, size_bytes=SIZE, servers=servers) <= multicast * (1 + 1e-9)

    crossover = crossover_receivers(group, overhead=overhead)
    assert as_fast(1) == (receivers <= crossover + 1e-9)
    ratio = unicast_s(group, size_bytes=SIZE) / multicast
    if not as_fast(1):
        assert ratio == pytest.approx(receivers / crossover)
    parity = servers_for_parity(group, overhead=overhead)
    enough = [servers for servers in range(1, 200) if as_fast(servers)]
    assert parity == (enough[0] if enough else None)
    stated = account(group, size_bytes=SIZE, overhead=overhead, loss=None, rtt_s=None)
    assert (stated.crossover_receivers, stated.parity_servers) == (crossover, parity)


@pytest.mark.parametrize(
    ("group", "overhead", "said"),
    [
        # One receiver, who waits for the sender.
        (Group(receivers=1, sender_bps=1e9, receiver_bps=10e9), 0.0, "  unicast is as fast"),
        (
            Group(receivers=10, sender_bps=1e9, receiver_bps=100e6),
            0.0,
            "  unicast is as fast: the receivers are the bottleneck",
        ),
        (Group(receivers=1, sender_bps=1e9), 0.25, "  unicast is faster, by 20% of the time"),
        (
            Group(receivers=8, sender_bps=1e9, receiver_bps=100e6),
            0.25,
            "  unicast is faster, by 20% of the time: the receivers are the bottleneck",
        ),
        # Within the crossover, but the sender is busier than they.
        (Group(receivers=11, sender_bps=1e9, receiver_bps=100e6), 0.1, "  unicast is as fast"),
        (Group(receivers=20, sender_bps=1e9, receiver_bps=100e6), 0.0, "  multicast takes 1/2 of the time"),
    ],
)
def test_which_is_faster_is_said_and_a_bottleneck_only_where_it_is_one(
    group: Group, overhead: float, said: str
) -> None:
    assert said in told(account(group, size_bytes=SIZE, overhead=overhead, loss=None, rtt_s=None))


@pytest.mark.parametrize("receivers", ["0", "1e9", "1000001", "2.5", "-3", "many", "9" * 5000])
def test_a_number_of_receivers_that_is_none_is_one_line(
    receivers: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["latency", "--size", "125MB", "--receivers", receivers, "--sender-rate", "1gbit"]
    monkeypatch.setattr(sys, "argv", ["farlink-lab", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = f'--receivers: "{receivers}" is no whole number from 1 to 1,000,000: write one as in 50'
    assert capsys.readouterr().err == f"farlink: {said}\n"


def test_of_a_loss_of_next_to_everything_nothing_is_reckoned(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert transmissions(1_000_000, MOST_LOSS) > 10_000
    with pytest.raises(ValueError, match="from 0 to"):
        repaired(EXAMPLE, size_bytes=SIZE, loss=1 - 1e-10)
    words = ["latency", "--size", "125MB", "--receivers", "50", "--sender-rate", "1gbit"]
    monkeypatch.setattr(sys, "argv", ["farlink-lab", *words, "--loss", "99.99999999%"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert all(word in line for word in ("--loss", '"99.99999999%"', "at most 99.9%"))


def test_one_receiver_is_no_receivers_and_an_rtt_needs_no_loss(lab) -> None:
    words = ("latency", "--size", "125MB", "--receivers", "1", "--sender-rate", "1gbit")
    plain, with_rtt = lab.here(*words), lab.here(*words, "--rtt", "100ms")
    assert (plain.returncode, plain.stderr) == (0, "")
    assert (with_rtt.returncode, with_rtt.stdout) == (0, plain.stdout)
    assert plain.stdout.startswith("125 MB to 1 receiver\n")
    assert "as fast for up to 1 receiver\n" in plain.stdout
    assert "servers for parity: 1, of up to 1 receiver each\n" in plain.stdout
