"""A figure's file is the old one or the new one, never half of one."""

import errno
import json
from pathlib import Path

import pytest
from matplotlib.figure import Figure

import synthetic
from farlink_lab.findings import find
from farlink_lab.logs.chart import Chart, Series
from farlink_lab.plot.chart import write_chart
from farlink_lab.plot.palette import looks
from farlink_lab.plot.paper import write_paper_figures
from farlink_lab.records import parse_lines

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


@pytest.mark.parametrize("label", [r"a $\foo$ b", "$x^2$", "a $ b"])
def test_a_label_in_a_figure_for_papers_is_text_whatever_is_in_it(tmp_path, label):
    made = [synthetic.record(lab={"run": "r", "configuration": label})]
    findings = find(parse_lines(json.dumps(each).encode() for each in made))
    svg, pdf = tmp_path / "f.svg", tmp_path / "f.pdf"
    write_paper_figures(findings, looks(findings.labels), svg=svg, pdf=pdf)
    # The text is drawn as paths, and stands in a comment beside them.
    assert f"<!-- {label}, 2 GB -->" in svg.read_text()
