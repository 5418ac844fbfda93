"""GridFTP: `globus-url-copy` to an anonymous `globus-gridftp-server`, a file to a file.

It reports no time finer than 0.1 s, so the lab takes the wall clock of its command.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any

from farlink_lab.movers import files
from farlink_lab.movers.mover import Finished, Server

if TYPE_CHECKING:
    from farlink_lab.plan import Configuration

CONTROL_PORT = 2811
MOST_STREAMS = 128
# What the lab says itself, and what would change what is measured (another transport, a part of the file).
_REFUSED_OPTIONS = (
    *("-p", "-parallel", "-tcp-bs", "-tcp-buffer-size", "-udt", "-u", "-off", "-len", "-partial-offset"),
    *("-partial-length", "-t", "-f", "-r", "-recurse", "-do", "-dump-only"),
)


class GlobusUrlCopy:
    """The client of the Grid Community Toolkit; the data-transfer studies measured with it."""

    name = "globus-url-copy"
    package = "globus-gass-copy-progs"
    chooses_congestion = False
    lab_measures = True

    def programs(self, configuration: Configuration) -> dict[str, str]:  # noqa: ARG002
        """The client and the server."""
        return {self.name: self.package, "globus-gridftp-server": "globus-gridftp-server-progs"}

    def moves_files(self, configuration: Configuration) -> bool:  # noqa: ARG002
        """One file."""
        return True

    def refusal(self, configuration: Configuration) -> str | None:
        """Fixed durations, very many streams, and options that the lab gives itself."""
        if configuration.streams > MOST_STREAMS:
            return f"streams: the lab runs globus-url-copy with at most {MOST_STREAMS}"
        for word in shlex.split(configuration.options):
            if word in _REFUSED_OPTIONS:
                return f"options: {word} is the lab's to give, or changes what is measured: leave it out"
        return files.fixed_size_refusal(configuration, tool=self.name)

    def version_command(self, program: str) -> tuple[str, ...]:
        """`globus-url-copy -version`."""
        return (program, "-version")

    def version(self, said: str) -> str:
        """The number of `globus-url-copy: 10.12`."""
        found = re.search(r"globus[-_]url[-_]copy:\s*([0-9.]+)", said)
        return found[1] if found else "unknown"

    def server(self, program: str, *, configuration: Configuration) -> Server:  # noqa: ARG002
        """One anonymous session, in the foreground, without this machine's configuration.

        As root it would take another user for anonymous sessions and refuse root (`files.UNPRIVILEGED`).
        """
        command = (
            *(*files.UNPRIVILEGED, program, "-c", "/dev/null", "-s", "-1", "-aa"),
            *("-p", str(CONTROL_PORT)),
        )
        return Server(command=command, ready_port=CONTROL_PORT, ends=True)

    def client(
        self,
        program: str,
        *,
        configuration: Configuration,
        address: str,
        rtt_s: float,  # noqa: ARG002
    ) -> tuple[str, ...]:
        """One stream is the tool's own default, stream mode; several, or `-fast`, are extended block mode."""
        command = [program, *shlex.split(configuration.options)]
        if configuration.streams > 1:
            command += ["-p", str(configuration.streams)]
        if configuration.buffer_bytes is not None:
            command += ["-tcp-bs", str(configuration.buffer_bytes)]
        return (
            *command,
            f"file://{files.SOURCE}",
            f"ftp://{address}:{CONTROL_PORT}{files.DESTINATION}",
        )

    def result(
        self,
        finished: Finished,
        *,
        configuration: Configuration,
        rtt_s: float,  # noqa: ARG002
    ) -> dict[str, Any]:
        """The whole file in the command's time.

        Raises:
            MoverError: with its own last words.
        """
        return files.whole_file(finished, configuration=configuration)
