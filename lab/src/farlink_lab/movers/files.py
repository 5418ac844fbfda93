"""Where file movers find their source and leave what they moved: memory-backed files of the emulated hosts.

Each emulated host has a `/dev/shm` of its own, which ends with the emulation, however that ends: a campaign
leaves no file behind. What is measured is the mover and the connection, without a disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from farlink_lab.movers.mover import Finished, MoverError

if TYPE_CHECKING:
    from farlink_lab.plan import Configuration

DIRECTORY = "/dev/shm/farlink"
SOURCE = f"{DIRECTORY}/source"
DESTINATION = f"{DIRECTORY}/destination"
FILE_SYSTEM = "tmpfs"

# Servers that refuse to be root, or change to a user that a user namespace does not have, run as this one
# (unshare(1)): to files and sockets it is still the user who started the lab.
UNPRIVILEGED = ("unshare", "--user", "--map-user=65534", "--map-group=65534")


def fixed_size_refusal(configuration: Configuration, *, tool: str) -> str | None:
    """Why a tool that moves one whole file cannot do what `configuration` asks."""
    if configuration.size_bytes is None:
        return f'seconds: {tool} moves whole files: give bytes, as in "1GB"'
    if configuration.declared_bps is not None:
        return f"circuit: {tool} declares no rate: leave it out, or measure with farlink"
    return None


def whole_file(finished: Finished, *, configuration: Configuration) -> dict[str, Any]:
    """What a record says of a file that was moved: all of it, in the time of the client's command.

    Raises:
        MoverError: where the client failed, or ended well with less than the file at the destination.
    """
    if finished.status != 0:
        raise MoverError(finished.complaint)
    arrived, asked = finished.arrived_bytes, configuration.size_bytes
    if arrived != asked:
        raise MoverError(f"it ended well, and {arrived} of {asked} bytes were at the destination")
    return {"bytes": asked, "duration_s": finished.wall_s}
