"""Is the emulated connection the one that was asked for? Writes bench/emulator.md."""

from __future__ import annotations

import json
import math
import os
import subprocess
import time
from pathlib import Path
from statistics import median
from typing import Any

from support import page
from support.connection import FARLINK, Connection, late, quantile, served

RTTS_MS = (0.4, 11.8, 22.6, 45.6, 91.6, 183, 366)
PINGS = 1000
LOST_OF = 1_000_000
HEADERS, FRAMING = 52, 38
UDP_HEADERS = 28
# No queue grows, and Python keeps up.
PACED_BPS = 3e9
DATAGRAMS = str(Path(__file__).parent / "programs" / "numbered_datagrams.py")
READING_S = 0.001


def sleeper() -> str:
    """How late the machine itself wakes the most urgent thread, idle and with both processors busy."""
    program = (
        "import os, time\n"
        "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(20))\n"
        "end = time.monotonic() + 5\n"
        "while (start := time.monotonic()) < end:\n"
        "    time.sleep(0.0002)\n"
        "    print(time.monotonic() - start - 0.0002)\n"
    )
    rows = []
    for name, busy in (("idle", 0), ("busy", len(os.sched_getaffinity(0)))):
        loops = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(busy)]
        out = subprocess.run(["python3", "-c", program], stdout=subprocess.PIPE, text=True, check=True).stdout
        for loop in loops:
            loop.kill()
            loop.wait()
        lates = [1e3 * float(line) for line in out.split()]
        stalls = sum(late for late in lates if late > 1.0)
        row = [f"{quantile(lates, share):.3f}" for share in (0.5, 0.99, 0.999, 1.0)]
        rows.append([name, *row, f"{stalls / 5000:.1%}"])
    head = ["processors", "late: median, ms", "99%", "99.9%", "most", "time in stalls over 1 ms"]
    return page.table(head, rows)


def set_up() -> str:
    """From the command to the first process on a host, and to the end of all."""
    times = []
    for _ in range(20):
        start = time.monotonic()
        subprocess.run([FARLINK, "emulate", "--rtt", "91.6ms", "--", "true"], check=True)
        times.append(time.monotonic() - start)
    row = [f"{median(times) * 1e3:.0f} ms", f"{min(times) * 1e3:.0f}-{max(times) * 1e3:.0f} ms", "300 ms"]
    return page.table(["start, run `true` on host a, end: median of 20", "range", "bar"], [row])


def ping_times(connection: Connection) -> list[float]:
    """The round-trip times of pings, in seconds."""
    out = connection.run("a", "ping", "-4", "-n", "-i", "0.01", "-c", str(PINGS), "b")
    return [float(line.split("time=")[1].split()[0]) / 1e3 for line in out.splitlines() if "time=" in line]


def round_trips() -> str:
    """Pings over the idle connection, at every RTT of the suite."""
    rows = []
    with Connection("--rtt", "0.4ms") as connection:
        for rtt in RTTS_MS:
            connection.link("--rtt", f"{rtt}ms")
            times = ping_times(connection)
            middle, bar = median(times) * 1e3, 0.1 + rtt / 1000
            verdict = "yes" if abs(middle - rtt) <= bar else "NO"
            row = [f"{rtt} ms", f"{middle:.3f} ms", f"{middle - rtt:+.3f} ms", f"±{bar:.3f} ms", verdict]
            rows.append([*row, f"{quantile(times, 0.99) * 1e3:.3f} ms", len(times)])
    return page.table(["asked", "median", "off by", "bar", "within", "99%", "pings"], rows)


def sampler(connection: Connection, seconds: float) -> list[tuple[float, float]]:
    """`(t, wire bits so far)` of what arrives at host b, each 20 ms, as its interface counts it.

    The interface counts a super-packet's headers once; on the wire each segment had its own, and its frame.
    """
    program = (
        "import time\n"
        f"end = time.monotonic() + {seconds}\n"
        "while (before := time.monotonic()) < end:\n"
        "    line = next(l for l in open('/proc/net/dev') if 'farlink0' in l).split()\n"
        "    print(before, time.monotonic(), line[1], line[2], flush=True)\n"
        "    time.sleep(0.02)\n"
    )
    samples = []
    for line in connection.run("b", "python3", "-c", program).splitlines():
        before, after, size, packets = line.split()
        # A reading that took longer was itself interrupted: nobody knows when in between it was taken.
        if float(after) - float(before) > READING_S:
            continue
        payload = int(size) - int(packets) * HEADERS
        samples.append((float(before), payload / (9000 - HEADERS) * (9000 + FRAMING) * 8))
    return samples


def whole_seconds(samples: list[tuple[float, float]]) -> list[float]:
    """The rate over every whole second that starts at a sample, bits per second."""
    rates = []
    for index, (start, bits) in enumerate(samples):
        later = [(t, b) for t, b in samples[index:] if t - start >= 1.0]
        if later:
            at, total = later[0]
            rates.append((total - bits) / (at - start))
    return rates


def rates() -> str:
    """What arrives over any whole second while the queue is never empty."""
    rows = []
    for rate, asked in (("1gbit", 1e9), ("10gbit", 10e9)):
        # A part of the queue stands under CUBIC: the wire has always something to send.
        with Connection("--rate", rate, "--rtt", "0.4ms", "--congestion", "cubic") as connection:
            server = connection.start("b", FARLINK, "serve")
            served(server, "listening")
            # The cheapest sender there is: what is to be seen is the link, not what else the processors do.
            to = connection.link()["hosts"][1]["ipv4"]
            client = connection.start("a", FARLINK, "memory", to, "--seconds", "14s", "--json")
            time.sleep(3)
            before = connection.link()
            samples = sampler(connection, 9)
            after = connection.link()
            client.communicate()
            server.terminate()
            server.wait()
        over = whole_seconds(samples)
        worst = max(over, key=lambda r: abs(r / asked - 1))
        within = sum(abs(r / asked - 1) <= 0.003 for r in over) / len(over)
        late99 = late(before, after, 0.99)
        row = [rate, f"{median(over) / 1e9:.4f} Gb/s", f"{min(over) / 1e9:.4f}-{max(over) / 1e9:.4f}"]
        off = f"{100 * (worst / asked - 1):+.2f}%"
        rows.append([*row, off, "±0.3%", f"{within:.0%}", len(over), f"{late99 * 1e3:.3f} ms"])
    head = [
        "rate asked",
        "median over whole seconds",
        "range",
        "worst",
        "bar",
        "within",
        "windows",
        "late, 99%",
    ]
    return page.table(head, rows)


def losses() -> str:
    """Segments lost of a million, for both sizes of segment."""
    rows = []
    for mtu in (1500, 9000):
        for text, share in (("1%", 0.01), ("0.01%", 0.0001)):
            options = (
                "--rtt",
                "0.4ms",
                "--mtu",
                str(mtu),
                "--loss",
                text,
                "--congestion",
                "bbr",
                "--seed",
                str(mtu),
            )
            with Connection(*options) as connection:
                server = connection.start("b", "iperf3", "-s", "--forceflush")
                served(server, "listening")
                while (link := connection.link()["links"][0])["segments"] - dropped(link) < LOST_OF:
                    connection.run("a", "iperf3", "-c", "b", "-t", "4", "-P", "4", "-J")
                server.terminate()
                server.wait()
            carried = link["segments"] - dropped(link)
            low, high = binomial(carried, share)
            lost = link["dropped"]["loss"]
            verdict = "yes" if low <= lost <= high else "NO"
            rows.append([mtu, text, f"{carried:,}", f"{lost:,}", f"{low:,.0f}-{high:,.0f}", verdict])
    return page.table(["MTU", "loss asked", "segments", "lost", "99% binomial interval", "within"], rows)


def missing() -> str:
    """Of a million datagrams in super-packets, those that a receiver misses, which reads their numbers."""
    rows = []
    for mtu in (1500, 9000):
        for text, share in (("1%", 0.01), ("0.01%", 0.0001)):
            with Connection(
                "--rtt", "0.4ms", "--mtu", str(mtu), "--loss", text, "--seed", str(mtu)
            ) as connection:
                receiver = connection.start("b", "python3", DATAGRAMS, "receive")
                assert receiver.stdout is not None
                port = receiver.stdout.readline().strip()
                sizes = (str(LOST_OF), str(mtu - UDP_HEADERS), str(PACED_BPS))
                connection.run("a", "python3", DATAGRAMS, "send", connection.address("b"), port, *sizes)
                came, unread = map(int, receiver.stdout.readline().split())
                receiver.wait()
                link = connection.link()["links"][0]
            lost = LOST_OF - came - unread
            low, high = binomial(LOST_OF, share)
            verdict = "yes" if low <= lost <= high else "NO"
            counted = f"{link['dropped']['loss']:,}"
            row = [mtu, text, f"{LOST_OF:,}", f"{lost:,}", counted, f"{low:,.0f}-{high:,.0f}", verdict]
            rows.append([*row, dropped(link) + unread])
    head = [
        "MTU",
        "loss asked",
        "datagrams",
        "missing",
        "the emulator's count",
        "99% binomial interval",
        "within",
    ]
    return page.table([*head, "had no room in a queue"], rows)


def binomial(count: int, share: float) -> tuple[float, float]:
    """Between what 99% of such counts lie."""
    expected, deviation = count * share, math.sqrt(count * share * (1 - share))
    return expected - 2.576 * deviation, expected + 2.576 * deviation


def dropped(link: dict[str, Any]) -> int:
    """Segments that never came to the wire."""
    return int(link["dropped"]["queue"] + link["dropped"]["cut"])


def iperf3() -> str:
    """One CUBIC stream of iperf3, the emulator on the same cores."""
    rows = []
    for rtt, bar in (("0.4ms", "9.3"), ("366ms", "-")):
        for repetition in range(1, 4):
            with Connection("--rtt", rtt) as connection:
                server = connection.start("b", "iperf3", "-s", "-1", "--forceflush")
                served(server, "listening")
                before = connection.link()
                out = connection.run("a", "iperf3", "-c", "b", "-C", "cubic", "-t", "15", "-J")
                after = connection.link()
                server.wait()
            result = json.loads(out)
            per_second = [i["sum"]["bits_per_second"] / 1e9 for i in result["intervals"]]
            rate = result["end"]["sum_received"]["bits_per_second"] / 1e9
            cpu = (after["cpu_s"] - before["cpu_s"]) / 15
            lates = [late(before, after, share) * 1e3 for share in (0.5, 0.99, 1.0)]
            row = [rtt, repetition, f"{rate:.2f}", bar, f"{max(per_second):.2f}", f"{cpu:.2f}"]
            rows.append([*row, *(f"{value:.3f}" for value in lates)])
    head = ["RTT", "run", "Gb/s", "bar", "best second", "emulator's cores", "late: median, ms", "99%", "most"]
    return page.table(head, rows)


def main() -> None:
    """Measures, and writes the page."""
    machine = page.machine()
    parts = [
        ("The machine: a SCHED_FIFO thread that only sleeps", sleeper()),
        ("Set-up", set_up()),
        ("Round-trip time, idle", round_trips()),
        ("Rate", rates()),
        ("Loss, of TCP's segments", losses()),
        ("Loss, as a receiver misses it", missing()),
        ("One CUBIC stream of iperf3", iperf3()),
    ]
    body = "\n\n".join(f"## {title}\n\n{text}" for title, text in parts)
    page.write(
        Path(__file__).with_suffix(".md"),
        title="Is the emulated connection the one that was asked for?",
        question="Rate, round-trip time, loss and set-up of `farlink emulate`, MTU 9000 unless named, "
        "queue 50 ms, and how late its packets left, with both hosts and the emulator on the same cores.",
        command="make bench-emulator",
        machine=machine,
        body=body,
    )


if __name__ == "__main__":
    main()
