"""A figure's file is the old one or the new one, never half of one."""

import errno
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from farlink_lab.logs.chart import Chart, Series
from farlink_lab.plot.chart import write_chart

CHART = Chart(
    identity="i",
    caption="c",
    x_title="x",
    y_title="y",
    series=(Series(name="s", kind="line", x=[1.0, 2.0], y=[1.0, 2.0]),),
)


@pytest.mark.parametrize("kind", ["svg", "pdf", "png", "SVG"])
def test_a_figure_that_cannot_be_written_leaves_the_one_before(tmp_path, monkeypatch, kind):
    path = tmp_path / f"figure.{kind}"
    write_chart(CHART, path)
    before = path.read_bytes()
    assert before
    write = Figure.savefig

    def cut(figure, target, **options):
        write(figure, target, **options)
        with Path(target).open("r+b") as file:
            file.truncate(100)
        raise OSError(errno.ENOSPC, "No space left on device", str(target))

    monkeypatch.setattr(Figure, "savefig", cut)
    with pytest.raises(OSError, match="No space left") as caught:
        write_chart(CHART, path)
    assert caught.value.filename == str(path)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_the_same_numbers_give_the_same_file(tmp_path):
    for kind in ("svg", "pdf"):
        for name in "ab":
            write_chart(CHART, tmp_path / f"{name}.{kind}")
        assert (tmp_path / f"a.{kind}").read_bytes() == (tmp_path / f"b.{kind}").read_bytes()
