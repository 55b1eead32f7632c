"""Loss terms in both stages: killed and resumed, with teachers from where models are, and what is refused."""

import json
import shutil
from functools import partial

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file

from rembed_keras.adaptation.teachers import Teacher
from rembed_keras.adaptation.terms import MiniLM, RDrop, SupervisedContrast
from rembed_keras.errors import UserError
from rembed_keras.modeling import Encoder
from rembed_keras.training.loop.workdir import Workdir
from tests.training.pretraining import eagerly, learn, rows
from tests.training.pretraining import make_encoder as make_tiny
from tests.training.stages.test_finetune import TASKS
from tests.training.stages.test_finetune import learn as fine_tune

make_encoder = partial(make_tiny, max_sequence_length=32, dropout=0.2)


def run(folder, corpus, terms=(), steps=2, layers=1):
    learn(folder, corpus, partial(make_encoder, layers), terms=terms, steps=steps, log_every=3, checkpoint_every=1)


def weights(folder, step):
    path = folder / f"checkpoints/step-{step:08d}"
    return {name: load_file(path / f"{name}.safetensors") for name in ("encoder", "head", "optimizer")}


@pytest.fixture(scope="module")
def teacher(corpus, tmp_path_factory):
    """A run whose encoder teaches."""
    folder = tmp_path_factory.mktemp("teacher")
    (folder / "corpus").symlink_to(corpus.path)
    with eagerly():
        run(folder, corpus, steps=1, layers=2)
    return folder


@pytest.mark.usefixtures("without_graphs")
def test_a_run_with_terms_that_was_stopped_ends_in_the_same_bits(corpus, teacher, tmp_path):
    def terms():
        return [MiniLM(Teacher(str(teacher)), weight={0: 1.0, 1: 5.0}), RDrop(weight=0.5)]

    run(tmp_path / "whole", corpus, terms())
    shutil.copytree(tmp_path / "whole", tmp_path / "stopped")  # as it was after a step
    shutil.rmtree(tmp_path / "stopped/checkpoints/step-00000002")
    with pytest.raises(UserError, match=r"trained with loss terms \['mini_lm', 'r_drop'\], and the recipe has \[\]"):
        run(tmp_path / "stopped", corpus, [RDrop(weight=0)])
    run(tmp_path / "stopped", corpus, terms())
    whole, stopped = (weights(tmp_path / name, 2) for name in ("whole", "stopped"))
    for part, arrays in whole.items():
        assert arrays.keys() == stopped[part].keys()
        for name, values in arrays.items():
            np.testing.assert_array_equal(values, stopped[part][name], err_msg=name)
    last = rows(tmp_path / "whole")[-1]
    assert last == rows(tmp_path / "stopped")[-1]
    assert last["mini_lm"] > 0
    assert last["r_drop"] > 0
    assert last["mini_lm/weight"] == 3.0  # the mean over both steps
    state = json.loads((tmp_path / "whole/checkpoints/step-00000002/state.json").read_text())
    assert state["state"]["terms"] == ["mini_lm", "r_drop"]
    assert len(load_file(tmp_path / "whole/checkpoints/step-00000002/encoder.safetensors")) == len(
        make_encoder().weights
    )


@pytest.mark.usefixtures("without_graphs")
def test_fine_tuning_has_terms_and_a_teacher_that_outlives_a_failure(corpus, teacher, tmp_path):
    workdir = Workdir(tmp_path / "run")
    (workdir.path / "corpus").symlink_to(corpus.path)
    asked = Teacher(str(teacher))
    task = TASKS["classification"]()
    terms = [SupervisedContrast(), MiniLM(asked, weight=1e38)]
    settings = {"epochs": 1, "terms": terms, "learning_rates": (1e30,), "encoder": make_encoder}
    try:
        fine_tune(workdir, task, **settings)
        failed = list((workdir.path / "finetuned").rglob("failed.json"))
        again = TASKS["classification"]()
        again.name = "again"
        values = [np.asarray(weight) for weight in asked.weights]
        terms[1] = MiniLM(asked)
        fine_tune(workdir, again, **settings | {"learning_rates": (1e-3,)})
    finally:
        workdir.close()
    assert json.loads(failed[0].read_text())["dtype"] == "float32"  # the encoder's
    logged = [row for row in rows(workdir.path) if row["run"].startswith("finetune/again")]
    assert logged[-1]["supervised_contrast"] > 0
    assert logged[-1]["mini_lm"] > 0
    for weight, value in zip(asked.weights, values, strict=True):
        np.testing.assert_array_equal(np.asarray(weight), value)
    costs = json.loads((workdir.path / "ledger.json").read_text())["tasks"]["again"]
    assert costs["teacher"] == asked.encoder.count_params()
    (state,) = (workdir.path / "finetuned/again").rglob("state.json")
    assert json.loads(state.read_text())["state"]["read"] == [["teacher", asked.sha256]]
    there = json.loads((workdir.path / "finetuned/again/settings.json").read_text())
    assert there["terms"] == ["SupervisedContrast", "MiniLM"]


def test_a_teacher_of_another_tokenizer_or_place_is_refused(corpus, teacher, text_dir, tmp_path):
    with pytest.raises(UserError, match="is not a folder of a model"):
        run(tmp_path / "run", corpus, [MiniLM(Teacher(str(tmp_path / "none")))])
    from rembed_keras.data.prepare.corpora import prepare

    other = prepare(text_dir, tmp_path / "other", vocabulary_size=800)
    with pytest.raises(UserError, match=r"was trained with the tokenizer .*: a teacher reads what the student reads"):
        run(tmp_path / "run", other, [MiniLM(Teacher(str(teacher)))])
    small = Encoder(700, 1, 2, 8, 16, 8, max_sequence_length=32)
    with pytest.raises(UserError, match=r"^the teacher: the corpus has 900 word pieces; .* vocabulary_size is 700"):
        run(tmp_path / "run", corpus, [MiniLM(Teacher(small))])
    short = Encoder(900, 1, 2, 8, 16, 8, max_sequence_length=8)
    with pytest.raises(UserError, match="max_sequence_length is 8"):
        run(tmp_path / "run", corpus, [MiniLM(Teacher(short))])
    assert not (tmp_path / "run/checkpoints").exists()


@pytest.mark.usefixtures("without_graphs")
def test_a_preset_teaches(corpus, tmp_path):
    keras.utils.set_random_seed(0)
    encoder = make_encoder(2)
    encoder.save_to_preset(str(tmp_path / "preset"))
    asked = Teacher(str(tmp_path / "preset"))
    run(tmp_path / "run", corpus, [MiniLM(asked)], steps=1)
    for ours, theirs in zip(asked.weights, encoder.weights, strict=True):
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))
    assert rows(tmp_path / "run")[-1]["mini_lm"] > 0
