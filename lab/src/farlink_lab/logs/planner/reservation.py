"""A reservation of a circuit: the three machines of NSI's connection service, version 2 (GFD.212).

Pure: what happens is a call with its time, microseconds, and an answer that the states do not allow is an
error. The order of a life is `reserve`, `on_checked`, `commit`, `on_committed`, `provision`,
`on_provisioned`, …, `release`, `on_released`, `terminate`, `on_terminated`; `on_time` may come at any time.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Reserving(Enum):
    """The reservation machine: two phases, checked and held, then committed or not."""

    START = "ReserveStart"
    CHECKING = "ReserveChecking"
    HELD = "ReserveHeld"
    COMMITTING = "ReserveCommitting"
    FAILED = "ReserveFailed"
    TIMEOUT = "ReserveTimeout"
    ABORTING = "ReserveAborting"


class Provisioning(Enum):
    """The provision machine: whether the data plane is asked for."""

    RELEASED = "Released"
    PROVISIONING = "Provisioning"
    PROVISIONED = "Provisioned"
    RELEASING = "Releasing"


class Life(Enum):
    """The lifecycle machine."""

    CREATED = "Created"
    FAILED = "Failed"
    PASSED_END_TIME = "PassedEndTime"
    TERMINATING = "Terminating"
    TERMINATED = "Terminated"


class OutOfTurnError(RuntimeError):
    """A message that the state does not allow: a fault of whoever drives the machine."""


# OpenNSA's; a reservation that is held and not committed within it is given back.
HOLD_TIMEOUT_US = 120_000_000


@dataclass(slots=True, kw_only=True)
class Reservation:
    """One reservation of `rate_bps` from `start_us` until `end_us`, between the two ends of `pair`."""

    pair: int
    rate_bps: float
    start_us: int
    end_us: int
    hold_timeout_us: int = HOLD_TIMEOUT_US
    reserving: Reserving = Reserving.START
    provisioning: Provisioning = Provisioning.RELEASED
    life: Life = Life.CREATED
    committed: bool = False
    held_us: int | None = None

    def reserve(self) -> None:
        """The requester asks."""
        self._need(self.reserving is Reserving.START and self.life is Life.CREATED, "reserve")
        self.reserving = Reserving.CHECKING

    def on_checked(self, now: int, *, granted: bool) -> None:
        """The provider has looked whether there is room: held, or failed."""
        self._need(self.reserving is Reserving.CHECKING, "on_checked")
        self.reserving = Reserving.HELD if granted else Reserving.FAILED
        self.held_us = now if granted else None

    def commit(self) -> None:
        """The requester takes what is held."""
        self._need(self.reserving is Reserving.HELD, "commit")
        self.reserving = Reserving.COMMITTING

    def on_committed(self) -> None:
        """The provider has made it so."""
        self._need(self.reserving is Reserving.COMMITTING, "on_committed")
        self.reserving, self.committed, self.held_us = Reserving.START, True, None

    def abort(self) -> None:
        """The requester lets go of what is held, failed or timed out."""
        self._need(self.reserving in (Reserving.HELD, Reserving.FAILED, Reserving.TIMEOUT), "abort")
        self.reserving, self.held_us = Reserving.ABORTING, None

    def on_aborted(self) -> None:
        """The provider has let go."""
        self._need(self.reserving is Reserving.ABORTING, "on_aborted")
        self.reserving = Reserving.START

    def provision(self) -> None:
        """The requester wants the data plane."""
        self._need(self.committed and self.provisioning is Provisioning.RELEASED and self._alive, "provision")
        self.provisioning = Provisioning.PROVISIONING

    def on_provisioned(self) -> None:
        """It is there."""
        self._need(self.provisioning is Provisioning.PROVISIONING, "on_provisioned")
        self.provisioning = Provisioning.PROVISIONED

    def release(self) -> None:
        """The requester wants it no longer."""
        self._need(self.provisioning is Provisioning.PROVISIONED, "release")
        self.provisioning = Provisioning.RELEASING

    def on_released(self) -> None:
        """It is gone; the reservation stands."""
        self._need(self.provisioning is Provisioning.RELEASING, "on_released")
        self.provisioning = Provisioning.RELEASED

    def terminate(self) -> None:
        """The requester ends the reservation."""
        self._need(self.life in (Life.CREATED, Life.FAILED, Life.PASSED_END_TIME), "terminate")
        self.life = Life.TERMINATING

    def on_terminated(self) -> None:
        """The provider has ended it."""
        self._need(self.life is Life.TERMINATING, "on_terminated")
        self.life = Life.TERMINATED

    def on_time(self, now: int) -> None:
        """What time alone does: a hold runs out, a reservation passes its end."""
        deadline = None if self.held_us is None else self.held_us + self.hold_timeout_us
        if self.reserving is Reserving.HELD and deadline is not None and now >= deadline:
            self.reserving, self.held_us = Reserving.TIMEOUT, None
        if self._alive and self.committed and now >= self.end_us:
            self.life = Life.PASSED_END_TIME

    def is_up(self, now: int) -> bool:
        """Whether the data plane carries anything: provisioned, and within the reserved time."""
        provisioned = self.provisioning is Provisioning.PROVISIONED
        return provisioned and self._alive and self.start_us <= now < self.end_us

    @property
    def _alive(self) -> bool:
        return self.life is Life.CREATED

    def _need(self, allowed: bool, message: str) -> None:  # noqa: FBT001
        if not allowed:
            raise OutOfTurnError(
                f"{message} in {self.reserving.value}, {self.provisioning.value}, {self.life.value}"
            )
