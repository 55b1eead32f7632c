"""Options that are empty, or that a command would not read: one line and exit code 2, and nothing is written."""

import os
import re
import sys

import click
import pytest

from rembed_keras.cli import rembed
from tests.cli.test_cli import PRETRAIN

TOKENIZED = ["prepare", "text", "out", "--tokenizer", "prepared/tokenizer.model"]
# arguments of `rembed`, and the message on stderr
MISTAKES = {
    "a stage without a name": (["run", "recipe.gin", "--until", ""], "Invalid value for '--until': it is empty"),
    "stages without a name": (["run", "recipe.gin", "--stages", " "], "Invalid value for '--stages': it is empty"),
    "a folder at home": (["inspect", "recipe.gin", "training.run.workdir=~/run"], "WORKDIR ~/run begins with ~"),
    "languages without a name": (
        ["trim", "text", "out", "--text", "text", "--languages", ""],
        "Invalid value for '--languages': it is empty: name something, or leave the option out",
    ),
    "text that a variable was to name": (
        ["prepare", "", "out"],
        "Invalid value for 'SOURCE': it is empty: name something",
    ),
    "a run that a variable was to name": (["report", "run", " "], "Invalid value for 'RUN...': it is empty"),
    "a comma too many": (
        ["prepare", "text", "out", "--languages", "de,,en"],
        "Invalid value for '--languages': 'de,,en' names nothing between its commas",
    ),
    "a text without a name": (
        ["reallocate", "text", "out", "--num-layers", "1", "--vocabulary", ""],
        "Invalid value for '--vocabulary': it is empty",
    ),
    "a tokenizer without a name": (
        ["convert", "text", "out", "--from", "preset", "--to", "preset", "--tokenizer", ""],
        "Invalid value for '--tokenizer': it is empty",
    ),
    "a report nowhere": (["report", "text", "--out", ""], "Invalid value for '--out': it is empty"),
    "a report at home": (
        ["report", "text", "--out=~/tables"],
        "--out ~/tables begins with ~, which no shell has replaced: write the folder in full",
    ),
    "a report into a file": (
        ["report", "text", "--out", "recipe.gin"],
        "recipe.gin cannot be written: it is no folder",
    ),
    "a base without a name": (
        ["merge", "text", "text", "out", "--how", "ties", "--base", ""],
        "Invalid value for '--base': it is empty",
    ),
    "answers nowhere": (["predict", "text", "x.tsv", "--out", ""], "Invalid value for '--out': it is empty"),
    "a column without a name": (["predict", "text", "x.tsv", "--text", ""], "Invalid value for '--text': it is empty"),
    "text to trim to": (["trim", "text", "out", "--text", ""], "Invalid value for '--text': it is empty"),
    "a run to compare with": (["report", "text", "--against", ""], "Invalid value for '--against': it is empty"),
    "unequal to nothing": (["report", "text", "--unequal"], "--unequal compares runs: name some with --against"),
    "a size of a tokenizer": (
        [*TOKENIZED, "--vocabulary-size", "900"],
        "--vocabulary-size is of a tokenizer to train: leave it out with --tokenizer",
    ),
    "bytes of a tokenizer": ([*TOKENIZED, "--byte-fallback"], "--byte-fallback is of a tokenizer to train"),
    "a rule of a tokenizer": (
        [*TOKENIZED, "--normalization", "identity"],
        "--normalization is of a tokenizer to train",
    ),
    "processes of Beam": (
        ["prepare", "text", "out", "--beam", "--runner=x", "--processes", "2"],
        "--processes is of this machine, and Beam's runner has workers of its own: leave one out",
    ),
    "an open quotation": (
        ["prepare", "text", "out", "--beam", "--runner='x"],
        """--beam is "--runner='x", which cannot be split into options: no closing quotation""",
    ),
    "shards of no size": (
        ["prepare", "text", "out", "--shard-megabytes", "nan"],
        "shard_megabytes is nan; it must be a number from 0.000001",
    ),
}


@pytest.fixture
def project(tmp_path, text_dir, corpus):
    (tmp_path / "prepared").symlink_to(corpus.path)
    (tmp_path / "recipe.gin").write_text(
        "from __gin__ import dynamic_registration\nfrom rembed_keras import training\ntraining.run.stages = []\n"
    )
    (tmp_path / "text").symlink_to(text_dir)
    return tmp_path


@pytest.mark.parametrize("what", MISTAKES)
def test_they_cost_one_line(what, project, command):
    arguments, message = MISTAKES[what]
    code, out, err = command(*arguments, cwd=project)
    (line,) = err.splitlines()
    assert (code, out) == (2, "") and line.startswith("rembed: ") and message in line
    assert sorted(path.name for path in project.iterdir()) == ["prepared", "recipe.gin", "text"]


def test_a_package_that_cannot_be_imported_is_one_line(project, command, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (project / "broken_parts.py").write_text("\nundefined\n")
    words = ["convert", "run", "out", "--from", "run", "--to", "preset", "--allow-import", "broken_parts"]
    code, out, err = command(*words, cwd=project)
    why = f"NameError: name 'undefined' is not defined ({project}/broken_parts.py, line 2)"
    assert (code, out, err) == (2, "", f"rembed: --allow-import broken_parts: {why}\n")


def test_a_damaged_recipe_of_a_run_is_named_where_it_says_what_to_import(project, command):
    (project / "run").mkdir()
    (project / "run/config.gin").write_bytes(b"\xff")
    code, out, err = command("predict", "run", "x.tsv", "--allow-import", "json", cwd=project)
    assert (code, out) == (2, "") and err.startswith("rembed: run/config.gin is not a recipe: it is damaged"), err


def test_nothing_that_any_command_is_given_may_be_empty_but_bindings():
    texts = [
        (name, each.opts[0])
        for name, command in rembed.commands.items()
        for each in command.params
        if each.type is click.STRING and each.name != "bindings"
    ]
    assert texts == [("prepare", "--beam")], "give others type=FILLED, or PLACE"  # Beam may have none


def test_too_few_steps_to_time_are_refused_before_text_is_prepared(project, command):
    (project / "recipe.gin").write_text(PRETRAIN)
    out, err = command("benchmark", "recipe.gin", "--steps", "1", cwd=project)[1:]
    assert "--steps is 1" in err and "corpus: " not in out


@pytest.mark.parametrize(("file", "why"), [("x.json", ". is read-only"), ("/dev/null", "it is no file")])
def test_what_cannot_be_written_is_said_before_the_work(project, command, monkeypatch, file, why):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    for words in (["benchmark", "recipe.gin", "--out", file], ["report", "text", "--html", file]):
        code, out, err = command(*words, cwd=project)
        assert (code, out, err) == (2, "", f"rembed: {file} cannot be written: {why}\n")


def test_a_file_that_a_link_leads_to_is_written_and_the_link_stays(project, command):
    (project / "there").mkdir()
    (project / "link.gin").symlink_to("there/best.gin")
    words = ["solve", "--kept", "9M", "--vocabulary", "9000", "--out", "link.gin"]
    assert command(*words, cwd=project)[0] == 0
    assert (project / "link.gin").is_symlink() and "modeling.Encoder" in (project / "there/best.gin").read_text()
    (project / "link.gin").unlink()
    (project / "link.gin").symlink_to("none/best.gin")
    said = f"rembed: link.gin cannot be written: there is no folder {project.resolve()}/none\n"
    assert command(*words, cwd=project) == (2, "", said)


@pytest.mark.parametrize("there", ["", "there"])
def test_a_report_that_cannot_be_written_is_refused_before_its_tables(there, project, command, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    (project / there).mkdir(exist_ok=True)
    place = there or "."
    code, out, err = command("report", "text", "--out", f"{place}/tables/new", cwd=project)
    assert (code, out, err) == (2, "", f"rembed: {place}/tables/new cannot be written: {place} is read-only\n")


@pytest.mark.parametrize(
    "words",
    [
        ["merge", "none", "none", "OUT"],
        ["reallocate", "none", "OUT", "--num-layers", "1"],
        ["convert", "none", "OUT", "--from", "run", "--to", "preset"],
        ["pack", "none", "OUT"],
    ],
)
def test_a_model_that_cannot_be_written_is_refused_before_its_source_is_read(words, project, command, monkeypatch):
    def refused(target):
        code, out, err = command(*(target if word == "OUT" else word for word in words), cwd=project)
        assert (code, out) == (2, "")
        return err

    assert refused("recipe.gin/out") == "rembed: recipe.gin/out cannot be written: Not a directory\n"
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert refused("new/out") == "rembed: new/out cannot be written: . is read-only\n"


def test_inspect_shows_knobs_as_they_can_be_typed(command, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    code, out, err = command("inspect", "recipes/options/growing_rows.gin", cwd=tmp_path)
    assert code == 0, err
    table = out.partition("What is kept")[0].splitlines()
    shown = dict(line.strip().split("  ", 1) for line in table if line[1:2].isupper() and "  " in line.strip())
    values = {name: re.split(r"\s{2,}", said.strip())[0] for name, said in shown.items()}
    known = {"BATCH_SIZE": "{0: 64, 2520: 16}", "EVAL_EVERY": "None", "COUPLING": "'decoupled'", "STEPS": "2800"}
    assert {name: values[name] for name in known} == known
    again = [f"{name}={value}" for name, value in values.items()]
    code, out, err = command("inspect", "recipes/options/growing_rows.gin", *again, cwd=tmp_path)
    assert code == 0 and out.partition("What is kept")[0].splitlines() == table, err


def test_of_many_bindings_that_went_with_a_replaced_one_knobs_are_named(command, tmp_path):
    _, _, error = command("inspect", "recipes/quickstart.gin", "training.run.stages=[@training.prepare]", cwd=tmp_path)
    (line,) = [line for line in error.splitlines() if "without use: " in line]
    *knobs, rest = line.partition("use: ")[2].split(", ")
    assert "FINETUNE_SEEDS" in knobs and all(map(str.isupper, knobs))
    assert rest.endswith(" bindings of the recipe") and int(rest.split()[0]) > 30
