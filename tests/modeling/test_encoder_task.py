"""Task models and objectives take an encoder as we call it and as keras-hub does."""

import errno
import inspect
import itertools
import json
import os
from pathlib import Path

import keras
import numpy as np
import pytest

from rembed_keras import modeling
from rembed_keras.adaptation import LayerwiseDecay, learning_rate_multipliers, tune
from rembed_keras.errors import UserError
from rembed_keras.modeling import Classifier, Encoder, MaskedLM, Regressor, SpanExtractor, Tagger
from rembed_keras.modeling.saving import configuration
from rembed_keras.training import AdamW, TrainingOptimizer, WarmupLinearDecay
from tests.modeling.forward import forward
from tests.modeling.test_encoder import make_encoder

IDS = np.array([[2, 7, 3]])
ROWS = {"token_ids": IDS, "segment_ids": 0 * IDS, "padding_mask": 0 * IDS + 1}
HEAD = {"output_embedding_dim": 12}
MODELS = {
    "Classifier": {"num_classes": 3},
    "Tagger": {"num_tags": 3},
    "SpanExtractor": {},
    "Regressor": {},
    "MaskedLM": HEAD,
    "LateMaskedLM": HEAD | {"decoder_layers": 1},
    "ReplacedTokenDetection": HEAD | {"generator_scale": 0.5},
    "Sum": {"objectives": [lambda encoder: MaskedLM(backbone=encoder, output_embedding_dim=12)]},
}


class Own(MaskedLM):
    """A user's, with arguments of its own."""

    def __init__(self, encoder, output_embedding_dim=12, extra=1):
        super().__init__(encoder=encoder, output_embedding_dim=output_embedding_dim)
        self.extra = extra


@pytest.mark.any_backend
@pytest.mark.parametrize("name", MODELS)
def test_the_backbone_is_the_encoder(name):
    encoder, model = make_encoder(num_layers=1), getattr(modeling, name)
    assert model(backbone=encoder, **MODELS[name]).encoder is encoder
    assert model(encoder=encoder, **MODELS[name]).backbone is encoder
    assert next(iter(inspect.signature(model).parameters)) == "encoder"  # which gin and `help` show


@pytest.mark.any_backend
def test_a_users_subclass_takes_both():
    encoder = make_encoder(num_layers=1)
    with pytest.warns(UserWarning, match="the get_config of Own says coupling, which its constructor does not take"):
        model = Own(backbone=encoder, extra=3)
    assert (model.encoder, model.extra) == (encoder, 3)


@pytest.mark.any_backend
@pytest.mark.parametrize("model", [Classifier, MaskedLM, SpanExtractor, Tagger, Regressor])
@pytest.mark.parametrize("given", [[], ["encoder", "backbone"], ["first", "backbone"]])
def test_one_encoder_is_given(model, given):
    encoders = {name: make_encoder(num_layers=1) for name in given}
    first = [encoders.pop("first")] if "first" in encoders else []
    with pytest.raises(UserError, match=f"{model.__name__} needs an encoder, as encoder= or"):
        model(*first, **encoders, **MODELS[model.__name__])


@pytest.mark.any_backend
def test_an_objective_is_put_on_an_encoders_preset(tmp_path):
    encoder = make_encoder(num_layers=1)
    encoder.save_to_preset(str(tmp_path / "preset"))
    model = MaskedLM.from_preset(str(tmp_path / "preset"), output_embedding_dim=12)
    ours, theirs = (forward(each, ROWS)["sequence_output"] for each in (model.drop_heads(), encoder))
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("model", "given", "missing"),
    [
        (MaskedLM, {}, "output_embedding_dim="),
        (Classifier, {"pooling": "mean"}, "num_classes="),
    ],
)
def test_a_new_head_says_what_it_needs(model, given, missing, tmp_path):
    make_encoder(num_layers=1).save_to_preset(str(tmp_path / "preset"))
    for preset in (str(tmp_path / "preset"), "rembed_small"):
        with pytest.raises(UserError) as raised:
            model.from_preset(preset, **given)
        told = f"{model.__name__}.from_preset puts a new, untrained head on it, which needs {missing}"
        assert str(raised.value) == f"{preset} is the preset of an encoder: {told}"


@pytest.mark.any_backend
def test_another_head_is_put_on_a_models_preset_without_what_it_drops(tmp_path):
    model = MaskedLM(make_encoder(), 12, kept_layers=1, keep="top")
    model.save_to_preset(str(tmp_path / "preset"))
    with pytest.raises(UserError, match=r"is the preset of a MaskedLM: .* which needs num_classes="):
        Classifier.from_preset(str(tmp_path / "preset"))
    expected = forward(model.drop_heads(), ROWS)["sequence_output"]
    classifier = Classifier.from_preset(str(tmp_path / "preset"), num_classes=3)
    for encoder in (classifier.encoder, Encoder.from_preset(str(tmp_path / "preset"))):
        assert encoder.num_layers == 1
        np.testing.assert_array_equal(forward(encoder, ROWS)["sequence_output"], expected)
    assert MaskedLM.from_preset(str(tmp_path / "preset")).encoder.num_layers == 2
    (tmp_path / "preset" / "task.json").write_text("[]")
    with pytest.raises(UserError, match=r"task\.json describes no model"):
        Encoder.from_preset(str(tmp_path / "preset"))


@pytest.fixture
def on_hub(tmp_path, monkeypatch):
    """The folder of `hf://owner/model`: a hub that has its files, without a network."""
    hub = pytest.importorskip("huggingface_hub", reason="needs the extra: pip install 'rembed-keras[hub]'")

    def downloaded(repo_id, filename):
        if not (tmp_path / repo_id / filename).is_file():
            raise hub.utils.LocalEntryNotFoundError(filename)
        return str(tmp_path / repo_id / filename)

    monkeypatch.setattr(hub, "hf_hub_download", downloaded)
    return tmp_path / "owner/model"


@pytest.mark.any_backend
@pytest.mark.parametrize(("kind", "number"), [(Classifier, "num_classes"), (Tagger, "num_tags")])
def test_a_preset_of_a_hub_keeps_its_head_where_its_own_number_of_outputs_is_named(kind, number, on_hub):
    model = kind(make_encoder(num_layers=1), 3)
    model.head.bias.assign([1.0, 2.0, 3.0])
    model.save_to_preset(str(on_hub))
    same, other = (kind.from_preset("hf://owner/model", **{number: count}) for count in (3, 4))
    biases = [keras.ops.convert_to_numpy(each.head.bias).tolist() for each in (same, other)]
    assert biases == [[1.0, 2.0, 3.0], [0.0] * 4]


@pytest.mark.any_backend
def test_an_encoder_of_a_hub_has_no_layers_that_pre_training_drops(on_hub):
    MaskedLM(make_encoder(), 12, kept_layers=1, keep="top").save_to_preset(str(on_hub))
    assert Encoder.from_preset("hf://owner/model").num_layers == 1
    assert Classifier.from_preset("hf://owner/model", num_classes=3).encoder.num_layers == 1
    with pytest.raises(UserError, match=r"hf://owner/model is the preset of a MaskedLM: .* which needs num_classes="):
        Classifier.from_preset("hf://owner/model")


@pytest.mark.any_backend
def test_a_preset_is_opened_in_another_dtype(tmp_path):
    model = Classifier(make_encoder(num_layers=1), 3)
    model.save_to_preset(str(tmp_path / "preset"))
    for kind, given in ((Classifier, {}), (Regressor, {}), (MaskedLM, HEAD)):
        half = kind.from_preset(str(tmp_path / "preset"), dtype="mixed_bfloat16", **given)
        assert half.encoder.dtype_policy.name == "mixed_bfloat16"
        np.testing.assert_array_equal(*(keras.ops.convert_to_numpy(each.weights[0]) for each in (half, model)))
        assert kind.from_preset(str(tmp_path / "preset"), **given).encoder.dtype_policy.name == "float32"
    narrow = Classifier.from_preset(str(tmp_path / "preset"), dtype="bfloat16")
    np.testing.assert_allclose(forward(narrow, ROWS), forward(model, ROWS), atol=0.1)


@pytest.mark.any_backend
def test_what_is_no_encoder_is_refused_with_what_is_one():
    model = MaskedLM(make_encoder(num_layers=1), 12)
    for given, remedy in (
        (model, r"give it drop_heads\(\) of that"),
        (Classifier(model.encoder, 3), "give it encoder of that"),
        ("rembed_small", r"make one by Encoder\(...\) or Encoder.from_preset"),
    ):
        with pytest.raises(UserError, match=f"^Classifier needs an Encoder, and .* is none: {remedy}"):
            Classifier(given, num_classes=3)


@pytest.mark.any_backend
def test_a_file_that_is_read_to_go_on_has_its_optimizers_class_found(tmp_path, monkeypatch):
    model = Classifier(make_encoder(num_layers=1), 3)
    model.compile(AdamW(WarmupLinearDecay(1e-3, 1, 10)))
    model.optimizer.build(model.trainable_variables)
    model.save(tmp_path / "model.keras")
    asked, class_of = [], configuration.class_of
    monkeypatch.setattr(configuration, "class_of", lambda name: asked.append(name) or class_of(name))
    assert isinstance(keras.saving.load_model(tmp_path / "model.keras").optimizer, AdamW)
    assert {"AdamW", "WarmupLinearDecay"} <= {*asked}


@pytest.mark.any_backend
def test_a_file_of_a_cut_encoder_keeps_its_learning_rates_by_layer(tmp_path):
    """Its blocks are numbered from 0 when it is read."""
    model = Classifier(make_encoder(num_layers=2).with_layers(1, "top"), 3)
    tune(model, [LayerwiseDecay(0.5)])
    rates = learning_rate_multipliers(model, model.methods)
    model.compile(TrainingOptimizer(AdamW(1e-3), multipliers=rates))
    model.optimizer.build(model.trainable_variables)
    model.save(tmp_path / "model.keras")
    back = keras.saving.load_model(tmp_path / "model.keras")
    assert back.optimizer.multipliers == {path.replace("block_1/", "block_0/"): rate for path, rate in rates.items()}


@pytest.mark.any_backend
def test_a_new_head_of_a_preset_learns_where_the_former_was_frozen(tmp_path):
    model = Classifier(make_encoder(num_layers=1), 3)
    model.trainable = False
    model.save_to_preset(str(tmp_path))
    same, other = (Classifier.from_preset(str(tmp_path), num_classes=count) for count in (3, 4))
    assert not same.head.trainable and other.head.trainable


@pytest.mark.any_backend
@pytest.mark.parametrize("kind", [Encoder, Classifier])
def test_what_is_no_preset_is_refused_with_the_command_that_makes_one(kind, tmp_path):
    theirs, run = tmp_path / "bert", tmp_path / "run"
    theirs.mkdir()
    (theirs / "config.json").write_text('{"model_type": "bert", "hidden_size": 8}')
    (run / "checkpoints").mkdir(parents=True)
    named = {"num_classes": 3} if kind is Classifier else {}
    for place, said in ((theirs, "huggingface"), (run, "run")):
        with pytest.raises(UserError, match=f"`rembed convert {place} PRESET --from {said} --to preset`$"):
            kind.from_preset(str(place), **named)


@pytest.mark.any_backend
@pytest.mark.parametrize("sizes", [(10, 6e-6), (6e-6, 10)], ids=["to shards", "to a file"])
def test_a_preset_in_the_place_of_another_has_its_own_weights_alone(sizes, tmp_path):
    models = [Classifier(make_encoder(num_layers=1), 3) for _ in sizes]
    for model, size in zip(models, sizes, strict=True):
        model.save_to_preset(str(tmp_path / "task"), max_shard_size=size)
        model.encoder.save_to_preset(str(tmp_path / "encoder"), max_shard_size=size)
    tables = [each.encoder.token_embedding.embeddings for each in models]
    for read in (
        Classifier.from_preset(str(tmp_path / "task")).encoder,
        Encoder.from_preset(str(tmp_path / "encoder")),
    ):
        np.testing.assert_array_equal(*map(keras.ops.convert_to_numpy, (read.token_embedding.embeddings, tables[1])))
    assert all((path / "model.weights.h5").exists() is (sizes[1] == 10) for path in tmp_path.iterdir())
    assert all((path / "model.weights.json").exists() is (sizes[1] != 10) for path in tmp_path.iterdir())


@pytest.mark.any_backend
def test_a_preset_that_cannot_be_written_whole_leaves_the_earlier_one(tmp_path, monkeypatch):
    model, place, none = Classifier(make_encoder(num_layers=1), 3), tmp_path / "preset", tmp_path / "none"
    model.save_to_preset(place)
    (place / "notes.txt").write_text("of whoever trained it")
    files = {file: file.stat().st_mtime_ns for file in place.rglob("*") if file.is_file()}

    def save_weights(encoder, path, **_):
        Path(path).write_text("the half of them")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    other = Classifier(make_encoder(num_layers=2), 4)
    with monkeypatch.context() as full:
        full.setattr(Encoder, "save_weights", save_weights)
        for failing, folder in itertools.product((other, other.encoder), (place, none)):
            with pytest.raises(OSError, match="No space left"):
                failing.save_to_preset(folder)
    assert {file: file.stat().st_mtime_ns for file in place.rglob("*") if file.is_file()} == files
    assert [*tmp_path.iterdir()] == [place]
    other.save_to_preset(place)
    assert Classifier.from_preset(place).num_classes == 4 and files.keys() == set(place.rglob("*.*"))


def test_numbers_of_numpy_are_taken_as_pythons():
    """As of the largest label plus 1."""
    encoder = make_encoder(num_layers=np.int64(1), dropout=np.float32(0.125))
    model = Classifier(encoder, np.array([0, 2]).max() + 1, dropout=np.float64(0.25))
    config = model.get_config()
    assert Classifier.from_config(json.loads(json.dumps(config))).get_config() == config
    assert (model.num_classes, model.output.shape, encoder.arguments["dropout"]) == (3, (None, 3), 0.125)
    assert json.dumps(MaskedLM(encoder, np.int32(8)).get_config())
