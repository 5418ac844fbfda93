"""What a transfer may choose: congestion control, streams, buffer, block; and what it is asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from farlink_lab.quantity import show_rate, show_size, show_time

if TYPE_CHECKING:
    from farlink_lab.plan import Configuration
    from farlink_lab.records import Record

# Amounts that differ by less are one: tools that measure their own time end some milliseconds beside it.
AMOUNT_TOLERANCE = 0.05
# What `farlink memory` writes at a time where nobody says otherwise.
USUAL_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One way to carry out a transfer.

    Attributes:
        tool: The mover.
        congestion: Congestion control; `None` is the host's default.
        streams: Parallel streams.
        buffer_bytes: Socket buffer at both ends; `None` leaves it to the kernel.
        block_bytes: Bytes of a write; `None` where unknown.
        declared_bps: The wire's rate that is held; `None` searches for one.
        kind: `memory` or `file`: what it moves.
    """

    tool: str
    congestion: str | None
    streams: int
    buffer_bytes: int | None
    block_bytes: int | None = None
    declared_bps: int | None = None
    kind: str = "memory"

    @property
    def mover(self) -> str:
        """What moves it, for a person."""
        return "farlink copy" if (self.tool, self.kind) == ("farlink", "file") else self.tool

    @property
    def control(self) -> tuple[str, str]:
        """What tells configurations apart whose runs say less of each other: mover and congestion control."""
        return f"{self.tool} {self.kind}", self.congestion or ""

    @property
    def name(self) -> str:
        """For a person: `cubic ×10, full buffers`."""
        control = self.congestion or "the host's congestion control"
        if self.declared_bps is not None:
            control += f" at {show_rate(self.declared_bps)}"
        buffer = "full buffers" if self.buffer_bytes is None else f"buffers of {show_size(self.buffer_bytes)}"
        block = self.block_bytes
        said = f"{control} ×{self.streams}, {buffer}"
        if block not in (None, USUAL_BLOCK_BYTES):
            said += f", blocks of {show_size(block or 0)}"
        return said if self.mover == "farlink" else f"{self.mover}: {said}"

    @property
    def flags(self) -> str:
        """What `farlink memory`, or for files `farlink copy`, is given for it."""
        flags = [] if self.congestion is None else [f"--congestion {self.congestion}"]
        if self.declared_bps is not None:
            flags = [f"--circuit {self.declared_bps}bit"]
        flags.append(f"--streams {self.streams}")
        if self.buffer_bytes is not None:
            flags.append(f"--buffer {self.buffer_bytes}B")
        if self.kind == "memory" and self.block_bytes not in (None, USUAL_BLOCK_BYTES):
            flags.append(f"--block {self.block_bytes}B")
        return " ".join(flags)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a transfer is asked to do: bytes to move (mode `size`) or seconds to move for (`duration`)."""

    mode: Literal["size", "duration"]
    amount: float

    @property
    def shown(self) -> str:
        """For a person: `50 GB` or `10 s`."""
        return show_size(self.amount) if self.mode == "size" else show_time(self.amount)

    def is_of(self, record: Record) -> bool:
        """Whether `record` did just this."""
        return record.mode == self.mode and abs(record.amount / self.amount - 1) <= AMOUNT_TOLERANCE


def choice_of(record: Record) -> Choice:
    """What the transfer of `record` chose."""
    block, declared = (record.fields.get(key) for key in ("block_bytes", "declared_bps"))
    return Choice(
        tool=record.tool,
        congestion=record.congestion,
        streams=record.streams or 1,
        buffer_bytes=record.buffer_bytes,
        block_bytes=block if isinstance(block, int) else None,
        declared_bps=declared if isinstance(declared, int) else None,
        kind=record.kind,
    )


def choice_asked(configuration: Configuration) -> Choice:
    """What a configuration of a plan asks for: the choice that its records will show."""
    return Choice(
        tool=configuration.tool,
        congestion=configuration.congestion,
        streams=configuration.streams,
        buffer_bytes=configuration.buffer_bytes,
        block_bytes=USUAL_BLOCK_BYTES if configuration.mover == "farlink" else None,
        declared_bps=configuration.declared_bps,
    )


def task_of(configuration: Configuration) -> Task:
    """What a configuration of a plan does."""
    if configuration.size_bytes is not None:
        return Task(mode="size", amount=float(configuration.size_bytes))
    return Task(mode="duration", amount=configuration.duration_s or 0.0)
