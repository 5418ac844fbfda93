"""What goes with the throughput of transfers that are alike: a regression that ranks factors.

The logarithm of throughput is regressed on all factors together. A factor's share is what the others cannot
explain in its place (the drop of R² without it); its effect is the ratio of throughputs between its upper
and its lower quartile, all else equal. Transfers of one session share its hour and much else, so it is
sessions that count as independent: intervals are by bootstrap over sessions, and whether a factor says
anything at all is decided by turning the signs of whole sessions' residuals (the wild cluster bootstrap of
Cameron, Gelbach and Miller 2008), at 5% for all factors together (Holm 1979): of logs in which nothing
matters, about one in twenty names a factor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Mapping

Array = NDArray[np.float64]

LEVEL = 0.05
RESAMPLES = 400
TURNS = 999
# Fewer sessions have too few signs to turn: nothing is then called clear.
FEWEST_SESSIONS = 12
# Of transfers, for turns and bootstrap: more takes longer and tells the same.
MOST = 4000
# Beyond it a factor says nothing: too few transfers tell it from another.
_MOST_REACH = 20.0
# What matters by its doublings.
_LOGARITHMIC = frozenset({"streams", "stripes", "size"})
HOUR = "hour of day"


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """One factor beside all others.

    Attributes:
        share: Of the variance of log throughput that it alone explains, with its 95% interval.
        effect: Throughput at its upper quartile over that at its lower, with its interval; for the hour of
            day, at its best hour over its worst.
        chance: How often a factor without any meaning would explain as much.
        clear: Whether that is too rare to be chance, all factors considered.
    """

    name: str
    share: tuple[float, float, float]
    effect: tuple[float, float, float]
    chance: float
    clear: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """All factors, that which explains most first.

    Attributes:
        explained: R² of all together, adjusted for their number; negative where they explain nothing.
        constant: Factors that do not vary among these transfers.
        transfers: That tell all the factors.
        sessions: That these are of.
    """

    factors: tuple[Factor, ...]
    explained: float
    constant: tuple[str, ...]
    transfers: int
    sessions: int


def rank(
    throughput_bps: Array, factors: Mapping[str, Array], *, sessions: NDArray[np.int64], seed: int
) -> Ranking:
    """Ranks the factors.

    Args:
        throughput_bps: Shape (transfers,), more than zero.
        factors: Shape (transfers,) each; those that are mostly unknown are left out, and then transfers that
            lack one of the others. `HOUR` is from 0 to 24, and comes round.
        sessions: Shape (transfers,): which session each is of.
        seed: Of turns and bootstrap.
    """
    rng = np.random.default_rng(seed)
    known = {name: values for name, values in factors.items() if np.isfinite(values).mean() > 0.5}
    whole = np.isfinite(np.log(throughput_bps))
    for values in known.values():
        whole &= np.isfinite(values)
    chosen = np.flatnonzero(whole)
    if not len(chosen):
        return Ranking(factors=(), explained=0.0, constant=(), transfers=0, sessions=0)
    if len(chosen) > MOST:
        chosen = np.sort(rng.choice(chosen, MOST, replace=False))
    y = np.log(throughput_bps[chosen])
    taken = {name: values[chosen] for name, values in known.items()}
    _, of = np.unique(sessions[chosen], return_inverse=True)
    many = int(of.max()) + 1 if len(of) else 0
    constant = tuple(name for name, values in taken.items() if _is_constant(values))
    columns = {name: _columns(name, values) for name, values in taken.items() if name not in constant}
    columns = {name: block for name, block in columns.items() if block.shape[1]}
    width = 1 + sum(block.shape[1] for block in columns.values())
    if not columns or len(y) < 3 * width or np.ptp(y) == 0:
        return Ranking(factors=(), explained=0.0, constant=constant, transfers=len(y), sessions=many)
    shares, effects, r2 = _fit(y, columns, taken)
    rows_of = np.split(np.argsort(of, kind="stable"), np.cumsum(np.bincount(of))[:-1])
    draws = [
        _fit_rows(y, columns, taken, np.concatenate([rows_of[n] for n in rng.integers(0, many, many)]))
        for _ in range(RESAMPLES)
    ]
    chances = {name: _chance(y, columns, name, of, rng) for name in columns}
    clear = _holm(chances) if many >= FEWEST_SESSIONS else set()
    found = [
        Factor(
            name=name,
            share=_interval(shares[name], [each[0][name] for each in draws], least=0.0),
            effect=_interval(effects[name], [each[1][name] for each in draws]),
            chance=chances[name],
            clear=name in clear,
        )
        for name in columns
    ]
    found.sort(key=lambda factor: -factor.share[1])
    adjusted = 1 - (1 - r2) * (len(y) - 1) / (len(y) - width)
    return Ranking(
        factors=tuple(found), explained=adjusted, constant=constant, transfers=len(y), sessions=many
    )


def _is_constant(values: Array) -> bool:
    # By its own size: seconds a byte are some 1e-10.
    return bool(np.ptp(values) <= 1e-9 * np.abs(values).max())


def _columns(name: str, values: Array) -> Array:
    """What stands for a factor in the regression: shape (transfers, columns)."""
    if name == HOUR:
        angle = values * np.pi / 12
        return np.column_stack([np.cos(angle), np.sin(angle)])
    made = np.log2(np.maximum(values, 1e-9)) if name in _LOGARITHMIC else values
    found: Array = ((made - made.mean()) / made.std())[:, None]
    return found


def _fit(
    y: Array, columns: Mapping[str, Array], taken: Mapping[str, Array]
) -> tuple[dict[str, float], dict[str, float], float]:
    """Share and effect of each factor, and R² of all."""
    centred = y - y.mean()
    total = float(centred @ centred)
    if total <= 0:
        return dict.fromkeys(columns, 0.0), dict.fromkeys(columns, 1.0), 0.0
    design = _design(columns, len(y))
    weights = np.linalg.lstsq(design, y, rcond=None)[0]
    explained = 1 - float(((y - design @ weights) ** 2).sum()) / total
    shares, effects = {}, {}
    place = 1
    for name, block in columns.items():
        others = _design({other: each for other, each in columns.items() if other != name}, len(y))
        rest = y - others @ np.linalg.lstsq(others, y, rcond=None)[0]
        shares[name] = max(0.0, float(rest @ rest) / total - (1 - explained))
        part = weights[place : place + block.shape[1]]
        place += block.shape[1]
        reach = _reach(name, block, part, taken[name])
        effects[name] = float(np.exp(np.clip(reach, -_MOST_REACH, _MOST_REACH)))
    return shares, effects, explained


def _reach(name: str, block: Array, part: NDArray[np.floating[Any]], values: Array) -> float:
    """The difference in log throughput between the upper and the lower quartile of a factor."""
    if name == HOUR:
        return 2 * float(np.hypot(*part))
    low, high = np.quantile(values, [0.25, 0.75])
    if low == high:
        low, high = values.min(), values.max()
    line = block[:, 0] * part[0]
    at_low, at_high = (line[np.argmin(np.abs(values - at))] for at in (low, high))
    return float(at_high - at_low)


def _fit_rows(
    y: Array, columns: Mapping[str, Array], taken: Mapping[str, Array], rows: NDArray[np.int64]
) -> tuple[dict[str, float], dict[str, float], float]:
    return _fit(
        y[rows],
        {name: block[rows] for name, block in columns.items()},
        {name: values[rows] for name, values in taken.items()},
    )


def _design(columns: Mapping[str, Array], rows: int) -> Array:
    return np.column_stack([np.ones(rows), *columns.values()])


def _chance(
    y: Array, columns: Mapping[str, Array], name: str, of: NDArray[np.int64], rng: np.random.Generator
) -> float:
    """How often what the others leave, signs of sessions turned, would be explained as well."""
    others = _design({other: each for other, each in columns.items() if other != name}, len(y))
    base, _ = np.linalg.qr(others)
    own = columns[name] - base @ (base.T @ columns[name])
    own, triangle = np.linalg.qr(own)
    # A factor that the others tell exactly adds nothing of its own.
    own = own[:, np.abs(np.diag(triangle)) > 1e-9 * np.sqrt(len(y))]
    if not own.shape[1]:
        return 1.0
    rest = y - base @ (base.T @ y)

    def ratio(values: Array) -> float:
        values = values - base @ (base.T @ values)
        gained = float(((own.T @ values) ** 2).sum())
        left = float(values @ values) - gained
        return gained / left if left > 0 else np.inf

    actual = ratio(rest)
    many = int(of.max()) + 1
    turned = (ratio(rest * rng.choice([-1.0, 1.0], many)[of]) for _ in range(TURNS))
    as_much = sum(each >= actual for each in turned)
    return float(as_much + 1) / (TURNS + 1)


def _holm(chances: Mapping[str, float]) -> set[str]:
    clear: set[str] = set()
    for left, name in zip(range(len(chances), 0, -1), sorted(chances, key=chances.__getitem__), strict=True):
        if chances[name] > LEVEL / left:
            break
        clear.add(name)
    return clear


def _interval(value: float, draws: list[float], *, least: float = -np.inf) -> tuple[float, float, float]:
    low, high = np.quantile(draws, [LEVEL / 2, 1 - LEVEL / 2])
    return max(least, min(float(low), value)), value, max(float(high), value)
