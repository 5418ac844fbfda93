"""What a log holds does not decide how much memory its import takes."""

import os
import subprocess
import sys

from farlink_lab.logs.store import REFUSED
from log_lines import line, rows

# More than 32 bits count.
FIVE_GB = 5 * 10**9
# What an import of two lines takes is half of it: Arrow, DuckDB and NumPy alone.
MOST_BYTES = 400 << 20
# Starts a command and tells the most memory that it held.
MEASURE = """
import os, sys
status, used = os.wait4(os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ), 0)[1:]
print(used.ru_maxrss << 10)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_a_line_of_five_gigabytes_is_passed_over_in_bounded_memory(tmp_path):
    log, out = tmp_path / "log", tmp_path / "out"
    with log.open("wb") as file:
        file.write((line(0) + "\n").encode())
        # A hole: zeros that take no room.
        file.seek(FIVE_GB, os.SEEK_CUR)
        file.write(("\n" + line(1) + "\n").encode())
    command = [sys.executable, "-m", "farlink_lab", "logs", "import", str(log), "--out", str(out)]
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done
    assert "3 lines, 2 transfers" in done.stdout
    assert "1 is longer than 1 MiB" in done.stdout
    assert int(done.stdout.splitlines()[-1]) < MOST_BYTES
    assert [row["bytes"] for row in rows(out)] == [20_971_520] * 2
    assert (out / REFUSED).stat().st_size < 10_000
