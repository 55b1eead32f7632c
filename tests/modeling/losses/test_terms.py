"""Terms are added to a model's own loss, whole or in micro-batches, and leave what they do not count in alone."""

import keras
import numpy as np
import pytest

from rembed_keras.adaptation.methods import Lora
from rembed_keras.adaptation.teachers import Teacher
from rembed_keras.adaptation.terms import MiniLM, RDrop, SupervisedContrast, Term
from rembed_keras.adaptation.tuning import tuned
from rembed_keras.errors import UserError
from rembed_keras.modeling import Classifier, MaskedLM, ReplacedTokenDetection, Sum, Tagger
from rembed_keras.modeling.layers import draws
from rembed_keras.modeling.losses.weights import by_step
from tests.modeling.forward import QUICK, forward
from tests.modeling.objectives.test_objectives import shake
from tests.modeling.objectives.test_pretraining import make_batch
from tests.modeling.test_encoder import FIRST, SECOND, make_encoder, make_inputs

JIT = {"jit_compile": keras.config.backend() == "jax"}


class Confidence(Term):
    """A stranger's: minus the entropy of each prediction of a classifier, or a number for each of masked tokens."""

    def __init__(self, weight=1.0, name="confidence"):
        super().__init__(weight, name)

    def loss(self, model, batch, outputs):
        if isinstance(outputs, dict):
            return keras.ops.mean(keras.ops.square(outputs["features"]), axis=-1)  # [B, P]
        shares = keras.ops.softmax(outputs)
        return keras.ops.sum(shares * keras.ops.log(shares), axis=-1)


def masked(encoder, **arguments):
    return MaskedLM(encoder, 20, **arguments)


def detection(encoder, **arguments):
    return ReplacedTokenDetection(encoder, 20, generator_layers=1, generator_scale=0.5, **arguments)


def both(encoder, **arguments):
    return Sum(encoder, [masked, lambda each: MaskedLM(each, 12, name="other")], **arguments)


def taught(**arguments):
    return MiniLM(Teacher(make_encoder(num_layers=2)), **arguments)


def steps_of(model, terms, batch, count=1, optimizer=None, **compiling):
    """Logs of the last of some steps, and the weights."""
    model.use_terms(terms)
    model.compile(optimizer=optimizer or keras.optimizers.SGD(0.1), **(compiling or QUICK))
    for _ in range(count):
        model.reset_metrics()
        logs = model.train_on_batch(*batch, return_dict=True)
    return {name: float(value) for name, value in logs.items()}, [weight.numpy() for weight in model.weights]


def classify():
    return make_inputs([[FIRST], [SECOND], [FIRST], [SECOND]], 8), np.array([0, 2, 1, 2])


def test_a_term_is_added_at_its_weight_and_logged_by_its_name():
    x, y = classify()
    model = Classifier(make_encoder(num_layers=1), 3, dropout=0.0)
    logits = forward(model, x)
    shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    own = -np.log(shares[np.arange(4), y]).mean()
    expected = (shares * np.log(shares)).sum(-1).mean()
    logs, _ = steps_of(model, [Confidence(weight=0.25)], (x, y))
    assert np.isclose(logs["confidence"], expected, rtol=1e-5)
    assert np.isclose(logs["loss"], own + 0.25 * expected, rtol=1e-5)
    logits = forward(model, x)
    evaluated = model.compute_loss(x, y, logits, training=False)
    plain = keras.ops.mean(model.losses_of(y, logits))
    assert np.isclose(float(evaluated), float(plain), rtol=1e-5)


@pytest.mark.parametrize("zero", [pytest.param(0, marks=pytest.mark.any_backend), {0: 0.0, 5: 0.0}])
def test_weight_0_gives_the_same_bits(zero):
    batch, came = make_batch(), []
    for terms in ([], [RDrop(weight=zero), taught(weight=zero), Confidence(weight=zero)]):
        keras.utils.set_random_seed(3)
        model = masked(make_encoder(num_layers=1, dropout=0.3))
        logs, weights = steps_of(model, terms, batch, count=2)
        came.append((logs, weights))
    assert came[0][0] == came[1][0]
    for one, other in zip(came[0][1], came[1][1], strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_weight_follows_its_steps():
    model = masked(make_encoder(num_layers=1))
    model.use_terms([Confidence(weight={0: 0.0, 2: 3.0})])
    model.compile(optimizer="sgd", **JIT)
    seen = []
    for _ in range(4):
        logs = model.train_on_batch(*make_batch(), return_dict=True)
        model.reset_metrics()
        seen.append((logs["confidence/weight"], logs["term_losses"] / logs["confidence"]))
        own = logs["loss"] - logs["term_losses"]
        assert np.isclose(model.nats_of(logs), own)
    np.testing.assert_allclose(seen, [(0, 0), (0, 0), (3, 3), (3, 3)], rtol=1e-6)


@pytest.mark.parametrize(
    "make", [masked, *(pytest.param(make, marks=pytest.mark.any_backend) for make in (both, detection))]
)
def test_micro_batches_take_the_step_of_the_whole(make, monkeypatch):
    monkeypatch.setattr(draws, "uniform", lambda shape, **_: keras.ops.full(shape, 0.5))
    came = []
    for parts in (1, 2):
        terms = [taught(weight=2.0)] + ([Confidence(weight={0: 0.5, 9: 1.0})] if make is masked else [])
        model = shake(make(make_encoder(num_layers=1), micro_batches=parts))
        came.append(steps_of(model, terms, make_batch()))
    (whole, moved), (logs, moved_in_parts) = came
    assert whole["mini_lm"] > 0
    for name in whole:
        np.testing.assert_allclose(logs[name], whole[name], rtol=1e-4, err_msg=name)
    for one, other in zip(moved, moved_in_parts, strict=True):
        np.testing.assert_allclose(other, one, atol=3e-5)


@pytest.mark.any_backend
def test_contrast_refuses_micro_batches():
    model = Classifier(make_encoder(), 3)
    model.micro_batches = 2
    with pytest.raises(UserError, match="leave micro_batches out"):
        model.use_terms([SupervisedContrast()])


def test_replaced_tokens_are_what_the_teacher_reads():
    read = []

    class Watched(Teacher):
        def read(self, inputs):
            read.append(keras.ops.convert_to_numpy(inputs["token_ids"]))
            return super().read(inputs)

    x, y, weights = make_batch()
    model = detection(make_encoder(num_layers=1), sharing="gdes")
    model.use_terms([MiniLM(Watched(make_encoder()))])
    outputs = model(x, training=True)
    model.compute_loss(x, y, outputs, weights, training=True)
    drawn = keras.ops.convert_to_numpy(outputs["drawn"])
    assert read[0][0][1] == drawn[0][0]
    assert read[0][0][3] == x["token_ids"][0][3]


def test_lower_precision_and_rematerialization_give_the_same_term():
    seen = []
    for changes, compiling in (({}, QUICK), ({"dtype": "mixed_bfloat16"}, QUICK), ({"rematerialize": True}, JIT)):
        model = masked(make_encoder(num_layers=1, **changes))
        logs, _ = steps_of(model, [taught()], make_batch(), **compiling)
        seen.append(logs["mini_lm"])
    exact, half, again = seen
    assert exact > 0 and np.isclose(half, exact, rtol=0.05) and np.isclose(again, exact, rtol=1e-5)


def test_what_a_method_adds_is_in_the_relations():
    x, y = classify()
    model = Classifier(make_encoder(num_layers=1), 3, dropout=0.0)
    model.adapt([Lora(rank=2)])
    teacher = make_encoder(num_layers=1)
    logs, _ = steps_of(model, [MiniLM(Teacher(teacher), weight=5.0)], (x, y), optimizer=keras.optimizers.SGD(1.0))
    assert logs["mini_lm"] == 0  # updates of low rank start as 0
    model.reset_metrics()
    assert model.train_on_batch(x, y, return_dict=True)["mini_lm"] > 1e-6
    costs = tuned(model)
    assert costs.teacher == teacher.count_params()
    assert costs.total == model.count_params()


@pytest.mark.any_backend
def test_a_teacher_is_no_part_of_the_model(tmp_path):
    model, teacher = masked(make_encoder(num_layers=1)), make_encoder()
    paths = [weight.path for weight in model.weights]
    count, trained = model.count_params(), len(model.trainable_variables)
    model.use_terms([MiniLM(Teacher(teacher)), MiniLM(Teacher(teacher), name="again")])
    model.compile(optimizer="adam")
    model.optimizer.build(model.trainable_variables)
    assert [weight.path for weight in model.weights] == paths
    assert model.count_params() == count
    assert len(model.trainable_variables) == trained
    taught = {id(weight) for weight in teacher.weights}
    assert not taught & {id(variable) for variable in (*model.variables, *model.optimizer.variables)}
    assert len(model.teacher_variables) == len(teacher.weights)
    model.save_to_preset(str(tmp_path / "preset"))
    again = MaskedLM.from_preset(str(tmp_path / "preset"))
    assert [weight.path for weight in again.weights] == paths
    assert not teacher.trainable_variables


@pytest.mark.skipif(keras.config.backend() != "jax", reason="other programs read variables")
def test_a_teachers_weights_are_arguments_of_a_step():
    import jax

    model, teacher = masked(make_encoder(num_layers=1)), make_encoder(num_layers=1, intermediate_dim=37)
    model.use_terms([MiniLM(Teacher(teacher))])
    model.compile(optimizer="sgd")
    model.optimizer.build(model.trainable_variables)
    model.train_on_batch(*make_batch())
    state = tuple(
        [variable.value for variable in variables]
        for variables in (
            model.trainable_variables,
            model.non_trainable_variables,
            model.optimizer.variables,
            model.metrics_variables,
        )
    )
    step = jax.make_jaxpr(model.train_step)(state, make_batch())
    shapes = [tuple(np.shape(each)) for each in step.consts]
    assert max((int(np.prod(shape)) for shape in shapes), default=0) < 16
    assert (16, 37) in [each.aval.shape for each in step.jaxpr.invars]


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("terms", "reason"),
    [
        ([RDrop], "ends in"),
        ([7], "no loss term"),
        ([Confidence(), Confidence()], "name of its own"),
        *(([Confidence(name=name)], "not one of logs") for name in ("loss", "loss/de", "run")),
    ],
)
def test_what_is_no_term_is_refused(terms, reason):
    with pytest.raises(UserError, match=reason):
        Classifier(make_encoder(), 3).use_terms(terms)


@pytest.mark.any_backend
@pytest.mark.parametrize(("make", "name"), [(detection, "detection_loss"), (both, "other/weight")])
def test_names_that_an_objectives_own_logs_have_are_refused(make, name):
    model = make(make_encoder(num_layers=1))
    with pytest.raises(UserError, match=f"a loss term is called '?{name}"):
        model.use_terms([Confidence(name=name)])
    for _ in range(2):  # its own mean is of before
        model.use_terms([Confidence(weight={0: 1.0, 2: 3.0}, name="loss_of_detection")])


@pytest.mark.any_backend
@pytest.mark.parametrize("weight", [-1, "much", {}, {5: 1.0}, {0: -1.0}, {"x": 1.0}, None, float("nan")])
def test_what_is_no_weight_is_refused(weight):
    with pytest.raises(UserError, match="the weight of confidence"):
        Confidence(weight=weight)


@pytest.mark.any_backend
def test_weights_are_in_the_order_of_their_steps():
    assert by_step({"10": 1.0, 0: 0.5}, "x") == [(0, 0.5), (10, 1.0)]


@pytest.mark.any_backend
@pytest.mark.parametrize("make", [lambda encoder: Classifier(encoder, 3), masked], ids=["classifier", "masked_lm"])
def test_terms_count_from_the_next_step_of_a_compiled_model(make):
    model = make(make_encoder(num_layers=1))
    x, y, weights = make_batch()
    batch = (x, y, weights) if isinstance(model, MaskedLM) else ({key: x[key] for key in model.input}, np.array([0, 2]))
    model.compile("sgd", **JIT)
    assert "confidence" not in model.train_on_batch(*batch, return_dict=True)
    model.use_terms([Confidence()])
    logs = model.train_on_batch(*batch, return_dict=True)
    assert logs["confidence"] != 0
    model.use_terms([])
    assert "confidence" not in model.train_on_batch(*batch, return_dict=True)


@pytest.mark.any_backend
def test_a_model_that_is_read_says_which_terms_it_was_trained_with(tmp_path):
    model = Classifier(make_encoder(num_layers=1), 3)
    steps_of(model, [Confidence()], (make_inputs([[FIRST], [SECOND]], 8), np.array([0, 2])))
    model.save(tmp_path / "model.keras")
    with pytest.warns(UserWarning, match="classifier was trained with the loss terms confidence, which are in no file"):
        again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.compiled and not again.terms


@pytest.mark.any_backend
def test_weights_of_rows_weigh_a_terms_losses_of_predictions():
    x, tags = make_inputs([[FIRST], [SECOND]], 8), np.zeros((2, 8), int)
    seen = []
    for weights in (np.array([1.0, 0.0]), np.repeat([[1.0], [0.0]], 8, axis=1)):
        keras.utils.set_random_seed(1)
        model = shake(Tagger(make_encoder(num_layers=1), 3, dropout=0.0))
        seen.append(steps_of(model, [Confidence()], (x, tags, weights))[0])
    assert seen[0] == pytest.approx(seen[1], rel=1e-5)


@pytest.mark.parametrize("given", [None, {}, np.ones((2, 1)), np.ones((2, 50))])
def test_what_are_no_losses_of_rows_or_predictions_is_refused(given):
    model, term = masked(make_encoder(num_layers=1)), Confidence()
    term.loss = lambda *_: given
    with pytest.raises(UserError, match=r"^loss term confidence gives"):
        steps_of(model, [term], make_batch())
