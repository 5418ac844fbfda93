"""Least, quartiles, mean and most: how the studies tell a distribution."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

# In the order of the studies' tables.
COLUMNS = ("min", "q1", "median", "mean", "q3", "max")
QUARTILES = (0.25, 0.5, 0.75)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Six numbers of a distribution, in its unit; quartiles are interpolated between values."""

    count: int
    min: float
    q1: float
    median: float
    mean: float
    q3: float
    max: float

    @property
    def spread(self) -> float:
        """The range between the quartiles (IQR)."""
        return self.q3 - self.q1

    def scaled(self, factor: float) -> Summary:
        """The same in another unit."""
        return Summary(count=self.count, **{name: getattr(self, name) * factor for name in COLUMNS})

    def as_json(self) -> dict[str, float]:
        """By its names."""
        return asdict(self)


def between(quartile: float, count: int) -> tuple[int, int, float]:
    """The ranks that a quartile of so many values lies between, from 0, and how far from the first."""
    place = (count - 1) * quartile
    first = math.floor(place)
    return first, min(first + 1, count - 1), place - first


def size_class(size: Any, a_doubling: int) -> Any:
    """Which class of size an Ibis column is of: `a_doubling` for each power of two."""
    # Engines' logarithms of a power of two, as sizes of files often are, may fall short of the whole number.
    return (size.cast("float64").log2() * a_doubling + _ROUNDING).floor().cast("int64")


def summarised(values: NDArray[np.float64]) -> Summary:
    """The summary of values in memory, at least one."""
    low, q1, median, q3, high = np.quantile(values, [0, 0.25, 0.5, 0.75, 1])
    return Summary(
        count=len(values),
        min=float(low),
        q1=float(q1),
        median=float(median),
        mean=float(values.mean()),
        q3=float(q3),
        max=float(high),
    )


# Far more than a logarithm is wrong by, and far less than what tells sizes apart.
_ROUNDING = 1e-9
