"""Options that commands share."""

import click

ALLOW_IMPORT = click.option(
    "--allow-import",
    multiple=True,
    metavar="PACKAGE",
    help="Another package that the recipe may import; may be repeated.",
)
WHOLE = click.IntRange(1, 2**31 - 1)
