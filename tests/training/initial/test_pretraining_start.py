"""Pre-training that starts from a trained encoder: weights, tokenizer, resuming, replicas, both backends."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file

from rembed_keras import config
from rembed_keras.data.prepare.corpora import prepare
from rembed_keras.errors import UserError
from rembed_keras.modeling import Encoder, LateMaskedLM, MaskedLM, ReplacedTokenDetection
from rembed_keras.modeling.blocks import PreNorm
from rembed_keras.training.initial.encoder_start import EncoderStart
from rembed_keras.training.initial.pretraining_start import PretrainingStart
from rembed_keras.training.initial.weights import InitialWeights
from rembed_keras.training.loop import checkpoints, restoring, starting
from rembed_keras.training.loop.workdir import MEASURED, Workdir
from tests.modeling.forward import forward
from tests.modeling.test_encoder import FIRST, make_inputs
from tests.training.pretraining import eagerly

ROOT = Path(__file__).parents[3]
RECIPE = """\
from __gin__ import dynamic_registration
from rembed_keras import modeling
from rembed_keras import training
include "gin/models/tiny.gin"
include "gin/objectives/masked_lm.gin"
include "gin/optimizers/schedule_free.gin"
include "gin/runtime/pretrain.gin"
include "gin/data/folder.gin"
STEPS = 4
CHECKPOINT_EVERY = 2
LOG_EVERY = 1
LEARNING_RATE = 1e-2
WARMUP_STEPS = 1
BATCH_SIZE = 8
SEQUENCE_LENGTH = 16
VOCABULARY_SIZE = 900
NUM_LAYERS = 1
INPUT_EMBEDDING_DIM = 4
OUTPUT_EMBEDDING_DIM = 6
modeling.Encoder.hidden_dim = 8
modeling.Encoder.intermediate_dim = 16
modeling.Encoder.max_sequence_length = 32
training.pretrain.jit_compile = False
training.run.stages = [@training.prepare, @training.pretrain]
"""
CUT = """
training.pretrain.initial = @training.InitialWeights()
training.prepare.initial = @training.InitialWeights()
training.InitialWeights.place = %INITIAL
training.InitialWeights.num_layers = %NUM_LAYERS
training.InitialWeights.keep = "top"
"""


def make_encoder(**changes):
    sizes = {"vocabulary_size": 900, "num_layers": 2, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 16}
    return Encoder(**(sizes | {"input_embedding_dim": 4, "max_sequence_length": 32} | changes))


def source(folder, corpus, make=MaskedLM, **changes):
    """A run's folder with a checkpoint of two layers."""
    keras.utils.set_random_seed(3)
    model = make(make_encoder(**changes), 6)
    parts = {name: checkpoints.read_arrays(owned) for name, owned in restoring.parts_of(model).items()}
    checkpoints.save(folder / "checkpoints", 7, parts, {"running": []} | restoring.state_of(model))
    shutil.copytree(corpus.path, folder / "corpus")
    return model


@pytest.fixture
def load(tmp_path, text_dir, monkeypatch):
    """Loads a recipe that starts from `old`, in a folder of its own."""
    (tmp_path / "plain.gin").write_text(RECIPE)
    (tmp_path / "cut.gin").write_text(RECIPE + CUT)
    (tmp_path / "gin").symlink_to(ROOT / "gin")
    monkeypatch.chdir(tmp_path)

    def load(name="cut", **knobs):
        knobs = {"TEXT_DIR": text_dir, "INITIAL": "old", "WORKDIR": "new"} | knobs
        return config.load(f"{name}.gin", [f"{key}={value}" for key, value in knobs.items()])

    return load


def begin(tmp_path, corpus, initial, encoder, model):
    workdir = Workdir(tmp_path / "run")
    try:
        start = PretrainingStart(workdir, initial, corpus.tokenizer)
        keras.utils.set_random_seed(5)
        return start.make(encoder, model)
    finally:
        workdir.close()


def values(weights):
    return [np.asarray(checkpoints.read(weight)) for weight in weights]


def assert_equal(ours, theirs):
    for one, two in zip(values(ours), values(theirs), strict=True):
        np.testing.assert_array_equal(one, two)


HEADS = {
    "the same": (lambda encoder: MaskedLM(encoder, 6), True),
    "of another width": (lambda encoder: MaskedLM(encoder, 8), False),
    "coupled": (lambda encoder: MaskedLM(encoder, 4, coupling="coupled"), False),
    "of another objective": (lambda encoder: LateMaskedLM(encoder, 6), False),
    "disentangled": (lambda encoder: ReplacedTokenDetection(encoder, 6, sharing="gdes"), False),
}


@pytest.mark.parametrize("name", HEADS)
def test_the_encoder_starts_and_its_head_if_it_is_the_same(name, tmp_path, corpus, capsys):
    make, has_head = HEADS[name]
    old = source(tmp_path / "old", corpus)
    new = begin(tmp_path, corpus, str(tmp_path / "old"), make_encoder, make)
    said = "its pre-training head too" if has_head else "the pre-training head is new"
    assert f"pretrain: starts from {tmp_path / 'old'} step 7; {said}\n" in capsys.readouterr().out
    before = values(old.encoder.weights)
    assert_equal(new.drop_heads().weights, old.encoder.weights)  # folded, to the bit
    keras.utils.set_random_seed(5)
    untrained = make(make_encoder())
    if has_head:
        assert_equal(new.droppable_variables, old.droppable_variables)
    else:
        paths = {weight.path: weight for weight in untrained.droppable_variables}
        for weight in new.droppable_variables:
            if weight.path.startswith(("head/dense", "detector")):
                np.testing.assert_array_equal(*values([weight, paths[weight.path]]))
    record = json.loads((tmp_path / "run/initial_weights.json").read_text())
    assert record["head"] == has_head and record["sha256"] == starting.checksum(old.encoder.weights)
    assert record["place"] == str(tmp_path / "old/checkpoints/step-00000007")
    assert all(np.array_equal(*pair) for pair in zip(before, values(old.encoder.weights), strict=True))


@pytest.mark.parametrize(
    ("make", "sharing"), [(ReplacedTokenDetection, "embeddings"), (ReplacedTokenDetection, "gdes")]
)
def test_a_head_of_several_tables_comes_along(make, sharing, tmp_path, corpus):
    old = source(tmp_path / "old", corpus, lambda *arguments: make(*arguments, sharing=sharing))
    for table in old.droppable_variables:
        table.assign(np.full(table.shape, 0.25))
    old.fold()
    shutil.rmtree(tmp_path / "old")
    parts = {name: checkpoints.read_arrays(owned) for name, owned in restoring.parts_of(old).items()}
    checkpoints.save(tmp_path / "old/checkpoints", 7, parts, {"running": []} | restoring.state_of(old))
    shutil.copytree(corpus.path, tmp_path / "old/corpus")
    new = begin(
        tmp_path, corpus, str(tmp_path / "old"), make_encoder, lambda encoder: make(encoder, 6, sharing=sharing)
    )
    assert_equal(new.droppable_variables, old.droppable_variables)
    assert_equal(new.drop_heads().weights, old.encoder.weights)


def test_changes_are_made_and_printed_and_a_frozen_table_is_the_trained_one(tmp_path, corpus, capsys):
    old = source(tmp_path / "old", corpus, block=PreNorm)
    initial = InitialWeights(str(tmp_path / "old"), num_layers=1, scalar_mix=True)
    changes = {"num_layers": 1, "scalar_mix": True, "block": PreNorm, "freeze_input_embedding": True}
    new = begin(tmp_path, corpus, initial, lambda: make_encoder(**changes), lambda encoder: MaskedLM(encoder, 6))
    out = capsys.readouterr().out
    assert "step 7: layer 0 of 2 (bottom), a scalar mix is added; its pre-training head too\n" in out
    assert_equal(new.encoder.token_embedding.weights, old.encoder.token_embedding.weights)
    assert not new.encoder.token_embedding.trainable_variables
    inputs = make_inputs([[FIRST]], 7)
    ours, theirs = (forward(each, inputs)["sequence_output"] for each in (new.encoder, old.encoder.with_layers(1)))
    np.testing.assert_allclose(ours, theirs, atol=1e-4)
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(UserError, match="InitialWeights has no place: pre-training cannot start from its own run"):
        begin(tmp_path, corpus, InitialWeights(num_layers=1), make_encoder, MaskedLM)


def test_languages_of_all_pre_training_before_are_known(tmp_path, corpus):
    source(tmp_path / "old", corpus)
    (tmp_path / "text").mkdir()
    (tmp_path / "text/fi.txt").write_text("Avaa tiedosto ja tallenna se.\n" * 20, encoding="utf-8")
    for number, before in enumerate(("old", "run0")):
        new = begin(tmp_path, corpus, str(tmp_path / before), make_encoder, lambda encoder: MaskedLM(encoder, 6))
        run = (tmp_path / "run").rename(tmp_path / f"run{number}")
        parts = {name: checkpoints.read_arrays(owned) for name, owned in restoring.parts_of(new).items()}
        checkpoints.save(run / "checkpoints", 1, parts, {"running": []} | restoring.state_of(new))
        if number == 0:
            prepare(tmp_path / "text", run / "corpus", tokenizer=corpus.tokenizer.path)
    assert EncoderStart(tmp_path / "run0", make_encoder).languages == ["de", "en", "fi", "ja"]
    assert EncoderStart(tmp_path, None, str(tmp_path / "run1")).languages == ["de", "en", "fi", "ja"]


def log_of(folder):
    rows = [json.loads(line) for line in Path(folder, "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key not in MEASURED} for row in rows]


@pytest.mark.usefixtures("without_graphs")
def test_a_run_is_resumed_without_what_it_started_from_and_ends_in_the_same_bits(load, corpus, tmp_path, capsys):
    source(tmp_path / "old", corpus)
    config.run(load())
    assert "pretrain: starts from old step 7: layer 1 of 2 (top); its pre-training head too" in capsys.readouterr().out
    tokenizers = [Path(run, "corpus/tokenizer.model").read_bytes() for run in ("old", "new")]
    assert tokenizers[0] == tokenizers[1]
    shutil.copytree("new", "killed")
    shutil.rmtree("killed/checkpoints/step-00000004")
    Path("killed/finished.json").unlink()
    Path("old").rename("gone")
    config.run(load(WORKDIR="killed"))
    assert "starts from" not in capsys.readouterr().out
    assert log_of("killed") == log_of("new")
    for file in Path("new/checkpoints/step-00000004").glob("*.safetensors"):
        assert file.read_bytes() == Path("killed/checkpoints/step-00000004", file.name).read_bytes(), file
    running = [json.loads(Path(run, "checkpoints/step-00000004/state.json").read_text()) for run in ("new", "killed")]
    assert running[0]["state"]["running"] == running[1]["state"]["running"]
    for file in ("initial_weights.json", "corpus/manifest.json"):
        assert Path("killed", file).read_text() == Path("new", file).read_text()
    with pytest.raises(UserError, match="is of another recipe: INITIAL is"):
        config.run(load(WORKDIR="killed", INITIAL="elsewhere"))
    with pytest.raises(UserError, match=r"^old is not a folder of a model"):
        config.run(load(WORKDIR="third"))
    assert not Path("third/corpus").exists()


@pytest.mark.usefixtures("without_graphs")
def test_another_structure_or_tokenizer_is_refused_before_anything_is_prepared(load, corpus, tmp_path):
    source(tmp_path / "old", corpus)
    refused = {
        "num_layers is 2 there and 1 in the recipe's encoder: name num_layers": load("plain"),
        "vocabulary_size is 900 there and 800 in the recipe's encoder: .*VOCABULARY_SIZE: command line": load(
            VOCABULARY_SIZE=800
        ),
        "kept_layers is 3; this encoder has 2 to keep from": load(NUM_LAYERS=3),
    }
    for message, recipe in refused.items():
        for check in (config.ledger_of, config.run):
            with pytest.raises(UserError, match=message):
                check(recipe)
    model = tmp_path / "old/corpus/tokenizer.model"
    theirs = tmp_path / "theirs.model"
    theirs.write_bytes(model.read_bytes() + b"\xc0\x0c\x01")  # an unknown field more: the same pieces, another file
    with pytest.raises(UserError, match=r"was trained with the tokenizer .*, and the corpus was prepared with another"):
        config.run(load(TOKENIZER=theirs))
    assert not Path("new/corpus").exists()
    config.run(load(TOKENIZER=model))
    assert Path("new/checkpoints/step-00000004").is_dir()


@pytest.mark.slow
@pytest.mark.skipif(keras.config.backend() != "tensorflow", reason="once is enough")
def test_two_replicas_of_each_backend_start_as_one_device_does(load, corpus, tmp_path, mirrored, capsys):
    source(tmp_path / "old", corpus)
    shutil.copytree(load().knobs()["TEXT_DIR"]["value"], "text")
    with eagerly():  # a few eager steps are quicker than a graph
        config.run(load(TEXT_DIR="text", STEPS=2, WORKDIR="one_device"))
        for strategy in ("mirrored", "data_parallel"):  # what all of them would prepare
            shutil.copytree("one_device/corpus", Path(strategy, "corpus"))
        config.run(load(TEXT_DIR="text", STEPS=2, WORKDIR="mirrored", STRATEGY="mirrored"))
    of_jax = ["cut.gin", "INITIAL=old", "TEXT_DIR=text", "STEPS=2", "STRATEGY=data_parallel", "WORKDIR=data_parallel"]
    environment = {"KERAS_BACKEND": "jax", "PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    environment |= {"XLA_FLAGS": os.environ["XLA_FLAGS"]}
    command = [sys.executable, "-m", "tests.training.recipe_runs", json.dumps([of_jax])]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    said = capsys.readouterr().out + done.stdout
    assert said.count("pretrain: starts from old step 7: layer 1 of 2 (top)") == 3
    for strategy in ("mirrored", "data_parallel"):
        for one, two in zip(log_of("one_device"), log_of(strategy), strict=True):
            assert one["loss"] == pytest.approx(two["loss"], rel=1e-5)
        one, two = (
            load_file(Path(run, "checkpoints/step-00000002/encoder.safetensors")) for run in ("one_device", strategy)
        )
        for path, value in one.items():
            np.testing.assert_allclose(two[path], value, rtol=1e-3, atol=1e-5, err_msg=path)
        records = [json.loads(Path(run, "initial_weights.json").read_text()) for run in ("one_device", strategy)]
        assert records[0] == records[1]
