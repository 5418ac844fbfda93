"""Analyses as objects of JSON: SI units in the names, nothing where a number cannot be known."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from farlink_lab.logs.uneven import verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from farlink_lab.logs.circuits import Share
    from farlink_lab.logs.feed import Feed, Topology
    from farlink_lab.logs.planner.prefixes import Month
    from farlink_lab.logs.planner.provider import Terms
    from farlink_lab.logs.planner.replay import Outcome
    from farlink_lab.logs.service import Decision
    from farlink_lab.logs.sessions import SessionSummary
    from farlink_lab.logs.summary import Summary
    from farlink_lab.logs.uneven import Uneven


def plain(value: Any) -> Any:
    """Dataclasses as objects, and what is not finite as nothing."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


def of_sessions(found: Sequence[SessionSummary], *, throughput: Summary, left_out: int) -> dict[str, Any]:
    """Summaries of each gap."""
    return {
        "gaps": plain(list(found)),
        "transfer_throughput_bps": plain(throughput),
        "without_both_ends": left_out,
    }


def of_circuits(
    found: Sequence[Share], moved: Mapping[str, Sequence[Share]], *, left_out: int
) -> dict[str, Any]:
    """The table and the sensitivity to each parameter."""
    return {
        "table": [_share(each) for each in found],
        "sensitivity": {name: [_share(each) for each in group] for name, group in moved.items()},
        "without_both_ends": left_out,
    }


def of_plan(outcomes: Sequence[Outcome], months: Sequence[Month], terms: Terms) -> dict[str, Any]:
    """Terms, policies and months."""
    return {
        "terms": plain(terms),
        "policies": [{**plain(each), "carried_share": plain(each.carried_share)} for each in outcomes],
        "months": [{**plain(each), "caught_share": plain(each.caught_share)} for each in months],
    }


def of_variance(found: Uneven) -> dict[str, Any]:
    """The group, its spread, and all that was found beside it."""
    group, ranking = found.group, found.ranking
    return {
        "source": group.path[0],
        "destination": group.path[1],
        "low_bytes": group.low_bytes,
        "high_bytes": group.high_bytes,
        "transfers": group.of,
        "studied": len(group.bytes),
        "throughput_bps": plain(found.spread),
        "iqr_bps": plain(found.spread.spread),
        "concurrency": {
            "mean": plain(float(found.concurrency.at_once.mean())),
            "server_bps": plain(found.concurrency.server_bps),
            "correlation": plain(found.concurrency.correlation),
        },
        "link": None
        if found.link is None
        else {
            "overall": plain(found.link.overall),
            "quartiles": plain(found.link.quartiles),
            "left_out": found.link.left_out,
        },
        "factors": [
            {
                "name": factor.name,
                "share": _interval(factor.share),
                "effect": _interval(factor.effect),
                "chance": factor.chance,
                "clear": factor.clear,
            }
            for factor in ranking.factors
        ],
        "explained": plain(ranking.explained),
        "constant": list(ranking.constant),
        "sessions": ranking.sessions,
        "verdict": verdict(found),
    }


def of_service(feed: Feed, topology: Topology, decision: Decision) -> dict[str, Any]:
    """The feed, its topology and the decision table."""
    return {
        "mean_bps": plain(feed.mean_bps),
        "peak_minute_bps": plain(feed.peak_minute_bps),
        "products": feed.products,
        "silent_share": plain(feed.silent_share),
        "topology": plain(topology),
        "required_bps": plain(decision.required_bps),
        "servers": decision.servers,
        "services": plain(decision.verdicts),
        "chosen": decision.chosen,
    }


def _share(each: Share) -> dict[str, Any]:
    return {
        **plain(each),
        "of_sessions": plain(each.of_sessions),
        "of_transfers": plain(each.of_transfers),
        "of_bytes": plain(each.of_bytes),
    }


def _interval(of: tuple[float, float, float]) -> dict[str, float | None]:
    return {name: plain(value) for name, value in zip(("low", "value", "high"), of, strict=True)}
