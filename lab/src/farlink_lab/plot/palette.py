"""One look for each configuration, the same in every figure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# Okabe and Ito's colours, told apart by the colour-blind, without their black and yellow: those vanish on
# dark and on white pages.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C8C8C")
# By their names in plotly, and in matplotlib.
SYMBOLS = (
    ("circle", "o"),
    ("square", "s"),
    ("diamond", "D"),
    ("triangle-up", "^"),
    ("triangle-down", "v"),
    ("cross", "P"),
)
DASHES = (("solid", "-"), ("dash", "--"), ("dot", ":"), ("dashdot", "-."))


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How a configuration is drawn, in plotly's words and in matplotlib's."""

    colour: str
    symbol: str
    dash: str
    paper_symbol: str
    paper_dash: str

    @property
    def hollow(self) -> str:
        """The symbol of a late point, in plotly's words."""
        return f"{self.symbol}-open"


def looks(labels: Sequence[str]) -> dict[str, Look]:
    """A look for each label; colour, symbol and dash tell 168 apart."""
    return {label: _look(index) for index, label in enumerate(labels)}


def _look(index: int) -> Look:
    around = index // len(COLOURS)
    symbol, paper_symbol = SYMBOLS[(index + around) % len(SYMBOLS)]
    dash, paper_dash = DASHES[around % len(DASHES)]
    return Look(
        colour=COLOURS[index % len(COLOURS)],
        symbol=symbol,
        dash=dash,
        paper_symbol=paper_symbol,
        paper_dash=paper_dash,
    )
