"""A batch that replicas cannot share evenly, as arrays in memory leave one over, is trained on as one device does."""

import keras
import numpy as np
import pytest

from rembed_keras.adaptation.terms import SupervisedContrast
from rembed_keras.modeling import Classifier, MaskedLM, ReplacedTokenDetection, Tagger
from rembed_keras.modeling.layers import draws
from rembed_keras.training.distributed.strategies import place
from tests.modeling.test_encoder import make_encoder
from tests.training.distributed.test_strategies_of_a_step import make_batch

pytestmark = pytest.mark.skipif(keras.config.backend() != "tensorflow", reason="tf.distribute is TensorFlow's")


def masked_lm():
    return MaskedLM(make_encoder(num_layers=1), 20)


def in_parts():
    return MaskedLM(make_encoder(num_layers=1), 20, micro_batches=2)


def detection():
    return ReplacedTokenDetection(make_encoder(num_layers=1), 20, generator_layers=1, generator_scale=0.5)


def classifier():
    return Classifier(make_encoder(num_layers=1), 3, dropout=0.0)


def tagger():
    return Tagger(make_encoder(num_layers=1), 3, dropout=0.0)


def contrasted():
    model = classifier()
    model.use_terms([SupervisedContrast(weight=2.0)])
    return model


def data_of(model, rows):
    """The four rows of a batch over and over, with other labels."""
    x, y, weights = keras.tree.map_structure(lambda part: np.concatenate([part] * 3)[:rows], make_batch())
    if isinstance(model, MaskedLM | ReplacedTokenDetection):
        return x, y, weights
    tags = np.arange(rows * 12, dtype="int32").reshape(rows, 12) % 3
    x = {key: x[key] for key in model.input}
    return x, tags if isinstance(model, Tagger) else tags[:, 0] + np.arange(rows) % 2, None


def train(make, strategy, rows):
    placement = place(strategy, batch_size=8)
    with placement.scope():
        model = make()
        rng = np.random.default_rng(3)
        for weight in model.weights:
            weight.assign(rng.normal(0, 0.3, weight.shape))
        in_graphs = strategy == "mirrored" and make in (detection, contrasted)  # two eager steps are quicker
        model.compile(keras.optimizers.SGD(0.1), jit_compile=False, run_eagerly=not in_graphs)
        x, y, weights = data_of(model, rows)
        logs = model.fit(x, y, sample_weight=weights, batch_size=8, shuffle=False, verbose=0).history
        logs |= {
            f"val_{name}": [value] for name, value in model.evaluate(x, y, 8, 0, weights, return_dict=True).items()
        }
    return logs, [np.asarray(keras.ops.convert_to_numpy(weight.value)) for weight in model.weights]


@pytest.mark.parametrize(
    ("make", "rows"), [(masked_lm, 9), (in_parts, 11), (detection, 9), (classifier, 9), (tagger, 11), (contrasted, 11)]
)
def test_two_replicas_take_the_steps_of_one_device(make, rows, monkeypatch):
    monkeypatch.setattr(draws, "uniform", lambda shape, **_: keras.ops.full(shape, 0.5))
    (logs, weights), (whole, expected) = train(make, "mirrored", rows), train(make, "one_device", rows)
    assert logs.keys() == whole.keys()
    for name in whole:
        np.testing.assert_allclose(logs[name], whole[name], rtol=1e-4, err_msg=name)
    for ours, theirs in zip(weights, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=5e-5)


def test_a_loss_that_a_user_compiles_is_the_mean_over_the_rows_of_all_replicas():
    found = {}
    for strategy in ("mirrored", "one_device"):
        with place(strategy, batch_size=8).scope():
            model = classifier()
            for number, weight in enumerate(model.weights):
                weight.assign(np.random.default_rng(number).normal(0, 0.3, weight.shape))
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(loss=loss, jit_compile=False)
            x, y, _ = data_of(model, 9)  # of the last batch one replica has none
            found[strategy] = model.evaluate(x, y, 8, 0, return_dict=True)["loss"]
    expected = loss(y, keras.ops.convert_to_numpy(model(x)))  # of the last, on one device
    np.testing.assert_allclose([*found.values()], [float(expected)] * 2, rtol=1e-5)
