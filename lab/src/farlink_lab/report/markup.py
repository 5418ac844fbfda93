"""Pieces of HTML: every text from a record is escaped on its way in."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from farlink_lab.plot.palette import Look

_DASHES = {"solid": "", "dash": "6 3", "dot": "2 3", "dashdot": "6 3 2 3"}
_MARKS = {
    "circle": '<circle cx="15" cy="7" r="4.5"/>',
    "square": '<rect x="11" y="3" width="8" height="8"/>',
    "diamond": '<path d="M15 1.5 20.5 7 15 12.5 9.5 7z"/>',
    "triangle-up": '<path d="M15 2 20 11H10z"/>',
    "triangle-down": '<path d="M15 12 20 3H10z"/>',
    "cross": '<path d="M13 2h4v3h3v4h-3v3h-4V9h-3V5h3z"/>',
}


def paragraph(text: str, *, kind: str = "") -> str:
    """A paragraph of plain text."""
    return f"<p{_kind(kind)}>{escape(text)}</p>"


def items(texts: Iterable[str], *, kind: str = "") -> str:
    """A list of plain texts."""
    rows = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f"<ul{_kind(kind)}>{rows}</ul>"


def facts(pairs: Mapping[str, str]) -> str:
    """Names and what they are; the values are HTML."""
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{value}</dd>" for name, value in pairs.items() if value)
    return f'<dl class="facts">{rows}</dl>'


def code(text: str) -> str:
    """A command or a path."""
    return f"<code>{escape(text)}</code>"


def figure(identity: str, *, caption: str, height: int = 420) -> str:
    """The place of a figure, which the script fills, and its caption in plain text."""
    return (
        f'<figure><div class="plot" id="{identity}" style="min-height:{height}px" role="img" '
        f'aria-label="{escape(caption)}"></div><figcaption>{escape(caption)}</figcaption></figure>'
    )


def table(head: Sequence[str], rows: Iterable[str], *, kind: str = "") -> str:
    """A table that scrolls by itself where the page is narrow; rows are HTML."""
    cells = "".join(f"<th>{escape(name)}</th>" for name in head)
    return (
        f'<div class="scroll"><table{_kind(kind)}><thead><tr>{cells}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def row(cells: Iterable[str], *, kind: str = "") -> str:
    """A row of cells that are HTML already."""
    return f"<tr{_kind(kind)}>{''.join(cells)}</tr>"


def cell(text: str, *, kind: str = "", small: str = "") -> str:
    """A cell of plain text, with smaller text beneath."""
    beneath = f"<small>{escape(small)}</small>" if small else ""
    return f"<td{_kind(kind)}>{escape(text)}{beneath}</td>"


def marked_cell(text: str, look: Look) -> str:
    """A cell that begins with the configuration's mark."""
    return f"<td>{mark(look)} {escape(text)}</td>"


def mark(look: Look) -> str:
    """The line and symbol of a configuration, as in the figures."""
    return (
        f'<svg viewBox="0 0 30 14" aria-hidden="true" fill="{look.colour}" stroke="{look.colour}">'
        f'<path d="M0 7h30" stroke-width="2" stroke-dasharray="{_DASHES[look.dash]}"/>'
        f'<g stroke="none">{_MARKS[look.symbol]}</g></svg>'
    )


def legend(looks: Mapping[str, Look]) -> str:
    """The one legend of all figures: a button for each configuration, which shows and hides it."""
    buttons = "".join(
        f'<button type="button" aria-pressed="true" data-label="{escape(label)}">'
        f"{mark(look)}{escape(label)}</button>"
        for label, look in looks.items()
    )
    return f'<div class="legend" role="group" aria-label="Configurations">{buttons}</div>'


def switch(axis: str, *, name: str) -> str:
    """A choice between a linear and a logarithmic axis."""
    choices = "".join(
        f'<label><input type="radio" name="{axis}-axis" data-axis="{axis}" value="{value}"'
        f"{' checked' if value == 'linear' else ''}>{word}</label>"
        for value, word in (("linear", "linear"), ("log", "log"))
    )
    return f'<fieldset class="switch"><span>{escape(name)}</span>{choices}</fieldset>'


def _kind(kind: str) -> str:
    return f' class="{kind}"' if kind else ""
