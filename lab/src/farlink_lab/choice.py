"""What a transfer may choose: congestion control, streams, buffer, block; and what it is asked to do."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from farlink_lab.error import LabError
from farlink_lab.movers import MOVERS
from farlink_lab.movers.command import leaves_congestion, leaves_streams, protection_asked
from farlink_lab.quantity import MOST_RTT_S, show_rate, show_size, show_time, write_rate, write_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from farlink_lab.plan import Configuration
    from farlink_lab.records import Record

Array = NDArray[np.float64]

# Amounts that differ by less are one: tools that measure their own time end some milliseconds beside it.
AMOUNT_TOLERANCE = 0.05
# Bytes of a write where nobody says otherwise: `farlink memory`'s, and iperf3's over TCP.
USUAL_BLOCK_BYTES = {"farlink": 1 << 20, "iperf3": 128 << 10}
# What a name says of streams, and of the congestion control, where the path decides.
AUTO = "auto"
# What moves our files.
COPY = "farlink copy"
# As `farlink copy --protect` has what records call so.
_PROTECT = {"clear": "clear", "integrity": "integrity", "encrypted": "encrypt"}
# With what the rest of these movers' commands begins, after their options.
_AFTER_OPTIONS = {
    "globus-url-copy": ("-p", "-tcp-bs", "file:"),
    "rsync": ("--sockopts=", "source"),
}


class ChoiceError(LabError):
    """A way to carry out a transfer, or a task, that there cannot be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One way to carry out a transfer.

    Attributes:
        tool: The mover.
        congestion: Congestion control; `None` is the host's default, `AUTO` leaves it to the sender to
            choose by the path.
        streams: Parallel streams; `None` leaves it to the path how many.
        buffer_bytes: Socket buffer at both ends; `None` leaves it to the kernel.
        block_bytes: Bytes of a write; `None` where unknown.
        declared_bps: The wire's rate that is held; `None` searches for one.
        kind: `memory` or `file`: what it moves.
        protection: Of files' data, as records have it; `None` where unknown, and of memory, which is in the
            clear.
        options: What else the mover was told, as a shell would have it.
        template: Of any command: the client's template, and the server's after a bar.
        streams_seen: Where the path decides, how many there were: RTTs (s), growing, each with a number. That
            is what was measured, and tells no choices apart.
        congestion_seen: Likewise where the sender chooses by the path, which congestion controls there were:
            RTTs (s), growing, each with the most frequent.

    Raises:
        ChoiceError: where a number is not above 0.
    """

    tool: str
    congestion: str | None
    streams: int | None
    buffer_bytes: int | None
    block_bytes: int | None = None
    declared_bps: int | None = None
    kind: str = "memory"
    protection: str | None = None
    options: str = ""
    template: str = ""
    streams_seen: tuple[tuple[float, float], ...] = field(default=(), compare=False)
    congestion_seen: tuple[tuple[float, str | None], ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        for name in ("streams", "buffer_bytes", "block_bytes", "declared_bps"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ChoiceError(f"{name} of {value:g}: it must be finite and above 0")

    @property
    def mover(self) -> str:
        """What moves it, for a person."""
        return mover_of(self.tool, self.kind)

    @property
    def control(self) -> tuple[str, str]:
        """What tells configurations apart whose runs say less of each other.

        The mover, with what it was told that is no number, and the congestion control.
        """
        told = (self.tool, self.kind, self.protection or "", self.options, self.template)
        return " ".join(word for word in told if word), self.congestion or ""

    @property
    def usual_block(self) -> bool:
        """Whether its block is the mover's usual one, or unknown."""
        return self.block_bytes is None or self.block_bytes == USUAL_BLOCK_BYTES.get(self.tool)

    @property
    def block_doublings(self) -> float:
        """By how many doublings its block is larger than the mover's usual one; 0 where it is unknown."""
        usual = USUAL_BLOCK_BYTES.get(self.tool, USUAL_BLOCK_BYTES["farlink"])
        return 0.0 if self.block_bytes is None else math.log2(self.block_bytes / usual)

    @property
    def streams_shown(self) -> str:
        """How many streams, for a person: `10`, or `auto`."""
        return AUTO if self.streams is None else str(self.streams)

    def streams_at(self, rtt_s: float) -> float:
        """Streams at an RTT (s); where the path decides as `streams_seen` tells, and 1 where nothing does."""
        if self.streams is not None:
            return self.streams
        if not self.streams_seen:
            return 1
        seen = np.array(self.streams_seen)
        return float(streams_between(rtt_s, seen[:, 0], seen[:, 1]))

    def congestion_at(self, rtt_s: float) -> str | None:
        """Congestion control at an RTT (s); where the path decides that of the nearest RTT with runs."""
        if self.congestion != AUTO:
            return self.congestion
        rtts, names = zip(*self.congestion_seen, strict=True) if self.congestion_seen else ((rtt_s,), (None,))
        return congestion_near(rtt_s, rtts, names)

    @property
    def is_left_to_the_path(self) -> bool:
        """Whether the path decides how many streams there are, or which congestion control."""
        return self.streams is None or self.congestion == AUTO

    @property
    def name(self) -> str:
        """For a person: `cubic ×10, full buffers`."""
        control = self.congestion or "the host's congestion control"
        if self.declared_bps is not None:
            control += f" at {show_rate(self.declared_bps)}"
        buffer = "full buffers" if self.buffer_bytes is None else f"buffers of {show_size(self.buffer_bytes)}"
        said = f"{control} ×{self.streams_shown}, {buffer}"
        if not self.usual_block:
            said += f", blocks of {show_size(self.block_bytes or 0)}"
        who = f"{self.mover} {self.options}".rstrip()
        who += f" ({self.template})" if self.template else ""
        if self.mover == COPY and self.protection is not None:
            who += f", {self.protection}"
        return said if who == "farlink" else f"{who}: {said}"

    @property
    def flags(self) -> str:
        """What `farlink memory`, or for files `farlink copy`, is given for it."""
        # A copy chooses by itself where nobody says how it is to send.
        by_itself = self.congestion == AUTO and self.mover == COPY and self.buffer_bytes is None
        named = self.congestion is not None and not by_itself
        flags = [f"--congestion {self.congestion}"] if named else []
        if self.declared_bps is not None:
            flags = [f"--circuit {write_rate(self.declared_bps)}"]
        if self.streams is not None:
            flags.append(f"--streams {self.streams}")
        if self.buffer_bytes is not None:
            flags.append(f"--buffer {write_size(self.buffer_bytes)}")
        if self.kind == "memory" and self.block_bytes not in (None, USUAL_BLOCK_BYTES["farlink"]):
            flags.append(f"--block {write_size(self.block_bytes)}")
        if self.mover == COPY and self.protection in _PROTECT:
            flags.append(f"--protect {_PROTECT[self.protection]}")
        return " ".join(flags)


# What `farlink memory` takes, as crates/wire bounds it: bytes, and seconds.
_TASKS = {"size": (1, 10**15), "duration": (0.01, 86_400)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a transfer is asked to do: bytes to move (mode `size`) or seconds to move for (`duration`).

    Raises:
        ChoiceError: where that is not finite or not above 0.
    """

    mode: Literal["size", "duration"]
    amount: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.amount) and self.amount > 0):
            unit = "bytes" if self.mode == "size" else "seconds"
            raise ChoiceError(f"{self.amount:g} {unit} are nothing to do: it must be finite and above 0")

    @property
    def shown(self) -> str:
        """For a person: `50 GB` or `10 s`."""
        return show_size(self.amount) if self.mode == "size" else show_time(self.amount)

    @property
    def flags(self) -> str:
        """What `farlink memory` is given for it; empty where it takes no such task."""
        least, most = _TASKS[self.mode]
        if not least <= self.amount <= most:
            return ""
        if self.mode == "size":
            return f"--bytes {write_size(max(round(self.amount), 1))}"
        return f"--seconds {self.amount:.12g}"

    def is_of(self, record: Record) -> bool:
        """Whether `record` did just this."""
        return record.mode == self.mode and abs(record.amount / self.amount - 1) <= AMOUNT_TOLERANCE

    def done_by(self, record: Record) -> Task | None:
        """What `record` did, as a task of this mode: so many bytes, or for so long; `None` where nothing.

        Runs that were to do the same did exactly the same here.
        """
        if not record.bytes:
            return None
        if self.is_of(record):
            return self
        if record.mode == self.mode:
            amount = record.amount
        else:
            amount = float(record.bytes) if self.mode == "size" else record.duration_s or 0.0
        return Task(mode=self.mode, amount=amount) if math.isfinite(amount) and amount > 0 else None

    def doublings(self, other: Task) -> float:
        """log2 of how many times as much another task of this mode is."""
        return math.log2(other.amount / self.amount)


def mover_of(tool: str, kind: str) -> str:
    """What moves a kind of data, for a person: `farlink` from memory to memory, files `farlink copy`."""
    return COPY if (tool, kind) == ("farlink", "file") else tool


def mover_word(mover: str) -> str:
    """A mover as `--mover` names it: one word, as no other mover is called so."""
    return mover.removeprefix("farlink ")


def streams_between(rtt_s: ArrayLike, seen_s: ArrayLike, streams: ArrayLike) -> Array:
    """Streams at any RTTs (s) by those at some: in proportion between them, as the nearest beyond them.

    Args:
        rtt_s: Any shape, at least 0.
        seen_s: Shape (k,), growing.
        streams: Shape (k,), above 0.

    Returns:
        Of the shape of `rtt_s`.
    """
    # At no RTT at all there is no logarithm.
    least = np.finfo(np.float64).tiny
    at, seen = (np.log(np.maximum(rtts, least)) for rtts in (rtt_s, seen_s))
    return np.exp(np.interp(at, seen, np.log(streams)))


def congestion_near(rtt_s: float, seen_s: Sequence[float] | Array, names: Sequence[str | None]) -> str | None:
    """Which of the congestion controls that were seen at `seen_s` is that at an RTT (s): the nearest's."""
    least = np.finfo(np.float64).tiny
    away = np.abs(np.log(np.maximum(seen_s, least)) - np.log(max(rtt_s, least)))
    return names[int(np.argmin(away))]


def usual_congestion(records: Iterable[Record]) -> str | None:
    """The most frequent congestion control of some runs; of several the one that comes first."""
    ((name, _),) = Counter(record.congestion for record in records).most_common(1)
    return name


def choice_of(record: Record) -> Choice:
    """What the transfer of `record` chose.

    Raises:
        ChoiceError: where it says what cannot be: `unusable` says why beforehand.
    """
    block, declared = (_whole(record, key) for key in ("block_bytes", "declared_bps"))
    options, template = _told(record)
    return Choice(
        tool=record.tool,
        congestion=AUTO if record.congestion_chosen else record.congestion,
        streams=None if record.streams_chosen else record.streams or 1,
        buffer_bytes=record.buffer_bytes,
        block_bytes=block if block is not None and block > 0 else None,
        declared_bps=declared,
        kind=record.kind,
        protection=_protection(record),
        options=options,
        template=template,
    )


def unusable(record: Record) -> str:
    """Why no choice can be made of what `record` says, for a person; empty where one can."""
    loss = record.fields.get("loss")
    if record.limit_bps is not None:
        return "a --limit that held them to a rate"
    if record.rtt_s is not None and not 0 < record.rtt_s <= MOST_RTT_S:
        return f"an RTT of {record.rtt_s:g} s"
    if record.buffer_bytes == 0:
        return "a buffer of 0 bytes"
    declared = _whole(record, "declared_bps")
    if declared is not None and declared <= 0:
        return f"a declared rate of {declared}"
    if isinstance(loss, int | float) and not 0 <= loss < 1:
        return f"a loss of {loss:g}, which is no share"
    return ""


def choice_asked(configuration: Configuration) -> Choice:
    """What a configuration of a plan asks for: the choice that its records will show."""
    files = MOVERS[configuration.mover].moves_files(configuration)
    return Choice(
        tool=configuration.tool,
        congestion=AUTO if leaves_congestion(configuration) else configuration.congestion,
        streams=None if leaves_streams(configuration) else configuration.streams,
        buffer_bytes=configuration.buffer_bytes,
        block_bytes=configuration.block_bytes or USUAL_BLOCK_BYTES.get(configuration.mover),
        declared_bps=configuration.declared_bps,
        kind="file" if files else "memory",
        protection=protection_asked(configuration) if files else None,
        options=_words(configuration.options),
        template=_both(configuration.command, configuration.server),
    )


def task_of(configuration: Configuration) -> Task:
    """What a configuration of a plan does."""
    if configuration.size_bytes is not None:
        return Task(mode="size", amount=float(configuration.size_bytes))
    return Task(mode="duration", amount=configuration.duration_s or 0.0)


def _whole(record: Record, key: str) -> int | None:
    value = record.fields.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _protection(record: Record) -> str | None:
    value = record.fields.get("protection")
    return value if record.kind != "memory" and isinstance(value, str) else None


def _told(record: Record) -> tuple[str, str]:
    """Options and template, as the lab noted them.

    Where it did not yet, options are in the command, and what tells commands apart is their label.
    """
    lab = record.fields.get("lab")
    if not isinstance(lab, dict):
        return "", ""
    template, server, options = (
        word if isinstance(word := lab.get(key), str) else None for key in ("template", "server", "options")
    )
    if template is None and record.tool not in MOVERS:
        template = record.label
    if options is None:
        options = _options_in(str(lab.get("command", "")), tool=record.tool)
    return _words(options), _both(template, server)


def _options_in(command: str, *, tool: str) -> str:
    ends = _AFTER_OPTIONS.get(tool)
    try:
        words = shlex.split(command)
    except ValueError:
        return ""
    if ends is None or tool not in words:
        return ""
    own = words[words.index(tool) + 1 :]
    last = next((place for place, word in enumerate(own) if _ends_options(word, ends)), len(own))
    return shlex.join(own[:last])


def _ends_options(word: str, ends: tuple[str, ...]) -> bool:
    return any(word.startswith(end) if end[-1] in ":=" else word == end for end in ends)


def _words(options: str) -> str:
    """One spelling of a command line's words; as they stand where they are none."""
    try:
        return shlex.join(shlex.split(options))
    except ValueError:
        return options


def _both(template: str | None, server: str | None) -> str:
    return " | ".join(each for each in (template, server) if each)
