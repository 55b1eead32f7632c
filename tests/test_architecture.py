"""The rules of the repository layout, checked on the source: imports, lengths of modules, forbidden names."""

import ast
import functools
import re
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "rembed_keras"

# a room may import the rooms of its set, itself, and the shared modules
ARROWS = {
    "cli": {"config", "training", "adaptation", "tasks", "interop", "analysis", "modeling", "data"},
    "config": {"training", "adaptation", "tasks", "interop", "analysis", "modeling", "data"},
    "training": {"preprocessing", "adaptation", "tasks", "interop", "analysis", "modeling", "data"},
    "tasks": {"modeling", "data"},
    "interop": {"preprocessing", "modeling", "data"},
    "preprocessing": {"tasks", "modeling", "data"},
    "analysis": {"modeling", "data"},
    "adaptation": {"modeling"},
    "modeling": set(),
    "data": set(),
    "compat": set(),
    "errors": set(),
    "interruption": set(),
}
SHARED = {"compat", "errors", "interruption"}
ENTRANCES = {"__init__", "__main__"}  # public entry points, which may import any room


def sources(folder=PACKAGE):
    return sorted(path for path in folder.rglob("*.py") if "__pycache__" not in path.parts)


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sources()}


def part_of(module):
    """The second name of rembed_keras.x.y: the room of a module."""
    names = module.split(".")
    return names[1] if len(names) > 1 else "__init__"


@functools.cache  # most tests ask of all files
def imports(path):
    """(module, inside_a_function) for every import in a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inner = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, id(node) in inner) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found.append((full if full in MODULES else node.module, id(node) in inner))
    return found


def own_imports(path):
    return {module for module, _ in imports(path) if module.split(".")[0] == "rembed_keras"}


@pytest.mark.parametrize("module", MODULES)
def test_imports_follow_the_arrows(module):
    part = part_of(module)
    if part in ENTRANCES:
        return
    allowed = ARROWS[part] | SHARED | {part}
    strangers = {target for target in own_imports(MODULES[module]) if part_of(target) not in allowed | {"__init__"}}
    assert not strangers, f"{module} may import {sorted(allowed)} only"


def test_the_arrows_are_enforced_on_every_form_of_import(tmp_path):
    source = "from rembed_keras import data\ndef f():\n    import rembed_keras.modeling.encoder\n    import gin\n"
    (tmp_path / "x.py").write_text(source)
    found = set(imports(tmp_path / "x.py"))
    assert found == {("rembed_keras.data", False), ("rembed_keras.modeling.encoder", True), ("gin", True)}


def importers(library):
    return {
        (module, inside)
        for module, path in MODULES.items()
        for target, inside in imports(path)
        if target.split(".")[0] == library
    }


def test_only_config_imports_gin():
    assert {part_of(module) for module, inside in importers("gin") if not inside} == {"config"}
    assert {part_of(module) for module, _ in importers("gin")} == {"config", "compat"}


def test_modeling_imports_no_tensorflow_but_for_replicas_parts_of_a_step_draws_and_checks_in_one():
    """Only inside functions: replicas, gradients, draws and errors of a step are specific to the backend."""
    uses = {use for use in importers("tensorflow") if part_of(use[0]) == "modeling"}
    modules = ("replicas", "micro_batches", "layers.draws", "layers.rows")
    assert uses <= {(f"rembed_keras.modeling.{name}", True) for name in modules}


@pytest.mark.parametrize("library", ["tensorflow", "keras", "keras_hub", "tensorflow_text"])
def test_data_knows_no_framework(library):
    assert not {module for module, _ in importers(library) if part_of(module) == "data"}


def declared(*lists):
    """The packages in some lists of setup.py."""
    tree = ast.parse((ROOT / "setup.py").read_text(encoding="utf-8"))
    found = (node.value for node in tree.body if isinstance(node, ast.Assign) and node.targets[0].id in lists)
    return {re.match(r"[\w-]+", each.value)[0] for node in found for each in node.elts}


def test_what_is_imported_is_declared():
    """At the top of a module what is always installed; inside functions, what an extra brings as well."""
    always = declared("RUNTIME") | {"keras-hub"}  # which keras-nlp brings in lockstep
    at_times = always | declared("JAX", "TASKS", "CLEAN", "CLUSTER", "PARQUET", "HUB", "PEERS")
    makers = packages_distributions()
    missing = set()
    for module, path in MODULES.items():
        for target, inside in imports(path):
            top = target.split(".")[0]
            names = {name.replace("_", "-") for name in (top, *makers.get(top, ()))}
            if (
                top != "rembed_keras"
                and top not in sys.stdlib_module_names
                and not names & (at_times if inside else always)
            ):
                missing.add((module, target))
    assert not missing


def test_no_module_imports_itself_through_others():
    graph = {module: own_imports(path) & MODULES.keys() - {module} for module, path in MODULES.items()}
    while leaves := {module for module, targets in graph.items() if not targets & graph.keys()}:
        graph = {module: targets for module, targets in graph.items() if module not in leaves}
    assert not graph, "each of these imports another of them"


FILES = [path for top in ("rembed_keras", "tests", "benchmarks", "docs", "examples") for path in sources(ROOT / top)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_are_short_and_finished(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 300
    todo = "TO" + "DO"
    assert todo not in text
    assert not {"utils", "helpers", "common", "misc", "base"} & set(path.relative_to(ROOT).with_suffix("").parts)


@pytest.mark.parametrize("top", ["rembed_keras", "tests", "benchmarks", "docs"])
def test_a_room_has_a_dozen_files_at_most(top):
    folders = [ROOT / top, *(path for path in (ROOT / top).rglob("*") if path.is_dir())]
    files = {folder: [*folder.glob("*.py"), *folder.glob("*.md")] for folder in folders}
    assert not {folder: len(found) for folder, found in files.items() if len(found) > 12}


def test_three_modules_stand_alone():
    loose = {path.stem for path in PACKAGE.glob("*.py")} - ENTRANCES
    assert len(loose) <= 3


@pytest.mark.parametrize("folder", ["gin", "recipes"])
def test_no_python_among_the_recipes_and_a_dozen_of_them_in_a_folder_at_most(folder):
    assert (ROOT / folder).is_dir()
    assert max(len([*each.glob("*.gin")]) for each in (ROOT / folder).rglob("*") if each.is_dir()) <= 12
    assert not list((ROOT / folder).rglob("*.py")), "gin/__init__.py would hide the gin library"


def test_compat_imports_nothing_before_it_is_needed():
    tree = ast.parse((PACKAGE / "compat.py").read_text(encoding="utf-8"))
    imported = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert {ast.unparse(node).split()[1].split(".")[0] for node in imported} <= {
        "contextlib",
        "re",
        "collections",
        "typing",
    }
