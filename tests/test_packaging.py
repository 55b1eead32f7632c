"""The wheel, built from a copy of the sources, installed elsewhere and run from a third folder."""

import importlib.metadata
import json
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
# filled in, as the owner would
HOME = "https://example.org/owner/rembed_keras"
LOCAL = shutil.ignore_patterns(".*", "runs", "build", "dist", "*.egg-info", "__pycache__", "tests", "notebooks")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(users_environment):
    """Runs a command without the environment variables of the tests."""

    def run(*command, cwd):
        words = [str(part) for part in command]
        done = subprocess.run(words, cwd=cwd, env=users_environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def constraints(name):
    lines = (ROOT / "constraints" / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


@pytest.fixture(scope="module")
def wheel(run, tmp_path_factory):
    sources = tmp_path_factory.mktemp("sources") / "rembed_keras"
    shutil.copytree(ROOT, sources, ignore=LOCAL)
    citation = sources / "CITATION.cff"
    lines = [
        line for line in citation.read_text(encoding="utf-8").splitlines() if not line.startswith("repository-code:")
    ]
    citation.write_text("\n".join([*lines, f'repository-code: "{HOME}"', ""]), encoding="utf-8")
    run(sys.executable, "-m", "build", "--outdir", sources.parent, sources, cwd=sources.parent)  # through the sdist
    (built,) = sources.parent.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def bin_folder(run, wheel, tmp_path_factory):
    """An environment with the wheel, which finds what it needs where the tests do."""
    environment = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", environment, cwd=environment)
    python = environment / "bin" / "python"
    install = ("install", "--quiet", "--no-compile", "--no-deps", "--ignore-installed", wheel)
    run(sys.executable, "-m", "pip", "--python", python, *install, cwd=environment)
    (own,) = environment.glob("lib/python3*/site-packages")
    (own / "below.pth").write_text(sysconfig.get_path("purelib"))  # a folder: what it links to is not followed
    return environment / "bin"


def files_of(folder):
    """The files of a folder that belong in the wheel: all but compiled Python."""
    return {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_carries_recipes_blocks_and_text(wheel):
    packed = set(zipfile.ZipFile(wheel).namelist())
    outside = {f"rembed_keras/{name}" for folder in ("gin", "recipes") for name in files_of(folder)}
    sample = files_of("rembed_keras/data/sample")
    modules = {name for name in files_of("rembed_keras") if name.endswith(".py")}
    assert {"rembed_keras/recipes/quickstart.gin"} <= outside
    assert any("licen" in name.lower() for name in sample)
    assert any(name.endswith(".txt.gz") for name in sample)
    assert not (outside | sample | modules) - packed
    tops = {name.split("/")[0] for name in packed}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"rembed_keras"}
    assert not [name for name in packed if "__pycache__" in name or name.startswith("rembed_keras/gin/__init__")]


def test_an_installed_rembed_inspects_a_recipe_of_the_wheel(run, bin_folder, tmp_path):
    where = run(bin_folder / "python", "-c", "import rembed_keras; print(rembed_keras.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(bin_folder.parent)
    printed = run(bin_folder / "rembed", "inspect", "recipes/quickstart.gin", "--json", cwd=tmp_path)
    ledger = json.loads(printed)["ledger"]
    assert ledger["kept"] + ledger["dropped"] == ledger["total"] > 0
    assert not list(tmp_path.iterdir())


def test_the_command_and_the_module_are_the_same_thing(run, bin_folder, tmp_path):
    by_command = run(bin_folder / "rembed", "--help", cwd=tmp_path)
    assert run(bin_folder / "python", "-m", "rembed_keras", "--help", cwd=tmp_path) == by_command


def test_what_is_installed_fits_together(run, bin_folder, tmp_path):
    """With what the wheel says that it needs; `make` resolved that for the environment of the tests."""

    def pip(*words):
        return run(sys.executable, "-m", "pip", "--python", bin_folder / "python", *words, cwd=tmp_path)

    pip("check")
    names = {package["name"] for package in json.loads(pip("list", "--format=json"))}
    assert {"tensorflow", "keras", "rembed-keras"} <= names
    assert "tensorflow-cpu" not in names


def test_licence_and_addresses_travel(wheel):
    """In the wheel and in the sdist; addresses come from CITATION.cff, the one place that has them."""
    archive = zipfile.ZipFile(wheel)
    texts = {Path(name).parts[-1]: name for name in archive.namelist() if name.endswith("METADATA")}
    metadata = archive.read(texts["METADATA"]).decode("utf-8").splitlines()
    assert {line for line in metadata if line.startswith("Project-URL:")} == {
        f"Project-URL: Source, {HOME}",
        f"Project-URL: Issues, {HOME}/issues",
        f"Project-URL: Changelog, {HOME}/blob/main/CHANGELOG.md",
    }
    assert "Classifier: Typing :: Typed" in metadata
    packed = [name for name in archive.namelist() if name.endswith("dist-info/licenses/LICENSE")]
    assert archive.read(packed[0]) == (ROOT / "LICENSE").read_bytes()
    assert any(name.endswith("licenses/rembed_keras/presets/rembed_small/LICENSE") for name in archive.namelist())
    (sdist,) = wheel.parent.glob("*.tar.gz")
    with tarfile.open(sdist) as sources:
        inside = {name.partition("/")[2] for name in sources.getnames()}
    assert {"LICENSE", "CITATION.cff", "rembed_keras/py.typed"} <= inside


def test_bounds_are_those_that_are_tested(wheel):
    """From below, the oldest releases; from above none; and here run those that constraints/tested.txt says."""
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith("METADATA"))
    metadata = archive.read(name).decode("utf-8").splitlines()
    needed = [line.removeprefix("Requires-Dist: ") for line in metadata if line.startswith("Requires-Dist: ")]
    bounds = dict(line.split(">=") for line in needed if "extra ==" not in line)
    assert bounds == {name: version for name, version in constraints("oldest").items() if name != "keras-hub"}
    assert constraints("tested").keys() == constraints("oldest").keys()
    for package, version in constraints("tested").items():
        assert importlib.metadata.version(package) == version


def test_the_citation_has_what_its_format_requires():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert citation["license"] == "Apache-2.0" and "2010.12821" in str(citation["references"])
    for each in (citation, *citation["references"]):
        assert all("name" in author or "family-names" in author for author in each["authors"])


def test_a_checker_of_types_sees_the_public_names(run, bin_folder, tmp_path):
    """As completion in an editor does, in a user's file elsewhere; without py.typed all would be of type Any."""
    (tmp_path / "own.py").write_text(
        "import rembed_keras\n"
        "reveal_type(rembed_keras.Encoder)\n"
        "reveal_type(rembed_keras.Tokenizer.train)\n"
        "reveal_type(rembed_keras.ledger)\n"
    )
    python = bin_folder / "python"
    said = run(
        sys.executable,
        "-m",
        "mypy",
        "--python-executable",
        python,
        "--cache-dir",
        tmp_path / "c",
        "own.py",
        cwd=tmp_path,
    )
    assert "vocabulary_size: int" in said and "-> rembed_keras.modeling.encoder.Encoder" in said
    assert "-> rembed_keras.preprocessing.tokenizer.Tokenizer" in said
    assert "-> rembed_keras.analysis.cost.ledger.Ledger" in said
