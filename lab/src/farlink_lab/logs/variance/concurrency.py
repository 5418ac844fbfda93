"""Transfers that run at once on a server: how many, and what they would leave to each by equal shares.

A transfer is cut wherever another of its server starts or stops; of the piece j, d_ij long, n_ij transfers
share the server's rate R. Predicted is Σ_j (R/n_ij) d_ij / Σ_j d_ij. [method of the NERSC study; the
published formula is missing, this is its natural reconstruction]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from farlink_lab.logs.transfer import LogError
from farlink_lab.logs.variance.alike import of_path

if TYPE_CHECKING:
    from farlink_lab.logs.engine import Logs
    from farlink_lab.logs.variance.alike import Group

Array = NDArray[np.float64]
Whole = NDArray[np.int64]

# Of a server, transfers that are held in memory: two numbers each.
MOST = 50_000_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Concurrency:
    """What ran beside each transfer; arrays have shape (transfers,).

    Attributes:
        at_once: Mean number of transfers of the server during each, itself included.
        predicted_bps: What equal shares of `server_bps` would give.
        server_bps: R: as given, or that which fits the actual throughputs best (least squares).
        correlation: Of predicted with actual throughput, Pearson's; `None` where either does not vary.
    """

    at_once: Array
    predicted_bps: Array
    server_bps: float
    correlation: float | None


def beside(logs: Logs, group: Group) -> tuple[Whole, Whole]:
    """Starts and ends of all transfers of the group's server while the group ran.

    Of its path, where the log names no one server.

    Raises:
        LogError: where there are too many to hold.
    """
    table = logs.transfers
    if group.server is not None:
        table = table.filter(table.server == group.server)
    else:
        table = of_path(table, group.path)
    first, last = int(group.start_us.min()), int(group.end_us.max())
    table = table.filter((table.end_us >= first) & (table.start_us <= last))
    count = int(logs.rows(table.agg(count=table.count()))[0]["count"])
    if count > MOST:
        raise LogError(
            f"{count:,} transfers ran beside these, more than {MOST:,}: narrow --sizes or the path"
        )
    rows = logs.table(table.select("start_us", "end_us"))
    return rows["start_us"].to_numpy(), rows["end_us"].to_numpy()


def concurrency(group: Group, starts: Whole, ends: Whole, *, server_bps: float | None = None) -> Concurrency:
    """How many transfers ran beside each of the group, and what that predicts.

    Args:
        group: The transfers.
        starts: Shape (n,), of all transfers of the server, those of the group among them.
        ends: Shape (n,).
        server_bps: R, where it is known.
    """
    times = np.concatenate([starts, ends])
    steps = np.concatenate([np.ones(len(starts), np.int64), -np.ones(len(ends), np.int64)])
    order = np.argsort(times, kind="stable")
    times, counts = times[order], np.cumsum(steps[order])
    edges, last = np.unique(times, return_index=True)
    # The number of transfers from each edge to the next: what stands after the last event of that moment.
    after = np.append(last[1:], len(times)) - 1
    running = counts[after][:-1].astype(np.float64)
    lengths = np.diff(edges).astype(np.float64)
    shares = np.divide(1.0, running, out=np.zeros_like(running), where=running > 0)
    at_once = _mean(edges, lengths * running, group)
    share = _mean(edges, lengths * shares, group)
    actual = group.throughput_bps
    rate = server_bps if server_bps is not None else float(actual @ share / (share @ share))
    return Concurrency(
        at_once=at_once,
        predicted_bps=rate * share,
        server_bps=rate,
        correlation=correlation(share, actual),
    )


def correlation(one: Array, other: Array) -> float | None:
    """Pearson's; `None` where it has no meaning: fewer than three pairs, or one side does not vary."""
    if len(one) < 3 or np.ptp(one) <= 1e-12 * abs(one).max() or np.ptp(other) <= 1e-12 * abs(other).max():
        return None
    return float(np.corrcoef(one, other)[0, 1])


def _mean(edges: Whole, pieces: Array, group: Group) -> Array:
    """The mean over each transfer of a step function, of whose pieces these are the integrals."""
    total = np.concatenate([[0.0], np.cumsum(pieces)])
    base = float(edges[0])
    at = edges - base
    upper = np.interp(group.end_us - base, at, total)
    lower = np.interp(group.start_us - base, at, total)
    found: Array = (upper - lower) / (group.end_us - group.start_us)
    return found
