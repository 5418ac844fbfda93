"""A virtual machine with Debian's kernel, whose congestion controls and netem are the referee of ours."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

from support.connection import ROOT

if TYPE_CHECKING:
    from pathlib import Path

SOURCES = ROOT / "bench" / "guest"
WORK = ROOT / "target" / "referee"
MODULES = ("veth", "sch_netem", "sch_ingress", "cls_matchall", "act_gact", "tcp_htcp", "tcp_scalable")
# Command : Debian's package that has it.
NEEDED = {
    "qemu-system-x86_64": "qemu-system-x86",
    "apt-get": "apt",
    "dpkg-deb": "dpkg",
    "cc": "build-essential",
    "ip": "iproute2",
    "tc": "iproute2",
}
# Nanoseconds of the guest's time that each of its instructions takes, as a power of two.
SHIFT = 0
BOOT_LIMIT_S = 1800.0


def need() -> None:
    """Ends the bench, with what to install, where something is missing."""
    missing = sorted({package for command, package in NEEDED.items() if shutil.which(command) is None})
    if missing:
        install = f"apt-get install --no-install-recommends {' '.join(missing)}"
        raise SystemExit(f"the referee needs {', '.join(missing)}, on Debian: {install}")


def build_probe() -> Path:
    """The program that measures, which needs no library: it runs here and in the guest."""
    WORK.mkdir(parents=True, exist_ok=True)
    probe = WORK / "probe"
    command = ["cc", "-O2", "-Wall", "-static", "-o", str(probe), str(SOURCES / "probe.c")]
    subprocess.run(command, check=True)
    return probe


class Guest:
    """Debian's kernel with hosts a and b in it, booted once for each job.

    Its clock counts instructions (`-icount`): it stands still while the emulated processor is not run, so
    that neither the slowness of the translation nor the load of this machine is in what the guest measures.
    """

    def __init__(self) -> None:
        need()
        self.probe = build_probe()
        self.kernel_package = _kernel_package()
        self._tree = WORK / "debian"
        for package in (self.kernel_package, "busybox-static"):
            self._unpack(package)
        (self._vmlinuz,) = (self._tree / "boot").glob(f"vmlinuz-{self.release}")

    @property
    def release(self) -> str:
        """The kernel's release, as `uname -r` says it."""
        return self.kernel_package.removeprefix("linux-image-")

    def run(self, job: str, *, settings: dict[str, str]) -> list[str]:
        """The lines that the shell script `job` prints in a guest whose hosts `settings` describe."""
        image = WORK / "initramfs"
        image.write_bytes(self._initramfs(job, settings=settings))
        command = [
            *("qemu-system-x86_64", "-accel", "tcg", "-icount", f"shift={SHIFT},sleep=off"),
            *("-m", "512", "-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot"),
            *("-kernel", str(self._vmlinuz), "-initrd", str(image)),
            *("-append", "console=ttyS0 quiet panic=-1 tsc=reliable"),
        ]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                text=True,
                check=True,
                timeout=BOOT_LIMIT_S,
            )
        finally:
            image.unlink()
        lines = [line.strip() for line in done.stdout.splitlines()]
        if "==== end 0" not in lines:
            raise SystemExit(f"the guest did not end its job:\n{done.stdout[-2000:]}")
        return lines[lines.index("==== begin") + 1 : lines.index("==== end 0")]

    def _unpack(self, package: str) -> None:
        kept = WORK / "packages"
        kept.mkdir(exist_ok=True)
        if not list(kept.glob(f"{package}_*.deb")):
            # As root, apt would download as a user who may not write here.
            download = ["apt-get", "-o", "APT::Sandbox::User=root", "-q", "download", package]
            subprocess.run(download, cwd=kept, check=True)
        (archive,) = kept.glob(f"{package}_*.deb")
        subprocess.run(["dpkg-deb", "-x", str(archive), str(self._tree)], check=True)

    def _initramfs(self, job: str, *, settings: dict[str, str]) -> bytes:
        root = WORK / "root"
        shutil.rmtree(root, ignore_errors=True)
        for directory in ("bin", "dev", "modules", "proc", "run", "sys"):
            (root / directory).mkdir(parents=True)
        busybox = root / "bin" / "busybox"
        shutil.copy2(self._tree / "bin" / "busybox", busybox)
        for applet in ("sh", "mount", "insmod", "poweroff", "grep", "sleep", "cat", "echo"):
            (root / "bin" / applet).symlink_to("busybox")
        (drivers,) = (self._tree / "lib" / "modules").glob(self.release)
        for module in MODULES:
            (file,) = drivers.rglob(f"{module}.ko")
            shutil.copy2(file, root / "modules")
        for tool in ("ip", "tc"):
            _copy_with_libraries(tool, root)
        shutil.copy2(self.probe, root / "probe")
        shutil.copy2(SOURCES / "init", root / "init")
        (root / "init").chmod(0o755)
        (root / "settings").write_text("".join(f"{key}='{value}'\n" for key, value in settings.items()))
        (root / "job").write_text(job)
        names = "\n".join(str(path.relative_to(root)) for path in sorted(root.rglob("*")))
        archive = [str(busybox), "cpio", "-o", "-H", "newc"]
        done = subprocess.run(archive, cwd=root, input=names.encode(), capture_output=True, check=True)
        shutil.rmtree(root)
        return done.stdout


def _kernel_package() -> str:
    """The package that Debian's `linux-image-amd64` stands for now."""
    command = ["apt-cache", "depends", "--important", "linux-image-amd64"]
    out = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    names = [word for word in out.split() if word.startswith("linux-image-") and word != "linux-image-amd64"]
    if not names:
        raise SystemExit(
            "the referee needs Debian's package linux-image-amd64 in apt's lists: run apt-get update"
        )
    return names[0]


def _copy_with_libraries(tool: str, root: Path) -> None:
    program = shutil.which(tool)
    assert program is not None
    shutil.copy2(program, root / "bin" / tool)
    for word in subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout.split():
        if word.startswith("/"):
            target = root / word.removeprefix("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(word, target)
