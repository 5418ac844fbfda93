"""Verdicts on what widens the concave region of a profile: buffers, streams, and what goes with it."""

from __future__ import annotations

import itertools
import math
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
from farlink_lab.findings import Findings, Refusal
from farlink_lab.quantity import show_size

from support import page
from support.concavity import (
    LEVEL,
    REGIME_HEAD,
    Array,
    bounds,
    concavity,
    convexities,
    interval,
    others,
    regime_row,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from farlink_lab.profile import Profile

# Fewer configurations cannot show a rank correlation that is not perfect, nor fewer RTTs a median scatter.
LEAST_CONFIGURATIONS = 6
LEAST_RTTS = 3
Cell = tuple[float, int]


def widens(found: Findings) -> tuple[str, str]:
    """Whether C_CC falls, which is a wider concave region, with larger buffers and with more streams."""
    cells = {_cell(profile): profile for profile in found.profiles}
    drawn = {
        cell: draws
        for number, (cell, profile) in enumerate(sorted(cells.items()))
        if (draws := convexities(profile, seed=number)) is not None
    }
    rows = [regime_row(cells[cell], found) for cell in sorted(cells)]
    verdicts, steps = [], []
    for name, factor, held in (("larger buffers", 0, "streams"), ("more streams", 1, "buffers")):
        verdict, own = _along(drawn, factor)
        verdicts.append(f"{name}: {verdict}")
        steps += [[f"{name}, {where}", change] for where, change in own]
        said = _mean_change(drawn, factor)
        if said is not None:
            steps.append(
                [
                    f"{name}, from the least to the most, mean over {held}",
                    f"{said.mean():+.3f} ({interval(said)})",
                ]
            )
    head = ["C_CC changes with", "by (95%; of steps, all of a kind together)"]
    missing = len(cells) - len(drawn)
    beside = (
        f"\n\n{missing} of {len(cells)} configurations have too few runs away from late RTTs for an "
        "interval, and are in no comparison."
        if missing
        else ""
    )
    return "; ".join(verdicts), page.table(REGIME_HEAD, rows) + "\n\n" + page.table(head, steps) + beside


def _cell(profile: Profile) -> Cell:
    """Its buffer, without bound where the kernel tunes it, and its streams."""
    return math.inf if profile.buffer_bytes is None else float(profile.buffer_bytes), profile.streams or 1


def _of(cell: Cell, factor: int) -> str:
    if factor == 1:
        return f"×{cell[1]}"
    return "full buffers" if math.isinf(cell[0]) else show_size(cell[0])


def _along(drawn: dict[Cell, Array], factor: int) -> tuple[str, list[tuple[str, str]]]:
    """The verdict on one factor, and each of its steps with its interval."""
    steps = []
    for _, line in itertools.groupby(
        sorted(drawn, key=lambda cell: (cell[1 - factor], cell[factor])), lambda cell: cell[1 - factor]
    ):
        steps += list(itertools.pairwise(line))
    whole = _mean_change(drawn, factor)
    if whole is None or not steps:
        return "not measured", []
    # All steps of a kind are judged at `LEVEL` together (Bonferroni).
    level = LEVEL / len(steps)
    rows, rising = [], []
    for before, after in steps:
        change = drawn[after] - drawn[before]
        low, _ = bounds(change, level=level)
        if low > 0:
            rising.append((before, after))
        where = f"{_of(before, factor)} to {_of(after, factor)} with {_of(before, 1 - factor)}"
        rows.append((where, f"{change.mean():+.3f} ({interval(change, level=level)})"))
    low, high = bounds(whole)
    verdict = "holds" if high < 0 else "does not hold, C_CC grows" if low > 0 else "not shown"
    if high < 0 and rising:
        back = ", ".join(f"{_of(a, factor)} to {_of(b, factor)} with {_of(a, 1 - factor)}" for a, b in rising)
        verdict = f"holds on the whole, but C_CC grows from {back}"
    return verdict, rows


def _mean_change(drawn: dict[Cell, Array], factor: int) -> Array | None:
    """C_CC at the greatest less C_CC at the least, mean over what has both; `None` where nothing has."""
    levels = sorted({cell[factor] for cell in drawn})
    if len(levels) < 2:
        return None
    changes = []
    for other in sorted({cell[1 - factor] for cell in drawn}):
        first, last = ((level, other) if factor == 0 else (other, level) for level in (levels[0], levels[-1]))
        if first in drawn and last in drawn:
            changes.append(drawn[last] - drawn[first])
    return np.mean(changes, axis=0) if changes else None


def smoother_is_wider(found: Findings) -> tuple[str, str]:
    """Whether configurations whose samples scatter less about their Poincaré map have the smaller C_CC.

    Kendall's tau over all configurations, and over pairs that have the buffer, or the streams, in common:
    those change both scatter and C_CC.
    """
    scatters = {profile.key: _scatters(profile, found) for profile in found.profiles}
    rtts = sorted(set.intersection(*(set(own) for own in scatters.values()))) if scatters else []
    count = len(found.profiles)
    if count < LEAST_CONFIGURATIONS or len(rtts) < LEAST_RTTS:
        verdict = (
            f"too little to tell: {count} configurations whose samples have a scatter at {len(rtts)} RTTs in "
            f"common, and it takes {LEAST_CONFIGURATIONS} at {LEAST_RTTS}"
        )
        return verdict, ""
    points = {
        _cell(profile): (median(scatters[profile.key][rtt] for rtt in rtts), concavity(profile))
        for profile in found.profiles
    }
    rows = []
    for profile in sorted(found.profiles, key=lambda profile: points[_cell(profile)][0]):
        scatter, bow = points[_cell(profile)]
        unused, both = others(profile)
        rows.append([profile.label, f"{scatter:.4f}", unused, f"{bow:+.3f}", both])
    strata = (
        ("all configurations", [list(points)]),
        ("of one buffer", _strata(points, 0)),
        ("of one number of streams", _strata(points, 1)),
    )
    tests = [
        (name, *concordance([[points[cell] for cell in own] for own in groups])) for name, groups in strata
    ]
    (_, tau, chance, against), *within = tests
    sure = [f"{name} (tau {own:+.2f})" for name, own, likely, _ in within if likely <= LEVEL]
    least = needed_tau(count)
    if chance <= LEVEL and len(sure) == len(within):
        verdict = f"holds: tau {tau:+.2f}, p {chance:.2g}, and among configurations {' and '.join(sure)}"
    elif chance <= LEVEL:
        also = f", and among those {sure[0]}" if sure else ""
        verdict = (
            f"holds over all configurations (tau {tau:+.2f}, p {chance:.2g}){also}; not shown where buffers "
            "or streams, which change both, are alike"
        )
    elif against <= LEVEL:
        verdict = f"does not hold: the rougher have the wider concavity (tau {tau:+.2f}, p {against:.2g})"
    else:
        verdict = (
            f"not shown: tau {tau:+.2f}, p {chance:.2g}; of {count} configurations a tau below {least:.2f} "
            "is not told from chance"
        )
    late = sum(
        bool(flag)
        for profile in found.profiles
        for rtt, flag in zip(profile.rtt_s, profile.late, strict=True)
        if float(rtt) in rtts
    )
    beside = (
        "Scatter: about the map of steps of nearly whole round trips, so that bursts of a window are none; "
        f"median over the {len(rtts)} RTTs at which the samples of every configuration have one "
        f"({', '.join(f'{1e3 * rtt:g}' for rtt in rtts)} ms; {late} of the {count * len(rtts)} points are "
        "late). p: exact, one-sided, that ranks which have nothing to do with each other agree as much."
    )
    tables = [
        page.table(["configuration", "scatter", "C_U", "C_CC", "UCC"], rows),
        page.table(
            ["Kendall's tau of scatter and C_CC", "tau", "p"],
            [[name, f"{own:+.2f}", f"{likely:.2g}"] for name, own, likely, _ in tests],
        ),
        beside,
    ]
    return verdict, "\n\n".join(tables)


def _scatters(profile: Profile, found: Findings) -> dict[float, float]:
    """The scatter about the map, by RTT, where there are samples enough."""
    told = {rtt: found.dynamics[profile.key, rtt] for rtt in profile.rtt_s.tolist()}
    return {
        rtt: one.scatter
        for rtt, one in told.items()
        if not isinstance(one, Refusal) and math.isfinite(one.scatter)
    }


def _strata(cells: Iterable[Cell], factor: int) -> list[list[Cell]]:
    by: dict[float, list[Cell]] = {}
    for cell in cells:
        by.setdefault(cell[factor], []).append(cell)
    return [own for own in by.values() if len(own) > 1]


def concordance(strata: Sequence[Sequence[tuple[float, float]]]) -> tuple[float, float, float]:
    """Kendall's tau of pairs within strata, and the chances of one as high, and of one as low.

    Exact: within each stratum every order of the second is as likely (Kendall 1938); ties count for none.
    """
    agree, ways = 0, np.ones(1)
    pairs = 0
    for own in strata:
        for (x, y), (u, v) in itertools.combinations(own, 2):
            agree += int(np.sign((x - u) * (y - v)))
            pairs += 1
        ways = np.convolve(ways, _discordant(len(own)))
    if not pairs:
        return 0.0, 1.0, 1.0
    # With d discordant pairs, tau is 1 - 2d/pairs.
    discordant = (pairs - agree) / 2
    share = ways / ways.sum()
    numbers = np.arange(len(share))
    high, low = share[numbers <= discordant].sum(), share[numbers >= discordant].sum()
    return agree / pairs, float(high), float(low)


def needed_tau(count: int) -> float:
    """The least tau of so many that is less likely than `LEVEL` by chance."""
    share = _discordant(count) / math.factorial(count)
    most = int((share.cumsum() <= LEVEL).sum()) - 1
    return 1 - 2 * most / math.comb(count, 2)


def _discordant(count: int) -> Array:
    """How many orders of so many have 0, 1, 2, … discordant pairs."""
    ways = np.ones(1)
    for added in range(2, count + 1):
        ways = np.convolve(ways, np.ones(added))
    return ways
