"""Plans from TOML files, each refusal one line that names the key, the reason and the mend."""

from __future__ import annotations

import difflib
import itertools
import shlex
import string
import tomllib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from farlink_lab.choice import AUTO, USUAL_BLOCK_BYTES
from farlink_lab.error import LabError
from farlink_lab.movers import MOVERS
from farlink_lab.movers.command import leaves_congestion, leaves_streams
from farlink_lab.plan import Configuration, Connection, Plan
from farlink_lab.quantity import (
    QuantityError,
    parse_rate,
    parse_share,
    parse_size,
    parse_time,
    show_size,
    show_time,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

T = TypeVar("T")

FRAMINGS = ("ethernet", "sonet", "none")
# OC-192's payload: no other rate has SONET framing here.
SONET_BPS = 9_584_640_000
MOST_RTT_S = 10.0
MOST_DURATION_S = 3600.0
# As the mover's protocol bounds them.
MOST_STREAMS = 512
MOST_REPETITIONS = 1000
NO_LOSS: float | str = 0.0
NO_BACKGROUND: tuple[int, float | None] = (0, None)
# As `farlink memory` bounds its writes.
LEAST_BLOCK_BYTES, MOST_BLOCK_BYTES = 4 << 10, 64 << 20
# As `farlink memory` bounds its samples.
LEAST_INTERVAL_S, MOST_INTERVAL_S = 10e-3, 10.0
# Enough for any study by hand; more is a slip in a list.
MOST_RUNS = 100_000

_PLAN_KEYS = ("name", "description", "seed", "repetitions", "rtts", "connection", "configuration")
CONNECTION_KEYS = ("rate", "queue", "framing", "mtu", "loss", "background", "congestion", "seed")
_CONFIGURATION_KEYS = (
    "label",
    "mover",
    "congestion",
    "circuit",
    "streams",
    "buffer",
    "block",
    "bytes",
    "seconds",
    "interval",
    "rtts",
    "queue",
    "options",
    "command",
    "server",
    "port",
    "ready",
)
# Where keys belong that stand in another table, and how tables begin.
_PLACES = {
    "at the top of the plan": ("description", "repetitions", "rtts", "seed"),
    "in [connection]": CONNECTION_KEYS,
    "in a [[configuration]]": _CONFIGURATION_KEYS,
}
_BEGINNINGS = {"connection": "[connection]", "configuration": "[[configuration]]"}
_LISTED_KEYS = ("mover", "congestion", "streams", "buffer", "block", "bytes", "queue", "options")
# What only the movers named here take.
_KEYS_OF_MOVERS = {
    "block": ("farlink",),
    "options": ("globus-url-copy", "rsync"),
    **dict.fromkeys(("command", "server", "port", "ready"), ("command",)),
}

# What the help shows of a plan, and the guide.
EXAMPLE = """\
rtts = ["1ms", "50ms", "200ms"]
repetitions = 3

[connection]
rate = "10gbit"

[[configuration]]
congestion = ["cubic", "bbr"]
streams = [1, 4]
bytes = "1GB"
"""


class PlanError(LabError):
    """A plan that cannot be carried out as written."""


def read_plan(path: Path) -> Plan:
    """The plan in the file at `path`.

    Raises:
        PlanError: one line with the file, the key, the reason and the mend.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise PlanError(
            f"plan {path}: {reason}: name a TOML file: 'farlink lab profile --help' shows one"
        ) from error
    try:
        return parse_plan(text, name=path.stem)
    except PlanError as error:
        raise PlanError(f"plan {path}: {error}") from error


def parse_plan(text: str, *, name: str) -> Plan:
    """The plan that the TOML `text` says; `name` where it does not name itself.

    Raises:
        PlanError: one line with the key, the reason and the mend.
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PlanError(f"not TOML: {str(error).splitlines()[0]}") from error
    top = _Table(data, keys=_PLAN_KEYS, where="")
    seed = top.whole("seed", default=1, least=0, most=2**63 - 1)
    rtts = _rtts(top)
    configurations = _configurations(top, rtts=rtts)
    plan = Plan(
        name=top.text("name", default=name),
        description=top.text("description", default=""),
        seed=seed,
        repetitions=top.whole("repetitions", default=1, least=1, most=MOST_REPETITIONS),
        rtts_s=rtts,
        connection=_connection(top, seed=seed),
        configurations=configurations,
    )
    runs = len(plan.settings) * plan.repetitions
    if runs > MOST_RUNS:
        raise PlanError(
            f"{runs} runs: at most {MOST_RUNS}; measure fewer RTTs, configurations or repetitions"
        )
    return plan


class _Table:
    """A TOML table whose every key is known and read by its type."""

    def __init__(self, data: Mapping[str, Any], *, keys: tuple[str, ...], where: str) -> None:
        self.data, self.where = data, where
        for key in data:
            if key not in keys:
                raise PlanError(f"unknown key {self.path(key)}: {_mend(key, keys)}")

    def path(self, key: str) -> str:
        return f"{self.where}.{key}" if self.where else key

    def quantity(self, key: str, parse: Callable[[str], T], *, default: T) -> T:
        if key not in self.data:
            return default
        value = self.data[key]
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, str):
            raise PlanError(f"{self.path(key)}: {_shown(value)} is not a text in quotes")
        try:
            return parse(value)
        except QuantityError as error:
            raise PlanError(f"{self.path(key)}: {error}") from error

    def text(self, key: str, *, default: str) -> str:
        value = self.data.get(key, default)
        if not isinstance(value, str) or (key in self.data and not value.strip()):
            raise PlanError(
                f'{self.path(key)}: {_shown(value)} is not a text: write it in quotes, as in "demo"'
            )
        return value

    def word(self, key: str) -> str | None:
        if key not in self.data:
            return None
        value = self.text(key, default="")
        if not all(letter.isalnum() or letter in "_-" for letter in value):
            raise PlanError(
                f'{self.path(key)}: {_shown(value)} is not a name as the kernel has them, as in "cubic"'
            )
        return value

    def whole(self, key: str, *, default: int, least: int, most: int) -> int:
        value = self.data.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise PlanError(f"{self.path(key)}: {_shown(value)} is not a whole number from {least} to {most}")
        return value


def _mend(key: str, keys: tuple[str, ...]) -> str:
    """Where a key belongs that a table does not know, or which it may be a slip for."""
    near = difflib.get_close_matches(key, keys, n=1)
    for name, begun in _BEGINNINGS.items():
        if near == [name]:
            return f"write {begun}"
    meant = "rtts" if key == "rtt" and "rtts" not in keys else key
    places = [place for place, known in _PLACES.items() if meant in known]
    if meant not in keys and places:
        return f"{meant} belongs {' or '.join(places[:1] if meant == 'rtts' else places)}"
    return f"did you mean {near[0]}?" if near else f"known are {', '.join(keys)}"


def _rtts(top: _Table) -> tuple[float, ...]:
    value = top.data.get("rtts")
    if not isinstance(value, list) or not value:
        raise PlanError('rtts: at least one is needed, as in rtts = ["0.4ms", "91.6ms"]')
    rtts = []
    for index, text in enumerate(value):
        rtt = _Table({"rtt": text}, keys=("rtt",), where="").quantity
        try:
            rtts.append(rtt("rtt", parse_time, default=0.0))
        except PlanError as error:
            raise PlanError(str(error).replace("rtt:", f"rtts[{index}]:", 1)) from error
        if not 0 < rtts[-1] <= MOST_RTT_S:
            raise PlanError(f"rtts[{index}]: {_shown(text)} is not an RTT: more than 0 and at most 10s")
    twice = next((rtt for rtt in rtts if rtts.count(rtt) > 1), None)
    if twice is not None:
        raise PlanError(f"rtts: {show_time(twice)} stands twice: name it once, repetitions measure it again")
    return tuple(rtts)


def _connection(top: _Table, *, seed: int) -> Connection:
    data = top.data.get("connection", {})
    if not isinstance(data, dict):
        raise PlanError("connection: not a table: begin it with [connection]")
    table = _Table(data, keys=CONNECTION_KEYS, where="connection")
    framing = table.text("framing", default="ethernet")
    if framing not in FRAMINGS:
        raise PlanError(f"connection.framing: {_shown(framing)} is none of {', '.join(FRAMINGS)}")
    rate = table.quantity("rate", parse_rate, default=SONET_BPS if framing == "sonet" else 10_000_000_000)
    if framing == "sonet" and rate != SONET_BPS:
        raise PlanError(
            "connection.rate: sonet means OC-192, which carries 9.58464gbit and no other rate: leave it out"
        )
    background, on_off_s = table.quantity("background", _background, default=NO_BACKGROUND)
    if background >= rate:
        raise PlanError(
            "connection.background: other traffic takes the whole rate: make it less than connection.rate"
        )
    if isinstance(data.get("queue"), list):
        raise PlanError(
            "connection.queue: a connection has one: write the list as queue of a [[configuration]]"
        )
    return Connection(
        rate_bps=rate,
        queue=table.quantity("queue", _queue, default="50ms"),
        framing=framing,
        # IPv6's least (RFC 8200) and the largest IP packet.
        mtu=table.whole("mtu", default=9000, least=1280, most=65535),
        loss=table.quantity("loss", _loss, default=NO_LOSS),
        background_bps=background or None,
        background_on_off_s=on_off_s,
        congestion=table.word("congestion"),
        seed=table.whole("seed", default=seed, least=0, most=2**63 - 1),
    )


def _queue(text: str) -> str:
    """A queue limit as the command line takes it: nanoseconds or bytes."""
    try:
        seconds = parse_time(text)
    except QuantityError:
        try:
            return f"{parse_size(text)}B"
        except QuantityError as error:
            raise QuantityError(
                f"{error}; a queue is a time at the rate or a size, as in 50ms or 62.5MB"
            ) from error
    if seconds == 0:
        raise QuantityError(f'"{text}" is zero: a queue holds at least one packet, as in 50ms or 62.5MB')
    return f"{round(seconds * 1e9)}ns"


def _loss(text: str) -> float | str:
    """Segments that are lost: a share, or every which one as the command line takes it."""
    word, colon, count = text.partition(":")
    if not colon:
        return parse_share(text)
    if word != "every" or not count.isdecimal() or int(count) == 0:
        raise QuantityError(
            f'"{text}" is not a loss: write a share, as in 1%, or one segment of a number, as in every:12000'
        )
    return f"every:{int(count)}"


def _background(text: str) -> tuple[int, float | None]:
    """Other traffic: its rate while it sends, and the mean length of its periods where it does not always."""
    rate, comma, shape = text.partition(",")
    if text == "none":
        return NO_BACKGROUND
    if not comma:
        return parse_rate(text), None
    word, _, period = shape.partition(":")
    if word != "on-off" or not (seconds := parse_time(period)):
        raise QuantityError(
            f'"{text}" is no background load: write 3gbit, or 3gbit,on-off:100ms (mean length of the periods)'
        )
    return parse_rate(rate), seconds


def _configurations(top: _Table, *, rtts: tuple[float, ...]) -> tuple[Configuration, ...]:
    tables = top.data.get("configuration")
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        raise PlanError("configuration: at least one is needed: begin each with [[configuration]]")
    found: list[Configuration] = []
    for index, data in enumerate(tables):
        where = f"configuration[{index}]"
        _Table(data, keys=_CONFIGURATION_KEYS, where=where)
        among = _among(data, rtts, where=where)
        for combination in _combinations(data, where=where):
            found.append(replace(_configuration(combination, where=where), rtts_s=among))
            _refuse_double(found, where=where)
    return tuple(found)


def _among(data: Mapping[str, Any], rtts: tuple[float, ...], *, where: str) -> tuple[float, ...] | None:
    """The RTTs of the plan that a configuration names for itself, where it does."""
    if "rtts" not in data:
        return None
    try:
        named = _rtts(_Table({"rtts": data["rtts"]}, keys=("rtts",), where=""))
    except PlanError as error:
        raise PlanError(f"{where}.{error}") from error
    for rtt in named:
        if rtt not in rtts:
            known = ", ".join(map(show_time, rtts))
            raise PlanError(
                f"{where}.rtts: {show_time(rtt)} is none of the plan's rtts, {known}: add it there"
            )
    return named


def _combinations(data: Mapping[str, Any], *, where: str) -> list[dict[str, Any]]:
    """Every combination of the values in lists: three movers by two buffers are six configurations."""
    listed = {key: data[key] for key in _LISTED_KEYS if isinstance(data.get(key), list)}
    for key, values in listed.items():
        if not values:
            raise PlanError(f"{where}.{key}: an empty list: name at least one")
    return [
        {**data, **dict(zip(listed, values, strict=True))} for values in itertools.product(*listed.values())
    ]


def _configuration(data: Mapping[str, Any], *, where: str) -> Configuration:
    table = _Table(data, keys=_CONFIGURATION_KEYS, where=where)
    mover = table.text("mover", default="command" if "command" in data else "farlink")
    if mover not in MOVERS:
        raise PlanError(f"{where}.mover: {_shown(mover)} is none of {', '.join(MOVERS)}")
    for key, takers in _KEYS_OF_MOVERS.items():
        if key in data and mover not in takers:
            raise PlanError(f"{where}.{key}: {mover} takes none, only {' and '.join(takers)}: leave it out")
    if ("bytes" in data) == ("seconds" in data):
        raise PlanError(f'{where}: give one of bytes (as in "2GiB") and seconds (as in 10)')
    configuration = Configuration(
        label="",
        mover=mover,
        congestion=_congestion(table),
        declared_bps=table.quantity("circuit", parse_rate, default=None),
        streams=table.whole("streams", default=1, least=1, most=MOST_STREAMS),
        buffer_bytes=table.quantity("buffer", _buffer, default=None),
        block_bytes=table.quantity("block", _block, default=None),
        queue=table.quantity("queue", _queue, default=None),
        size_bytes=table.quantity("bytes", _bytes, default=None),
        duration_s=_seconds(table),
        options=_options(table),
        command=_words(table, "command"),
        server=_words(table, "server"),
        port=table.whole("port", default=0, least=1, most=65535) if "port" in data else None,
        ready=table.text("ready", default="") or None,
        interval_s=_interval(table, mover=mover),
    )
    reason = MOVERS[mover].refusal(configuration)
    if reason:
        raise PlanError(f"{where}: {reason}")
    return Configuration(label=_label(table, configuration), **configuration.matter())


def _congestion(table: _Table) -> str | None:
    named = table.word("congestion")
    if "circuit" not in table.data:
        return named
    if named is not None:
        raise PlanError(f"{table.path('circuit')}: it is a congestion control: leave congestion out")
    return "circuit"


def _seconds(table: _Table) -> float | None:
    if "seconds" not in table.data:
        return None
    value = table.data["seconds"]
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= MOST_DURATION_S
    if not good:
        raise PlanError(
            f"{table.path('seconds')}: {_shown(value)} is not a number above 0 and up to 3600, as in 10"
        )
    return float(value)


def _options(table: _Table) -> str:
    # In a list, "" is the mover without options.
    return "" if table.data.get("options") == "" else _words(table, "options") or ""


def _words(table: _Table, key: str) -> str | None:
    """A text that splits into words as a shell would split it."""
    if key not in table.data:
        return None
    text = table.text(key, default="")
    try:
        shlex.split(text)
    except ValueError as error:
        raise PlanError(f"{table.path(key)}: {_shown(text)}: {str(error).lower()}: close it") from error
    return text


def _interval(table: _Table, *, mover: str) -> float | None:
    found: float | None = table.quantity("interval", parse_time, default=None)
    if found is None:
        return None
    if mover != "farlink":
        raise PlanError(f"{table.path('interval')}: only farlink's samples can be chosen: leave it out")
    if not LEAST_INTERVAL_S <= found <= MOST_INTERVAL_S:
        raise PlanError(
            f"{table.path('interval')}: {_shown(table.data['interval'])} is not a time from 10ms to 10s"
        )
    return found


def _bytes(text: str) -> int | None:
    """A size; the key names its unit, so that a bare number is no guess."""
    return parse_size(f"{text}B" if text.isdigit() else text)


def _buffer(text: str) -> int | None:
    return None if text == "auto" else parse_size(text)


def _block(text: str) -> int | None:
    """Bytes of a write; the usual ones, however they are named, are one configuration."""
    if text == "auto":
        return None
    size = parse_size(text)
    if not LEAST_BLOCK_BYTES <= size <= MOST_BLOCK_BYTES:
        raise QuantityError(f'"{text}" is no block: at least 4KiB and at most 64MiB, as in 1MiB')
    return None if size == USUAL_BLOCK_BYTES["farlink"] else size


def _label(table: _Table, configuration: Configuration) -> str:
    words = {
        "mover": configuration.tool,
        "congestion": _control(configuration),
        "streams": AUTO if leaves_streams(configuration) else configuration.streams,
        "buffer": "full buffers"
        if configuration.buffer_bytes is None
        else show_size(configuration.buffer_bytes),
        "block": show_size(configuration.block_bytes or USUAL_BLOCK_BYTES["farlink"]),
        "options": configuration.options or "no options",
        "queue": _queue_shown(configuration.queue),
        "amount": configuration.amount,
    }
    template = table.text("label", default="{mover} {congestion} ×{streams}, {buffer}")
    try:
        # An attribute or a part of a word is none of them.
        named = {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}
        if not named <= set(words):
            raise KeyError
        return template.format_map(words)
    except (KeyError, ValueError, IndexError, AttributeError, TypeError):
        known = ", ".join(f"{{{word}}}" for word in words)
        raise PlanError(f"{table.path('label')}: {_shown(template)}: in braces stand {known} only") from None


def _control(configuration: Configuration) -> str:
    # What the plan names are its hosts' defaults there, by which configurations differ.
    if configuration.congestion is None and leaves_congestion(configuration):
        return AUTO
    return (configuration.congestion or "default").upper()


def _queue_shown(queue: str | None) -> str:
    if queue is None:
        return "the connection's queue"
    size = queue.endswith("B")
    return show_size(parse_size(queue)) if size else show_time(parse_time(queue))


def _refuse_double(found: list[Configuration], *, where: str) -> None:
    *earlier, last = found
    for other in earlier:
        if other.matter() == last.matter():
            raise PlanError(
                f"{where}: {_shown(last.label)} measures the same as {_shown(other.label)}: leave one out"
            )
        if (other.label, other.mode) == (last.label, last.mode):
            raise PlanError(
                f"{where}.label: {_shown(last.label)} names two configurations: give each its own, "
                "or put {mover}, {congestion}, {streams}, {buffer}, {block}, {amount}, {queue} or {options} "
                "into it"
            )


def _shown(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
