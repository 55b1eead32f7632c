"""An encoder that is passed on: packed from a run, listed by name, and the same encoder to within half precision."""

import json
import shutil

import h5py
import keras
import keras_hub
import numpy as np
import pytest
from keras_hub.src.utils import preset_utils

import rembed_keras
from rembed_keras import compat
from rembed_keras.analysis import ledger
from rembed_keras.analysis.model_card import length_limit, model_card, pretraining_log
from rembed_keras.errors import UserError
from rembed_keras.interop.packing import halve
from rembed_keras.interop.packing import pack as write_packed
from rembed_keras.modeling.saving import presets
from rembed_keras.tasks.scores import Score, dump_scores
from rembed_keras.training import model_of_run
from rembed_keras.training.initial.encoder_start import EncoderStart

MOST = 12e6  # bytes of a preset in the wheel
TEXTS = ["the file is saved", "open the table and close it"]


def keep(folder, model):
    """Makes a model the only one that a run's folder has."""
    from rembed_keras.training.loop import checkpoints, restoring

    shutil.rmtree(folder / "checkpoints")
    parts = {name: checkpoints.read_arrays(owned) for name, owned in restoring.parts_of(model).items()}
    state = {"running": [], "model": keras.saving.serialize_keras_object(model)}
    checkpoints.save(folder / "checkpoints", 7, parts, state)


def card_of(folder, name, arguments):
    return model_card(folder, pretraining_log(folder), name, arguments)


@pytest.fixture(scope="module")
def finished(pretrained, tmp_path_factory):
    """A run as `rembed run` leaves it."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    shutil.copytree(pretrained, folder)
    model, _ = model_of_run(folder)
    for variable in model.encoder.weights:  # as after training: nothing is zero or one
        draw = np.random.default_rng(variable.shape[-1]).normal(size=variable.shape)
        variable.assign(draw.astype("float32") / 3)
    keep(folder, model)
    systems = {"pretrained": 0.75, "untrained": 0.25, "chance": 0.125}
    rows = [Score("retrieval/help", "de", "P@1 into en", value, None, 8, system) for system, value in systems.items()]
    (folder / "scores.json").write_text(dump_scores(rows))
    row = {"stage": "pretrain", "run": "pretrain", "step": 7, "tokens": 4321, "loss": 6.5, "unigram_entropy": 7.1}
    (folder / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    (folder / "ledger.json").write_text(json.dumps(ledger(model).to_json()))
    (folder / "environment.json").write_text(json.dumps({"python": "3.11.7", "versions": {"keras": "3.15.1"}}))
    (folder / "config.gin").write_text("STEPS = 7\n")
    (folder / "finished.json").write_text("{}")
    (folder / "LICENSE").write_text("Text of the tests,\nfree for all.\n\nThe whole licence.\n")
    return folder


@pytest.fixture(scope="module")
def packed(finished, tmp_path_factory):
    """The folder of the presets of a package that has one."""
    return tmp_path_factory.mktemp("presets")


@pytest.fixture
def built_in(finished, packed, command, monkeypatch):
    """The packed preset, as if it came with the package."""
    if not (packed / "tiny_one").exists():
        done = command("pack", finished, packed / "tiny_one", "--licence", finished / "LICENSE", cwd=packed)
        assert done[0] == 0, done[2]
    monkeypatch.setattr(presets, "FOLDER", packed)
    return packed / "tiny_one"


def test_a_packed_encoder_is_the_trained_one_in_half_the_bytes(built_in, finished):
    trained = model_of_run(finished)[0].encoder
    with h5py.File(built_in / "model.weights.h5") as file:
        kinds = []
        file.visititems(lambda name, part: kinds.append(part.dtype) if hasattr(part, "dtype") else None)
    assert len(kinds) == len(trained.weights) and set(kinds) == {np.dtype("float16")}
    loaded = rembed_keras.Encoder.from_preset("tiny_one")
    for ours, theirs in zip(loaded.weights, trained.weights, strict=True):
        assert ours.dtype == "float32"
        expected = keras.ops.convert_to_numpy(theirs).astype("float16").astype("float32")
        np.testing.assert_array_equal(keras.ops.convert_to_numpy(ours), expected)
    assert not (built_in / "task.json").exists()  # no head


def test_a_name_opens_with_its_tokenizer_whatever_opens_it(built_in, monkeypatch):
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("it asks the network"))
    encoder = rembed_keras.Encoder.from_preset("tiny_one")
    classifier = rembed_keras.Classifier.from_preset("tiny_one", num_classes=3)
    assert encoder.encode(TEXTS).shape == (2, 8)
    np.testing.assert_allclose(classifier.encode(TEXTS), encoder.encode(TEXTS), atol=1e-6)
    tokenizer = rembed_keras.Tokenizer.from_preset("tiny_one")
    assert tokenizer.detokenize(tokenizer.tokenize("the file")) == "the file"


def test_a_disk_without_room_is_reported_before_anything_is_written(finished, tmp_path, full_disk):
    model, tokenizer = model_of_run(finished)
    with pytest.raises(UserError, match="packed cannot be written: No space left on device"):
        write_packed(model, tmp_path / "packed", tokenizer, {})
    assert not [*tmp_path.iterdir()]


def test_the_languages_of_pre_training_go_along(built_in, finished, corpus, command, tmp_path):
    done = command("convert", finished, tmp_path / "preset", "--from", "run", "--to", "preset", cwd=tmp_path)
    assert done[0] == 0, done[2]
    for place in ("tiny_one", str(tmp_path / "preset")):
        assert EncoderStart(tmp_path, None, place).languages == corpus.languages == ["de", "en", "ja"]


def test_names_are_listed_by_keras_hub_too(built_in):
    compat.hub_presets().register_presets(presets.described(), rembed_keras.Encoder)  # as importing the encoder does
    try:
        for kind in (rembed_keras.Encoder, rembed_keras.Classifier):
            assert kind.presets["tiny_one"]["metadata"]["description"].startswith("An encoder of 1 layer of width 8")
        assert isinstance(keras_hub.models.Backbone.from_preset("tiny_one"), rembed_keras.Encoder)
    finally:
        del preset_utils.BUILTIN_PRESETS["tiny_one"]
        del preset_utils.BUILTIN_PRESETS_FOR_BACKBONE[rembed_keras.Encoder]["tiny_one"]


@pytest.mark.parametrize("kind", ["Encoder", "MaskedLM", "Classifier", "Tokenizer", "TextClassifierPreprocessor"])
def test_an_unknown_name_is_a_mistake_that_names_the_nearest(built_in, kind):
    with pytest.raises(UserError, match=r"no preset 'tiny_on'.*did you mean tiny_one"):
        getattr(rembed_keras, kind).from_preset("tiny_on")


def test_the_card_says_what_the_run_kept(built_in, finished):
    card = (built_in / "README.md").read_text(encoding="utf-8")
    counts = json.loads((finished / "ledger.json").read_text())
    for said in (
        f"{counts['kept']:,}",
        f"{counts['dropped']:,}",
        "7 steps, 4,321 tokens",
        "6.50 nats",
        "| 75.0",
        "12.5",
    ):
        assert said in card, said
    _, metadata, _ = card.split("---\n", 2)
    assert 'language: ["de", "en", "ja"]' in metadata and card.index("# tiny_one") > card.index(metadata)
    assert "> Text of the tests,\n> free for all." in card and "The whole licence." not in card
    assert (built_in / "LICENSE").read_text() == (finished / "LICENSE").read_text()
    assert (built_in / "recipe.gin").read_text() == "STEPS = 7\n"


def test_the_loss_on_a_card_is_the_last_and_in_nats_if_it_is_one(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "run")
    arguments = {"num_layers": 1, "hidden_dim": 8, "vocabulary_size": 900, "input_embedding_dim": 4}
    row = {"stage": "pretrain", "run": "pretrain", "step": 8, "tokens": 5000}
    rows = [{"loss": 6.4, "unigram_entropy": 7.1}, {"loss": None}, {"loss": 9.25, "generator_loss": 5.0}]
    rows.append({"loss": 6.3, "unigram_entropy": 7.1, "term_losses": 1.0})
    for each, said in zip(rows, ("6.40 nats.", "6.40 nats.", "9.25.", "6.30."), strict=True):
        with open(tmp_path / "run/metrics.jsonl", "a") as file:
            file.write(json.dumps(row | each) + "\n")
        card = card_of(tmp_path / "run", "tiny", arguments | {"max_sequence_length": 64})
        assert f"8 steps, 5,000 tokens, to a training loss of {said} `recipe.gin`" in card


def test_a_card_is_of_the_layers_that_are_kept(finished, command, tmp_path):
    shutil.copytree(finished, tmp_path / "run")
    whole = model_of_run(finished)[0].encoder.arguments | {"num_layers": 3}
    keep(tmp_path / "run", rembed_keras.MaskedLM(rembed_keras.Encoder(**whole), 16, kept_layers=2))
    code, _, stderr = command("pack", "run", "packed", cwd=tmp_path)
    assert code == 0, stderr
    assert "An encoder of 2 layers of width 8" in (tmp_path / "packed/README.md").read_text(encoding="utf-8")
    assert rembed_keras.Encoder.from_preset(str(tmp_path / "packed")).arguments["num_layers"] == 2


def test_a_card_says_what_training_went_on_from_and_its_python_is_python(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "run")
    record = {"place": "/home/me/runs/first/checkpoints/step-00000030", "pretraining_languages": ["de", "fr"]}
    (tmp_path / "run/initial_weights.json").write_text(json.dumps(record))
    arguments = {"num_layers": 1, "hidden_dim": 8, "vocabulary_size": 900, "input_embedding_dim": 4}
    card = card_of(tmp_path / "run", 'a "name"', arguments | {"max_sequence_length": 64})
    assert (
        "from the weights of `first/checkpoints/step-00000030`, which had been trained before on text in de, fr."
        in card
    )
    assert "/home/me" not in card and "* Since it started from those weights it read 4,321 tokens" in card
    compile(card.partition("```python\n")[2].partition("```")[0], "card", "exec")


def test_a_card_of_a_smoke_run_says_so(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "run")
    arguments = {"num_layers": 1, "hidden_dim": 8, "vocabulary_size": 900, "input_embedding_dim": 4}
    before = card_of(tmp_path / "run", "name", arguments | {"max_sequence_length": 64})
    (tmp_path / "run/SMOKE.txt").touch()
    card = card_of(tmp_path / "run", "name", arguments | {"max_sequence_length": 64})
    smoke = "# name\n\n**A smoke run made it, to try its recipe: nothing here means anything.**\n\n"
    assert card == before.replace("# name\n\n", smoke) != before


def test_a_card_counts_seeds_of_fine_tuning_alone(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "run")
    arguments = {"num_layers": 1, "hidden_dim": 8, "vocabulary_size": 900, "input_embedding_dim": 4}
    arguments |= {"max_sequence_length": 64}
    rows = [Score("retrieval/help", "de", "P@1 into en", 0.5, 0, 8, "pretrained")]
    rows.append(Score("probe/topics/layer0", "de", "accuracy", 0.5, 0, 8, "pretrained"))
    for more, said in (
        ([], "It was pre-trained once. What another"),
        ([Score("topics", "de", "accuracy", 0.5, None, 8, "majority")], "It was pre-trained once. What another"),
        ([Score("topics", "de", "accuracy", 0.5, seed, 8, "pretrained") for seed in (0, 1)],
         "It was pre-trained once; scores are of 2 seeds of fine-tuning at most. What another"),
    ):  # fmt: skip
        (tmp_path / "run/scores.json").write_text(dump_scores(rows + more))
        assert said in card_of(tmp_path / "run", "tiny", arguments)
    for damaged in ("{", "[]", '{"versions": ["keras"]}'):
        (tmp_path / "run/environment.json").write_text(damaged)
        with pytest.raises(UserError, match=r"environment\.json is "):
            card_of(tmp_path / "run", "tiny", arguments)


@pytest.mark.parametrize("last", ["pretrain", "retrieve"])
def test_a_run_whose_recipe_scores_nothing_is_packed_without_scores(finished, tmp_path, last):
    shutil.copytree(finished, tmp_path / "run")
    (tmp_path / "run/scores.json").unlink()
    (tmp_path / "run/config.gin").write_text(f"training.run.stages = [@training.prepare, @training.{last}]\n")
    arguments = {"num_layers": 1, "hidden_dim": 8, "vocabulary_size": 900, "input_embedding_dim": 4}
    arguments |= {"max_sequence_length": 64}
    if last == "retrieve":
        with pytest.raises(UserError, match=r"has no scores\.json"):
            card_of(tmp_path / "run", "tiny", arguments)
    else:
        assert "## Scores\n\nNone: no stage of" in card_of(tmp_path / "run", "tiny", arguments)


@pytest.mark.parametrize("gone", ["finished.json", "scores.json", "metrics.jsonl", "config.gin"])
def test_a_run_that_is_not_whole_is_not_packed(finished, command, tmp_path, gone):
    shutil.copytree(finished, tmp_path / "run")
    (tmp_path / "run" / gone).unlink()
    code, _, stderr = command("pack", "run", "packed", cwd=tmp_path)
    assert code == 2 and len(stderr.strip().splitlines()) == 1
    assert not (tmp_path / "packed").exists()


def test_a_run_that_fine_tuned_alone_is_not_told_to_run_again(tmp_path):
    (tmp_path / "finished.json").write_text("{}")
    with pytest.raises(UserError, match="has no checkpoints: it is not the folder of a run that pre-trained"):
        pretraining_log(tmp_path)


def test_an_encoder_of_an_earlier_step_than_the_card_says_is_not_packed(finished, command, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    log = folder / "metrics.jsonl"
    log.write_text(log.read_text().replace('"step": 7', '"step": 9'))  # the checkpoint of which is damaged, or gone
    code, _, error = command("pack", folder, tmp_path / "out", cwd=tmp_path)
    assert code == 2 and "has trained for 9 steps, and its newest checkpoint that is whole is of step 7" in error
    assert not (tmp_path / "out").exists()


def test_an_encoder_of_any_size_is_packed_in_one_file(pretrained, corpus, tmp_path, monkeypatch):
    sizes = preset_utils.KerasPresetSaver
    monkeypatch.setattr(sizes, "_get_variables_size_in_bytes", lambda *_: 11 * 1024**3)
    write_packed(model_of_run(pretrained)[0], tmp_path / "packed", corpus.tokenizer.path, {})
    assert [path.name for path in (tmp_path / "packed").glob("*weights*")] == ["model.weights.h5"]


def test_what_half_precision_cannot_hold_is_refused(tmp_path):
    with h5py.File(tmp_path / "large.h5", "w") as file:
        file["kernel"] = np.array([1.0, 1e6], "float32")
    with pytest.raises(UserError, match="float16"):
        halve(tmp_path / "large.h5")


@pytest.mark.parametrize("name", presets.names())
def test_presets_of_the_package_are_small_and_open(name):
    folder = presets.FOLDER / name
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) <= MOST
    assert name in rembed_keras.Encoder.presets
    encoder = rembed_keras.Encoder.from_preset(name)
    assert encoder.dtype_policy.name == "float32"
    close, far = encoder.similarity("Open the file.", ["Opens a file.", "Rotates the selected picture."])[0]
    assert close > far
    assert {"README.md", "LICENSE", "recipe.gin"} <= {path.name for path in folder.iterdir()}
    languages = EncoderStart(folder, None, name).languages
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert f"* {length_limit(encoder.arguments)}\n" in text
    assert f"pre-trained in {len(languages)} languages" in text and all(f"{each} " in text for each in languages)
