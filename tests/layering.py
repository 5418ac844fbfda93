"""The rules of the layout as functions of a source tree: each yields a line for each place that breaks it."""

from __future__ import annotations

import ast
import re
import tomllib
from typing import TYPE_CHECKING

from rust_source import code_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# What a crate may depend on, outside its tests. Dependencies point down.
MAY_USE: dict[str, frozenset[str]] = {
    "wire": frozenset(),
    "link": frozenset({"wire"}),
    "flow": frozenset({"wire"}),
    "host": frozenset({"wire"}),
    "emulator": frozenset({"wire", "link", "host"}),
    "doctor": frozenset({"wire", "host"}),
    "mover": frozenset({"wire", "flow", "host"}),
    "cast": frozenset({"wire", "flow", "host", "mover"}),
    "fabric": frozenset({"wire", "flow", "host"}),
    "mount": frozenset({"wire", "flow", "host", "mover"}),
    "cli": frozenset({"wire", "link", "flow", "host", "emulator", "doctor", "mover", "cast", "mount"}),
}
# In tests only, protocols run over the emulated link.
MAY_USE_IN_TESTS: dict[str, frozenset[str]] = {"flow": frozenset({"link"})}

PURE = ("wire", "link", "flow")
# What a pure crate may take from others: none of these does I/O, reads a clock or starts a thread.
# (aws-lc-rs draws randomness from the system where it is asked to: `flow` seals with keys that it is given.)
PURE_PACKAGES = frozenset(
    {
        *("rand", "rand_pcg", "serde", "serde_json", "thiserror", "blake3", "base64"),
        *("aws-lc-rs", "ring", "reed-solomon-simd", "rustc-hash"),
    }
)
# Features of those that would draw randomness from the system: a choice without a seed.
IMPURE_FEATURES = frozenset({"os_rng", "sys_rng", "thread_rng", "rand"})
MAY_BE_UNSAFE = ("host", "fabric")
# `fabric` is a program's outermost layer, too: it says one line on stderr where a call fails.
MAY_PRINT = ("cli", "fabric")
MAY_NAME_LIBFABRIC = ("fabric",)

# The one way to the lab is the record file: nothing that would put Python and Rust in one process.
BRIDGES = frozenset({"pyo3", "cpython", "maturin", "setuptools-rust", "cffi", "milksnake"})
# The lab's modules that start programs; every other module sees records and arrays only.
STARTS_PROGRAMS = frozenset({"subprocess", "socket", "ctypes", "multiprocessing", "asyncio"})
LAB_RUNNERS = frozenset({"run", "movers"})

MOST_LINES = 600
REFUSED_NAMES = frozenset({"utils", "util", "common", "misc", "helpers", "helper"})
SOURCES = frozenset({".rs", ".py", ".sh", ".c", ".h"})
NOT_OURS = frozenset({"target", ".git", ".venv", "__pycache__"})
# Spelt so that this file does not break its own rule.
UNFINISHED = re.compile(r"\b(?:TO[D]O|FIX[M]E|XX[X]|HA[C]K)\b|\b(?:unimplemented|todo)[!]")

CLOCK_OR_IO = re.compile(
    r"\bInstant\b|\bSystemTime\b|\bstd::(?:fs|net|thread|process|env|os)\b"
    r"|\bstd::io::(?:stdin|stdout|stderr|Stdin|Stdout|Stderr)\b"
    r"|\bstd::\{[^;]*\b(?:fs|net|thread|process|env|os)\b[^;]*;"
)
PRINTS = re.compile(r"\b(?:e?print(?:ln)?|dbg)!|\bio::(?:stdout|stderr)\b|\b(?:stdout|stderr)\(\)")
LIBFABRIC = re.compile(r"\blibfabric\b|\bfi_[a-z]\w*|\bFI_[A-Z]\w*|\bfid_[a-z]\w*")


def problems(root: Path) -> list[str]:
    """Everything in the tree under `root` that breaks a rule, one line each."""
    checks = (dependencies, purity, unsafety, libfabric, printing, bridges, sizes, names, marks)
    return [line for check in checks for line in check(root)]


def dependencies(root: Path) -> Iterator[str]:
    """Dependencies between crates that do not point down."""
    for name, manifest in _manifests(root):
        if name not in MAY_USE:
            yield f"crates/{name}: not in the layout: say in tests/layering.py what it may use"
            continue
        for table, dependency, _ in _dependencies(manifest):
            if not dependency.startswith("farlink-"):
                continue
            used = dependency.removeprefix("farlink-")
            allowed = MAY_USE[name]
            if table == "dev-dependencies":
                allowed = allowed | MAY_USE_IN_TESTS.get(name, frozenset())
            if used not in allowed:
                yield f"crates/{name}/Cargo.toml: {name} must not use {used} ({table})"


def purity(root: Path) -> Iterator[str]:
    """Invariant 1: `wire`, `link` and `flow` do no I/O, read no clock, start no thread."""
    workspace = _workspace_features(root)
    for name, manifest in _manifests(root):
        if name not in PURE:
            continue
        for table, dependency, features in _dependencies(manifest):
            if table != "dependencies" or dependency.startswith("farlink-"):
                continue
            if dependency not in PURE_PACKAGES:
                yield (
                    f"crates/{name}/Cargo.toml: {dependency} is not known to be free of I/O and clocks: "
                    "add it to PURE_PACKAGES in tests/layering.py, with care"
                )
            for feature in sorted((features | workspace.get(dependency, frozenset())) & IMPURE_FEATURES):
                yield f"crates/{name}/Cargo.toml: {dependency}'s {feature} draws randomness that has no seed"
        yield from _found(root, name, CLOCK_OR_IO, "does I/O, reads a clock or starts a thread")


def unsafety(root: Path) -> Iterator[str]:
    """Invariant 2: `unsafe` is written in `host` and `fabric` only; the others forbid it."""
    for name, _ in _manifests(root):
        if name in MAY_BE_UNSAFE:
            continue
        for path in _crate_roots(root, name):
            if "#![forbid(unsafe_code)]" not in path.read_text():
                yield f"{path.relative_to(root)}: must say #![forbid(unsafe_code)]"
        yield from _found(root, name, re.compile(r"\bunsafe\b"), "writes unsafe", tests_too=True)


def libfabric(root: Path) -> Iterator[str]:
    """Invariant 3, first half: only `fabric` names libfabric types."""
    for name, _ in _manifests(root):
        if name not in MAY_NAME_LIBFABRIC:
            yield from _found(root, name, LIBFABRIC, "names libfabric", tests_too=True)


def printing(root: Path) -> Iterator[str]:
    """Invariant 3, second half: only `cli` prints, and `fabric` complains."""
    for name, _ in _manifests(root):
        if name not in MAY_PRINT:
            yield from _found(root, name, PRINTS, "prints")


def bridges(root: Path) -> Iterator[str]:
    """Invariant 4: records are the only thing that passes from the movers to the analysis."""
    for name, manifest in _manifests(root):
        for table, dependency, _ in _dependencies(manifest):
            if dependency in BRIDGES:
                yield f"crates/{name}/Cargo.toml: {dependency} is a way round the records ({table})"
    lab = root / "lab" / "pyproject.toml"
    if lab.exists():
        project = tomllib.loads(lab.read_text())
        wanted = [
            *project.get("build-system", {}).get("requires", []),
            *project.get("project", {}).get("dependencies", []),
        ]
        for requirement in wanted:
            package = re.match(r"[\w.-]*", requirement)
            if package and package.group().lower().replace("_", "-") in BRIDGES:
                yield f"lab/pyproject.toml: {requirement} is a way round the records"
    for path in _walk(root / "lab"):
        if path.suffix == ".py" and "tests" not in path.relative_to(root).parts:
            yield from _lab_imports(root, path)


def _lab_imports(root: Path, path: Path) -> Iterator[str]:
    inside = path.relative_to(root / "lab")
    if LAB_RUNNERS & {part.removesuffix(".py") for part in inside.parts}:
        return
    for node in ast.walk(ast.parse(path.read_text(), filename=str(path))):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            modules = [node.module or ""]
        else:
            continue
        for module in modules:
            if module.partition(".")[0] in STARTS_PROGRAMS:
                yield (
                    f"lab/{inside}:{node.lineno}: imports {module}: only {', '.join(sorted(LAB_RUNNERS))} "
                    "reach outside, the analysis reads records"
                )


def sizes(root: Path) -> Iterator[str]:
    """Files longer than anyone reads in one sitting."""
    for path in _sources(root):
        lines = path.read_text().count("\n")
        if lines > MOST_LINES:
            yield f"{path.relative_to(root)}: {lines} lines, more than {MOST_LINES}: split it"


def names(root: Path) -> Iterator[str]:
    """Files and directories whose name says nothing."""
    for path in _sources(root):
        for part in path.relative_to(root).parts:
            if part.partition(".")[0] in REFUSED_NAMES:
                yield f"{path.relative_to(root)}: {part} says nothing: name it after what it holds"


def marks(root: Path) -> Iterator[str]:
    """Marks of unfinished work."""
    for path in _sources(root):
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            if found := UNFINISHED.search(line):
                yield f"{path.relative_to(root)}:{number}: {found.group()}: finish it or leave it out"


def _found(
    root: Path, crate: str, pattern: re.Pattern[str], what: str, *, tests_too: bool = False
) -> Iterator[str]:
    for path in _walk(root / "crates" / crate / "src"):
        if path.suffix != ".rs" or (path.name == "tests.rs" and not tests_too):
            continue
        code = code_of(path.read_text(), tests_too=tests_too)
        for match in pattern.finditer(code):
            line = code.count("\n", 0, match.start()) + 1
            yield f"{path.relative_to(root)}:{line}: {crate} {what}: {match.group().splitlines()[0]}"


def _manifests(root: Path) -> Iterator[tuple[str, dict[str, object]]]:
    for path in sorted((root / "crates").glob("*/Cargo.toml")):
        yield path.parent.name, tomllib.loads(path.read_text())


def _workspace_features(root: Path) -> dict[str, frozenset[str]]:
    path = root / "Cargo.toml"
    if not path.exists():
        return {}
    tables = tomllib.loads(path.read_text()).get("workspace", {}).get("dependencies", {})
    return {name: _features(wanted) for name, wanted in tables.items()}


def _dependencies(manifest: dict[str, object]) -> Iterator[tuple[str, str, frozenset[str]]]:
    """`(table, package, features)` of every dependency, those of single targets too."""
    targets = manifest.get("target", {})
    assert isinstance(targets, dict)
    for where in (manifest, *targets.values()):
        for table in ("dependencies", "dev-dependencies", "build-dependencies"):
            for name, wanted in where.get(table, {}).items():
                package = wanted.get("package", name) if isinstance(wanted, dict) else name
                yield table, package, _features(wanted)


def _features(wanted: object) -> frozenset[str]:
    return frozenset(wanted.get("features", ())) if isinstance(wanted, dict) else frozenset()


def _crate_roots(root: Path, crate: str) -> Iterator[Path]:
    src = root / "crates" / crate / "src"
    for path in (src / "lib.rs", src / "main.rs", *sorted((src / "bin").glob("*.rs"))):
        if path.exists():
            yield path


def _sources(root: Path) -> Iterator[Path]:
    for path in _walk(root):
        if path.suffix in SOURCES:
            yield path


def _walk(directory: Path) -> Iterator[Path]:
    if not directory.is_dir():
        return
    for path in sorted(directory.iterdir()):
        if path.name in NOT_OURS or path.is_symlink():
            continue
        if path.is_dir():
            yield from _walk(path)
        else:
            yield path
