"""rsync to a daemon on the far host, a file to a file: no ssh, so that what is measured is rsync."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farlink_lab.movers import files
from farlink_lab.movers.mover import Finished, Server

if TYPE_CHECKING:
    from farlink_lab.plan import Configuration

PORT = 8873
CONFIGURATION = Path(__file__).with_name("rsyncd.conf")
# What would move less than the file, or more than a file.
_REFUSED_OPTIONS = (
    *("-n", "--dry-run", "-r", "--recursive", "-a", "--archive", "--sockopts", "--port", "--partial-dir"),
    *("-z", "--compress", "-S", "--sparse", "-e", "--rsh", "-f", "--filter"),
)


class Rsync:
    """One stream, a checksum over the whole file, and a temporary name until it has arrived."""

    name = "rsync"
    package = "rsync"
    chooses_congestion = False
    lab_measures = True

    def programs(self, configuration: Configuration) -> dict[str, str]:  # noqa: ARG002
        """One program at both ends."""
        return {self.name: self.package}

    def moves_files(self, configuration: Configuration) -> bool:  # noqa: ARG002
        """One file."""
        return True

    def refusal(self, configuration: Configuration) -> str | None:
        """Fixed durations, parallel streams, and options that change what is measured."""
        if configuration.streams > 1:
            return "streams: rsync has one: leave it out"
        for word in shlex.split(configuration.options):
            if word.partition("=")[0] in _REFUSED_OPTIONS:
                return f"options: {word} is the lab's to give, or changes what is measured: leave it out"
        return files.fixed_size_refusal(configuration, tool=self.name)

    def version_command(self, program: str) -> tuple[str, ...]:
        """`rsync --version`."""
        return (program, "--version")

    def version(self, said: str) -> str:
        """The number of `rsync  version 3.2.7  protocol version 31`."""
        found = re.search(r"version\s+v?([0-9.]+)", said)
        return found[1] if found else "unknown"

    def server(self, program: str, *, configuration: Configuration) -> Server:
        """A daemon in the foreground, which the lab ends (`rsyncd.conf`)."""
        command = [
            *(*files.UNPRIVILEGED, program, "--daemon", "--no-detach", f"--config={CONFIGURATION}"),
            *(f"--port={PORT}", "--log-file=/dev/null", *_socket_options(configuration)),
        ]
        return Server(command=tuple(command), ready_port=PORT)

    def client(
        self,
        program: str,
        *,
        configuration: Configuration,
        address: str,
        rtt_s: float,  # noqa: ARG002
    ) -> tuple[str, ...]:
        """The file to the daemon's one module."""
        return (
            *(program, *shlex.split(configuration.options), *_socket_options(configuration)),
            *(files.SOURCE, f"rsync://{address}:{PORT}/farlink/{Path(files.DESTINATION).name}"),
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


def _socket_options(configuration: Configuration) -> tuple[str, ...]:
    size = configuration.buffer_bytes
    return () if size is None else (f"--sockopts=SO_SNDBUF={size},SO_RCVBUF={size}",)
