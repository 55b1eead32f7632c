"""Several objectives at once: the loss is their weighted sum, and each is what it is alone."""

import json

import keras
import numpy as np
import pytest

from rembed_keras.analysis.cost.ledger import ledger
from rembed_keras.errors import UserError
from rembed_keras.modeling import Encoder, LateMaskedLM, MaskedLM, ReplacedTokenDetection, Sum
from rembed_keras.modeling.layers import draws
from rembed_keras.modeling.saving.configuration import class_named
from tests.modeling.forward import QUICK, forward
from tests.modeling.objectives.test_objectives import shake
from tests.modeling.objectives.test_pretraining import make_batch
from tests.modeling.test_encoder import make_encoder

DETECTION = {"generator_layers": 1, "generator_scale": 0.5}


def masked(encoder):
    return MaskedLM(encoder, 20)


def detection(encoder):
    return ReplacedTokenDetection(encoder, 20, **DETECTION)


def make_sum(weights=None, objectives=(masked, detection), **arguments):
    return shake(Sum(make_encoder(num_layers=1), objectives, weights, **arguments))


@pytest.fixture(scope="module")
def likeliest():
    """Generators draw the likeliest token, whoever draws."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draws, "uniform", lambda shape, **_: keras.ops.full(shape, 0.5))
        yield


def step_of(model, batch, rate=0.1):
    """Logs of a step, and by path what it moved."""
    before = {weight.path: weight.numpy() for weight in model.weights}
    model.compile(optimizer=keras.optimizers.SGD(rate), **QUICK)
    logs = {name: float(value) for name, value in model.train_on_batch(*batch, return_dict=True).items()}
    return logs, {weight.path: weight.numpy() - before[weight.path] for weight in model.weights}


def step_of_a_sum(micro_batches):
    """A sum, its first weights, and the logs and changes of a step."""
    model = make_sum([0.5, 2.0], micro_batches=micro_batches)
    start = {weight.path: weight.numpy() for weight in model.weights}
    model.track_groups(["de", "en"])
    return model, start, *step_of(model, make_batch())


@pytest.fixture(scope="module")
def whole(likeliest):
    return step_of_a_sum(micro_batches=1)


def test_a_step_is_the_weighted_sum_of_the_objectives_steps(whole):
    model, start, logs, moved = whole
    values = [start[weight.path] for weight in model.encoder.weights]
    heads = [[start[weight.path] for weight in each.droppable_variables] for each in model.objectives]
    alone = {}
    for make, head, weight in zip((masked, detection), heads, (0.5, 2.0), strict=True):
        single = make(make_encoder(num_layers=1))
        for variable, value in zip(single.encoder.weights, values, strict=True):
            variable.assign(value)
        for variable, value in zip(single.droppable_variables, head, strict=True):
            variable.assign(value)
        own, steps = step_of(single, make_batch())
        for name in own:
            assert np.isclose(logs[f"{single.name}/{name}"], own[name], rtol=1e-5)
        for variable in single.encoder.weights:
            alone[variable.path] = alone.get(variable.path, 0) + weight * steps[variable.path]
    assert np.isclose(logs["loss"], 0.5 * logs["masked_lm/loss"] + 2 * logs["replaced_token_detection/loss"], rtol=1e-6)
    assert logs["accuracy"] == logs["masked_lm/accuracy"]
    for path, expected in alone.items():
        np.testing.assert_allclose(moved[path], expected, atol=2e-5, rtol=1e-4, err_msg=path)
    nats = model.nats_of(logs)
    assert nats == logs["masked_lm/loss"]


def test_nats_of_a_language_are_those_of_the_objective_that_has_them_whichever_comes_first():
    model = make_sum(objectives=(detection, masked))
    assert model.nats_of({"replaced_token_detection/loss": 9.0, "masked_lm/loss": 2.0}) == 2.0
    assert model.nats_of({"loss": 9.0}) is None


def test_weights_change_at_their_steps():
    model = make_sum([1.0, {0: 0.0, 2: 3.0}], (masked, lambda encoder: MaskedLM(encoder, 6, name="other")))
    model.compile(optimizer="sgd", jit_compile=keras.config.backend() == "jax")
    seen = []
    for _ in range(4):
        seen.append(model.train_on_batch(*make_batch(), return_dict=True)["other/weight"])
        model.reset_metrics()
    np.testing.assert_allclose(seen, [0, 0, 3, 3])
    assert model.test_on_batch(*make_batch(), return_dict=True)["other/weight"] == 3


@pytest.mark.any_backend
def test_an_objectives_logs_stand_under_its_name_alone():
    model = make_sum([1.0, {0: 0.1, 5: 0.0}])
    model.track_groups(["de", "en"])
    logs, _ = step_of(model, make_batch())
    own = {"loss", "accuracy", "loss/de", "loss/en"}
    each = {"masked_lm": own, "replaced_token_detection": own | {"generator_loss", "detection_loss"}}
    expected = {f"{name}/{key}" for name in each for key in each[name] | {"weight"}}
    assert logs.keys() == {"loss", "accuracy"} | expected


def test_micro_batches_take_the_step_of_the_whole(whole):
    _, _, of_whole, moved = whole
    _, _, logs, moved_in_parts = step_of_a_sum(micro_batches=2)
    assert {"masked_lm/loss/de", "replaced_token_detection/loss/en"} <= logs.keys() == of_whole.keys()
    for name in of_whole:
        np.testing.assert_allclose(logs[name], of_whole[name], rtol=1e-5, err_msg=name)
    for path, expected in moved.items():
        np.testing.assert_allclose(moved_in_parts[path], expected, atol=2e-5, err_msg=path)


def test_it_comes_back_and_drops_its_heads(tmp_path):
    model = make_sum([1.0, {0: 0.5, 10: 1.0}])
    x, _, _ = make_batch()
    again = Sum.from_config(json.loads(json.dumps(model.get_config())))
    assert again.get_config() == json.loads(json.dumps(model.get_config()))
    assert [weight.path for weight in again.weights] == [weight.path for weight in model.weights]
    assert len({weight.path for weight in model.weights}) == len(model.weights)
    model.save_to_preset(str(tmp_path / "preset"))
    loaded = Sum.from_preset(str(tmp_path / "preset"))
    for ours, theirs in zip(loaded.weights, model.weights, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy(), err_msg=theirs.path)
    assert model.drop_heads() is model.encoder
    kept = Encoder.from_preset(str(tmp_path / "preset"))
    inputs = {key: x[key] for key in ("token_ids", "segment_ids", "padding_mask")}
    np.testing.assert_array_equal(
        forward(kept, inputs)["sequence_output"], forward(model.drop_heads(), inputs)["sequence_output"]
    )


@pytest.mark.any_backend
def test_the_ledger_counts_the_encoder_once():
    model = make_sum(objectives=(masked, detection, lambda encoder: LateMaskedLM(encoder, 20, 1, name="late")))
    costs = ledger(model)
    assert costs.kept == model.drop_heads().count_params()
    assert costs.total == model.count_params() - sum("seed" in weight.path for weight in model.weights) * 2
    trained = sum(int(np.prod(weight.shape)) for weight in model.trainable_variables)
    assert costs.optimizer_bytes["total"] == 2 * 4 * trained
    assert len({entry.name for entry in costs.entries}) == len(costs.entries)
    singles = [ledger(each) for each in model.objectives]
    for columns in ("flops", "training_flops", "activation_bytes"):
        assert getattr(costs, columns)["total"] == sum(getattr(single, columns)["total"] for single in singles)


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("objectives", "arguments", "message"),
    [
        ((), {}, "0 objectives"),
        ((masked,), {"weights": [1.0, 2.0]}, "1 objectives and 2 weights"),
        ((masked,), {"weights": [-1.0]}, "it must be at least 0"),
        ((masked,), {"weights": [{5: 1.0}]}, "by step from 0"),
        ((masked, masked), {}, "called masked_lm, masked_lm"),
        ((lambda encoder: encoder,), {}, "none of its encoder"),
        ((lambda encoder: MaskedLM(encoder, 20, kept_layers=1),), {}, "kept_layers or micro_batches"),
        ((lambda encoder: ReplacedTokenDetection(encoder, 20, sharing="gdes", **DETECTION),), {}, "own table"),
        (({"class_name": "Encoder", "registered_name": "rembed_keras>Encoder", "config": {}},), {}, "no objective"),
    ],
)
def test_what_cannot_be_added_is_refused(objectives, arguments, message):
    with pytest.raises(UserError, match=message) as caught:
        Sum(make_encoder(num_layers=1), objectives, **arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.any_backend
def test_it_takes_no_metrics():
    with pytest.raises(UserError, match="Sum has metrics of its own"):
        make_sum().compile("sgd", metrics=["accuracy"])


def test_an_objective_that_is_not_imported_is_not_taken_for_ours_of_that_name():
    config = Sum(make_encoder(), [lambda each: MaskedLM(each, 9)]).get_config()
    config["objectives"][0] |= {"module": "elsewhere", "registered_name": "elsewhere>MaskedLM"}
    with pytest.raises(UserError, match=r"names 'elsewhere>MaskedLM'.* if it is your own, import elsewhere first"):
        Sum.from_config(config)
    assert class_named(config["objectives"][0]) is None
