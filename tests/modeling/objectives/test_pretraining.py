import keras
import numpy as np
import pytest

from own_parts.modeling.objective import LanguageIdentification
from rembed_keras.errors import UserError
from rembed_keras.modeling import Encoder, MaskedLM, ReplacedTokenDetection
from rembed_keras.modeling.layers import draws
from rembed_keras.training.optimizers.training_optimizer import TrainingOptimizer
from tests.modeling import reference
from tests.modeling.forward import QUICK, forward
from tests.modeling.test_encoder import FIRST, SECOND, make_encoder, make_inputs


def make_model(output_embedding_dim=20, **changes):
    model = MaskedLM(make_encoder(**changes), output_embedding_dim)
    rng = np.random.default_rng(1)
    for weight in model.head.weights:
        weight.assign(weight.numpy() + rng.normal(0, 0.3, weight.shape))
    return model


def make_batch():
    x = make_inputs([[FIRST], [SECOND]], 8)
    x["mask_positions"] = np.array([[1, 2, 5], [2, 0, 0]], "int32")
    x["language_ids"] = np.array([0, 1], "int32")
    y = np.array([[11, 7, 21], [32, 0, 0]], "int32")
    weights = np.array([[1, 1, 1], [1, 0, 0]], "float32")
    return x, y, weights


def expected_losses(model, x, y):
    losses = []
    for row, (document, length) in enumerate(((FIRST, 7), (SECOND, 4))):
        states, _ = reference.encode(model.encoder, np.array(document[0])[:length], np.array(document[1])[:length])
        losses.append(reference.cross_entropy(reference.score(model, states[-1], x["mask_positions"][row]), y[row]))
    return np.array(losses)


@pytest.mark.parametrize("coupling", ["decoupled", "coupled"])
def test_logits_and_loss_equal_the_reference_in_float64(coupling):
    model = make_model() if coupling == "decoupled" else MaskedLM(make_encoder(), 6, coupling="coupled")
    x, y, weights = make_batch()
    states, _ = reference.encode(model.encoder, *map(np.array, FIRST))
    logits = forward(model, x)
    assert logits.shape == (2, 3, 50)
    np.testing.assert_allclose(logits[0], reference.score(model, states[-1], x["mask_positions"][0]), atol=5e-5)
    model.compile(optimizer="sgd", **QUICK)
    loss = model.test_on_batch(x, y, weights, return_dict=True)["loss"]
    assert np.isclose(loss, (expected_losses(model, x, y) * weights).sum() / 4, atol=1e-5)


@pytest.mark.usefixtures("without_graphs")
def test_every_real_prediction_counts_the_same_across_batches():
    model = make_model(num_layers=1)
    model.compile(optimizer="sgd")
    x, y, weights = make_batch()
    split = model.evaluate(x, y, sample_weight=weights, batch_size=1, verbose=0, return_dict=True)
    whole = model.evaluate(x, y, sample_weight=weights, batch_size=2, verbose=0, return_dict=True)
    assert np.isclose(split["loss"], whole["loss"], atol=1e-6)
    assert np.isclose(split["accuracy"], whole["accuracy"])


def test_without_weights_every_slot_counts_and_without_predictions_none():
    model = make_model()
    model.compile(optimizer="sgd", **QUICK)
    x, y, weights = make_batch()
    loss = model.test_on_batch(x, y, return_dict=True)["loss"]
    assert np.isclose(loss, expected_losses(model, x, y).mean(), atol=1e-5)
    assert float(model.compute_loss(x, y, forward(model, x), 0 * weights)) == 0.0


@pytest.mark.any_backend
def test_a_row_whose_predictions_weigh_nothing_counts_in_no_part_of_a_loss():
    """So of a text of weight 0, whose predictions a preprocessor weighs."""
    keras.utils.set_random_seed(3)
    model = ReplacedTokenDetection(make_encoder(num_layers=1), 8, generator_layers=1)
    model.compile(optimizer="sgd", **QUICK)
    (seed,) = (variable for variable in model.variables if "seed" in variable.path)
    start, (x, y, weights) = keras.ops.convert_to_numpy(seed), make_batch()

    def evaluated(token, sample_weight):
        x["token_ids"][1, 1] = token
        seed.assign(start)
        return model.evaluate(x, y, sample_weight=sample_weight, verbose=0, return_dict=True)

    of_rows = np.array([1.0, 0.5])
    of_none = weights * np.array([[1.0], [0.0]])
    assert evaluated(7, of_none) == evaluated(9, of_none)
    halved = evaluated(7, weights * of_rows[:, None])["detection_loss"]
    assert np.isclose(halved, evaluated(7, of_rows)["detection_loss"], rtol=1e-6)


def test_logs_the_loss_of_each_group():
    model = make_model()
    model.track_groups(["de", "en", "fr"])
    model.compile(optimizer="sgd", **QUICK)
    x, y, weights = make_batch()
    logs = model.test_on_batch(x, y, weights, return_dict=True)
    losses = expected_losses(model, x, y)
    assert np.isclose(logs["loss/de"], losses[0].mean(), atol=1e-5)
    assert np.isclose(logs["loss/en"], losses[1, 0], atol=1e-5)
    assert np.isnan(logs["loss/fr"])


def test_training_learns_and_leaves_the_pooler_alone():
    model = make_model(num_layers=1)
    pooler = model.encoder.parts.pooler.kernel.numpy()
    x, y, weights = make_batch()
    model.compile(optimizer=keras.optimizers.Lion(1e-2))
    losses = [float(model.train_on_batch(x, y, weights, return_dict=True)["loss"]) for _ in range(20)]
    assert losses[-1] < 0.5 * losses[0]
    np.testing.assert_array_equal(pooler, model.encoder.parts.pooler.kernel.numpy())


def test_rematerialised_blocks_take_the_same_step():
    steps = []
    for rematerialize, compiling in ((False, QUICK), (True, {})):
        keras.utils.set_random_seed(4)
        model = make_model(num_layers=1, rematerialize=rematerialize)
        before = [weight.numpy() for weight in model.weights]
        model.compile(optimizer=keras.optimizers.SGD(0.5), **compiling)
        model.train_on_batch(*make_batch())
        steps.append([weight.numpy() - old for weight, old in zip(model.weights, before, strict=True)])
    for plain, again in zip(*steps, strict=True):
        np.testing.assert_allclose(again, plain, atol=1e-6)
    with pytest.raises(ValueError, match="rematerialize needs dropout 0"):
        make_model(rematerialize=True, dropout=0.1)


@pytest.mark.skipif(keras.config.backend() != "jax", reason="JAX shows its program, in the run on JAX")
@pytest.mark.parametrize("rematerialize", [False, True])
def test_rematerialised_blocks_are_computed_again(rematerialize):
    import jax

    model = make_model(rematerialize=rematerialize)
    x, y, weights = make_batch()
    x |= {"targets": y, "target_weights": weights, "target_shares": weights / 4, "loss_scales": weights[:, 0]}
    variables = model.trainable_variables

    def loss(values):
        with keras.StatelessScope([*zip(variables, values, strict=True)]):
            return model(x, training=True)["loss"]

    program = str(jax.make_jaxpr(jax.grad(loss))([variable.value for variable in variables]))
    assert program.count("remat") >= model.encoder.num_layers if rematerialize else "remat" not in program


@pytest.mark.any_backend
def test_coupled_is_one_table_and_decoupled_two():
    encoder = make_encoder()
    coupled, decoupled = MaskedLM(encoder, 6, coupling="coupled"), MaskedLM(encoder, 6)
    assert decoupled.count_params() - coupled.count_params() == 50 * 6
    x, y, weights = make_batch()
    for model, moves in ((coupled, True), (decoupled, False)):
        before = encoder.token_embedding.embeddings.numpy()
        model.compile(optimizer=keras.optimizers.SGD(0.1), **QUICK)
        model.train_on_batch(x, y, weights)
        unseen = 45  # a word of no input: only an output side that shares the table can move it
        assert (not np.array_equal(before[unseen], encoder.token_embedding.embeddings.numpy()[unseen])) == moves


def test_dropping_the_head_keeps_outputs_to_the_bit():
    model = make_model()
    x, y, weights = make_batch()
    model.compile(optimizer="sgd", **QUICK)
    model.train_on_batch(x, y, weights)
    inputs = {key: x[key] for key in ("token_ids", "segment_ids", "padding_mask")}
    before = forward(model.encoder, inputs)
    dropped, cut = forward(model.drop_heads(), inputs), forward(model.drop_heads(num_layers=1), inputs)
    np.testing.assert_array_equal(dropped["sequence_output"], before["sequence_output"])
    np.testing.assert_array_equal(cut["sequence_output"], before["hidden_states"][1])


@pytest.mark.any_backend
@pytest.mark.parametrize("coupling", ["decoupled", "coupled"])
def test_presets_come_back(coupling, tmp_path):
    model = MaskedLM(make_encoder(num_layers=1), 6, coupling=coupling)
    model.save_to_preset(str(tmp_path / "preset"))
    again = MaskedLM.from_preset(str(tmp_path / "preset"))
    x, _, _ = make_batch()
    np.testing.assert_array_equal(forward(again, x), forward(model, x))
    assert again.count_params() == model.count_params()
    encoder = Encoder.from_preset(str(tmp_path / "preset"))
    assert encoder.get_config() == model.encoder.get_config()


@pytest.mark.parametrize(
    "dtype",
    [
        pytest.param("mixed_bfloat16", marks=pytest.mark.any_backend),
        pytest.param("mixed_float16", marks=pytest.mark.any_backend),
        "bfloat16",
    ],
)
def test_presets_of_other_dtypes_come_back(dtype, tmp_path):
    model = MaskedLM(make_encoder(dtype=dtype, num_layers=1), 6)
    model.save_to_preset(str(tmp_path / "preset"))
    again = MaskedLM.from_preset(str(tmp_path / "preset"))
    assert again.encoder.dtype_policy.name == dtype
    x, _, _ = make_batch()
    np.testing.assert_array_equal(forward(again, x), forward(model, x))


@pytest.mark.any_backend
def test_refuses_widths_that_cannot_be_shared():
    with pytest.raises(ValueError, match="output_embedding_dim is 20 and input_embedding_dim 6"):
        MaskedLM(make_encoder(), 20, coupling="coupled")
    with pytest.raises(ValueError, match="it can be one of decoupled, coupled, extended, gdes"):
        MaskedLM(make_encoder(), 20, coupling="tied")
    with pytest.raises(ValueError, match="output_embedding_dim is 0"):
        MaskedLM(make_encoder(), 0)


@pytest.mark.any_backend
@pytest.mark.parametrize("make", [MaskedLM, lambda e, width: ReplacedTokenDetection(e, width, generator_layers=1)])
def test_weights_of_rows_are_those_of_all_their_predictions(make, monkeypatch):
    """Of as many rows as predictions a row, where a row's weight could be taken for a prediction's."""
    monkeypatch.setattr(draws, "uniform", lambda shape, **_: keras.ops.full(shape, 0.5))
    model = make(make_encoder(num_layers=1), 20)
    model.compile(optimizer="sgd", **QUICK)
    x, y, _ = make_batch()
    x, y = ({name: column[..., :2] if name == "mask_positions" else column for name, column in x.items()}, y[:, :2])
    first = {name: column[:1] for name, column in x.items()}
    alone = model.test_on_batch(first, y[:1], return_dict=True)
    for weights in (np.array([1.0, 0.0]), np.array([[1.0], [0.0]])):
        found = model.test_on_batch(x, y, sample_weight=weights, return_dict=True)
        assert found == pytest.approx(alone, rel=1e-4)
    with pytest.raises(UserError, match="has no class for each row"):
        model.fit(x, y, class_weight={0: 1.0}, verbose=0)


@pytest.mark.any_backend
def test_rows_that_fill_a_batch_count_nothing_for_an_objective_of_rows():
    model = LanguageIdentification(make_encoder(num_layers=1), 3)
    model.track_groups(["de", "en"])
    model.compile(optimizer="sgd", **QUICK)
    filled = keras.tree.map_structure(lambda part: np.concatenate([part, np.zeros_like(part)]), make_batch())
    own, found = (model.test_on_batch(*each, return_dict=True) for each in (make_batch(), filled))
    assert found == pytest.approx(own, rel=1e-5)


def test_the_examples_objective_refuses_more_languages_than_it_tells_apart():
    model = LanguageIdentification(make_encoder(num_layers=1), 2)
    with pytest.raises(UserError, match="num_languages of languages is 2, and the text has 3 languages"):
        model.track_groups(["de", "en", "ja"])


@pytest.mark.any_backend
@pytest.mark.parametrize("skips", [False, True])
def test_a_loss_that_is_not_finite_is_left_out_where_its_step_is_skipped(skips):
    model = MaskedLM(make_encoder(num_layers=1), 20)
    optimizer = keras.optimizers.SGD(0.1)
    model.compile(TrainingOptimizer(optimizer, skip_nonfinite=1) if skips else optimizer, **QUICK)
    model.make_train_function()
    for losses, expected in (([[3.0, 1.0, np.inf]], 2.0), ([[np.nan, 1.0, 1.0]], 5 / 3 if skips else np.nan)):
        model.track(np.array(losses), np.zeros((1, 3)), np.array([[1.0, 1.0, 0.0]]), None)
        np.testing.assert_allclose(float(model.get_metrics_result()["loss"]), expected, rtol=1e-6)


def test_the_loss_of_an_epoch_in_which_weights_became_nan_is_nan():
    model = MaskedLM(make_encoder(num_layers=1), 20)
    model.compile(keras.optimizers.SGD(float("nan")), **QUICK)
    x, y, weights = make_batch()
    logs = model.fit(x, y, sample_weight=weights, batch_size=1, verbose=0).history  # the first loss is still finite
    assert np.isnan(logs["loss"][0])
