"""Least, quartiles, mean and most: how the studies tell a distribution."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

# In the order of the studies' tables.
COLUMNS = ("min", "q1", "median", "mean", "q3", "max")


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


def summary_columns(column: Any, prefix: str) -> dict[str, Any]:
    """The aggregates of an Ibis column that `summary_of` reads back; rows without a value do not count."""
    return {
        f"{prefix}_count": column.count(),
        f"{prefix}_min": column.min(),
        f"{prefix}_q1": column.quantile(0.25),
        f"{prefix}_median": column.quantile(0.5),
        f"{prefix}_mean": column.mean(),
        f"{prefix}_q3": column.quantile(0.75),
        f"{prefix}_max": column.max(),
    }


def summary_of(row: dict[str, Any], prefix: str) -> Summary | None:
    """The summary in a row of aggregates; nothing where no row had a value."""
    count = int(row[f"{prefix}_count"])
    if not count:
        return None
    return Summary(count=count, **{name: float(row[f"{prefix}_{name}"]) for name in COLUMNS})


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
