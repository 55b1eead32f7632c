"""Every block of code that is written for readers does what it says, and so do commands within sentences.

Sessions (`pycon`) are doctests, see `testpaths` in pyproject.toml; `tests/preprocessing/test_models.py` runs the block
of docs/guides/python.md that needs a preset, and `tests/recipes/test_end_to_end.py` compares the folder of a run in
docs/guides/runs.md. Commands are parsed and their recipes loaded, which runs nothing; those that show what they print
are run.
"""

import re
import shlex
from functools import cache

import pytest

from rembed_keras import cli, config
from tests.docs.test_docs import BENCHMARKS, GIN, PAGES, ROOT, name_of
from tests.recipes.test_recipes import STUDIES

TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
EXTRAS = set(re.findall(r'^        "(\w+)": ', (ROOT / "setup.py").read_text(encoding="utf-8"), re.MULTILINE))
IN_BLOCKS = re.DOTALL | re.MULTILINE
BLOCK = re.compile(r"^```([a-z]*)\n(.*?)^```", IN_BLOCKS)
COMMAND = re.compile(r"(?:\$ |#   )?(?:[A-Z_]+=\S+ )*(?:\.venv/bin/)?((?:rembed|make|python|bash|pip) .*)")
OF_OTHERS = ("python3 -m venv .venv", "source .venv", "unzip ", "dask ", "RUNNER=")  # that are not ours to parse
RECIPE = (
    "from __gin__ import dynamic_registration\nfrom rembed_keras import modeling\nfrom rembed_keras import training\n"
)
STUDY = """\
from __gin__ import dynamic_registration
from rembed_keras.analysis import studies
studies.Study.workdir = "runs/one"
studies.Study.seeds = (0,)
studies.Study.arms = [@one/studies.Arm()]
one/studies.Arm.name = "one"
one/studies.Arm.recipe = "recipes/options/{recipe}.gin"
studies.Study.measures = [@{measure}()]
"""
AROUND = {  # how a part of a recipe begins, and a recipe or a study that it can stand at the end of
    "from rembed_keras.training import sinks": RECIPE + 'include "recipes/quickstart.gin"\n',
    "training.pretrain.evaluators = ": (
        RECIPE
        + "from rembed_keras import tasks\nfrom rembed_keras.data import sample\n"
        + 'from rembed_keras.training import evaluators\ninclude "recipes/options/evaluation.gin"\n'
    ),
    "BATCH_SIZE = {": RECIPE + 'include "recipes/options/growing_rows.gin"\n',
    "bits/studies.Logged.name": STUDY.format(recipe="evaluation", measure="bits/studies.Logged"),
    "upper/studies.Score.name": STUDY.format(recipe="probes", measure="upper/studies.Score"),
}


def blocks(page):
    """The language of each block of a page, and what is in it."""
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def commands(path):
    """Yields the words of every command that a page, or the header of a recipe, tells its reader to type."""
    text = path.read_text(encoding="utf-8")
    lines = "".join(block for _, block in blocks(path)) if path.suffix == ".md" else text
    for line in lines.splitlines():
        found = COMMAND.match(line)
        if found:
            yield shlex.split(found[1], comments=True)


@cache
def load(recipe, bindings):
    """Reads a recipe or a study as a command does; once, for pages show one with several commands.

    `tests/recipes/test_recipes.py` plans all studies as they are.
    """
    if not config.is_study(recipe):
        config.load(str(ROOT / recipe), bindings)
    elif bindings or (ROOT / recipe) not in STUDIES:
        config.plan_study(str(ROOT / recipe), bindings)


def check_typed(program, words):
    """Checks a command as far as that goes without running it: what it names is there, and its options are known."""
    if program == "rembed":
        name, *arguments = words
        asked = cli.rembed.commands[name].make_context(name, arguments).params
        recipe = asked.get("recipe", asked.get("study", ""))
        if recipe.startswith("recipes/"):
            load(recipe, asked["bindings"])
    elif program == "make":
        assert words[0] in TARGETS
    elif program == "pip":
        assert {each for word in words for each in re.findall(r"(?:rembed-keras|\.)\[(\w+)\]", word)} <= EXTRAS
    else:
        module = words[0] == "-m"
        path = ROOT / (words[1].replace(".", "/") if module else words[0])
        if module:
            path = path / "__main__.py" if path.is_dir() else path.with_suffix(".py")
        source = path.read_text(encoding="utf-8")
        assert [word for word in words[1:] if word.startswith("--") and word not in source] == []


@pytest.mark.parametrize("path", [*PAGES, *BENCHMARKS, *GIN], ids=name_of)
def test_commands_can_be_typed(path):
    for program, *words in commands(path):
        check_typed(program, words)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_what_is_quoted_of_the_command_line_is_there(page):
    text = page.read_text(encoding="utf-8")
    for quoted in re.findall(r"`(?:[A-Z_]+=\S+ )*rembed ([^`]+)`", text):
        name, *words = shlex.split(quoted)
        command = cli.rembed.commands[name]
        options = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options, quoted
        if any(word.startswith("recipes/") and word.endswith(".gin") for word in words):
            check_typed("rembed", [name, *words])
    for target in re.findall(r"`make ([a-z-]+)", text):
        assert target in TARGETS


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_what_commands_print_is_what_they_print(page, tmp_path, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    for _, block in blocks(page):
        typed, _, printed = block.partition("\n")
        if not typed.startswith("$ rembed "):
            continue
        code, shown, said = command(*shlex.split(typed)[2:], cwd=tmp_path)
        assert code == 0, said
        assert {line.strip() for line in printed.splitlines()} <= {line.strip() for line in shown.splitlines()}


def recipes_on_pages():
    """Recipes, studies and parts of them, with the page that they stand on."""
    for page in PAGES:
        for language, block in blocks(page):
            if language == "gin" or "__gin__" in block:
                yield pytest.param(block, id=f"{name_of(page)}: {block.splitlines()[0]}")


@pytest.mark.parametrize("block", [*recipes_on_pages()])
def test_recipes_on_pages_load(block, tmp_path):
    around = [whole for begins, whole in AROUND.items() if block.startswith(begins)]
    (whole,) = [""] if "__gin__" in block else around
    path = tmp_path / "own.gin"
    path.write_text(whole + block, encoding="utf-8")
    if config.is_study(str(path)):
        plan = config.plan_study(str(path))
        assert all(arm.measures for arm in plan.arms)
    else:
        assert config.load(str(path)).knobs()


@pytest.mark.parametrize("page", [*PAGES, *BENCHMARKS], ids=name_of)
def test_every_block_is_of_a_kind_that_a_test_reads(page):
    for language, block in blocks(page):
        lines = [line for line in block.splitlines() if line]
        if language == "pycon":
            assert page == ROOT / "README.md" or page.is_relative_to(ROOT / "docs")  # where doctests are looked for
        elif language == "python":
            assert "__gin__" in block or (page == ROOT / "docs/guides/python.md" and '"rembed_small"' in block)
        elif language == "":
            is_output, is_folder = block.startswith("$ rembed "), block.startswith("runs/quickstart/\n")
            read = is_output or is_folder or all(COMMAND.match(line) or line.startswith(OF_OTHERS) for line in lines)
            assert read, block
        else:
            assert language in ("gin", "bibtex"), block
