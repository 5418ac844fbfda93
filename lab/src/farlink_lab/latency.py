"""How long a product takes to reach all receivers: by TCP to each of them, and by multicast.

The model of the VCMTP study (Li, Liu and Veeraraghavan's review of 22 March 2012, whose text leaves the
formulas out; these are the only forms that fit its prose and its example), and its extension by loss.
Symbols: s size (bytes), n receivers, k servers; r_s and r_r the rates (bit/s) that one sender's and one
receiver's machine sustain, c_s and c_r those of their access links. Sizes are decimal: with s = 125 MB the
example's 50 s and 10 s come out. All functions are of numbers and give numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

# Less of a transmission than this is none.
_LEAST_TERM = 1e-12
# Of packets: of more next to nothing arrives, and E[M] has a term for each time that one may have to be sent.
MOST_LOSS = 0.999


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A sender, its receivers, and what they sustain.

    Attributes:
        receivers: n, at least 1.
        sender_bps: r_s, what one server sends, bit/s.
        sender_link_bps: c_s, the sender's access link, bit/s; no bound where it is infinite.
        receiver_bps: r_r, what a receiver takes, bit/s.
        receiver_link_bps: c_r, a receiver's access link, bit/s; no bound where it is infinite.
    """

    receivers: int
    sender_bps: float
    sender_link_bps: float = math.inf
    receiver_bps: float = math.inf
    receiver_link_bps: float = math.inf

    def __post_init__(self) -> None:
        """Refuses what no group has.

        Raises:
            ValueError: where there is no receiver, or a rate is not positive.
        """
        if self.receivers < 1:
            raise ValueError("a group has at least one receiver")
        rates = (self.sender_bps, self.sender_link_bps, self.receiver_bps, self.receiver_link_bps)
        if not all(rate > 0 for rate in rates) or math.isinf(min(rates)):
            raise ValueError("rates are more than 0, and one of them at least is finite")

    @property
    def one_receiver_bps(self) -> float:
        """min(c_r, r_r): what one receiver can have, bit/s."""
        return min(self.receiver_link_bps, self.receiver_bps)

    @property
    def multicast_bps(self) -> float:
        """min(c_s, r_s, c_r, r_r): the highest rate to the whole group, bit/s."""
        return min(self.sender_link_bps, self.sender_bps, self.one_receiver_bps)


def unicast_s(group: Group, *, size_bytes: float, servers: int = 1) -> float:
    """T_tcp(n, k) = 8 s n / min(c_s, k r_s, n c_r, n r_r): a connection to each receiver, seconds."""
    n = group.receivers
    rate = min(group.sender_link_bps, servers * group.sender_bps, n * group.one_receiver_bps)
    return 8 * size_bytes * n / rate


def multicast_s(group: Group, *, size_bytes: float, overhead: float = 0.0) -> float:
    """T_vcmtp = 8 s (1 + h) / min(c_s, r_s, c_r, r_r): once to all, whatever their number, seconds.

    Args:
        group: Who.
        size_bytes: s.
        overhead: h, bytes of headers to a byte of payload.
    """
    return 8 * size_bytes * (1 + overhead) / group.multicast_bps


def crossover_receivers(group: Group, *, overhead: float = 0.0) -> float:
    """n* = (1 + h) min(c_s, r_s) / min(c_s, r_s, c_r, r_r): up to so many receivers unicast is as fast.

    Above it multicast is n / n* times as fast. It is the study's min(c_s, r_s) / min(c_r, r_r) but for
    headers, and but for receivers who can have more than the sender sends: to one of them unicast is as fast.
    """
    return (1 + overhead) * min(group.sender_link_bps, group.sender_bps) / group.multicast_bps


def servers_for_parity(group: Group, *, overhead: float = 0.0) -> int | None:
    """k*: servers with which unicast is as fast as multicast; `None` where no number of them is.

    More servers help only as long as the servers are the bottleneck, not the sender's link.
    """
    # What multicast brings to all receivers, headers not counted.
    needed = group.receivers * group.multicast_bps / (1 + overhead)
    if group.sender_link_bps < needed * (1 - 1e-12):
        return None
    return max(1, math.ceil(needed / group.sender_bps - 1e-9))


def transmissions(receivers: int, loss: float) -> float:
    """E[M] = Σ_{k≥0} (1 − (1 − p^k)^n): times that a packet is sent to a group until all have it.

    Receivers lose each packet with probability p, independently of each other: the mean of the maximum of n
    geometric numbers (Nonnenmacher, Biersack and Towsley, ToN 6(4), 1998). Infinite where p is 1.
    """
    if loss >= 1:
        return math.inf
    total, lost = 1.0, loss
    while (term := -math.expm1(receivers * math.log1p(-lost))) > _LEAST_TERM:
        total += term
        lost *= loss
    return total


def unicast_repair_bytes(*, size_bytes: float, receivers: int, loss: float) -> float:
    """S (1 + n p): what the sender sends where each loss is repaired to the one who has it, bytes.

    A repair over TCP is sent once here, as in the study's extension: the path of a repair is not the group's.
    """
    return size_bytes * (1 + receivers * loss)


def multicast_repair_bytes(*, size_bytes: float, receivers: int, loss: float) -> float:
    """S E[M]: what the sender sends where each loss is repaired to all, bytes."""
    return size_bytes * transmissions(receivers, loss)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """How long a lossy multicast takes, seconds, and what it sends, bytes.

    Attributes:
        first_pass_s: t_m, until everything was sent once.
        unicast_s: Until the last receiver has its repairs over TCP.
        multicast_s: Until everything was sent often enough for all.
        unicast_bytes: What the sender sends with repairs by unicast, headers not counted.
        multicast_bytes: The same with repairs by multicast.
    """

    first_pass_s: float
    unicast_s: float
    multicast_s: float
    unicast_bytes: float
    multicast_bytes: float

    @property
    def cheaper(self) -> str:
        """`unicast` or `multicast`: by which of the two the sender sends less."""
        return "unicast" if self.unicast_bytes <= self.multicast_bytes else "multicast"


def repaired(
    group: Group,
    *,
    size_bytes: float,
    loss: float,
    overhead: float = 0.0,
    turnaround_s: float = 0.0,
    repair_bps: float | None = None,
) -> Repaired:
    """Multicast with loss p at each receiver, independent: T_i = t_m + d + 8 s p / u, and t_m E[M].

    Args:
        group: Who.
        size_bytes: s.
        loss: p, of packets, at most `MOST_LOSS`.
        overhead: h, bytes of headers to a byte of payload.
        turnaround_s: d, from the end of the first pass to the first repair: a round trip where repairs wait
            for it, about 0 where they overlap with it.
        repair_bps: What all repairs by unicast may have together, bit/s; where absent, the rate of the
            multicast, which `farlink cast send` gives them once the first pass is over.

    Raises:
        ValueError: where `loss` is not from 0 to `MOST_LOSS`.
    """
    if not 0 <= loss <= MOST_LOSS:
        raise ValueError(f"loss is from 0 to {MOST_LOSS}, far enough below 1 for something to arrive")
    first_pass = multicast_s(group, size_bytes=size_bytes, overhead=overhead)
    together = group.multicast_bps if repair_bps is None else repair_bps
    share = min(group.one_receiver_bps, together / group.receivers)
    repair = 8 * size_bytes * loss * (1 + overhead) / share if loss else 0.0
    sent = transmissions(group.receivers, loss)
    wait = turnaround_s if loss else 0.0
    return Repaired(
        first_pass_s=first_pass,
        unicast_s=first_pass + wait + repair,
        multicast_s=first_pass * sent + wait,
        unicast_bytes=unicast_repair_bytes(size_bytes=size_bytes, receivers=group.receivers, loss=loss),
        multicast_bytes=multicast_repair_bytes(size_bytes=size_bytes, receivers=group.receivers, loss=loss),
    )
