"""The sessions of a log against a circuit service: per session, or circuits that are always on.

Sessions run when and as long as the log says. One that has a circuit is carried by it from when its data
plane is up, by as much as the circuit's rate allows; everything else goes over the routed network.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from farlink_lab.logs.planner.provider import Provider, Terms
from farlink_lab.logs.transfer import US

if TYPE_CHECKING:
    from farlink_lab.logs.planner.reservation import Reservation

Whole = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Sessions, in the order of their starts; each array has shape (sessions,)."""

    pair: Whole
    start_us: Whole
    end_us: Whole
    bytes: Whole

    @property
    def span_us(self) -> tuple[int, int]:
        """The first start and the last end."""
        return int(self.start_us.min()), int(self.end_us.max())


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
    users: int = 1
    # Counts the moments at which it came to have no user: a release that was planned before is void.
    idle: int = 0


_UP, _END, _RELEASE, _BEGIN = range(4)


def per_session(demand: Demand, terms: Terms, *, all_bytes: int) -> Outcome:
    """A circuit for each session, from its first transfer, kept for `hold_s` for the next of its pair.

    Several sessions of a pair at once (of several users) share one circuit.
    """
    provider = Provider(terms=terms)
    circuits: dict[int, _Circuit] = {}
    # At the same moment: circuits come up, sessions end, circuits are released, sessions begin.
    events: list[tuple[int, int, int, int]] = []
    setup_us, hold_us = round(terms.setup_s * US), round(terms.hold_s * US)
    rejected = reused = 0
    open_us = up_us = 0
    on: dict[int, _Circuit] = {}
    carried = 0.0
    starts = demand.start_us.tolist()
    ends, pairs = demand.end_us.tolist(), demand.pair.tolist()
    sizes = demand.bytes.tolist()
    upcoming = 0
    while upcoming < len(starts) or events:
        if events and (upcoming == len(starts) or (events[0][0], events[0][1]) <= (starts[upcoming], _BEGIN)):
            now, kind, key, stamp = heapq.heappop(events)
            if kind == _END:
                circuit = on.pop(key)
                circuit.users -= 1
                if not circuit.users:
                    circuit.idle += 1
                    # One that never came up before its session ended comes up first, as it was committed.
                    ready = max(now + hold_us, circuit.up_us)
                    heapq.heappush(events, (ready, _RELEASE, pairs[key], circuit.idle))
                carried += _carried(circuit, starts[key], ends[key], sizes[key], terms.rate_bps)
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
        known = circuits.get(pair)
        if known is not None:
            known.users += 1
            reused += 1
            on[at] = known
        else:
            granted = provider.ask(now, pair=pair)
            if granted is None:
                rejected += 1
                continue
            made = _Circuit(reservation=granted, asked_us=now, up_us=now + setup_us)
            circuits[pair] = on[at] = made
            heapq.heappush(events, (now + setup_us, _UP, pair, 0))
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


def always_on(demand: Demand, terms: Terms, *, all_bytes: int) -> Outcome:
    """A circuit from the log's beginning to its end, for the pairs of most bytes that there is room for."""
    first, last = demand.span_us
    _, which = np.unique(demand.pair, return_inverse=True)
    totals = np.bincount(which, weights=demand.bytes.astype(np.float64))
    ranked = np.argsort(-totals, kind="stable")
    room = terms.capacity_bps / terms.rate_bps * (1 + 1e-12)
    served = ranked[: len(ranked) if room >= len(ranked) else int(room)]
    has = np.isin(which, served)
    seconds = (demand.end_us - demand.start_us) / US
    most = np.where(seconds > 0, terms.rate_bps * seconds / 8, demand.bytes)
    carried = float(np.minimum(demand.bytes, most)[has].sum())
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


def _carried(circuit: _Circuit, start: int, end: int, size: int, rate_bps: float) -> float:
    """What a session moved over its circuit: its bytes lie evenly over its time."""
    on_circuit = end - max(start, circuit.up_us)
    if on_circuit <= 0:
        return float(size) if start >= circuit.up_us else 0.0
    return min(size * on_circuit / (end - start), rate_bps * on_circuit / US / 8)


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0
