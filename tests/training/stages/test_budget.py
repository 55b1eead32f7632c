"""What a run will read, against a count of what it reads."""

import json
import sys
import time
from contextlib import closing

import numpy as np
import pytest

from rembed_keras import cli, config
from rembed_keras.data.pipeline.mixture import Mixture
from rembed_keras.data.pipeline.phases import Phase
from rembed_keras.errors import UserError
from rembed_keras.training import Budget, benchmark
from rembed_keras.training.loop.workdir import Workdir

RECIPE = """\
from __gin__ import dynamic_registration
from rembed_keras import training
include "gin/models/tiny.gin"
include "gin/objectives/masked_lm.gin"
include "gin/optimizers/adamw.gin"
include "gin/runtime/pretrain.gin"
include "gin/data/folder.gin"
VOCABULARY_SIZE = 900
training.run.stages = [@training.prepare, @training.pretrain]
"""


def test_it_counts_what_batches_hold(corpus):
    batches = Mixture(corpus, 8, 32, alpha={0: 0.7, 13: 0.2})
    shown = Budget(batches, 40).to_json()
    rows = np.bincount(np.concatenate([batches[step][0]["language_ids"] for step in range(40)]))
    for language, count in zip(corpus.languages, rows, strict=True):
        entry = shown["languages"][language]
        assert entry["read"] == count * 32
        assert entry["epochs"] == pytest.approx(count * 32 / corpus.num_tokens[language])
        assert entry["share_of_read"] == pytest.approx(count / 320)
    assert shown["all"]["read"] == 40 * 8 * 32
    assert shown["all"]["tokens"] == sum(corpus.num_tokens.values())


def test_the_command_prepares_text_and_builds_no_model(text_dir, tmp_path, monkeypatch, capsys):
    (tmp_path / "recipe.gin").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)

    def never(*_, **__):
        raise AssertionError("a model was built")

    monkeypatch.setattr("keras.Model.__init__", never)
    knobs = [f"TEXT_DIR={text_dir}", "STEPS=50", "BATCH_SIZE=4", "SEQUENCE_LENGTH=16", "WORKDIR=run"]

    def typed(*arguments):
        monkeypatch.setattr(sys, "argv", ["rembed", "budget", "recipe.gin", *knobs, *arguments])
        cli.main()
        return capsys.readouterr().out

    shown = json.loads(typed("--json"))
    assert list(shown["languages"]) == ["de", "en", "ja"] and shown["all"]["read"] == 50 * 4 * 16
    assert [path.name for path in (tmp_path / "run").iterdir() if not path.name.startswith(".")] == ["corpus"]
    table = typed("ALPHA={0: 1.0, 25: 0.0}")
    assert "50 x 4 x 16" in table and "corpus:" not in table  # the text is there
    assert table.index("│ en") < table.index("│ de") < table.index("│ all")
    with pytest.raises(SystemExit):
        typed("HELD_OUT=0.1")
    assert "run/corpus has a corpus of other text or settings: remove it" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        typed("STEPS=0")
    assert capsys.readouterr().err == "rembed: command line: STEPS is 0; it must be a positive whole number\n"


@pytest.mark.parametrize(
    ("knob", "message"),
    [
        ("training.run.workdir=''", "training.run.workdir is empty: name a folder"),
        ("WORKDIR=~/run", "WORKDIR ~/run begins with ~, which no shell has replaced"),
        ("WORKDIR=text", "WORKDIR text is the folder of the text: choose another"),
        ("WORKDIR=text/run", "WORKDIR text/run is in the folder of the text, text: choose one elsewhere"),
    ],
)
def test_a_folder_that_no_run_takes_is_refused(knob, message, text_dir, tmp_path, command):
    (tmp_path / "recipe.gin").write_text(RECIPE)
    (tmp_path / "text").mkdir()
    (tmp_path / "text/en.txt").symlink_to(text_dir / "en.txt")
    before = sorted(tmp_path.rglob("*"))
    code, out, err = command("budget", "recipe.gin", "TEXT_DIR=text", knob, cwd=tmp_path)
    assert (code, out) == (2, "") and err.startswith(f"rembed: {message}")
    assert sorted(tmp_path.rglob("*")) == before


SCOPED = """
from rembed_keras import data
from rembed_keras import modeling
main/data.Mixture.batch_size = 4
main/training.prepare.languages = ["en", "de"]
main/modeling.MaskedLM.output_embedding_dim = 24
training.run.stages = [@main/training.prepare, @main/training.pretrain]
training.pretrain.jit_compile = False
"""


@pytest.fixture
def asked(tmp_path, text_dir, corpus, command, monkeypatch):
    """Runs a command on a recipe whose stages have a scope, and on one of a corpus that is there."""
    monkeypatch.setattr("rembed_keras.training.stages.benchmark.product_rate", lambda dtype: 1.0)
    (tmp_path / "recipe.gin").write_text(RECIPE + SCOPED + f'TEXT_DIR = "{text_dir}"\n')
    text = (RECIPE + SCOPED).replace("data/folder.gin", "data/mixture.gin").replace("@main/training.prepare, ", "")
    lines = [line for line in text.splitlines() if "training.prepare" not in line]
    (tmp_path / "there.gin").write_text("\n".join([*lines, f'training.pretrain.corpus = "{corpus.path}"\n']))
    knobs = ["STEPS=50", "SEQUENCE_LENGTH=16", "WORKDIR=run"]
    return lambda name, recipe, *words: command(name, recipe, *knobs, *words, cwd=tmp_path)


def test_the_command_counts_in_the_scope_of_the_stages(asked):
    code, out, err = asked("budget", "recipe.gin", "--json")
    assert code == 0, err
    shown = json.loads(out)
    assert list(shown["languages"]) == ["de", "en"] and shown["all"]["read"] == 50 * 4 * 16


def test_each_of_several_pretrainings_is_counted(asked):
    stages = "training.run.stages=[@main/training.pretrain, @more/training.pretrain]"
    more = ["more/training.pretrain.steps=80", "more/data.Mixture.sequence_length={0: 16, 60: 32}"]
    more += ["more/data.Mixture.batch_size=2", "more/modeling.MaskedLM.output_embedding_dim=24", stages]
    code, out, err = asked("budget", "there.gin", *more, "--json")
    assert code == 0, err
    shown = json.loads(out)
    assert (shown["steps"], shown["all"]["read"]) == (80, 50 * 4 * 16 + 10 * 2 * 16 + 20 * 2 * 32)
    assert sum(entry["read"] for entry in shown["languages"].values()) == shown["all"]["read"]
    assert "What 50 x 4 x 16 + 10 x 2 x 16 + 20 x 2 x 32 tokens read" in asked("budget", "there.gin", *more)[1]
    code, _, err = asked("budget", "there.gin", *more, 'more/training.pretrain.corpus="other"')
    assert code == 2 and "in the same WORKDIR, and has other corpus: " in err


@pytest.mark.usefixtures("without_graphs")
def test_a_benchmark_is_of_the_scope_of_the_stages_and_of_a_corpus_that_is_there(asked, tmp_path, monkeypatch):
    timed = []
    monkeypatch.setattr(
        "rembed_keras.training.stages.benchmark._reading_rate",
        lambda batches: timed.append((batches.corpus.languages, batches.batch_size)) or 1.0,
    )
    code, _, err = asked("benchmark", "recipe.gin", "--steps", "2", "--out", "scoped.json")
    assert code == 0, err
    grows = "SEQUENCE_LENGTH={0: 16, 40: 32}"
    code, _, err = asked("benchmark", "there.gin", "--steps", "2", grows, "--out", "there.json")
    assert code == 0, err
    assert timed == [(["de", "en"], 4), (["de", "en", "ja"], 4)]
    assert json.loads((tmp_path / "scoped.json").read_text())["share_of_products"] > 0  # so its ledger is known
    report = json.loads((tmp_path / "there.json").read_text())  # of rows of 16 tokens, as they were timed
    per_token = report["training_flops_per_second"] / report["training_tokens_per_second"]
    assert per_token == pytest.approx(_flops_per_token(tmp_path, 16)) != _flops_per_token(tmp_path, 32)
    assert not (tmp_path / "run").exists()


def _flops_per_token(folder, length):
    recipe = config.load(str(folder / "there.gin"), [f"SEQUENCE_LENGTH={length}"])
    return config.ledger_of(recipe).training_flops["total"]


def test_the_time_until_the_first_step_is_without_those_of_a_later_phase(tmp_path, monkeypatch):
    own = "rembed_keras.training.stages.benchmark"
    for name, fake in (("product_rate", lambda dtype: 1.0), ("_reading_rate", lambda batches: 1.0), ("Corpus", str)):
        monkeypatch.setattr(f"{own}.{name}", fake)
    phases = [Phase(0, 3, 64, 32), Phase(3, 9, 2, 32)]

    def pretrain(workdir, **arguments):
        time.sleep(0.1)
        for step in range(1, 10):
            size = phases[step > 3].tokens_per_step
            seconds = None if step in (1, 4) else 0.01
            speed = {"tokens_per_second": seconds and size / seconds, "seconds_per_step": seconds}
            speed |= {"training_flops_per_second": 7.0}
            workdir.metrics.append({"stage": "pretrain", "run": "pretrain", "step": step} | speed)

    found = []
    for strategy in ("one_device", "mirrored"):  # of two devices there is no share of one's products
        with closing(Workdir(tmp_path / strategy)) as workdir:
            benchmark(workdir, pretrain, lambda corpus: None, steps=8, strategy=strategy)
        found.append(json.loads((tmp_path / strategy / "benchmark.json").read_text()))
    assert 0 < found[0]["seconds_until_first_step"] < 60
    assert [each.get("share_of_products") for each in found] == [7.0, None]


def test_steps_of_which_each_begins_a_phase_have_no_pace(tmp_path, monkeypatch):
    own = "rembed_keras.training.stages.benchmark"
    for name, fake in (("_reading_rate", lambda batches: 1.0), ("Corpus", str)):
        monkeypatch.setattr(f"{own}.{name}", fake)
    row = {"stage": "pretrain", "run": "pretrain", "tokens_per_second": None, "seconds_per_step": None}

    def pretrain(workdir, **arguments):
        for step in range(1, 4):
            workdir.metrics.append(row | {"step": step})

    with closing(Workdir(tmp_path)) as workdir, pytest.raises(UserError, match="time more with --steps"):
        benchmark(workdir, pretrain, lambda corpus: None, steps=2)
