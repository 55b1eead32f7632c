"""Canaries of `rembed_keras.compat`: each fails when a private part of another's is no longer what it was."""

import ast
import contextlib
import inspect
from pathlib import Path

import gin
import keras
import keras_hub
import numpy as np
import pytest

import rembed_keras
from rembed_keras import compat

PACKAGE = Path(compat.__file__).parent
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path.name != "compat.py")
OURS = {name for name, each in vars(compat).items() if getattr(each, "__module__", "") == compat.__name__}
PUBLIC = {name for name in OURS if not name.startswith("_")}
on_tensorflow = pytest.mark.skipif(keras.config.backend() != "tensorflow", reason="of TensorFlow's")
on_jax = pytest.mark.skipif(keras.config.backend() != "jax", reason="of JAX's")


def private(name):
    return name.startswith("_") and not name.startswith("__")


TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}
OWN = {  # private names that this package gives
    name
    for tree in TREES.values()
    for node in ast.walk(tree)
    for name in (
        [node.name]
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        else [node.attr if isinstance(node, ast.Attribute) else node.id]
        if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Store)
        else []
    )
    if private(name)
}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_other_file_touches_what_is_private_to_others(path):
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.Attribute) and private(node.attr):
            is_own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            assert (is_own and node.attr in OWN) or ast.unparse(node) == "os._exit", f"line {node.lineno}: {node.attr}"
        if isinstance(node, ast.ImportFrom | ast.Import):
            whole = [node.module] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names]
            for module in whole:
                assert not any(map(private, module.split("."))), f"line {node.lineno}: {module}"
                assert not module.startswith(("tensorflow.python", "keras.src", "keras_hub.src")), f"line {node.lineno}"
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "setattr", "hasattr"):
            name = node.args[1].value if isinstance(node.args[1], ast.Constant) else ""
            assert not private(name) or name in OWN, f"line {node.lineno}: {name}"


def test_no_private_name_of_ours_hides_one_of_keras():
    kinds = (keras.Model, keras.layers.MultiHeadAttention, keras.layers.LayerNormalization, keras.metrics.Mean)
    kinds += (keras.optimizers.AdamW, keras.optimizers.LossScaleOptimizer, keras.callbacks.Callback)
    assert not {name for name in OWN for kind in kinds if hasattr(kind, name)}


def test_each_names_the_version_it_was_seen_in_and_has_a_canary():
    here = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.rglob("test_compat.py"))
    for name in PUBLIC:
        assert "Seen in " in inspect.getdoc(getattr(compat, name)) and f"compat.{name}" in here, name


def test_gin_evaluates_references_by_copying_them():
    @gin.register(module="canary")
    def part(size=1):
        return [size]

    @gin.register(module="canary")
    def whole(parts):
        return parts

    asked = []

    def evaluate(scopes, selector, call):
        asked.append((scopes, selector))
        return call()

    gin.parse_config("canary.whole.parts = [@wide/canary.part(), %NUMBER]\nwide/canary.part.size = 2\nNUMBER = 3")
    with compat.gin_evaluates_by(evaluate):
        assert gin.get_configurable(whole)() == [[2], 3]
    assert (["wide"], "canary.part") in asked and len(asked) == 2
    assert gin.get_configurable(whole)() == [[2], 3] and len(asked) == 2
    gin.clear_config()


def test_gin_says_what_is_not_bound():
    @gin.register(module="canary")
    def lacking(size):
        return size

    with pytest.raises(TypeError) as caught:
        gin.get_configurable(lacking)()
    assert compat.unbound_arguments(caught.value) == ("lacking", "'size'")
    assert compat.unbound_arguments(TypeError("it is something else")) is None


def test_keras_hub_lists_presets_that_are_built_in():
    kind = type("Own", (keras_hub.models.Backbone,), {})
    compat.hub_presets().register_presets({"canary": {"kaggle_handle": "somewhere"}}, kind)
    assert kind.presets == {"canary": {"kaggle_handle": "somewhere"}}


def test_a_task_without_a_preprocessor_is_saved(tmp_path):
    task = rembed_keras.Classifier(rembed_keras.Encoder(9, 1, 1, 4, 4, 2), num_classes=2)
    compat.save_task(task, str(tmp_path), 10)
    found = [compat.hub_presets().check_file_exists(str(tmp_path), f"{name}.json") for name in ("task", "preprocessor")]
    assert found == [True, False] and compat.hub_presets().load_json(str(tmp_path), "task.json")["config"]


def test_layers_are_made_of_layers():
    inner = keras.layers.Dense(2, name="inner")
    model = keras.Sequential([keras.Sequential([inner], name="middle")], name="outer")
    names = [layer.name for layer in compat.layers_of(model)]
    assert names.index("outer") < names.index("middle") < names.index("inner") and len(names) == 3
    assert [layer.name for layer in compat.layers_of(model, recursive=False, include_self=False)] == ["middle"]


@pytest.mark.parametrize("stateless", [False, True])
def test_losses_of_layers_are_kept_where_the_scope_has_them(stateless):
    class Adds(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.inner = keras.layers.Dense(1, activity_regularizer="l2")

        def call(self, inputs):
            (outputs, losses) = compat.taking_losses(self, lambda: self.inner(inputs))
            assert len(losses) == 1 and not self.inner.losses
            self.add_loss(losses)
            return outputs

    layer, inputs = Adds(), np.ones((2, 3), "float32")
    layer(inputs)
    scope = keras.StatelessScope(collect_losses=True) if stateless else contextlib.nullcontext()
    with scope as opened:
        for _ in range(2):
            layer(inputs)
            assert len(layer.losses) == 1 and compat.stateless_scope() is opened


def test_a_layer_that_is_built_is_locked():
    layer = keras.layers.Dense(2)
    layer.build((None, 3))
    with pytest.raises(ValueError, match="cannot add new elements"):
        layer.guest = keras.layers.Dense(1)
    with compat.unlocked(layer):
        layer.guest = keras.layers.Dense(1)
    with pytest.raises(ValueError, match="cannot add new elements"):
        layer.other = keras.layers.Dense(1)
    assert layer.guest in [*compat.layers_of(layer)]


def test_a_layer_has_the_policy_that_it_is_given():
    layer = keras.layers.Dense(2)
    layer.build((None, 3))
    compat.set_dtype_policy(layer, keras.DTypePolicy("mixed_bfloat16"))
    assert layer.compute_dtype == "bfloat16" and layer.kernel.dtype == "float32"


def test_attention_is_a_softmax_over_scaled_products():
    layer = keras.layers.MultiHeadAttention(2, 4)
    layer.build((1, 3, 8), (1, 3, 8))
    draw = np.random.default_rng(0)
    query, key, value = (draw.normal(size=(1, 3, 2, 4)).astype("float32") for _ in range(3))
    mask = np.array([[[True, True, False]] * 3])
    scores = np.einsum("bqhk,bshk->bhqs", query, key) / 2.0 + np.where(mask, 0.0, -1e9)[:, None]
    shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
    expected = np.einsum("bhqs,bshk->bqhk", shares / shares.sum(axis=-1, keepdims=True), value)
    found = compat.attend(layer, (query, key, value), mask, training=False)
    np.testing.assert_allclose(keras.ops.convert_to_numpy(found), expected, atol=1e-6)


def test_metrics_are_made_for_labels_and_outputs():
    model = keras.Sequential([keras.layers.Dense(3)])
    model.compile("sgd", metrics=["accuracy"])
    compat.build_metrics(model, np.zeros(2), keras.KerasTensor((None, 3)))
    kinds = {type(metric) for metric in model.metrics[-1].metrics}
    assert kinds == {keras.metrics.SparseCategoricalAccuracy}


@on_jax
def test_metrics_of_a_step_are_values():
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse", metrics=["mae"])
    x, y = np.ones((2, 3), "float32"), np.ones((2, 1), "float32")
    model.train_on_batch(x, y)
    model.reset_metrics()
    values = [variable.value for variable in model.metrics_variables]
    logs, after = compat.update_metrics(model, values, np.float32(0.5), x, y, y + 2.0, None)
    assert logs["mae"] == pytest.approx(2.0) and len(after) == len(values)


@on_tensorflow
def test_a_model_knows_the_strategy_that_it_was_made_in(mirrored):
    assert compat.strategy_of(keras.Sequential([keras.layers.Dense(1)])) is None
    with mirrored.scope():
        assert compat.strategy_of(keras.Sequential([keras.layers.Dense(1)])) is mirrored


@on_tensorflow
def test_fit_builds_a_model_of_the_batch_of_a_replica(mirrored):
    class Seen(compat.BuildsFromItsReplica, keras.Sequential):
        def _symbolic_build(self, iterator=None, data_batch=None):
            shapes.append(data_batch[0].shape)
            return super()._symbolic_build(iterator=iterator, data_batch=data_batch)

    import tensorflow as tf

    shapes = []
    with mirrored.scope():
        model = Seen([keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    rows = tf.data.Dataset.from_tensors((np.ones((4, 3)), np.ones((4, 1)))).repeat()
    batches = mirrored.distribute_datasets_from_function(lambda context: rows)
    model.fit(batches, steps_per_epoch=1, verbose=0, shuffle=False)
    assert shapes[0] == (4, 3)


def test_keras_attention_has_a_layer_that_drops_probabilities():
    attention = keras.layers.MultiHeadAttention(2, 4, dropout=0.25)
    attention.build((1, 3, 8), (1, 3, 8))
    found = compat.attention_dropout(attention)
    assert isinstance(found, keras.layers.Dropout) and found.rate == 0.25


def test_keras_decays_weights_in_a_method_of_its_own():
    for is_left, expected in ((False, 0.5), (True, 1.0)):
        optimizer = keras.optimizers.SGD(0.1, weight_decay=5.0)
        if is_left:
            compat.decays_itself(optimizer)
        variable = keras.Variable(np.ones(2, "float32"))
        optimizer.apply([np.zeros(2, "float32")], [variable])
        np.testing.assert_allclose(keras.ops.convert_to_numpy(variable), expected)


def test_a_wrapping_optimizer_has_a_clock_of_its_own_until_it_is_taken():
    wrapper = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1))
    compat.forget_variables(wrapper)
    assert {each.path for each in wrapper.variables} == {each.path for each in wrapper.inner_optimizer.variables}


def test_an_optimizer_knows_its_variables():
    optimizer = keras.optimizers.AdamW(0.1)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    both = [keras.Variable(np.ones(2, "float32"), name=name) for name in ("kernel", "bias")]
    optimizer.build(both)
    assert [compat.variable_index(optimizer, each) for each in both] == [0, 1]
    assert [compat.is_decayed(optimizer, each) for each in both] == [True, False]
    assert [each.name for each in compat.moments_of(optimizer, both[1])] == ["bias_momentum", "bias_velocity"]


@on_jax
def test_a_variable_keeps_the_layout_that_it_was_made_with():
    mesh = keras.distribution.DeviceMesh((1,), ["rows"], keras.distribution.list_devices()[:1])
    layout = keras.distribution.TensorLayout(["rows", None], mesh)
    assert compat.layout_of(keras.Variable(np.ones((2, 2), "float32"), layout=layout)) is layout
    assert compat.layout_of(keras.Variable(np.ones((2, 2), "float32"))) is None


@on_jax
def test_variables_without_values_have_shapes_and_are_zeros_in_a_traced_function():
    alone = keras.Variable(np.ones(1, "float32")).value.sharding
    with compat.abstract_variables(alone):
        layer = keras.layers.Dense(3, dtype="mixed_bfloat16")
        layer.build((None, 2))
        assert keras.ops.copy(layer.kernel).value.shape == (2, 3) and layer.kernel.value.sharding is alone
        assert layer(keras.Input((2,))).dtype == "bfloat16"


@on_jax
def test_the_compiled_step_of_fit_takes_a_state_and_a_batch():
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.5), "mse")
    model.train_on_batch(x := np.ones((2, 3), "float32"), y := np.ones((2, 1), "float32"))
    step, state = compat.compiled_train_step(model)
    assert step(state, (x, y, None))[0]["loss"] > 0 and model.train_function is None


@on_jax
def test_jax_has_a_store_for_processes():
    state = compat.jax_processes()
    assert (state.process_id, state.client) == (0, None) and hasattr(state, "num_processes")
    from jax._src.lib import _jax

    assert {"blocking_key_value_get", "key_value_set"} <= set(dir(_jax.DistributedRuntimeClient))


@on_tensorflow
def test_tensorflow_has_a_store_for_processes():
    methods = {"set_config_key_value", "get_config_key_value", "check_collective_ops_peer_health"}
    assert methods <= set(dir(compat.tensorflow_processes()))
