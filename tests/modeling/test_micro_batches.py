import functools

import keras
import numpy as np
import pytest

from rembed_keras.errors import UserError
from rembed_keras.modeling import Encoder, LateMaskedLM, MaskedLM
from rembed_keras.training import TrainingOptimizer
from tests.modeling.forward import QUICK


def make_encoder(dropout=0.0):
    return Encoder(60, 1, 2, 8, 16, 6, max_sequence_length=16, dropout=dropout)


def late(encoder, width, **arguments):
    return LateMaskedLM(encoder, width, decoder_layers=1, **arguments)


def make_batch(rows):
    """Rows with fewer and fewer predictions, the last with none."""
    rng = np.random.default_rng(rows)
    ids = rng.integers(5, 60, (rows, 12)).astype("int32")
    positions = np.sort(np.argsort(rng.random((rows, 12)), axis=1)[:, :4], axis=1).astype("int32")
    weights = (np.arange(4) < np.linspace(4, 0, rows).astype(int)[:, None]).astype("float32")
    x = {"token_ids": ids, "segment_ids": 0 * ids, "padding_mask": 0 * ids + 1, "mask_positions": positions}
    return x | {"language_ids": np.arange(rows, dtype="int32") % 2}, np.take_along_axis(ids, positions, 1), weights


def repeated(batch, times):
    """Rows of so many batches that are all the same."""
    return keras.tree.map_structure(lambda array: np.concatenate([array] * times), batch)


JIT = {"jit_compile": keras.config.backend() == "jax"}  # where the other way is operation by operation


def compiled(objective, parts, dropout=0.0, **compiling):
    keras.utils.set_random_seed(2)
    model = objective(make_encoder(dropout), 10, micro_batches=parts)
    model.track_groups(["de", "en"])
    model.compile(keras.optimizers.SGD(0.5, momentum=0.9, global_clipnorm=0.5), **compiling)
    return model


def steps(model, rows):
    """Logs of two steps, and the weights after them."""
    logs = [model.train_on_batch(*make_batch(rows), return_dict=True) for _ in range(2)]
    return logs, [keras.ops.convert_to_numpy(weight) for weight in model.weights]


def assert_same_steps(objective, parts, rows, **compiling):
    whole, weights = steps(compiled(objective, 1, **QUICK), rows)
    logs, moved = steps(compiled(objective, parts, **compiling), rows)
    for ours, theirs in zip(logs, whole, strict=True):
        assert ours.keys() == theirs.keys()
        for name in theirs:
            np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-5, err_msg=name)
    for ours, theirs in zip(moved, weights, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=5e-5)


@pytest.mark.parametrize(
    ("objective", "parts", "jit_compile"),
    [(MaskedLM, 4, True), pytest.param(late, 2, False, marks=pytest.mark.any_backend)],
)
def test_parts_take_the_step_of_the_whole(objective, parts, jit_compile):
    assert_same_steps(objective, parts, 8, jit_compile=jit_compile)


@pytest.mark.parametrize(("rows", "compiling"), [pytest.param(1, QUICK, marks=pytest.mark.any_backend), (5, JIT)])
def test_a_batch_that_parts_do_not_divide_takes_the_step_of_the_whole(rows, compiling):
    assert_same_steps(MaskedLM, 4, rows, **compiling)


@pytest.mark.any_backend
def test_rows_that_fill_a_batch_count_in_no_metric_that_a_user_compiles():
    kind = functools.partial(keras.metrics.SparseCategoricalCrossentropy, from_logits=True)
    model = compiled(MaskedLM, 4, metrics=[kind("plain")], weighted_metrics=[kind("weighted")], **QUICK)
    whole = model.test_on_batch(*make_batch(5), return_dict=True)
    model.reset_metrics()
    parts = model.train_on_batch(*make_batch(5), return_dict=True)
    for name in ("plain", "weighted", "loss"):
        np.testing.assert_allclose(parts[name], whole[name], rtol=1e-5, err_msg=name)


def test_parts_draw_dropout_of_their_own():
    model = compiled(MaskedLM, 2, dropout=0.3, **JIT)
    model.optimizer.build(model.trainable_variables)
    variables, seen = [*model.variables, *model.optimizer.variables], []
    start = [variable.numpy() for variable in variables]  # what dropout is drawn from among them
    for _ in range(2):
        for variable, value in zip(variables, start, strict=True):
            variable.assign(value)
        model.reset_metrics()
        seen.append(steps(model, 4)[0][-1]["loss"])
    first = {variable.path: value for variable, value in zip(variables, start, strict=True)}
    plain = compiled(MaskedLM, 2, **QUICK)
    for weight in plain.weights:
        weight.assign(first[weight.path])
    without = steps(plain, 4)[0][-1]["loss"]
    assert seen[0] == seen[1] and abs(seen[0] - without) > 1e-2


def test_arguments_survive_saving_and_mistakes_are_named():
    model = MaskedLM(make_encoder(), 10, micro_batches=3)
    assert MaskedLM.from_config(model.get_config()).micro_batches == 3
    with pytest.raises(UserError, match="micro_batches is 0; it must be a positive whole number"):
        MaskedLM(make_encoder(), 10, micro_batches=0)


def test_fit_takes_parts_of_batches_of_any_size():
    """Of data in memory, of which a batch of five rows is left over."""
    model = MaskedLM(make_encoder(), 10, micro_batches=4)
    model.compile("lion", **JIT)
    x, y, _ = make_batch(13)
    losses = model.fit(x, y, batch_size=8, epochs=3, shuffle=False, verbose=0).history["loss"]  # without weights
    assert losses[-1] < losses[0]


@pytest.mark.skipif(keras.config.backend() != "jax", reason="its steps are compiled sooner")
def test_what_float8_measures_is_that_of_the_whole_batch():
    model = MaskedLM(make_encoder(), 10, micro_batches=2)
    layers = model.encoder.parts.projection, model.head.dense
    for layer in layers:
        layer.quantize("float8")
    model.compile(TrainingOptimizer(keras.optimizers.SGD(0.0)))
    model.train_on_batch(*make_batch(4))
    for layer in layers:
        scale, largest, kernel = (
            keras.ops.convert_to_numpy(each) for each in (layer.inputs_scale, layer.kernel_amax_history, layer.kernel)
        )
        assert scale == 1.0  # nothing was measured before the first step
        assert np.isclose(largest.max(), np.abs(kernel).max())
