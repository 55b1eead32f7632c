import keras
import keras_hub
import numpy as np
import pytest

from rembed_keras.adaptation import Adapters, Blocks, Lora, tune
from rembed_keras.errors import UserError
from rembed_keras.modeling import Classifier, Encoder, Regressor, SpanExtractor, Tagger
from tests.modeling.forward import EAGER, QUICK, forward
from tests.modeling.test_encoder import FIRST, SECOND, make_encoder, make_inputs

INPUTS = make_inputs([[FIRST], [SECOND], [FIRST], [SECOND]], 8)


@pytest.mark.parametrize(
    ("make", "shape", "target"),
    [
        pytest.param(
            lambda encoder: Classifier(encoder, 3), (4, 3), np.array([0, 2, 0, 2]), marks=pytest.mark.any_backend
        ),
        (lambda encoder: Classifier(encoder, 3, pooling="mean"), (4, 3), np.array([0, 2, 0, 2])),
        (lambda encoder: Tagger(encoder, 5), (4, 8, 5), np.tile(np.arange(16).reshape(2, 8) % 5, (2, 1))),
        (SpanExtractor, (4, 2, 8), np.array([[1, 2], [1, 1], [1, 2], [1, 1]])),
        (Regressor, (4,), np.array([0.5, -1.0, 0.5, -1.0])),
    ],
)
def test_task_models_learn_and_come_back(make, shape, target, tmp_path):
    model = make(make_encoder(num_layers=1))
    assert forward(model, INPUTS).shape == shape
    model.compile(keras.optimizers.Lion(1e-2))
    losses = model.fit(INPUTS, target, batch_size=4, epochs=15, verbose=0).history["loss"]
    assert losses[-1] < 0.7 * losses[0]
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(forward(again, INPUTS), forward(model, INPUTS))


def test_the_mean_token_is_that_of_all_but_padding():
    encoder = make_encoder()
    model = Classifier(encoder, 3, pooling="mean")
    states, mask = forward(encoder, INPUTS)["sequence_output"].astype("float64"), INPUTS["padding_mask"]
    means = np.stack([row[inside > 0].mean(axis=0) for row, inside in zip(states, mask, strict=True)])
    kernel, bias = (keras.ops.convert_to_numpy(each).astype("float64") for each in (model.head.kernel, model.head.bias))
    np.testing.assert_allclose(forward(model, INPUTS), means @ kernel + bias, atol=1e-5)
    pooler = {id(variable) for variable in encoder.parts.pooler.variables}
    assert pooler.isdisjoint(id(variable) for variable in model.trainable_variables)
    with pytest.raises(ValueError, match="pooling is 'last'; it can be one of first, mean"):
        Classifier(encoder, 3, pooling="last")


def test_spans_never_lie_in_padding():
    logits = forward(SpanExtractor(make_encoder()), INPUTS)
    padding = INPUTS["padding_mask"] == 0
    assert (logits.transpose(0, 2, 1)[padding] < -1e8).all()
    assert (logits.transpose(0, 2, 1)[~padding] > -1e3).all()


def test_padded_tags_count_nothing():
    model = Tagger(make_encoder(), 5)
    model.compile("sgd", **QUICK)
    tags = np.ones((4, 8), int)
    weight = (INPUTS["padding_mask"] > 0).astype("float32")
    other = np.where(weight > 0, tags, 4)
    unknown = np.where(weight > 0, tags, -100)
    losses = [
        model.test_on_batch(INPUTS, y, sample_weight=weight, return_dict=True)["loss"] for y in (tags, other, unknown)
    ]
    assert np.isclose(losses[0], losses[1]) and np.isclose(losses[0], losses[2])


@pytest.mark.any_backend
def test_numbers_of_outputs_and_dropout_are_checked():
    with pytest.raises(ValueError, match="classifier: the number of outputs is 0"):
        Classifier(make_encoder(), 0)
    for make in (Classifier, Tagger):
        with pytest.raises(ValueError, match=r"dropout is 1\.0; it must be a number of at least 0 and below 1"):
            make(make_encoder(), 3, dropout=1.0)  # which leaves nothing to learn from


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "make",
    [
        lambda encoder: Classifier(encoder, 3),
        lambda encoder: Tagger(backbone=encoder, num_tags=5),
        lambda encoder: SpanExtractor(backbone=encoder),
        lambda encoder: Regressor(backbone=encoder, dropout=0.2),
    ],
)
def test_presets_hold_the_head_and_the_encoder(make, tmp_path):
    model = make(make_encoder(num_layers=1))
    assert isinstance(model, keras_hub.models.Task) and model.backbone is model.encoder
    model.head.set_weights([np.random.default_rng(0).normal(size=weight.shape) for weight in model.head.weights])
    model.save_to_preset(str(tmp_path / "preset"))
    again = type(model).from_preset(str(tmp_path / "preset"))
    assert again.get_config() == model.get_config()
    np.testing.assert_array_equal(forward(again, INPUTS), forward(model, INPUTS))
    encoder = Encoder.from_preset(str(tmp_path / "preset"))
    ours, theirs = (forward(each, INPUTS)["sequence_output"] for each in (encoder, model.encoder))
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.any_backend
@pytest.mark.parametrize("methods", [[Adapters(3)], [Lora(2)], [Blocks([-1])]], ids=["adapters", "lora", "blocks"])
def test_presets_hold_what_fine_tuning_added(methods, tmp_path):
    model = Classifier(make_encoder(), 3)
    tune(model, methods)
    rng = np.random.default_rng(0)
    for variable in model.trainable_variables:
        variable.assign(rng.normal(size=variable.shape))
    model.save_to_preset(str(tmp_path / "preset"))
    again = Classifier.from_preset(str(tmp_path / "preset"))
    trained, expected = (sorted(variable.path for variable in each.trainable_variables) for each in (again, model))
    assert trained == expected
    np.testing.assert_allclose(forward(again, INPUTS), forward(model, INPUTS), atol=1e-5)


@pytest.mark.any_backend
@pytest.mark.parametrize(("kind", "number"), [(Classifier, "num_classes"), (Tagger, "num_tags")])
def test_a_preset_keeps_its_head_where_its_own_number_of_outputs_is_named(kind, number, tmp_path):
    model = kind(make_encoder(num_layers=1), 3)
    model.head.bias.assign([1.0, 2.0, 3.0])
    model.save_to_preset(str(tmp_path / "preset"))
    same, other = (kind.from_preset(str(tmp_path / "preset"), **{number: count}) for count in (3, 4))
    assert np.asarray(same.head.bias).tolist() == [1.0, 2.0, 3.0] and np.asarray(other.head.bias).tolist() == [0.0] * 4
    ours, theirs = (forward(each.encoder, INPUTS)["sequence_output"] for each in (other, model))
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.any_backend
@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize`:UserWarning")  # of norms
@pytest.mark.usefixtures("without_old_garbage")
def test_a_new_head_of_a_quantized_preset_learns(tmp_path):
    model = Classifier(make_encoder(num_layers=1), 3)
    model.quantize("int8")
    model.save_to_preset(str(tmp_path / "preset"))
    same, other = (Classifier.from_preset(str(tmp_path / "preset"), num_classes=count) for count in (3, 4))
    assert (same.head.quantization_mode, other.head.quantization_mode) == ("int8", None)
    assert len(other.head.trainable_weights) == 2 and other.encoder.parts.projection.quantization_mode == "int8"


@pytest.mark.any_backend
def test_a_head_is_put_on_an_encoders_preset(tmp_path):
    encoder = make_encoder(num_layers=1)
    encoder.save_to_preset(str(tmp_path / "preset"))
    model = Classifier.from_preset(str(tmp_path / "preset"), num_classes=3, dropout=0.3)
    assert (model.num_classes, model.get_config()["dropout"]) == (3, 0.3)
    ours, theirs = (forward(each, INPUTS)["sequence_output"] for each in (model.encoder, encoder))
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.any_backend  # on JAX tests of losses of layers compare two steps of such blocks, of a task too
def test_rematerialized_blocks_take_the_same_step_in_fine_tuning():
    steps = []
    for rematerialize, compiling in ((False, EAGER), (True, {"jit_compile": False})):
        keras.utils.set_random_seed(4)
        model = Classifier(make_encoder(num_layers=1, rematerialize=rematerialize), 3, dropout=0.0)
        before = [weight.numpy() for weight in model.weights]
        model.compile(keras.optimizers.SGD(0.5), **compiling)
        model.train_on_batch(INPUTS, np.array([0, 2, 0, 2]))
        steps.append([weight.numpy() - old for weight, old in zip(model.weights, before, strict=True)])
    assert max(np.abs(change).max() for change in steps[0]) > 1e-3
    for plain, again in zip(*steps, strict=True):
        np.testing.assert_allclose(again, plain, atol=1e-6)


@pytest.mark.parametrize("rematerialize", [False, True])
def test_rematerialized_blocks_are_computed_again_in_fine_tuning(rematerialize):
    model = Classifier(make_encoder(rematerialize=rematerialize), 3, dropout=0.0)
    if keras.config.backend() == "jax":
        import jax

        def loss(values):
            with keras.StatelessScope([*zip(model.trainable_variables, values, strict=True)]):
                return model(INPUTS, training=True).sum()

        program = str(jax.make_jaxpr(jax.grad(loss))([variable.value for variable in model.trainable_variables]))
        assert program.count("remat") >= model.encoder.num_layers if rematerialize else "remat" not in program
        return
    import tensorflow as tf

    calls = []
    attention = model.encoder.parts.blocks[0].attention
    called = attention.call
    attention.call = lambda *args, **kwargs: calls.append(None) or called(*args, **kwargs)
    with tf.GradientTape() as tape:
        scores = tf.reduce_sum(model(INPUTS, training=True))
    tape.gradient(scores, model.trainable_variables)
    assert len(calls) == 1 + rematerialize


def losses_by_weights(model, x, y, *given):
    """What `test_on_batch` says of weights of several shapes."""
    return [model.test_on_batch(x, y, sample_weight=each, return_dict=True) for each in given]


def compiled(make):
    keras.utils.set_random_seed(2)
    model = make(make_encoder())
    model.compile("sgd", **QUICK)
    return model


@pytest.mark.any_backend
def test_labels_of_a_regressor_may_be_a_column_and_nothing_wider():
    model = compiled(lambda encoder: Regressor(encoder, dropout=0.0))
    y = np.array([0.5, -1.0, 2.0, 3.0], "float32")
    flat, column = (model.test_on_batch(INPUTS, each, return_dict=True)["loss"] for each in (y, y[:, None]))
    expected = np.mean((forward(model, INPUTS) - y) ** 2)
    np.testing.assert_allclose([flat, column], expected, rtol=1e-5)
    with pytest.raises(UserError, match=r"regressor learns a number of each row, and its labels are of shape \(4, 2\)"):
        model.test_on_batch(INPUTS, np.stack([y, y], axis=1))
    with pytest.raises(UserError, match="there is a label nan: leave its row out"):
        model.train_on_batch(INPUTS, y * np.nan)


WEIGHTS = np.array([1.0, 0.0, 2.0, 0.5], "float32")


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("make", "label", "other"),
    [(lambda encoder: Classifier(encoder, 3), 1, -100), (Regressor, 1.0, np.nan)],
    ids=["classifier", "regressor"],
)
def test_what_weighs_nothing_needs_no_label(make, label, other):
    model, y = compiled(make), np.full(4, label)
    whole, left_out = (
        model.test_on_batch(INPUTS, np.where(WEIGHTS > 0, y, each), sample_weight=WEIGHTS, return_dict=True)["loss"]
        for each in (y, other)
    )
    np.testing.assert_allclose(left_out, whole, rtol=1e-6)


@pytest.mark.any_backend
def test_weights_of_rows_may_be_a_column():
    model = compiled(lambda encoder: Classifier(encoder, 3, dropout=0.0))
    flat, column = losses_by_weights(model, INPUTS, np.array([0, 2, 1, 1]), WEIGHTS, WEIGHTS[:, None])
    assert column == pytest.approx(flat, rel=1e-5)
    with pytest.raises(UserError, match=r"weights of shape \(4, 3\) are none of losses of shape \(4,\)"):
        model.test_on_batch(INPUTS, np.array([0, 2, 1, 1]), sample_weight=np.ones((4, 3)))


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("make", "target"),
    [
        (lambda encoder: Tagger(encoder, 5, dropout=0.0), np.arange(16).reshape(4, 4) % 5),  # as many tokens as rows
        (SpanExtractor, np.array([[1, 2], [1, 1], [0, 2], [3, 1]])),
    ],
)
def test_weights_of_rows_are_those_of_all_their_predictions(make, target):
    model = compiled(make)
    inputs = {name: column[:, :4] for name, column in INPUTS.items()}
    whole = np.repeat(WEIGHTS[:, None], target.shape[1], axis=1)
    expected, *found = losses_by_weights(model, inputs, target, whole, WEIGHTS, WEIGHTS[:, None])
    assert found == [pytest.approx(expected, rel=1e-5)] * 2


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("make", "target"),
    [
        (lambda encoder: Tagger(encoder, 5), np.zeros((4, 8), int)),
        (SpanExtractor, np.zeros((4, 2), int)),
        (Regressor, np.zeros(4)),
    ],
)
def test_weights_of_classes_are_for_classifiers(make, target):
    model = compiled(make)
    for loop in (model.fit, model.train_on_batch):
        with pytest.raises(UserError, match="has no class for each row: give sample_weight in place of class_weight"):
            loop(INPUTS, target, class_weight={0: 1.0, 1: 2.0})
    classifier = compiled(lambda encoder: Classifier(encoder, 3))
    classifier.train_on_batch(INPUTS, np.array([0, 2, 1, 1]), class_weight={0: 1.0, 1: 2.0, 2: 1.0})
    for weights, said in (({"0": 2.0}, "has '0', which is no"), ({3: 2.0}, "has 3, which"), ([1, 2, 1], "be a dict")):
        with pytest.raises(UserError, match=f"class_weight .*{said}"):
            classifier.fit(INPUTS, np.array([0, 2, 1, 1]), class_weight=weights)


@pytest.mark.skipif(keras.config.backend() != "tensorflow", reason="JAX makes variables before it traces")
@pytest.mark.parametrize("feed", ["fit", "train_on_batch"])
def test_a_step_is_traced_once(feed):
    """Metrics and slots that a step would make are there before it."""
    traced = []

    class Counted(Classifier):
        def train_step(self, *args):
            traced.append(len(self.metrics_variables))
            return super().train_step(*args)

    model = Counted(make_encoder(num_layers=1), 3)
    model.compile("lion")
    for _ in range(2):
        getattr(model, feed)(INPUTS, np.array([0, 2, 0, 2]))
    assert traced == [len(model.metrics_variables)]
