"""Records as a campaign would leave them, with a truth that the tests know."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

from farlink_lab import model

if TYPE_CHECKING:
    from pathlib import Path

RTTS_S = (0.0004, 0.0118, 0.0226, 0.0456, 0.0916, 0.183, 0.366)
CAPACITY_BPS = model.goodput_bps(rate_bps=10e9, mtu=9000, framing="ethernet")
WINDOW_BYTES = model.initial_window_bytes(mtu=9000)


def record(**changes: Any) -> dict[str, Any]:
    """A good record; `changes` replace fields, `None` removes one."""
    fields: dict[str, Any] = {
        "schema": 1,
        "id": "0" * 32,
        "kind": "memory",
        "mode": "size",
        "started": "2026-01-01T00:00:00.000000000Z",
        "setup_s": 0.02,
        "duration_s": 2.0,
        "bytes": 2_000_000_000,
        "rtt_s": 0.0118,
        "rate_bps": 10_000_000_000,
        "goodput_bps": CAPACITY_BPS,
        "loss": 0.0,
        "queue_bytes": 62_500_000,
        "framing": "ethernet",
        "mtu": 9000,
        "streams": 1,
        "congestion": "cubic",
        "tool": "farlink",
        "version": "0.1.0",
        "hosts": {"source": {"kernel": "6.1.0", "cores": 2}, "destination": {"kernel": "6.1.0", "cores": 2}},
        "outcome": "ok",
        "retransmits": 0,
        "cpu_s": {"sender": 0.4, "receiver": 0.6},
        "samples": [],
        "seed": 1,
        "emulator": {"late_max_s": 0.0004, "late_p99_s": 0.0001, "overrun": False},
        "lab": {"plan": "synthetic", "run": "r0", "configuration": "CUBIC ×1", "repetition": 0},
        **changes,
    }
    return {key: value for key, value in fields.items() if value is not None}


def samples(
    *, ramp_s: float, rate_bps: float, seconds: float, tau_s: float, noise: float = 0.0
) -> list[list[float]]:
    """Bytes every 100 ms of a run that doubles every `tau_s` until `ramp_s`, then stays at `rate_bps`."""
    drawn = random.Random(1)
    made, now = [], 0.0
    while now < seconds - 1e-9:
        now = round(now + 0.1, 6)
        middle = now - 0.05
        rate = rate_bps * 2 ** min(0.0, (middle - ramp_s) / tau_s)
        made.append([now, round(rate * (1 + drawn.gauss(0, noise)) * 0.1 / 8)])
    return made


def campaign(*, repetitions: int = 2, seed: int = 1) -> list[dict[str, Any]]:
    """Four configurations at seven RTTs by the model with 1% noise, one run overrun and one failed."""
    drawn = random.Random(seed)
    made: list[dict[str, Any]] = []
    for repetition in range(repetitions):
        for rtt in RTTS_S:
            for label, tool, mode, buffer in (
                ("CUBIC ×1", "farlink", "size", None),
                ("CUBIC ×1", "farlink", "duration", None),
                ("iperf3 CUBIC ×1", "iperf3", "duration", None),
                ("CUBIC ×1, 256 KiB buffers", "farlink", "duration", 262144),
            ):
                made.append(_run(len(made), drawn, repetition, rtt, label, tool, mode, buffer))
    made[5]["emulator"]["overrun"] = True
    made[9] |= {"outcome": "failed", "error": "the far side <b>closed</b> the connection"}
    return made


def late_campaign() -> list[dict[str, Any]]:
    """`campaign` with the emulator behind in every run at the first two RTTs, and in one at the third."""
    made = campaign()
    for each in made:
        early = each["rtt_s"] in RTTS_S[:2]
        one = each["rtt_s"] == RTTS_S[2] and each["lab"]["repetition"] == 0
        each["emulator"]["overrun"] = early or one
    return made


def _run(
    number: int,
    drawn: random.Random,
    repetition: int,
    rtt: float,
    label: str,
    tool: str,
    mode: str,
    buffer: int | None,
) -> dict[str, Any]:
    capacity = min(CAPACITY_BPS, 8 * buffer / rtt) if buffer else CAPACITY_BPS
    seconds = 3.0 if buffer else 10.0
    shared = {"capacity_bps": capacity, "streams": 1, "window_bytes": WINDOW_BYTES, "arrival": True}
    if mode == "size":
        moved = 2 << 30
        rate = model.slow_start_of_size_bps(rtt, size_bytes=moved, **shared).item()
        rate *= 1 + drawn.gauss(0, 0.01)
        seconds = 8 * moved / rate
    else:
        rate = model.slow_start_of_duration_bps(rtt, duration_s=seconds, **shared).item()
        rate *= 1 + drawn.gauss(0, 0.01)
        moved = round(rate * seconds / 8)
    ramp = model.ramp_up_s(rtt, capacity_bps=capacity, streams=1, window_bytes=WINDOW_BYTES).item()
    course = samples(ramp_s=ramp, rate_bps=capacity, seconds=seconds, tau_s=rtt, noise=0.01)
    times = [t for t, _ in course]
    return record(
        id=f"{number:032x}",
        mode=mode,
        started=f"2026-01-01T00:{number // 60:02d}:{number % 60:02d}.000000000Z",
        duration_s=seconds,
        bytes=moved,
        rtt_s=rtt,
        buffer_bytes=buffer,
        tool=tool,
        cpu_s={"sender": moved / 1e9 * 0.1, "receiver": moved / 1e9 * 0.2},
        samples=course,
        tcp=[
            {
                "stream": 0,
                "t_s": times,
                "cwnd_bytes": [round(capacity * rtt / 8)] * len(times),
                "srtt_s": [rtt] * len(times),
                "retransmits": [0] * len(times),
                "pacing_bps": [None] * len(times),
            }
        ],
        emulator={"late_max_s": 0.0004, "late_p99_s": drawn.uniform(0.00005, 0.0002), "overrun": False},
        lab={"plan": "synthetic", "run": f"r{number}", "configuration": label, "repetition": repetition},
    )


def write(directory: Path, made: list[dict[str, Any]], *, broken: bool = False) -> Path:
    """`records.jsonl` in `directory`, with a broken third line where asked."""
    lines = [json.dumps(each) for each in made]
    if broken:
        lines.insert(2, '{"schema":1,"id":')
    path = directory / "records.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path
