"""From gin files and the command line to a checked recipe.

gin's own parser reads the files, and `recipe` checks what they say together; `bind` hands it to gin. In between the
recipe is one flat text, which is also what a run's folder keeps: running `config.gin` of a finished run repeats it.
Library code knows nothing of any of this.
"""

import contextlib
import tokenize
from collections.abc import Iterator, Sequence
from functools import cache
from io import StringIO
from pathlib import Path

from gin.config_parser import BindingStatement, ConfigParser, ImportStatement, IncludeStatement, ParserDelegate

from rembed_keras.analysis.pages.records import apart
from rembed_keras.config.recipes.recipe import Recipe
from rembed_keras.config.recipes.statements import Binding, Macro, Reference, check_binding, targets_of
from rembed_keras.errors import UserError, did_you_mean, first_line

PACKAGE = Path(__file__).parent.parent.parent
ADMITTED = ("rembed_keras", "keras", "keras_hub")
FEATURE = "__gin__.dynamic_registration"
COMMAND_LINE = "command line"
OF_RUN = "config.gin"  # a recipe in the folder of a run
STUDIES = "rembed_keras.analysis.studies"  # what studies import and recipes do not


def load(path: str, bindings: Sequence[str] = (), allow_import: Sequence[str] = ()) -> Recipe:
    """Reads a recipe and what it includes, then the bindings of the command line; imports and builds nothing.

    Args:
        path: the gin file; looked for here, then among the recipes of this package.
        bindings: `KNOB=VALUE` or `module.name.parameter=VALUE`; a value that is no gin literal is a string.
        allow_import: further packages that the recipe may import: a recipe is code that imports modules.

    Returns:
        The checked recipe.

    Raises:
        UserError: for a file that is missing or malformed, an import that is not admitted, an unknown name, or a
            binding, macro or scope that nothing uses.
    """
    recipe = read(path, allow_import)
    if STUDIES in recipe.imports.values():
        raise UserError(f"{path} is a study and not a recipe: run it with `rembed study`")
    for text in bindings:
        override(text, recipe)
    recipe.check()
    return recipe


def read(path: str, allow_import: Sequence[str] = ()) -> Recipe:
    """Reads a recipe as `load` does, without checking what it says."""
    recipe = Recipe(tuple(allow_import))
    _read(_find(path, None), recipe, (*ADMITTED, *allow_import), ())
    return recipe


class _Delegate(ParserDelegate):
    """Makes gin's parser produce our references and macros."""

    def __init__(self, imports):
        self.imports = imports

    def configurable_reference(self, scoped_configurable_name, evaluate):
        *scope, selector = scoped_configurable_name.split("/")
        return Reference("/".join(scope), selector, _target(selector, self.imports), evaluate)

    def macro(self, macro_name):
        return Macro(macro_name)


def _target(selector, imports):
    """The dotted path that a selector stands for, by the imports of its file."""
    first, dot, rest = selector.partition(".")
    if first not in imports:
        rooms, files = (_way_to(first, kind, imports) for kind in ("/__init__.py", ".py"))
        near = rooms or did_you_mean(first, imports) or files
        raise UserError(f"{first} in {selector} is not imported{near}")
    return imports[first] + dot + rest


def _way_to(name, kind, imports):
    """What to write for a module of that name and kind of file to be found; empty if there is none."""
    if name in ADMITTED:
        return f": each file says for itself `import {name}`"
    rooms = [Path(str(place).removesuffix(name + kind)) for place in PACKAGE.rglob(name + kind)]
    if not rooms:
        return ""
    room = ".".join(min(rooms, key=lambda room: len(room.parts)).relative_to(PACKAGE.parent).parts)
    if PACKAGE.name in imports:  # as on the command line, which imports nothing
        return f": name it {room}.{name}"
    return f": each file says for itself `from {room} import {name}`"


def _find(name: str, included_from: Path | None) -> Path:
    folders = [Path(), PACKAGE.parent, PACKAGE]
    if included_from is not None:
        folders.insert(0, included_from.parent)
    for folder in folders:
        if _is_there(folder / name):
            return folder / name
    if _is_there(Path(name) / OF_RUN):
        raise UserError(f"{name} is the folder of a run: name its recipe, {Path(name) / OF_RUN}")
    known = [str(path.relative_to(folder)) for folder in folders[-2:] for path in folder.glob("recipes/**/*.gin")]
    where = f"{included_from} includes {name}, which" if included_from else f"recipe {name}"
    raise UserError(f"{where} is not there{did_you_mean(name, known)}")


def _is_there(path):
    with contextlib.suppress(OSError, ValueError):  # what can be the name of no file
        return path.is_file()
    return False


def _read(path: Path, recipe: Recipe, admitted: Sequence[str], trail: tuple[Path, ...]) -> None:
    """Adds a file's bindings to a recipe, those of the files that it includes where it includes them."""
    if path.resolve() in trail:
        raise UserError(f"{path} includes itself")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8'}") from None
    if "\0" in text:
        raise UserError(f"{path} is not gin: it has a NUL byte")
    imports: dict[str, str] = {}
    comments = _comments(text)
    statements, complaint = _parsed(text, path)
    for statement in statements:
        place = f"{path}:{statement.location.line_num}"
        if isinstance(statement, IncludeStatement):
            _read(_find(statement.filename, path), recipe, admitted, (*trail, path.resolve()))
        elif isinstance(statement, ImportStatement):
            _import(statement, place, imports, recipe, admitted)
        elif isinstance(statement, BindingStatement):
            recipe.add(_binding(statement, place, imports, comments.get(statement.location.line_num, "")))
    if complaint:
        raise UserError(complaint)


@cache
def _parsed(text: str, path: Path) -> tuple[list, str]:
    """The statements of a gin file and what gin complains of after them; runs of a study have most files in common."""
    imports: dict[str, str] = {}
    statements: list = []
    try:
        for statement in _statements(text, path, _Delegate(imports)):
            statements.append(statement)
            if isinstance(statement, ImportStatement) and statement.module != FEATURE:
                imports.update([_imported(statement)])
    except UserError as error:
        return statements, str(error)
    return statements, ""


def _statements(text, path, delegate) -> Iterator:
    """Yields gin's statements, its complaints as ours."""
    source = StringIO(text)
    source.name = str(path)
    parser = ConfigParser(source, delegate)
    try:
        yield from parser
    except UserError as error:
        raise UserError(f"{path}:{parser.current_token.start[0]}: {first_line(error)}") from None
    except (SyntaxError, tokenize.TokenError) as error:
        message, line = (
            (error.msg, error.lineno) if isinstance(error, SyntaxError) else (error.args[0], error.args[1][0])
        )
        raise UserError(f"{path}:{line or '?'} is not gin: {message}") from None
    except (RecursionError, MemoryError):
        raise UserError(f"{path} is not gin: brackets in brackets are too many") from None
    except TypeError:  # gin makes a dict of whatever stands before the colons
        raise UserError(f"{path} is not gin: a list or dict is a key of a dict") from None


def _comments(text):
    """What stands after "#" on lines that also have something else."""
    pairs = ((number, apart(line)) for number, line in enumerate(text.split("\n"), start=1) if "  # " in line)
    return {number: about for number, (before, about) in pairs if before and about}


def _import(statement, place, imports, recipe, admitted):
    if statement.module == FEATURE:
        return
    top = statement.module.split(".")[0]
    if top not in admitted:
        raise UserError(f"{place}: a recipe may not import {top}; if you trust it, add --allow-import {top}")
    name, module = _imported(statement)
    if recipe.imports.setdefault(name, module) != module:
        raise UserError(f"{place}: {name} is {recipe.imports[name]} in another file: import {module} under a name")
    imports[name] = module


def _imported(statement):
    """The name that an import gives to a module, and the module."""
    is_whole = statement.is_from or statement.alias
    return statement.bound_name(), statement.module if is_whole else statement.module.split(".")[0]


def _binding(statement, place, imports, comment):
    target = ""
    try:
        if statement.arg_name:
            target = _target(statement.selector, imports)
    except UserError as error:
        raise UserError(f"{place}: {error}") from None
    return Binding(statement.scope, statement.selector, target, statement.arg_name, statement.value, place, comment)


def override(text: str, recipe: Recipe) -> None:
    """Adds a binding of the command line, which may name what is in admitted packages though no file imports them."""
    key, equals, value = text.partition("=")
    key, value = key.strip(), value.strip()
    if not (equals and key):
        raise UserError(f"{text!r} on the command line is not KNOB=VALUE")
    named = {package: package for package in (*ADMITTED, *recipe.trusted)} | recipe.imports
    try:
        (statement,) = _statements(f"{key} = 0\n", Path(COMMAND_LINE), _Delegate(named))
    except (UserError, ValueError):  # or none, as of a comment
        raise UserError(f"{key!r} on the command line is no name of a knob") from None
    found = _binding(statement, COMMAND_LINE, named, "")
    binding = Binding(**(vars(found) | {"value": _value(key, value, named)}))
    if not binding.parameter and binding.key not in recipe.macros:
        raise UserError(f"the recipe has no knob {binding.key}{did_you_mean(binding.key, recipe.macros)}")
    if not value:  # as of a shell's variable that is not set
        raise UserError(f"{key} has no value on the command line: an empty text is {key}='\"\"'")
    if not binding.parameter:
        _check_type(binding, recipe.macros[binding.key].value)
    check_binding(binding, recipe.trusted)
    for _, selector in targets_of(binding):
        name, _, _ = selector.partition(".")
        recipe.imports.setdefault(name, named[name])
    recipe.add(binding)


def _value(key: str, text: str, imports):
    """A value of the command line: a gin literal, reference or macro; anything else is a string."""
    try:
        (statement,) = ConfigParser(f"x = {text}\n", _Delegate(imports))
    except UserError as error:  # a reference to what is not imported, if it has a module
        if "." not in text:
            return text
        raise UserError(f"{COMMAND_LINE}: {key}: {first_line(error)}") from None
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError, tokenize.TokenError):
        return text
    return statement.value


def _check_type(binding, declared):
    """A knob keeps the type that it was declared with, but a whole number may stand for any number."""
    kinds = {bool: "True or False", int: "a whole number", float: "a number", str: "text"}
    given = binding.value
    if type(declared) not in kinds or type(given) not in kinds or type(given) is type(declared):
        return
    if type(declared) is float and type(given) is int:
        return
    raise UserError(f"{binding.key} is {given!r}; it must be {kinds[type(declared)]}, as in the recipe: {declared!r}")
