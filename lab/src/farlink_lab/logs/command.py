"""`farlink lab logs`: logs in, Parquet out; the questions that are asked of it are in `questions`."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - Typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer

from farlink_lab.error import LabError
from farlink_lab.logs import questions
from farlink_lab.quantity import show_count
from farlink_lab.terminal import Verbs, complain, say

if TYPE_CHECKING:
    from farlink_lab.logs.mapping import Mapping

app = typer.Typer(
    cls=Verbs,
    help="Transfer logs: sessions, circuits and variance.",
    no_args_is_help=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_OUT = typer.Option("--out", metavar="DIR", help="Where the imported transfers go.")
_MAP = typer.Option("--map", metavar="FILE", help="Which column is what: docs/logs.md.")
_ZONE = typer.Option("--zone", metavar="ZONE", help="Of times that name none, as in America/Denver.")


@app.command(name="import")
def import_(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Logs, compressed or not.")],
    *,
    out: Annotated[Path, _OUT],
    mapping: Annotated[Path | None, _MAP] = None,
    zone: Annotated[str, _ZONE] = "UTC",
) -> None:
    """Import logs into Parquet; what cannot be read is counted, named and kept aside."""
    from farlink_lab.logs.importing import import_logs, told  # noqa: PLC0415

    imported = import_logs(files, out=out, mapping=_mapping(mapping), zone=zone)
    for line in imported.unreadable:
        complain(line)
    if lines := told(imported, out=out):
        say("\n".join(lines))
    if imported.unreadable:
        raise typer.Exit(2)


@app.command()
def follow(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A log that a server writes.")],
    *,
    out: Annotated[Path, _OUT],
    mapping: Annotated[Path | None, _MAP] = None,
    zone: Annotated[str, _ZONE] = "UTC",
    once: Annotated[bool, typer.Option("--once", help="End when all that is there was read.")] = False,
) -> None:
    """Import a log as its server writes it, until Ctrl-C; go on where an earlier one ended."""
    from farlink_lab.logs.following import follow as steps  # noqa: PLC0415

    for step in steps(file, out=out, mapping=_mapping(mapping), zone=zone, once=once):
        for warning in step.warnings:
            complain(warning)
        if not (step.added or step.refused):
            continue
        refused = f", {show_count(step.refused, 'line')} refused" if step.refused else ""
        say(f"{show_count(step.added, 'transfer')}{refused}, {step.offset:,} bytes of the log read")


@app.command()
def synth(
    *,
    transfers: Annotated[int, typer.Option("--transfers", metavar="N", help="How many transfers.")],
    out: Annotated[Path | None, _OUT] = None,
    lines: Annotated[
        Path | None, typer.Option("--lines", metavar="FILE", help="Write lines of GridFTP to FILE instead.")
    ] = None,
    days: Annotated[int, typer.Option("--days", metavar="N", help="Over how many days.")] = 30,
    sites: Annotated[int, typer.Option("--sites", metavar="N", help="Between how many hosts.")] = 40,
    users: Annotated[int, typer.Option("--users", metavar="N", help="Of how many users.")] = 60,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Of every random choice.")] = 1,
) -> None:
    """Make a log, of any size: heavy tails, bursts of small files, day cycles."""
    from farlink_lab.logs.synthesis import MOST_DAYS, Recipe  # noqa: PLC0415
    from farlink_lab.logs.synthesis import make as made  # noqa: PLC0415

    for name, value, least, most in (
        ("--transfers", transfers, 1, 10**10),
        ("--days", days, 1, MOST_DAYS),
        ("--sites", sites, 2, 100_000),
        ("--users", users, 1, 1_000_000),
        ("--seed", seed, 0, 2**63),
    ):
        if not least <= value <= most:
            raise LabError(f"{name}: {value} is out of range: {least} to {most:,}")
    if (out is None) == (lines is None):
        raise LabError("say where to: one of --out DIR (Parquet) and --lines FILE (a log)")
    recipe = Recipe(transfers=transfers, days=days, sites=sites, users=users, seed=seed)
    made(recipe, out=out, lines=lines)
    say(f"{transfers:,} transfers of {days} days, seed {seed}, in {out or lines}")


def _mapping(path: Path | None) -> Mapping | None:
    if path is None:
        return None
    from farlink_lab.logs.mapping import read_mapping  # noqa: PLC0415

    return read_mapping(path)


questions.register(app)
