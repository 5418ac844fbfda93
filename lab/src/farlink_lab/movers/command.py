"""Any command as a mover: a template for the client, and one for a server where it needs one.

A fixed size is over when the command ends, and the time is its wall clock. Where that is not what should
count (a fixed duration, a tool with a clock of its own), the command says so in one line of JSON.
"""

from __future__ import annotations

import json
import shlex
import string
from typing import TYPE_CHECKING, Any

from farlink_lab.movers import files
from farlink_lab.movers.mover import Finished, MoverError, Server
from farlink_lab.records import parse_record

if TYPE_CHECKING:
    from collections.abc import Collection

    from farlink_lab.plan import Configuration

CLIENT_WORDS = ("address", "port", "bytes", "seconds", "streams", "buffer", "rtt", "source", "destination")
SERVER_WORDS = tuple(word for word in CLIENT_WORDS if word not in ("address", "source"))
# What a command's line of JSON may say of its transfer; everything else the lab knows better.
SAID_FIELDS = (
    *("bytes", "duration_s", "setup_s", "retransmits", "congestion", "version", "samples", "cpu_s"),
    *("streams", "streams_chosen", "congestion_chosen", "limit_bps", "protection"),
)
# Those of them that the lab knows better where it names the number itself.
STREAMS_FIELDS = ("streams", "streams_chosen")
# What only `farlink` says so, and what it says.
_OWN: dict[str, type] = {
    "streams": int,
    "streams_chosen": bool,
    "congestion_chosen": bool,
    "limit_bps": int,
    "protection": str,
}
# By which `farlink copy` is told how many streams there are to be.
_NAMES_STREAMS = {"--streams", "-P", "--circuit", "--auto"}
# By which it is told how to send, so that it does not choose by the path.
_NAMES_SENDING = {"--congestion", "-C", "--circuit", "--auto", "--buffer"}
# What records call an answer to `farlink copy --protect`, where that is another word.
_PROTECTIONS = {"encrypt": "encrypted"}


class Command:
    """A command template; what it moves, and how, is its author's to say."""

    name = "command"
    package = ""
    chooses_congestion = False
    lab_measures = True

    def programs(self, configuration: Configuration) -> dict[str, str]:
        """The first words of the two templates; which package has them is not known here."""
        templates = [configuration.command, configuration.server]
        return {shlex.split(template)[0]: "" for template in templates if template}

    def moves_files(self, configuration: Configuration) -> bool:
        """Where a template names a file."""
        return bool({"source", "destination"} & words_of(configuration))

    def refusal(self, configuration: Configuration) -> str | None:
        """Templates that cannot be filled, or that leave out what the configuration says."""
        if configuration.command is None:
            return 'command: it is missing: give the client\'s command, as in "mytool {address} {bytes}"'
        for key, template, known in (
            ("command", configuration.command, CLIENT_WORDS),
            ("server", configuration.server, SERVER_WORDS),
        ):
            reason = _template_refusal(template, known) if template is not None else None
            if reason:
                return f"{key}: {reason}"
        return _left_out(configuration, words_of(configuration))

    def version_command(self, program: str) -> tuple[str, ...]:  # noqa: ARG002
        """Nothing that every command would answer."""
        return ()

    def version(self, said: str) -> str:  # noqa: ARG002
        """Not known, unless the command says it."""
        return "unknown"

    def server(self, program: str, *, configuration: Configuration) -> Server | None:
        """The server's template, filled."""
        if configuration.server is None:
            return None
        words = _filled(configuration.server, _values(configuration, address="", rtt_s=0.0))
        return Server(
            command=(program, *words[1:]),
            ready_line=configuration.ready,
            ready_port=None if configuration.ready else configuration.port,
        )

    def client(
        self, program: str, *, configuration: Configuration, address: str, rtt_s: float
    ) -> tuple[str, ...]:
        """The client's template, filled."""
        values = _values(configuration, address=address, rtt_s=rtt_s)
        return (program, *_filled(configuration.command or "", values)[1:])

    def result(
        self,
        finished: Finished,
        *,
        configuration: Configuration,
        rtt_s: float,  # noqa: ARG002
    ) -> dict[str, Any]:
        """What the command said of itself over what the lab saw of it.

        Raises:
            MoverError: where it failed, said something that is no field of a record, or left unknown how much
                it had moved.
        """
        if finished.status != 0:
            raise MoverError(finished.complaint)
        named = STREAMS_FIELDS if "streams" in words_of(configuration) else ()
        said = _said(finished.stdout, but=named)
        # Whether or not it says anything.
        if leaves_streams(configuration):
            said.setdefault("streams_chosen", True)
        if leaves_congestion(configuration):
            said.setdefault("congestion_chosen", True)
        if "destination" in words_of(configuration) and configuration.size_bytes is not None:
            seen = files.whole_file(finished, configuration=configuration)
        else:
            seen = {"bytes": configuration.size_bytes, "duration_s": finished.wall_s}
        if seen["bytes"] is None and "bytes" not in said:
            raise MoverError(
                'it was to run for a time and did not say how much it moved: let it print {"bytes": …}'
            )
        return {key: value for key, value in (seen | said).items() if value is not None}


def leaves_streams(configuration: Configuration) -> bool:
    """Whether it is a `farlink copy` that says nothing of streams, so that the path decides how many."""
    words = _options(configuration)
    return "copy" in words and not ("streams" in words_of(configuration) or _NAMES_STREAMS & words.keys())


def leaves_congestion(configuration: Configuration) -> bool:
    """Whether it is a `farlink` whose sender chooses its congestion control by the path.

    It does in a copy that says nothing of how to send, and by `--congestion auto`.
    """
    words = _options(configuration)
    if "auto" in (words.get("--congestion"), words.get("-C")):
        return True
    return "copy" in words and not _NAMES_SENDING & words.keys()


def protection_asked(configuration: Configuration) -> str:
    """How the data of a run should be protected, as records have it: a `farlink copy` encrypts them."""
    words = _options(configuration)
    if "copy" not in words or "--no-auth" in words:
        return "clear"
    asked = words.get("--protect", "encrypt")
    return _PROTECTIONS.get(asked, asked)


def _options(configuration: Configuration) -> dict[str, str]:
    """The words of a `farlink` command, each with what is said to it; none of another."""
    if configuration.command is None or configuration.tool != "farlink":
        return {}
    words = shlex.split(configuration.command)
    pairs = [
        (word[:2], "=", word[2:]) if word[:2] in ("-C", "-P") and word[2:] else word.partition("=")
        for word in words
    ]
    return {
        name: value if sign else following
        for (name, sign, value), following in zip(pairs, [*words[1:], ""], strict=True)
    }


def words_of(configuration: Configuration) -> set[str]:
    """The placeholders that the templates name."""
    found: set[str] = set()
    for template in (configuration.command, configuration.server):
        for word in shlex.split(template or ""):
            found |= {name for _, name, _, _ in string.Formatter().parse(word) if name}
    return found


def _template_refusal(template: str, known: tuple[str, ...]) -> str | None:
    names = ", ".join(f"{{{word}}}" for word in known)
    try:
        words = shlex.split(template)
        parts = [part for word in words for part in string.Formatter().parse(word)]
    except ValueError as error:
        return f"{str(error).lower()}: write it as in a shell; a brace of its own is {{{{ or }}}}"
    if not words or "{" in words[0]:
        return "it begins with no program: write one, as in mytool {address} {bytes}"
    for _, name, spec, conversion in parts:
        if name is not None and (name not in known or spec or conversion):
            return f"{{{name}}} is none of {names}"
    return None


def _left_out(configuration: Configuration, words: set[str]) -> str | None:
    """What the configuration says and no template takes: the record would say what did not happen."""
    fixed_size, server = configuration.size_bytes is not None, configuration.server is not None
    buffer, port = configuration.buffer_bytes is not None, configuration.port is not None
    ready = configuration.ready is not None
    refusals = {
        "command: a fixed size needs {bytes} or {source} in it": fixed_size
        and not words & {"bytes", "source"},
        "command: a fixed duration needs {seconds} in it": not fixed_size and "seconds" not in words,
        "command: {source} is a file of a fixed size: give bytes in place of seconds": not fixed_size
        and "source" in words,
        "circuit: a command declares no rate: leave it out": configuration.declared_bps is not None,
        "streams: no {streams} in command takes it": configuration.streams > 1 and "streams" not in words,
        "buffer: no {buffer} in command takes it": buffer and "buffer" not in words,
        'command: {buffer} needs a buffer, as in buffer = "4MiB"': not buffer and "buffer" in words,
        "command: {port} needs a port, as in port = 7000": not port and "port" in words,
        "server: give port or ready, by which the lab sees that it listens": server and not (port or ready),
        "ready: there is no server that would say it: leave it out": ready and not server,
    }
    return next((reason for reason, refused in refusals.items() if refused), None)


def _values(configuration: Configuration, *, address: str, rtt_s: float) -> dict[str, str]:
    values: dict[str, object] = {
        "address": address,
        "port": configuration.port,
        "bytes": configuration.size_bytes,
        "seconds": None if configuration.duration_s is None else f"{configuration.duration_s:g}",
        "streams": configuration.streams,
        "buffer": configuration.buffer_bytes,
        "rtt": f"{rtt_s:g}",
        "source": files.SOURCE,
        "destination": files.DESTINATION,
    }
    return {key: "" if value is None else str(value) for key, value in values.items()}


def _filled(template: str, values: dict[str, str]) -> tuple[str, ...]:
    """The words of the template; filled after they were split, so that no value changes where they end."""
    return tuple(word.format_map(values) for word in shlex.split(template))


def _said(stdout: str, *, but: Collection[str] = ()) -> dict[str, Any]:
    """The fields of the last line that is a JSON object with `bytes` or `duration_s`, `but` some."""
    for line in reversed(stdout.splitlines()):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and ("bytes" in value or "duration_s" in value):
            said = {key: value[key] for key in SAID_FIELDS if key not in but and value.get(key) is not None}
            # By these names another tool may say something else.
            said = {key: it for key, it in said.items() if key not in _OWN or isinstance(it, _OWN[key])}
            needed = {
                "id": "-",
                "kind": "memory",
                "mode": "size",
                "started": "-",
                "tool": "-",
                "version": "-",
            }
            try:
                parse_record(json.dumps({**needed, "outcome": "ok", **said}).encode())
            except ValueError as error:
                raise MoverError(f"its line of JSON is no part of a record: {error}") from error
            return said
    return {}
