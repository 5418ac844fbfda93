"""What the lab says to a terminal, and how it refuses a word from one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeVar

from farlink_lab.quantity import QuantityError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def say(text: str) -> None:
    """An answer, on standard output; whoever reads it through a pipe has it at once."""
    sys.stdout.write(text + "\n")
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
