"""Rust source with all but its code blanked out, so that words in comments and strings do not count."""

from __future__ import annotations

import re

# In the order in which they must be tried. A character literal is told from a lifetime by its closing quote.
_NOT_CODE = re.compile(
    r"""
      //[^\n]*
    | /\*.*?\*/
    | \bb?r(?P<hashes>\#*)".*?"(?P=hashes)
    | b?"(?:\\.|[^"\\])*"
    | b?'(?:\\(?:x[0-9a-fA-F]{2}|u\{[0-9a-fA-F_]+\}|.)|[^'\\\n])'
    """,
    re.VERBOSE | re.DOTALL,
)

# Tests stand at the foot of a file.
_TESTS = re.compile(r"^#\[cfg\(test\)\]\s*\nmod \w+ \{", re.MULTILINE)


def code_of(text: str, *, tests_too: bool) -> str:
    """`text` with comments, strings and character literals blanked; its lines keep their numbers.

    Without `tests_too` it ends where the file's unit tests begin.
    """
    code = _NOT_CODE.sub(_blank, text)
    if not tests_too and (tests := _TESTS.search(code)):
        code = code[: tests.start()]
    return code


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match.group())
