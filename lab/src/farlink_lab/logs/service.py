"""Which service a feed should have: the routed network, a circuit of one of three kinds, or its peers.

The reasoning is that of the project's review of March 2012. Required of a sender without multicast is
fan-out × the rate of the peak minute. A static circuit is wasted on a feed whose mean is far below its
peak; a dynamic one needs silences longer than its setup; a multicast circuit carries each product once;
peers help where several of them have a product already.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from farlink_lab.logs.feed import SILENCE_S
from farlink_lab.quantity import show_rate, show_time

if TYPE_CHECKING:
    from farlink_lab.logs.feed import Feed, Topology

# A static circuit that is used less than half of what it must be able to is called poorly used: the study's
# smooth feed has 67%, its bursty one 17%.
LEAST_UTILISATION = 0.5
# Of gaps between products, those a dynamic circuit could be released in: fewer make it a static one.
LEAST_LONG_GAPS = 0.5

SERVICES = ("IP-routed", "static circuit", "dynamic circuit", "multicast circuit", "peer-to-peer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What is to be said of one service.

    Attributes:
        fits: `yes`, `poor` (it works, at a price) or `no`.
        sender_bps: What the sender's access link must carry at the peak; `None` where it cannot be said.
    """

    service: str
    fits: str
    sender_bps: float | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The table, and which service is taken.

    Attributes:
        required_bps: Of a sender without multicast, at the peak.
        servers: That many are needed of that rate, or `None` where no rate was given.
    """

    verdicts: tuple[Verdict, ...]
    chosen: str
    required_bps: float
    servers: int | None


def decide(
    feed: Feed,
    topology: Topology,
    *,
    setup_s: float,
    server_bps: float | None = None,
    held_by_peers: int = 0,
) -> Decision:
    """The decision table of a feed.

    Args:
        feed: What is sent.
        topology: To how many.
        setup_s: Of a dynamic circuit.
        server_bps: What one server can send, where it is known.
        held_by_peers: How many receivers have a product before it is sent to the others.
    """
    required = topology.fan_out * feed.peak_minute_bps
    servers = None if server_bps is None else math.ceil(required / server_bps - 1e-9)
    static = _static(feed, topology, required)
    verdicts = (
        _routed(feed, topology, required, servers),
        static,
        _dynamic(feed, required, setup_s, static),
        _multicast(feed, topology),
        _peers(topology, feed, held_by_peers),
    )
    return Decision(verdicts=verdicts, chosen=_chosen(verdicts), required_bps=required, servers=servers)


def _chosen(verdicts: tuple[Verdict, ...]) -> str:
    """The service that fits with the least for the sender to carry; of equals the simplest."""
    fitting = [verdict for verdict in verdicts if verdict.fits == "yes" and verdict.sender_bps is not None]
    best = min(fitting, key=lambda verdict: verdict.sender_bps or 0.0, default=verdicts[0])
    return best.service


def _routed(feed: Feed, topology: Topology, required: float, servers: int | None) -> Verdict:
    if topology.fan_out == 1:
        reason = f"one receiver: {show_rate(feed.peak_minute_bps)} at the peak, without a guarantee"
        return Verdict(service=SERVICES[0], fits="yes", sender_bps=required, reason=reason)
    many = f"{servers} servers" if servers is not None and servers > 1 else "the sender"
    return Verdict(
        service=SERVICES[0],
        fits="poor" if servers is None or servers > 1 else "yes",
        sender_bps=required,
        reason=(
            f"reaches everybody; {many} must send {topology.fan_out} copies, and latency grows with receivers"
        ),
    )


def _static(feed: Feed, topology: Topology, required: float) -> Verdict:
    used = f"used to {100 * feed.smoothness:.0f}% of its peak minute"
    smooth = feed.smoothness >= LEAST_UTILISATION
    copies = f"; {topology.fan_out} of them from the sender" if topology.fan_out > 1 else ""
    word = "smooth enough" if smooth else "bursty"
    return Verdict(
        service=SERVICES[1],
        fits="yes" if smooth else "poor",
        sender_bps=required,
        reason=f"{word}: {used}{copies}",
    )


def _dynamic(feed: Feed, required: float, setup_s: float, static: Verdict) -> Verdict:
    long = feed.share_longer(setup_s)
    setup = show_time(setup_s)
    bound = ""
    if long is None:
        silent = feed.silent_share
        if silent is None:
            return _unknown(f"it needs silences longer than the setup of {setup}, and there is no trace")
        # All that is known: fewer are longer than a longer setup, more than a shorter one.
        known = f"{100 * silent:.3g}% of silences are longer than {show_time(SILENCE_S)}"
        above, below = setup_s > SILENCE_S, setup_s < SILENCE_S
        if (above and silent >= LEAST_LONG_GAPS) or (below and silent < LEAST_LONG_GAPS):
            return _unknown(f"{known}; a trace would tell how many are longer than the setup of {setup}")
        bound = "at most " if above else "at least " if below else ""
        long = silent
    share = f"{bound}{100 * long:.3g}% of silences are longer than the setup of {setup}"
    if long < LEAST_LONG_GAPS:
        return Verdict(service=SERVICES[2], fits="no", sender_bps=None, reason=share)
    worse = " and saves what a static one wastes" if static.fits == "poor" else ""
    return Verdict(service=SERVICES[2], fits="yes", sender_bps=required, reason=f"{share}: it pays{worse}")


def _unknown(why: str) -> Verdict:
    return Verdict(service=SERVICES[2], fits="poor", sender_bps=None, reason=f"unknown: {why}")


def _multicast(feed: Feed, topology: Topology) -> Verdict:
    if topology.fan_out == 1:
        return Verdict(
            service=SERVICES[3], fits="no", sender_bps=None, reason="one receiver: nothing to share"
        )
    return Verdict(
        service=SERVICES[3],
        fits="yes",
        sender_bps=feed.peak_minute_bps,
        reason=(
            f"each product is sent once, {show_rate(feed.peak_minute_bps)} in place of "
            f"{show_rate(topology.fan_out * feed.peak_minute_bps)}; latency does not grow with receivers"
        ),
    )


def _peers(topology: Topology, feed: Feed, held_by_peers: int) -> Verdict:
    if held_by_peers < 2:
        return Verdict(
            service=SERVICES[4],
            fits="no",
            sender_bps=None,
            reason="it wins only where several peers have a product already, and those of a feed have none",
        )
    share = max(1.0, topology.fan_out / (held_by_peers + 1))
    return Verdict(
        service=SERVICES[4],
        fits="poor",
        sender_bps=share * feed.peak_minute_bps,
        reason=(
            f"{held_by_peers} peers have a product already, "
            f"and share {topology.fan_out} copies with the sender"
        ),
    )
