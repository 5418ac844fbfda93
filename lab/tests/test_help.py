"""What the verbs' help calls their arguments, and what they call a value that is none."""

from __future__ import annotations

import re

import pytest


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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("import", "nuttcp", "x", "--out", "y"), "'iperf3': 'nuttcp' is not one of 'iperf3'."),
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
