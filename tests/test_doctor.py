"""`farlink doctor`: what it finds on a host, what that costs, and that its commands mend it."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from emulation import FARLINK, Emulation, Ended, farlink, run

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.alone

KEYS = frozenset(
    {
        "name",
        "is",
        "should_be",
        "unit",
        "costs_bps",
        "command",
        "why",
        "needs_root",
        "without_root",
        "caution",
    }
)
UNITS = frozenset({"B", "bit/s", "packets", None})
FOUND = 1
NOBODY = 65534

# A path so short and slow that no buffer of any host is too small for it.
NEAR = "1us,1kbit"
# A path that no single TCP stream fills, whatever the host.
FAR = "1s,400gbit"


def findings(ended: Ended) -> dict[str, dict[str, Any]]:
    """The findings of `farlink doctor --json` by name, each with the keys that the guide lists."""
    assert len(ended.stdout.splitlines()) == 1, ended
    found: list[dict[str, Any]] = json.loads(ended.stdout)
    assert ended.status == (FOUND if found else 0), ended
    for each in found:
        assert each.keys() == KEYS
        assert each["unit"] in UNITS
        assert each["is"] != each["should_be"]
        assert each["why"]
        assert isinstance(each["needs_root"], bool)
        assert each["unit"] is None or isinstance(each["is"], int)
    costs = [each["costs_bps"] for each in found]
    known = [cost for cost in costs if cost is not None]
    assert costs == sorted(known, reverse=True) + [None] * (len(costs) - len(known))
    assert all(cost > 0 for cost in known)
    named = {each["name"]: each for each in found}
    assert len(named) == len(found)
    return named


def test_what_is_found_here_agrees_with_what_the_kernel_says() -> None:
    found = findings(farlink("doctor", "--path", FAR, "--json"))
    window = found["TCP window"]
    assert window["is"] == 65_535 << 14
    assert window["should_be"] == 50_000_000_000
    assert window["costs_bps"] == 400_000_000_000 - window["is"] * 8
    assert window["without_root"] == "farlink memory HOST --streams 47"
    # What the largest window takes: the kernel counts a packet's memory at the receiver, twice its payload.
    for name, enough in {"net.ipv4.tcp_rmem": 65_535 << 15, "net.ipv4.tcp_wmem": 65_535 << 14}.items():
        most = int(Path("/proc/sys", name.replace(".", "/")).read_text().split()[2])
        assert (name in found) == (most < enough)
        if name in found:
            assert found[name]["is"] == most
            assert f"{name}=" in found[name]["command"]
    assert all(each["costs_bps"] is None or each["costs_bps"] <= 400_000_000_000 for each in found.values())


def test_a_person_sees_what_programs_see() -> None:
    ended = farlink("doctor", "--path", FAR)
    assert ended.status == FOUND
    assert ended.stderr == ""
    for name, finding in findings(farlink("doctor", "--path", FAR, "--json")).items():
        assert re.search(rf"^{re.escape(name)} .*{re.escape(finding['command'] or '')}$", ended.stdout, re.M)
    assert "not examined: the disk (--disk DIR measures it)" in ended.stdout
    assert "assumed" not in ended.stdout


def test_without_a_path_one_is_assumed_and_said() -> None:
    assert "path was assumed" in farlink("doctor").stdout
    ended = farlink("doctor", "--json")
    assert "path was assumed" in ended.stderr
    assert ended.stdout == farlink("doctor", "--json", "--path", "100ms,10gbit").stdout


def test_a_script_is_one_that_the_shell_understands() -> None:
    script = farlink("doctor", "--path", FAR, "--script").stdout
    assert script.startswith("#!/bin/sh\n")
    assert run(["sh", "-n"], stdin=script).status == 0
    for finding in findings(farlink("doctor", "--path", FAR, "--json")).values():
        if finding["command"] is not None:
            command = finding["command"]
            assert (
                f"\n# {command}\n" in script if finding["caution"] else f"\n{command} || exit 1\n" in script
            )


def test_a_disk_is_measured_and_nothing_is_left_there(tmp_path: Path) -> None:
    ended = farlink("doctor", "--path", "1ms,10tbit", "--disk", str(tmp_path), "--json")
    found = findings(ended)
    for doing in ("write", "read"):
        disk = found[f"disk {doing} in {tmp_path}"]
        assert 0 < disk["is"] < 10_000_000_000_000
        assert disk["costs_bps"] == 10_000_000_000_000 - disk["is"]
        assert disk["command"] is None
    assert "disk" not in ended.stderr
    assert list(tmp_path.iterdir()) == []


def doctor(emulation: Emulation, path: str) -> dict[str, dict[str, Any]]:
    """What is found on host a."""
    return findings(emulation.on("a", str(FARLINK), "doctor", "--path", path, "--json"))


def set_on_a(emulation: Emulation, setting: str, value: str) -> None:
    """A setting of host a's own network namespace."""
    emulation.output("a", "sh", "-c", f"echo {value} > /proc/sys/{setting.replace('.', '/')}")


# A setting of an emulated host, wrong values, and what each costs of a gigabit per second around 100 ms.
WRONG = {
    "net.ipv4.tcp_rmem": ("'4096 131072 1048576'", 1_000_000_000 - 1_048_576 // 2 * 80),
    "net.ipv4.tcp_wmem": ("'4096 16384 1048576'", 1_000_000_000 - 1_048_576 * 80),
    "net.ipv4.tcp_window_scaling": ("0", 1_000_000_000 - 65_535 * 80),
    "net.ipv4.tcp_sack": ("0", None),
    "net.ipv4.tcp_timestamps": ("0", None),
    "net.ipv4.tcp_fastopen": ("1", None),
    "net.ipv4.tcp_slow_start_after_idle": ("1", None),
    "net.ipv4.tcp_congestion_control": ("reno", None),
}


@pytest.fixture
def emulation() -> Iterator[Emulation]:
    with Emulation(options=["--rate", "1gbit", "--rtt", "10ms"]) as running:
        yield running


def test_every_wrong_setting_is_found_with_its_cost_and_mended_by_the_script(emulation: Emulation) -> None:
    path = "100ms,1gbit"
    for setting, (value, _) in WRONG.items():
        set_on_a(emulation, setting, value)
    found = doctor(emulation, path)
    assert found.keys() >= WRONG.keys()
    for setting, (_, cost) in WRONG.items():
        assert found[setting]["costs_bps"] == cost, setting
        assert found[setting]["command"].startswith("sysctl -w "), setting
    assert found["net.ipv4.tcp_rmem"]["should_be"] == 25_000_000
    assert next(iter(found)) == "net.ipv4.tcp_window_scaling"

    script = emulation.on("a", str(FARLINK), "doctor", "--path", path, "--script").stdout
    for _ in range(2):
        emulation.output("a", "sh", "-c", script)
        assert not doctor(emulation, path).keys() & WRONG.keys()
    assert emulation.output("a", "cat", "/proc/sys/net/ipv4/tcp_rmem").split()[2] == "25000000"


def test_pieces_are_made_whole_where_the_rate_is_high_and_the_way_long(emulation: Emulation) -> None:
    setting = "net.ipv4.tcp_tso_rtt_log"
    if emulation.on("a", "test", "-e", f"/proc/sys/{setting.replace('.', '/')}").status != 0:
        pytest.skip("this kernel makes all pieces of one length")
    assert setting not in doctor(emulation, "100ms,1gbit")
    found = doctor(emulation, "366ms,10gbit")[setting]
    assert (found["is"], found["should_be"]) == (9, 19)
    emulation.output("a", "sh", "-c", found["command"])
    assert setting not in doctor(emulation, "366ms,10gbit")


def test_a_command_alone_mends_its_finding_and_no_other(emulation: Emulation) -> None:
    path = "100ms,1gbit"
    for setting in ("net.ipv4.tcp_sack", "net.ipv4.tcp_timestamps"):
        set_on_a(emulation, setting, "0")
    before = doctor(emulation, path)
    emulation.output("a", "sh", "-c", before["net.ipv4.tcp_sack"]["command"])
    after = doctor(emulation, path)
    assert before.keys() - after.keys() == {"net.ipv4.tcp_sack"}
    assert not after.keys() - before.keys()


def test_a_host_with_nothing_wrong_gets_one_line(emulation: Emulation) -> None:
    script = emulation.on("a", str(FARLINK), "doctor", "--path", NEAR, "--script").stdout
    emulation.output("a", "sh", "-c", script)
    if left := doctor(emulation, NEAR):
        # What an emulated host shares with this machine stays as it is.
        assert all("of farlink0" not in name and not name.startswith("net.ipv4.") for name in left), left
        pytest.skip(f"this machine itself has findings: {', '.join(left)}")
    ended = emulation.on("a", str(FARLINK), "doctor", "--path", NEAR)
    assert ended.status == 0
    assert ended.stderr == ""
    assert len(ended.stdout.splitlines()) == 1
    assert ended.stdout.startswith("nothing was found that keeps a TCP stream from filling 1kbit at RTT 1us")


def test_a_setting_that_a_host_cannot_change_has_no_command_and_one_it_cannot_see_is_named(
    emulation: Emulation,
) -> None:
    ended = emulation.on("a", str(FARLINK), "doctor", "--path", FAR, "--json")
    found = findings(ended)
    for name in ("net.core.rmem_max", "net.core.wmem_max", "net.ipv4.tcp_mem", "net.core.netdev_max_backlog"):
        file = f"/proc/sys/{name.replace('.', '/')}"
        shown = emulation.on("a", "stat", "--format", "%a", file)
        assert (f"{name} (not shown in this network namespace)" in ended.stderr) == (shown.status != 0)
        if name in found:
            assert (found[name]["command"] is None) == (not int(shown.stdout, 8) & stat.S_IWUSR)


def test_the_path_to_a_far_end_is_measured_where_that_is_asked(emulation: Emulation) -> None:
    whole = emulation.on("a", str(FARLINK), "doctor", "--path", FAR, "--to", "b", "--json")
    assert "path MTU to b" not in findings(whole)
    assert "MTU" not in whole.stderr
    assert "packets of" not in whole.stderr
    (device,) = set(emulation.output("a", "ls", "/sys/class/net").split()) - {"lo"}
    address = json.loads(emulation.output("b", "ip", "-json", "-4", "address", "show", "scope", "global"))
    far = address[0]["addr_info"][0]["local"]
    emulation.output("a", "ip", "route", "add", f"{far}/32", "dev", device, "mtu", "1500")
    try:
        narrow = findings(emulation.on("a", str(FARLINK), "doctor", "--path", FAR, "--to", far, "--json"))
    finally:
        emulation.output("a", "ip", "route", "del", f"{far}/32")
    found = narrow[f"path MTU to {far}"]
    assert (found["is"], found["should_be"]) == (1500, 9000)
    assert found["command"] is None
    assert found["costs_bps"] > 0


def test_a_far_end_whose_firewall_refuses_is_one_that_did_not_answer(emulation: Emulation) -> None:
    for line in (
        "add table inet filter",
        "add chain inet filter input { type filter hook input priority 0; }",
        "add rule inet filter input meta l4proto udp reject with icmpx admin-prohibited",
    ):
        emulation.output("b", "nft", *line.split(" "))
    for variable in ("FARLINK_B", "FARLINK_B6"):
        command = f"exec {FARLINK} doctor --path {FAR} --to ${variable} --json"
        ended = emulation.on("a", "sh", "-c", command)
        assert "it did not answer" in ended.stderr, ended
        assert findings(ended)


def test_a_far_end_that_nobody_knows_is_named() -> None:
    ended = farlink("doctor", "--to", "no-such-host.invalid")
    assert ended.status == 2
    assert "no-such-host.invalid" in ended.complaint


def test_an_ordinary_user_gets_the_same_findings_and_is_told_what_root_would_add() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    directory = Path(tempfile.mkdtemp(prefix="ordinary-user-"))
    try:
        directory.chmod(0o755)
        shutil.copy2(FARLINK, directory / "farlink")
        become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        ended = run([*become, str(directory / "farlink"), "doctor", "--path", FAR, "--json"])
        refusal = run([*become, str(directory / "farlink"), "doctor", "--disk", str(directory)])
    finally:
        shutil.rmtree(directory)
    found = findings(ended)
    assert found == findings(farlink("doctor", "--path", FAR, "--json"))
    commands = [each for each in found.values() if each["needs_root"] and each["command"]]
    assert ("root would add: the commands" in ended.stderr) == bool(commands)
    assert "root would add" not in farlink("doctor", "--path", FAR, "--json").stderr
    assert refusal.status == 2
    assert str(directory) in refusal.complaint


def test_a_closed_pipe_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = subprocess.run(
            [str(FARLINK), "doctor", "--path", FAR],
            stdout=writer,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stderr) == (FOUND, b"")


def test_who_does_not_get_what_was_found_is_not_told_that_there_is_something() -> None:
    ended = run(["sh", "-c", '"$0" "$@" > /dev/full', str(FARLINK), "doctor", "--path", FAR])
    assert ended.status == 2, ended
    assert "No space left" in ended.complaint
