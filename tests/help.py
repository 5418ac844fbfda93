"""What `farlink VERB --help` says."""

from __future__ import annotations

import functools
import re

from emulation import farlink

# What every command has, and no page need repeat.
EVERYWHERE = frozenset({"--help", "--version"})


@functools.cache
def help_of(*verb: str) -> str:
    """The help of a verb."""
    ended = farlink(*verb, "--help")
    assert ended.status == 0, ended
    return ended.stdout


@functools.cache
def flags_of(*verb: str) -> frozenset[str]:
    """The flags that a verb defines: at the start of a line of its help, after a short form or a frame."""
    found = re.findall(r"^[\s│|*]*(?:-\w,?\s+)?(--[a-z][a-z0-9-]*)", help_of(*verb), re.MULTILINE)
    return frozenset(found) - EVERYWHERE


def verbs_of(text: str) -> set[str]:
    """The verbs that a help lists."""
    section = re.search(r"^Commands:\n(.*?)(?:\n\n|\Z)", text, re.MULTILINE | re.DOTALL)
    assert section, text
    return set(re.findall(r"^  ([a-z-]+)\b", section[1], re.MULTILINE)) - {"help"}
