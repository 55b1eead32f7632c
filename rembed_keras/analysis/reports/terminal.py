"""Tables in a terminal of any width: lines are broken between words, and a table that is too wide is a list."""

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from itertools import takewhile

WIDEST = 10_000  # columns of a terminal that has room for every table
GAP = 2  # columns of the terminal that a column takes besides its text: a space of padding, and one between columns


class Fitted:
    """A table as Rich prints it.

    Where all cells fit, each is a line; where their words fit, cells are broken between words; and where a word would
    be broken, each row becomes a few lines of its own, `column: cell`, under its first cell.

    Args:
        title: what it shows.
        columns: their names.
        rows: a cell for each column.
        words: how many columns, from the left, are aligned left; the others are aligned right.
    """

    def __init__(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], words: int):
        self.title, self.columns, self.rows, self.words = title, columns, rows, words

    def __rich_console__(self, console, options):
        widths = fitting_widths([self.columns, *self.rows], options.max_width)
        yield from self._stacked() if widths is None else [self._tabular(widths)]

    def _tabular(self, widths):
        from rich.box import SIMPLE_HEAD
        from rich.table import Table as RichTable
        from rich.text import Text

        shown = RichTable(title=Text(self.title), box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
        for index, (column, width) in enumerate(zip(self.columns, widths, strict=True)):
            shown.add_column(Text(column), justify="left" if index < self.words else "right", width=width)
        for row in self.rows:
            shown.add_row(*map(Text, row))
        return shown

    def _stacked(self):
        from rich.padding import Padding
        from rich.text import Text

        yield Text(self.title, style="italic")
        for first, *cells in self.rows:
            yield Text("")
            yield Text(first if self.words else f"{self.columns[0]}: {first}", style="bold")
            for column, cell in zip(self.columns[1:], cells, strict=True):
                if cell:
                    yield Padding(Text(f"{column}: {cell}"), (0, 0, 0, 2), expand=False)


class Whole:
    """A table of Rich's with its lines broken between words; or, where a number or a word would be cut, a list of its
    rows, as `Fitted` has it.

    Args:
        table: a `rich.table.Table` of texts, with lines around its columns.
    """

    def __init__(self, table):
        self.table = table

    def __rich_console__(self, console, options):
        from rich.measure import Measurement

        columns, room = self.table.columns, options.max_width
        if Measurement.get(console, options.update(max_width=WIDEST), self.table).maximum <= room:
            yield self.table
            return
        rows = [*zip(*([str(cell) for cell in column.cells] for column in columns), strict=True)]
        names = [str(column.header) for column in columns]
        is_fixed = any(column.no_wrap for column in columns)
        widths = None if is_fixed else fitting_widths([names, *rows], room - 1 - len(columns))  # beside the lines
        if widths is not None:  # Rich's own would take as much of each wide column, and cut words
            yield self._of_widths(widths)
            return
        words = len([*takewhile(lambda column: column.justify == "left", columns)])
        yield from Fitted(str(self.table.title), names, rows, words).__rich_console__(console, options)
        if self.table.caption:
            yield str(self.table.caption)

    def _of_widths(self, widths):
        shown = copy(self.table)
        shown.columns = [replace(each, width=width) for each, width in zip(self.table.columns, widths, strict=True)]
        return shown


def fitting_widths(rows: Sequence[Sequence[str]], room: int) -> list[int] | None:
    """Widths of columns that break no word; None if there are none.

    Args:
        rows: cells, the columns' names first.
        room: width of the terminal.

    >>> fitting_widths([["arm", "what it is"], ["a", "a few words"]], 40)
    [3, 11]
    >>> fitting_widths([["arm", "what it is"], ["a", "a few words"]], 14)
    [3, 7]
    >>> fitting_widths([["arm", "what it is"], ["a", "a few words"]], 9) is None
    True
    """
    from rich.cells import cell_len

    columns = [*zip(*rows, strict=True)]
    widest = [max(map(cell_len, column)) for column in columns]
    least = [max((cell_len(word) for cell in column for word in cell.split()), default=1) for column in columns]
    left = room - GAP * len(columns) - sum(least)
    if left < 0:
        return None
    widths = least
    for _ in range(left):  # a column of the terminal at a time, to where most is missing
        missing = [most - width for most, width in zip(widest, widths, strict=True)]
        if max(missing, default=0) <= 0:
            break
        widths[missing.index(max(missing))] += 1
    return widths
