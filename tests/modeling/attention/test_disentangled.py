"""Disentangled attention against the paper's sums in NumPy and float64."""

import keras
import numpy as np
import pytest

from rembed_keras.analysis.cost.ledger import ledger
from rembed_keras.errors import UserError
from rembed_keras.modeling import LateMaskedLM, MaskedLM
from rembed_keras.modeling.attention import Disentangled, Global
from rembed_keras.modeling.blocks import PreNorm
from tests.modeling import reference
from tests.modeling.forward import encode_at, forward
from tests.modeling.test_encoder import FIRST, SECOND, make_encoder, make_inputs

KIND = Disentangled(buckets=4, longest=6)
ROW_OF = {0: 4, 1: 5, 2: 6, 3: 7, 4: 7, 5: 7, 6: 7}  # by hand: 0, 1 and 2 alone, 3 to 5 together, and all beyond


def row(distance):
    return ROW_OF[distance] if distance >= 0 else 8 - ROW_OF[-distance] if -distance < 6 else 0


def attended(w, name, x):
    """What one layer's heads add to one document [S, D], a pair of tokens at a time."""
    table = reference.layer_norm(
        w["block_0/attention/heads/shared_0/embeddings"],
        w["block_0/attention/heads/shared_0/norm/gamma"],
        w["block_0/attention/heads/shared_0/norm/beta"],
    )

    def heads(part, rows):
        return np.einsum("sd,dhk->shk", rows, w[f"{name}/{part}/kernel"]) + w[f"{name}/{part}/bias"]

    query, key, value = (heads(part, x) for part in ("query", "key", "value"))
    far_query, far_key = heads("query", table), heads("key", table)
    length, count, width = query.shape
    out = np.zeros_like(value)
    for i in range(length):
        for h in range(count):
            scores = [
                query[i, h] @ key[j, h] + query[i, h] @ far_key[row(i - j), h] + key[j, h] @ far_query[row(i - j), h]
                for j in range(length)
            ]
            shares = np.exp(np.array(scores) / np.sqrt(3 * width))
            out[i, h] = shares @ value[:, h] / shares.sum()
    merge = f"{name}/attention_output"
    return np.einsum("qhk,hkd->qd", out, w[f"{merge}/kernel"]) + w[f"{merge}/bias"]


def test_hidden_states_equal_the_papers_sums_in_float64():
    encoder = make_encoder(attention=KIND)
    w = reference.weights_of(encoder)
    outputs = forward(encoder, make_inputs([[FIRST, SECOND]], 12))  # packed, so that distances are of documents
    x = np.asarray(outputs["hidden_states"][0][0, :7], "float64")
    for i in range(encoder.num_layers):
        norm = f"block_{i}/attention/norm"
        middle = x + attended(w, f"block_{i}/attention/heads", x)
        middle = reference.layer_norm(middle, w[f"{norm}/gamma"], w[f"{norm}/beta"])
        wide = middle @ w[f"block_{i}/feed_forward/up/kernel"] + w[f"block_{i}/feed_forward/up/bias"]
        down = f"block_{i}/feed_forward/down"
        x = middle + reference.gelu(wide) @ w[f"{down}/kernel"] + w[f"{down}/bias"]
        norm = f"block_{i}/feed_forward/norm"
        x = reference.layer_norm(x, w[f"{norm}/gamma"], w[f"{norm}/beta"])
        np.testing.assert_allclose(outputs["hidden_states"][i + 1][0, :7], x, atol=5e-5)
    alone = forward(encoder, make_inputs([[SECOND]], 4))["sequence_output"][0]
    np.testing.assert_allclose(outputs["sequence_output"][0, 7:11], alone, atol=5e-5)


def test_tokens_that_are_picked_are_those_of_all():
    encoder = make_encoder(attention=[KIND, Global()])
    inputs, at = make_inputs([[FIRST, SECOND], [SECOND]], 12), np.array([[1, 5, 8], [0, 2, 3]])
    whole = np.asarray(forward(encoder, inputs)["sequence_output"])
    picked = encode_at(encoder, inputs, at)
    np.testing.assert_allclose(picked, np.take_along_axis(whole, at[..., None], axis=1), atol=5e-5)


@pytest.mark.any_backend
def test_it_replaces_the_table_of_positions_and_is_counted_once():
    for attention in (KIND, [KIND, Global(), Disentangled(6, 9)]):
        encoder = make_encoder(attention=attention, num_layers=5)
        assert encoder.parts.embeddings.position is None
        counted = ledger(encoder)
        lines = counted.to_json()["parts"].values()  # by name, of each kind's table its own
        assert counted.kept == sum(line["parameters"] for line in lines) == encoder.count_params()
    again = type(encoder).from_config(encoder.get_config())
    assert [weight.path for weight in again.weights] == [weight.path for weight in encoder.weights]


@pytest.mark.parametrize("make", [MaskedLM, pytest.param(LateMaskedLM, marks=pytest.mark.any_backend)])
def test_it_learns_and_so_does_its_table(make):
    model = make(make_encoder(num_layers=1, attention=KIND, max_sequence_length=12), 20)
    assert ledger(model).total == model.count_params()
    tables = {weight.path: weight.numpy() for weight in model.trainable_weights if "shared_0/embeddings" in weight.path}
    assert len(tables) == (2 if make is LateMaskedLM else 1)  # its decoder has one of its own
    x = make_inputs([[FIRST, SECOND]], 12) | {"mask_positions": np.array([[1, 8]])}
    model.compile(optimizer=keras.optimizers.Lion(1e-2))
    losses = [float(model.train_on_batch(x, np.array([[4, 5]]), return_dict=True)["loss"]) for _ in range(10)]
    assert losses[-1] < losses[0]
    after = {weight.path: weight.numpy() for weight in model.trainable_weights}
    assert all(np.abs(after[path] - table).max() > 1e-3 for path, table in tables.items())


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Disentangled(5, 9), "buckets must be even"),
        (lambda: Disentangled(8, 5), "more than half"),
        (lambda: make_encoder(attention=KIND, block=PreNorm), "PreNorm blocks rotate by them"),
    ],
)
def test_what_cannot_be_is_refused(make, message):
    with pytest.raises(UserError, match=message):
        make()
