"""The three policies, over one log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ibis

from farlink_lab.logs.circuits import threshold_bytes
from farlink_lab.logs.planner.prefixes import ALPHA_BYTES, Month, daily, months, redirected
from farlink_lab.logs.planner.replay import Demand, Outcome, always_on, per_session
from farlink_lab.logs.sessions import HOSTS, gather, sessions
from farlink_lab.logs.transfer import US, LogError

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
    # A circuit is between hosts, whoever its users are. By their names: engines number pairs differently.
    hosts = ibis.window(order_by=[found.pairs.source, found.pairs.destination])
    pairs = found.pairs.mutate(circuit=ibis.dense_rank().over(hosts).cast("int64"))
    every = sessions(found, gap_s=gap_s).join(pairs, "pair")
    asking = every.filter(every.bytes >= least)
    log = logs.transfers
    (whole,) = logs.rows(
        log.agg(total=log.bytes.sum().cast("int64"), first=log.start_us.min(), last=log.end_us.max())
    )
    total = int(whole["total"])
    count = int(logs.rows(asking.agg(count=asking.count()))[0]["count"])
    if count > MOST_SESSIONS:
        raise LogError(
            f"{count:,} sessions ask for circuits, more than {MOST_SESSIONS:,}: raise --factor or --gap"
        )
    ordered = asking.order_by("start_us", *found.keys).select("circuit", "start_us", "end_us", "bytes")
    table = logs.table(ordered.rename(pair="circuit"))
    outcomes: list[Outcome] = []
    if count:
        demand = Demand(**{name: table[name].cast("int64").to_numpy() for name in table.column_names})
        chosen = every.semi_join(asking, "circuit").select("circuit", "start_us", "end_us", "bytes")
        rows = logs.rows(_carriable(chosen, rate_bps=terms.rate_bps, alone=by == HOSTS))
        outcomes += [
            per_session(demand, terms, all_bytes=total),
            always_on(
                demand,
                terms,
                carriable={row["circuit"]: row["carried"] for row in rows},
                span_us=(int(whole["first"]), int(whole["last"])),
                all_bytes=total,
            ),
        ]
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


def _carriable(table: Any, *, rate_bps: float, alone: bool) -> Any:
    """What a circuit that is always there carries of its sessions, a row each: `circuit`, `carried`.

    Args:
        table: Ibis table of sessions: `circuit`, `start_us`, `end_us`, `bytes`.
        rate_bps: Of a circuit.
        alone: Whether no two sessions of a circuit run at once; else they share its rate.
    """
    took, size = (table.end_us - table.start_us).cast("float64"), table.bytes.cast("float64")
    most = rate_bps / 8 / US
    # What takes no time that the log can tell is carried whole.
    at_once = table.end_us == table.start_us
    if alone:
        carried = ibis.ifelse(at_once, size, ibis.least(size, most * took))
        return table.group_by("circuit").agg(carried=carried.sum())
    moments = table.filter(at_once).select("circuit", carried=size)
    lasting = table.filter(~at_once).mutate(load=size / took)
    steps = ibis.union(
        lasting.select("circuit", at_us="start_us", load="load"),
        lasting.select("circuit", at_us="end_us", load=-lasting.load),
    )
    # All that changes at a moment in one step: what follows it lasts until the next.
    steps = steps.group_by("circuit", "at_us").agg(load=steps.load.sum())
    so_far = ibis.window(group_by=steps.circuit, order_by=steps.at_us, preceding=None, following=0)
    later = ibis.window(group_by=steps.circuit, order_by=steps.at_us)
    steps = steps.mutate(load=steps.load.sum().over(so_far), until_us=steps.at_us.lead().over(later))
    lasts = (steps.until_us - steps.at_us).cast("float64")
    pieces = steps.filter(steps.until_us.notnull()).select(
        "circuit", carried=ibis.least(steps.load, ibis.literal(most)) * lasts
    )
    both = ibis.union(moments, pieces)
    return both.group_by("circuit").agg(carried=both.carried.sum())
