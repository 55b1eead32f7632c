"""What is in a table is what Markdown and LaTeX show of it."""

import re
from html.parser import HTMLParser

import pytest

from rembed_keras.analysis.reports.report import Report
from rembed_keras.analysis.reports.tables import Table

NAMES = [
    *("a|b", "a\\|b", "a\\", "_x_", "__init__", "x_1", "*a*", "`a`", "[a](b)", "![a](b)", "[1, 2]", "~a~", "~/runs"),
    *("<b>", "</td>", "<!-- a", "<0.001", "&amp;", "a & b;", "&#35;", "#1", "$a$", "100%", "{a}", "a^b", '"a"', "-7.4"),
]


class Cells(HTMLParser):
    """Collects the texts of a table's cells."""

    def __init__(self):
        super().__init__()
        self.cells, self.is_open = [], False

    def handle_starttag(self, tag, attrs):
        assert tag in ("p", "strong", "table", "thead", "tbody", "tr", "th", "td")
        self.is_open = tag in ("th", "td")
        self.cells += [""] * self.is_open

    def handle_endtag(self, tag):
        self.is_open = False

    def handle_data(self, data):
        if self.is_open:
            self.cells[-1] += data


def test_a_table_in_markdown_shows_its_cells_as_they_are():
    library = pytest.importorskip("markdown_it")
    parsed = Cells()
    reader = library.MarkdownIt("commonmark").enable(["table", "strikethrough"])
    parsed.feed(reader.render(Table("*a* _b_", NAMES, [NAMES, NAMES[::-1]], words=2).markdown()))
    assert parsed.cells == [*NAMES, *NAMES, *NAMES[::-1]]


def test_a_table_in_latex_shows_its_cells_as_they_are():
    latex = Table("a|b", ["[a]", "n"], [["*", "a\\|b"], ["[2]", "_x_\nb"]], words=1).latex()
    lines = [line.strip() for line in latex.splitlines()]
    assert lines[2] == r"\caption{a\textbar{}b}" and r"{[}a{]} & n \\" in lines
    rows = lines[lines.index(r"\midrule") + 1 : lines.index(r"\bottomrule")]
    assert rows == [r"{*} & a\textbackslash{}\textbar{}b \\", r"{[}2{]} & \_x\_ b \\"]
    assert not re.search(r"(?<!\{)[\[*]", latex)  # which would be an argument of the end of the row before


def test_notes_of_a_report_are_shown_as_they_are(tmp_path, monkeypatch):
    monkeypatch.setattr("rembed_keras.analysis.reports.report.draw_scores", lambda *_: None)
    (tmp_path / "differences.csv").touch()  # of a report that was here before
    Report([], [], [], ["runs/<b>_* keeps 1 parameter"]).write(tmp_path)
    assert not (tmp_path / "differences.csv").exists()
    assert (tmp_path / "report.md").read_text().endswith("\n\nruns/&lt;b>\\_\\* keeps 1 parameter\n")
