"""The bundled text: real, small, licensed, and equal to the output of benchmarks/corpus."""

import gzip
import hashlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from rembed_keras.data import sample
from rembed_keras.data.text import read_lines, text_files

BUILDER = Path(__file__).parents[2] / "benchmarks" / "corpus"
PARTS = ("text", "parallel", "topics")


@pytest.fixture(scope="module")
def manifest():
    return json.loads((BUILDER / "manifest.json").read_text())


def test_it_is_byte_for_byte_what_the_manifest_says(manifest):
    found = {
        path.relative_to(sample.HERE).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for part in PARTS
        for path in (sample.HERE / part).rglob("*")
        if path.is_file()
    }
    assert found == manifest["sample"]


def test_it_is_under_six_megabytes_and_every_part_has_its_licence():
    assert sum(path.stat().st_size for path in sample.HERE.rglob("*") if path.is_file()) < 6_000_000
    for folder in (sample.text_folder(), sample.help_folder(), sample.declarations_folder(), sample.topics_folder()):
        assert len((folder / "LICENSE").read_text()) > 1000
    assert "Mozilla Public License Version 2.0" in (sample.text_folder() / "LICENSE").read_text()


def test_languages_are_as_many_as_promised():
    assert len(text_files(sample.text_folder())) >= 20
    assert len(text_files(sample.declarations_folder())) >= 40
    assert len(list(sample.topics_folder().glob("test.*.tsv.gz"))) > 10


@pytest.mark.parametrize("language", ["de", "en", "ja", "ru"])
def test_nothing_that_is_scored_was_read_in_pre_training(language):
    read = set(filter(None, read_lines(sample.text_folder() / f"{language}.txt.gz")))
    assert len(read) == len(list(filter(None, read_lines(sample.text_folder() / f"{language}.txt.gz"))))
    held_out = set(filter(None, read_lines(sample.help_folder() / f"{language}.txt.gz")))
    table = gzip.decompress((sample.topics_folder() / f"test.{language}.tsv.gz").read_bytes()).decode()
    held_out |= {line.split("\t")[0] for line in table.splitlines()}
    assert not read & held_out


def test_drift_is_an_error(manifest, tmp_path):
    if importlib.util.find_spec("lxml") is None:
        reader = tmp_path / "lxml"  # the HTML parser is not needed to compare checksums
        reader.mkdir()
        (reader / "__init__.py").write_text("")
        (reader / "etree.py").write_text("")
        (reader / "html.py").write_text("")
    (tmp_path / "fetched/debs").mkdir(parents=True)
    (tmp_path / "fetched/debs/other_1.deb").write_bytes(b"not what it was")
    command = [sys.executable, str(BUILDER / "build.py"), "sample", str(tmp_path / "fetched"), str(tmp_path / "out")]
    done = subprocess.run(command, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "packages are not those of manifest.json" in done.stderr
    assert not (tmp_path / "out").exists()
    assert len(manifest["packages"]) > 90
