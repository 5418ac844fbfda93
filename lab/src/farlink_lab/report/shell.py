"""What every page has: one file with its style, its figures and the library that draws them."""

from __future__ import annotations

import base64
import contextlib
import errno
import gzip
import json
import os
from functools import cache
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


def page_text(*, title: str, body: str, figures: Mapping[str, Any], runs: Sequence[Any] = ()) -> str:
    """The whole page.

    Args:
        title: Of the page, plain text.
        body: HTML, with the places of the figures.
        figures: Plotly's JSON, by the places' names.
        runs: What the page's choice of single runs shows.
    """
    data = json.dumps({"figures": figures, "runs": runs}, separators=(",", ":"), allow_nan=False)
    return Template(_resource("page.html")).substitute(
        title=title,
        style=_resource("page.css"),
        body=body,
        plotly=_packed_plotly(),
        # Within a script element only "<" could end it early.
        data=data.replace("<", "\\u003c"),
        script=_resource("page.js"),
    )


def write_page(path: Path, text: str) -> None:
    """Replaces the file whole: who reads it meanwhile sees the old page or the new one.

    Raises:
        OSError: where it cannot be written.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        # Under the name that it was to have.
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        with contextlib.suppress(OSError):
            beside.unlink()


def unwritten(error: OSError, *, page: Path, out: Path | None) -> str:
    """What could not be written, why, and the mend: no room helps where nothing may be written."""
    elsewhere = "write it elsewhere with --out FILE" if out is None else "name another --out"
    barred = error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
    return f"{error.filename or page}: {error.strerror}: {'' if barred else 'make room, or '}{elsewhere}"


def _resource(name: str) -> str:
    return files("farlink_lab.report").joinpath(name).read_text(encoding="utf-8")


@cache
def _packed_plotly() -> str:
    """The drawing library: 4.8 MB of script as 2 MB of text, unpacked by the browser."""
    library = files("plotly").joinpath("package_data", "plotly.min.js").read_bytes()
    # No time stamp: the same records give the same page.
    return base64.b64encode(gzip.compress(library, compresslevel=9, mtime=0)).decode("ascii")
