"""The command line: `rembed run`, `inspect`, `budget`, `benchmark`, `prepare`, `solve`, `convert`, `trim`, `extend`,
`predict`, `report`.

Exit code 0 is success, 2 a user's mistake, reported in one line on stderr, and 1 anything else. A command that SIGTERM
stopped ends with 75, the EX_TEMPFAIL of sysexits.h: start it again and it resumes. Heavy imports are in the commands
that need them.
"""

import json
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

import click

from rembed_keras import __version__
from rembed_keras.cli import corpora
from rembed_keras.cli.exits import reported_in_one_line
from rembed_keras.cli.options import ALLOW_IMPORT, SOURCE_FORMATS, TARGET_FORMATS, WHOLE
from rembed_keras.errors import UserError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="rembed")
def rembed() -> None:
    """Pre-train and fine-tune multilingual encoders, and know what every part of them costs."""


rembed.add_command(corpora.prepare)
rembed.add_command(corpora.budget)


@rembed.command()
@click.argument("recipe")
@click.argument("bindings", nargs=-1, metavar="[KNOB=VALUE]...")
@ALLOW_IMPORT
def run(recipe: str, bindings: tuple[str, ...], allow_import: tuple[str, ...]) -> None:
    """Run a RECIPE; if it was interrupted, the same command resumes.

    On SIGTERM, training finishes its step, saves a checkpoint and exits with 75: start the same command again. Ctrl-C
    saves too and exits with 1. Exit code 2 is a user's mistake, reported in one line.
    """
    from rembed_keras import config

    config.run(config.load(recipe, bindings, allow_import))


@rembed.command()
@click.argument("recipe")
@click.argument("bindings", nargs=-1, metavar="[KNOB=VALUE]...")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@ALLOW_IMPORT
def inspect(recipe: str, bindings: tuple[str, ...], as_json: bool, allow_import: tuple[str, ...]) -> None:
    """Show a RECIPE's ledger, knobs and bindings; builds no model.

    The ledger counts parameters, FLOPs and memory, kept and dropped after pre-training.
    """
    from rembed_keras import config

    loaded = config.load(recipe, bindings, allow_import)
    account = config.ledger_of(loaded)
    if as_json:
        shown = {
            "ledger": account.to_json() if account else None,
            "knobs": loaded.knobs(),
            "configuration": loaded.configuration(),
        }
        click.echo(json.dumps(shown, indent=1))
        return
    from rich.console import Console
    from rich.table import Table

    console = Console()
    knobs = Table(title="Knobs: rembed run RECIPE KNOB=VALUE")
    for column in ("knob", "value", ""):
        knobs.add_column(column)
    for name, knob in loaded.knobs().items():
        knobs.add_row(name, json.dumps(knob["value"]), knob["about"])
    console.print(knobs)
    if account:
        console.print(account.table())
    click.echo(loaded.text())


@rembed.command()
@click.argument("recipe")
@click.argument("bindings", nargs=-1, metavar="[KNOB=VALUE]...")
@click.option("--steps", type=WHOLE, default=20, show_default=True, help="How many steps to time.")
@click.option("--out", metavar="FILE", help="Also write the results as JSON.")
@ALLOW_IMPORT
def benchmark(recipe, bindings, steps, out, allow_import) -> None:
    """Time a RECIPE's pre-training steps on this machine."""
    from rembed_keras import config

    loaded = config.load(recipe, bindings, allow_import)
    with tempfile.TemporaryDirectory() as folder:
        config.benchmark(loaded, folder, steps)
        if out:
            shutil.copyfile(Path(folder) / "benchmark.json", out)


class Amount(click.ParamType):
    """A whole number that may end in k, M or B."""

    name = "number"

    def convert(self, value, param, ctx):
        """The number."""
        if isinstance(value, int):
            return value
        factor = {"K": 1e3, "M": 1e6, "B": 1e9}.get(value[-1:].upper())
        try:
            number = round(float(value[:-1]) * factor) if factor else int(value.replace(",", "").replace("_", ""))
        except (ValueError, OverflowError):
            number = 0
        if not 1 <= number <= 10**15:
            self.fail(f"{value!r} is not a number such as 250000 or 278M", param, ctx)
        return number


class Span(click.ParamType):
    """Two numbers, LEAST..MOST."""

    name = "least..most"

    def convert(self, value, param, ctx):
        """The two."""
        if isinstance(value, tuple):
            return value
        least, dots, most = value.partition("..")
        try:
            span = float(least), float(most)
        except ValueError:
            span = (0.0, 0.0)
        if not dots or not 0 < span[0] <= span[1]:
            self.fail(f"{value!r} is not a range such as 25..60", param, ctx)
        return span


@rembed.command()
@click.option("--kept", type=Amount(), required=True, help="Maximum parameters of the encoder, for example 278M.")
@click.option("--vocabulary", type=Amount(), required=True, help="Vocabulary size, V.")
@click.option("--total", type=Amount(), help="Maximum parameters in pre-training; 1.73 times --kept by default.")
@click.option("--e-in", metavar="WIDTHS", help="Input embedding widths to choose from, for example 128,256.")
@click.option("--aspect", type=Span(), default=(25.0, 60.0), metavar="LEAST..MOST", help="Range of width over depth.")
@click.option("--max-latency", type=float, metavar="MS", help="Maximum milliseconds for one text on this machine.")
@click.option("--sequence-length", type=WHOLE, default=512, show_default=True, help="Tokens of the longest text.")
@click.option(
    "--block", type=click.Choice(["PostNorm", "PreNorm"]), default="PostNorm", show_default=True, help="Block."
)
@click.option("--show", type=WHOLE, default=8, show_default=True, help="How many proposals to show.")
@click.option("--out", metavar="FILE", help="Write the best one as a gin recipe.")
def solve(kept, vocabulary, total, e_in, aspect, max_latency, sequence_length, block, show, out) -> None:
    """Propose allocations of a parameter budget.

    Depth, width and input embedding (E_in) fit in the kept parameters; the output embedding (E_out), which is dropped
    after pre-training, in the total.
    """
    from rembed_keras.analysis.cost import solver
    from rembed_keras.modeling import blocks

    try:
        widths = [int(width) for width in e_in.split(",")] if e_in else solver.INPUT_WIDTHS
    except ValueError:
        raise UserError(f"--e-in is {e_in!r}; it must be widths such as 128,256") from None
    rate = solver.matmul_rate() if max_latency is not None else None
    found = solver.solve(
        kept, vocabulary, total, widths, aspect, max_latency, rate, sequence_length, getattr(blocks, block)
    )
    from rich.console import Console

    Console().print(solver.table(found[:show]))
    if out:
        if Path(out).exists():
            raise UserError(f"{out} already exists: remove it or choose another file")
        command = "rembed " + shlex.join(sys.argv[1:])
        Path(out).write_text(solver.recipe_text(found[0], command), encoding="utf-8")
        click.echo(f"{out}: the first proposal; see rembed inspect {out}")


@rembed.command()
@click.argument("source")
@click.argument("target")
@click.option("--from", "source_kind", required=True, type=SOURCE_FORMATS, help="Format of SOURCE.")
@click.option("--to", "target_kind", required=True, type=TARGET_FORMATS, help="Format of TARGET, a new folder.")
@click.option("--tokenizer", metavar="MODEL", help="A SentencePiece model to store with it; the source's by default.")
@click.option("--task", metavar="NAME", help="With --from run: the model that was fine-tuned for a task.")
def convert(source, target, source_kind, target_kind, tokenizer, task) -> None:
    """Convert the model SOURCE to another format."""
    from rembed_keras.config.backend import import_framework

    import_framework()
    from rembed_keras import interop, training

    if task is not None:
        if (source_kind, target_kind) != ("run", "savedmodel"):
            raise UserError("--task needs --from run and --to savedmodel")
        training.Answerer(source, task).export(target)
        notes = ["load it after `import tensorflow_text`"]
    elif source_kind == "run":
        model, own_tokenizer = training.model_of_run(source)
        notes = interop.write(model, target, target_kind, Path(tokenizer) if tokenizer else own_tokenizer)
    else:
        notes = interop.convert(source, target, source_kind, target_kind, tokenizer)
    for note in notes:
        click.echo(f"note: {note}")
    click.echo(f"{target}: {target_kind}")


@rembed.command()
@click.argument("source")
@click.argument("target")
@click.option("--text", "text_dir", required=True, metavar="TEXT_DIR", help="Text whose pieces to keep.")
@click.option("--languages", metavar="CODES", help="Languages of the text to keep, for example de,en; all by default.")
@click.option("--min-count", type=WHOLE, default=1, show_default=True, help="How often a piece must occur to be kept.")
def trim(source: str, target: str, text_dir: str, languages: str | None, min_count: int) -> None:
    """Trim the vocabulary of a preset to what a text uses.

    SOURCE is a keras-hub preset with its tokenizer, TARGET the new preset.
    """
    from rembed_keras.config.backend import import_framework

    import_framework()
    from rembed_keras import interop

    done = interop.trim(source, target, text_dir, languages.split(",") if languages else None, min_count)
    for language, share in done.lost.items():
        click.echo(f"{language}: the pieces of {share:.2%} of its tokens are removed")
    (pieces, left), (before, after) = done.pieces, done.kept_bytes
    click.echo(f"{target}: kept {left:,} of {pieces:,} pieces, {after / 1e6:,.1f} of {before / 1e6:,.1f} MB")


@rembed.command()
@click.argument("source")
@click.argument("target")
@click.option("--pieces", required=True, metavar="FILE", help="Pieces to add, one per line, UTF-8, U+2581 for a space.")
def extend(source: str, target: str, pieces: str) -> None:
    """Add pieces to the vocabulary of a preset.

    SOURCE is a keras-hub preset with its tokenizer, TARGET the new preset.
    """
    from rembed_keras.config.backend import import_framework

    import_framework()
    from rembed_keras import interop
    from rembed_keras.data.text import read_lines

    added = interop.extend(source, target, list(read_lines(Path(pieces))))
    click.echo(f"{target}: {added:,} pieces added")


@rembed.command()
@click.argument("run_folder", metavar="RUN")
@click.argument("file")
@click.option("--task", metavar="NAME", help="Which task of the run; its only one by default.")
@click.option("--text", metavar="NAME", help="The column of the text; the recipe's by default.")
@click.option("--pair", metavar="NAME", help="The column of the second text; the recipe's by default.")
@click.option("--out", metavar="FILE", help="Write the predictions there instead of printing them.")
def predict(run_folder: str, file: str, task: str | None, text: str | None, pair: str | None, out: str | None) -> None:
    """Predict a FILE of examples with a model that RUN fine-tuned."""
    from rembed_keras.config.backend import import_framework

    import_framework()
    from rembed_keras import training

    answerer = training.Answerer(run_folder, task)
    lines = training.lines_of(answerer.answers(answerer.read(file, text, pair)))
    if out is None:
        sys.stdout.writelines(lines)
        return
    training.write_lines(Path(out), lines)
    click.echo(f"{out}: predictions for {file}")


@rembed.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option("--against", multiple=True, metavar="RUN", help="A run to compare each of them with; may be repeated.")
@click.option("--out", metavar="FOLDER", help="Also write Markdown, LaTeX, CSV and a plot.")
@click.option("--unequal", is_flag=True, help="Compare runs with unequal numbers of kept parameters too.")
@click.option("--languages", is_flag=True, help="Also show a row for each language.")
def report(runs: tuple[str, ...], against: tuple[str, ...], out: str | None, unequal: bool, languages: bool) -> None:
    """Show scores of RUNs and whether they differ significantly."""
    from rembed_keras.analysis.reports import report as reports

    made = reports.report(runs, against, unequal, languages)
    made.show()
    if out:
        made.write(out)
        click.echo(f"{out}: report.md, report.tex, report.png and tables as CSV")


def main() -> None:
    """Runs the command line, and reports a user's mistake in one line with exit code 2."""
    with reported_in_one_line():
        rembed.main(prog_name="rembed", standalone_mode=False)
