"""The three policies, over one log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from farlink_lab.logs.circuits import threshold_bytes
from farlink_lab.logs.planner.prefixes import ALPHA_BYTES, Month, daily, months, redirected
from farlink_lab.logs.planner.replay import Demand, Outcome, always_on, per_session
from farlink_lab.logs.sessions import HOSTS, gather, sessions
from farlink_lab.logs.transfer import LogError

if TYPE_CHECKING:
    from farlink_lab.logs.engine import Logs
    from farlink_lab.logs.planner.provider import Terms

# Sessions that are replayed one by one.
MOST_SESSIONS = 20_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What each policy came to, and the months of the one that learns."""

    outcomes: tuple[Outcome, ...]
    months: tuple[Month, ...]


def planned(
    logs: Logs,
    terms: Terms,
    *,
    gap_s: float,
    factor: float,
    by: str = HOSTS,
    alpha_bytes: int = ALPHA_BYTES,
) -> Plan:
    """Replays the log under each policy.

    Args:
        logs: The transfers.
        terms: Of the circuit service.
        gap_s: Of a session.
        factor: Sessions that would last less than so many setups on a circuit ask for none; 0 lets all ask.
            The size of a session is taken as known when it begins, as that of a data set is.
        by: Whose transfers are of one session.
        alpha_bytes: Within a minute, of an alpha flow.

    Raises:
        LogError: where no session can be formed, or there are too many.
    """
    found = gather(logs, gaps_s=[gap_s], by=by)
    least = threshold_bytes(setup_s=terms.setup_s, factor=factor, rate_bps=terms.rate_bps)
    every = sessions(found, gap_s=gap_s)
    asking = every.filter(every.bytes >= least)
    total = int(logs.rows(logs.transfers.agg(total=logs.transfers.bytes.sum().cast("int64")))[0]["total"])
    count = int(logs.rows(asking.agg(count=asking.count()))[0]["count"])
    if count > MOST_SESSIONS:
        raise LogError(
            f"{count:,} sessions ask for circuits, more than {MOST_SESSIONS:,}: raise --factor or --gap"
        )
    # Engines number pairs differently: where sessions start at once, their names say which is first.
    ordered = asking.join(found.pairs, "pair").order_by("start_us", *found.keys)
    table = logs.table(ordered.select("pair", "start_us", "end_us", "bytes"))
    outcomes: list[Outcome] = []
    if count:
        demand = Demand(**{name: table[name].cast("int64").to_numpy() for name in table.column_names})
        outcomes += [policy(demand, terms, all_bytes=total) for policy in (per_session, always_on)]
    else:
        nothing = {
            "sessions": 0, "rejected": 0, "reused": 0, "circuits": 0, "circuit_hours": 0.0,
            "carried_bytes": 0.0,
            "all_bytes": total,
            "utilisation": 0.0, "most_circuits": 0,
        }  # fmt: skip
        outcomes += [Outcome(policy=name, **nothing) for name in ("per session", "always on")]  # type: ignore[arg-type]
    learnt = months(daily(logs, alpha_bytes=alpha_bytes))
    if learnt:
        outcomes.append(redirected(learnt, terms, all_bytes=total))
    return Plan(outcomes=tuple(outcomes), months=tuple(learnt))
