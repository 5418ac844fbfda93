"""A provider of circuits over a domain of limited capacity, as a pure machine in virtual time."""

from __future__ import annotations

from dataclasses import dataclass, field

from farlink_lab.logs.planner.reservation import Reservation

# What a reservation asks for in place of an end: it is terminated when it is wanted no longer.
OPEN_END_US = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a circuit service offers.

    Attributes:
        capacity_bps: Of all circuits together; infinite where the question is what would be asked for.
        rate_bps: Of one circuit.
        setup_s: From the request until the data plane is up: reserve, commit and provision together.
        hold_s: How long a circuit that nobody uses stays for the next session of its pair.
    """

    capacity_bps: float
    rate_bps: float
    setup_s: float
    hold_s: float


@dataclass(slots=True, kw_only=True)
class Provider:
    """Grants what its capacity allows; the rest is blocked.

    `ask` gives a committed reservation whose data plane comes up when `on_setup` is called a setup time
    later, or `None`; `give_back` ends one.
    """

    terms: Terms
    reserved_bps: float = 0.0
    most_bps: float = 0.0
    blocked: int = 0
    granted: int = 0
    _open: set[int] = field(default_factory=set)

    def ask(self, now: int, *, pair: int) -> Reservation | None:
        """A circuit for a pair, or `None` where there is no room: reserve, check, hold, commit."""
        wanted = Reservation(pair=pair, rate_bps=self.terms.rate_bps, start_us=now, end_us=OPEN_END_US)
        wanted.reserve()
        # Sums of rates are exact to far less than a bit a second.
        room = self.reserved_bps + wanted.rate_bps <= self.terms.capacity_bps * (1 + 1e-12)
        wanted.on_checked(now, granted=room)
        if not room:
            self.blocked += 1
            wanted.abort()
            wanted.on_aborted()
            wanted.terminate()
            wanted.on_terminated()
            return None
        wanted.commit()
        wanted.on_committed()
        wanted.provision()
        self.granted += 1
        self.reserved_bps += wanted.rate_bps
        self.most_bps = max(self.most_bps, self.reserved_bps)
        self._open.add(id(wanted))
        return wanted

    def on_setup(self, reservation: Reservation) -> None:
        """The setup time of a reservation is over."""
        reservation.on_provisioned()

    def give_back(self, reservation: Reservation) -> None:
        """The requester wants a provisioned circuit no longer."""
        self._open.remove(id(reservation))
        reservation.release()
        reservation.on_released()
        reservation.terminate()
        reservation.on_terminated()
        self.reserved_bps -= reservation.rate_bps
        self._check()

    def _check(self) -> None:
        assert self.reserved_bps > -1.0, "capacity was given back twice"
        assert bool(self._open) or abs(self.reserved_bps) < 1.0, "capacity is reserved by nobody"
