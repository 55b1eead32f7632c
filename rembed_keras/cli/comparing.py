"""The command that compares two runs, or two recipes, or a run and a recipe: what differs, and what came of it."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import click

from rembed_keras.cli.options import ALLOW_IMPORT, PLACE
from rembed_keras.errors import UserError

ROOM = (40, 17, 17)  # of the cells of a row that fits into 80 columns whatever the others are


@click.command()
@click.argument("one", type=PLACE, metavar="A")
@click.argument("other", type=PLACE, metavar="B")
@ALLOW_IMPORT
def diff(one: str, other: str, allow_import: tuple[str, ...]) -> None:
    """Show how two runs or recipes differ.

    A and B are folders of runs or gin files. Shown are the bindings that differ, knobs resolved and defaults filled in;
    the lines of the ledger that differ; and of runs their final losses and scores. Where a run is kept is not compared.
    """
    from rich.console import Console

    from rembed_keras import config
    from rembed_keras.analysis.pages.records import is_smoke
    from rembed_keras.analysis.reports.tables import Table

    sides = [_Side(path, allow_import) for path in (one, other)]
    console = Console()

    def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], same: str):
        words = len(columns)
        console.print(Table(title, [*columns, "A", "B"], rows, words).rich() if rows else same)

    for letter, side in zip("AB", sides, strict=True):
        click.echo(f"{letter} is the {'run' if side.is_run else 'recipe'} {side.path}")
        if is_smoke(side.path):
            click.echo(f"{letter} is a smoke run: nothing in it means anything")
    bound = [[each.name, each.one, each.other] for each in config.differences(*(side.recipe for side in sides))]
    long = [row for row in bound if any(len(cell) > room for cell, room in zip(row, ROOM, strict=True))]
    short = [row for row in bound if row not in long]
    show("Bindings that differ", ["binding"], short, "" if long else "They bind the same.")
    for name, *values in long:  # by themselves, or the others would be no table
        click.echo("\n".join([name, *(_indented(*each) for each in zip("AB", values, strict=True))]))
    ledgers = [side.parameters for side in sides]
    same = "Their ledgers agree." if any(ledgers) else "Neither has a ledger."
    show("Parameters that differ", ["part"], _unequal(*ledgers), same)
    if all(side.is_run for side in sides):
        results = [side.results for side in sides]
        rows = [
            [*name, *(each.get(name, "-") for each in results)] for name in dict.fromkeys([*results[0], *results[1]])
        ]
        if rows and results[0] == results[1]:
            click.echo("Their scores are the same:")
        show("Final losses, and scores in %", ["task", "metric", "language", "system"], rows, "Neither has scores yet.")


def _indented(letter: str, value: str) -> str:
    start, wrap = f"  {letter}: ", partial(textwrap.fill, break_long_words=False, break_on_hyphens=False)
    return wrap(value, 79, initial_indent=start, subsequent_indent=" " * len(start))


def _unequal(one: Mapping[str, int], other: Mapping[str, int]) -> list[list[str]]:
    """The rows of what two mappings have differently, in the order of both."""
    names = [*one]
    for before, name in zip([None, *other], other, strict=False):
        if name not in one:
            names.insert(0 if before is None else names.index(before) + 1, name)
    pairs = {name: (one.get(name), other.get(name)) for name in names}
    return [
        [name, *("-" if value is None else f"{value:,}" for value in pair)]
        for name, pair in pairs.items()
        if pair[0] != pair[1]
    ]


@dataclass(frozen=True)
class _Side:
    """A run or a recipe.

    Raises:
        UserError: where it is neither.
    """

    path: str
    allow_import: Sequence[str]

    @property
    def is_run(self) -> bool:
        return Path(self.path).is_dir()

    @cached_property
    def recipe(self):
        from rembed_keras import config

        file = Path(self.path) / "config.gin" if self.is_run else Path(self.path)
        if self.is_run and not file.is_file():
            raise UserError(f"{self.path} is not the folder of a run: it has no config.gin")
        return config.load(str(file), (), self.allow_import)

    @property
    def parameters(self) -> dict[str, int]:
        """By line of the ledger, and in all."""
        from rembed_keras import config
        from rembed_keras.data.json_files import read_json, understood

        written = Path(self.path) / "ledger.json"
        if self.is_run and written.is_file():
            found = read_json(written)
        else:
            counted = config.ledger_of(self.recipe)
            found = counted.to_json() if counted else {}
        with understood(written, "a ledger"):
            parts = {name: int(part["parameters"]) for name, part in found.get("parts", {}).items()}
            return parts | {name: int(found[name]) for name in ("kept", "dropped", "total") if name in found}

    @property
    def results(self) -> dict[tuple[str, ...], str]:
        """The last losses, and scores as means over seeds and languages, by task, metric, language and system."""
        return self._losses() | self._scores()

    def _losses(self):
        from rembed_keras.data.json_files import read_whole_lines, understood

        log = Path(self.path) / "metrics.jsonl"
        rows = read_whole_lines(log)
        with understood(log, "the log of a run"):
            last: dict[str, Any] = {row["run"]: row for row in rows if isinstance(row.get("loss"), float)}
            return {
                (run, "loss", "all", f"step {last[run]['step']:,}"): f"{last[run]['loss']:.3f}"
                for run in ("pretrain", "evaluation")
                if run in last
            }

    def _scores(self):
        from rembed_keras.analysis.reports.comparison import MEAN, groups, score_rows
        from rembed_keras.analysis.reports.results import read_run

        if not (Path(self.path) / "scores.json").is_file():
            return {}
        run = read_run(self.path)
        rows = [
            row
            for measure, sizes in run.sizes.items()
            for language, names in groups(sizes, each=False).items()
            for row in score_rows(run, measure, names, language)
        ]
        where = {row: f"mean of {row.languages}" if row.language == MEAN else row.language for row in rows}
        means = {row: "failed" if math.isnan(row.mean) else f"{100 * row.mean:.1f}" for row in rows}
        return {(row.task, row.metric, where[row], row.system): mean for row, mean in means.items()}
