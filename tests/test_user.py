"""An ordinary user emulates, where the TUN node may be opened."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from emulation import FARLINK, MARK, START_LIMIT_S, Ended, next_line, run
from test_nothing_left import Surroundings, end_and_look, sockets, wait_for_sleepers

if TYPE_CHECKING:
    from collections.abc import Iterator

TUN = Path("/dev/net/tun")
# The character device of TUN, as the kernel's list of devices has it.
TUN_DEVICE = os.makedev(10, 200)
NOBODY = 65534


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A directory that everybody may read, with the binary and a TUN node that everybody may open."""
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    if Path("/proc/sys/user/max_user_namespaces").read_text().strip() == "0":
        pytest.skip("the kernel allows no user namespaces")
    directory = Path(tempfile.mkdtemp(prefix="ordinary-user-"))
    try:
        directory.chmod(0o755)
        shutil.copy2(FARLINK, directory / "farlink")
        node = directory / "tun"
        os.mknod(node, 0o666 | stat.S_IFCHR, TUN_DEVICE)
        # Whatever the umask took.
        node.chmod(0o666)
        yield directory
    finally:
        shutil.rmtree(directory)


def as_nobody(place: Path, *command: str, mounts: str = "true") -> Ended:
    """`command` as user nobody, in a mount namespace where the TUN node is everybody's."""
    return run(becoming_nobody(place, *command, mounts=mounts))


def becoming_nobody(place: Path, *command: str, mounts: str = "true") -> list[str]:
    """What becomes `command` as user nobody: the same process, after it has mounted what it needs."""
    become = f"setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups"
    script = f'mount --bind {place}/tun {TUN} && {mounts} && exec {become} "$@"'
    return ["unshare", "--mount", "sh", "-c", script, "sh", *command]


@contextlib.contextmanager
def nobodys(place: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """A running emulation of nobody's: its process, its name, and the mark of all that it starts."""
    name, mark = f"nobody-{uuid.uuid4().hex[:12]}", uuid.uuid4().hex
    process = subprocess.Popen(
        becoming_nobody(place, f"{place}/farlink", "emulate", "--name", name, *options, "--json"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, MARK: mark},
    )
    try:
        assert process.stdout is not None
        assert json.loads(next_line(process.stdout, process))["name"] == name
        yield process, name, mark
    finally:
        process.terminate()
        process.communicate(timeout=START_LIMIT_S)


def test_an_ordinary_user_is_told_what_could_not_be_touched(place: Path) -> None:
    emulate = f"{place}/farlink emulate --prefault 4GiB -- true"
    ended = as_nobody(place, "sh", "-c", f"ulimit -n 256 && exec {emulate}")
    assert ended.status == 0, ended
    assert re.search(
        r"note: prefault: .* of 4GiB touched, for want of descriptors: run as root", ended.stderr
    )


def test_an_ordinary_user_has_a_connection(place: Path) -> None:
    ended = as_nobody(
        place, "prlimit", "--rtprio=0:0",
        str(place / "farlink"), "emulate", "--rate", "1gbit", "--rtt", "20ms", "--", "sh", "-c",
        "hostname; id -u; ping -n -c 2 -i 0.2 -W 5 $FARLINK_B && ping -n -c 1 -W 5 $FARLINK_B6",
    )  # fmt: skip
    assert ended.status == 0, ended
    assert re.search(r"note: the emulator runs without priority \(.*rtprio", ended.stderr), ended
    assert ended.stdout.startswith("a\n")
    fastest = min(
        float(line.split("time=")[1].split()[0]) for line in ended.stdout.splitlines() if "time=" in line
    )
    assert fastest >= 20 * 0.99


def test_an_ordinary_user_has_a_name_for_it_and_uses_both_hosts(place: Path) -> None:
    name = f"nobody-{os.getpid()}"
    farlink = place / "farlink"
    script = f"""
        set -eu
        mkfifo "$1/ready" || exit 9
        {farlink} emulate --name {name} --rtt 2ms --json > "$1/ready" &
        emulation=$!
        read -r line < "$1/ready"
        {farlink} on {name}/b -- hostname
        {farlink} link {name} --rtt 5ms
        {farlink} on {name}/b -- ping -n -c 1 -W 5 a
        kill -TERM $emulation
        wait $emulation || true
    """
    with tempfile.TemporaryDirectory(prefix="ordinary-user-") as own:
        os.chown(own, NOBODY, NOBODY)
        ended = as_nobody(place, "sh", "-c", script, "sh", own)
    assert ended.status == 0, ended
    assert "b\n" in ended.stdout


@pytest.mark.alone
@pytest.mark.parametrize(("how", "status"), [("SIGTERM", 0), ("SIGKILL", -signal.SIGKILL)])
def test_nothing_is_left_of_an_ordinary_users_emulation(place: Path, how: str, status: int) -> None:
    before = Surroundings.now()
    with nobodys(place, "--hosts", "3", "--rtt", "2ms") as (process, name, mark):
        left_behind = (
            f"{place}/farlink",
            "on",
            f"{name}/c",
            "--",
            "sh",
            "-c",
            "setsid sleep 1000 <&- >&- 2>&- &",
        )
        assert run(becoming_nobody(place, *left_behind), env={MARK: mark}).status == 0
        wait_for_sleepers(mark, 1)

        def end() -> None:
            process.send_signal(signal.Signals[how])
            assert process.wait(timeout=START_LIMIT_S) == status

        end_and_look(mark, end)
        assert sockets(name) == []
    assert Surroundings.now().beyond(before) == set()


def test_an_ordinary_user_moves_memory_between_any_two_of_three_hosts(place: Path) -> None:
    with nobodys(place, "--hosts", "3", "--rate", "500mbit", "--rtt", "4ms") as (_, name, mark):
        farlink = f"{place}/farlink"
        serve = becoming_nobody(place, farlink, "on", f"{name}/c", "--", farlink, "serve")
        with subprocess.Popen(
            serve, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env={**os.environ, MARK: mark}
        ) as server:
            assert server.stdout is not None
            assert next_line(server.stdout, server).startswith("listening on ")
            for host in "ab":
                memory = (farlink, "memory", "c", "--bytes", "4MiB", "--json", "--quiet")
                ended = as_nobody(place, farlink, "on", f"{name}/{host}", "--", *memory)
                assert ended.status == 0, ended
                record = json.loads(ended.stdout)
                assert (record["outcome"], record["bytes"]) == ("ok", 4 << 20)
                assert (record["source"], record["destination"]) == (host, "c")
                # It knows the connection, which the user asked for, and what its emulator did.
                assert (record["rate_bps"], record["rtt_s"]) == (500_000_000, 0.004)
                assert record["emulator"].keys() >= {"late_p99_s", "overrun"}
                assert record["duration_s"] >= 0.002 + record["bytes"] * 8 / record["goodput_bps"] * 0.99
            server.terminate()


def test_two_emulations_of_an_ordinary_user_do_not_meet(place: Path) -> None:
    with nobodys(place, "--rtt", "2ms") as (_, one, _mark), nobodys(place, "--rtt", "2ms") as (_, other, _):
        farlink = f"{place}/farlink"
        ping = ("ping", "-4", "-n", "-c", "3", "-i", "0.2", "-W", "5", "b")
        ended = as_nobody(place, farlink, "on", f"{one}/a", "--", *ping)
        assert ended.status == 0, ended
        for name, echoes in ((one, "3"), (other, "0")):
            snmp = as_nobody(place, farlink, "on", f"{name}/b", "--", "cat", "/proc/net/snmp").stdout
            names, values = re.findall(r"^Icmp: (.*)$", snmp, re.MULTILINE)
            assert dict(zip(names.split(), values.split(), strict=True))["InEchos"] == echoes


def test_what_could_not_be_raised_is_said(place: Path) -> None:
    # As containers have it. A user's own namespace then shows the outside's /proc, and no whole one.
    read_only = "mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys"
    buffers = [f"/proc/sys/net/ipv4/{name}" for name in ("tcp_rmem", "tcp_wmem")]
    script = f"cat {' '.join(buffers)}; exec ping -n -c 1 -W 5 b"
    ended = as_nobody(place, f"{place}/farlink", "emulate", "--", "sh", "-c", script, mounts=read_only)
    # It does without.
    assert ended.status == 0, ended
    # Both hosts say the same: it is said once.
    notes = dict(
        re.findall(r"^farlink: note: (net\.\S+) stays as it is on the hosts (.*)$", ended.stderr, re.M)
    )
    assert ended.stderr.count("stays as it is") == len(notes)
    assert {"net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem", "net.ipv4.tcp_no_metrics_save"} <= notes.keys()
    assert all("Read-only file system" in reason for reason in notes.values()), ended
    assert notes["net.ipv4.tcp_rmem"].endswith("): asked for 4096 131072 1073741824")
    assert notes["net.ipv4.tcp_wmem"].endswith("): asked for 4096 16384 1073741824")
    # And it is true.
    assert all(int(line.split()[2]) < 1 << 30 for line in ended.stdout.splitlines()[:2])


def test_where_the_node_may_not_be_opened_the_mend_is_said(place: Path) -> None:
    node = place / "tun"
    node.chmod(0o600)
    try:
        ended = as_nobody(place, str(place / "farlink"), "emulate", "--rtt", "1ms", "--", "true")
    finally:
        node.chmod(0o666)
    assert ended.status == 2
    assert "/dev/net/tun" in ended.complaint


# Takes names that root's emulation might have, and an emulator has on its hosts, and answers nobody.
PRETEND = """
import signal, socket, sys
names, waiting = [], []
for name in sys.argv[1:]:
    names.append(socket.socket(socket.AF_UNIX))
    names[-1].bind("\\0" + name)
    names[-1].listen(16)
# Of the last nobody who comes later is taken.
try:
    while True:
        waiting.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK))
        waiting[-1].connect("\\0" + sys.argv[-1])
except BlockingIOError:
    pass
print("ready", flush=True)
signal.pause()
"""


def test_what_another_user_pretends_is_not_believed_and_nobody_waits_for_it(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    name = f"pretended-{uuid.uuid4().hex[:12]}"
    become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    pretend = [*become, "/usr/bin/python3", "-I"]
    # A network namespace of its own: the second name is the same for everybody.
    command = ["unshare", "--net", "sh", "-c", 'ip link set lo up; "$@" & echo $!; wait', "sh", *pretend]
    with subprocess.Popen(
        [*command, "-c", PRETEND, f"farlink/0/{name}", "farlink"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            pid = next_line(process.stdout, process).strip()
            enter = ["nsenter", f"--net=/proc/{pid}/ns/net"]
            assert next_line(process.stdout, process).strip() == "ready"
            for verb in (["on", f"{name}/b", "--", "true"], ["link", name]):
                ended = run([*enter, str(FARLINK), *verb])
                assert ended.status == 2, ended
                assert f'emulation "{name}" is another user\'s' in ended.complaint
            # It stands on no emulated host, and does not wait to be told so.
            record = tmp_path / "record.jsonl"
            ended = run([*enter, str(FARLINK), "memory", "127.0.0.1:1", "--record", str(record)])
            assert ended.status == 2, ended
        finally:
            process.terminate()
            run(["kill", pid])
