"""Fine-tuning methods on encoders whose blocks share weights, that are frozen, or that are in few bits."""

import re

import numpy as np
import pytest

from own_parts.modeling.block import LayerScale
from rembed_keras.adaptation.methods import Adapters, Biases, Everything, FisherChosen, Lora, Reinitialize, RoAd
from rembed_keras.adaptation.tuning import tune
from rembed_keras.errors import UserError
from rembed_keras.modeling import Classifier, Encoder
from rembed_keras.modeling.attention import Disentangled
from rembed_keras.modeling.blocks import PreNorm
from rembed_keras.modeling.blocks.stack import kept_arguments
from tests.adaptation.test_tuning import INPUTS, LABELS, learn, make_model, moved, values
from tests.modeling.forward import forward

DISTANCES = "block_0/attention/heads/shared_0/embeddings"


def quantized(mode):
    model = make_model()
    model.quantize(mode)
    return model


@pytest.mark.parametrize("number", [1, 2])
def test_what_all_blocks_have_in_common_stays_unless_all_are_reinitialized(number):
    model = make_model(attention=Disentangled(4, 16))
    (before,) = (weight.numpy() for weight in model.encoder.weights if weight.path == DISTANCES)
    tune(model, [Reinitialize(number)])
    (after,) = (weight.numpy() for weight in model.encoder.weights if weight.path == DISTANCES)
    assert np.array_equal(before, after) if number == 1 else 0.01 < after.std() < 0.03


def test_weights_of_blocks_of_ones_own_begin_as_they_do_there():
    model = make_model(block=LayerScale(gain=0.5))
    for weight in model.encoder.weights:
        weight.assign(np.full(weight.shape, 3.0))
    tune(model, [Reinitialize(1)])
    found = {
        tuple(np.unique(weight.numpy())) for weight in model.encoder.parts.blocks[1].weights if weight.name == "gain"
    }
    assert found == {(0.5,)}


def test_blocks_with_what_another_fine_tuning_added_are_not_reinitialized(tmp_path):
    model = make_model()
    tune(model, [Lora(2, layers=[1])])
    model.encoder.save_to_preset(str(tmp_path / "preset"))
    again = Classifier(Encoder.from_preset(str(tmp_path / "preset")), 3)
    with pytest.raises(UserError, match="block 1 has what another fine-tuning added, which would stay"):
        tune(again, [Reinitialize(1)])
    assert len(again.trainable_variables) == len(again.weights)


def test_nothing_is_added_where_one_of_several_methods_is_refused():
    model = make_model(block=PreNorm, num_segments=0)
    with pytest.raises(UserError, match="this encoder's blocks have none"):
        tune(model, [Lora(2), Biases()])
    tune(model, [Lora(2)])
    assert [method.rank for method in model.methods] == [2]


def test_what_is_reinitialized_is_trained_in_a_frozen_encoder():
    model = make_model(trainable=False)
    tune(model, [Reinitialize(1)])
    before = values(model)
    learn(model)
    assert {path.split("/")[0] for path in moved(model, before)} == {"block_1", "pooler", "head"}


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize`:UserWarning")
@pytest.mark.usefixtures("without_old_garbage")
@pytest.mark.parametrize("mode", ["int8", "int4"])
def test_what_is_in_few_bits_is_not_trained(mode):
    model = quantized(mode)
    tune(model, [Everything()])
    trained = {variable.path for variable in model.trainable_variables}
    whole = {variable.path for variable in make_model().weights}
    assert trained == {path for path in whole if not re.search("(kernel|embeddings)$", path)}
    with pytest.raises(UserError, match=r"Reinitialize needs an encoder that is not quantized, and .* is"):
        tune(quantized(mode), [Reinitialize(1)])
    if mode == "int4":
        with pytest.raises(UserError, match="is in int4: lora needs int8, or more bits"):
            tune(quantized(mode), [Lora(2)])


@pytest.mark.any_backend
@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize`:UserWarning")
@pytest.mark.filterwarnings("ignore:Invalid quantization mode:UserWarning")  # of tables, which have no float8
@pytest.mark.usefixtures("without_old_garbage")
def test_matrices_in_float8_are_trained_as_without_methods(monkeypatch):
    model = quantized("float8")
    before = {variable.path for variable in model.trainable_variables}
    learned = []  # what is measured has no gradient to choose by

    def fisher(model, batches, variables):
        learned.extend(variables)
        return [np.ones(each.shape) for each in variables]

    monkeypatch.setattr("rembed_keras.adaptation.methods.choosing.diagonal_fisher", fisher)
    FisherChosen("blocks").settle(model, [])
    blocks = {variable.path for variable in make_model().weights if variable.path.startswith("block")}
    assert {variable.path for variable in learned} == blocks
    tune(model, [Everything()])
    assert {variable.path for variable in model.trainable_variables} == before
    assert any(path.endswith("kernel") for path in before) and any("amax_history" in path for path in before)


@pytest.mark.any_backend
@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize`:UserWarning")
@pytest.mark.usefixtures("without_old_garbage")
def test_methods_leave_what_is_in_few_bits_in_adapters_of_another_task_too():
    former = make_model()
    tune(former, [Adapters(2)])
    former.encoder.quantize("int8")
    model = Classifier(former.encoder, 3)
    chosen = FisherChosen("blocks", count=1, batches=1).settle(model, [(INPUTS, LABELS)])
    tune(model, [chosen, Everything()])
    assert {variable.dtype for variable in model.trainable_variables} == {"float32"}
    assert not [variable.path for variable in model.trainable_variables if re.search("_scale$", variable.path)]


@pytest.mark.parametrize("sharing", ["none", "all"])
def test_what_an_encoder_in_few_bits_cannot_have_is_refused_by_its_arguments(sharing):
    encoder = {"num_layers": 2, "layer_sharing": sharing}
    query, merge = "block_0/attention/heads/query", "block_0/attention/merge"
    packed = encoder | {"quantized": {"int4": [query, merge, "pooler"]}}
    for method, name in {Lora(): query, RoAd(targets=["output"]): merge}.items():
        with pytest.raises(UserError, match=rf"^{name} is in int4: \w+ needs int8, or more bits"):
            method.check(packed)
    with pytest.raises(UserError, match=f"^Reinitialize needs an encoder that is not quantized, and {query} is"):
        Reinitialize(2).check(packed)
    others = [Lora(targets=["key", "up"]), Lora(per_head=True)] + [Lora(layers=[1])] * (sharing == "none")
    for method in others:
        method.check(packed)
    Lora().check(encoder | {"quantized": {"int8": [query]}})


@pytest.mark.parametrize("sharing", ["none", "attention"])
def test_a_method_that_an_encoder_has_already_is_refused_by_its_arguments(sharing):
    model = make_model(num_layers=4, layer_sharing=sharing, layer_groups=2)
    tune(model, [Adapters(2, layers=[3]), Lora(2, layers=[2]), RoAd(layers=[2], targets=["down"])])
    arguments = model.encoder.get_config()
    said = {Adapters(4): "attention has 'adapter'", Lora(layers=[-1, 2]): "attention/query has 'lora'"}
    said[RoAd()] = "feed_forward/down has 'road'"
    for method, has in said.items():
        with pytest.raises(UserError, match=rf"^block_[23]/{has} already: a model takes a method once"):
            method.check(arguments)
    for method in (Adapters(place="beside"), Adapters(layers=[0, 1]), Lora(layers=[1]), Lora(targets=["key"])):
        method.check(arguments)
    of_same = Lora(layers=[3])  # shares the attention of block 2, or has its own
    if sharing == "none":
        of_same.check(arguments)
    else:
        with pytest.raises(UserError, match=r"^block_2/attention/query has 'lora' already"):
            of_same.check(arguments)
    Adapters().check(kept_arguments(arguments, {"kept_layers": 2}))
    packed = {"num_layers": 4, "layer_sharing": "all", "layer_groups": 2}
    packed |= {"quantized": {"int4": ["block_2/attention/heads/query"]}}
    with pytest.raises(UserError, match=r"^block_2/attention/heads/query is in int4"):
        Lora(layers=[3]).check(packed)


@pytest.mark.parametrize("places", [("beside", "after"), ("after", "beside")])
def test_adapters_beside_and_after_have_their_own_weights_in_a_copy(places):
    model = make_model()
    tune(model, [Adapters(2, place=place) for place in places])
    rng = np.random.default_rng(0)
    for weight in model.encoder.weights:
        weight.assign(rng.normal(size=weight.shape))
    encoder = model.encoder
    copy = Encoder.from_config(encoder.get_config())
    assert [weight.path for weight in copy.weights] == [weight.path for weight in encoder.weights]
    copy.set_weights(encoder.get_weights())
    np.testing.assert_allclose(*(forward(each, INPUTS)["pooled_output"] for each in (copy, encoder)), atol=1e-5)
