"""Task models and objectives take an encoder as we call it and as keras-hub does."""

import inspect

import numpy as np
import pytest

from rembed_keras import modeling
from rembed_keras.errors import UserError
from rembed_keras.modeling import Classifier, MaskedLM, Regressor, SpanExtractor, Tagger
from tests.modeling.forward import forward
from tests.modeling.test_encoder import make_encoder

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
    rows = np.array([[2, 7, 3]])
    inputs = {"token_ids": rows, "segment_ids": 0 * rows, "padding_mask": 0 * rows + 1}
    ours, theirs = (forward(each, inputs)["sequence_output"] for each in (model.drop_heads(), encoder))
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
