"""Arguments and options that commands share."""

import importlib.util
import sys
from pathlib import Path

import click

from rembed_keras.cli import completion
from rembed_keras.errors import UserError

RECIPE = click.argument("recipe", shell_complete=completion.recipes)
KNOBS = click.argument("bindings", nargs=-1, metavar="[KNOB=VALUE]...", shell_complete=completion.knobs)


def _found(context, parameter, packages):
    """The packages, which can be imported from now on: installed ones, and those in the working directory."""
    here = str(Path.cwd())
    if packages and here not in sys.path:
        sys.path.append(here)  # as `python -m` has it, but after all that is installed
    for package in packages:
        top = package.partition(".")[0]
        if not top.isidentifier() or (top not in sys.modules and importlib.util.find_spec(top) is None):
            raise UserError(f"--allow-import {package}: there is no such package here, and none is installed")
    return packages


ALLOW_IMPORT = click.option(
    "--allow-import",
    multiple=True,
    metavar="PACKAGE",
    callback=_found,
    help="Another package that the recipe may import, from the working directory too; may be repeated.",
)

SOURCE_FORMATS = click.Choice(["huggingface", "tf1", "preset", "savedmodel", "run"])
TARGET_FORMATS = click.Choice(["huggingface", "preset", "savedmodel"])
TARGET_KINDS = click.Choice(["huggingface", "preset"])  # which can be read again


class Whole(click.ParamType):
    """A positive whole number; help texts do not show its range, as they would of click's own type."""

    name = "n"

    def convert(self, value, param, ctx):
        """The number."""
        try:
            number = int(value)
        except ValueError:
            number = 0
        if not 1 <= number < 2**31:
            self.fail(f"{value!r} is not a positive whole number", param, ctx)
        return number


WHOLE = Whole()
