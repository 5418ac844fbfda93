"""`farlink-lab`, which `farlink lab` starts: words in, a campaign or a report out."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from farlink_lab import __version__
from farlink_lab.error import LabError
from farlink_lab.iperf3_report import KnownPath
from farlink_lab.latency_command import latency
from farlink_lab.logs.command import app as logs
from farlink_lab.places import PLAN_COPY, RECORDS, records_of
from farlink_lab.plan_file import EXAMPLE
from farlink_lab.quantity import (
    QuantityError,
    parse_rate,
    parse_rtt,
    parse_share,
    parse_size,
    parse_time,
    show_count,
    show_rate,
    show_time,
)
from farlink_lab.records import LEAST_MTU, read_campaign
from farlink_lab.run.campaign import Campaign, is_complete, run_campaign
from farlink_lab.run.importing import import_iperf3
from farlink_lab.terminal import Verbs, complain, option, refuse_directory, say, whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from farlink_lab.choice import Task
    from farlink_lab.records import Reading
    from farlink_lab.report import Report

app = typer.Typer(
    name="farlink lab",
    cls=Verbs,
    help="Throughput profiles, measured and explained.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.add_typer(logs, name="logs")

# The longest packet of IP.
MOST_MTU = 65535
# Reports that one line names.
MOST_NAMED = 3

# What Typer says of a value, in fewer words.
_PLAINLY = {
    "Value error, ": "",
    "Input should be a valid integer, unable to parse string as an integer": "it is no whole number",
    "Input should be a valid number, unable to parse string as a number": "it is no number",
}

_PLACE = typer.Argument(
    metavar="DIR|FILE", help="Where `farlink lab profile` put its records, or a file of records."
)
_OUT = typer.Option("--out", metavar="DIR", help="Where records go.")


_AMONG = "Among what to search: a plan, as 'farlink lab profile --help' shows one."


def _plan_shown() -> str:
    """A plan as help shows it: none of its lines is joined to another."""
    head = "A plan of 3 RTTs, over an emulated connection, and 4 configurations, each measured 3 times:"
    paragraphs = EXAMPLE.strip().split("\n\n")
    shown = ("\b\n" + "\n".join(f"    {line}" for line in each.splitlines()) for each in paragraphs)
    return "\n\n".join([head, *shown])


class Framing(StrEnum):
    """What goes around an IP packet on the wire."""

    ETHERNET = "ethernet"
    SONET = "sonet"
    NONE = "none"


def _importable(tool: str) -> str:
    """The tool whose reports become records."""
    if tool != "iperf3":
        raise LabError(
            f"{tool}: reports of iperf3 alone are imported, as in farlink lab import iperf3 FILE --out DIR"
        )
    return tool


@app.callback(invoke_without_command=True)
def _lab(
    context: typer.Context,
    *,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        say(f"farlink-lab {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        say(context.get_help())
        raise typer.Exit(2)


@app.command(epilog=_plan_shown())
def profile(
    plan: Annotated[Path, typer.Argument(metavar="PLAN.toml", help="What to measure: a plan as below.")],
    *,
    out: Annotated[Path, _OUT],
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Run again what failed before.")
    ] = False,
) -> None:
    """Carry out a plan; where it was begun before, go on."""
    campaign = run_campaign(plan, out=out, console=_errors(), retry_failed=retry_failed)
    _finish(campaign, out=out)
    say(f"records: {out / RECORDS}\nfor the report run: farlink lab report {shlex.quote(str(out))}")
    _exit_where_failed(campaign)


@app.command()
def report(
    place: Annotated[Path, _PLACE],
    *,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write the page to FILE.")] = None,
) -> None:
    """Write the report of a campaign: one page, and its figures for a paper."""
    from farlink_lab.words import nothing_counts  # noqa: PLC0415

    refuse_directory("--out", out, example="report.html")
    written = _report(place, out=out)
    _say_written(written)
    _exit_unless_whole(written.broken, nothing=nothing_counts(written.findings))


@app.command()
def analyse(
    place: Annotated[Path, _PLACE],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one object of JSON.")] = False,
) -> None:
    """Print what the records say of each configuration: regimes, utilization, phases, dynamics."""
    # What computes takes a second to load, and a campaign does without.
    from farlink_lab.analysis import analysis, told  # noqa: PLC0415
    from farlink_lab.findings import find  # noqa: PLC0415
    from farlink_lab.words import nothing_counts  # noqa: PLC0415

    reading = _read(place)
    findings = find(reading)
    if as_json:
        say(json.dumps(analysis(findings), ensure_ascii=False, allow_nan=False, indent=1))
    else:
        say("\n".join(told(findings)))
    _exit_unless_whole(reading.broken, nothing=nothing_counts(findings))


@app.command()
def search(
    plan: Annotated[Path, typer.Argument(metavar="PLAN.toml", help=_AMONG)],
    *,
    budget: Annotated[str, typer.Option("--budget", metavar="TIME", help="From first choice to last run.")],
    out: Annotated[Path, _OUT],
    size: Annotated[
        str | None, typer.Option("--bytes", metavar="SIZE", help="Seek the best for this size.")
    ] = None,
    seconds: Annotated[
        str | None, typer.Option("--seconds", metavar="TIME", help="Or for this duration.")
    ] = None,
) -> None:
    """Measure those runs of a plan that tell most of what is best, for as long as the budget lasts."""
    from farlink_lab.run.searching import run_search  # noqa: PLC0415

    budget_s = option("--budget", budget, parse_time)
    task = _task(size=size, seconds=seconds)
    done = run_search(plan, out=out, budget_s=budget_s, console=_errors(), task=task)
    _finish(done.campaign, out=out)
    measured = done.campaign.already + done.campaign.measured
    if not measured:
        raise LabError(
            f"--budget: no run of {plan} fits into {budget}: give more, or shorten the runs of the plan"
        )
    say(f"best so far for {done.task.shown}, from {measured} of {done.campaign.runs} runs:")
    for leader in done.leaders:
        rate = show_rate(leader.throughput_bps)
        beyond = ", extrapolated: it was not measured on both sides" if leader.extrapolated else ""
        say(f"  {show_time(leader.rtt_s)}: {leader.choice.name}, about {rate}{beyond}")
    say(
        f"records: {out / RECORDS}\n"
        f"for advice run: farlink lab advise {shlex.quote(str(out))} --rtt TIME --bytes SIZE"
    )
    _exit_where_failed(done.campaign)


@app.command()
def advise(
    place: Annotated[Path, _PLACE],
    *,
    rtt: Annotated[str | None, typer.Option("--rtt", metavar="TIME", help="Of the path.")] = None,
    rate: Annotated[
        str | None, typer.Option("--rate", metavar="RATE", help="Of the wire; else as measured.")
    ] = None,
    size: Annotated[
        str | None, typer.Option("--bytes", metavar="SIZE", help="How much the transfer moves.")
    ] = None,
    seconds: Annotated[
        str | None, typer.Option("--seconds", metavar="TIME", help="Or for how long it goes on.")
    ] = None,
    loss: Annotated[
        str | None, typer.Option("--loss", metavar="SHARE", help="Of segments; else as measured.")
    ] = None,
    mover: Annotated[
        str | None,
        typer.Option("--mover", metavar="MOVER", help="Whose runs alone count: farlink, copy, iperf3, ..."),
    ] = None,
    extrapolate: Annotated[
        bool, typer.Option("--extrapolate", help="Let the model go beyond what was measured.")
    ] = False,
    save: Annotated[
        Path | None,
        typer.Option("--save", metavar="FILE", help="Write the profile model for `farlink memory --auto`."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one object of JSON.")] = False,
) -> None:
    """Say which configuration to take for a transfer, what it should reach, and why."""
    from farlink_lab.advice import Adviser  # noqa: PLC0415
    from farlink_lab.ground import ground  # noqa: PLC0415
    from farlink_lab.profile_model import profile_model  # noqa: PLC0415
    from farlink_lab.profile_model import save as save_model  # noqa: PLC0415
    from farlink_lab.recommendation import recommendation, told  # noqa: PLC0415

    rtt_s = None if rtt is None else option("--rtt", rtt, parse_rtt)
    task = _task(size=size, seconds=seconds)
    if (rtt_s is None) != (task is None) or (task is None and save is None):
        lacking = [] if rtt_s is not None else ["--rtt"]
        lacking += [] if task is not None else ["one of --bytes and --seconds"]
        raise LabError(f"say what for: {', and '.join(lacking)}, as in --rtt 120ms --bytes 50GB")
    if as_json and task is None:
        raise LabError("--json prints what is advised: name --rtt and a size, or leave it out")
    refuse_directory("--save", save, example="profile.json", made=True)
    reading = _read(place)
    stood = ground(
        reading.records,
        rate_bps=None if rate is None else option("--rate", rate, parse_rate),
        loss=None if loss is None else option("--loss", loss, parse_share),
        mover=mover,
        extrapolate=extrapolate,
    )
    if rtt_s is not None and task is not None:
        advice = Adviser(stood, task).advice(rtt_s, extrapolate=extrapolate)
        if as_json:
            say(json.dumps(recommendation(advice), ensure_ascii=False, allow_nan=False, indent=1))
        else:
            say("\n".join(told(advice)))
    if save is not None:
        model = profile_model(stood)
        save_model(model, save)
        complain(f"profile model: {save}")
        for note in model.get("notes", ()):
            complain(f"profile model: note: {note}")
    _exit_unless_whole(reading.broken)


@app.command()
def demo(
    *,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where records and report go.")] = Path(
        "demo"
    ),
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure anew, in place of what DIR has.")] = False,
) -> None:
    """Measure seven RTTs in at most eight minutes, and explain them."""
    from farlink_lab.demo import demo_plan, profile_table, sentences  # noqa: PLC0415

    with demo_plan() as plan:
        if fresh:
            _clear(out)
        complete = is_complete(plan, out=out)
        if not complete:
            mend = "replace what is there by --fresh"
            campaign = run_campaign(plan, out=out, console=_errors(), mend=mend, every_control=False)
            _finish(campaign, out=out, again="'farlink lab demo --fresh' measures anew")
        elif all(record.outcome != "ok" for record in read_campaign(out / RECORDS).records):
            raise LabError(f"{out / RECORDS}: every run failed: 'farlink lab demo --fresh' measures anew")
    written = _report(out, out=None)
    console = Console(width=_width(sys.stdout))
    console.print(profile_table(written.findings))
    for sentence in sentences(written.findings):
        console.print(sentence, markup=False, highlight=False)
    if complete:
        say("these were measured before; to measure anew: farlink lab demo --fresh")
    _say_written(written)


@app.command(name="import")
def import_(
    tool: Annotated[  # noqa: ARG001
        str, typer.Argument(metavar="iperf3", parser=_importable, help="Whose reports they are.")
    ],
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="What `iperf3 --json` printed.")],
    *,
    out: Annotated[Path, _OUT],
    rtt: Annotated[
        str | None, typer.Option("--rtt", metavar="TIME", help="The path's; else what the kernel saw.")
    ] = None,
    rate: Annotated[
        str | None, typer.Option("--rate", metavar="RATE", help="Of the wire, as in 10gbit.")
    ] = None,
    framing: Annotated[
        Framing | None, typer.Option("--framing", help="Of the wire, for its goodput; Ethernet otherwise.")
    ] = None,
    mtu: Annotated[
        int | None,
        typer.Option(
            "--mtu",
            metavar="BYTES",
            parser=whole("--mtu", least=LEAST_MTU, most=MOST_MTU, example=9000),
            help="The path's; else as the kernel knew it.",
        ),
    ] = None,
) -> None:
    """Add records of measurements on real paths."""
    path = KnownPath(
        rtt_s=None if rtt is None else option("--rtt", rtt, parse_rtt),
        rate_bps=None if rate is None else option("--rate", rate, parse_rate),
        framing=None if framing is None else framing.value,
        mtu=mtu,
    )
    done = import_iperf3(files, out=out, path=path)
    for line in done.refused:
        complain(line)
    failed = f", {done.failed} of them of runs that failed" if done.failed else ""
    known = f"; {done.known} {'was' if done.known == 1 else 'were'} there before" if done.known else ""
    if done.replaced:
        known += f", {done.replaced} of them with other facts of the path, which are replaced"
    where = f" to {out / RECORDS}" if done.added or done.known else ""
    say(f"added {show_count(done.added, 'record')}{where}{failed}{known}")
    if done.boundless:
        complain(_without_capacity(done.boundless))
    if done.refused:
        raise typer.Exit(2)


@app.command()
def compare(
    before: Annotated[
        Path, typer.Argument(metavar="A", help="Records from before: their directory, or file.")
    ],
    after: Annotated[Path, typer.Argument(metavar="B", help="Records from after.")],
    *,
    json: Annotated[bool, typer.Option("--json", help="Print it as one JSON object.")] = False,
) -> None:
    """Put two campaigns side by side: what a change has changed, and how surely."""
    from farlink_lab import side_by_side  # noqa: PLC0415
    from farlink_lab.comparison import compare as compared  # noqa: PLC0415

    readings = [_read(place) for place in (before, after)]
    found = compared(*(reading.records for reading in readings))
    if json:
        say(side_by_side.as_json(found, before=str(before), after=str(after)))
    else:
        console = Console(width=_width(sys.stdout))
        for table in side_by_side.tables(found):
            console.print(table)
        for sentence in side_by_side.sentences(found, before=str(before), after=str(after)):
            console.print(sentence, markup=False, highlight=False, soft_wrap=True)
    nothing = side_by_side.nothing_compared(found, before=str(before), after=str(after))
    _exit_unless_whole([broken for reading in readings for broken in reading.broken], nothing=nothing)


app.command()(latency)


def main() -> None:
    """Runs the command line; every refusal is one line on standard error and exit status 2."""
    try:
        status = app(standalone_mode=False)
    except LabError as error:
        sys.exit(_refuse(str(error)))
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(0)
    except Exception as error:
        # Typer's refusals carry a message for people; anything else is a fault of ours and shows where.
        show = getattr(error, "format_message", None)
        if show is None:
            raise
        said = show()
        for theirs, plain in _PLAINLY.items():
            said = said.replace(theirs, plain)
        sys.exit(_refuse(f"{said} ('{_verb(error)} --help' says what there is)"))
    sys.exit(status if isinstance(status, int) else 0)


def _verb(error: Exception) -> str:
    """The command that a refusal of Typer's is of, as a user writes it."""
    names: list[str] = []
    context = getattr(error, "ctx", None)
    while context is not None and context.parent is not None:
        names.insert(0, context.info_name)
        context = context.parent
    return " ".join(("farlink lab", *names))


def _read(place: Path) -> Reading:
    reading = read_campaign(records_of(place))
    for broken in reading.broken:
        complain(f"{records_of(place)}: {broken}: skipped")
    return reading


def _task(*, size: str | None, seconds: str | None) -> Task | None:
    """What a transfer is asked to do; `None` where nothing is said."""
    from farlink_lab.choice import Task  # noqa: PLC0415

    if size is not None and seconds is not None:
        raise LabError("--bytes and --seconds: a transfer has one of the two: leave one out")
    if size is not None:
        return Task(mode="size", amount=float(option("--bytes", size, parse_size)))
    if seconds is None:
        return None
    # The unit is in the option's name, and may be written all the same.
    amount = option(
        "--seconds", f"{seconds}s" if seconds.replace(".", "", 1).isdigit() else seconds, parse_time
    )
    if amount <= 0:
        raise QuantityError(f'--seconds: "{seconds}" is no duration: more than 0, as in 10')
    return Task(mode="duration", amount=amount)


def _report(place: Path, *, out: Path | None) -> Report:
    # What draws takes a second to load, and a campaign does without.
    from farlink_lab.report import write_report  # noqa: PLC0415

    command = f"farlink lab report {shlex.quote(str(place))}"
    written = write_report(place, out=out, command=command)
    for broken in written.broken:
        complain(f"{records_of(place)}: {broken}: skipped")
    return written


def _exit_unless_whole(broken: Sequence[object], *, nothing: str = "") -> None:
    """Everything that could be read was told of; that it was nothing, or not all, is in the exit code."""
    if nothing:
        raise LabError(nothing)
    if broken:
        raise typer.Exit(2)


def _exit_where_failed(campaign: Campaign) -> None:
    """As a copy that could not copy some names: what was measured is told of, and not all of it is good."""
    if campaign.lacking:
        raise typer.Exit(1)


def _clear(out: Path) -> None:
    """Removes what an earlier demonstration left, and nothing else."""
    for name in (RECORDS, PLAN_COPY):
        (out / name).unlink(missing_ok=True)


def _finish(
    campaign: Campaign,
    *,
    out: Path,
    again: str = "'farlink lab profile --retry-failed' runs them again",
) -> None:
    if campaign.status:
        complain(
            f"interrupted with {campaign.already + campaign.measured} of {campaign.runs} runs measured and "
            f"kept in {out / RECORDS}: the same command goes on from there"
        )
        raise typer.Exit(campaign.status)
    runs = campaign.already + campaign.measured
    if runs and not campaign.good:
        raise LabError(
            f"{'the only run' if runs == 1 else f'each of {runs} runs'} failed: {out / RECORDS} has the "
            f"reasons, and {again}"
        )
    if campaign.failed:
        complain(
            f"{campaign.failed} of {campaign.measured} runs failed; the report names the reasons, and {again}"
        )
    elif campaign.lacking:
        complain(
            f"{campaign.lacking} of {runs} runs had failed before; the report names the reasons, and {again}"
        )


def _without_capacity(reports: Sequence[str]) -> str:
    """Of which reports the MTU is missing, the first of them by name."""
    more = f" and {len(reports) - MOST_NAMED} more" if len(reports) > MOST_NAMED else ""
    named = f"{', '.join(reports[:MOST_NAMED])}{more}"
    have, whose, them = (
        ("record has", "its report does", "it")
        if len(reports) == 1
        else ("records have", "their reports do", "them")
    )
    return (
        f"{len(reports)} {have} a rate and no capacity, as {whose} not say the path's MTU ({named}): "
        f"import {them} again with --mtu"
    )


def _say_written(written: Report) -> None:
    say(f"report: {written.page}")
    if written.figures:
        say(f"for papers: {' and '.join(map(str, written.figures))}")


def _refuse(text: str) -> int:
    complain(" ".join(text.split()))
    return 2


def _errors() -> Console:
    return Console(stderr=True, width=_width(sys.stderr))


def _width(stream: IO[str]) -> int | None:
    # A pipe has no width to wrap at.
    return None if stream.isatty() else shutil.get_terminal_size((200, 24)).columns
