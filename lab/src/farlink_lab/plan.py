"""An experiment as data: a connection, the RTTs it takes, and the configurations measured over it."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass, fields, replace
from pathlib import PurePath
from typing import Any

from farlink_lab import model
from farlink_lab.quantity import show_size, show_time

# Of a configuration, and of a connection: what plans could not say at first.
_LATER_KEYS = ("interval_s", "options", "command", "server", "port", "ready", "queue", "block_bytes")
_LATER_OF_CONNECTION = ("background_on_off_s",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """The emulated connection: what `farlink emulate` is asked for.

    Attributes:
        rate_bps: The wire's rate, bits per second.
        queue: The bottleneck's queue as the command line takes it: a time at the rate or a size.
        framing: `ethernet`, `sonet` or `none`.
        mtu: Largest IP packet, bytes.
        loss: Segments that are lost, each direction, a share, or `every:N` as the command line takes it.
        background_bps: Rate of other traffic while it sends, bits per second.
        background_on_off_s: Mean length of the periods in which it sends, and of those in which it does not;
            `None` sends all the time.
        congestion: The hosts' default congestion control; `None` leaves the kernel's.
        seed: Seed of the emulation's random choices.
    """

    rate_bps: int = 10_000_000_000
    queue: str = "50ms"
    framing: str = "ethernet"
    mtu: int = 9000
    loss: float | str = 0.0
    background_bps: int | None = None
    background_on_off_s: float | None = None
    congestion: str | None = None
    seed: int = 1

    @property
    def loss_share(self) -> float:
        """The share of segments that are lost."""
        if isinstance(self.loss, str):
            return 1 / int(self.loss.removeprefix("every:"))
        return self.loss

    @property
    def goodput_bps(self) -> float:
        """The C of every formula: payload bits per second that the wire carries."""
        return model.goodput_bps(rate_bps=self.rate_bps, mtu=self.mtu, framing=self.framing)

    def matter(self) -> dict[str, Any]:
        """What makes a run over it differ from a run over another."""
        return {key: value for key, value in asdict(self).items() if value or key not in _LATER_OF_CONNECTION}


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """One way to move data, measured at every RTT.

    Attributes:
        label: Its name in figures and tables.
        mover: The tool, a key of `movers.MOVERS`.
        congestion: Congestion control; `None` takes the hosts' default.
        declared_bps: The wire's rate that is declared and held, bits per second; `None` searches for one.
        streams: Parallel transport connections.
        buffer_bytes: Socket buffer at both ends; `None` lets the kernel tune it ("full buffers").
        block_bytes: Bytes of a write; `None` takes the mover's usual.
        size_bytes: Bytes to move, of a fixed-size configuration.
        duration_s: Seconds to move for, of a fixed-duration configuration. Exactly one of the two is given.
        interval_s: Length of a sample; `None` takes the mover's.
        rtts_s: The RTTs of the plan that it is measured at; `None` is all of them.
        queue: The bottleneck's queue for it, as `Connection` has it; `None` is the connection's.
        options: More words for the client's command line, of movers that take some.
        command: The client's template, of mover `command`.
        server: Its server's template; `None` where it needs none.
        port: The port in both templates, and by which the server's readiness is seen unless `ready` is given.
        ready: How the line begins by which that server says that it listens.
    """

    label: str
    mover: str = "farlink"
    congestion: str | None = None
    declared_bps: int | None = None
    streams: int = 1
    buffer_bytes: int | None = None
    size_bytes: int | None = None
    duration_s: float | None = None
    interval_s: float | None = None
    rtts_s: tuple[float, ...] | None = None
    queue: str | None = None
    options: str = ""
    command: str | None = None
    server: str | None = None
    port: int | None = None
    ready: str | None = None
    block_bytes: int | None = None

    @property
    def tool(self) -> str:
        """What a record names as the tool: the mover, or the program that a command template begins with."""
        return PurePath(shlex.split(self.command)[0]).name if self.command else self.mover

    @property
    def mode(self) -> str:
        """`size` or `duration`: two kinds of profile that are never mixed."""
        return "size" if self.size_bytes is not None else "duration"

    @property
    def amount(self) -> str:
        """What ends a run, for a person: `2 GiB` or `10 s`."""
        return show_time(self.duration_s or 0.0) if self.size_bytes is None else show_size(self.size_bytes)

    def matter(self) -> dict[str, Any]:
        """What makes a run of it differ from others: everything but its name and where it is measured."""
        matter = {key: value for key, value in asdict(self).items() if key not in ("label", "rtts_s")}
        # Left out where they say nothing: the identities of runs rest on this, in campaigns of any age.
        return {key: value for key, value in matter.items() if value or key not in _LATER_KEYS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A campaign: every configuration at each of its RTTs, `repetitions` times."""

    name: str
    description: str = ""
    seed: int = 1
    repetitions: int = 1
    rtts_s: tuple[float, ...]
    connection: Connection
    configurations: tuple[Configuration, ...]

    @property
    def settings(self) -> list[tuple[float, Configuration]]:
        """What one repetition measures: every configuration at each of its RTTs."""
        return [
            (rtt, configuration)
            for rtt in self.rtts_s
            for configuration in self.configurations
            if configuration.rtts_s is None or rtt in configuration.rtts_s
        ]

    def differences(self, other: Plan) -> list[str]:
        """Names of what the two plans say differently, beyond the words for people."""
        ours, theirs = (replace(plan, description="") for plan in (self, other))
        return [
            field.name for field in fields(self) if getattr(ours, field.name) != getattr(theirs, field.name)
        ]
