"""Commands about finished runs: their predictions and their scores."""

import sys

import click

from rembed_keras.cli.options import (
    FILLED,
    OWN_CLASSES,
    PLACE,
    check_file,
    check_folder,
    import_own_classes,
    write_file,
)
from rembed_keras.errors import UserError


@click.command()
@click.argument("run_folder", type=PLACE, metavar="RUN")
@click.argument("file", type=PLACE)
@click.option("--task", type=FILLED, metavar="NAME", help="Which task of the run; its only one by default.")
@click.option("--text", type=FILLED, metavar="NAME", help="The column of the text; the recipe's by default.")
@click.option("--pair", type=FILLED, metavar="NAME", help="The column of the second text; the recipe's by default.")
@click.option("--probabilities", is_flag=True, help="Also the probability of every label.")
@click.option("--out", type=PLACE, metavar="FILE", help="Write the predictions there instead of printing them.")
@OWN_CLASSES
def predict(
    run_folder: str,
    file: str,
    task: str | None,
    text: str | None,
    pair: str | None,
    probabilities: bool,
    out: str | None,
    allow_import: tuple[str, ...],
) -> None:
    """Predict a FILE of examples with a model that RUN fine-tuned."""
    check_file(out, is_new=True)
    from rembed_keras.config.backend import import_framework

    import_framework()
    from rembed_keras import training

    import_own_classes(allow_import, run_folder)
    answerer = training.Answerer(run_folder, task)
    answered = (answerer.probabilities if probabilities else answerer.answers)(answerer.read(file, text, pair))
    lines = training.lines_of(answered)
    if out is None:
        sys.stdout.writelines(lines)
        return
    check_file(out, is_new=True)  # another command may have made it meanwhile
    write_file(out, "".join(lines))
    click.echo(f"{out}: predictions for {file}")


@click.command()
@click.argument("runs", type=PLACE, nargs=-1, required=True, metavar="RUN...")
@click.option(
    "--against", multiple=True, type=PLACE, metavar="RUN", help="A run to compare each of them with; may be repeated."
)
@click.option("--out", type=PLACE, metavar="FOLDER", help="Also write Markdown, LaTeX, CSV and a plot.")
@click.option(
    "--html", type=PLACE, metavar="FILE", help="Write one RUN, finished or not, to a page that needs no other file."
)
@click.option("--unequal", is_flag=True, help="Compare runs with unequal or unknown numbers of kept parameters too.")
@click.option("--languages", is_flag=True, help="Also show a row for each language.")
def report(
    runs: tuple[str, ...],
    against: tuple[str, ...],
    out: str | None,
    html: str | None,
    unequal: bool,
    languages: bool,
) -> None:
    """Show scores of RUNs and whether they differ significantly."""
    if html is not None:
        _write_page(runs, html, bool(against or out or unequal or languages))
        return
    if unequal and not against:
        raise UserError("--unequal compares runs: name some with --against")
    if out:
        check_folder("--out", out)
    from rembed_keras.analysis.reports import report as reports

    made = reports.report(runs, against, unequal, languages)
    made.show()
    if out:
        made.write(out)
        click.echo(f"{out}: report.md, report.tex, report.png and tables as CSV")


def _write_page(runs, file, has_more):
    from rembed_keras.analysis.pages.run_page import run_page

    if len(runs) > 1 or has_more:
        raise UserError("--html shows one RUN alone: leave out other runs and options")
    check_file(file)
    write_file(file, run_page(runs[0]))
    click.echo(f"{file}: the page of {runs[0]}")
