"""A checkpoint of parameter-efficient fine-tuning holds what was trained; the rest is found again, or asked for."""

import json
import shutil

import keras
import numpy as np
import pytest

from rembed_keras.adaptation import Adapters, Biases, HeadOnly, LayerwiseDecay, Lora, Norms, Reinitialize, RoAd
from rembed_keras.errors import UserError
from rembed_keras.modeling import Encoder, MaskedLM
from rembed_keras.modeling.layers.adapters import merge
from rembed_keras.tasks import Classification, Tagging
from rembed_keras.tasks.kinds.examples import Labelled, Splits, Tagged
from rembed_keras.training import Answerer, InitialWeights, evaluate, finetune
from rembed_keras.training.initial.encoder_start import EncoderStart
from rembed_keras.training.initial.places import LANGUAGES
from rembed_keras.training.loop import checkpoints, restoring
from rembed_keras.training.loop.workdir import Workdir

pytestmark = pytest.mark.usefixtures("without_graphs")
EXAMPLES = [Labelled(str(i), word, None, ("yes", "no")[i % 2]) for i, word in enumerate(["save", "open", "the", "in"])]
SENTENCES = [Tagged(str(i), ("save", "the", "file"), ("B-X", "O", "O")) for i in range(4)]
MODELS = {"seeds": (0,), "jit_compile": False, "learning_rates": (0.01,), "sequence_length": 12}


def make_encoder(**changes):
    return Encoder(900, 2, 2, 8, 16, 4, max_sequence_length=32, **changes)


def pretrain(folder, corpus, seed=3, **changes):
    """A run's folder with a checkpoint of a masked LM, whose encoder has other weights than a fresh one."""
    keras.utils.set_random_seed(seed)
    model = MaskedLM(make_encoder(**changes), 6)
    parts = {name: checkpoints.read_arrays(owned) for name, owned in restoring.parts_of(model).items()}
    checkpoints.save(folder / "checkpoints", 7, parts, {"running": []} | restoring.state_of(model))
    (folder / "corpus").symlink_to(corpus.path)
    return model


@pytest.fixture
def workdir(corpus, tmp_path):
    made = Workdir(tmp_path / "run")
    pretrain(made.path, corpus)
    yield made
    made.close()


def optimizer(learning_rate):
    """One slot and few operations a variable, which are the half of an eager step with AdamW."""
    return keras.optimizers.Lion(learning_rate)


def classify(name="topics"):
    return Classification(name, Splits(EXAMPLES, {"en": EXAMPLES}, {"en": EXAMPLES}))


def tune_on(workdir, methods, task=None, **changes):
    """Fine-tunes once and returns the checkpoint's folder."""
    task = task or classify()
    settings = MODELS | {"encoder": make_encoder, "starts": ("pretrained",), "epochs": 1, "batch_size": 4} | changes
    finetune(workdir, optimizer, task, methods=methods, **settings)
    return checkpoints.latest(workdir.finetuned / task.name / f"{settings['starts'][0]}-lr0.01-seed0").path


def size_of(path):
    """Bytes of the numbers in a checkpoint's files of weights."""
    found = checkpoints.opened(path)
    arrays = [np.asarray(array) for part in ("encoder", "head") for array in found.arrays(part).values()]
    return sum(array.nbytes for array in arrays)


def stored(workdir, task="topics"):
    return json.loads((workdir.path / "ledger.json").read_text())["tasks"][task]["stored"]


def weights(path):
    model = restoring.restore(checkpoints.opened(path))
    return {weight.path: keras.ops.convert_to_numpy(weight) for weight in model.weights}


class Witness(keras.callbacks.Callback):
    """Keeps the weights of a model as they are after its last step."""

    seen: dict = {}

    def on_train_batch_end(self, batch, logs=None):
        if keras.config.backend() == "jax":
            self.model.jax_state_sync()
        Witness.seen = {weight.path: np.array(keras.ops.convert_to_numpy(weight)) for weight in self.model.weights}


def assert_witnessed(found):
    assert found.keys() == Witness.seen.keys()
    for key, value in Witness.seen.items():
        np.testing.assert_array_equal(found[key], value, err_msg=key)


METHODS = {
    "lora": [Lora(2), Norms(), LayerwiseDecay(0.9)],
    "biases and lora of every head": [Lora(2, per_head=True), Biases()],
    "adapters and road": [Adapters(2), RoAd(), Reinitialize(1)],
}


@pytest.mark.parametrize("name", METHODS)
def test_a_checkpoint_holds_what_was_trained_and_the_model_comes_back(name, workdir):
    path = tune_on(workdir, METHODS[name], callbacks=[Witness], batch_size=2)
    assert size_of(path) == 4 * stored(workdir)
    assert checkpoints.opened(path).state["start"]["place"] == "checkpoints/step-00000007"
    assert size_of(path) < sum(value.nbytes for value in Witness.seen.values())
    assert_witnessed(weights(path))


def test_what_all_of_trains_and_what_starts_from_scratch_is_whole(workdir):
    whole = tune_on(workdir, [])
    assert "start" not in checkpoints.opened(whole).state
    tags = Tagging("names", Splits(SENTENCES, {"en": SENTENCES}, {"en": SENTENCES}))
    assert "start" not in checkpoints.opened(tune_on(workdir, [], tags)).state  # its pooler is nobody's
    scratch = tune_on(workdir, [Lora(2)], classify("scratch"), starts=("scratch",))
    assert "start" not in checkpoints.opened(scratch).state
    assert size_of(scratch) > 4 * stored(workdir, "scratch")


@pytest.mark.parametrize("kind", ["run", "preset"])
def test_it_is_evaluated_and_answers_wherever_the_weights_are(kind, corpus, tmp_path):
    folder = tmp_path / "other"
    model = pretrain(folder, corpus)
    if kind == "preset":
        shutil.rmtree(folder)
        model.save_to_preset(str(folder))
        shutil.copy(corpus.tokenizer.path, folder / "tokenizer.model")
    workdir = Workdir(tmp_path / "run")
    how = {"encoder": None, "pretrained": str(folder), "seeds": (0, 1)}
    path = tune_on(workdir, [Lora(2)], **how)
    assert size_of(path) == 4 * stored(workdir)
    log = workdir.metrics.path.read_bytes()
    assert tune_on(workdir, [Lora(2)], **how) == path
    assert workdir.metrics.path.read_bytes() == log  # done
    evaluate(workdir, classify(), **(MODELS | {"starts": ("pretrained",)} | how))
    rows = (workdir.path / "predictions/topics/pretrained-seed0.en.jsonl").read_text().splitlines()
    answers = [answer for _, answer in Answerer(workdir.path).answers(EXAMPLES)]
    assert answers == [json.loads(row)["answer"] for row in rows]
    shutil.move(folder, tmp_path / "elsewhere")
    with pytest.raises(
        UserError, match=r"holds what fine-tuning trained; its starting weights, .*, are gone"
    ) as caught:
        Answerer(workdir.path)
    assert "\n" not in str(caught.value)
    workdir.close()


def test_the_preset_of_the_package_is_known_by_its_name_wherever_the_run_is(tmp_path, monkeypatch):
    workdir = Workdir(tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    how = {"encoder": None, "pretrained": "rembed_small"}
    path = tune_on(workdir, [Lora(2)], dtype="bfloat16", **how)
    assert checkpoints.opened(path).state["start"]["place"] == "rembed_small"
    monkeypatch.chdir("/")
    model = restoring.restore(checkpoints.opened(path))
    assert model.encoder.dtype_policy.name == "bfloat16"
    table = keras.ops.cast(Encoder.from_preset("rembed_small").token_embedding.embeddings, "bfloat16")
    np.testing.assert_array_equal(
        *(keras.ops.cast(each, "float32") for each in (model.encoder.token_embedding.embeddings, table))
    )
    evaluate(workdir, classify(), **(MODELS | {"starts": ("pretrained",)} | how))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rembed_small").mkdir()  # a folder of that name comes first, but not for what started from the preset
    assert Answerer(workdir.path).model.encoder.num_layers == 6
    with pytest.raises(UserError, match="rembed_small is not a run"):
        tune_on(workdir, [Lora(2)], classify("other"), **how)
    workdir.close()


def test_other_starting_weights_are_refused(workdir, corpus, tmp_path):
    path = tune_on(workdir, [Norms()])
    moved = tmp_path / "moved"
    shutil.copytree(workdir.path, moved, symlinks=True)
    there = moved / path.relative_to(workdir.path)
    assert weights(there).keys() == weights(path).keys()  # a run that was moved
    shutil.rmtree(moved / "checkpoints")
    (moved / "corpus").unlink()
    pretrain(moved, corpus, seed=4)
    with pytest.raises(UserError, match=r"the starting weights in .* differ from those that it started from"):
        weights(there)
    shutil.rmtree(moved / "checkpoints")
    (moved / "corpus").unlink()
    pretrain(moved, corpus, head_dim=8)
    with pytest.raises(UserError, match="has shape"):
        weights(there)
    shutil.rmtree(workdir.path / "checkpoints")
    (workdir.path / "corpus").unlink()
    pretrain(workdir.path, corpus, seed=4)
    with pytest.raises(UserError, match="has models whose initial_weights is"):
        tune_on(workdir, [Norms()])
    (workdir.finetuned / "topics/settings.json").unlink()
    with pytest.raises(UserError, match="was fine-tuned from other starting weights than those that this model has"):
        tune_on(workdir, [Norms()])


def test_a_start_that_is_none_is_named(workdir):
    path = tune_on(workdir, [HeadOnly()])
    record = json.loads((path / "state.json").read_text())
    for start in ("x", {"place": 3}, {"place": "a\0b"}, {"place": "no/where"}, {}):
        record["state"]["start"] = start
        (path / "state.json").write_text(json.dumps(record))
        with pytest.raises(UserError, match=r"names no starting weights|are gone"):
            weights(path)


CHANGED = {"encoder": None, "pretrained": InitialWeights(num_layers=1, keep="top", scalar_mix=True)}


def test_changed_starting_weights_are_found_again(workdir, capsys):
    path = tune_on(workdir, [Lora(2)], callbacks=[Witness], batch_size=2, **CHANGED)
    said = f"finetune/topics: starts from {workdir.path} step 7: layer 1 of 2 (top), a scalar mix is added\n"
    assert capsys.readouterr().out.count(said) == 1
    assert size_of(path) == 4 * stored(workdir)
    start = checkpoints.opened(path).state["start"]
    assert (start["num_layers"], start["keep"], start["scalar_mix"]) == (1, "top", True)
    assert_witnessed(weights(path))
    evaluate(workdir, classify(), **(MODELS | {"starts": ("pretrained",)} | CHANGED))
    assert len([*Answerer(workdir.path).answers(EXAMPLES)]) == len(EXAMPLES)
    record = json.loads((path / "state.json").read_text())
    for changes, message in (({"keep": "bottom"}, "differ from those"), ({"num_layers": 2}, "weights where .* belong")):
        changed = record | {"state": record["state"] | {"start": start | changes}}
        (path / "state.json").write_text(json.dumps(changed))
        with pytest.raises(UserError, match=message):
            weights(path)


def test_a_task_starts_from_another_of_the_run_and_that_from_a_third(workdir, tmp_path, capsys):
    first = tune_on(workdir, [Lora(2), Norms()], classify("first"))
    second = tune_on(workdir, [Lora(2)], classify("second"), pretrained=InitialWeights(task="first"))
    third = tune_on(workdir, [HeadOnly()], classify("third"), encoder=None, pretrained=InitialWeights(task="second"))
    folder = workdir.finetuned / "second/pretrained-lr0.01-seed0"
    assert f"finetune/third: starts from {folder} step 1\n" in capsys.readouterr().out
    assert checkpoints.opened(third).state["start"]["place"] == second.relative_to(workdir.path).as_posix()
    for name, path in (("first", first), ("second", second), ("third", third)):
        assert size_of(path) == 4 * stored(workdir, name)
    shutil.move(workdir.path, tmp_path / "moved")
    there = [tmp_path / "moved" / path.relative_to(workdir.path) for path in (first, second, third)]
    one, two, three = (restoring.restore(checkpoints.opened(path)).encoder for path in there)
    for encoder in (one, two):
        merge(encoder)
    named = {weight.path: np.asarray(weight) for weight in two.weights}
    moved = {weight.path: np.asarray(weight) for weight in one.weights}
    for weight in three.weights:
        np.testing.assert_array_equal(np.asarray(weight), named[weight.path], err_msg=weight.path)
    assert any(not np.array_equal(named[path], moved[path]) for path in named if "query/kernel" in path)
    record = json.loads((there[1] / "state.json").read_text())
    record["state"]["start"]["place"] = there[1].relative_to(tmp_path / "moved").as_posix()
    (there[1] / "state.json").write_text(json.dumps(record))
    with pytest.raises(UserError, match="is said to start from itself"):
        weights(there[1])
    shutil.move(tmp_path / "moved", workdir.path)


def test_a_task_starts_from_the_best_checkpoint(workdir, corpus, tmp_path, capsys):
    best = InitialWeights(checkpoint="best")
    with pytest.raises(UserError, match="run has no best checkpoint, as a run has whose pre-training had keep_best"):
        tune_on(workdir, [HeadOnly()], classify("none"), pretrained=best)
    newest = pretrain(tmp_path / "newer", corpus, seed=4)
    parts = {name: checkpoints.read_arrays(owned) for name, owned in restoring.parts_of(newest).items()}
    state = {"running": []} | restoring.state_of(newest)
    checkpoints.save(workdir.path / "checkpoints", 9, parts, state, keep=1, best=7)
    expected = checkpoints.opened(workdir.path / "checkpoints/step-00000007").arrays("encoder")
    for name, pretrained in (("own", best), ("other", InitialWeights(str(workdir.path), checkpoint="best"))):
        path = tune_on(workdir, [HeadOnly()], classify(name), pretrained=pretrained)
        assert f"finetune/{name}: starts from {workdir.path} step 7\n" in capsys.readouterr().out
        for key, value in weights(path).items():
            assert key.startswith("head/") or np.array_equal(value, expected[key]), key
        evaluate(workdir, classify(name), **(MODELS | {"starts": ("pretrained",), "pretrained": pretrained}))
    own = InitialWeights(f"{workdir.path}/finetuned/own", checkpoint="best")
    with pytest.raises(UserError, match="finetuned/own has no best checkpoint"):
        tune_on(workdir, [], classify("third"), pretrained=own)


def test_a_task_of_another_run_knows_the_languages_of_pre_training(workdir, corpus, tmp_path):
    other = Workdir(tmp_path / "other")
    tune_on(other, [HeadOnly()], classify("first"), pretrained=str(workdir.path))
    tune_on(other, [HeadOnly()], classify("second"), pretrained=InitialWeights(task="first"))
    other.close()
    for task in ("first", "second"):
        assert EncoderStart(other.path, None, f"{other.path}/finetuned/{task}").languages == corpus.languages
    assert Answerer(other.path, "second")
    (other.finetuned / "first/task.json").write_text(json.dumps({LANGUAGES: "de"}))
    with pytest.raises(UserError, match="pretraining_languages are 'de', not a list of texts"):
        _ = EncoderStart(other.path, None, InitialWeights(task="first")).languages


def test_a_task_is_asked_for_by_a_name_that_is_there(workdir):
    tune_on(workdir, [], classify("first"))
    with pytest.raises(UserError, match=r"finetuned/firs is not a folder of a model; did you mean first\?"):
        tune_on(workdir, [], classify("second"), pretrained=InitialWeights(task="firs"))
    with pytest.raises(UserError, match=r"num_layers is 1 there and 2 in the recipe's encoder: name num_layers of"):
        tune_on(workdir, [], classify("third"), encoder=make_encoder, pretrained=InitialWeights(num_layers=1))
