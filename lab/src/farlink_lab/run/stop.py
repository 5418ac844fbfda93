"""Ctrl-C and its kin: the first asks the campaign to end cleanly, the second ends it at once."""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop:
    """Whether the campaign was asked to end, and by what."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None

    @property
    def asked(self) -> bool:
        """Whether it was asked."""
        return self.signal is not None

    @property
    def status(self) -> int:
        """The exit status that tells so: 130 after Ctrl-C."""
        return 128 + (self.signal or signal.SIGINT)

    def _ask(self, number: int, _: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.signal = signal.Signals(number)


@contextlib.contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Takes SIGINT, SIGTERM and SIGHUP for the time of the block."""
    stop = Stop()
    before = {number: signal.signal(number, stop._ask) for number in _ASKING}  # noqa: SLF001
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
