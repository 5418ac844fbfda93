"""Redirection by prefixes, learnt offline: hybrid traffic engineering (HNTES).

An alpha flow moves at least 1 GB within one minute. Most last less than two minutes, so that redirecting
one when it is seen comes too late; but they come from and go to the same prefixes again. So the pairs of
/24 of a month's alpha flows are given filters onto circuits for the month after. [Liu, Veeraraghavan et
al., HPSR 2012 and 2013]

A transfer stands for a flow here, its bytes evenly over its time: a log has no 5-tuples.
"""

from __future__ import annotations

import ipaddress
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import ibis

from farlink_lab.logs.planner.replay import Outcome
from farlink_lab.logs.transfer import DAY_US, LogError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from farlink_lab.logs.engine import Logs
    from farlink_lab.logs.planner.provider import Terms

ALPHA_BYTES = 10**9
ALPHA_US = 60_000_000
# Longer than a host, shorter than a site: what the study used, and its like in IPv6.
PREFIX_BITS = {4: 24, 6: 64}


@dataclass(frozen=True, slots=True, kw_only=True)
class Month:
    """What the prefixes of the month before caught in this one.

    Attributes:
        month: As 2012-02.
        learnt: Pairs of prefixes that the month before taught.
        alpha_flows, alpha_bytes: Of this month.
        caught_bytes: Of the alpha bytes, those between learnt prefixes.
        redirected_bytes: All bytes between them: a filter knows no alpha flow.
    """

    month: str
    learnt: int
    alpha_flows: int
    alpha_bytes: int
    caught_bytes: int
    redirected_bytes: int

    @property
    def caught_share(self) -> float | None:
        """Of the alpha bytes, the share that was caught; nothing where there were none."""
        return self.caught_bytes / self.alpha_bytes if self.alpha_bytes else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Daily:
    """What one pair of hosts moved on one day."""

    month: str
    source: str
    destination: str
    bytes: int
    alpha_bytes: int
    alpha_flows: int


def daily(logs: Logs, *, alpha_bytes: int = ALPHA_BYTES) -> list[Daily]:
    """Bytes and alpha bytes of each pair of hosts and month.

    Raises:
        LogError: where no transfer names both its ends.
    """
    table = logs.transfers
    table = table.filter(table.source.notnull() & table.destination.notnull())
    took = table.end_us - table.start_us
    # The longest stretch of the transfer within one minute of the clock.
    last = table.end_us % ALPHA_US
    first = ALPHA_US - table.start_us % ALPHA_US
    whole = (table.end_us - last) - (table.start_us + first) >= ALPHA_US
    stretch = ibis.ifelse(
        whole | (table.start_us % ALPHA_US == 0) & (took >= ALPHA_US),
        ibis.literal(ALPHA_US, "int64"),
        ibis.greatest(ibis.least(first, took), ibis.least(last, took)),
    )
    moved = ibis.ifelse(
        took > 0,
        table.bytes.cast("float64") * stretch.cast("float64") / took.cast("float64"),
        table.bytes.cast("float64"),
    )
    marked = table.select(
        "source",
        "destination",
        "bytes",
        alpha=moved >= alpha_bytes,
        day=(table.start_us // DAY_US).cast("int64"),
    )
    grouped = marked.group_by("source", "destination", "day").agg(
        bytes=marked.bytes.sum().cast("int64"),
        alpha_bytes=marked.bytes.sum(where=marked.alpha).cast("int64"),
        alpha_flows=marked.alpha.cast("int64").sum().cast("int64"),
    )
    rows = logs.rows(grouped)
    if not rows:
        raise LogError("no transfer names both its ends: no prefix can be learnt")
    return [_daily(row) for row in rows]


def _daily(row: dict[str, Any]) -> Daily:
    month = datetime.fromtimestamp(row["day"] * 86_400, UTC)
    return Daily(
        month=f"{month:%Y-%m}",
        source=row["source"],
        destination=row["destination"],
        bytes=int(row["bytes"]),
        alpha_bytes=int(row["alpha_bytes"] or 0),
        alpha_flows=int(row["alpha_flows"] or 0),
    )


def prefix(host: str) -> str:
    """The prefix of an address; a name stands for itself, as it says nothing of its neighbours."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    return str(ipaddress.ip_network((address, PREFIX_BITS[address.version]), strict=False))


def months(rows: Sequence[Daily]) -> list[Month]:
    """Each month of the log after its first, and what the month before it would have caught of it."""
    learnt: dict[str, set[tuple[str, str]]] = defaultdict(set)
    moved: dict[str, dict[tuple[str, str], list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0, 0]))
    for row in rows:
        pair = (prefix(row.source), prefix(row.destination))
        if row.alpha_flows:
            learnt[row.month].add(pair)
        sums = moved[row.month][pair]
        for place, more in enumerate((row.bytes, row.alpha_bytes, row.alpha_flows)):
            sums[place] += more
    found = []
    for month in _all_months(sorted(moved)):
        known = learnt.get(_before(month), set())
        here = moved.get(month, {})
        caught = [sums for pair, sums in here.items() if pair in known]
        found.append(
            Month(
                month=month,
                learnt=len(known),
                alpha_flows=sum(sums[2] for sums in here.values()),
                alpha_bytes=sum(sums[1] for sums in here.values()),
                caught_bytes=sum(sums[1] for sums in caught),
                redirected_bytes=sum(sums[0] for sums in caught),
            )
        )
    return found[1:]


def redirected(found: Sequence[Month], terms: Terms, *, all_bytes: int) -> Outcome:
    """The same, told as a policy: a circuit for each learnt pair of prefixes, for the whole month.

    Capacity does not bind here: filters lead onto circuits that are shared within the domain.
    """
    hours = sum(each.learnt * _hours(each.month) for each in found)
    carried = float(sum(each.redirected_bytes for each in found))
    could = terms.rate_bps * hours * 3600 / 8
    return Outcome(
        policy="prefixes of last month",
        sessions=0,
        rejected=0,
        reused=0,
        circuits=sum(each.learnt for each in found),
        circuit_hours=hours,
        carried_bytes=carried,
        all_bytes=all_bytes,
        utilisation=carried / could if could else 0.0,
        most_circuits=max((each.learnt for each in found), default=0),
    )


def _all_months(present: Sequence[str]) -> list[str]:
    """Every month from the first to the last, those without a transfer too."""
    found = [present[0]]
    while found[-1] < present[-1]:
        found.append(_after(found[-1]))
    return found


def _after(month: str) -> str:
    year, number = map(int, month.split("-"))
    return f"{year + number // 12}-{number % 12 + 1:02}"


def _before(month: str) -> str:
    year, number = map(int, month.split("-"))
    return f"{year - (number == 1)}-{(number - 2) % 12 + 1:02}"


def _hours(month: str) -> float:
    first, after = (datetime.strptime(each, "%Y-%m").replace(tzinfo=UTC) for each in (month, _after(month)))
    return (after - first).total_seconds() / 3600
