"""The emulator's health during a run, from its counters before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from farlink_lab.records import Health

if TYPE_CHECKING:
    from collections.abc import Mapping

# Used where the emulator does not state the limit: 0.25 ms or 1% of the one-way delay, whichever is more.
LEAST_LIMIT_S = 0.25e-3
SHARE_OF_DELAY = 0.01
# Of packets, that the lateness of the run is judged by.
QUANTILE = 0.99


def overrun_limit_s(rtt_s: float) -> float:
    """Lateness (p99, seconds) above which a run says more of the emulator than of the connection."""
    return max(LEAST_LIMIT_S, SHARE_OF_DELAY * rtt_s / 2)


def health_between(before: Mapping[str, Any], after: Mapping[str, Any]) -> Health | None:
    """The health between two answers of `farlink link NAME --json`, the worst of the links.

    Lateness is the upper bound of a bucket of the histogram. `None` where no packet left in between or the
    answers have no histogram: what is not known is absent.
    """
    earlier = {_ends(link): link for link in before.get("links", ())}
    worst: Health | None = None
    stolen = after.get("stolen_s")
    stolen_s = stolen - (before.get("stolen_s") or 0.0) if isinstance(stolen, int | float) else None
    limit = after.get("overrun_limit_s")
    if not isinstance(limit, int | float):
        limit = overrun_limit_s(after.get("rtt_s") or 0.0)
    for link in after.get("links", ()):
        past = earlier.get(_ends(link), {})
        late = _difference(past.get("late", ()), link.get("late", ()))
        unread = _unread(link) - _unread(past)
        if not late and unread <= 0:
            continue
        p99, most = _quantile(late, QUANTILE), max(late, default=0.0)
        worst = Health(
            late_max_s=max(most, worst.late_max_s if worst else 0.0),
            late_p99_s=max(p99, worst.late_p99_s if worst else 0.0),
            overrun=p99 > limit or unread > 0 or (worst is not None and worst.overrun),
            stolen_s=stolen_s,
        )
    return worst


def _ends(link: Mapping[str, Any]) -> tuple[Any, Any]:
    return (link.get("from"), link.get("to"))


def _unread(link: Mapping[str, Any]) -> int:
    count = link.get("dropped", {}).get("unread", 0)
    return count if isinstance(count, int) else 0


def _difference(before: Any, after: Any) -> dict[float, int]:
    """Counts by upper bound that came to be in between, those that are not zero."""
    past = {float(bound): int(count) for bound, count in before}
    grown = {float(bound): int(count) - past.get(float(bound), 0) for bound, count in after}
    return {bound: count for bound, count in grown.items() if count > 0}


def _quantile(counts: Mapping[float, int], share: float) -> float:
    total, seen = sum(counts.values()), 0
    for bound in sorted(counts):
        seen += counts[bound]
        if seen >= share * total:
            return bound
    return 0.0
