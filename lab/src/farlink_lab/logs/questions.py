"""The verbs of `farlink lab logs` that ask something of imported transfers."""

from __future__ import annotations

import json
import math
from enum import StrEnum
from pathlib import Path  # noqa: TC003 - Typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from farlink_lab.error import LabError
from farlink_lab.quantity import parse_rate, parse_share, parse_size, parse_time
from farlink_lab.terminal import complain, option, refuse_directory, say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from farlink_lab.logs.chart import Chart
    from farlink_lab.logs.feed import Feed, Topology
    from farlink_lab.logs.summary import Summary

_DIR = typer.Argument(metavar="DIR", help="Where `farlink lab logs import` put the transfers.")
_JSON = typer.Option("--json", help="Print one object of JSON.")
_FIGURE = typer.Option("--figure", metavar="FILE", help="Draw it too: .svg, .pdf or .png.")
_ENGINE = typer.Option("--engine", metavar="ENGINE", help="duckdb, or spark://HOST:PORT.")
_MEMORY = typer.Option("--memory", metavar="SIZE", help="What DuckDB may hold before it uses the disk.")
_BY = typer.Option("--by", help="Whose transfers are of one session.")
_LEAST = typer.Option("--min-bytes", metavar="SIZE", help="Leave out smaller sessions.")
_RATE = typer.Option("--rate", metavar="RATE", help="Of a circuit: q1, median, mean, q3, max or a rate.")
_SEED = typer.Option("--seed", metavar="N", help="Of samples and intervals.")
_ZONE = typer.Option("--zone", metavar="ZONE", help="Of hours of the day, and of counters without one.")
_SNMP = typer.Option("--snmp", metavar="FILE", help="Counters of the link: lines time,bytes.")
_RATES = ("q1", "median", "mean", "q3", "max")
_FORMATS = (".svg", ".pdf", ".png")


class By(StrEnum):
    """Whose transfers are of one session."""

    HOSTS = "hosts"
    HOSTS_AND_USER = "hosts+user"


class Unit(StrEnum):
    """Of sizes in tables: powers of 1000 and of 1024."""

    MB = "MB"
    GB = "GB"
    MIB = "MiB"
    GIB = "GiB"


def register(app: typer.Typer) -> None:
    """Adds the verbs."""
    for verb in (sessions, circuits, plan, variance, service, report):
        app.command()(verb)


def sessions(
    directory: Annotated[Path, _DIR],
    *,
    gap: Annotated[
        list[str] | None, typer.Option("--gap", metavar="TIME", help="Within a session; may be repeated.")
    ] = None,
    least: Annotated[str | None, _LEAST] = None,
    by: Annotated[By, _BY] = By.HOSTS,
    unit: Annotated[Unit, typer.Option("--unit", help="Of sizes in the table.")] = Unit.MB,
    listed: Annotated[
        bool, typer.Option("--list", help="Print each session of the (first) gap, as lines of JSON.")
    ] = False,
    figure: Annotated[Path | None, _FIGURE] = None,
    engine: Annotated[str, _ENGINE] = "duckdb",
    memory: Annotated[str, _MEMORY] = "2GB",
    as_json: Annotated[bool, _JSON] = False,
) -> None:
    """Gather transfers into sessions, and tell their sizes, durations and throughputs."""
    from farlink_lab.logs import account, chart, telling  # noqa: PLC0415
    from farlink_lab.logs import sessions as of  # noqa: PLC0415

    gaps = [option("--gap", each, parse_time) for each in gap or ["1m"]]
    least_bytes = _size("--min-bytes", least)
    _drawable(figure)
    for name, given in (("--figure", figure is not None), ("--json", as_json)):
        if listed and given:
            raise LabError(f"--list: its lines of JSON are all that is told: leave out {name}, or --list")
    drawn: Chart | None = None
    with _opened(directory, engine, memory) as logs:
        found = of.gather(logs, gaps_s=gaps[:1] if listed else gaps, by=by.value)
        if listed:
            table = of.sessions(found, gap_s=gaps[0], min_bytes=least_bytes)
            for batch in logs.table(of.named(found, table)).to_batches():
                for row in batch.to_pylist():
                    say(json.dumps(row, ensure_ascii=False))
            return
        told = of.summaries(logs, found, gaps_s=gaps, min_bytes=least_bytes)
        throughput = of.transfer_throughput(logs, found)
        if figure is not None:
            drawn = chart.session_chart(logs, found, gaps_s=gaps, min_bytes=least_bytes)
    if as_json:
        _object(account.of_sessions(told, throughput=throughput, left_out=found.left_out))
    else:
        _lines(telling.session_lines(told, throughput=throughput, left_out=found.left_out, unit=unit.value))
    if drawn is not None and figure is not None:
        _draw(drawn, figure)


def circuits(
    directory: Annotated[Path, _DIR],
    *,
    setup: Annotated[
        list[str] | None, typer.Option("--setup", metavar="TIME", help="Of a circuit; may be repeated.")
    ] = None,
    factor: Annotated[
        float, typer.Option("--factor", metavar="N", help="A session lasts so many setups, or more.")
    ] = 10.0,
    rate: Annotated[str, _RATE] = "q3",
    gap: Annotated[
        list[str] | None, typer.Option("--gap", metavar="TIME", help="Within a session; may be repeated.")
    ] = None,
    least: Annotated[str | None, _LEAST] = None,
    by: Annotated[By, _BY] = By.HOSTS,
    figure: Annotated[Path | None, _FIGURE] = None,
    engine: Annotated[str, _ENGINE] = "duckdb",
    memory: Annotated[str, _MEMORY] = "2GB",
    as_json: Annotated[bool, _JSON] = False,
) -> None:
    """Say how many sessions, and transfers in them, are long enough for dynamic circuits."""
    from farlink_lab.logs import account, chart, telling  # noqa: PLC0415
    from farlink_lab.logs import circuits as of  # noqa: PLC0415
    from farlink_lab.logs.sessions import gather, transfer_throughput  # noqa: PLC0415

    setups = [option("--setup", each, parse_time) for each in setup or ["1m", "50ms"]]
    gaps = [option("--gap", each, parse_time) for each in gap or ["0s", "1m", "2m"]]
    _positive("--factor", factor)
    least_bytes = _size("--min-bytes", least)
    asked = _rate(rate)
    _drawable(figure)
    with _opened(directory, engine, memory) as logs:
        found = gather(logs, gaps_s=[*gaps, *of.MORE_GAPS_S], by=by.value)
        throughput = transfer_throughput(logs, found)
        rate_bps, word = asked(throughput)
        table = of.share_table(
            logs, found, rate_bps=rate_bps, setups_s=setups, gaps_s=gaps, factor=factor, min_bytes=least_bytes
        )
        middle = gaps[len(gaps) // 2]
        base = of.Case(gap_s=middle, setup_s=setups[0], factor=factor, rate_bps=rate_bps)
        moved = of.sensitivity(logs, found, throughput=throughput, base=base, min_bytes=least_bytes)
    if as_json:
        _object(account.of_circuits(table, moved, left_out=found.left_out))
    else:
        _lines(telling.circuit_lines(table, moved, rate_word=word, left_out=found.left_out))
    if figure is not None:
        _draw(chart.circuit_chart(table), figure)


def plan(
    directory: Annotated[Path, _DIR],
    *,
    capacity: Annotated[
        str | None, typer.Option("--capacity", metavar="RATE", help="Of all circuits; else unlimited.")
    ] = None,
    rate: Annotated[str, _RATE] = "q3",
    setup: Annotated[
        str, typer.Option("--setup", metavar="TIME", help="From the request until a circuit is up.")
    ] = "1m",
    hold: Annotated[
        str, typer.Option("--hold", metavar="TIME", help="How long an idle circuit stays.")
    ] = "1m",
    gap: Annotated[str, typer.Option("--gap", metavar="TIME", help="Within a session.")] = "1m",
    factor: Annotated[
        float,
        typer.Option("--factor", metavar="N", help="Sessions shorter than so many setups ask for none."),
    ] = 10.0,
    by: Annotated[By, _BY] = By.HOSTS,
    alpha: Annotated[
        str, typer.Option("--alpha", metavar="SIZE", help="Within a minute, of an alpha flow.")
    ] = "1GB",
    figure: Annotated[Path | None, _FIGURE] = None,
    engine: Annotated[str, _ENGINE] = "duckdb",
    memory: Annotated[str, _MEMORY] = "2GB",
    as_json: Annotated[bool, _JSON] = False,
) -> None:
    """Replay the log against a circuit service: what each policy costs and carries."""
    from farlink_lab.logs import account, chart, telling  # noqa: PLC0415
    from farlink_lab.logs.planner.planning import planned  # noqa: PLC0415
    from farlink_lab.logs.planner.provider import Terms  # noqa: PLC0415
    from farlink_lab.logs.sessions import transfer_throughput  # noqa: PLC0415

    capacity_bps = math.inf if capacity is None else float(option("--capacity", capacity, parse_rate))
    alpha_bytes = option("--alpha", alpha, parse_size)
    if not 0 <= factor < math.inf:
        raise LabError(f"--factor: {factor} is no factor: at least zero, which lets every session ask")
    setup_s, hold_s, gap_s = (
        option(name, text, parse_time)
        for name, text in (("--setup", setup), ("--hold", hold), ("--gap", gap))
    )
    asked = _rate(rate)
    _drawable(figure)
    with _opened(directory, engine, memory) as logs:
        rate_bps, _ = asked(transfer_throughput(logs))
        terms = Terms(capacity_bps=capacity_bps, rate_bps=rate_bps, setup_s=setup_s, hold_s=hold_s)
        made = planned(logs, terms, gap_s=gap_s, factor=factor, by=by.value, alpha_bytes=alpha_bytes)
    if as_json:
        _object(account.of_plan(made.outcomes, made.months, terms))
    else:
        _lines(telling.plan_lines(made.outcomes, made.months, terms))
    if figure is not None:
        _draw(chart.plan_chart(made.outcomes), figure)


def variance(
    directory: Annotated[Path, _DIR],
    *,
    source: Annotated[str | None, typer.Option("--source", metavar="HOST", help="Of the path.")] = None,
    destination: Annotated[
        str | None, typer.Option("--destination", metavar="HOST", help="Of the path.")
    ] = None,
    sizes: Annotated[
        str | None, typer.Option("--sizes", metavar="LOW..HIGH", help="That are alike, as in 30GB..34GB.")
    ] = None,
    snmp: Annotated[Path | None, _SNMP] = None,
    server_rate: Annotated[
        str | None, typer.Option("--server-rate", metavar="RATE", help="Of the server; else what fits best.")
    ] = None,
    zone: Annotated[str, _ZONE] = "UTC",
    seed: Annotated[int, _SEED] = 1,
    figure: Annotated[Path | None, _FIGURE] = None,
    engine: Annotated[str, _ENGINE] = "duckdb",
    memory: Annotated[str, _MEMORY] = "2GB",
    as_json: Annotated[bool, _JSON] = False,
) -> None:
    """Say how uneven transfers are that are alike, and what goes with it."""
    from farlink_lab.logs import account, chart, telling  # noqa: PLC0415
    from farlink_lab.logs.uneven import uneven  # noqa: PLC0415
    from farlink_lab.logs.variance.alike import Choice  # noqa: PLC0415
    from farlink_lab.logs.variance.counters import read_counters  # noqa: PLC0415
    from farlink_lab.logs.zone import Zone  # noqa: PLC0415

    low, high = _sizes(sizes)
    _seed(seed)
    Zone(name=zone)
    _drawable(figure)
    choice = Choice(source=source, destination=destination, low_bytes=low, high_bytes=high)
    server_bps = None if server_rate is None else float(option("--server-rate", server_rate, parse_rate))
    counters = None if snmp is None else read_counters(snmp, zone=zone)
    with _opened(directory, engine, memory) as logs:
        found = uneven(logs, choice, counters=counters, server_bps=server_bps, zone=zone, seed=seed)
    if as_json:
        _object(account.of_variance(found))
    else:
        _lines(telling.variance_lines(found))
    if figure is not None:
        _draw(chart.variance_chart(found), figure)


def service(
    trace: Annotated[
        Path | None,
        typer.Argument(metavar="[TRACE]", help="Of products: lines time,bytes or start,end,bytes."),
    ] = None,
    *,
    topology: Annotated[
        Path | None, typer.Option("--topology", metavar="FILE", help="Lines sender,receiver.")
    ] = None,
    fan_out: Annotated[
        int | None, typer.Option("--fan-out", metavar="N", help="Receivers of the busiest sender.")
    ] = None,
    mean: Annotated[
        str | None, typer.Option("--mean", metavar="RATE", help="Of the feed, where there is no trace.")
    ] = None,
    peak: Annotated[
        str | None,
        typer.Option("--peak", metavar="RATE", help="Of its peak minute, where there is no trace."),
    ] = None,
    silences: Annotated[
        str | None,
        typer.Option("--silences", metavar="SHARE", help="Longer than 1 s, where there is no trace."),
    ] = None,
    setup: Annotated[str, typer.Option("--setup", metavar="TIME", help="Of a dynamic circuit.")] = "1m",
    server_rate: Annotated[
        str | None, typer.Option("--server-rate", metavar="RATE", help="What one server can send.")
    ] = None,
    held: Annotated[
        int, typer.Option("--held", metavar="N", help="Receivers that have a product before it is sent.")
    ] = 0,
    figure: Annotated[Path | None, _FIGURE] = None,
    as_json: Annotated[bool, _JSON] = False,
) -> None:
    """Choose for a feed: the routed network, a static, dynamic or multicast circuit, or peers."""
    from farlink_lab.logs import account, chart, telling  # noqa: PLC0415
    from farlink_lab.logs.service import decide  # noqa: PLC0415

    setup_s = option("--setup", setup, parse_time)
    server_bps = None if server_rate is None else float(option("--server-rate", server_rate, parse_rate))
    _drawable(figure)
    feed = _feed(trace, mean=mean, peak=peak, silences=silences)
    known = _topology(topology, fan_out)
    if not 0 <= held <= known.fan_out:
        raise LabError(
            f"--held: {held} of {known.fan_out} receivers cannot have a product: 0 to {known.fan_out}"
        )
    decision = decide(feed, known, setup_s=setup_s, server_bps=server_bps, held_by_peers=held)
    if as_json:
        _object(account.of_service(feed, known, decision))
    else:
        _lines(telling.service_lines(feed, known, decision))
    if figure is not None:
        _draw(chart.service_chart(decision), figure)


def report(
    directory: Annotated[Path, _DIR],
    *,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write the page to FILE.")] = None,
    snmp: Annotated[Path | None, _SNMP] = None,
    zone: Annotated[str, _ZONE] = "UTC",
    seed: Annotated[int, _SEED] = 1,
    engine: Annotated[str, _ENGINE] = "duckdb",
    memory: Annotated[str, _MEMORY] = "2GB",
) -> None:
    """Write one page for a planner: what was imported, sessions, circuits, policies, variance."""
    from farlink_lab.logs.variance.counters import read_counters  # noqa: PLC0415
    from farlink_lab.logs.zone import Zone  # noqa: PLC0415
    from farlink_lab.report.logs import write_log_report  # noqa: PLC0415

    refuse_directory("--out", out, example="report.html")
    _seed(seed)
    Zone(name=zone)
    counters = None if snmp is None else read_counters(snmp, zone=zone)
    with _opened(directory, engine, memory) as logs:
        page = write_log_report(logs, directory, out=out, counters=counters, zone=zone, seed=seed)
    say(f"report: {page}")


def _opened(directory: Path, engine: str, memory: str) -> Any:
    from farlink_lab.logs.engine import open_logs  # noqa: PLC0415

    return open_logs(directory, engine=engine, memory_bytes=option("--memory", memory, parse_size))


def _rate(text: str) -> Callable[[Summary], tuple[float, str]]:
    """What tells, from throughputs, the rate that is named, and in words what it is."""
    if text in _RATES:
        return lambda throughput: (float(getattr(throughput, text)), text)
    rate_bps = float(option("--rate", text, parse_rate))
    return lambda _: (rate_bps, "as asked for, not a quartile")


def _size(name: str, text: str | None) -> int:
    return 0 if text is None else option(name, text, parse_size)


def _sizes(text: str | None) -> tuple[int | None, int | None]:
    if text is None:
        return None, None
    low, dots, high = text.partition("..")
    if not dots:
        raise LabError(f'--sizes: "{text}" is no range: write one as in 30GB..34GB')
    found = option("--sizes", low, parse_size), option("--sizes", high, parse_size)
    if found[0] > found[1]:
        raise LabError(f'--sizes: "{text}" ends before it begins: write the smaller size first')
    return found


def _seed(seed: int) -> None:
    if seed < 0:
        raise LabError(f"--seed: {seed} is below zero: a whole number, as in 1")


def _positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise LabError(f"{name}: {value} is no factor: more than zero, as in 10")


def _feed(trace: Path | None, *, mean: str | None, peak: str | None, silences: str | None) -> Feed:
    from farlink_lab.logs.feed import Feed, read_feed  # noqa: PLC0415

    said = [each for each in (mean, peak, silences) if each is not None]
    if trace is not None:
        if said:
            raise LabError("--mean, --peak and --silences stand in for a trace: leave them out beside one")
        return read_feed(trace)
    if mean is None or peak is None:
        raise LabError("name a trace of products, or say --mean RATE and --peak RATE of the feed")
    mean_bps, peak_bps = option("--mean", mean, parse_rate), option("--peak", peak, parse_rate)
    if mean_bps > peak_bps:
        raise LabError(f'--peak: "{peak}" is less than the mean of "{mean}"')
    share = None if silences is None else option("--silences", silences, parse_share)
    return Feed(mean_bps=float(mean_bps), peak_minute_bps=float(peak_bps), silent_share=share)


def _topology(path: Path | None, fan_out: int | None) -> Topology:
    from farlink_lab.logs.feed import Topology, read_topology  # noqa: PLC0415

    if (path is None) == (fan_out is None):
        raise LabError("say to how many: one of --topology FILE and --fan-out N")
    if path is not None:
        return read_topology(path)
    if fan_out is None or fan_out < 1:
        raise LabError(f"--fan-out: {fan_out} is no fan-out: at least 1")
    return Topology(fan_out=fan_out)


def _drawable(path: Path | None) -> None:
    """Refuses what no figure can be written to, before the work that it would show."""
    if path is None:
        return
    refuse_directory("--figure", path, example="figure.svg")
    if path.suffix.lower() not in _FORMATS:
        raise LabError(f"--figure: {path}: write its format into its name: {', '.join(_FORMATS)}")


def _draw(chart: Chart, path: Path) -> None:
    """Draws after the answer was told, which is not to be lost where the disk is full."""
    from farlink_lab.plot.chart import write_chart  # noqa: PLC0415

    try:
        write_chart(chart, path)
    except OSError as error:
        raise LabError(f"--figure: {path}: {error.strerror}: name a file that can be written") from error
    complain(f"figure: {path}")


def _object(value: dict[str, Any]) -> None:
    say(json.dumps(value, ensure_ascii=False, allow_nan=False, indent=1))


def _lines(lines: Iterable[str]) -> None:
    say("\n".join(lines))
