"""A real sshd on an emulated host, with keys and configuration of its own, and the ssh that reaches it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from emulation import FARLINK

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from emulation import Emulation

SSHD = Path("/usr/sbin/sshd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sshd:
    """An sshd that lets root in with the one key that there is."""

    home: Path

    @property
    def command(self) -> str:
        """The ssh to name with `--ssh`: it asks nothing, and knows no other keys and hosts."""
        return f"ssh -F {self.home}/ssh_config"

    def words(self, host: str, *remote: str) -> list[str]:
        """The command line that runs `remote` on `host`."""
        return [*self.command.split(), host, *remote]


def missing() -> str | None:
    """Why there can be no sshd here."""
    if os.geteuid() != 0:
        return "only root's sshd lets root in"
    return None if SSHD.exists() and shutil.which("ssh") else "OpenSSH is not installed"


@contextlib.contextmanager
def sshd(
    emulation: Emulation,
    host: str,
    home: Path,
    *,
    has_farlink: bool = True,
    env: Mapping[str, str] | None = None,
) -> Iterator[Sshd]:
    """An sshd on `host`, listening; its sessions have `env`, and on their PATH `farlink`, where wanted."""
    home.chmod(0o700)
    programs = home / "bin"
    programs.mkdir()
    if has_farlink:
        (programs / "farlink").symlink_to(FARLINK)
    for key in ("host_key", "user_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(home / key)], check=True)
    shutil.copy(home / "user_key.pub", home / "authorized_keys")
    surroundings = {"PATH": f"{programs}:/usr/bin:/bin", **(env or {})}
    (home / "sshd_config").write_text(
        f"HostKey {home}/host_key\nAuthorizedKeysFile {home}/authorized_keys\nStrictModes no\nUsePAM no\n"
        "PidFile none\nPermitRootLogin yes\nMaxStartups 200\nMaxSessions 200\n"
        f"SetEnv {' '.join(f'{name}={value}' for name, value in surroundings.items())}\n"
    )
    (home / "ssh_config").write_text(
        f"Host *\nUser root\nIdentityFile {home}/user_key\nIdentitiesOnly yes\nBatchMode yes\n"
        f"LogLevel ERROR\nUserKnownHostsFile {home}/known_hosts\nStrictHostKeyChecking accept-new\n"
    )
    # Root's sshd wants an empty directory.
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    with emulation.background(host, str(SSHD), "-D", "-e", "-f", str(home / "sshd_config")) as server:
        assert server.stderr is not None
        for line in server.stderr:
            if "Server listening on ::" in line:
                break
        else:
            raise AssertionError("sshd ended before it listened")
        # It must not wait for somebody to read what it says.
        threading.Thread(target=server.stderr.read, daemon=True).start()
        yield Sshd(home=home)
