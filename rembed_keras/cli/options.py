"""Arguments and options that commands share."""

import click

from rembed_keras.cli import completion

RECIPE = click.argument("recipe", shell_complete=completion.recipes)
KNOBS = click.argument("bindings", nargs=-1, metavar="[KNOB=VALUE]...", shell_complete=completion.knobs)

ALLOW_IMPORT = click.option(
    "--allow-import",
    multiple=True,
    metavar="PACKAGE",
    help="Another package that the recipe may import; may be repeated.",
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
