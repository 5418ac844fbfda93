"""Response functions: the rate that random losses leave to one stream, by congestion control.

Each gives the mean rate (bit/s) of a stream whose segments are lost independently with probability p, on a
connection that limits it by nothing else. They are averages of a periodic sawtooth: a loss every 1/p
segments. They hold for small p, after many losses; a transfer that sees one loss or none is not described by
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.integrate import cumulative_trapezoid

if TYPE_CHECKING:
    from collections.abc import Callable

Array = NDArray[np.float64]

# RFC 9438, 4.1 and 4.6: C in segments per second cubed, and what a loss leaves of the window.
CUBIC_GROWTH, CUBIC_BETA = 0.4, 0.7
# Kelly 2003: growth for each segment acknowledged, and what a loss takes.
SCALABLE_GROWTH, SCALABLE_CUT = 0.01, 0.125
# Linux, tcp_htcp.c: what a loss leaves of the window where RTTs do not tell, and the bounds of RTT scaling.
HTCP_BETA = 0.5
HTCP_SCALING = (0.1, 2.0)
_PERIODS_S = np.concatenate([[0.0], np.geomspace(1e-4, 1e6, 4000)])


class ResponseError(ValueError):
    """A rate that no response function gives."""


def loss_limited_bps(
    rtt_s: ArrayLike, *, congestion: str, loss: float, segment_bytes: float, streams: float = 1
) -> Array:
    """What losses leave to n streams of a congestion control, bit/s, of the shape of `rtt_s`.

    Args:
        rtt_s: τ, any shape, finite, above 0.
        congestion: One of `RESPONSES`, as the kernel names it.
        loss: p, probability that a segment is lost, in (0, 1).
        segment_bytes: Payload of a segment.
        streams: n: independent streams add up.

    Raises:
        ResponseError: where `congestion` has no response function, or a value is out of its range.
    """
    window = RESPONSES.get(congestion)
    if window is None:
        raise ResponseError(
            f"no response function for {congestion!r}: it is known for {', '.join(sorted(RESPONSES))}"
        )
    rtt = np.asarray(rtt_s, dtype=np.float64)
    if not (np.isfinite(rtt).all() and (rtt > 0).all()):
        raise ResponseError("an RTT for a response function is finite and above 0")
    if not 0 < loss < 1:
        raise ResponseError(f"a loss probability of {loss:g}: it must be between 0 and 1")
    rates: Array = 8 * segment_bytes * streams * window(rtt, loss) / rtt
    return rates


def reno_window(rtt_s: Array, loss: float) -> Array:
    """√(3/2)/√p segments (Mathis, Semke, Mahdavi and Ott 1997; RFC 3649, 2): the same at every RTT."""
    window: Array = np.full(rtt_s.shape, np.sqrt(1.5 / loss))
    return window


def cubic_window(rtt_s: Array, loss: float) -> Array:
    """(C(3+β)/(4(1−β)))^¼ · (τ/p)^¾ segments (RFC 9438, 5.1), or Reno's where that is more (4.3)."""
    scale = (CUBIC_GROWTH * (3 + CUBIC_BETA) / (4 * (1 - CUBIC_BETA))) ** 0.25
    window: Array = np.maximum(scale * (rtt_s / loss) ** 0.75, reno_window(rtt_s, loss))
    return window


def scalable_window(rtt_s: Array, loss: float) -> Array:
    """(a/b)/p = 0.08/p segments (Kelly, "Scalable TCP", 2003), or Reno's where that is more.

    Linux grows as Reno does below 100 segments, where both say about the same.
    """
    window: Array = np.maximum(SCALABLE_GROWTH / SCALABLE_CUT / loss, reno_window(rtt_s, loss))
    return window


def htcp_window(rtt_s: Array, loss: float) -> Array:
    """Mean window of H-TCP's sawtooth (Leith and Shorten 2004), as Linux scales it, segments.

    Growth is 2(1−β)·max(1, k·f(Δ)) segments a round trip, f = 1 + 10(Δ−1) + ((Δ−1)/2)² from one second after
    a loss and 1 before, k = 10·τ/s in [0.1, 2] (RTT scaling); β is ½, as where the throughput at successive
    losses differs. The period T solves (β·W)·T/τ + ∫∫growth/τ² = 1/p with (1−β)·W = ∫growth/τ.
    """
    windows = [_htcp_window(float(rtt), loss) for rtt in rtt_s.ravel()]
    return np.array(windows).reshape(rtt_s.shape)


def _htcp_window(rtt: float, loss: float) -> float:
    since = np.maximum(_PERIODS_S - 1, 0)
    scaling = float(np.clip(10 * rtt, *HTCP_SCALING))
    growth = 2 * (1 - HTCP_BETA) * np.maximum(1, scaling * (1 + 10 * since + (since / 2) ** 2))
    grown = cumulative_trapezoid(growth, _PERIODS_S, initial=0) / rtt
    peak = grown / (1 - HTCP_BETA)
    sent = (HTCP_BETA * peak * _PERIODS_S + cumulative_trapezoid(grown, _PERIODS_S, initial=0)) / rtt
    # On logarithmic axes the curve is nearly straight; the first point is zero and has no logarithm.
    period = np.exp(np.interp(np.log(1 / loss), np.log(sent[1:]), np.log(_PERIODS_S[1:])))
    return float(rtt / loss / period)


RESPONSES: dict[str, Callable[[Array, float], Array]] = {
    "cubic": cubic_window,
    "htcp": htcp_window,
    "reno": reno_window,
    "scalable": scalable_window,
}
