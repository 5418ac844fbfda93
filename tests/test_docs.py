"""The documents and the program say the same."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

import pytest

from documents import Command, commands, documents, listed_flags
from emulation import FARLINK, ROOT, run
from help import EVERYWHERE, flags_of, help_of, verbs_of

if TYPE_CHECKING:
    from pathlib import Path

GUIDE = ROOT / "docs" / "guide"
VERBS = sorted(path.stem for path in GUIDE.glob("*.md") if path.name != "README.md")
LAB_VERBS = [
    "advise",
    "analyse",
    "compare",
    "demo",
    "import",
    "latency",
    "logs",
    "profile",
    "report",
    "search",
]
LOG_VERBS = ["circuits", "follow", "import", "plan", "report", "service", "sessions", "synth", "variance"]


def test_every_verb_has_a_page_and_every_page_a_verb() -> None:
    assert verbs_of(help_of()) == set(VERBS)


@pytest.mark.parametrize("verb", [each for each in VERBS if each not in ("lab", "cast", "mpi", "on")])
def test_a_page_lists_the_flags_of_its_verb_and_no_others(verb: str) -> None:
    assert listed_flags(GUIDE / f"{verb}.md", "Options") == flags_of(verb)


@pytest.mark.parametrize("verb", ["send", "receive"])
def test_the_page_of_cast_lists_the_flags_of_its_verbs_and_no_others(verb: str) -> None:
    assert listed_flags(GUIDE / "cast.md", f"`farlink cast {verb}`") == flags_of("cast", verb)


@pytest.mark.parametrize("verb", ["env", "run"])
def test_the_page_of_mpi_lists_the_flags_of_its_verbs_and_no_others(verb: str) -> None:
    assert listed_flags(GUIDE / "mpi.md", f"`farlink mpi {verb}`") == flags_of("mpi", verb)


def test_on_has_no_flags() -> None:
    assert flags_of("on") == frozenset()


@pytest.mark.parametrize("verb", LAB_VERBS)
def test_the_labs_page_lists_the_flags_of_its_verbs_and_no_others(verb: str) -> None:
    assert listed_flags(GUIDE / "lab.md", f"`farlink lab {verb}`") == flags_of("lab", verb)


def test_the_labs_page_has_every_verb() -> None:
    assert verbs_of(help_of("lab")) == set(LAB_VERBS)


@pytest.mark.parametrize("verb", LOG_VERBS)
def test_the_page_of_logs_lists_the_flags_of_its_verbs_and_no_others(verb: str) -> None:
    page = GUIDE.parent / "logs.md"
    assert listed_flags(page, f"`farlink lab logs {verb}`") == flags_of("lab", "logs", verb)


def test_the_page_of_logs_has_every_verb() -> None:
    assert verbs_of(help_of("lab", "logs")) == set(LOG_VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_the_guides_list_has_every_verb(verb: str) -> None:
    assert f"]({verb}.md)" in (GUIDE / "README.md").read_text()


SHOWN = [command for document in documents(ROOT) for command in commands(document)]


@pytest.mark.parametrize(
    "command",
    [each for each in SHOWN if each.program == "farlink"],
    ids=lambda each: f"{each.document.stem}: {each.verb} {' '.join(sorted(each.flags))}",
)
def test_every_command_that_is_shown_exists(command: Command) -> None:
    assert command.flags <= flags_of(*command.verb.split()) | EVERYWHERE


def test_the_readme_shows_the_two_commands() -> None:
    readme = {each.verb for each in SHOWN if each.document == ROOT / "README.md"}
    assert {"demo", "test", "emulate", "serve", "memory"} <= readme


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_understands_the_service(tmp_path: Path) -> None:
    unit = tmp_path / "farlink.service"
    text = (ROOT / "packaging" / "farlink.service").read_text()
    # It looks whether the program is there.
    unit.write_text(text.replace("/usr/local/bin/farlink", str(FARLINK)))
    verified = run(["systemd-analyze", "verify", "--man=no", str(unit)])
    assert (verified.status, verified.stdout, verified.stderr) == (0, "", "")
    unit.write_text(text.replace("ProtectSystem=", "ProtectSystm="))
    assert "ProtectSystm" in run(["systemd-analyze", "verify", "--man=no", str(unit)]).stderr


def test_the_service_starts_a_verb_with_flags_that_exist() -> None:
    unit = (ROOT / "packaging" / "farlink.service").read_text()
    started = re.search(r"^ExecStart=\S*/farlink (\S+) (.*)$", unit, re.MULTILINE)
    assert started
    flags = {word for word in started[2].split() if word.startswith("--")}
    assert flags
    assert flags <= flags_of(started[1])
    # The process is another user's by then, and the unit's capabilities do not let root signal it.
    if re.search(r"^CapabilityBoundingSet=(?!.*CAP_KILL)", unit, re.MULTILINE):
        assert re.search(r"^ExecReload=\+", unit, re.MULTILINE)
    # A section is a line of its own, everything else a comment or a setting.
    for line in filter(None, unit.splitlines()):
        assert re.match(r"#|\[[A-Z]\w*\]$|[A-Z]\w*=", line), line
