"""The regime and the concavity of a profile, with its interval, as the tables of findings have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from farlink_lab.findings import Findings, Refusal
from farlink_lab.regimes import Regimes
from farlink_lab.resampling import lenders, mostly, resampled_means
from farlink_lab.utilization import UtilizationError, convexity, utilization
from numpy.typing import NDArray

if TYPE_CHECKING:
    from farlink_lab.profile import Profile

Array = NDArray[np.float64]

LEVEL = 0.05
RESAMPLES = 2000
REGIME_HEAD = [
    *("configuration", "regime", "τ_T (95%)", "C_U", "C_CC, our reading (95%)", "UCC"),
    *("medians, Gb/s", "runs (late)"),
]


def judged(found: Regimes | Refusal) -> bool:
    """Whether a regime was tested against the spread of the runs; else bends beyond 1% alone made it."""
    return isinstance(found, Regimes) and found.shape.judged


def regime_row(profile: Profile, found: Findings) -> list[str]:
    """A profile's regime, τ_T, and its coefficients, C_CC with its interval."""
    regime = found.regimes[profile.key]
    at = "–"
    if isinstance(regime, Regimes) and regime.sigmoid is not None:
        at = f"{1e3 * regime.sigmoid.transition_s:.0f} ms"
        if regime.transition_s is not None:
            at += f" ({1e3 * regime.transition_s[0]:.0f}-{1e3 * regime.transition_s[1]:.0f})"
    told = regime.reason if isinstance(regime, Refusal) else regime.regime
    if isinstance(regime, Regimes) and not judged(regime):
        told += " (shape only)"
    bow = f"{concavity(profile):+.3f}"
    drawn = convexities(profile)
    bow += " (no interval)" if drawn is None else f" ({interval(drawn)})"
    unused, both = others(profile)
    medians = ", ".join(f"{rate / 1e9:.2f}" for rate in profile.median_bps)
    return [profile.label, told, at, unused, bow, both, medians, f"{profile.runs} ({profile.late_runs})"]


def others(profile: Profile) -> tuple[str, str]:
    """C_U and UCC, which belong beside C_CC."""
    try:
        use = utilization(profile.rtt_s, clipped(profile), capacity_bps=profile.capacity_bps or 0.0)
    except UtilizationError:
        return "–", "–"
    return f"{use.under_utilization:.3f}", f"{use.coefficient:.3f}"


def clipped(profile: Profile) -> Array:
    """Means, which may lie a little above the capacity by luck."""
    return np.minimum(profile.mean_bps, profile.capacity_bps or 0.0)


def concavity(profile: Profile) -> float:
    """C_CC of the means: negative is concave."""
    return float(convexity(profile.rtt_s, clipped(profile) / (profile.capacity_bps or 1.0)))


def convexities(profile: Profile, *, seed: int = 1) -> Array | None:
    """C_CC of resampled means, shape (RESAMPLES,).

    `None` where fewer than half of the RTTs that are not late have two runs: late runs lend no certainty.
    """
    counts = np.array([len(runs) for runs in profile.throughput_bps])
    if not mostly(counts[~profile.late] > 1):
        return None
    lending = lenders(profile.throughput_bps, profile.late)
    drawn = resampled_means(profile.throughput_bps, lending=lending, seed=seed, resamples=RESAMPLES)
    capacity = profile.capacity_bps or 1.0
    return convexity(profile.rtt_s, np.minimum(drawn, capacity) / capacity)


def bounds(drawn: Array, *, level: float = LEVEL) -> tuple[float, float]:
    """The bootstrap interval of what was drawn."""
    low, high = np.quantile(drawn, [level / 2, 1 - level / 2])
    return float(low), float(high)


def interval(drawn: Array, *, level: float = LEVEL) -> str:
    """The same, for a table."""
    low, high = bounds(drawn, level=level)
    return f"{low:+.3f} to {high:+.3f}"
