"""`farlink memory`: its client's `--json` is the record."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from farlink_lab.movers.mover import Finished, MoverError, Server

if TYPE_CHECKING:
    from farlink_lab.plan import Configuration


class Farlink:
    """Our own mover, in both modes, with any congestion control that the kernel has."""

    name = "farlink"
    package = "farlink"
    chooses_congestion = True
    lab_measures = False

    def programs(self, configuration: Configuration) -> dict[str, str]:  # noqa: ARG002
        """One program at both ends."""
        return {self.name: self.package}

    def moves_files(self, configuration: Configuration) -> bool:  # noqa: ARG002
        """From memory to memory."""
        return False

    def refusal(self, configuration: Configuration) -> str | None:  # noqa: ARG002
        """It does everything that a configuration can ask."""
        return None

    def version_command(self, program: str) -> tuple[str, ...]:
        """`farlink --version`."""
        return (program, "--version")

    def version(self, said: str) -> str:
        """The second word."""
        words = said.split()
        return words[1] if len(words) > 1 else "unknown"

    def server(self, program: str, *, configuration: Configuration) -> Server:  # noqa: ARG002
        """`farlink serve`."""
        return Server(command=(program, "serve"), ready_line="listening on")

    def client(
        self,
        program: str,
        *,
        configuration: Configuration,
        address: str,
        rtt_s: float,  # noqa: ARG002
    ) -> tuple[str, ...]:
        """`farlink memory`."""
        command = [program, "memory", address, "--streams", str(configuration.streams), "--json", "--quiet"]
        if configuration.size_bytes is not None:
            command += ["--bytes", f"{configuration.size_bytes}B"]
        else:
            command += ["--seconds", f"{configuration.duration_s:g}"]
        if configuration.interval_s is not None:
            command += ["--interval", f"{round(configuration.interval_s * 1e9)}ns"]
        if configuration.declared_bps is not None:
            command += ["--circuit", f"{configuration.declared_bps}bit"]
        elif configuration.congestion is not None:
            command += ["--congestion", configuration.congestion]
        if configuration.buffer_bytes is not None:
            command += ["--buffer", f"{configuration.buffer_bytes}B"]
        if configuration.block_bytes is not None:
            command += ["--block", f"{configuration.block_bytes}B"]
        return tuple(command)

    def result(
        self,
        finished: Finished,
        *,
        configuration: Configuration,  # noqa: ARG002
        rtt_s: float,  # noqa: ARG002
    ) -> dict[str, Any]:
        """The record as it stands, also of a transfer that failed midway.

        Raises:
            MoverError: where no record was printed.
        """
        for line in reversed(finished.stdout.splitlines()):
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(record, dict) and "outcome" in record:
                return record
        raise MoverError(finished.complaint)
