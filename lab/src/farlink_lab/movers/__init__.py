"""The tools that the lab can measure: a new one is a new file here and one line in `MOVERS`."""

from farlink_lab.movers.command import Command
from farlink_lab.movers.farlink import Farlink
from farlink_lab.movers.gridftp import GlobusUrlCopy
from farlink_lab.movers.iperf3 import Iperf3
from farlink_lab.movers.mover import Finished, Mover, MoverError, Server
from farlink_lab.movers.nuttcp import Nuttcp
from farlink_lab.movers.rsync import Rsync

MOVERS: dict[str, Mover] = {
    mover.name: mover for mover in (Farlink(), Iperf3(), Nuttcp(), GlobusUrlCopy(), Rsync(), Command())
}

__all__ = ["MOVERS", "Finished", "Mover", "MoverError", "Server"]
