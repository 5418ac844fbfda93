"""What a tool must tell the lab so that its runs become records like ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from farlink_lab.error import LabError

if TYPE_CHECKING:
    from farlink_lab.plan import Configuration


class MoverError(LabError):
    """A tool that ended without a result, and what it said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """The receiving end, started afresh for every run so that a failed one leaves nothing to the next.

    Attributes:
        command: What to run on host b.
        ready_line: How the line begins by which it says that it listens; or
        ready_port: the TCP port that it then listens on, for tools that say nothing.
        ends: Whether it ends by itself after one transfer: its CPU seconds are whole only then.
    """

    command: tuple[str, ...]
    ready_line: str | None = None
    ready_port: int | None = None
    ends: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A client that has ended.

    Attributes:
        wall_s: Seconds from its start to its end.
        arrived_bytes: What stands in the destination's directory on host b, of file movers.
    """

    status: int
    stdout: str
    stderr: str
    wall_s: float = 0.0
    arrived_bytes: int | None = None

    @property
    def complaint(self) -> str:
        """The last line that it said of its failure, or its exit status."""
        lines = [
            line.strip() for text in (self.stderr, self.stdout) for line in text.splitlines() if line.strip()
        ]
        said = [line for line in self.stderr.splitlines() if line.strip()] or lines
        return said[-1].strip() if said else f"it ended with status {self.status} and said nothing"


class Mover(Protocol):
    """A tool that moves data from host a to host b. A new one is a new file and one line in `MOVERS`."""

    name: str
    package: str
    """What to install where it is missing."""
    chooses_congestion: bool
    """Whether it can ask for a congestion control; else it takes the hosts' default."""
    lab_measures: bool
    """Whether it says nothing of its time and CPU: then the lab measures its processes from start to end."""

    def programs(self, configuration: Configuration) -> dict[str, str]:
        """Every program that `configuration` needs in PATH, the client's first, and the package of each."""

    def moves_files(self, configuration: Configuration) -> bool:
        """Whether it moves a file (`files`) rather than bytes that it makes itself."""

    def refusal(self, configuration: Configuration) -> str | None:
        """Why it cannot do what `configuration` asks, and the mend; `None` where it can."""

    def version_command(self, program: str) -> tuple[str, ...]:
        """What prints its version."""

    def version(self, said: str) -> str:
        """Its version from what that printed."""

    def server(self, program: str, *, configuration: Configuration) -> Server | None:
        """The receiving end; `None` where the client needs none. `program` is the last of `programs`."""

    def client(
        self, program: str, *, configuration: Configuration, address: str, rtt_s: float
    ) -> tuple[str, ...]:
        """The sending end's command."""

    def result(self, finished: Finished, *, configuration: Configuration, rtt_s: float) -> dict[str, Any]:
        """The fields of the record that the tool's output says, and no others.

        Raises:
            MoverError: where it moved nothing or said nothing that can be understood.
        """
