"""What the lab says to a terminal, and how it refuses a word from one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeVar

from typer.core import TyperArgument, TyperGroup

from farlink_lab.error import LabError
from farlink_lab.quantity import QuantityError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

T = TypeVar("T")
# More digits than any count has, and fewer than Python refuses to read.
_MOST_DIGITS = 100


class Verbs(TyperGroup):
    """Verbs whose help calls an argument what their usage line calls it, without its type in Python."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for verb in self.commands.values():
            for parameter in verb.params:
                if isinstance(parameter, TyperArgument) and parameter.metavar is not None:
                    parameter.display_type_rich = _untold  # type: ignore[method-assign]


def _untold(ctx: object) -> None:
    """The type of an argument that has a name for people."""


def say(text: str) -> None:
    """An answer, on standard output; whoever reads it through a pipe has it at once."""
    # The name of a file may be no text.
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
    sys.stdout.flush()


def complain(text: str) -> None:
    """What went wrong or was left out, on standard error."""
    sys.stderr.write(f"farlink: {text}\n")


def option(name: str, text: str, parse: Callable[[str], T]) -> T:
    """The quantity that an option was given.

    Raises:
        QuantityError: with the option's name.
    """
    try:
        return parse(text)
    except QuantityError as error:
        raise QuantityError(f"{name}: {error}") from error


def whole(name: str, *, least: int = 0, most: int, example: int) -> Callable[[str | int], int]:
    """What reads the whole number that an option is given, or refuses it with the option's name.

    Args:
        name: The option.
        least: The least that it takes.
        most: The most.
        example: One that it takes.
    """

    def parse(text: str | int) -> int:
        digits = str(text).strip()
        plain = digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS
        if not plain or not least <= int(digits) <= most:
            raise QuantityError(
                f'{name}: "{text}" is no whole number from {least} to {most:,}: write one as in {example}'
            )
        return int(digits)

    return parse


def refuse_directory(name: str, path: Path | None, *, example: str, made: bool = False) -> None:
    """Refuses a directory where an option names a file to write, before the work that it is to hold.

    So it does a file in a directory that is not there, unless that is made: a slip of the hand makes none.

    Raises:
        LabError: with the option's name.
    """
    if path is None:
        return
    try:
        directory = not path.name or path.is_dir()
    except OSError as error:
        raise LabError(f"{name}: {path}: {error.strerror}: name a file that can be written") from error
    if directory:
        raise LabError(f"{name}: {path} is a directory: name a file, as in {path / example}")
    if not made and not path.parent.is_dir():
        raise LabError(f"{name}: {path}: {path.parent} is no directory: make it, or name another file")
