"""The layout's rules hold in this tree, and the check fails in trees where one is broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from layering import problems
from rust_source import code_of

ROOT = Path(__file__).parents[1]


def test_every_rule_holds_in_this_tree() -> None:
    assert not problems(ROOT), "\n".join(problems(ROOT))


def tree(root: Path, files: dict[str, str]) -> Path:
    """A workspace with the crates that most cases need, and `files` over it."""
    sound = {
        "Cargo.toml": '[workspace.dependencies]\nrand = { version = "1", default-features = false }\n',
        "crates/wire/Cargo.toml": "[dependencies]\nserde.workspace = true\n",
        "crates/wire/src/lib.rs": "//! Bytes.\n#![forbid(unsafe_code)]\n",
        "crates/link/Cargo.toml": "[dependencies]\nfarlink-wire.workspace = true\n",
        "crates/link/src/lib.rs": "#![forbid(unsafe_code)]\n",
        "crates/host/Cargo.toml": "[dependencies]\nfarlink-wire.workspace = true\nnix.workspace = true\n",
        "crates/host/src/lib.rs": "pub fn now() { unsafe { clock() } }\n",
        "crates/cli/Cargo.toml": "[dependencies]\nfarlink-host.workspace = true\n",
        "crates/cli/src/main.rs": '#![forbid(unsafe_code)]\nfn main() { println!("x"); }\n',
        "lab/pyproject.toml": '[build-system]\nrequires = ["hatchling"]\n',
        "lab/src/farlink_lab/model.py": "import numpy\n",
        "lab/src/farlink_lab/run.py": "import subprocess\n",
    }
    for name, text in (sound | files).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_sound_tree_has_no_problems(tmp_path: Path) -> None:
    assert problems(tree(tmp_path, {})) == []


# Joined, so that this file does not break the rule that it tests.
MARK = "".join(("TO", "DO"))
FORBID = "#![forbid(unsafe_code)]\n"
BROKEN = {
    "a dependency that points up": (
        {"crates/link/Cargo.toml": "[dependencies]\nfarlink-host.workspace = true\n"},
        "link must not use host",
    ),
    "a renamed dependency that points up": (
        {"crates/wire/Cargo.toml": '[dependencies]\nx = { package = "farlink-link", path = "../link" }\n'},
        "wire must not use link",
    ),
    "a dependency of one target that points up": (
        {"crates/host/Cargo.toml": "[target.'cfg(unix)'.dependencies]\nfarlink-mover.workspace = true\n"},
        "host must not use mover",
    ),
    "the link under the tests of a crate other than flow": (
        {"crates/host/Cargo.toml": "[dev-dependencies]\nfarlink-link.workspace = true\n"},
        "host must not use link (dev-dependencies)",
    ),
    "a crate that the layout does not know": (
        {"crates/extra/Cargo.toml": "[package]\n", "crates/extra/src/lib.rs": FORBID},
        "crates/extra: not in the layout",
    ),
    "a pure crate with a package that does I/O": (
        {"crates/wire/Cargo.toml": "[dependencies]\nnix.workspace = true\n"},
        "nix is not known to be free of I/O",
    ),
    "a pure crate with unseeded randomness": (
        {
            "Cargo.toml": '[workspace.dependencies]\nrand = { version = "1", features = ["thread_rng"] }\n',
            "crates/link/Cargo.toml": "[dependencies]\nrand.workspace = true\n",
        },
        "thread_rng draws randomness",
    ),
    "a pure crate that reads a clock": (
        {"crates/link/src/lib.rs": FORBID + "fn f() { std::time::Instant::now(); }\n"},
        "crates/link/src/lib.rs:2: link does I/O, reads a clock or starts a thread: Instant",
    ),
    "a pure crate that opens files by a grouped import": (
        {"crates/wire/src/view.rs": "use std::{\n    fmt,\n    fs,\n};\n"},
        "crates/wire/src/view.rs:1: wire does I/O",
    ),
    "a pure crate that starts a thread": (
        {"crates/flow/Cargo.toml": "", "crates/flow/src/lib.rs": FORBID + "use std::thread;\n"},
        "flow does I/O, reads a clock or starts a thread: std::thread",
    ),
    "unsafe outside host and fabric": (
        {"crates/link/src/queue.rs": "fn f() { unsafe { g() } }\n"},
        "crates/link/src/queue.rs:1: link writes unsafe",
    ),
    "unsafe in the tests of a crate that forbids it": (
        {"crates/link/src/queue.rs": "#[cfg(test)]\nmod tests {\n    fn f() { unsafe { g() } }\n}\n"},
        "link writes unsafe",
    ),
    "a crate that does not forbid unsafe": (
        {"crates/wire/src/lib.rs": "//! Bytes.\n"},
        "must say #![forbid(unsafe_code)]",
    ),
    "a program that does not forbid unsafe": (
        {"crates/cli/src/main.rs": "fn main() {}\n"},
        "crates/cli/src/main.rs: must say",
    ),
    "libfabric outside fabric": (
        {"crates/host/src/lib.rs": "fn f(ep: *mut fid_ep) {}\n"},
        "host names libfabric: fid_ep",
    ),
    "a library that prints": (
        {"crates/host/src/lib.rs": 'fn f() { eprintln!("no"); }\n'},
        "crates/host/src/lib.rs:1: host prints: eprintln!",
    ),
    "a library that writes to standard output": (
        {"crates/link/src/lib.rs": FORBID + "fn f() { std::io::stdout().flush(); }\n"},
        "link prints: io::stdout",
    ),
    "Python within a crate": (
        {"crates/cli/Cargo.toml": '[dependencies]\npyo3 = "1"\n'},
        "pyo3 is a way round the records",
    ),
    "Rust within the lab": (
        {"lab/pyproject.toml": '[build-system]\nrequires = ["maturin>=1"]\n'},
        "maturin>=1 is a way round the records",
    ),
    "an analysis that starts programs": (
        {"lab/src/farlink_lab/model.py": "def f():\n    from subprocess import run\n"},
        "lab/src/farlink_lab/model.py:2: imports subprocess",
    ),
    "a long file": ({"crates/link/src/queue.rs": "// line\n" * 601}, "601 lines, more than 600"),
    "a name that says nothing": ({"crates/link/src/utils.rs": ""}, "utils.rs says nothing"),
    "a directory whose name says nothing": ({"lab/src/farlink_lab/common/x.py": ""}, "common says nothing"),
    "an unfinished mark": ({"crates/link/src/queue.rs": f"// {MARK}: later\n"}, "finish it or leave it out"),
    "an unfinished macro": (
        {"crates/link/src/queue.rs": f"fn f() {{ {MARK.lower()}!() }}\n"},
        "finish it or leave it out",
    ),
}


@pytest.mark.parametrize(("files", "said"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_rule_is_named(tmp_path: Path, files: dict[str, str], said: str) -> None:
    found = problems(tree(tmp_path, files))
    assert any(said in line for line in found), found


FINE = {
    "words in comments and strings": {
        "crates/link/src/queue.rs": '/// Not Instant::now.\nconst S: &str = "unsafe std::fs println!";\n'
    },
    "words in raw strings": {"crates/link/src/queue.rs": 'const S: &str = r#"unsafe "println!" "#;\n'},
    "a lifetime is not a character": {"crates/link/src/queue.rs": "fn f<'a>(x: &'a str) -> char { 'x' }\n"},
    "addresses from core": {"crates/wire/src/view.rs": "use core::net::Ipv4Addr;\n"},
    "durations": {"crates/wire/src/view.rs": "use std::time::Duration;\n"},
    "unit tests may read files": {
        "crates/link/src/queue.rs": "#[cfg(test)]\nmod tests {\n    use std::fs;\n}\n",
        "crates/wire/src/view/tests.rs": "use std::fs;\n",
    },
    "flow's tests over the link": {
        "crates/flow/Cargo.toml": "[dev-dependencies]\nfarlink-link.workspace = true\n",
        "crates/flow/src/lib.rs": FORBID,
    },
    "what was built": {"target/debug/build/x/out/utils.rs": "// line\n" * 700},
}


@pytest.mark.parametrize("files", FINE.values(), ids=FINE.keys())
def test_what_is_no_problem_is_not_named(tmp_path: Path, files: dict[str, str]) -> None:
    assert problems(tree(tmp_path, files)) == []


def test_code_keeps_its_line_numbers() -> None:
    text = 'a /* one\ntwo */ b\n// c\n"d\ne" f\n\'"\' g "x"\n'
    assert code_of(text, tests_too=True).split("\n") == [
        "a       ",
        "       b",
        "    ",
        "  ",
        "   f",
        "    g    ",
        "",
    ]
