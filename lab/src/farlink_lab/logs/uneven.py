"""All that the log tells of why transfers that are alike are uneven, put together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from farlink_lab.logs.transfer import US
from farlink_lab.logs.variance import counters as link
from farlink_lab.logs.variance.alike import Choice, Group, alike
from farlink_lab.logs.variance.concurrency import Concurrency, beside, concurrency
from farlink_lab.logs.variance.factors import FEWEST_SESSIONS, HOUR, Ranking, rank
from farlink_lab.logs.zone import Zone

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from farlink_lab.logs.engine import Logs
    from farlink_lab.logs.summary import Summary
    from farlink_lab.logs.variance.counters import Correlations, Counters

# Less than that of the variance explained is told as nothing.
LEAST_EXPLAINED = 0.1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Link:
    """What a link's counters say, overall and for each quartile of throughput, slowest first."""

    overall: Correlations
    quartiles: tuple[Correlations, ...]
    left_out: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Uneven:
    """The spread of a group of transfers and what goes with it."""

    group: Group
    spread: Summary
    concurrency: Concurrency
    ranking: Ranking
    link: Link | None


def uneven(
    logs: Logs,
    choice: Choice,
    *,
    counters: Counters | None = None,
    server_bps: float | None = None,
    zone: str = "UTC",
    seed: int = 1,
) -> Uneven:
    """Studies the group of transfers that is asked for.

    Args:
        logs: The transfers.
        choice: Which are alike.
        counters: Of the link, where they are at hand.
        server_bps: The server's rate, where it is known.
        zone: In which the hour of day is told.
        seed: Of permutations, bootstrap and samples.

    Raises:
        LogError: where too few are alike, or the counters are of another time.
    """
    group = alike(logs, choice, seed=seed)
    found = concurrency(group, *beside(logs, group), server_bps=server_bps)
    factors = {
        "streams": group.factors.get("streams"),
        "stripes": group.factors.get("stripes"),
        HOUR: hours(group.start_us, zone),
        "concurrent transfers": found.at_once,
        "size": group.bytes.astype(np.float64),
    }
    # What a byte costs: shares of the time follow from throughput, and explain nothing.
    for name, word in (
        ("sender_cpu_s", "sender's CPU per byte"),
        ("receiver_cpu_s", "receiver's CPU per byte"),
        ("read_s", "reading per byte"),
        ("write_s", "writing per byte"),
    ):
        if name in group.factors:
            factors[word] = group.factors[name] / group.bytes
    seen = None
    if counters is not None:
        logged = link.logged_bytes(*link.on_link(logs, counters), counters)
        seen = Link(
            overall=link.correlations(logged, counters),
            quartiles=tuple(link.by_quartile(group, logged, counters)),
            left_out=counters.left_out,
        )
        factors["other traffic"] = link.other_bps(group, logged, counters)
    ranking = rank(
        group.throughput_bps,
        {name: values for name, values in factors.items() if values is not None},
        sessions=group.session,
        seed=seed,
    )
    return Uneven(group=group, spread=group.spread, concurrency=found, ranking=ranking, link=seen)


def hours(start_us: NDArray[np.int64], zone: str) -> NDArray[np.float64]:
    """The hour of day of each start in a zone, from 0 to 24.

    Raises:
        LogError: where nobody knows the zone.
    """
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    Zone(name=zone)
    local = pc.local_timestamp(pa.array(start_us, pa.timestamp("us", zone))).cast(pa.int64())
    found: NDArray[np.float64] = (local.to_numpy() // US % 86_400) / 3600
    return found


def verdict(found: Uneven) -> str:
    """In a sentence, whether anything explains the spread: no more than the numbers say."""
    ranking = found.ranking
    clear = [factor for factor in ranking.factors if factor.clear]
    if not ranking.factors:
        return "Nothing that the log tells varies among these transfers: it explains none of their spread."
    share = f"{100 * max(ranking.explained, 0):.0f}% of the variance of log throughput"
    if ranking.sessions < FEWEST_SESSIONS:
        return (
            f"{ranking.sessions} sessions are too few to tell a factor from chance, which needs "
            f"{FEWEST_SESSIONS}; all factors together account for {share}."
        )
    if not clear:
        return (
            f"Nothing that the log tells explains the spread: all factors together account for {share}, and "
            "none of them beyond chance. Other applications on the hosts, their disks, or losses may; "
            "the log does not say."
        )
    names = ", ".join(factor.name for factor in clear)
    if ranking.explained < LEAST_EXPLAINED:
        return (
            f"Beyond chance: {names}. But all factors together account for only {share}: "
            "most of the spread is unexplained."
        )
    return f"Beyond chance: {names}. All factors together account for {share}; the rest is unexplained."
