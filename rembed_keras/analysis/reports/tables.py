"""One table in several formats: terminal, Markdown, LaTeX; and rows as CSV."""

import csv
import io
import math
import re
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

LATEX = str.maketrans(
    {character: "\\" + character for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$"}
    | {"<": "$<$", ">": "$>$", "|": r"\textbar{}", "\n": " "}
    | {character: f"{{{character}}}" for character in "[]*"}  # after a row's end they would be its arguments
)
# what Markdown takes for a mark: within a text, or beside what makes it a tag, an entity, a link or an emphasis
MARKS = re.compile(r"[\\`*|~\n]|<(?=[A-Za-z/!?])|&(?=#?\w+;)|\](?=\()|(?<![^\W_])_|_(?![^\W_])")
UNMARKED = {"<": "&lt;", "&": "&amp;", "~": "&#126;", "\n": " "}  # others have a backslash before them
SIGN = re.compile(r"(?<![\w-])[-+](?=\d)")  # of a number


@dataclass(frozen=True)
class Table:
    """A table of text.

    Attributes:
        title: what it shows.
        columns: their names.
        rows: a cell for each column.
        words: how many columns, from the left, are aligned left; the others are aligned right.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int

    def folded(self, names: Collection[str]) -> "Table":
        """The table without those of the named columns that are constant; the title has their values instead.

        >>> Table("Scores", ["run", "metric"], [["a", "F1"], ["b", "F1"]], words=2).folded(["run", "metric"])
        Table(title='Scores; metric F1', columns=['run'], rows=[['a'], ['b']], words=1)
        """
        cells = [{row[index] for row in self.rows} for index in range(len(self.columns))]
        folds = [name in names and len(found) == 1 for name, found in zip(self.columns, cells, strict=True)]
        said = [f"{self.columns[index]} {cells[index].pop()}" for index, fold in enumerate(folds) if fold]
        columns, *rows = (
            [cell for cell, fold in zip(row, folds, strict=True) if not fold] for row in (self.columns, *self.rows)
        )
        return Table("; ".join([self.title, *said]), columns, rows, self.words - len(said))

    def rich(self):
        """The table for a terminal, which breaks lines between words alone: see `Fitted`."""
        from rembed_keras.analysis.reports.terminal import Fitted

        return Fitted(self.title, self.columns, self.rows, self.words)

    def markdown(self) -> str:
        r"""The table in Markdown.

        >>> print(Table("Scores", ["run", "score"], [["a|b", "57.4 ±2.0"]], words=1).markdown())
        **Scores**
        <BLANKLINE>
        | run | score |
        |---|--:|
        | a\|b | 57.4 ±2.0 |
        """
        rule = "|".join("---" if index < self.words else "--:" for index in range(len(self.columns)))
        lines = ["| " + " | ".join(map(in_markdown, row)) + " |" for row in (self.columns, *self.rows)]
        return "\n".join([f"**{in_markdown(self.title)}**", "", lines[0], f"|{rule}|", *lines[1:]])

    def latex(self) -> str:
        r"""The table in LaTeX with the rules of the package booktabs.

        >>> print(Table("Scores", ["run", "score"], [["x_1", "-7.4%"]], words=1).latex())
        \begin{table}
          \centering
          \caption{Scores}
          \begin{tabular}{lr}
            \toprule
            run & score \\
            \midrule
            x\_1 & $-$7.4\% \\
            \bottomrule
          \end{tabular}
        \end{table}
        """
        header, *rows = ("    " + " & ".join(map(in_latex, row)) + r" \\" for row in (self.columns, *self.rows))
        return "\n".join(
            [
                r"\begin{table}",
                r"  \centering",
                rf"  \caption{{{in_latex(self.title)}}}",
                rf"  \begin{{tabular}}{{{'l' * self.words}{'r' * (len(self.columns) - self.words)}}}",
                r"    \toprule",
                header,
                r"    \midrule",
                *rows,
                r"    \bottomrule",
                r"  \end{tabular}",
                r"\end{table}",
            ]
        )


def in_markdown(text: str) -> str:
    r"""A text that Markdown shows as it is, in a cell of a table and elsewhere in a line.

    >>> in_markdown("a|b"), in_markdown("_x_"), in_markdown("x_1"), in_markdown("<0.1"), in_markdown("<b>")
    ('a\\|b', '\\_x\\_', 'x_1', '<0.1', '&lt;b>')
    """
    return MARKS.sub(lambda mark: UNMARKED.get(mark[0], f"\\{mark[0]}"), text)


def in_latex(text: str) -> str:
    r"""A text that LaTeX shows as it is, in a cell of a table and elsewhere; a sign of a number is one of mathematics.

    >>> in_latex("a|b"), in_latex("[-7.4%]")
    ('a\\textbar{}b', '{[}$-$7.4\\%{]}')
    """
    return SIGN.sub(lambda sign: f"${sign[0]}$", text.translate(LATEX))


def number(value: float | None) -> str:
    """A number of a table.

    >>> number(0.012345), number(None)
    ('0.01235', '-')
    """
    return "-" if value is None else f"{value:.4g}"


def csv_text(rows: Sequence[Any], kind: type) -> str:
    """Rows as comma-separated values under a header; None and NaN are empty.

    Args:
        rows: dataclass instances of one kind.
        kind: their class, whose fields are the columns.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in fields(kind)], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: "" if _is_missing(value) else value for key, value in asdict(row).items()})
    return text.getvalue()


def _is_missing(value):
    return value is None or (isinstance(value, float) and math.isnan(value))
