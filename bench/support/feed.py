"""A feed: files whose sizes and gaps are spread as those of a real one, brought to a load."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# Quantiles of the busiest three hours of NGRID of 15 June 2015, from its public metadata: bytes, and seconds
# between files. What is beyond three quarters of the sizes makes the mean 2.65 times the median (there 2.5).
SIZES = ((0, 210), (0.25, 21_600), (0.5, 41_100), (0.75, 73_000), (0.99, 500_000), (0.999, 8e6), (1, 53.8e6))
GAPS = ((0, 0.0005), (0.25, 0.003), (0.5, 0.005), (0.75, 0.012), (0.99, 0.68), (1, 5.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A file, and when it comes, in seconds from the first."""

    name: str
    size: int
    at_s: float


def quantile(points: Sequence[tuple[float, float]], share: float) -> float:
    """The value that `share` of a distribution do not pass: a logarithmic line between `points`."""
    for (low, least), (high, most) in pairwise(points):
        if share <= high:
            part = (share - low) / (high - low)
            return math.exp(math.log(least) + part * (math.log(most) - math.log(least)))
    return points[-1][1]


def feed(*, files: int, load: float, rate_bps: float, seed: int) -> list[Arrival]:
    """A feed of `files` that takes `load` of `rate_bps`, headers not counted.

    Every feed has the same sizes and the same shape of gaps, one from each part of their distributions, in
    an order that is `seed`'s: what varies between repetitions is what meets what.
    """
    draw = random.Random(seed)
    middles = [(number + 0.5) / files for number in range(files)]
    sizes = [int(quantile(SIZES, share)) for share in draw.sample(middles, files)]
    gaps = [quantile(GAPS, share) for share in draw.sample(middles, files)]
    whole_s = 8 * sum(sizes) / (load * rate_bps)
    scale = whole_s / sum(gaps)
    arrivals, at_s = [], 0.0
    for number, (size, gap) in enumerate(zip(sizes, gaps, strict=True)):
        arrivals.append(Arrival(name=f"{number:05}", size=size, at_s=at_s))
        at_s += gap * scale
    return arrivals


def begun(arrivals: Sequence[Arrival], came_s: Sequence[float], rate_bps: float) -> list[float]:
    """When the first packet of each could leave at the earliest: it came, and those before it had left."""
    found, free_s = [], 0.0
    for arrival, at_s in zip(arrivals, came_s, strict=True):
        free_s = max(free_s, at_s)
        found.append(free_s)
        free_s += 8 * arrival.size / rate_bps
    return found
