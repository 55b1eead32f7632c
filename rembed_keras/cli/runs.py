"""Commands about a recipe: run it, inspect it, time it, compile it."""

import json
import tempfile
import textwrap
from pathlib import Path

import click

from rembed_keras.cli import studies
from rembed_keras.cli.options import ALLOW_IMPORT, FILLED, KNOBS, PLACE, RECIPE, WHOLE, check_file, write_file
from rembed_keras.errors import UserError, shortened

MEANINGLESS = "Nothing that it prints or writes means anything."
SAID = 12  # bindings that went with a replaced one, at most, where each is named


@click.command()
@RECIPE
@KNOBS
@click.option(
    "--until", type=FILLED, metavar="STAGE", help="Stop after this stage, such as pretrain; a later run goes on."
)
@click.option("--stages", type=FILLED, metavar="NAMES", help="Run these stages alone, such as prepare,pretrain.")
@click.option("--smoke", is_flag=True, help="See in about a minute whether it runs: all stages, at sizes of no use.")
@ALLOW_IMPORT
def run(
    recipe: str,
    bindings: tuple[str, ...],
    until: str | None,
    stages: str | None,
    smoke: bool,
    allow_import: tuple[str, ...],
) -> None:
    """Run a RECIPE; if it was interrupted, the same command resumes.

    On SIGTERM, training finishes its step, saves a checkpoint and exits with 75: start the same command again. Ctrl-C
    saves too and exits with 1. Exit code 2 is a user's mistake, reported in one line.
    """
    from rembed_keras import config

    if until and stages:
        raise UserError("give --until or --stages, not both")
    loaded = _load(recipe, bindings, allow_import)
    chosen = config.stages_until(loaded, until) if until else config.stages_named(loaded, stages) if stages else None
    if smoke:
        _run_smoke(loaded, chosen)
        return
    config.run(loaded, chosen)


def _run_smoke(loaded, chosen):
    """Runs a recipe that is made small, in a folder of its own."""
    from rembed_keras import config

    knobs = "; ".join(f"{each.key} = {shortened(each.value)}" for each in config.smoke(loaded))
    click.echo(f"Smoke run: {MEANINGLESS} In it")
    click.echo(textwrap.fill(knobs, 78, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False))
    config.run(loaded, chosen, is_smoke=True)
    click.echo(f"Smoke run: it went through. {MEANINGLESS}")


@click.command()
@RECIPE
@KNOBS
@click.option("--devices", type=WHOLE, metavar="N", help="Also show what each of N devices holds, by strategy.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@ALLOW_IMPORT
def inspect(
    recipe: str, bindings: tuple[str, ...], devices: int | None, as_json: bool, allow_import: tuple[str, ...]
) -> None:
    """Show a RECIPE's ledger, knobs and bindings; builds no model.

    The ledger counts parameters, FLOPs and memory, kept and dropped after pre-training. Of a study it shows the arms
    side by side, how many runs are left, and what differences its seeds can detect.
    """
    from rembed_keras import config

    if config.is_study(recipe, allow_import):
        if devices is not None:
            raise UserError(f"--devices counts one model, and {recipe} is a study: inspect the recipe of an arm")
        studies.show(recipe, bindings, as_json, allow_import)
        return
    loaded = _load(recipe, bindings, allow_import)
    config.check_folders(loaded)
    ledger = config.ledger_of(loaded)
    if devices is not None and ledger is None:
        raise UserError(f"--devices counts the model that a recipe pre-trains, and {recipe} pre-trains none")
    held = config.held_of(loaded, ledger, devices) if ledger and devices is not None else {}
    if as_json:
        shown = {
            "ledger": ledger.to_json() if ledger else None,
            "knobs": loaded.knobs(),
            "configuration": loaded.configuration(),
        }
        if held:
            shown["devices"] = {"count": devices, "held": {name: each.to_json() for name, each in held.items()}}
        click.echo(json.dumps(shown, indent=1))
        return
    _show(loaded, ledger, held, devices)


def _show(loaded, ledger, held, devices):
    """Prints what a recipe says, what its model costs, and what devices hold of it."""
    from rich.console import Console

    from rembed_keras.analysis.cost.shards import held_table, uneven_tables
    from rembed_keras.analysis.reports.tables import Table
    from rembed_keras.analysis.reports.terminal import Whole

    console = Console()
    rows = [[name, repr(knob.value), knob.comment] for name, knob in sorted(loaded.macros.items())]  # as one types them
    console.print(Table("Knobs: rembed run RECIPE KNOB=VALUE", ["knob", "value", "what"], rows, words=3).rich())
    if ledger:
        console.print(Whole(ledger.table()))
    if held:
        console.print(held_table(held, devices).rich())
        for line in uneven_tables(ledger, devices):
            click.echo(line)
        if ledger.teachers:
            click.echo(f"without what teaches, whose weights have {ledger.teacher_bytes:,} bytes in all")
    click.echo(loaded.text())


@click.command()
@RECIPE
@KNOBS
@click.option("--steps", type=WHOLE, default=20, show_default=True, help="How many steps to time.")
@click.option("--out", type=PLACE, metavar="FILE", help="Also write the results as JSON.")
@ALLOW_IMPORT
def benchmark(recipe, bindings, steps, out, allow_import) -> None:
    """Time a RECIPE's pre-training steps on this machine."""
    from rembed_keras import config

    check_file(out)
    loaded = _load(recipe, bindings, allow_import)
    with tempfile.TemporaryDirectory() as folder:
        config.benchmark(loaded, folder, steps)
        results = Path(folder) / "benchmark.json"
        if out and results.exists():  # of several processes the first one alone writes
            write_file(out, results.read_text(encoding="utf-8"))


@click.command("compile")
@RECIPE
@KNOBS
@click.option(
    "--topology",
    required=True,
    type=FILLED,
    metavar="CHIP:SIDES",
    help="TPU chips to compile for, for example v5e:4x4.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@ALLOW_IMPORT
def compile_step(recipe, bindings, topology, as_json, allow_import) -> None:
    """Compile a RECIPE's pre-training step for TPUs that are not here.

    Shows what it takes of each chip's memory, what chips exchange, and how fast it can be at most. No text is read and
    no model is made, so it may be of any size. Exit code 2 says that the step does not fit, and what would.
    """
    from rembed_keras import config

    outcome = config.compile_for(_load(recipe, bindings, allow_import), topology)
    if as_json:
        by_ledger = {"ledger_tokens_per_second": outcome.predicted, "ledger_bytes": outcome.forecast}
        shown = outcome.compiled.to_json() | by_ledger
        click.echo(json.dumps(shown, indent=1))
    else:
        from rich.console import Console

        Console().print(outcome.compiled.table(outcome.predicted, outcome.forecast))
    for note in outcome.notes:
        click.echo(f"note: {note}", err=True)
    if not outcome.compiled.fits:
        would = f"the nearest that should: {outcome.nearest}" if outcome.nearest else "nothing near does"
        raise UserError(f"the step does not fit {topology}; {would}")


def _load(recipe, bindings, allow_import):
    """Reads a recipe, and says what of it went with what a later file or the command line replaced."""
    from rembed_keras import config

    loaded = config.load(recipe, bindings, allow_import)
    for replacement in {by.bound: by for _, by in loaded.dropped}.values():
        names = _without_most([binding.key for binding, by in loaded.dropped if by is replacement])
        click.echo(f"{replacement.key} is {replacement.value!r} ({replacement.place}); without use: {names}", err=True)
    for caution in config.cautions(loaded):
        click.echo(f"warning: {caution}", err=True)
    return loaded


def _without_most(keys):
    """Keys of bindings, of many the knobs alone, which is what a user asks about."""
    knobs = [key for key in keys if key.isupper()]
    if len(keys) <= SAID or len(knobs) == len(keys):
        return ", ".join(keys)
    return ", ".join([*knobs, f"{len(keys) - len(knobs)} bindings of the recipe"])
