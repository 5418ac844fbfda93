"""The profile model: what a campaign found, as a small file that movers choose by.

Records go from the movers to the analysis; this goes the other way. It is a table of predicted throughputs,
so that who reads it needs no statistics: docs/profile-model.md has its fields.
"""

from __future__ import annotations

import contextlib
import json
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from farlink_lab.advice import Adviser
from farlink_lab.choice import COPY, Task, mover_word
from farlink_lab.error import LabError
from farlink_lab.ground import AdviceError, unmeasured
from farlink_lab.quantity import show_size, show_time

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from farlink_lab.choice import Choice
    from farlink_lab.ground import Ground

Array = NDArray[np.float64]

# The layout, as crates/wire reads it.
SCHEMA = 1
# Two a decade: between them throughput is nearly straight on logarithmic axes.
SIZES = tuple(float(f"{10**power:.3g}") for power in np.arange(6, 12.6, 0.5))
DURATIONS_S = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
# What a mover may be asked for, as crates/wire bounds it: it reads no model that names more.
STREAMS, BUFFER_BYTES, BLOCK_BYTES = (1, 512), (4 << 10, 1023 << 20), (4 << 10, 64 << 20)
# Digits of a throughput: more are not known.
DIGITS = 4


class ModelFileError(LabError):
    """A profile model that cannot be made or written."""


def profile_model(ground: Ground, *, made: str | None = None) -> dict[str, Any]:
    """The model of everything that was measured, as JSON would have it.

    Args:
        ground: What was measured; where its `asked` differs, that is what the model is of.
        made: When, RFC 3339; `None` is now.

    Raises:
        ModelFileError: where no run moved anything, or they are of several movers or of another's
            files, differ in what a reader cannot choose, or are of nothing that it could.
    """
    mover = _mover(ground)
    if all(choice.is_left_to_the_path for choice in ground.choices):
        raise ModelFileError(
            "--save: in these runs the path decided how many streams there were or which congestion control, "
            "and a profile model names both: measure with --streams and --congestion"
        )
    if not any(map(is_choosable, ground.choices)):
        raise ModelFileError(
            "--save: farlink could choose none of what was measured: see docs/profile-model.md"
        )
    notes = _notes(ground)
    (protection,) = {choice.protection for choice in ground.choices}
    rtts = _with_middles(ground.rtt_s)
    try:
        sizes = _table(ground, rtts, [Task(mode="size", amount=amount) for amount in SIZES])
        durations = _table(ground, rtts, [Task(mode="duration", amount=amount) for amount in DURATIONS_S])
    except AdviceError as error:
        raise ModelFileError(str(error)) from error
    wire = ground.asked
    return {
        "schema": SCHEMA,
        "kind": "profile model",
        "made": made or datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "rate_bps": wire.rate_bps,
        "goodput_bps": wire.capacity_bps,
        "loss": wire.loss,
        **({} if mover == "farlink" else {"measured_with": mover}),
        **({} if protection is None else {"protection": protection}),
        "notes": notes,
        "rtt_s": [_digits(rtt) for rtt in rtts],
        "bytes": [round(size) for size in SIZES],
        "seconds": list(DURATIONS_S),
        "configurations": [
            {
                key: value
                for key, value in (
                    ("congestion", choice.congestion),
                    ("declared_bps", choice.declared_bps),
                    ("streams", choice.streams),
                    ("buffer_bytes", choice.buffer_bytes),
                    ("block_bytes", choice.block_bytes),
                    ("measured_rtt_s", [_digits(rtt) for rtt in ground.measured_s(choice)]),
                    ("size_bps", _rounded(sizes[:, :, index])),
                    ("duration_bps", _rounded(durations[:, :, index])),
                )
                if value is not None
            }
            for index, choice in enumerate(ground.choices)
            if is_choosable(choice)
        ],
    }


def is_choosable(choice: Choice) -> bool:
    """Whether a reader of the model, as crates/wire bounds it, could choose `choice`.

    A model names streams and congestion control, and where the path decides there is no one of them.
    """
    if choice.is_left_to_the_path:
        return False
    bounds = (
        (choice.streams, STREAMS),
        (choice.buffer_bytes, BUFFER_BYTES),
        (choice.block_bytes, BLOCK_BYTES),
    )
    return all(value is None or least <= value <= most for value, (least, most) in bounds)


def save(model: dict[str, Any], path: Path) -> None:
    """Writes `model` whole or not at all.

    Raises:
        ModelFileError: where it cannot be written.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(json.dumps(model, separators=(",", ":"), allow_nan=False) + "\n", encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        raise ModelFileError(f"{path}: {error.strerror}: name a file that can be written to") from error
    finally:
        with contextlib.suppress(OSError):
            beside.unlink()


def _with_middles(rtts: Array) -> Array:
    """The measured RTTs, and one between each two."""
    return np.sort(np.concatenate([rtts, np.sqrt(rtts[:-1] * rtts[1:])]))


def _mover(ground: Ground) -> str:
    """Whose runs the model is of: a mover chooses by what it can do itself."""
    movers = sorted({(choice.mover, choice.kind) for choice in ground.choices})
    if len(movers) > 1:
        names = dict.fromkeys(name for name, _ in movers)
        words = " or ".join(f"--mover {mover_word(name)}" for name in names)
        # A command may move memory and files.
        mend = f"say which with {words}" if len(names) > 1 else "measure each in a directory of its own"
        raise ModelFileError(
            f"--save: the runs are of {' and of '.join(name for name, _ in movers)}, and a profile model is "
            f"of one mover: {mend}"
        )
    ((name, kind),) = movers
    if kind != "memory" and name != COPY:
        raise ModelFileError(
            f"--save: the runs are of {name}, whose files tell nothing of what farlink reaches: measure with "
            "farlink"
        )
    told = {(choice.protection, choice.options, choice.template) for choice in ground.choices}
    if len(told) > 1:
        what = ", ".join(sorted(" ".join(word for word in each if word) or "none" for each in told))
        raise ModelFileError(
            f"--save: the runs differ in what --auto cannot choose ({what}): measure each in a directory of "
            "its own"
        )
    return name


def _notes(ground: Ground) -> list[str]:
    """What the predictions assume beyond the records, whoever reads them."""
    notes = [*ground.notes, *ground.left_out]
    rtts = ground.rtt_s
    fewer = sum(
        unmeasured(float(rtts[0]), own) or unmeasured(float(rtts[-1]), own)
        for own in map(ground.measured_s, ground.choices)
    )
    if fewer:
        notes.append(
            f"{fewer} of {len(ground.choices)} configurations were not measured from {show_time(rtts[0])} to "
            f"{show_time(rtts[-1])}: beyond their measured_rtt_s they are extrapolated from others' runs"
        )
    left_to_the_path = [choice.name for choice in ground.choices if choice.is_left_to_the_path]
    if left_to_the_path:
        notes.append(
            "left out, as a profile model names streams and congestion control, and these left one of "
            f"them to the path: {'; '.join(left_to_the_path)}"
        )
    beyond = [one.name for one in ground.choices if not one.is_left_to_the_path and not is_choosable(one)]
    if beyond:
        notes.append(f"left out, as farlink has no such streams, buffers or blocks: {'; '.join(beyond)}")
    if ground.late_note:
        notes.append(ground.late_note)
    return [*notes, _sizes_note(ground)]


def _sizes_note(ground: Ground) -> str:
    """From which sizes and durations the others are told."""
    runs = [record for place in ground.places for record in place.records]
    known = []
    for mode, what, show in (("size", "sizes", show_size), ("duration", "durations", show_time)):
        amounts = [record.amount for record in runs if record.mode == mode]
        if amounts:
            low, high = show(min(amounts)), show(max(amounts))
            known.append(f"{what} of {low}" if low == high else f"{what} from {low} to {high}")
    return (
        f"measured were {' and '.join(known)}: others are the model's, times how far those runs were "
        "from the model of what they did"
    )


def _digits(rtt_s: float) -> float:
    return float(f"{rtt_s:.6g}")


def _table(ground: Ground, rtts: Array, tasks: Sequence[Task]) -> Array:
    """Θ by RTT, task and configuration."""
    advisers = [Adviser(ground, task) for task in tasks]
    return np.array([[adviser.throughput_bps(float(rtt)) for adviser in advisers] for rtt in rtts])


def _rounded(table: Array) -> list[list[int]]:
    return [[max(round(float(f"{value:.{DIGITS}g}")), 1) for value in row] for row in table.tolist()]
