import json
import re

import keras
import numpy as np
import pytest

from rembed_keras.adaptation.methods import (
    Adapters,
    Biases,
    Blocks,
    Everything,
    HeadOnly,
    LayerwiseDecay,
    Lora,
    Norms,
    Reinitialize,
    RoAd,
)
from rembed_keras.adaptation.tuning import learning_rate_multipliers, task_variables, tune, tuned
from rembed_keras.errors import UserError
from rembed_keras.modeling import Classifier, Regressor, SpanExtractor, Tagger
from rembed_keras.modeling.blocks import PreNorm
from rembed_keras.modeling.layers.adapters import PROJECTIONS
from tests.modeling.test_encoder import FIRST, SECOND, make_encoder, make_inputs

pytestmark = pytest.mark.filterwarnings("ignore:LayerwiseDecay.* gives layers:UserWarning")  # rates are no matter here
INPUTS = make_inputs([[FIRST], [SECOND], [FIRST], [SECOND]], 8)
LABELS = np.array([0, 2, 0, 1])
PRE_NORM = {"block": PreNorm, "num_segments": 0}
LOW = "embeddings|projection"
BIAS, NORM = "(bias|beta)$", "(gamma|beta)$"
QUERY_VALUE = "block_./attention/heads/(query|value)/lora/(left|right)$"
ADAPTER = "block_./(attention|feed_forward)/adapter/(down|up)/(kernel|bias)$"

# what is asked for, and the variables of the encoder that have to move, as a pattern of their paths
CASES = {
    "nothing": ({}, [], ""),
    "everything but a frozen table": ({"freeze_input_embedding": True}, [Everything()], "(?!embeddings/token)"),
    "everything, bands frozen": ({"freeze_input_embedding": True, "input_cutoffs": (20,)}, [], "(?!embeddings/token)"),
    "head": ({}, [HeadOnly()], "$"),
    "norms, pre-norm": (PRE_NORM, [Norms()], f".*{NORM}"),
    "biases, shared": ({"layer_sharing": "all"}, [Biases()], f".*{BIAS}"),
    "all blocks": ({}, [Blocks()], "block_|pooler"),
    "top block": ({}, [Blocks([-1])], "block_1|pooler"),
    "bottom": ({}, [Blocks([0], embeddings=True, top=False)], f"block_0|{LOW}"),
    "bottom, table frozen": (
        {"freeze_input_embedding": True},
        [Blocks([], embeddings=True, top=False)],
        f"(?!embeddings/token)({LOW})",
    ),
    "above the blocks, pre-norm": (PRE_NORM | {"scalar_mix": True}, [Blocks([])], "norm/|mix/|pooler"),
    "adapters, pre-norm": (PRE_NORM, [Adapters(3)], ADAPTER),
    "adapters, shared": ({"layer_sharing": "attention"}, [Adapters(3)], ADAPTER),
    "adapters of one block": ({}, [Adapters(3, layers=[-1])], "block_1/.*adapter"),
    "lora, pre-norm": (PRE_NORM, [Lora(2, targets=("output", "up"))], ".*/(merge|up)/lora/(left|right)$"),
    "lora everywhere": ({}, [Lora(2, targets=PROJECTIONS)], ".*/lora/(left|right)$"),
    "lora of every head": ({}, [Lora(2, per_head=True)], ".*/(query|value)/lora_kernel_[ab]$"),
    "road": ({}, [RoAd()], "block_./.*/road/(angle|scale)$"),
    "road and lora, pre-norm": (
        PRE_NORM,
        [Lora(2), RoAd(4, targets=("query",))],
        "block_./attention/((query|value)/lora/|query/road/)",
    ),
    "adapters beside and after": (
        {},
        [Adapters(3), Adapters(2, [0], "beside")],
        f"{ADAPTER}|block_0/.*/parallel_adapter/",
    ),
    "biases of one block": ({}, [Biases([1])], f"block_1/.*{BIAS}"),
    "lora of one block": ({}, [Lora(2, layers=[0])], "block_0/.*lora/(left|right)$"),
    "adapters and norms": ({}, [Adapters(3), Norms()], f"{ADAPTER}|.*{NORM}"),
    "biases and lora": ({}, [Biases(), Lora(2)], f"{QUERY_VALUE}|.*{BIAS}"),
    "a block and adapters below": (
        {},
        [Blocks([1], top=False), Adapters(3, layers=[0])],
        "block_1|block_0/.*adapter",
    ),
    "adapters and lora": ({}, [Adapters(3), Lora(2)], f"{ADAPTER}|{QUERY_VALUE}"),
    "everything and lora": ({}, [Lora(2), Everything()], ""),
    "top reinitialized, adapters": ({}, [Adapters(3), Reinitialize(1)], f"block_1|pooler|{ADAPTER}"),
    "top reinitialized, lora": ({}, [Reinitialize(1, pooler=False), Lora(2)], f"block_1|{QUERY_VALUE}"),
    "decay and biases": ({}, [LayerwiseDecay(0.5), Biases()], f".*{BIAS}"),
    "decay": ({}, [LayerwiseDecay(0.5)], ""),
}
METHODS = {type(method): method for _, methods, _ in CASES.values() for method in methods}  # one of each


def make_model(make=lambda encoder: Classifier(encoder, 3), **changes):
    keras.utils.set_random_seed(3)
    return make(make_encoder(**changes))


def values(model):
    return {weight.path: np.array(weight.numpy()) for weight in model.weights}


def outputs(model):
    return np.asarray(model(INPUTS, training=False))


def learn(model, target=LABELS, steps=2):
    """A few steps that move whatever is trained, what has no gradient by its decay."""
    is_eager = keras.config.backend() == "tensorflow"  # tracing takes longer than two steps
    model.compile(keras.optimizers.SGD(0.1, weight_decay=0.01), jit_compile=False, run_eagerly=is_eager)
    for _ in range(steps):
        model.train_on_batch(INPUTS, target)


def moved(model, before):
    return {path for path, value in values(model).items() if not np.array_equal(value, before[path])}


def count(variables):
    return sum(int(np.prod(variable.shape)) for variable in variables)


@pytest.fixture(scope="module", params=CASES)
def case(request):
    """A case's name, its model after some steps, and the weights as they were before them and before the methods."""
    changes, methods, _ = CASES[request.param]
    model = make_model(**changes)
    shared = values(model.encoder)
    tune(model, methods)
    before = values(model)
    learn(model, steps=2 if any(isinstance(method, Adapters) for method in methods) else 1)  # the lower half waits
    return request.param, model, before, shared


def test_steps_move_what_was_asked_for_and_nothing_else(case):
    name, model, before, _ = case
    pattern = CASES[name][2]
    assert len(before) == len(model.weights), "paths name variables in files"
    expected = {path for path in before if path.startswith("head/") or re.match(pattern, path)}
    # a bias of keys that begins at 0 stays there: softmax does not see it
    idle = {path for path in expected if path.endswith("key/bias")} if "reinitialized" in name else set()
    found = moved(model, before)
    assert found - expected == set()
    assert expected - found <= idle


def test_the_breakdown_is_what_differs_from_the_shared_encoder(case):
    _, model, _, shared = case
    own = [
        weight
        for weight in model.weights
        if weight.path not in shared or not np.array_equal(shared[weight.path], weight.numpy())
    ]
    counted = tuned(model)
    assert (counted.trainable, counted.stored, counted.total) == (count(own), count(own), count(model.weights))


def test_what_is_stored_for_a_task_makes_the_model_again(case):
    name, model, _, _ = case
    changes, methods, _ = CASES[name]
    stored = {variable.path: np.array(variable.numpy()) for variable in task_variables(model)}
    again = make_model(**changes)
    keras.utils.set_random_seed(11)
    tune(again, methods)
    owners = {variable.path: variable for variable in task_variables(again)}
    assert owners.keys() == stored.keys()
    for path, value in stored.items():
        owners[path].assign(value)
    np.testing.assert_array_equal(outputs(again), outputs(model))


@pytest.mark.parametrize(
    ("make", "target"),
    [
        (lambda encoder: Tagger(encoder, 3), np.tile(LABELS[:, None], (1, 8))),
        (SpanExtractor, np.array([[1, 2], [1, 1], [1, 2], [1, 1]])),
        (Regressor, LABELS),
    ],
)
def test_every_kind_of_task_can_be_tuned(make, target):
    model = make_model(make)
    tune(model, [Biases(), Lora(2), Reinitialize(1)])
    before = values(model)
    learn(model, target)
    is_read = isinstance(model, Regressor)
    assert ("pooler/kernel" in moved(model, before)) == is_read
    assert tuned(model).stored == tuned(model).trainable == count(model.trainable_variables)


@pytest.mark.parametrize(
    ("changes", "methods"),
    [
        ({"layer_sharing": "all"}, [Adapters(3)]),
        (PRE_NORM, [Lora(2, targets=("query", "down")), RoAd(2)]),
        ({}, [Lora(2), Adapters(3, place="beside")]),
        (PRE_NORM, [Adapters(3, place="beside"), Adapters(2)]),
    ],
)
def test_what_is_added_changes_nothing_at_first(changes, methods):
    model = make_model(**changes)
    plain, shape = outputs(model), values(model)
    tune(model, methods)
    np.testing.assert_array_equal(outputs(model), plain)
    assert {path: value for path, value in values(model).items() if path in shape}.keys() == shape.keys()
    learn(model)
    assert np.abs(outputs(model) - plain).max() > 1e-3


def test_the_top_blocks_are_reinitialized():
    model, fresh = make_model(num_layers=3), make_model(num_layers=3)
    tune(model, [Adapters(3), Reinitialize(2)])
    for path, value in values(model).items():
        name = path.rsplit("/", 1)[-1]
        is_new = re.match("block_[12]|pooler", path) and "adapter" not in path
        if is_new and name == "kernel":
            assert np.abs(value).max() <= 0.04 and 0.01 < value.std() < 0.025, path
        elif is_new:
            np.testing.assert_array_equal(value, float(name == "gamma"), err_msg=path)
        elif "adapter" not in path:
            np.testing.assert_array_equal(value, values(fresh)[path], err_msg=path)
    kernels = [block.feed_forward.up.kernel.numpy() for block in model.encoder.parts.blocks[1:]]
    assert not np.array_equal(*kernels)
    assert not np.any(model.encoder.parts.blocks[2].attention.after[0].up.kernel.numpy())


def test_learning_rates_fall_on_the_way_down():
    model = make_model(num_layers=4, layer_sharing="feed_forward", layer_groups=2)
    tune(model, [Lora(2), Adapters(3, layers=[0]), Norms()])
    shares = learning_rate_multipliers(model, [LayerwiseDecay(0.5), Norms()])
    assert shares.keys() == {variable.path for variable in model.trainable_variables} - {"head/kernel", "head/bias"}
    assert shares["embeddings/norm/gamma"] == 0.5**5
    assert shares["block_0/attention/norm/gamma"] == shares["block_0/attention/adapter/up/bias"] == 0.5**4
    assert shares["block_0/feed_forward/norm/gamma"] == 0.5**3, "the second block has it too"
    assert shares["block_3/attention/heads/query/lora/left"] == 0.5
    assert (
        learning_rate_multipliers(model, [LayerwiseDecay(0.5), LayerwiseDecay(0.5)])["block_3/attention/norm/beta"]
        == 0.25
    )
    assert learning_rate_multipliers(model, [Norms()]) == {}


@pytest.mark.parametrize("method", METHODS.values(), ids=lambda method: type(method).__name__)
def test_methods_survive_serialization(method):
    written = json.loads(json.dumps(keras.saving.serialize_keras_object(method)))
    again = keras.saving.deserialize_keras_object(written)
    assert type(again) is type(method) and again.get_config() == method.get_config()


@pytest.mark.parametrize(
    ("methods", "modes"),
    [
        ([Adapters(3), Norms()], ["int8"]),
        ([Lora(2), Reinitialize(1)], [None]),
        ([RoAd(4), Lora(2), Biases([0])], [None, "int8"]),
    ],
)
@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize`:UserWarning")
@pytest.mark.usefixtures("without_old_garbage")
def test_a_tuned_model_comes_back(methods, modes, tmp_path):
    model = make_model()
    tune(model, methods)
    learn(model)
    for mode in modes:
        if mode is not None:
            model.quantize(mode)
            model.compile("sgd")  # another optimizer: weights in int8 have no slots
        model.save(tmp_path / "model.keras")
        again = keras.saving.load_model(tmp_path / "model.keras")
        np.testing.assert_allclose(outputs(again), outputs(model), atol=1e-6)
        assert tuned(again) == tuned(model)


@pytest.mark.parametrize(
    ("changes", "make", "message"),
    [
        ({}, lambda: [Biases], "in a recipe it ends in ()"),
        (PRE_NORM, lambda: [Biases()], "this encoder's blocks have none"),
        ({}, lambda: [Blocks([2])], "there is no block 2: this encoder has 2, numbered from 0"),
        ({}, lambda: [Lora(layers=-1)], "layers is -1: give a list of numbers of blocks, such as [-1]"),
        ({}, lambda: [Reinitialize(3)], "num_layers of Reinitialize is 3; this encoder has 2 layers"),
        ({}, lambda: [Lora(targets=("queries",))], "targets are ['queries']; they can be of query, key"),
        ({}, lambda: [Lora(targets=())], "targets are []"),
        ({}, lambda: [Lora(2), Lora(2)], "block_0/attention/heads/query has 'lora' already"),
        ({}, lambda: [Adapters(2), Adapters(2)], "block_0/attention has 'adapter' already"),
        ({}, lambda: [RoAd(3)], "RoAd's variant is 3; it can be one of 1, 2, 4"),
        ({}, lambda: [RoAd(group_size=5)], "RoAd's group_size is 5; it must be even and divide"),
        ({}, lambda: [Adapters(2, place="above")], "an adapter's place is 'above'; it can be one of after, beside"),
        ({}, lambda: [Biases([5])], "there is no block 5"),
        ({}, lambda: [Adapters(0)], "an adapter's width is 0"),
        ({}, lambda: [Lora(rank=1.5)], "LoRA's rank is 1.5"),
        ({"layer_sharing": "all"}, lambda: [Reinitialize(1)], "layer 0, which would stay, shares sublayers with them"),
        ({}, lambda: [Reinitialize(True)], "the number of layers to reinitialize is True"),
        ({}, lambda: [LayerwiseDecay(0)], "it must be above 0 and at most 1"),
    ],
)
def test_mistakes_are_named(changes, make, message):
    with pytest.raises(UserError, match=re.escape(message)):
        tune(make_model(**changes), make())


def test_methods_are_given_all_at_once():
    model = make_model()
    tune(model, [Biases()])
    with pytest.raises(UserError, match="give all methods at once"):
        tune(model, [Norms()])
