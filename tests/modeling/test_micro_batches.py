import keras
import numpy as np
import pytest

from rembed_keras.errors import UserError
from rembed_keras.modeling import Encoder, LateMaskedLM, MaskedLM


def make_encoder(dropout=0.0):
    return Encoder(60, 1, 2, 8, 16, 6, max_sequence_length=16, dropout=dropout)


def make_batch(rows):
    """Rows with fewer and fewer predictions, the last with none."""
    rng = np.random.default_rng(rows)
    ids = rng.integers(5, 60, (rows, 12)).astype("int32")
    positions = np.sort(np.argsort(rng.random((rows, 12)), axis=1)[:, :4], axis=1).astype("int32")
    weights = (np.arange(4) < np.linspace(4, 0, rows).astype(int)[:, None]).astype("float32")
    x = {"token_ids": ids, "segment_ids": 0 * ids, "padding_mask": 0 * ids + 1, "mask_positions": positions}
    return x | {"language_ids": np.arange(rows, dtype="int32") % 2}, np.take_along_axis(ids, positions, 1), weights


def steps(objective, parts, rows, jit_compile, dropout=0.0):
    """Logs of three steps, and the weights after them."""
    jit_compile = jit_compile or keras.config.backend() == "jax"  # where the other way is operation by operation
    keras.utils.set_random_seed(2)
    model = objective(make_encoder(dropout), 10, micro_batches=parts)
    model.track_groups(["de", "en"])
    model.compile(keras.optimizers.Adam(0.02, global_clipnorm=0.5), jit_compile=jit_compile)
    logs = [model.train_on_batch(*make_batch(rows), return_dict=True) for _ in range(3)]
    return logs, [keras.ops.convert_to_numpy(weight) for weight in model.weights]


@pytest.mark.parametrize(("objective", "parts", "jit_compile"), [(MaskedLM, 4, True), (LateMaskedLM, 2, False)])
def test_parts_take_the_step_of_the_whole(objective, parts, jit_compile):
    whole, weights = steps(objective, 1, 8, jit_compile)
    logs, moved = steps(objective, parts, 8, jit_compile)
    for ours, theirs in zip(logs, whole, strict=True):
        assert ours.keys() == theirs.keys()
        for name in theirs:
            np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-5, err_msg=name)
    for ours, theirs in zip(moved, weights, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=5e-5)


def test_parts_draw_dropout_of_their_own():
    plain, first, again = (steps(MaskedLM, 2, 4, False, rate)[0][-1]["loss"] for rate in (0.0, 0.3, 0.3))
    assert first == again != plain


def test_fit_takes_parts_of_batches_of_any_size():
    model = MaskedLM(make_encoder(), 10, micro_batches=2)
    model.compile("adam", jit_compile=keras.config.backend() == "jax")
    x, y, weights = make_batch(12)
    losses = model.fit(x, y, sample_weight=weights, batch_size=6, epochs=3, shuffle=False, verbose=0).history["loss"]
    assert losses[-1] < losses[0]


def test_arguments_survive_saving_and_mistakes_are_named():
    model = MaskedLM(make_encoder(), 10, micro_batches=3)
    assert MaskedLM.from_config(model.get_config()).micro_batches == 3
    with pytest.raises(UserError, match="micro_batches is 0; it must be a positive whole number"):
        MaskedLM(make_encoder(), 10, micro_batches=0)


@pytest.mark.parametrize("rows", [1, 5])
def test_a_batch_that_parts_do_not_divide_takes_the_step_of_the_whole(rows):
    whole, weights = steps(MaskedLM, 1, rows, False)
    logs, moved = steps(MaskedLM, 4, rows, False)
    for ours, theirs in zip(logs, whole, strict=True):
        for name in theirs:
            np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-5, err_msg=name)
    for ours, theirs in zip(moved, weights, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=5e-5)


def test_rows_are_left_over_by_batches_of_data_in_memory():
    model = MaskedLM(make_encoder(), 10, micro_batches=4)
    model.compile("adam", jit_compile=keras.config.backend() == "jax")
    x, y, _ = make_batch(13)
    assert np.isfinite(model.fit(x, y, batch_size=8, verbose=0).history["loss"][0])  # without weights
