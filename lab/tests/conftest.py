"""The fake `farlink`, for tests of the lab alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

FAKE = Path(__file__).parent / "fake_farlink.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """`farlink-lab` over a fake `farlink`, in a directory of its own."""

    home: Path

    @property
    def out(self) -> Path:
        """Where campaigns go."""
        return self.home / "out"

    def plan(self, text: str) -> Path:
        """A plan file of that text."""
        path = self.home / "plan.toml"
        path.write_text(text)
        return path

    def environment(self, **changes: str) -> dict[str, str]:
        """What the lab sees."""
        state = self.home / "state"
        state.mkdir(exist_ok=True)
        # Without site packages, and without whatever stands before the interpreter in PATH: it is started
        # often.
        fake = self.home / "farlink"
        fake.write_text(f"#!{sys.executable} -SE\n{FAKE.read_text()}")
        fake.chmod(0o755)
        return {
            **os.environ,
            "FARLINK": str(fake),
            "FAKE_STATE": str(state),
            "PYTHONSAFEPATH": "1",
            **changes,
        }

    def command(self, *args: object) -> list[str]:
        """The lab's command line."""
        return [sys.executable, "-m", "farlink_lab", *map(str, args)]

    def run(self, *args: object, **changes: str) -> subprocess.CompletedProcess[str]:
        """Runs the lab to its end."""
        return subprocess.run(
            self.command(*args),
            env=self.environment(**changes),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def records(self) -> list[dict[str, object]]:
        """The campaign's records."""
        return [json.loads(line) for line in (self.out / "records.jsonl").read_text().splitlines()]

    def log(self) -> list[list[str]]:
        """How `farlink` was called."""
        path = self.home / "state" / "log"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """A lab of its own."""
    return Lab(home=tmp_path)
