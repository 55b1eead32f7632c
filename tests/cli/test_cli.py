"""The command line: users' mistakes give one line and exit code 2, and leave nothing behind."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rembed_keras import __version__, cli
from rembed_keras.cli.exits import reported_in_one_line
from rembed_keras.errors import UserError
from rembed_keras.interop.convert import written_whole
from rembed_keras.interruption import Interrupted
from rembed_keras.modeling import Encoder

ROOT = Path(__file__).parents[2]
PRETRAIN = """\
from __gin__ import dynamic_registration
from rembed_keras import data
from rembed_keras import training
include "gin/models/tiny.gin"
include "gin/objectives/masked_lm.gin"
include "gin/optimizers/adamw.gin"
include "gin/runtime/pretrain.gin"
include "gin/data/folder.gin"
TEXT_DIR = "text"
STEPS = 2
BATCH_SIZE = 4
SEQUENCE_LENGTH = 16
VOCABULARY_SIZE = 900
training.pretrain.jit_compile = False
training.run.stages = [@training.prepare, @training.pretrain]
"""


@pytest.fixture
def project(tmp_path, text_dir, corpus):
    (tmp_path / "recipe.gin").write_text(PRETRAIN)
    (tmp_path / "prepared").symlink_to(corpus.path)
    (tmp_path / "bare.gin").write_text(
        "from __gin__ import dynamic_registration\nfrom rembed_keras import training\ntraining.run.stages = []\n"
    )
    (tmp_path / "text").symlink_to(text_dir)
    return tmp_path


def test_prepare_makes_a_corpus(project, command):
    code, out, err = command("prepare", "text", "corpus", "--vocabulary-size", "900", cwd=project)
    assert code == 0, err
    assert re.fullmatch(r"corpus: [\d,]+ tokens in 3 languages, vocabulary of 900, in \d+ s\n", out)
    assert (project / "corpus/manifest.json").exists()


def test_what_went_with_a_replaced_optimizer_is_said_on_stderr(project, command):
    recipe = project / "recipe.gin"
    code, out, err = command(
        "inspect", recipe, "--json", "training.pretrain.optimizer=@keras.optimizers.SGD", cwd=project
    )
    assert code == 0 and json.loads(out)["configuration"]["training.pretrain.optimizer"] == "@keras.optimizers.SGD"
    (line,) = [line for line in err.splitlines() if "training.pretrain.optimizer" in line]
    assert line.startswith("training.pretrain.optimizer is @keras.optimizers.SGD (command line); without use: ")
    assert {"LEARNING_RATE", "training.AdamW.learning_rate"} <= set(line.partition("use: ")[2].split(", "))


def test_inspect_says_what_each_device_holds(project, command):
    code, out, err = command("inspect", "recipe.gin", "--json", "--devices", "4", cwd=project)
    assert code == 0, err
    found = json.loads(out)
    held, whole = found["devices"]["held"], found["ledger"]
    assert found["devices"]["count"] == 4 and [*held] == ["data_parallel", "model_parallel", "fully_sharded"]
    alone = held["data_parallel"]
    assert (alone["parameters"], alone["slots"]) == (whole["bytes"]["total"], whole["optimizer_bytes"]["total"])
    assert held["fully_sharded"]["parameters"] < held["model_parallel"]["parameters"] < alone["parameters"]
    code, out, _ = command("inspect", "recipe.gin", "--devices", "4", cwd=project)
    assert code == 0 and "Bytes of each of 4 devices" in out and f"{held['fully_sharded']['slots']:,}" in out
    assert "rows of a table" not in out
    _, out, _ = command("inspect", "recipe.gin", "--devices", "14", cwd=project)
    (line,) = [line for line in out.splitlines() if "rows of a table of tokens" in line]
    assert line.endswith("are shared by 2 of 14 devices; 910 would be by all"), line


# arguments of `rembed`, and the message on stderr
MISTAKES = {
    "no recipe": (["run", "none.gin"], "recipe none.gin is not there"),
    "a knob": (["run", "recipe.gin", "STEP=3"], "the recipe has no knob STEP; did you mean STEPS?"),
    "a type": (["run", "recipe.gin", "STEPS=x"], "STEPS is 'x'; it must be a whole number, as in the recipe: 2"),
    "no text": (["run", "recipe.gin", "TEXT_DIR=nowhere"], "nowhere is not a folder of text"),
    "no devices": (["inspect", "recipe.gin", "--devices", "0"], "'0' is not a positive whole number"),
    "devices of nothing": (["inspect", "bare.gin", "--devices", "2"], "bare.gin pre-trains none"),
    "no steps": (["run", "recipe.gin", "STEPS=0"], "STEPS"),
    "a strategy": (["run", "recipe.gin", "STRATEGY=everywhere"], "STRATEGY is 'everywhere'"),
    "a width": (
        ["run", "recipe.gin", "modeling.Encoder.num_heads=3"],
        "num_heads is 3; it must divide hidden_dim, 128",
    ),
    "too long rows": (["run", "recipe.gin", "SEQUENCE_LENGTH=256"], "the model's max_sequence_length is 128"),
    "a small model": (
        ["run", "recipe.gin", "modeling.Encoder.vocabulary_size=50"],
        "the corpus has 900 word pieces; the model's vocabulary_size is 50",
    ),
    "a small model for a corpus": (
        ["run", "recipe.gin", "training.pretrain.corpus=prepared", "modeling.Encoder.vocabulary_size=50"],
        "the corpus has 900 word pieces; the model's vocabulary_size is 50",
    ),
    "a file in the way": (
        ["run", "recipe.gin", "WORKDIR=recipe.gin"],
        "WORKDIR recipe.gin cannot be used: File exists",
    ),
    "something missing": (["run", "bare.gin"], "run has no 'workdir': bind it in the recipe"),
    "no run": (["convert", "text", "out", "--from", "run", "--to", "preset"], "text has no checkpoints"),
    "no preset": (
        ["convert", "text", "out", "--from", "preset", "--to", "huggingface"],
        "text is not a keras-hub preset",
    ),
    "a format": (["convert", "text", "out", "--from", "onnx", "--to", "preset"], "Invalid value for '--from'"),
    "a format to write": (["convert", "text", "out", "--from", "preset", "--to", "tf1"], "Invalid value for '--to'"),
    "no text to trim to": (["trim", "text", "out", "--text", "none"], "text is not a keras-hub preset"),
    "no command": (["rnu"], "No such command 'rnu'"),
    "no option": (["run", "recipe.gin", "--fast"], "No such option"),
    "a knob with dashes": (["run", "recipe.gin", "--STEPS", "10"], "Knobs have no dashes: STEPS=VALUE."),
    "no format": (
        ["convert", "text", "out", "--to", "preset"],
        "Missing option '--from'. Choose from: huggingface, tf1, preset, savedmodel, run",
    ),
    "a stage": (
        ["run", "recipe.gin", "--until", "finetune"],
        "the recipe has no stage 'finetune': its stages are prepare, pretrain",
    ),
    "stages without names": (["run", "recipe.gin", "--stages", ","], "the recipe has no stage ',': its stages are"),
    "a knob without a value": (["run", "recipe.gin", "WORKDIR="], "WORKDIR has no value on the command line"),
    "no corpus": (["run", "recipe.gin", "training.pretrain.corpus="], "training.pretrain.corpus has no value on the"),
    "a run nowhere": (["run", "recipe.gin", 'training.run.workdir=""'], "training.run.workdir is empty: name a folder"),
    "a run at home": (["run", "recipe.gin", "WORKDIR=~/run"], "~/run begins with ~, which no shell has replaced"),
    "a run among text": (["run", "recipe.gin", "WORKDIR=text"], "WORKDIR text is the folder of the text"),
    "a run within text": (["run", "recipe.gin", "WORKDIR=text/run"], "WORKDIR text/run is in the folder of the text"),
    "no time": (["solve", "--kept", "9M", "--vocabulary", "900", "--max-latency", "0"], "'0' is not a positive number"),
    "nowhere to write": (
        ["benchmark", "recipe.gin", "--out", "none/x.json"],
        "none/x.json cannot be written: there is no folder none",
    ),
    "predictions in the way": (["predict", "text", "x.tsv", "--out", "recipe.gin"], "recipe.gin already exists"),
    "a task to another format": (
        ["convert", "text", "out", "--from", "run", "--to", "huggingface", "--task", "own"],
        "--task needs --from run, and --to savedmodel or preset",
    ),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_mistakes_cost_one_line_and_exit_code_2(what, project, command):
    arguments, message = MISTAKES[what]
    code, out, err = command(*arguments, cwd=project)
    lines = [line for line in err.splitlines() if line.startswith("rembed: ")]
    assert code == 2
    assert len(lines) == 1 and message in lines[0], err
    assert "Traceback" not in err + out
    assert not list(project.rglob("*.writing*"))


def test_a_package_beside_the_recipe_can_be_allowed(tmp_path, command, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "parts_of_mine").mkdir()
    (tmp_path / "parts_of_mine/table.py").write_text(
        "from rembed_keras.modeling.couplings import Extended\n\n\nclass Mine(Extended):\n    pass\n"
    )
    lines = ["from __gin__ import dynamic_registration", "from rembed_keras import modeling"]
    lines += ["from parts_of_mine import table", 'include "recipes/quickstart.gin"', "OUTPUT_EMBEDDING_DIM = 65"]
    (tmp_path / "recipe.gin").write_text("\n".join([*lines, "modeling.MaskedLM.coupling = @table.Mine", ""]))
    asked = ["inspect", "recipe.gin", "--allow-import", "parts_of_mine"]
    code, out, error = command(*asked, cwd=tmp_path)
    assert code == 0 and "without use: COUPLING" in error and "dropped" in out
    code, _, error = command(*asked, "modeling.MaskedLM.coupling=@table.Yours", cwd=tmp_path)
    assert code == 2 and error.endswith("rembed: there is no table.Yours\n")
    code, _, error = command(*asked[:-1], "parts_of_yours", cwd=tmp_path)
    assert code == 2 and error.startswith("rembed: --allow-import parts_of_yours: there is no such package here")


def test_the_quickstart_says_how_to_go_on_in_commands_that_can_be_typed():
    done = subprocess.run(["make", "-n", "quickstart"], cwd=ROOT, capture_output=True, text=True, check=True)
    said = done.stdout.partition("How to go on:'")[2]
    advice = re.findall(r"'  rembed (.+?) +# .*'", said)
    assert len(advice) == 4
    for name, *words in map(str.split, advice):
        cli.rembed.commands[name].make_context(name, words)
    assert max(map(len, re.findall(r"'(.*)'", said))) <= 80


@pytest.mark.slow
def test_a_run_is_converted_trimmed_and_extended(project, command):
    def done(*arguments):
        code, out, err = command(*arguments, cwd=project)
        assert code == 0, err
        return out.splitlines()

    done("run", "recipe.gin", "WORKDIR=run")
    assert done("convert", "run", "preset", "--from", "run", "--to", "preset") == ["preset: preset"]
    assert done("convert", "preset", "hf", "--from", "preset", "--to", "huggingface")[-1] == "hf: huggingface"
    assert (project / "hf/sentencepiece.model").read_bytes() == (project / "run/corpus/tokenizer.model").read_bytes()
    lines = done("trim", "preset", "small", "--text", "text", "--languages", " en")
    assert lines[1] == "en: the pieces of 0.00% of its tokens are removed" and "of 900 pieces" in lines[-1]
    (project / "new.txt").write_text("\u2581Menschenrechte\n", encoding="utf-8")
    assert done("extend", "small", "more", "--pieces", "new.txt") == ["more: 1 pieces added"]
    code, _, err = command("extend", "small", "more", "--pieces", "new.txt", cwd=project)
    assert (code, err) == (2, "rembed: more already exists: remove it or choose another folder\n")


def test_a_backend_that_is_not_ours(monkeypatch, capsys):
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    monkeypatch.setattr(sys, "argv", ["rembed", "run", "recipes/quickstart.gin"])
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    assert exit_.value.code == 2
    assert capsys.readouterr().err == (
        "rembed: KERAS_BACKEND torch cannot be used: install and name one of tensorflow, jax\n"
    )


def test_a_folder_that_cannot_be_written(project, command):
    if os.geteuid() == 0:
        target = "/proc/rembed"  # root can write anywhere else
    else:
        (project / "locked").mkdir(mode=0o500)
        target = str(project / "locked" / "run")
    code, _, err = command("run", "recipe.gin", f"WORKDIR={target}", cwd=project)
    assert code == 2
    assert err.strip().splitlines()[-1].startswith(f"rembed: WORKDIR {target} cannot be used: ")


def test_anything_else_is_a_bug_with_a_traceback(monkeypatch):
    def broken(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr(cli.rembed, "main", broken)
    with pytest.raises(ZeroDivisionError):
        cli.main()


def test_a_message_is_one_line_whatever_is_behind_it(monkeypatch, capsys):
    def mistaken(*_, **__):
        raise UserError("text.txt is empty\n  In call to configurable 'prepare'")

    monkeypatch.setattr(cli.rembed, "main", mistaken)
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    assert (exit_.value.code, capsys.readouterr().err) == (2, "rembed: text.txt is empty\n")


def test_a_mistake_that_a_layer_finds_is_said_without_what_keras_puts_around_it(capsys):
    encoder = Encoder(20, 1, 1, 8, 8, 4, max_sequence_length=4)
    rows = np.ones((1, 5), "int32")
    with pytest.raises(SystemExit) as ended, reported_in_one_line():
        encoder({"token_ids": rows, "segment_ids": rows * 0, "padding_mask": rows})
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("rembed: a document is longer than max_sequence_length, 4: cut it, or")


@pytest.mark.parametrize("becomes", [SystemError, OSError, UserError])
def test_a_signal_that_code_makes_an_error_of_stops_all_the_same(becomes, capsys):
    """C code that calls Python's back makes a SystemError of the exception."""

    def interrupted():
        with reported_in_one_line():
            try:
                os.kill(os.getpid(), signal.SIGTERM)
            except Interrupted:
                raise becomes("something else") from None

    with pytest.raises(SystemExit) as ended:
        interrupted()
    assert ended.value.code == 75
    assert capsys.readouterr().err == "rembed: stopped by SIGTERM; the same command resumes\n"


def test_a_signal_whose_exception_is_lost_leaves_no_model(tmp_path):
    def interrupted():
        with reported_in_one_line(), written_whole(tmp_path / "model") as folder:
            (folder / "weights").touch()
            with contextlib.suppress(Interrupted):
                os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(SystemExit) as ended:
        interrupted()
    assert ended.value.code == 75
    assert not list(tmp_path.iterdir())


def test_version_and_help_load_no_framework():
    code = (
        "import sys; sys.argv = ['rembed', '--version']\n"
        "from rembed_keras.cli import main\ntry: main()\n"
        "finally: print([m for m in ('tensorflow', 'keras', 'grain', 'gin', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert __version__ in done.stdout and done.stdout.splitlines()[-1] == "[]"
