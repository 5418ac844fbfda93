"""What the verbs' help calls their arguments, and what they call a value that is none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from farlink_lab.plan_file import EXAMPLE, parse_plan


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        (("import",), ["iperf3", "FILE"]),
        (("compare",), ["A", "B"]),
        (("profile",), ["PLAN.toml"]),
        (("logs", "import"), ["FILE"]),
        (("logs", "service"), ["[TRACE]"]),
    ],
)
def test_an_argument_is_called_what_it_is_and_not_by_its_type_in_python(lab, verb, arguments):
    said = lab.here(*verb, "--help").stdout
    table = said.split("Arguments:\n")[1].split("\n\n")[0]
    assert re.findall(r"^  (\S.*?)  ", table, re.MULTILINE) == arguments
    assert "{FILE...}" not in said


def test_help_shows_a_plan_that_can_be_carried_out_and_so_does_the_guide(lab):
    said = lab.here("profile", "--help").stdout
    shown = [line.strip() for line in said.partition(" times:")[2].splitlines()[1:]]
    assert "\n".join(shown).strip() == EXAMPLE.strip()
    plan = parse_plan(EXAMPLE, name="x")
    assert (len(plan.rtts_s), len(plan.configurations), plan.repetitions) == (3, 4, 3)
    guide = Path(__file__).parents[2] / "docs/guide/lab.md"
    indented = "".join(f"    {line}" if line.strip() else line for line in EXAMPLE.splitlines(keepends=True))
    assert indented in guide.read_text()
    for verb in ("profile", "search"):
        assert "docs/" not in lab.here(verb, "--help").stdout
    missing = lab.here("profile", "none.toml", "--out", "x")
    assert "'farlink lab profile --help' shows one" in missing.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("import", "nuttcp", "x", "--out", "y"),
            "farlink: nuttcp: reports of iperf3 alone are imported, as in",
        ),
        (("import", "iperf3", "x", "--out", "y", "--mtu", "9k"), '--mtu: "9k" is no whole number from 68 to'),
        (("logs", "synth", "--transfers", "1e9", "--out", "y"), "'--transfers': it is no whole number ("),
        (("logs", "circuits", "y", "--factor", "few"), "'--factor': it is no number ("),
    ],
)
def test_a_value_that_is_none_is_refused_in_one_plain_line(lab, words, said):
    done = lab.here(*words)
    assert done.returncode == 2
    (complaint,) = done.stderr.splitlines()
    assert said in complaint


@pytest.mark.parametrize(
    ("words", "verb"),
    [
        (("latency", "--size", "1MB", "--receivers", "5"), "farlink lab latency"),
        (("logs", "import", "x"), "farlink lab logs import"),
        (("logs", "sing"), "farlink lab logs"),
        (("sing",), "farlink lab"),
    ],
)
def test_a_refusal_points_to_the_help_of_its_verb(lab, words, verb):
    done = lab.here(*words)
    assert done.returncode == 2
    assert done.stderr.endswith(f"('{verb} --help' says what there is)\n")
