"""The congestion controls that runs name, held against what there is, before anything is measured.

This kernel has some, may load others as modules, and `farlink` brings some along: what it says of them is
what its transfers would find.
"""

from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farlink_lab.error import LabError
from farlink_lab.run import child
from farlink_lab.run.emulation import find_farlink

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from farlink_lab.plan import Connection
    from farlink_lab.schedule import Run

# What a mover can choose in this kernel.
AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
# `farlink congestion` only looks; a busy machine may take longer.
ANSWER_LIMIT_S = 10.0


class CongestionError(LabError):
    """A congestion control that runs name, and that nobody has here."""


def available() -> list[str]:
    """What this kernel has now; empty where it does not say."""
    return AVAILABLE.read_text().split() if AVAILABLE.exists() else []


def check_controls(connection: Connection, runs: Sequence[Run]) -> None:
    """Refuses runs whose congestion control, or whose hosts', is not to be had.

    Raises:
        CongestionError: with the names, the reasons, what there is and the mend.
    """
    if not runs:
        return
    lacking, there = _lacking([connection.congestion, *(run.configuration.congestion for run in runs)])
    if lacking:
        raise CongestionError(
            f"the plan names congestion control {_told(lacking)}: available are {', '.join(there)}: "
            "write one of these"
        )


def with_controls(runs: Sequence[Run]) -> tuple[tuple[Run, ...], str]:
    """Those of the runs whose congestion control is to be had, and what is to be said of the others.

    Nothing is, where there are none.
    """
    lacking, there = _lacking(run.configuration.congestion for run in runs)
    if not lacking:
        return tuple(runs), ""
    kept = tuple(run for run in runs if run.configuration.congestion not in lacking)
    said = f"left out are {len(runs) - len(kept)} of {len(runs)} runs, of congestion control {_told(lacking)}"
    return kept, f"{said}: available are {', '.join(there)}"


def _told(lacking: dict[str, str]) -> str:
    return " and ".join(f'"{name}", {why}' for name, why in lacking.items())


def _lacking(asked: Iterable[str | None]) -> tuple[dict[str, str], list[str]]:
    """Names that are not to be had, with the reasons, and all that there are."""
    kernels = available()
    unknown = [name for name in dict.fromkeys(asked) if name is not None and name not in kernels]
    entries = _farlinks() if unknown and kernels else None
    if entries is None:
        # Who cannot be asked may have it.
        return {}, kernels
    states = {str(entry.get("name")): entry for entry in entries}
    had = {name for name, entry in states.items() if entry.get("state") in ("available", "loadable")}
    lacking = {}
    for name in unknown:
        if name in had or _is_module(name):
            continue
        reason = states[name].get("reason") if name in states else None
        lacking[name] = (
            f"which is not in this kernel and cannot be loaded ({reason})"
            if reason
            else "which neither this kernel nor farlink has"
        )
    return lacking, sorted({*kernels, *had})


def _farlinks() -> list[dict[str, Any]] | None:
    """What `farlink congestion --json` says; `None` where it says nothing of the kind."""
    process = child.start((find_farlink(), "congestion", "--json"))
    try:
        said, _ = process.communicate(timeout=ANSWER_LIMIT_S)
        entries = json.loads(said)
    except (subprocess.TimeoutExpired, ValueError):
        return None
    finally:
        child.end(process)
    good = isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries)
    return entries if good else None


def _is_module(name: str) -> bool:
    """Whether the kernel has a module of that name, which it loads for a socket that chooses it."""
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
    except FileNotFoundError:
        return False
    except OSError:
        # Not for this user, who may have it on hosts of his own.
        return True
    return True
