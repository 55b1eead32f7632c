"""A run on one page, which needs no other file, no script and no network: `rembed report RUN --html FILE`."""

import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from rembed_keras.analysis.pages.document import document, key, note, section, table_html
from rembed_keras.analysis.pages.drawings import breakdown, curves, parts, scores
from rembed_keras.analysis.pages.intervals import intervals
from rembed_keras.analysis.pages.records import environment_table, is_in_nats, is_smoke, ledger_table, recipe_tables
from rembed_keras.analysis.reports.results import read_run
from rembed_keras.analysis.reports.tables import Table, number
from rembed_keras.data.json_files import read_json, read_whole_lines, understood
from rembed_keras.errors import UserError

TRAINING, HELD_OUT, ENTROPY = "training", "held out", "unigram entropy"  # curves
RECORDS = ("config.gin", "metrics.jsonl", "scores.json")  # of which a run has one at least
ABOUT_LOSS = "In nats a prediction, by step. The unigram entropy is the loss of a model without context."
ABOUT_SUM = "By step, as the objective logs it: no cross-entropy alone, and so not in nats a prediction."
LANGUAGE_LOSS = re.compile(r"(?:(?P<part>.*)/)?loss/(?P<language>[^/]+)")  # the first of an objective of several
ABOUT_SCORES = (
    "Points: means over seeds; lines: 95 % intervals, over examples and seeds where there are predictions, else over "
    "seeds. Grey marks: baselines, from left to right {names}."
)


def run_page(folder: str | Path) -> str:
    """The page of a run, finished or not, of what its folder has.

    Args:
        folder: the run's folder.

    Raises:
        UserError: for a folder that is no run, or a file in it that is malformed.
    """
    folder = Path(folder)
    if not any((folder / name).is_file() for name in RECORDS):
        raise UserError(f"{folder} is not the folder of a run: it has none of {', '.join(RECORDS)}")
    name, log, about = folder.resolve().name, folder / "metrics.jsonl", folder / "environment.json"
    state = "The run is finished." if (folder / "finished.json").exists() else "The run is not finished."
    state += " It is a smoke run: nothing here means anything." if is_smoke(folder) else ""
    body = [f"<h1>{escape(name)}</h1>", f"<p>{state}</p>", _parameters(folder / "ledger.json", name)]
    rows = read_whole_lines(log)
    with understood(log, "the log of a run"):
        losses, tuning = [_loss(rows), _masks(rows)], _tuning(rows)
    body += [*losses, _scores(folder), tuning]
    if about.is_file():
        with understood(about, "what a run ran on"):
            body.append(section("Environment", table_html(environment_table(read_json(about)))))
    with understood(folder / "config.gin", "a recipe"):
        body += [section(table.title, table_html(table)) for table in recipe_tables(_text(folder / "config.gin"))]
    return document(name, body)


def _text(path):
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _parameters(path, name):
    if not path.is_file():
        return ""
    with understood(path, "a ledger"):
        ledger = read_json(path)
        arm = {"name": name, "kept": ledger["kept"], "dropped": ledger["dropped"]}
        return section("Parameters", breakdown([arm]), parts(ledger), table_html(ledger_table(ledger)))


def _points(rows: Sequence[Mapping], run: str, name: str) -> list[tuple[int, float]]:
    """(step, value) of what a run's rows have of a number."""
    found = [(row["step"], row.get(name)) for row in rows if row.get("run") == run]
    return [(step, value) for step, value in found if isinstance(value, int | float) and math.isfinite(value)]


def _loss(rows):
    found = {
        TRAINING: _points(rows, "pretrain", "loss"),
        HELD_OUT: _points(rows, "evaluation", "loss"),
        ENTROPY: _points(rows, "pretrain", "unigram_entropy"),
    }
    drawn, about = _curves(found), ABOUT_SUM
    if all(is_in_nats(row) for row in rows if row.get("run") == "pretrain"):
        about = ABOUT_LOSS
    return section("Loss", drawn, note(about), _by_language(rows)) if drawn else ""


def _curves(found: Mapping[str, Sequence[tuple[int, float]]]) -> str:
    """Curves by name, with their colors; nothing where there is no point."""
    lines = [{"arm": name, "points": points} for name, points in found.items() if points]
    names = [name for name, points in found.items() if points]
    return key(names) + curves(lines, names) if lines else ""


def _by_language(rows):
    """The last loss of each language, in training and held out, and of each objective where there are several."""
    last = {row["run"]: row for row in rows if "run" in row}
    shown = {title: last[run] for title, run in ((TRAINING, "pretrain"), (HELD_OUT, "evaluation")) if run in last}
    columns: dict[str, dict[str, float]] = {}
    for title, row in shown.items():
        for name, value in row.items():
            if match := LANGUAGE_LOSS.fullmatch(name):
                column = f"{title}, {match['part']}" if match["part"] else title
                columns.setdefault(column, {})[match["language"]] = value
    names = sorted({language for column in columns.values() for language in column})
    found = [[name, *(number(column.get(name)) for column in columns.values())] for name in names]
    return table_html(Table("", ["language", *columns], found, words=1)) if found else ""


def _masks(rows):
    """Tables that evaluators wrote, the last of each."""
    tables = {name: (row["step"], value) for row in rows for name, value in row.items() if isinstance(value, dict)}
    return "".join(
        section(f"{table['title']}, step {step:,}", table_html(Table(**table))) for step, table in tables.values()
    )


def _scores(folder):
    if not (folder / "scores.json").is_file():
        return ""
    run, cards = read_run(folder), []
    for measure in run.values:
        for system in run.systems(measure):
            found = intervals(run, measure, system)
            baselines = sorted(found[0].baselines, key=found[0].baselines.__getitem__) if found else []
            shown = ABOUT_SCORES.format(names=", ".join(baselines)) if baselines else ABOUT_SCORES.partition(" Grey")[0]
            title = escape(f"{measure.task}, {measure.metric}, {system}, %")
            cards.append(f'<div class="card"><h3>{title}</h3>{scores(found)}{note(shown)}{_table(found)}</div>')
    return section("Scores", f'<div class="cards">{"".join(cards)}</div>' if cards else "")


def _table(found):
    names = list(dict.fromkeys(name for row in found for name in row.baselines))
    rows = [
        [row.language, _percent(row.mean),
         f"{_percent(row.low)} to {_percent(row.high)}" if math.isfinite(row.low) else "-",
         *(_percent(row.baselines.get(name, math.nan)) for name in names)]
        for row in found
    ]  # fmt: skip
    return table_html(Table("", ["language", "score", "95 % interval", *names], rows, words=1))


def _percent(value):
    return f"{100 * value:.1f}" if math.isfinite(value) else "-"


def _tuning(rows):
    """Losses of fine-tuned models."""
    runs = dict.fromkeys(row["run"] for row in rows if str(row.get("run")).startswith("finetune/"))
    return section("Fine-tuning", _curves({run.removeprefix("finetune/"): _points(rows, run, "loss") for run in runs}))
