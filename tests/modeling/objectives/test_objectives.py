import json

import keras
import numpy as np
import pytest

from rembed_keras.analysis.cost.ledger import ledger
from rembed_keras.errors import UserError
from rembed_keras.modeling import Encoder, LateMaskedLM, MaskedLM, ReplacedTokenDetection
from rembed_keras.modeling.blocks import PostNorm, PreNorm
from rembed_keras.modeling.input_embeddings import Summed
from rembed_keras.modeling.layers import draws
from rembed_keras.modeling.objectives.replaced_tokens import Replace
from tests.modeling import reference
from tests.modeling.forward import QUICK, forward
from tests.modeling.objectives.test_pretraining import make_batch
from tests.modeling.test_encoder import FIRST, SECOND, SIZES, make_encoder, make_inputs


def shake(model):
    rng = np.random.default_rng(1)
    for weight in model.weights:
        if "seed" not in weight.path:
            weight.assign(weight.numpy() + rng.normal(0, 0.3, weight.shape))
    return model


def make_masked(**changes):
    return shake(MaskedLM(make_encoder(**changes), 20))


def make_late(**changes):
    return shake(LateMaskedLM(make_encoder(**changes), 20, decoder_layers=2))


def test_the_decoder_sees_masked_positions_and_the_encoder_the_others():
    model = make_late()
    x = make_inputs([[FIRST]], 7) | {"mask_positions": np.array([[1, 4]], "int32")}
    w = reference.weights_of(model)
    tokens, segments = np.array(FIRST[0]), np.array(FIRST[1])
    seen = [0, 2, 3, 5, 6]
    h = w["embeddings/token/embeddings"][tokens] + w["embeddings/segment/embeddings"][segments]
    h = h + w["embeddings/position/embeddings"][:7]
    h = reference.layer_norm(h, w["embeddings/norm/gamma"], w["embeddings/norm/beta"])
    h = (h @ w["projection/kernel"] + w["projection/bias"])[seen]
    for i in range(2):
        h = reference.block(w, f"block_{i}", h, reference.gelu)
    whole = np.tile(w["decoder/gap"], (7, 1))
    whole[seen] = h
    whole = whole + w["decoder/position/embeddings"][:7]
    for i in range(2):
        whole = reference.block(w, f"decoder/block_{i}", whole, reference.gelu)
    features = reference.gelu(whole[[1, 4]] @ w["head/dense/kernel"] + w["head/dense/bias"])
    features = reference.layer_norm(features, w["head/norm/gamma"], w["head/norm/beta"])
    expected = features @ w["head/output_embedding/decoupled/table/embeddings"].T + w["head/output_embedding/bias"]
    np.testing.assert_allclose(forward(model, x)[0], expected, atol=1e-4)


def test_a_decoder_tells_masked_positions_apart_where_no_table_of_the_encoders_does():
    model = make_late(input_embedding=Summed(positions=False), num_layers=1)
    x = make_inputs([[FIRST]], 7) | {"mask_positions": np.array([[1, 4]], "int32")}
    ((first, second),) = forward(model, x)
    assert not np.allclose(first, second)
    counted, longest = ledger(model), model.encoder.arguments["max_sequence_length"]
    assert counted.total == model.count_params()
    with pytest.raises(UserError, match=f"sequence_length is {longest + 1}; the model's max_sequence_length"):
        ledger(model, sequence_length=longest + 1)


@pytest.mark.parametrize("block", [PostNorm, PreNorm])
def test_what_stands_at_masked_positions_is_not_read(block):
    model = make_late(block=block)
    x = make_inputs([[FIRST, SECOND], [SECOND]], 12) | {"mask_positions": np.array([[1, 5, 8], [2, 0, 0]], "int32")}
    logits = forward(model, x)
    other = x | {"token_ids": x["token_ids"].copy()}
    other["token_ids"][[0, 0, 0, 1], [1, 5, 8, 2]] = 44
    np.testing.assert_array_equal(forward(model, other), logits)
    other["token_ids"][0, 3] = 44
    assert not np.allclose(forward(model, other), logits)


def test_late_masking_keeps_documents_apart():
    model = make_late()
    x = make_inputs([[FIRST, SECOND]], 12) | {"mask_positions": np.array([[1, 8]], "int32")}
    logits = forward(model, x)
    other = x | {"token_ids": x["token_ids"].copy()}
    other["token_ids"][0, 9] = 44  # in the second document
    changed = forward(model, other)
    np.testing.assert_allclose(changed[0, 0], logits[0, 0], atol=1e-6)
    assert not np.allclose(changed[0, 1], logits[0, 1])


@pytest.mark.parametrize(
    ("make", "block"),
    [
        pytest.param("masked", PostNorm, marks=pytest.mark.any_backend),
        pytest.param("masked", PreNorm, marks=pytest.mark.any_backend),
        ("late", PostNorm),
        pytest.param("late", PreNorm, marks=pytest.mark.any_backend),
        pytest.param("detection", PostNorm, marks=pytest.mark.any_backend),
        ("detection", PreNorm),
    ],
)
def test_a_packed_row_gives_the_loss_and_the_step_of_its_documents(make, block, monkeypatch):
    """The row has padding, an empty slot, and more tokens than the table of positions has rows; it comes twice.

    So both batches have one shape, and one program.
    """
    monkeypatch.setattr(draws, "uniform", lambda shape, **_: keras.ops.full(shape, 0.5))  # the likeliest is drawn
    length = SIZES["max_sequence_length"] + 2
    x, packed = make_inputs([[FIRST], [SECOND]], length), make_inputs([[FIRST, SECOND]] * 2, length)
    x["mask_positions"] = np.array([[1, 2, 5, 0, 0], [2, 0, 0, 0, 0]], "int32")
    packed["mask_positions"] = np.array([[1, 2, 5, 7 + 2, 0]] * 2, "int32")  # the second begins after seven tokens
    y, in_a_row = np.array([[11, 7, 21, 0, 0], [32, 0, 0, 0, 0]], "int32"), np.array([[11, 7, 21, 32, 0]] * 2, "int32")
    model = {"masked": make_masked, "late": make_late, "detection": make_detection}[make](block=block, num_layers=1)
    before = [weight.numpy() for weight in model.weights]
    model.compile(optimizer=keras.optimizers.SGD(0.1), **QUICK)
    steps = []
    for inputs, targets in ((x, y), (packed, in_a_row)):
        for weight, value in zip(model.weights, before, strict=True):
            weight.assign(value)
        model.reset_metrics()
        loss = model.train_on_batch(inputs, targets, (targets > 0).astype("float32"), return_dict=True)["loss"]
        steps.append([np.array(loss), *(new.numpy() - old for new, old in zip(model.weights, before, strict=True))])
    assert max(np.abs(change).max() for change in steps[0][1:]) > 1e-3
    for apart, together in zip(*steps, strict=True):
        np.testing.assert_allclose(together, apart, rtol=1e-5, atol=5e-6)


@pytest.mark.parametrize(
    ("make", "block"),
    [("late", PostNorm), pytest.param("late", PreNorm, marks=pytest.mark.any_backend), ("detection", PreNorm)],
)
def test_everything_learns_and_comes_back(make, block, tmp_path):
    model = {"late": make_late, "detection": make_detection}[make](block=block, num_layers=1)
    x, y, weights = make_batch()
    before = {weight.path: weight.numpy() for weight in model.trainable_weights}
    model.compile(optimizer=keras.optimizers.Lion(1e-2))
    losses = [float(model.train_on_batch(x, y, weights, return_dict=True)["loss"]) for _ in range(16)]
    assert losses[-1] < 0.5 * losses[0]
    still = {path for path in before if np.array_equal(before[path], weight_of(model, path))}
    assert not {path for path in still if "key/bias" not in path}
    again = type(model).from_config(json.loads(json.dumps(model.get_config())))
    assert again.get_config() == model.get_config() and again.count_params() == model.count_params()
    model.save_to_preset(str(tmp_path / "preset"))
    kept = Encoder.from_preset(str(tmp_path / "preset"))
    inputs = {key: x[key] for key in ("token_ids", "segment_ids", "padding_mask")}
    np.testing.assert_array_equal(
        forward(kept, inputs)["sequence_output"],
        forward(model.drop_heads(), inputs)["sequence_output"],
    )


def weight_of(model, path):
    return next(weight.numpy() for weight in model.weights if weight.path == path)


def make_detection(sharing="embeddings", **changes):
    keras.utils.set_random_seed(0)
    encoder = make_encoder(num_heads=4, **changes)
    return shake(ReplacedTokenDetection(encoder, 20, generator_layers=1, generator_scale=0.5, sharing=sharing))


@pytest.mark.any_backend
@pytest.mark.parametrize("make", [make_masked, make_detection], ids=["masked", "detection"])
def test_what_weighs_nothing_needs_no_label(make):
    model = make()
    model.compile("sgd", **QUICK)
    x, y, weights = make_batch()
    unknown, y_pred = np.where(weights > 0, y, -100), model(x)
    losses = [float(model.compute_loss(x, each, y_pred, weights)) for each in (y, unknown)]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-6)
    logs = model.test_on_batch(x, unknown, weights, return_dict=True)  # of a model that is given the labels
    assert all(np.isfinite(log) for log in logs.values())


def test_the_loss_is_the_generators_and_what_the_encoder_takes_for_replaced():
    model = make_detection()
    x, y, weights = make_batch()
    outputs = {key: np.asarray(value, "float64") for key, value in forward(model, x).items()}
    generated = (
        sum((reference.cross_entropy(outputs["logits"][row], y[row]) * weights[row]).sum() for row in range(2))
        / weights.sum()
    )
    truth = np.zeros(x["token_ids"].shape)
    for row, slot in zip(*np.nonzero(weights), strict=True):
        truth[row, x["mask_positions"][row, slot]] = outputs["drawn"][row, slot] != y[row, slot]
    chance = 1 / (1 + np.exp(-outputs["detection"]))
    nats = -np.log(np.where(truth > 0, chance, 1 - chance))
    is_real = x["padding_mask"] > 0
    pred = {key: value.astype("int32" if key == "drawn" else "float32") for key, value in outputs.items()}
    expected = generated + 50 * nats[is_real].mean()
    assert np.isclose(float(model.compute_loss(x, y, pred, weights)), expected, rtol=1e-4)
    model.compute_metrics(x, y, pred, weights)
    logs = {key: float(value) for key, value in model.get_metrics_result().items()}
    assert np.isclose(logs["loss"], expected, rtol=1e-4)
    assert np.isclose(logs["generator_loss"], generated, rtol=1e-4)
    assert np.isclose(logs["accuracy"], ((chance > 0.5) == (truth > 0))[is_real].mean())


def test_tokens_are_drawn_from_the_generators_softmax_and_put_at_masked_positions():
    logits = np.log(np.tile([0.5, 0.3, 0.2, 1e-9], (400, 5, 1))).astype("float32")
    tokens = np.full((400, 9), 7, "int32")
    positions = np.tile([0, 2, 5, 8, 0], (400, 1)).astype("int32")
    keras.utils.set_random_seed(3)
    replaced, drawn = map(np.asarray, Replace()(tokens, positions, logits))
    shares = np.bincount(drawn[:, :4].ravel(), minlength=4) / 1600
    np.testing.assert_allclose(shares, [0.5, 0.3, 0.2, 0], atol=0.05)
    np.testing.assert_array_equal(replaced[:, [0, 2, 5, 8]], drawn[:, :4])
    assert (replaced[:, [1, 3, 4, 6, 7]] == 7).all()


@pytest.mark.any_backend
def test_the_generator_reads_the_encoders_tables_or_its_own():
    shared, apart = make_detection(), make_detection(sharing="none")
    tables = sum(weight.numpy().size for weight in shared.encoder.parts.embeddings.weights)
    assert apart.count_params() - shared.count_params() == tables
    assert shared.generator.token_embedding is shared.encoder.token_embedding
    pooler = shared.generator.parts.pooler.kernel
    assert not any(weight is pooler for weight in shared.trainable_variables)
    paths = [weight.path for weight in apart.weights]
    assert len(paths) == len(set(paths))  # files of checkpoints tell them apart by path


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LateMaskedLM(make_encoder(), 20, decoder_layers=0), "decoder_layers is 0"),
        (lambda: ReplacedTokenDetection(make_encoder(), 20, sharing="all"), "none, embeddings"),
        (lambda: ReplacedTokenDetection(make_encoder(), 20, generator_layers=0), "generator_layers is 0"),
        (lambda: LateMaskedLM(make_encoder(), 20, coupling="coupled"), "shares one table of one width"),
    ],
)
def test_refuses_what_cannot_be_built(make, message):
    with pytest.raises(ValueError, match=message):
        make()
