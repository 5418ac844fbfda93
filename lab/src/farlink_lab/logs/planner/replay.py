"""The sessions of a log against a circuit service: per session, or circuits that are always on.

Sessions run when and as long as the log says, their bytes evenly over their time. Those that have a circuit
are carried by it from when its data plane is up, all together by as much as the circuit's rate allows;
everything else goes over the routed network.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from farlink_lab.logs.planner.provider import Provider, Terms
from farlink_lab.logs.transfer import US

if TYPE_CHECKING:
    from collections.abc import Mapping

    from farlink_lab.logs.planner.reservation import Reservation

Whole = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Sessions that ask, in the order of their starts; each array has shape (sessions,).

    Attributes:
        pair: Of hosts, whoever of its users asks: a circuit is between them.
    """

    pair: Whole
    start_us: Whole
    end_us: Whole
    bytes: Whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a policy came to.

    Attributes:
        sessions: That asked for a circuit.
        rejected: Of them, those that got none.
        reused: Of them, those that found one of their pair still there.
        circuits: That were set up.
        circuit_hours: From each request that was granted until its end.
        carried_bytes: Over circuits.
        all_bytes: Of the whole log.
        utilisation: Bytes carried, of those that the circuits could have carried while they were up.
        most_circuits: At once.
    """

    policy: str
    sessions: int
    rejected: int
    reused: int
    circuits: int
    circuit_hours: float
    carried_bytes: float
    all_bytes: int
    utilisation: float
    most_circuits: int

    @property
    def carried_share(self) -> float:
        """Of all bytes of the log, those that circuits carried."""
        return self.carried_bytes / self.all_bytes if self.all_bytes else 0.0


@dataclass(slots=True, kw_only=True)
class _Circuit:
    reservation: Reservation
    asked_us: int
    up_us: int
    since_us: int
    users: int = 0
    # Counts the moments at which it came to have no user: a release that was planned before is void.
    idle: int = 0
    # What its users move together, bytes a microsecond, since `since_us`, when the last of them came or went.
    load: float = 0.0

    def joined_by(self, load: float) -> None:
        """A session begins."""
        self.users, self.load = self.users + 1, self.load + load

    def left_by(self, load: float) -> int:
        """A session ends; how many are left."""
        self.users -= 1
        self.idle += not self.users
        # Of the sums of no session nothing is left that was rounded.
        self.load = self.load - load if self.users else 0.0
        return self.users

    def carried_until(self, now: int, most: float) -> float:
        """Bytes since then, at no more than `most` a microsecond: asked before its users change."""
        begun, self.since_us = max(self.since_us, self.up_us), now
        return min(self.load, most) * (now - begun) if now > begun else 0.0


_UP, _END, _RELEASE, _BEGIN = range(4)


def per_session(demand: Demand, terms: Terms, *, all_bytes: int) -> Outcome:
    """A circuit for each session, from its first transfer, kept for `hold_s` for the next of its pair.

    Several sessions of a pair at once (of several users) share one circuit, and its rate.
    """
    provider = Provider(terms=terms)
    most = terms.rate_bps / 8 / US
    circuits: dict[int, _Circuit] = {}
    # At the same moment: circuits come up, sessions end, circuits are released, sessions begin.
    events: list[tuple[int, int, int, int]] = []
    setup_us, hold_us = round(terms.setup_s * US), round(terms.hold_s * US)
    rejected = reused = open_us = up_us = 0
    on: dict[int, _Circuit] = {}
    carried = 0.0
    starts = demand.start_us.tolist()
    ends, pairs, sizes = demand.end_us.tolist(), demand.pair.tolist(), demand.bytes.tolist()
    upcoming = 0
    while upcoming < len(starts) or events:
        if events and (upcoming == len(starts) or (events[0][0], events[0][1]) <= (starts[upcoming], _BEGIN)):
            now, kind, key, stamp = heapq.heappop(events)
            if kind == _END:
                circuit = on.pop(key)
                carried += circuit.carried_until(now, most)
                if now == starts[key] >= circuit.up_us:
                    carried += sizes[key]
                if not circuit.left_by(_load(starts[key], now, sizes[key])):
                    # One that never came up before its session ended comes up first, as it was committed.
                    ready = max(now + hold_us, circuit.up_us)
                    heapq.heappush(events, (ready, _RELEASE, pairs[key], circuit.idle))
                continue
            circuit = circuits[key]
            if kind == _UP:
                provider.on_setup(circuit.reservation)
            elif not circuit.users and circuit.idle == stamp:
                provider.give_back(circuit.reservation)
                open_us += now - circuit.asked_us
                up_us += now - circuit.up_us
                del circuits[key]
            continue
        at, upcoming = upcoming, upcoming + 1
        pair, now = pairs[at], starts[at]
        taken = circuits.get(pair)
        if taken is not None:
            reused += 1
            carried += taken.carried_until(now, most)
        else:
            granted = provider.ask(now, pair=pair)
            if granted is None:
                rejected += 1
                continue
            taken = _Circuit(reservation=granted, asked_us=now, up_us=now + setup_us, since_us=now)
            circuits[pair] = taken
            heapq.heappush(events, (now + setup_us, _UP, pair, 0))
        on[at] = taken
        taken.joined_by(_load(now, ends[at], sizes[at]))
        heapq.heappush(events, (ends[at], _END, at, 0))
    return Outcome(
        policy="per session",
        sessions=len(starts),
        rejected=rejected,
        reused=reused,
        circuits=provider.granted,
        circuit_hours=open_us / US / 3600,
        carried_bytes=carried,
        all_bytes=all_bytes,
        utilisation=_share(carried, terms.rate_bps * up_us / US / 8),
        most_circuits=round(provider.most_bps / terms.rate_bps),
    )


def always_on(
    demand: Demand,
    terms: Terms,
    *,
    carriable: Mapping[int, float],
    span_us: tuple[int, int],
    all_bytes: int,
) -> Outcome:
    """A circuit over the whole log for the pairs that ask with most bytes, as many as there is room for.

    Args:
        demand: The sessions that ask.
        terms: Of the circuit service.
        carriable: By pair, the bytes that its circuit carries: of all its sessions, those that ask for none
            too.
        span_us: Of the log, its first start and its last end.
        all_bytes: Of the whole log.
    """
    first, last = span_us
    pairs, which = np.unique(demand.pair, return_inverse=True)
    totals = np.bincount(which, weights=demand.bytes.astype(np.float64))
    ranked = np.argsort(-totals, kind="stable")
    room = terms.capacity_bps / terms.rate_bps * (1 + 1e-12)
    served = ranked[: len(ranked) if room >= len(ranked) else int(room)]
    has = np.isin(which, served)
    carried = math.fsum(carriable[pair] for pair in pairs[served].tolist())
    hours = len(served) * (last - first) / US / 3600
    return Outcome(
        policy="always on",
        sessions=len(demand.pair),
        rejected=int((~has).sum()),
        reused=0,
        circuits=len(served),
        circuit_hours=hours,
        carried_bytes=carried,
        all_bytes=all_bytes,
        utilisation=_share(carried, terms.rate_bps * hours * 3600 / 8),
        most_circuits=len(served),
    )


def _load(start: int, end: int, size: int) -> float:
    """Bytes a microsecond of a session; one that takes no time that the log can tell counts at its end."""
    return size / (end - start) if end > start else 0.0


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0
