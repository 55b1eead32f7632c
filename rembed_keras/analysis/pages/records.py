"""What a run keeps about itself as tables: its recipe, its ledger, what it ran on."""

import ast
import contextlib
import io
import tokenize
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from rembed_keras.analysis.cost.precision import stored_in
from rembed_keras.analysis.event_files.trials import Setting
from rembed_keras.analysis.reports.tables import Table

SMOKE = "SMOKE.txt"  # in the folder of a smoke run


def is_smoke(folder: str | Path) -> bool:
    """Whether a run's folder is that of a smoke run."""
    return (Path(folder) / SMOKE).is_file()


class Line(NamedTuple):
    """A binding of a resolved recipe: its name, its value as it is written, and the comment beside it."""

    name: str
    value: str
    about: str

    @property
    def is_knob(self) -> bool:
        """Whether it is a knob, in capitals."""
        return self.name.isupper()


def lines_of(recipe: str) -> list[Line]:
    r"""The bindings of a resolved recipe, `config.gin`, which has one a line.

    >>> lines_of("STEPS = 3  # batches\ntraining.pretrain.steps = %STEPS\n")[0]
    Line(name='STEPS', value='3', about='batches')
    """
    found = []
    for line in recipe.split("\n"):  # a comment may have what else ends lines of Unicode text
        name, is_bound, rest = line.partition(" = ")
        if is_bound and not name.startswith(("#", "from ", "import ")):
            value, about = apart(rest)
            found.append(Line(name.strip(), value, about))
    return found


def apart(text):
    """A value and the comment after it, which a # within a text does not begin.

    >>> apart("'a  # b'  # names")
    ("'a  # b'", 'names')
    """
    with contextlib.suppress(tokenize.TokenError, SyntaxError):
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                return text[: token.start[1]].strip(), token.string.lstrip("# ")
    return text.strip(), ""


def settings_of(recipe: str) -> dict[str, Setting]:
    r"""The knobs of a recipe by name: numbers and texts as they are, other values as they are written.

    >>> settings_of("RATES = (1e-3,)\nSTEPS = 3  # batches\nNAME = 'a # b'\nINITIAL = None\n")
    {'RATES': '(1e-3,)', 'STEPS': 3, 'NAME': 'a # b', 'INITIAL': 'None'}
    """
    settings: dict[str, Setting] = {}
    for line in lines_of(recipe):
        if line.is_knob:
            value: object = None
            with contextlib.suppress(ValueError, SyntaxError):
                value = ast.literal_eval(line.value)
            settings[line.name] = value if isinstance(value, bool | int | float | str) else line.value
    return settings


def recipe_tables(recipe: str) -> list[Table]:
    """The knobs of a recipe, and all else that it binds; without those that it has none of."""
    lines = lines_of(recipe)
    knobs = [[line.name, line.value, line.about] for line in lines if line.is_knob]
    others = [[line.name, line.value] for line in lines if not line.is_knob]
    tables = [Table("Knobs", ["knob", "value", "about"], knobs, words=3)]
    tables.append(Table("Bindings", ["binding", "value"], others, words=2))
    return [table for table in tables if table.rows]


def is_in_nats(row: Mapping) -> bool:
    """Whether a row's loss is a cross-entropy alone: then the log has what a model without context loses.

    >>> is_in_nats({"loss": 6.4, "unigram_entropy": 7.1}), is_in_nats({"loss": 28.3, "generator_loss": 6.5})
    (True, False)
    """
    return "unigram_entropy" in row and not row.keys() & {"term_losses", "layer_losses"}


def ledger_table(ledger: Mapping) -> Table:
    """The ledger of a run, as `ledger.json` has it: a row for each part, then sums."""
    rows = []
    for name, part in ledger["parts"].items():
        cells = [f"{part['parameters']:,}", ""] if part["kept"] else ["", f"{part['parameters']:,}"]
        rows.append([name, *cells, f"{part['parameters'] / ledger['total']:.1%}"])
    rows.append(["parameters", *(f"{ledger[key]:,}" for key in ("kept", "dropped", "total"))])
    sums = {
        "forward FLOPs per token": "flops_per_token",
        "training FLOPs per token": "training_flops_per_token",
        f"bytes in {stored_in(ledger.get('dtype', 'float32'))}": "bytes",
        "bytes of the optimizer's slots": "optimizer_bytes",
    }
    for title, key in sums.items():
        if key in ledger:
            rows.append([title, *(f"{ledger[key][column]:,}" for column in ("kept", "dropped", "total"))])
    return Table("What is kept and what is dropped", ["", "kept", "dropped", "of all"], rows, words=1)


def environment_table(environment: Mapping) -> Table:
    """What a run ran on, as `environment.json` has it."""
    own = {name: value for name, value in environment.items() if name != "versions"}
    rows = [[name, str(value)] for name, value in (own | environment.get("versions", {})).items()]
    return Table("Environment", ["", "version or value"], rows, words=2)
