"""What a copy takes: includes and excludes, by word and by file, and lists of names, as rsync has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from copying import REFUSED, SOME_FAILED, copy, listing
from emulation import farlink, run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# Includes and excludes in their order: what is left out is rsync's to say, too.
RULES: dict[str, Sequence[str]] = {
    "a name, anywhere": ("--exclude", "b"),
    "a glob": ("--exclude", "*.o"),
    "a glob does not cross a slash": ("--exclude", "a*leaf"),
    "two stars do": ("--exclude", "a/**/leaf.o"),
    "anchored at the root": ("--exclude", "/b"),
    "directories only": ("--exclude", "b/"),
    "the first that matches decides": ("--include", "keep.o", "--exclude", "*.o"),
    "in the other order": ("--exclude", "*.o", "--include", "keep.o"),
    "what is in an excluded directory is not looked at": ("--exclude", "a/", "--include", "a/keep.o"),
    "only some, and the directories to them": ("--include", "*/", "--include", "*.c", "--exclude", "*"),
    "a path": ("--exclude", "a/b"),
    "a directory and what is in it": ("--exclude", "b/***"),
    "a class": ("--exclude", "[kl]*"),
    "a question mark": ("--exclude", "?"),
    "everything": ("--exclude", "*"),
}


def ruled(source: Path) -> Path:
    """A tree of which rules take some."""
    for name in (
        "leaf.c",
        "keep.o",
        "b/leaf.o",
        "a/keep.o",
        "a/b/leaf.o",
        "a/b/c/leaf.o",
        "a/leaf.c",
        "a/x/b",
        "#.o",
        ";x",
    ):
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return source


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES.keys())
def test_rules_leave_out_what_rsync_leaves_out(tmp_path: Path, rules: Sequence[str]) -> None:
    source = ruled(tmp_path / "source")
    copy(f"{source}/", tmp_path / "ours", *rules)
    ended = run(["rsync", "-a", *rules, f"{source}/", str(tmp_path / "theirs")])
    assert ended.status == 0, ended
    assert listing(tmp_path / "ours") == listing(tmp_path / "theirs")


FILES_OF_RULES: dict[str, Sequence[tuple[str, str]]] = {
    "excludes": [("--exclude-from", "# objects\n*.o\n\n; and\nb/\n")],
    "includes": [("--include-from", "keep.o\n*/\n"), ("--exclude", "*")],
    "signs": [("--exclude-from", "+ keep.o\r\n- *.o\r\n")],
    "in their order": [
        ("--exclude", "a/b"),
        ("--include-from", "*.o\n"),
        ("--exclude-from", "leaf*\nkeep*\n"),
    ],
    "by NUL": [("--exclude-from", "#.o\0;x\0*.c\0"), ("--from0", "")],
}


@pytest.mark.parametrize("rules", FILES_OF_RULES.values(), ids=FILES_OF_RULES.keys())
def test_files_of_rules_are_read_as_rsync_reads_them(
    tmp_path: Path, rules: Sequence[tuple[str, str]]
) -> None:
    source, words = ruled(tmp_path / "source"), []
    for number, (option, said) in enumerate(rules):
        words.append(option)
        if option.endswith("-from"):
            words.append(str(tmp_path / f"rules-{number}"))
            (tmp_path / f"rules-{number}").write_text(said, newline="")
        elif said:
            words.append(said)
    copy(f"{source}/", tmp_path / "ours", *words)
    # rsync's own --from0 is heard where it stands.
    words = sorted(words, key=lambda word: word != "--from0")
    ended = run(["rsync", "-a", *words, f"{source}/", str(tmp_path / "theirs")])
    assert ended.status == 0, ended
    assert listing(tmp_path / "ours") == listing(tmp_path / "theirs")


def test_files_of_rules_that_are_none_are_refused(tmp_path: Path) -> None:
    source = ruled(tmp_path / "source")
    words = ["copy", str(source), str(tmp_path / "there")]
    (tmp_path / "rules").write_bytes(b"a\n!\n")
    (tmp_path / "odd").write_bytes(b"a\xff\n")
    for options, said in (
        (("--exclude-from", str(tmp_path / "none")), "read the patterns in"),
        (("--exclude-from", str(tmp_path / "rules")), "forgets"),
        (("--include-from", str(tmp_path / "odd")), "UTF-8"),
        (("--include-from", "-", "--files-from", "-"), "--include-from and --files-from"),
    ):
        ended = farlink(*words, *options, stdin="b\n")
        assert (ended.status, said in ended.complaint) == (REFUSED, True), ended
    assert not (tmp_path / "there").exists()
    words = ["copy", f"{source}/", str(tmp_path / "there"), "--exclude-from", "-"]
    assert farlink(*words, stdin="a\nb\n*.c\n").status == 0
    assert set(listing(tmp_path / "there")) == {b"keep.o", b"#.o", b";x"}


@pytest.mark.parametrize("by_nul", [False, True], ids=["lines", "by NUL"])
def test_listed_names_are_put_where_rsync_puts_them(tmp_path: Path, *, by_nul: bool) -> None:
    source, listed = tmp_path / "source", tmp_path / "listed"
    for name in ("a/b/one", "a/b/two", "a/c/three", "four", "odd name/five\nfive", "six"):
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    names = ["a/b", "./four", "/a/c/three", "odd name" if not by_nul else "odd name/five\nfive"]
    listed.write_text("".join(name + ("\0" if by_nul else "\n") for name in names))
    options = ["--files-from", str(listed), *(["--from0"] if by_nul else [])]
    copy(source, tmp_path / "ours", *options)
    ended = run(["rsync", "-a", "-r", *options, f"{source}/", str(tmp_path / "theirs")])
    assert ended.status == 0, ended
    assert listing(tmp_path / "ours") == listing(tmp_path / "theirs")


def test_a_listed_name_that_is_not_there_is_named_and_the_others_are_copied(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "here").write_text("here")
    words = ["copy", str(source), str(tmp_path / "there"), "--files-from", "-"]
    ended = farlink(*words, stdin="gone\nhere\n")
    assert ended.status == SOME_FAILED, ended
    assert "gone" in ended.complaint
    assert listing(tmp_path / "there") == {b"here": f"file {b'here'.hex()}"}
    assert '".."' in farlink(*words, stdin="../x\n").complaint


def test_what_is_listed_beneath_the_destination_stays_out_too(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for name in ("x", "dest/x", "dest/sub/y"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(name)
    (tmp_path / "list").write_text("x\ndest/x\ndest/sub\n")
    copied = copy(f"{tree}/", tree / "dest", "--files-from", tmp_path / "list")
    assert "dest: skipped, it is the destination" in copied.stderr
    assert (tree / "dest" / "x").read_text() == "x"
    assert not (tree / "dest" / "dest").exists()


def test_a_small_file_that_cannot_be_read_counts_among_those_that_are_done(tmp_path: Path) -> None:
    (tmp_path / "well").write_text("well")
    # It says that it has no content, and has some.
    copied = copy(tmp_path / "well", "/proc/version", f"{tmp_path}/there/", status=SOME_FAILED)
    assert copied.outcome("version") == "failed"
    assert copied.record["files"] == len(copied.names)
