"""Ids of NumPy's default integers, masks of bools, and Keras's default floats of 64 bits."""

import keras
import numpy as np
import pytest

from rembed_keras.adaptation.distillation import Distillation
from rembed_keras.adaptation.teachers import Teacher
from rembed_keras.modeling import Classifier, LateMaskedLM, MaskedLM, ReplacedTokenDetection, Sum
from rembed_keras.modeling.attention import Disentangled, Local, Nystrom
from tests.modeling.forward import QUICK
from tests.modeling.objectives.test_pretraining import make_batch
from tests.modeling.test_encoder import make_encoder


def late(encoder):
    return LateMaskedLM(encoder, 20, decoder_layers=1)


def detection(encoder):
    return ReplacedTokenDetection(encoder, 20, generator_layers=1, generator_scale=0.5)


def distillation(encoder):
    return Distillation(encoder, Teacher(make_encoder(num_layers=1)), relations=1.0, hidden_states=1.0)


OBJECTIVES = {
    "masked": lambda encoder: MaskedLM(encoder, 20),
    "in parts": lambda encoder: MaskedLM(encoder, 20, micro_batches=2),
    "late": late,
    "detection": detection,
    "sum": lambda encoder: Sum(encoder, [lambda each: MaskedLM(each, 20), lambda each: MaskedLM(each, 9, name="b")]),
    "distillation": distillation,
}
MADE_OF_OTHERS = {"masked", "sum", "distillation"}  # JAX computes with these dtypes what it does in the others
ATTENTION = {"local": Local(4), "disentangled": Disentangled(4, 8), "nystrom": Nystrom(2)}


def compiled(model):
    model.compile("sgd", **QUICK)
    return model


def losses(model, changes):
    """Those of a step and of the evaluation after it."""
    x, y, weights = make_batch()
    x = x | {key: x[key].astype(dtype) for key, dtype in changes.items()}
    x["padding_mask"] = np.minimum(x["padding_mask"], 1).astype(x["padding_mask"].dtype)
    y = y.astype(changes.get("token_ids", "int32"))
    fitted = model.fit(x, y, sample_weight=weights, shuffle=False, verbose=0)
    return fitted.history["loss"][0], model.evaluate(x, y, sample_weight=weights, verbose=0)[0]


WIDE = dict.fromkeys(("token_ids", "segment_ids", "mask_positions"), "int64")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.any_backend] * (name in MADE_OF_OTHERS)) for name in OBJECTIVES]
)
def test_objectives_take_wide_ids_and_masks_of_bools(name):
    model, seen = compiled(OBJECTIVES[name](make_encoder(num_layers=1))), []
    start = [variable.numpy() for variable in model.variables]  # what random numbers are drawn from among them
    for changes in ({}, WIDE | {"padding_mask": "int64"}, WIDE | {"padding_mask": "bool"}):
        for variable, value in zip(model.variables, start, strict=True):
            variable.assign(value)
        seen.append(losses(model, changes))
    assert np.isfinite(seen).all()
    np.testing.assert_allclose(seen[1:], [seen[0]] * 2, rtol=1e-5)


@pytest.fixture
def floats_of_64_bits():
    if keras.config.backend() == "jax":
        pytest.skip("JAX has them only where it is asked to")
    before = keras.config.floatx(), keras.config.dtype_policy()
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    yield
    keras.config.set_floatx(before[0])
    keras.config.set_dtype_policy(before[1])


@pytest.mark.usefixtures("floats_of_64_bits")
@pytest.mark.parametrize("name", OBJECTIVES)
def test_objectives_take_floats_of_64_bits(name):
    assert np.isfinite(losses(compiled(OBJECTIVES[name](make_encoder(num_layers=1))), {})).all()


@pytest.mark.usefixtures("floats_of_64_bits")
@pytest.mark.parametrize("kind", ATTENTION)
def test_kinds_of_attention_take_floats_of_64_bits(kind):
    encoder = make_encoder(num_layers=1, attention=ATTENTION[kind])
    assert np.isfinite(losses(compiled(MaskedLM(encoder, 20)), {})).all()
    x, y, _ = make_batch()
    x["padding_mask"] = np.minimum(x["padding_mask"], 1)
    model = compiled(Classifier(encoder, 3, pooling="mean"))
    assert np.isfinite(model.fit({key: x[key] for key in model.input}, y[:, 0] % 3, verbose=0).history["loss"]).all()
