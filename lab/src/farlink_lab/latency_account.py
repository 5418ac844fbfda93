"""What the latency model says of a group, as text and as JSON."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from farlink_lab.latency import (
    crossover_receivers,
    multicast_s,
    repaired,
    servers_for_parity,
    unicast_s,
)
from farlink_lab.quantity import show_count, show_rate, show_size, show_time

if TYPE_CHECKING:
    from farlink_lab.latency import Group, Repaired


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The model's answers for one product and one group.

    Attributes:
        group: Who.
        size_bytes: s.
        unicast_s: By TCP from one server, seconds.
        multicast_s: By multicast without loss, seconds.
        crossover_receivers: Up to how many receivers unicast is as fast.
        servers: Seconds by TCP with 1, 2, ... servers, up to as many as it takes, at most `MOST_SERVERS`.
        parity_servers: Servers with which unicast is as fast; `None` where no number of them is.
        loss: p, where asked for.
        repaired: With loss, where asked for.
    """

    group: Group
    size_bytes: float
    unicast_s: float
    multicast_s: float
    crossover_receivers: float
    servers: tuple[float, ...]
    parity_servers: int | None
    loss: float | None = None
    repaired: Repaired | None = None


# A table of more is not read.
MOST_SERVERS = 12
# Ratios that differ by less differ by rounding alone.
_SAME = 1e-9


def account(
    group: Group,
    *,
    size_bytes: float,
    overhead: float,
    loss: float | None,
    rtt_s: float | None,
    repair_bps: float | None = None,
) -> Account:
    """What the model says.

    `rtt_s` is how long after the first pass the first repair comes, where repairs wait for its end;
    `repair_bps` what repairs by unicast may have together, the rate of the multicast where it is absent.
    """
    parity = servers_for_parity(group, overhead=overhead)
    most = min(parity or MOST_SERVERS, MOST_SERVERS)
    with_loss = None
    if loss is not None:
        with_loss = repaired(
            group,
            size_bytes=size_bytes,
            loss=loss,
            overhead=overhead,
            turnaround_s=rtt_s or 0.0,
            repair_bps=repair_bps,
        )
    return Account(
        group=group,
        size_bytes=size_bytes,
        unicast_s=unicast_s(group, size_bytes=size_bytes),
        multicast_s=multicast_s(group, size_bytes=size_bytes, overhead=overhead),
        crossover_receivers=crossover_receivers(group, overhead=overhead),
        servers=tuple(unicast_s(group, size_bytes=size_bytes, servers=k) for k in range(1, most + 1)),
        parity_servers=parity,
        loss=loss,
        repaired=with_loss,
    )


def told(stated: Account) -> list[str]:
    """The account in lines for a terminal."""
    n, size = stated.group.receivers, show_size(stated.size_bytes)
    ratio = stated.unicast_s / stated.multicast_s
    lines = [
        f"{size} to {show_count(n, 'receiver')}",
        f"  unicast, one server:  {show_time(stated.unicast_s)}",
        f"  multicast:            {show_time(stated.multicast_s)} at {show_rate(stated.group.multicast_bps)}",
    ]
    if ratio > 1 + _SAME:
        lines.append(f"  multicast takes 1/{ratio:.3g} of the time")
    else:
        faster = f"faster, by {100 * (1 - ratio):.2g}% of the time" if ratio < 1 - _SAME else "as fast"
        lines.append(f"  unicast is {faster}{_bottleneck(stated.group)}")
    crossover = math.floor(stated.crossover_receivers + _SAME)
    lines.append(f"  crossover: unicast is as fast for up to {show_count(crossover, 'receiver')}")
    if stated.parity_servers is None:
        lines.append(
            "  servers: no number of them makes unicast as fast: the sender's link is the bottleneck"
        )
    else:
        table = ", ".join(f"{k}: {show_time(time)}" for k, time in enumerate(stated.servers, start=1))
        lines.append(f"  unicast with so many servers: {table}")
        each = math.ceil(n / stated.parity_servers)
        lines.append(
            f"  servers for parity: {stated.parity_servers}, of up to {show_count(each, 'receiver')} each"
        )
    if stated.repaired is not None and stated.loss is not None:
        lines += _told_repaired(stated.repaired, loss=stated.loss, size_bytes=stated.size_bytes)
    return lines


def as_json(stated: Account) -> dict[str, object]:
    """The account as one JSON object; what is infinite is absent."""
    members = {name: value for name, value in asdict(stated).items() if value is not None}
    members["group"] = {name: value for name, value in asdict(stated.group).items() if not math.isinf(value)}
    members["multicast_bps"] = stated.group.multicast_bps
    if stated.repaired is not None:
        members["cheaper"] = stated.repaired.cheaper
    return members


def _bottleneck(group: Group) -> str:
    """Names the receivers where it is they who bound unicast from one server: the end of a line."""
    all_receivers_bps = group.receivers * group.one_receiver_bps
    bound = all_receivers_bps <= min(group.sender_link_bps, group.sender_bps) * (1 + _SAME)
    return ": the receivers are the bottleneck" if bound else ""


def _told_repaired(found: Repaired, *, loss: float, size_bytes: float) -> list[str]:
    def sent(size: float) -> str:
        return f"{size / size_bytes:.3g} times the size sent"

    return [
        f"  with {loss * 100:.3g}% loss at each receiver, independent:",
        f"    repaired by unicast:   {show_time(found.unicast_s)}, {sent(found.unicast_bytes)}",
        f"    repaired by multicast: {show_time(found.multicast_s)}, {sent(found.multicast_bytes)}",
        f"    the sender sends less by {found.cheaper}",
    ]
