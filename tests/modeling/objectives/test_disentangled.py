"""Gradient-disentangled embedding sharing: detection moves the difference, and the generator's loss its table."""

import json
from contextlib import nullcontext
from dataclasses import replace

import keras
import numpy as np
import pytest

from rembed_keras.analysis.cost.ledger import ledger
from rembed_keras.errors import UserError
from rembed_keras.modeling import Encoder, MaskedLM, ReplacedTokenDetection
from rembed_keras.modeling.attention import Disentangled, Global
from rembed_keras.modeling.generator_sharing import SharedEmbeddings
from rembed_keras.modeling.input_embeddings import Projected, Summed
from rembed_keras.modeling.layers import draws
from rembed_keras.training.loop import checkpoints, restoring
from tests.modeling import reference
from tests.modeling.forward import QUICK, forward
from tests.modeling.objectives.test_objectives import make_detection
from tests.modeling.objectives.test_pretraining import make_batch
from tests.modeling.test_encoder import FIRST, SECOND, make_encoder


def make_model(**changes):
    return make_detection(sharing="gdes", num_layers=1, **changes)


@pytest.fixture(scope="module")
def likeliest():
    """Generators draw the likeliest token."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draws, "uniform", lambda shape, **_: keras.ops.full(shape, 0.5))
        yield


@pytest.fixture(scope="module")
def stepped(likeliest):
    """A model that has taken a step, and all that it moved by."""
    model = make_model()
    moved = step_of(model, RATE)
    return model, moved, [variable.numpy() for variable in model.variables]


@pytest.fixture
def trained(stepped):
    """A compiled model after its first step, the same for each test; the encoder's own table is that of before."""
    model, _, values = stepped
    for variable, value in zip(model.variables, values, strict=True):
        variable.assign(value)
    return model


RATE = 1e-2
ROWS = ("token_ids", "segment_ids", "padding_mask")


def inputs():
    return {key: make_batch()[0][key] for key in ROWS}


def tables(model):
    embeddings = model.reader.parts.embeddings
    return embeddings.shared.embeddings, embeddings.difference.embeddings


def step_of(model, rate):
    before = {weight.path: weight.numpy() for weight in model.weights}
    model.compile(optimizer=keras.optimizers.SGD(rate), **QUICK)
    model.train_on_batch(*make_batch())
    return {weight.path: (before[weight.path] - weight.numpy()) / rate for weight in model.weights}


def detection_loss(model, table):
    """In NumPy and float64, of an encoder that reads this table, 50 times as in the loss."""
    x, y, _ = make_batch()
    outputs = forward(model, x)
    w, nats = reference.weights_of(model), []
    for row, (document, length) in enumerate(((FIRST, 7), (SECOND, 4))):
        ids = np.array(document[0])[:length]
        slots = [slot for slot in range(3) if slot == 0 or x["mask_positions"][row, slot]]
        truth = np.zeros(length)
        for slot in slots:
            place = x["mask_positions"][row, slot]
            ids[place] = outputs["drawn"][row, slot]
            truth[place] = outputs["drawn"][row, slot] != y[row, slot]
        states, _ = encode(model.encoder, table, ids, np.array(document[1])[:length])
        features = reference.gelu(states[-1] @ w["detector/kernel"] + w["detector/bias"])
        score = (features @ w["detection/kernel"] + w["detection/bias"])[:, 0]
        nats.append(np.log1p(np.exp(-np.abs(score))) + np.maximum(score, 0) - truth * score)
    return 50 * np.concatenate(nats).mean()


def encode(encoder, table, ids, segments):
    """`reference.encode` with a table in float64, which no variable could hold."""
    original = reference.weights_of
    try:
        reference.weights_of = lambda model: original(model) | {"embeddings/token/embeddings": table}
        return reference.encode(encoder, ids, segments)
    finally:
        reference.weights_of = original


def test_detections_gradient_reaches_the_difference_only(stepped):
    model = make_model()
    shared, difference = tables(model)
    table = shared.numpy().astype("float64") + difference.numpy()
    rng = np.random.default_rng(0)
    expected, directions = [], rng.normal(0, 1, (4, *table.shape))
    for direction in directions:
        ends = [detection_loss(model, table + sign * 1e-5 * direction) for sign in (1, -1)]
        expected.append((ends[0] - ends[1]) / 2e-5)
    generator = MaskedLM(model.generator, 20)  # the generator's loss alone
    for variable, value in zip(generator.droppable_variables, model.head.weights, strict=True):
        variable.assign(value.numpy())
    alone = step_of(generator, RATE)[shared.path]
    model, gradients, _ = stepped  # from the same weights
    shared, difference = tables(model)
    np.testing.assert_allclose((gradients[difference.path] * directions).sum((1, 2)), expected, rtol=2e-3)
    np.testing.assert_allclose(gradients[shared.path], alone, atol=2e-4)
    assert not gradients[model.encoder.token_embedding.embeddings.path].any()


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_dropping_the_heads_folds_to_the_bit(dtype):
    model = make_model(dtype=dtype)
    difference = tables(model)[1]
    difference.assign(np.random.default_rng(2).normal(0, 0.1, difference.shape))
    before = forward(model.reader, inputs())["sequence_output"]
    assert not np.array_equal(forward(model.encoder, inputs())["sequence_output"], before)
    assert model.drop_heads() is model.encoder
    np.testing.assert_array_equal(forward(model.encoder, inputs())["sequence_output"], before)


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize`:UserWarning")
@pytest.mark.usefixtures("without_old_garbage")
def test_the_encoder_is_quantized_and_not_the_model():
    model = make_model()
    with pytest.raises(UserError, match=r"quantize the encoder that drop_heads\(\) gives"):
        model.quantize("int8")
    assert all(layer.quantization_mode is None for layer in model._flatten_layers())
    model.drop_heads().quantize("int8")
    table = model.encoder.token_embedding.embeddings
    before = table.numpy()
    np.testing.assert_array_equal(model.drop_heads().token_embedding.embeddings.numpy(), before)
    again = ReplacedTokenDetection.from_config(json.loads(json.dumps(model.get_config())))
    for ours, theirs in zip(again.weights, model.weights, strict=True):
        assert (ours.path, ours.dtype) == (theirs.path, theirs.dtype)
        ours.assign(theirs.numpy())
    for one, other in ((again.encoder, model.encoder), (again.reader, model.reader)):
        states = (forward(each, inputs())["sequence_output"] for each in (one, other))
        np.testing.assert_array_equal(*states)
    with pytest.raises(UserError, match=r"sharing 'gdes' needs an input embedding .* that is not quantized"):
        ReplacedTokenDetection(model.drop_heads(), 20, sharing="gdes")


def stop(batch, logs):
    raise KeyboardInterrupt


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_after_fit_the_encoder_has_what_detection_reads(trained, is_interrupted):
    x, y, weights = make_batch()
    before = trained.reader.parts.embeddings.table()
    callbacks = [keras.callbacks.LambdaCallback(on_train_batch_end=stop)] if is_interrupted else []
    with pytest.raises(KeyboardInterrupt) if is_interrupted else nullcontext():
        trained.fit(x, y, sample_weight=weights, verbose=0, callbacks=callbacks)
    read = trained.reader.parts.embeddings.table()
    assert not np.array_equal(read, before)
    np.testing.assert_array_equal(trained.encoder.token_embedding.embeddings.numpy(), keras.ops.convert_to_numpy(read))


@pytest.mark.parametrize("form", ["preset", "checkpoint"])
def test_what_is_saved_is_folded_and_comes_back_to_the_bit(trained, form, tmp_path):
    stale = trained.encoder.token_embedding.embeddings.numpy()
    if form == "preset":
        trained.save_to_preset(str(tmp_path / "preset"))
        again = ReplacedTokenDetection.from_preset(str(tmp_path / "preset"))
        kept = Encoder.from_preset(str(tmp_path / "preset"))
    else:
        state = {"model": keras.saving.serialize_keras_object(trained)}
        parts = {name: checkpoints.read_arrays(owned) for name, owned in restoring.parts_of(trained).items()}
        checkpoints.save(tmp_path / "checkpoints", 1, parts, json.loads(json.dumps(state)))
        found = checkpoints.latest(tmp_path / "checkpoints")
        again, kept = restoring.restore(found), restoring.kept_encoder(found)
        restoring.load_kept(kept, found)
    assert not np.array_equal(kept.token_embedding.embeddings.numpy(), stale)
    for ours, theirs in zip(again.weights, trained.weights, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy(), err_msg=theirs.path)
    expected = forward(trained.reader, inputs())["sequence_output"]
    np.testing.assert_array_equal(forward(kept, inputs())["sequence_output"], expected)


@pytest.mark.parametrize("kind", [pytest.param(Summed, marks=pytest.mark.any_backend), Projected])
def test_it_begins_as_the_encoder_that_it_was_given(kind):
    encoder = make_encoder(num_layers=1, num_heads=4, input_embedding=kind)
    before = forward(encoder, inputs())["sequence_output"]
    model = ReplacedTokenDetection(encoder, 20, generator_layers=1, sharing="gdes")
    np.testing.assert_array_equal(forward(model.reader, inputs())["sequence_output"], before)
    np.testing.assert_array_equal(forward(model.drop_heads(), inputs())["sequence_output"], before)
    assert np.abs(step_of(model, RATE)[tables(model)[1].path]).max() > 0


@pytest.mark.any_backend
def test_the_ledger_counts_the_difference():
    model = make_model()
    costs, table = ledger(model), model.encoder.token_embedding.count_params()
    assert costs.kept == model.drop_heads().count_params()
    assert costs.total == model.count_params() - sum("seed" in weight.path for weight in model.weights) * 2
    trained = sum(int(np.prod(weight.shape)) for weight in model.trainable_variables)
    assert costs.optimizer_bytes["total"] == 2 * 4 * trained
    assert costs.total == ledger(make_detection(sharing="none", num_layers=1)).total + table


@pytest.mark.any_backend
@pytest.mark.parametrize("changes", [{"input_cutoffs": (20,)}, {"freeze_input_embedding": True}])
def test_tables_that_cannot_be_shared_so_are_refused(changes):
    with pytest.raises(UserError, match="sharing 'gdes'"):
        ReplacedTokenDetection(make_encoder(num_heads=4, **changes), 20, sharing="gdes")


@pytest.mark.any_backend
def test_a_table_that_was_frozen_by_hand_is_refused():
    encoder = make_encoder(num_heads=4)
    encoder.token_embedding.trainable = False
    with pytest.raises(UserError, match="sharing 'gdes' trains the input embedding"):
        ReplacedTokenDetection(encoder, 20, sharing="gdes")


@keras.saving.register_keras_serializable(package="tests")
class Frozen(SharedEmbeddings):
    """A kind of one's own: the generator is not trained."""

    name = "frozen"

    def entries(self, encoder, generator, sequence_length):
        kept, entries = super().entries(encoder, generator, sequence_length)
        return kept, [replace(entry, is_trained=False) for entry in entries]

    def reader(self, encoder, generator):
        for layer in (generator.parts.projection, *generator.parts.blocks):
            layer.trainable = False
        return encoder


@pytest.mark.any_backend
def test_a_kind_of_ones_own_is_stored_and_counted():
    model = ReplacedTokenDetection(make_encoder(num_heads=4), 20, sharing=Frozen, generator_layers=1)
    again = ReplacedTokenDetection.from_config(json.loads(json.dumps(model.get_config())))
    assert again.get_config()["sharing"]["registered_name"] == "tests>Frozen"
    for each in (model, again):
        costs, trained = ledger(each), sum(int(np.prod(weight.shape)) for weight in each.trainable_variables)
        assert costs.optimizer_bytes["total"] == 2 * 4 * trained
        assert costs.kept == each.drop_heads().count_params()
    with pytest.raises(UserError, match="sharing is 'gds'; it can be one of none, embeddings, gdes; did you mean"):
        ReplacedTokenDetection(make_encoder(num_heads=4), 20, sharing="gds")


def test_micro_batches_take_the_step_of_the_whole(stepped):
    _, whole, _ = stepped
    model = make_model()
    parts = ReplacedTokenDetection.from_config(json.loads(json.dumps(model.get_config() | {"micro_batches": 2})))
    for ours, theirs in zip(parts.weights, model.weights, strict=True):
        ours.assign(theirs.numpy())
    steps = step_of(parts, RATE)
    for path, expected in whole.items():
        np.testing.assert_allclose(steps[path], expected, atol=2e-3, rtol=1e-3, err_msg=path)


def test_files_have_the_table_that_detection_reads_whenever_they_are_written(trained, tmp_path):
    stale = trained.encoder.token_embedding.embeddings.numpy()
    trained.save_weights(tmp_path / "first.weights.h5")
    first = trained.reader.parts.embeddings.table()
    trained.train_on_batch(*make_batch())
    trained.save(tmp_path / "m.keras")
    read = keras.saving.load_model(tmp_path / "m.keras")
    np.testing.assert_array_equal(read.encoder.token_embedding.embeddings, trained.reader.parts.embeddings.table())
    assert np.abs(read.encoder.token_embedding.embeddings - first).max() > 1e-3
    read.load_weights(tmp_path / "first.weights.h5")
    np.testing.assert_array_equal(read.encoder.token_embedding.embeddings, first)
    assert np.abs(first - stale).max() > 1e-3


def test_a_generator_without_positions_is_refused_where_it_shares_tables_that_have_none():
    pattern = [Global(), Disentangled(buckets=4, longest=8)]
    encoder = make_encoder(num_heads=4, attention=pattern)
    with pytest.raises(UserError, match=r"the encoder's tables, which have no positions, .* more generator_layers"):
        ReplacedTokenDetection(encoder, 20, generator_layers=1)
    for shared in ({"generator_layers": 2}, {"generator_layers": 1, "sharing": "none"}):
        assert ReplacedTokenDetection(encoder, 20, **shared).generator.num_layers == shared["generator_layers"]
