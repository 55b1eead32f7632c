"""The command line: `rembed run`, `inspect`, `budget`, `benchmark`, `compile`, `prepare`, `solve`, `convert`, `trim`,
`extend`, `reallocate`, `pack`, `merge`, `predict`, `report`, `diff`, `study`, `completion`.

Exit code 0 is success, 2 a user's mistake, reported in one line on stderr, and 1 anything else. A command that SIGTERM
stopped ends with 75, the EX_TEMPFAIL of sysexits.h: start it again and it resumes. Heavy imports are in the commands
that need them.
"""

import click

from rembed_keras import __version__
from rembed_keras.cli import allocations, comparing, completion, corpora, merging, models, results, runs, studies
from rembed_keras.cli.exits import open_closed, reported_in_one_line
from rembed_keras.config.backend import settle_environment


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="rembed")
def rembed() -> None:
    """Pre-train and fine-tune multilingual encoders, and know what every part of them costs."""


for command in (
    *(runs.run, runs.inspect, runs.benchmark, runs.compile_step),
    *(corpora.prepare, corpora.budget),
    allocations.solve,
    *(models.convert, models.trim, models.extend, models.reallocate, models.pack),
    merging.merge,
    *(results.predict, results.report, comparing.diff),
    studies.study,
    completion.completion,
):
    rembed.add_command(command)


def main() -> None:
    """Runs the command line, and reports a user's mistake in one line with exit code 2."""
    open_closed()
    settle_environment()
    with reported_in_one_line():
        rembed.main(prog_name="rembed", standalone_mode=False)
