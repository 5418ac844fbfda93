"""How far a campaign is: a bar and the time left on a terminal, a line a run elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from rich.progress import BarColumn, Progress, TaskID, TextColumn

from farlink_lab.quantity import show_rate, show_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from farlink_lab.schedule import Run, TimeLeft


class CampaignProgress:
    """Shows each run as it begins, goes on and ends; the bar moves with time, not with runs."""

    def __init__(
        self,
        console: Console,
        *,
        runs: Sequence[Run],
        done: int,
        time_left: TimeLeft,
        most_s: float | None = None,
    ) -> None:
        self.console, self.time_left = console, time_left
        # Of a search, which measures only a part of its runs.
        self.most_s = most_s
        self.remaining = list(runs)
        self.done, self.total = done, done + len(runs)
        # Drawn by hand from the waiting loop: a drawing thread would take time from what is measured.
        self._bar = Progress(
            TextColumn("{task.completed:>3.0f}%"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[left]} left"),
            # A label is the user's: brackets in it are no markup.
            TextColumn("{task.description}", style="dim", markup=False),
            console=console,
            auto_refresh=False,
            transient=True,
        )
        self._task: TaskID | None = None
        self._spent_s = 0.0

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._bar.start()
        self._task = self._bar.add_task("", total=100, left="")
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self._bar.stop()

    def begin(self, run: Run) -> None:
        """The next run is about to start."""
        self.tick(run, 0.0)

    def tick(self, run: Run, elapsed_s: float) -> None:
        """`run` has gone on for so long."""
        spent = self._spent_s + elapsed_s
        left = max(self._left_s() - elapsed_s, 0.0)
        if self._task is not None and self.console.is_terminal:
            self._bar.update(
                self._task,
                completed=100 * spent / (spent + left) if spent + left > 0 else 0,
                description=f"run {self.done + 1} of {self.total}: {describe(run)}",
                left=show_left(left),
            )
            self._bar.refresh()

    def end(self, run: Run, record: dict[str, Any], *, took_s: float) -> None:
        """`run` has ended."""
        self.remaining.remove(run)
        self.done += 1
        self._spent_s += took_s
        self.time_left.saw(run, took_s=took_s)
        said = result_line(record)
        if record["outcome"] != "ok" or not self.console.is_terminal:
            left = show_left(self._left_s())
            self.console.print(
                f"{self.done}/{self.total} {describe(run)}: {said}; {left} left",
                markup=False,
                highlight=False,
                soft_wrap=True,
            )

    def _left_s(self) -> float:
        """Seconds left when the run that goes on began."""
        left = self.time_left.of_all(self.remaining)
        return left if self.most_s is None else max(min(left, self.most_s - self._spent_s), 0.0)


def describe(run: Run) -> str:
    """A run for a person."""
    return f"{run.configuration.label}, {run.configuration.amount} at {show_time(run.rtt_s)}"


def result_line(record: dict[str, Any]) -> str:
    """What came of a run."""
    if record["outcome"] != "ok":
        return f"{record['outcome']}: {record.get('error', 'no reason given')}"
    late = ", the emulator fell behind" if (record.get("emulator") or {}).get("overrun") else ""
    seconds = record.get("duration_s")
    return (show_rate(8 * record["bytes"] / seconds) if seconds else "no duration") + late


def show_left(seconds: float) -> str:
    """A time left for a person: `4 min 10 s`, and no finer than it is known."""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 60} min {whole % 60:02d} s" if whole >= 60 else f"{whole} s"
