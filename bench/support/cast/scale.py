"""The row in virtual time: up to a thousand receivers, by the example `cast_scale` of crates/flow."""

from __future__ import annotations

import csv
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure

from support import page
from support.cast.casting import WORK
from support.connection import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from support.results import Results

KEPT = WORK / "scale.csv"
SVG = ROOT / "bench" / "cast-scale.svg"
COMMAND = ("cargo", "run", "--release", "--quiet", "--package", "farlink-flow", "--example", "cast_scale")
COLOURS = ("#0072B2", "#D55E00", "#009E73")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Completion, the sender's memory and its NACKs against the number of receivers, once."""

    name: str = "scale"
    title: str = "A thousand receivers in virtual time: 10 Gb/s, 100 ms"

    def run(self, _: Results, __: int) -> None:
        """The simulation, unless it was run."""
        if KEPT.exists():
            return
        print(f"{self.name}: {' '.join(COMMAND)}", flush=True)
        done = subprocess.run(COMMAND, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
        KEPT.parent.mkdir(parents=True, exist_ok=True)
        # Whole or not at all.
        half = KEPT.with_suffix(".part")
        half.write_text(done.stdout)
        half.replace(KEPT)

    def body(self, _: Results) -> str:
        """The table and the figure."""
        if not KEPT.exists():
            return ""
        with KEPT.open() as file:
            found = list(csv.DictReader(file))
        draw(found, SVG)
        rows = [
            [
                f"{each['n']}",
                f"{float(each['loss']):.1%}",
                each["completed_s"],
                each["model_s"],
                each["ratio"],
                each["sent_ratio"],
                each["nacks"],
                each["nacks_per_s"],
                f"{int(each['memory_bytes']) / 2**20:.1f}",
            ]
            for each in found
        ]
        head = ["receivers", "loss", "all have it, s", "model, s", "ratio", "sent", "NACK frames", "a second"]
        size = int(found[0]["bytes"]) / 10**9
        said = f"One product of {size:g} GB; `sent` is all that was sent by the first pass's."
        return f"{said}\n\n{page.table([*head, 'memory, MiB'], rows)}\n\n![against receivers]({SVG.name})"


def draw(found: Sequence[dict[str, str]], svg: Path) -> None:
    """Completion beside the model, memory, and NACKs a second, against the number of receivers."""
    style: Any = {"font.size": 8, "axes.grid": True, "grid.color": "#dddddd", "svg.hashsalt": "farlink"}
    panels = {"completed_s": "all have it, s", "memory_bytes": "sender's memory, bytes"}
    panels["nacks_per_s"] = "NACK frames a second"
    with mpl.rc_context({**style, "svg.fonttype": "none"}):
        figure = Figure(figsize=(9, 3), layout="constrained")
        for panel, (field, label) in zip(figure.subplots(1, len(panels)), panels.items(), strict=True):
            for loss, colour in zip(sorted({each["loss"] for each in found}), COLOURS, strict=False):
                points = [each for each in found if each["loss"] == loss]
                counts = [int(each["n"]) for each in points]
                values = [float(each[field]) for each in points]
                panel.plot(counts, values, marker="o", color=colour, label=f"{float(loss):.1%} lost")
                if field == "completed_s":
                    model = [float(each["model_s"]) for each in points]
                    panel.plot(counts, model, "--", color=colour, label="model")
            panel.set_xscale("log")
            panel.set_ylim(bottom=0)
            panel.set_xlabel("receivers")
            panel.set_title(label, loc="left")
            panel.legend()
        figure.savefig(svg, format="svg", metadata={"Date": None})
