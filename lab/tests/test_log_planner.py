"""Policies of circuits in virtual time, on demands small enough to reckon by hand."""

import math

import numpy as np
import pytest

from farlink_lab.logs.engine import open_logs
from farlink_lab.logs.planner.planning import planned
from farlink_lab.logs.planner.prefixes import Daily, daily, months, prefix
from farlink_lab.logs.planner.provider import Provider, Terms
from farlink_lab.logs.planner.replay import Demand, always_on, per_session
from farlink_lab.logs.planner.reservation import (
    HOLD_TIMEOUT_US,
    Life,
    OutOfTurnError,
    Provisioning,
    Reservation,
    Reserving,
)
from farlink_lab.logs.sessions import HOSTS, HOSTS_AND_USER
from farlink_lab.logs.transfer import US
from test_log_sessions import stored, table_of


def reservation():
    return Reservation(pair=0, rate_bps=1e9, start_us=100, end_us=1000)


def test_a_reservation_lives_through_the_states_of_the_standard():
    ours = reservation()
    ours.reserve()
    assert ours.reserving is Reserving.CHECKING
    ours.on_checked(0, granted=True)
    assert ours.reserving is Reserving.HELD
    ours.commit()
    assert ours.reserving is Reserving.COMMITTING
    ours.on_committed()
    assert (ours.reserving, ours.committed) == (Reserving.START, True)
    ours.provision()
    assert ours.provisioning is Provisioning.PROVISIONING
    ours.on_provisioned()
    # The data plane is up while it is provisioned and within its time, and only then.
    assert [ours.is_up(now) for now in (99, 100, 999, 1000)] == [False, True, True, False]
    ours.on_time(1000)
    assert ours.life is Life.PASSED_END_TIME
    ours.release()
    ours.on_released()
    ours.terminate()
    ours.on_terminated()
    assert (ours.provisioning, ours.life) == (Provisioning.RELEASED, Life.TERMINATED)


def test_what_is_held_and_not_committed_runs_out_and_is_aborted():
    ours = reservation()
    ours.reserve()
    ours.on_checked(50, granted=True)
    ours.on_time(50 + HOLD_TIMEOUT_US - 1)
    assert ours.reserving is Reserving.HELD
    ours.on_time(50 + HOLD_TIMEOUT_US)
    assert ours.reserving is Reserving.TIMEOUT
    with pytest.raises(OutOfTurnError):
        ours.commit()
    ours.abort()
    ours.on_aborted()
    assert ours.reserving is Reserving.START


@pytest.mark.parametrize(
    "early", ["commit", "provision", "release", "on_committed", "on_provisioned", "abort"]
)
def test_a_message_out_of_turn_is_refused(early):
    with pytest.raises(OutOfTurnError, match=early):
        getattr(reservation(), early)()


def terms(*, capacity=math.inf, rate=8e6, setup=60.0, hold=100.0):
    return Terms(capacity_bps=capacity, rate_bps=rate, setup_s=setup, hold_s=hold)


def demand(*rows):
    """Rows of (pair, start_s, end_s, bytes)."""
    columns = np.array(rows, dtype=np.float64).T
    return Demand(
        pair=columns[0].astype(np.int64),
        start_us=(columns[1] * US).astype(np.int64),
        end_us=(columns[2] * US).astype(np.int64),
        bytes=columns[3].astype(np.int64),
    )


def test_a_session_is_carried_from_when_its_circuit_is_up():
    # At 1 MB/s: 600 s, of which the first 60 go without.
    found = per_session(demand((0, 0, 600, 600 * 10**6)), terms(), all_bytes=600 * 10**6)
    assert found.carried_bytes == 540e6
    assert found.carried_share == 0.9
    assert math.isclose(found.circuit_hours, 700 / 3600)
    # Up from 60 s to 700 s, of which it is used 540 s in full.
    assert math.isclose(found.utilisation, 540 / 640)


def test_a_circuit_carries_no_more_than_its_rate():
    found = per_session(demand((0, 0, 600, 6000 * 10**6)), terms(), all_bytes=6000 * 10**6)
    assert found.carried_bytes == 540e6


def test_the_next_session_of_a_pair_finds_the_circuit_held():
    rows = [(0, 0, 600, 10**8), (0, 690, 1200, 10**8), (0, 1301, 2000, 10**8)]
    found = per_session(demand(*rows), terms(), all_bytes=3 * 10**8)
    assert (found.circuits, found.reused, found.rejected) == (2, 1, 0)
    assert math.isclose(found.circuit_hours, (1300 + 799) / 3600)


def test_a_full_service_rejects_and_has_room_again_when_a_circuit_is_given_back():
    rows = [(0, 0, 100, 10**6), (1, 50, 100, 10**6), (2, 150, 300, 10**6), (3, 210, 300, 10**6)]
    found = per_session(demand(*rows), terms(capacity=8e6), all_bytes=4 * 10**6)
    assert (found.sessions, found.circuits, found.rejected, found.most_circuits) == (4, 2, 2, 1)
    assert per_session(demand(*rows), terms(), all_bytes=4 * 10**6).most_circuits == 3


def test_a_session_that_ends_before_its_circuit_is_up_gains_nothing():
    found = per_session(demand((0, 0, 30, 10**6)), terms(hold=0.0), all_bytes=10**6)
    assert (found.circuits, found.carried_bytes) == (1, 0.0)
    assert math.isclose(found.circuit_hours, 60 / 3600)


def test_sessions_of_a_pair_at_once_share_a_circuit():
    rows = [(0, 0, 600, 10**8), (0, 100, 900, 10**8)]
    found = per_session(demand(*rows), terms(), all_bytes=2 * 10**8)
    assert (found.circuits, found.reused) == (1, 1)
    assert math.isclose(found.circuit_hours, 1000 / 3600)


def test_sessions_that_share_a_circuit_share_its_rate():
    # Each at the circuit's 1 MB/s: 40 s of one, 500 s of both, 300 s of the other; up from 60 s to 1000 s.
    rows = [(0, 0, 600, 600 * 10**6), (0, 100, 900, 800 * 10**6)]
    found = per_session(demand(*rows), terms(), all_bytes=1400 * 10**6)
    assert math.isclose(found.carried_bytes, 840e6)
    assert math.isclose(found.utilisation, 840 / 940)
    # At a quarter of it each, there is room for both.
    slow = per_session(
        demand((0, 0, 600, 150 * 10**6), (0, 100, 900, 200 * 10**6)), terms(), all_bytes=350 * 10**6
    )
    assert math.isclose(slow.carried_bytes, 135e6 + 200e6)


def test_circuits_that_are_always_on_go_to_the_pairs_of_most_bytes():
    rows = [(0, 0, 10, 10**6), (1, 10, 20, 5 * 10**6), (0, 20, 30, 10**6), (2, 90, 100, 4 * 10**6)]
    # Pair 1 has a session more, which asked for none; the log is 200 s long.
    found = always_on(
        demand(*rows),
        terms(capacity=16e6),
        carriable={0: 2e6, 1: 5.5e6, 2: 4e6},
        span_us=(0, 200 * US),
        all_bytes=12 * 10**6,
    )
    assert (found.circuits, found.rejected, found.carried_bytes) == (2, 2, 9.5e6)
    assert math.isclose(found.circuit_hours, 2 * 200 / 3600)
    assert math.isclose(found.utilisation, 9.5e6 / (2 * 200 * 1e6))


def test_every_reservation_is_given_back_whatever_the_demand():
    rng = np.random.default_rng(7)
    start = np.sort(rng.integers(0, 50_000, 2000)).astype(float)
    rows = [(int(rng.integers(30)), s, s + rng.integers(0, 400), 10**6) for s in start]
    for capacity in (8e6, 40e6, math.inf):
        found = per_session(demand(*rows), terms(capacity=capacity), all_bytes=2000 * 10**6)
        assert found.circuits + found.reused + found.rejected == 2000
        assert found.most_circuits <= min(30, capacity / 8e6)
        assert 0 <= found.utilisation <= 1


def test_a_provider_counts_what_it_blocks():
    provider = Provider(terms=terms(capacity=16e6))
    first, second, third = (provider.ask(0, pair=pair) for pair in range(3))
    assert third is None
    assert (provider.granted, provider.blocked) == (2, 1)
    for each in (first, second):
        provider.on_setup(each)
        provider.give_back(each)
    assert provider.reserved_bps == 0
    assert first.life is Life.TERMINATED


@pytest.mark.parametrize(
    ("host", "found"),
    [
        ("192.0.2.77", "192.0.2.0/24"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("dtn.example.org", "dtn.example.org"),
    ],
)
def test_a_prefix_is_that_of_its_address(host, found):
    assert prefix(host) == found


def day(month, source, *, alpha, other=0):
    return Daily(
        month=month,
        source=source,
        destination="10.9.0.1",
        bytes=alpha + other,
        alpha_bytes=alpha,
        alpha_flows=alpha > 0,
    )


def test_prefixes_of_a_month_catch_what_the_next_brings_from_them():
    rows = [
        day("2012-01", "10.1.0.1", alpha=100),
        day("2012-01", "10.2.0.1", alpha=0, other=70),
        # Another host of the learnt prefix, and one that only small flows came from.
        day("2012-02", "10.1.0.2", alpha=60, other=5),
        day("2012-02", "10.2.0.1", alpha=40),
        # March has no log; April learns nothing from it.
        day("2012-04", "10.1.0.1", alpha=10),
    ]
    february, march, april = months(rows)
    assert (february.learnt, february.caught_bytes, february.alpha_bytes) == (1, 60, 100)
    assert (february.caught_share, february.redirected_bytes) == (0.6, 65)
    assert (march.month, march.learnt, march.caught_share) == ("2012-03", 2, None)
    assert (april.learnt, april.caught_share) == (0, 0.0)


def test_an_alpha_flow_moves_a_gigabyte_within_a_minute_of_the_clock(tmp_path, engine):
    gb = 10**9
    rows = [
        (60, 120, gb, "a", "exactly"),
        (30, 90, gb, "a", "over the boundary"),
        (30, 90, 2 * gb, "a", "half of two in one"),
        (10, 11, gb, "a", "short"),
        (0, 600, 10 * gb, "a", "long and fast"),
        (0, 600, 10 * gb - 10, "a", "long and slower"),
        (5, 5, gb, "a", "at once"),
        (61, 190, 2 * gb, "a", "no whole gigabyte"),
        (30, 180, 5 * gb // 2, "a", "two whole minutes"),
    ]
    with open_logs(stored(tmp_path / "d", table_of(rows)), engine=engine) as logs:
        alpha = {row.destination for row in daily(logs) if row.alpha_flows}
    assert alpha == {
        "exactly",
        "half of two in one",
        "short",
        "long and fast",
        "at once",
        "two whole minutes",
    }


def test_a_planted_log_is_planned_as_planted(tmp_path, engine):
    month = 31 * 86_400.0
    rows = []
    for at in (0.0, month):
        # One pair with an hour at 1 Gb/s, one with a short session, in both months.
        rows += [
            (at, at + 3600, 450 * 10**9, "10.1.0.1", "10.2.0.1"),
            (at, at + 5, 10**6, "10.3.0.1", "10.2.0.1"),
        ]
    terms = Terms(capacity_bps=math.inf, rate_bps=1e9, setup_s=60.0, hold_s=0.0)
    with open_logs(stored(tmp_path / "d", table_of(rows)), engine=engine) as logs:
        plan = planned(logs, terms, gap_s=60, factor=10)
        none = planned(logs, terms, gap_s=60, factor=1e6)
    per, always, learnt = plan.outcomes
    assert (per.sessions, per.circuits) == (2, 2)
    assert math.isclose(per.carried_bytes, 2 * 450e9 * 3540 / 3600)
    assert math.isclose(per.utilisation, 1)
    assert always.circuits == 1
    assert always.utilisation < 0.01
    (second,) = plan.months
    assert (second.learnt, second.caught_share) == (1, 1.0)
    assert learnt.carried_bytes == 450e9
    assert none.outcomes[0].sessions == 0


def test_users_of_the_same_hosts_share_circuits(tmp_path, engine):
    mb = 10**6
    rows = [
        # Two users of the same hosts, each at 1 MB/s: both at once from 300 s to 900 s.
        (0, 900, 900 * mb, "a", "b", "one"),
        (300, 1200, 900 * mb, "a", "b", "two"),
        (0, 900, 100 * mb, "a", "c", "one"),
        # A moment, which the log's clock cannot tell.
        (2000, 2000, 7 * mb, "a", "b", "two"),
    ]
    service = terms(hold=0.0)
    with open_logs(stored(tmp_path / "d", table_of(rows)), engine=engine) as logs:
        per, always = planned(logs, service, gap_s=60, factor=10, by=HOSTS_AND_USER).outcomes
        by_hosts = planned(logs, service, gap_s=60, factor=10).outcomes
    assert (per.sessions, per.circuits, per.reused, per.most_circuits) == (2, 1, 1, 1)
    assert math.isclose(per.circuit_hours, 1200 / 3600)
    assert math.isclose(per.carried_bytes, 1140e6)
    assert math.isclose(per.utilisation, 1)
    assert (always.sessions, always.circuits, always.rejected) == (2, 1, 0)
    assert math.isclose(always.circuit_hours, 2000 / 3600)
    assert math.isclose(always.carried_bytes, 1207e6)
    # By hosts the two are one session of 1200 s.
    assert [outcome.circuits for outcome in by_hosts] == [1, 1]
    assert math.isclose(by_hosts[1].carried_bytes, 1207e6)


def test_a_circuit_that_is_always_on_carries_sessions_too_short_to_ask(tmp_path, engine):
    mb = 10**6
    rows = [
        (1000, 1600, 600 * mb, "a", "b"),
        # 100 MB at 2 MB/s, of which the circuit takes half; and 10 MB with room to spare.
        (3000, 3050, 100 * mb, "a", "b"),
        (5000, 5100, 10 * mb, "a", "b"),
        # Of hosts that never ask, at both ends of the log.
        (0, 1, mb, "c", "d"),
        (8999, 9000, mb, "c", "d"),
    ]
    with open_logs(stored(tmp_path / "d", table_of(rows)), engine=engine) as logs:
        _, always = planned(logs, terms(), gap_s=60, factor=10).outcomes
    assert (always.sessions, always.circuits) == (1, 1)
    assert math.isclose(always.carried_bytes, (600 + 50 + 10) * 1e6)
    assert math.isclose(always.circuit_hours, 9000 / 3600)
    assert math.isclose(always.utilisation, 660 / 9000)


@pytest.mark.parametrize("by", [HOSTS, HOSTS_AND_USER])
def test_circuits_that_are_there_at_once_and_never_leave_carry_as_much_as_those_that_are_always_on(
    tmp_path, by
):
    rng = np.random.default_rng(5)
    rows = [
        (start, start + rng.integers(0, 400), int(rng.integers(1, 10**9)), "a", f"b{rng.integers(3)}", user)
        for start in rng.integers(0, 20_000, 1500).tolist()
        for user in (f"u{rng.integers(5)}",)
    ]
    service = terms(setup=0.0, hold=1e6)
    with open_logs(stored(tmp_path / "d", table_of(rows))) as logs:
        per, always = planned(logs, service, gap_s=1, factor=0, by=by).outcomes
    assert (per.circuits, always.circuits) == (3, 3)
    assert math.isclose(per.carried_bytes, always.carried_bytes, rel_tol=1e-9)
    assert 0.05 < per.carried_share < 0.95
