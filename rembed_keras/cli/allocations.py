"""The command that proposes how to allocate a parameter budget, of a new encoder or of one that is there."""

import math
import shlex
import sys
from pathlib import Path

import click

from rembed_keras.cli.options import (
    FILLED,
    OWN_CLASSES,
    PLACE,
    POSITIVE,
    WHOLE,
    check_file,
    import_own_classes,
    is_given,
    write_file,
)
from rembed_keras.errors import UserError
from rembed_keras.modeling import blocks

OF_NEW_ENCODERS = ("vocabulary", "total", "aspect", "max_latency", "sequence_length", "block", "out")


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
        if not dots or not 0 < span[0] <= span[1] < math.inf:
            self.fail(f"{value!r} is not a range such as 25..60", param, ctx)
        return span


@click.command()
@click.option("--kept", type=Amount(), required=True, help="Maximum parameters of the encoder, for example 278M.")
@click.option("--vocabulary", type=Amount(), help="Vocabulary size, V; needed without --from.")
@click.option(
    "--from", "source", type=PLACE, metavar="SOURCE", help="Propose what to make of this trained encoder instead."
)
@click.option("--total", type=Amount(), help="Maximum parameters in pre-training; 1.73 times --kept by default.")
@click.option(
    "--e-in", type=FILLED, metavar="WIDTHS", help="Input embedding widths to choose from, for example 128,256."
)
@click.option("--aspect", type=Span(), default=(25.0, 60.0), metavar="LEAST..MOST", help="Range of width over depth.")
@click.option("--max-latency", type=POSITIVE, metavar="MS", help="Maximum milliseconds for one text on this machine.")
@click.option("--sequence-length", type=WHOLE, default=512, show_default=True, help="Tokens of the longest text.")
@click.option("--block", type=click.Choice(blocks.__all__), default="PostNorm", show_default=True, help="Block.")
@click.option("--show", type=WHOLE, default=8, show_default=True, help="How many proposals to show.")
@click.option("--out", type=PLACE, metavar="FILE", help="Write the best one as a gin recipe.")
@OWN_CLASSES
def solve(
    kept, vocabulary, source, total, e_in, aspect, max_latency, sequence_length, block, show, out, allow_import
) -> None:
    """Propose allocations of a parameter budget.

    Depth, width and input embedding (E_in) fit in the kept parameters; the output embedding (E_out), which is dropped
    after pre-training, in the total. With --from the options of `rembed reallocate` are proposed; SOURCE is a run, a
    keras-hub preset or a Hugging Face folder.
    """
    check_file(out, is_new=True)
    from rembed_keras.analysis.cost import solver

    try:
        widths = solver.INPUT_WIDTHS if e_in is None else [*dict.fromkeys(map(int, e_in.split(",")))]
    except ValueError:
        raise UserError(f"--e-in is {e_in!r}; it must be widths such as 128,256") from None
    if source is not None:
        _propose(source, kept, None if e_in is None else widths, show, allow_import)
        return
    if allow_import:
        raise UserError("--allow-import is of the encoder that --from names: give both")
    if vocabulary is None:
        raise UserError("--vocabulary is missing: give the number of pieces, or --from an encoder")
    rate = solver.matmul_rate() if max_latency is not None else None
    found = solver.solve(
        kept, vocabulary, total, widths, aspect, max_latency, rate, sequence_length, getattr(blocks, block)
    )
    _print(solver.table(found[:show]))
    if out is not None:
        command = "rembed " + shlex.join(sys.argv[1:])
        write_file(out, solver.recipe_text(found[0], command))
        click.echo(f"{out}: the first proposal; see rembed inspect {shlex.quote(out)}")


def _print(table):
    from rich.console import Console

    from rembed_keras.analysis.reports.terminal import Whole

    Console().print(Whole(table))


def _propose(source, kept, widths, show, allow_import):
    """Prints what to make of an encoder that is there."""
    for name in OF_NEW_ENCODERS:
        if is_given(name):
            raise UserError(f"--{name.replace('_', '-')} is of new encoders: leave it out with --from")
    from rembed_keras.config.backend import import_framework

    import_framework()
    from rembed_keras.analysis.cost.reallocations import reallocations, table
    from rembed_keras.training.initial.places import arguments_at, find

    import_own_classes(allow_import, source)
    place = find(Path(source), is_verified=False)
    config, _ = arguments_at(place)
    _check_reallocated(source, place)
    found = reallocations(config, kept, widths)
    _print(table(found[:show], config))
    options = found[0].options(config)
    if not options:
        click.echo(f"{source} fits as it is")
        return
    is_narrowed = found[0].input_embedding_dim != config["input_embedding_dim"]
    text = " --text TEXT_DIR" if is_narrowed else ""
    trust = "".join(f" --allow-import {package}" for package in allow_import)
    click.echo(f"rembed reallocate {shlex.quote(source)} TARGET {options}{trust}{text}")


def _check_reallocated(source, place):
    """Checks that `rembed reallocate` reads what a folder holds, which may be a model inside of a run."""
    if place.run is None or (Path(source) / "checkpoints").is_dir():
        return
    run = shlex.quote(str(place.run))
    if place.task is None:
        raise UserError(f"{source} is inside of a run, and reallocate takes the newest checkpoint: name {run}")
    task = shlex.quote(place.task.relative_to(place.run / "finetuned").as_posix())
    raise UserError(
        f"{source} is a fine-tuned model, which reallocate takes of a preset: rembed convert {run} PRESET --from run "
        f"--to preset --task {task}"
    )
