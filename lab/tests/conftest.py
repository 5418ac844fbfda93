"""The fake `farlink`, for tests of the lab alone, and the engines that analyse logs."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import shutil
import subprocess
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest

from farlink_lab.cli import main
from farlink_lab.logs.engine import DUCKDB

if TYPE_CHECKING:
    from collections.abc import Iterator

# Two executors of a core each, as processes of their own.
SPARK = "local-cluster[2,1,1024]"
# Queries of a test run once: what a better compiler gains it never gives back (46 s, where this takes 14).
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
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

    def here(self, *args: object, **changes: str) -> subprocess.CompletedProcess[str]:
        """The same in this process, which a start of its own would take a second or two."""
        words = ["farlink-lab", *map(str, args)]
        out, err = io.StringIO(), io.StringIO()
        with (
            redirect_stdout(out),
            redirect_stderr(err),
            patch.object(sys, "argv", words),
            patch.dict(os.environ, self.environment(**changes)),
            pytest.raises(SystemExit) as ended,
        ):
            main()
        status = int(ended.value.code or 0)
        return subprocess.CompletedProcess(words, status, out.getvalue(), err.getvalue())

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


@pytest.fixture(scope="session")
def spark() -> Iterator[str]:
    """The address of a cluster on this machine, started once: it takes seconds."""
    if importlib.util.find_spec("pyspark") is None or shutil.which("java") is None:
        pytest.skip("it needs PySpark and Java 17: pip install 'farlink-lab[spark]'")
    from pyspark.sql import SparkSession

    # Its own warnings, at its start and end, are none of ours.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        builder = SparkSession.builder.master(SPARK).config("spark.ui.enabled", "false")
        settings = {
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.extraJavaOptions": JAVA,
            "spark.executor.extraJavaOptions": JAVA,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        }
        for name, value in settings.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
    yield SPARK
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session.stop()


# Its own warnings are none of ours.
ON_SPARK = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(params=[DUCKDB, pytest.param("spark", marks=ON_SPARK)])
def engine(request: pytest.FixtureRequest) -> str:
    """Each engine in turn, as `--engine` names it."""
    return DUCKDB if request.param == DUCKDB else str(request.getfixturevalue("spark"))
