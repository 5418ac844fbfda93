"""An ordinary user emulates, where the TUN node may be opened."""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from emulation import FARLINK, Ended, run

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


def as_nobody(place: Path, *command: str) -> Ended:
    """`command` as user nobody, in a mount namespace where the TUN node is everybody's."""
    become = f"setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups"
    script = f'mount --bind {place}/tun {TUN} && exec {become} "$@"'
    return run(["unshare", "--mount", "sh", "-c", script, "sh", *command])


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


def test_where_the_node_may_not_be_opened_the_mend_is_said(place: Path) -> None:
    node = place / "tun"
    node.chmod(0o600)
    try:
        ended = as_nobody(place, str(place / "farlink"), "emulate", "--rtt", "1ms", "--", "true")
    finally:
        node.chmod(0o666)
    assert ended.status == 2
    assert "/dev/net/tun" in ended.complaint
