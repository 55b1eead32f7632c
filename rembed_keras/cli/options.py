"""Arguments and options that commands share."""

import importlib.util
import math
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import click

from rembed_keras.cli import completion
from rembed_keras.data.writing import check_access, check_folder_access, write_atomically
from rembed_keras.errors import UserError, check_spelled_out, import_failure

IMPORT = re.compile(r"^(?:from (\S+) )?import (\S+)", re.MULTILINE)  # in a recipe


class Filled(click.ParamType):
    """A text that is not empty: one would read as an option that was not given, and as the folder where one is."""

    name = "text"

    def convert(self, value, param, ctx):
        """The text."""
        if not value.strip():
            left_out = "" if isinstance(param, click.Argument) else ", or leave the option out"
            self.fail(f"it is empty: name something{left_out}", param, ctx)
        return value


class Place(Filled):
    """A file or a folder, which a shell completes."""

    def shell_complete(self, ctx, param, incomplete):
        """What has the shell do so."""
        return completion.files(incomplete)


class Codes(Filled):
    """Codes of languages between commas, with spaces or without."""

    name = "codes"

    def convert(self, value, param, ctx):
        """The codes."""
        codes = [each.strip() for each in super().convert(value, param, ctx).split(",")]
        if not all(codes):
            self.fail(f"{value!r} names nothing between its commas", param, ctx)
        return codes


FILLED = Filled()
PLACE = Place()
CODES = Codes()
RECIPE = click.argument("recipe", type=PLACE, shell_complete=completion.recipes)
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


def _packages(about):
    about += ", from the working directory too; may be repeated."
    return click.option("--allow-import", multiple=True, type=FILLED, metavar="PACKAGE", callback=_found, help=about)


ALLOW_IMPORT = _packages("Another package that the recipe may import")
OWN_CLASSES = _packages("A package with classes of your own that the model is made of")


def import_own_classes(packages: Sequence[str], *sources: str) -> None:
    """Imports packages of OWN_CLASSES, and of their modules those that the recipes of runs import: no file brings code.

    Args:
        packages: as the option gives them.
        sources: folders of models, runs among them.

    Raises:
        UserError: for what cannot be imported.
    """
    from rembed_keras.data.json_files import understood

    modules = [*packages]
    for recipe in (Path(source) / "config.gin" for source in sources if packages):
        with understood(recipe, "a recipe"):
            lines = IMPORT.findall(recipe.read_text(encoding="utf-8")) if recipe.is_file() else []
        named = [".".join(part for part in parts if part) for parts in lines]
        modules += [module for module in named if module.partition(".")[0] in packages]
    for module in dict.fromkeys(modules):
        try:
            importlib.import_module(module)
        except (Exception, SystemExit) as error:  # it raises what it likes
            raise UserError(f"--allow-import {module.partition('.')[0]}: {import_failure(error)}") from error


SOURCE_FORMATS = click.Choice(["huggingface", "tf1", "preset", "savedmodel", "run"])
TARGET_FORMATS = click.Choice(["huggingface", "preset", "savedmodel"])
TARGET_KINDS = click.Choice(["huggingface", "preset"])  # which can be read again


class Positive(click.ParamType):
    """A positive number; help texts do not show its range, as they would of click's own types.

    Args:
        name: what help texts call it.
        read: makes the number of a text.
        limit: that it is below.
        what: that it is.
    """

    def __init__(self, name: str, read: Callable[[str], float], limit: float, what: str):
        self.name, self.read, self.limit, self.what = name, read, limit, what

    def convert(self, value, param, ctx):
        """The number."""
        try:
            number = self.read(value)
        except ValueError:
            number = 0
        if not 0 < number < self.limit:
            self.fail(f"{value!r} is not a {self.what}", param, ctx)
        return number


WHOLE = Positive("n", int, 2**31, "positive whole number")
POSITIVE = Positive("number", float, math.inf, "positive number")


def is_given(name: str) -> bool:
    """Whether an option of the running command was typed, and has not its default.

    Args:
        name: of the command's parameter.
    """
    source = click.get_current_context().get_parameter_source(name)
    return source is not click.core.ParameterSource.DEFAULT


def check_file(path: str | None, is_new: bool = False) -> None:
    """Checks that a file can be written, before the work that it is for is done.

    Args:
        path: the file; None for none.
        is_new: whether it must not exist.

    Raises:
        UserError: for a file that is there, or whose folder is not, and for what may not be written or is no file.
    """
    if path is None:
        return
    file = Path(path)
    if is_new and file.exists():
        raise UserError(f"{path} already exists: remove it or choose another file")
    if file.exists() and not file.is_file():  # a device, which a whole new file would replace
        raise UserError(f"{path} cannot be written: it is {'a folder' if file.is_dir() else 'no file'}")
    folder = _led_to(file).parent
    if not folder.is_dir():
        raise UserError(f"{path} cannot be written: there is no folder {folder}")
    check_access(path, folder)


def _led_to(file):
    """The file that is written where a link to it is named, which stays."""
    return Path(os.path.realpath(file)) if file.is_symlink() else file


def check_folder(option: str, path: str) -> None:
    """Checks that a folder can be written or made, before the work that it is for is done.

    Args:
        option: that names it.
        path: the folder.

    Raises:
        UserError: for what is there and no folder, or is in none or in one that is read-only, and for a name that
            begins with ~, as of `--out=~/tables`.
    """
    check_spelled_out(option, path)
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{path} cannot be written: it is no folder")
    check_folder_access(path)


def write_beside(target: str, texts: Mapping[str, str]) -> None:
    """Writes files into the folder of a model that is there, by their names."""
    for name, text in texts.items():
        (Path(target) / name).write_text(text, encoding="utf-8")


def write_file(path: str, text: str) -> None:
    """Writes a text file that is there whole or as it was before.

    Args:
        path: the file, or a link to it.
        text: its new content.

    Raises:
        UserError: if it cannot be written.
    """
    try:
        write_atomically(_led_to(Path(path)), text)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from None
