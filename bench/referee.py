"""Do our H-TCP, Scalable TCP and emulator do as Linux's own modules and netem do? Writes bench/referee.md.

It goes on where it was interrupted: what it measured is kept under target/referee/kept until the page stands.
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from farlink_lab.single_loss import LAWS, Cycle, Law
from matplotlib.figure import Figure

from support import page
from support.connection import FARLINK, Connection, late, quantile, served
from support.guest import WORK, Guest, build_probe, need
from support.window import Sample, cycles, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

KEPT = WORK / "kept"
PORT = "5000"
MTU = 1500
# An RTT at which H-TCP's scaling by whole eighths is the same in jiffies of 4 ms and in microseconds.
RTT_MS = 98.0
SECONDS, SETTLED_S, LEAST_S = 60, 20.0, 0.5
LEAST_CYCLES = 10
BAR = 0.1
# A stall that makes a round trip longer by a quarter lets H-TCP take more: RTTmin/RTTmax is below 0.8 then.
STALL_S = 0.02
TRIES = 4
PING_RTTS_MS = (0.4, 11.8, 22.6, 45.6, 91.6, 183.0, 366.0)
PINGS = 100
DATAGRAMS = 100_000
LOSSES = {
    "every:1000": "",
    "1%": "loss random 1%",
    "gemodel:1%,20%": "loss gemodel 1% 20%",
}
# Frame check, preamble and gap between frames, which netem does not see, and our framing counts.
FRAME_BYTES = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A congestion control, and the connection at which it is compared.

    The queue is short: so the end of slow start does not decide what H-TCP takes for the longest round trip.
    """

    congestion: str
    rate_mbit: int = 100
    queue_ms: float = 10.0
    every: int = 3000

    @property
    def limit_packets(self) -> int:
        """What netem holds: the queue, and what is on its way."""
        packets_s = self.rate_mbit * 1e6 / 8 / (MTU + 38)
        return 1 + int(packets_s * (RTT_MS / 2 + self.queue_ms) / 1e3)


CASES = {
    "Scalable TCP": Case(congestion="scalable"),
    "H-TCP": Case(congestion="htcp"),
    # Its window fills half of the queue, so that RTTmin/RTTmax is within H-TCP's bounds.
    "H-TCP, into a queue": Case(congestion="htcp", rate_mbit=20, queue_ms=50.0, every=4200),
    "CUBIC": Case(congestion="cubic"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A run of one case: what was sampled, the settled cycles, and the emulator's greatest lateness."""

    samples: list[Sample]
    cycles: list[Cycle]
    late_s: float = 0.0

    @property
    def per_acknowledgement(self) -> float:
        """Segments that an acknowledgement stood for, on average."""
        last = self.samples[-1]
        return last.delivered / last.acknowledgements


def kept(name: str, measure: Callable[[], Sequence[str]]) -> list[str]:
    """The lines that `measure` gives, or those that it gave to the pass that was interrupted."""
    place = KEPT / f"{name}.txt"
    if not place.exists():
        print(name, flush=True)
        text = "".join(f"{line}\n" for line in measure())
        KEPT.mkdir(parents=True, exist_ok=True)
        # Whole or not at all: an interrupted pass leaves no half of a measurement.
        half = place.with_suffix(".part")
        half.write_text(text)
        half.replace(place)
    return place.read_text().splitlines()


def netem(rtt_ms: float, loss: str = "", *, limit: int = 10_000, rate_mbit: int = 100) -> str:
    """What netem is told for one direction."""
    return f"limit {limit} delay {rtt_ms / 2}ms {loss} rate {rate_mbit}mbit {FRAME_BYTES}"


def traced(name: str, run: Callable[[], Sequence[str]]) -> Trace:
    """The trace in what `run` gives (the lateness, then samples). With few losses it is not kept."""

    def measure() -> Sequence[str]:
        lines = run()
        if (count := len(trace_of(lines).cycles)) < LEAST_CYCLES:
            raise SystemExit(f"{name}: only {count} losses were seen: the machine is too busy for this bench")
        return lines

    return trace_of(kept(name, measure))


def trace_of(lines: Sequence[str]) -> Trace:
    """The trace in such lines."""
    samples = parse(lines[1:])
    found = cycles(samples, settled_s=SETTLED_S, least_s=LEAST_S)
    return Trace(samples=samples, cycles=found, late_s=float(lines[0]))


def theirs(guest: Guest, case: Case) -> list[str]:
    """The kernel's own module, over netem, in the guest, whose time is virtual: nothing is late there."""
    options = netem(RTT_MS, limit=case.limit_packets, rate_mbit=case.rate_mbit)
    settings = {"MTU": str(MTU), "NETEM": options, "EVERY": str(case.every)}
    job = f"/bin/ip netns exec a /probe stream 10.0.1.2 {PORT} {case.congestion} {SECONDS}\n"
    return ["0", *guest.run(job, settings=settings)]


def ours(probe: Path, name: str) -> tuple[Trace, list[str]]:
    """Ours, over our emulator, on this machine; and which runs were left out before it, and why."""
    left_out: list[str] = []
    while True:
        number = len(left_out) + 1
        trace = traced(f"{name}, ours, run {number}", partial(our_run, probe, CASES[name]))
        if trace.late_s <= STALL_S or number == TRIES:
            return trace, left_out
        left_out.append(f"{name}, run {number}: a packet left {trace.late_s * 1e3:.0f} ms late")


def our_run(probe: Path, case: Case) -> list[str]:
    """One run over our emulator, and its greatest lateness before."""
    options = ["--rate", f"{case.rate_mbit}mbit", "--rtt", f"{RTT_MS}ms", "--queue", f"{case.queue_ms}ms"]
    options += ["--mtu", str(MTU), "--loss", f"every:{case.every}", "--congestion", case.congestion]
    with Connection(*options) as connection:
        server = prepare(connection, probe)
        before = connection.link()
        to = before["hosts"][1]["ipv4"]
        out = connection.run("a", str(probe), "stream", to, PORT, case.congestion, str(SECONDS))
        after = connection.link()
        server.terminate()
        server.wait()
    late_s = max(late(before, after, 1.0, link=link) for link in (0, 1))
    return [str(late_s), *out.splitlines()]


def prepare(connection: Connection, probe: Path) -> subprocess.Popen[str]:
    """Makes packets of single segments, as the guest's are, and starts the far end."""
    for host in ("a", "b"):
        devices = set(connection.run(host, "ls", "/sys/class/net").split()) - {"lo"}
        for device in devices:
            connection.run(host, "ip", "link", "set", "dev", device, "gso_max_segs", "1")
    server = connection.start("b", str(probe), "serve", PORT)
    served(server, "listening")
    return server


def window_table(pairs: dict[str, tuple[Trace, Trace]]) -> str:
    """What a loss takes and what a round trip adds, theirs and ours."""
    rows = []
    for case, (kernel, mine) in pairs.items():
        measures: dict[str, tuple[str, Callable[[Cycle], float]]] = {
            "share of the window that a loss takes": ("{:.4f}", lambda cycle: cycle.taken),
            "growth a round trip, segments": ("{:.3f}", lambda cycle: cycle.growth),
            "growth, of the law's from that window": (
                "{:.3f}",
                partial(by_law, LAWS[CASES[case].congestion]),
            ),
            "window when a loss is noticed, segments": ("{:.0f}", lambda cycle: cycle.before),
            "from repair to the next loss, s": ("{:.2f}", lambda cycle: cycle.end_s - cycle.repaired_s),
        }
        for name, (form, value) in measures.items():
            a, b = ([value(cycle) for cycle in trace.cycles] for trace in (kernel, mine))
            ratio = median(b) / median(a)
            verdict = "yes" if abs(ratio - 1) <= BAR else "NO"
            shown = [f"{form.format(median(v))} ({spread(v, form)})" for v in (a, b)]
            rows.append([case, name, *shown, f"{ratio:.3f}", verdict])
    head = ["case", "median (middle half)", "Linux's module, netem", "ours", "ratio", "within 10%"]
    return page.table(head, rows)


def by_law(law: Law, cycle: Cycle) -> float:
    """The growth as a share of what the law makes of the window that the loss left, in the same time."""
    return cycle.growth / law.growth(cycle)


def spread(values: Sequence[float], form: str) -> str:
    """The quartiles."""
    return f"{form.format(quantile(values, 0.25))}-{form.format(quantile(values, 0.75))}"


def runs_table(pairs: dict[str, tuple[Trace, Trace]], guest: Guest) -> str:
    """Every run that counts."""
    origins = {entry["name"]: entry.get("origin") for entry in congestion_controls()}
    rows = []
    for case, (kernel, mine) in pairs.items():
        origin = origins[CASES[case].congestion]
        for where, trace in ((f"kernel {guest.release}", kernel), (f"{origin}, here", mine)):
            row = [case, where, len(trace.cycles), trace.samples[-1].retransmits]
            lateness = f"{trace.late_s * 1e3:.1f} ms" if trace is mine else "-"
            rows.append([*row, f"{trace.per_acknowledgement:.2f}", lateness])
    head = [
        "case",
        "whose",
        "losses that count",
        "segments sent again",
        "segments an ack",
        "latest packet",
    ]
    return page.table(head, rows)


def congestion_controls() -> list[dict[str, str]]:
    """What `farlink congestion` lists."""
    out = subprocess.run([FARLINK, "congestion", "--json"], stdout=subprocess.PIPE, check=True).stdout
    found: list[dict[str, str]] = json.loads(out)
    return found


def draw(pairs: dict[str, tuple[Trace, Trace]], svg: Path) -> None:
    """The windows against time, side by side."""
    style: Any = {"font.size": 8, "axes.grid": True, "grid.color": "#dddddd", "svg.hashsalt": "farlink"}
    with mpl.rc_context({**style, "svg.fonttype": "none", "path.simplify_threshold": 0.5}):
        figure = Figure(figsize=(9, 2 * len(pairs)), layout="constrained")
        panels = figure.subplots(len(pairs), 2, sharex=True, sharey="row")
        for row, (case, both) in zip(panels, pairs.items(), strict=True):
            top = 1.05 * max(sample.window for trace in both for sample in settled(trace))
            whose_are = ("Linux's module, over netem", "here, over farlink emulate")
            for panel, trace, whose in zip(row, both, whose_are, strict=True):
                shown = settled(trace)[::5]
                times = [round(sample.t_s, 2) for sample in shown]
                panel.plot(times, [sample.window for sample in shown], lw=1, color="#0072B2")
                panel.set_title(f"{case}: {whose}", loc="left", fontsize=9)
                panel.set_ylim(0, top)
            row[0].set_ylabel("window, segments")
        for panel in panels[-1]:
            panel.set_xlabel("s")
        figure.savefig(svg, format="svg", metadata={"Date": None})


def settled(trace: Trace) -> list[Sample]:
    """The samples that count."""
    return [sample for sample in trace.samples if sample.t_s >= SETTLED_S]


def delays(guest: Guest, probe: Path) -> str:
    """Round trips of datagrams over the idle connection, theirs and ours."""
    lines = []
    for rtt in PING_RTTS_MS:
        change = "/bin/ip netns exec m /bin/tc qdisc change dev {} root netem {}"
        lines += [change.format(device, netem(rtt)) for device in ("left", "right")]
        lines.append(f"echo rtt; /bin/ip netns exec a /probe ping 10.0.1.2 {PORT} {PINGS}")
    settings = {"MTU": str(MTU), "NETEM": netem(0.4), "EVERY": ""}
    out = kept("delays, theirs", lambda: guest.run("\n".join(lines), settings=settings))
    kernel = [part.split() for part in "\n".join(out).split("rtt\n")[1:]]
    mine = [line.split() for line in kept("delays, ours", lambda: our_delays(probe))]
    rows = []
    for rtt, times, own in zip(PING_RTTS_MS, kernel, mine, strict=True):
        row = [f"{rtt} ms"]
        medians = []
        for values in (times, own):
            ms = [int(value) / 1e6 for value in values]
            medians.append(median(ms))
            row += [f"{medians[-1]:.3f} ms", f"{quantile(ms, 0.01):.3f}-{quantile(ms, 0.99):.3f}"]
        rows.append([*row, f"{medians[1] - medians[0]:+.3f} ms"])
    return page.table(["RTT asked", "netem", "1-99%", "ours", "1-99%", "ours − netem"], rows)


def our_delays(probe: Path) -> list[str]:
    """The round trips over our emulator, in ns: a line for each RTT."""
    with Connection("--rate", "100mbit", "--rtt", "0.4ms", "--mtu", str(MTU)) as connection:
        server = prepare(connection, probe)
        to = connection.link()["hosts"][1]["ipv4"]
        found = []
        for rtt in PING_RTTS_MS:
            connection.link("--rtt", f"{rtt}ms")
            found.append(" ".join(connection.run("a", str(probe), "ping", to, PORT, str(PINGS)).split()))
        server.terminate()
        server.wait()
    return found


def our_losses(probe: Path, asked: str) -> list[str]:
    """What arrived over our emulator, and in how many runs the others were lost."""
    with Connection("--rate", "100mbit", "--rtt", "0.4ms", "--mtu", str(MTU), "--loss", asked) as connection:
        server = prepare(connection, probe)
        to = connection.link()["hosts"][1]["ipv4"]
        counted = connection.run("a", str(probe), "count", to, PORT, str(DATAGRAMS))
        server.terminate()
        server.wait()
    return counted.splitlines()


def losses(guest: Guest, probe: Path) -> str:
    """Datagrams lost and the lengths of the runs of lost ones, theirs and ours."""
    rows = []
    for asked, option in LOSSES.items():
        every = asked.removeprefix("every:") if asked.startswith("every:") else ""
        settings = {"MTU": str(MTU), "NETEM": netem(0.4, option), "EVERY": every}
        job = f"/bin/ip netns exec a /probe count 10.0.1.2 {PORT} {DATAGRAMS}\n"
        (kernel,) = kept(f"loss {asked}, theirs", partial(guest.run, job, settings=settings))
        (mine,) = kept(f"loss {asked}, ours", partial(our_losses, probe, asked))
        counts = [tuple(map(int, line.split())) for line in (kernel, mine)]
        lost = [DATAGRAMS - arrived for arrived, _ in counts]
        lengths = [missing / runs for missing, (_, runs) in zip(lost, counts, strict=True)]
        # Runs of losses come independently: twice the spread of a Poisson count, of two counts.
        error = 2.576 * math.sqrt(sum(2 / runs if "gemodel" in asked else 1 / runs for _, runs in counts))
        ratio = lost[1] / lost[0]
        verdict = "yes" if abs(ratio - 1) <= (error if not every else 1 / lost[0]) else "NO"
        shown = [f"{missing / DATAGRAMS:.4%}" for missing in lost]
        row = [f"`{asked}`", shown[0], f"{lengths[0]:.2f}", shown[1], f"{lengths[1]:.2f}", f"{ratio:.3f}"]
        rows.append([*row, f"±{error:.1%}" if not every else "±1 packet", verdict])
    head = [
        "loss asked",
        "netem: lost",
        "in runs of",
        "ours: lost",
        "in runs of",
        "ratio",
        "99% by chance",
        "within",
    ]
    return page.table(head, rows)


def main() -> None:
    """Measures, and writes the page and its figure."""
    need()
    probe, guest = build_probe(), Guest()
    # As it was found when the first of its runs began.
    (machine,) = kept("machine", lambda: [page.machine()])
    left_out: list[str] = []
    pairs = {}
    for name, case in CASES.items():
        mine, late_ones = ours(probe, name)
        pairs[name] = (traced(f"{name}, theirs", partial(theirs, guest, case)), mine)
        left_out += late_ones
    draw(pairs, Path(__file__).with_suffix(".svg"))
    parts = [
        ("Windows under periodic loss", window_table(pairs) + "\n\n![Windows against time](referee.svg)"),
        ("The runs", runs_table(pairs, guest) + "\n\nLeft out: " + ("; ".join(left_out) or "none") + "."),
        ("Delay: round trips of datagrams, idle", delays(guest, probe)),
        (f"Loss: of {DATAGRAMS:,} datagrams of 1,000 bytes", losses(guest, probe)),
    ]
    body = "\n\n".join(f"## {title}\n\n{text}" for title, text in parts)
    page.write(
        Path(__file__).with_suffix(".md"),
        title="Do our congestion controls and our emulator do as Linux's modules and netem do?",
        question=(
            f"One stream over 100 Mb/s and {RTT_MS:.0f} ms, MTU {MTU}, queue 10 ms, every 3,000th packet "
            "lost (into a queue: 20 Mb/s, queue 50 ms, every 4,200th), "
            f"{SECONDS} s of which the first {SETTLED_S:.0f} do not count: what "
            "each loss takes from the window and what each round trip adds, with Linux's own modules over "
            f"netem in a virtual machine (Debian's kernel {guest.release}) and with ours over `farlink "
            "emulate` on this machine, by one program that samples TCP_INFO. The bar, set beforehand: "
            "within 10%."
        ),
        command="make bench-referee",
        machine=machine,
        body=body,
    )
    # The next pass measures anew.
    shutil.rmtree(KEPT)


if __name__ == "__main__":
    main()
