"""Parts of one's own where they meet what the package does with its own: saving, int8, sums, methods, memory."""

import json

import keras
import numpy as np
import pytest
from keras import ops

from own_parts.adaptation.term import UnitScale
from own_parts.modeling.attention import OneWay
from own_parts.modeling.block import LayerScale
from own_parts.modeling.input_embedding import Sinusoidal
from own_parts.modeling.sharing import GeneratorTrained
from rembed_keras.adaptation.methods import Lora
from rembed_keras.errors import UserError
from rembed_keras.modeling import (
    Classifier,
    LateMaskedLM,
    MaskedLM,
    ReplacedTokenDetection,
    Sum,
    blocks,
    couplings,
    input_embeddings,
)
from rembed_keras.modeling.attention import Global
from rembed_keras.modeling.attention.heads import Heads
from rembed_keras.modeling.cost import heads_of
from rembed_keras.modeling.couplings.naming import COUPLINGS
from rembed_keras.modeling.heads.task_model import TaskModel
from rembed_keras.modeling.input_embeddings.summed import table_arguments
from rembed_keras.modeling.layers.embeddings import InputEmbedding
from rembed_keras.modeling.layers.sublayer import Sublayer, project
from tests.modeling.forward import QUICK, forward
from tests.modeling.objectives.test_pretraining import make_batch
from tests.modeling.saving.test_changes import through_a_checkpoint
from tests.modeling.test_encoder import FIRST, SECOND, make_encoder, make_inputs

registered = keras.saving.register_keras_serializable(package="tests_of_own_parts")


class Nameless(Sublayer):
    """A feed-forward pair that leaves all names to Keras."""

    def __init__(self, intermediate_dim, dtype=None, rate=0.0):
        super().__init__(dtype=dtype)
        self.wide = keras.layers.Dense(intermediate_dim, "relu", dtype=dtype)
        self.noise = keras.layers.Dropout(rate)

    @property
    def projections(self):
        return {"up": self.wide}

    def build(self, hidden_shape):
        self.wide.build(hidden_shape)
        self.narrow = keras.layers.Dense(hidden_shape[-1], dtype=self.dtype_policy)
        self.narrow.build((*hidden_shape[:-1], self.wide.units))

    def call(self, hidden, training=None):
        made = self.noise(self.narrow(project(self.wide, hidden)), training=training)
        return hidden + self.adapted(made, hidden)


@registered
class Unnamed(blocks.PostNorm):
    """Blocks of such pairs; it leaves `get_config` to what it is derived from."""

    def __init__(self, rate=0.0):
        self.rate = rate

    def feed_forward(self, config, dtype=None):
        return Nameless(config["intermediate_dim"], dtype, self.rate)


def test_layers_that_keras_names_have_the_same_paths_in_every_model(without_old_garbage):
    model = MaskedLM(make_encoder(block=Unnamed), 9)
    model.encoder.parts.blocks[0].feed_forward.wide.quantize("int8")
    again = MaskedLM.from_config(json.loads(json.dumps(model.get_config())))
    assert [weight.path for weight in again.weights] == [weight.path for weight in model.weights]
    again.set_weights(model.get_weights())
    x, _, _ = make_batch()
    np.testing.assert_array_equal(forward(again, x), forward(model, x))


@registered
class Weighing(TaskModel):
    """A head that reads a weighted mean of tokens, by a layer without a name."""

    reads = "sequence_output"

    def __init__(self, encoder, name="weighing"):
        self.share = keras.layers.Dense(1)
        super().__init__(encoder, 2, 0.0, name)

    def pool(self, output, inputs):
        return ops.sum(output * ops.softmax(self.share(output), axis=1), axis=1)  # [B, S, D] -> [B, D]

    def get_config(self):
        return {key: value for key, value in super().get_config().items() if key != "dropout"}


def test_checkpoints_of_heads_with_layers_that_keras_names_are_read(tmp_path):
    model = Weighing(make_encoder(block=Unnamed))
    again, inputs = through_a_checkpoint(model, tmp_path), make_inputs([[FIRST]], 7)
    np.testing.assert_array_equal(forward(again, inputs), forward(model, inputs))


@registered
class Near(Global):
    """Attention to neighbors, which takes less than what it is derived from, and keeps more than it takes."""

    def __init__(self, reach=1):
        super().__init__()
        self.reach, self.width = reach, 2 * reach + 1


def test_a_part_without_get_config_keeps_its_arguments():
    assert make_encoder(block=Unnamed(0.25)).parts.blocks[0].feed_forward.noise.rate == 0.25
    assert make_encoder(attention=Near(3)).parts.blocks[1].attention.kind.width == 7

    class Forgetful(LayerScale):
        get_config = blocks.PostNorm.get_config

        def __init__(self, gain=0.1, power=2):
            super().__init__(gain)

    with pytest.raises(UserError, match="Forgetful takes power and has no get_config: give it one"):
        registered(Forgetful)(0.5).get_config()


def test_parts_are_not_taken_for_one_another_when_a_file_is_read(tmp_path):
    kinds = [OneWay(is_forward=layer % 2 == 1, rotary_base=10.0 + layer) for layer in range(4)]
    encoder = make_encoder(num_layers=4, block=LayerScale(0.7), attention=kinds)
    encoder.save(tmp_path / "encoder.keras")
    for _ in range(5):
        told = keras.models.load_model(tmp_path / "encoder.keras", compile=False).arguments
        assert (told["block"], told["attention"]) == (encoder.arguments["block"], encoder.arguments["attention"])


class Hidden(couplings.Extended):
    pass


def test_a_part_that_is_not_registered_is_refused():
    with pytest.raises(UserError, match=r"names 'Hidden' of .*; if it is your own, decorate it with @keras"):
        MaskedLM(make_encoder(), 9, coupling=COUPLINGS.told(Hidden))


@registered
class WithHeads(Global):
    """Attention with heads of its own."""

    def heads(self, config, dtype=None):
        return Heads(*heads_of(config), dtype=dtype)


@pytest.mark.parametrize("block", [blocks.PreNorm, blocks.Bottleneck])
def test_heads_that_blocks_have_no_place_for_are_refused(block):
    with pytest.raises(UserError, match=r"attention WithHeads brings heads, and .* blocks have no place for them"):
        make_encoder(block=block, attention=WithHeads())
    assert make_encoder(attention=WithHeads()).num_layers == 2


@registered
class Plain(blocks.PostNorm):
    """Blocks of a layer that hosts nothing."""

    def feed_forward(self, config, dtype=None):
        return keras.layers.Dense(config["hidden_dim"], dtype=dtype)


def test_what_is_no_sublayer_is_refused():
    with pytest.raises(UserError, match="Dense is no sublayer: derive it from layers"):
        make_encoder(block=Plain)


def test_what_draws_random_numbers_is_not_computed_once_more():
    with pytest.raises(UserError, match="rematerialize needs blocks that draw no random numbers"):
        make_encoder(block=Unnamed(0.25), rematerialize=True)
    assert make_encoder(block=Unnamed, rematerialize=True).num_layers == 2


def test_targets_that_blocks_have_not_are_refused():
    model = Classifier(make_encoder(block=Unnamed), 3)
    with pytest.raises(UserError, match=r"^targets are \['query', 'down'\]: these blocks have no projection 'down'"):
        model.adapt([Lora(targets=("query", "down"))])


class Scaled(InputEmbedding):
    """Reads rows of tokens in another way."""

    def call(self, token_ids, segment_ids, padding_mask, training=None):
        return self.finish(3.0 * self.token(token_ids), segment_ids, padding_mask, training=training)


@registered
class ScaledTables(input_embeddings.Summed):
    """Such an input embedding."""

    def layer(self, config, block, has_positions, name, dtype=None):
        return Scaled(**table_arguments(config, has_positions), name=name, dtype=dtype)


def test_disentangled_sharing_leaves_out_no_call():
    encoder = make_encoder(input_embedding=ScaledTables())
    with pytest.raises(UserError, match="sharing 'gdes' leaves out the call of Scaled"):
        ReplacedTokenDetection(encoder, 9, sharing="gdes")
    assert ReplacedTokenDetection(encoder, 9).encoder is encoder


def test_a_sharing_of_ones_own_may_have_detection_read_the_encoders_table(tmp_path):
    model = ReplacedTokenDetection(make_encoder(), 9, sharing=GeneratorTrained)
    assert id(model.encoder.token_embedding.embeddings) in map(id, model.trainable_variables)
    model.save_weights(tmp_path / "model.weights.h5")  # which folds what there is to fold


@pytest.mark.parametrize(("sharing", "is_trained"), [("embeddings", True), (GeneratorTrained, False)])
def test_detection_trains_a_table_unless_the_generator_alone_does(sharing, is_trained, without_graphs):
    moved = []
    for weight in (1.0, 100.0):
        model = ReplacedTokenDetection(make_encoder(num_layers=1), 9, sharing=sharing, discriminator_weight=weight)
        table = model.encoder.token_embedding.embeddings
        before = ops.convert_to_numpy(table)
        model.compile(optimizer=keras.optimizers.SGD(0.1), **QUICK)
        model.train_on_batch(*make_batch())
        moved.append(ops.convert_to_numpy(table) - before)
    assert np.abs(moved[0]).max() > 1e-3 and np.allclose(*moved, atol=1e-6) is not is_trained


def test_waves_of_positions_are_added_to_rows_of_tokens():
    layer = make_encoder(input_embedding=Sinusoidal, num_layers=1).parts.embeddings
    inputs = make_inputs([[FIRST, SECOND]], 11)
    found = ops.convert_to_numpy(layer(*inputs.values()))
    token, segment, gamma, beta = (ops.convert_to_numpy(weight).astype(np.float64) for weight in layer.weights)
    angles = np.array([*range(7), *range(4)])[:, None] / 1e4 ** (np.arange(0, 6, 2) / 6)  # [S, E_in / 2]
    rows = token[inputs["token_ids"][0]] * 6**0.5 + segment[inputs["segment_ids"][0]]
    rows += np.concatenate([np.sin(angles), np.cos(angles)], axis=1)  # [S, E_in]
    normed = (rows - rows.mean(axis=1, keepdims=True)) / rows.std(axis=1, keepdims=True)
    np.testing.assert_allclose(found[0], normed * gamma + beta, atol=1e-5)


@registered
class EveryOther(MaskedLM):
    """Counts the first prediction of a row alone."""

    def shares_of(self, x, y, sample_weight):
        is_first = ops.cast(ops.arange(ops.shape(y)[1]) == 0, "float32")
        return super().shares_of(x, y, is_first * (ops.ones(ops.shape(y)) if sample_weight is None else sample_weight))


def test_objectives_of_a_sum_weigh_predictions_by_themselves(without_graphs):
    batch, logs, kinds = make_batch(), {}, {"plain": MaskedLM, "first": EveryOther}
    for names in (("plain", "first"), ("first", "plain")):
        encoder = make_encoder(num_layers=1)
        model = Sum(encoder, [lambda each, name=name: kinds[name](each, 9, name=name) for name in names])
        for each in model.objectives:
            each.head.set_weights([np.full(weight.shape, 0.1) for weight in each.head.weights])
            each.head.output_embedding.bias.assign(np.linspace(-1, 1, 50))
        model.compile(optimizer=keras.optimizers.SGD(0.1), **QUICK)
        logs[names] = model.train_on_batch(*batch, return_dict=True)
    one, other = logs.values()
    plain, first = ([float(each[f"{name}/loss"]) for each in (one, other)] for name in kinds)
    assert plain == pytest.approx(plain[::-1], rel=1e-6) and first == pytest.approx(first[::-1], rel=1e-6)
    assert abs(plain[0] - first[0]) > 1e-3


def test_a_term_of_hidden_states_suits_masked_lm(without_graphs):
    model = MaskedLM(make_encoder(), 9)
    model.use_terms([UnitScale()])
    model.compile(optimizer="sgd", **QUICK)
    assert float(model.train_on_batch(*make_batch(), return_dict=True)["unit_scale"]) > 0
    with pytest.raises(UserError, match="UnitScale looks at all tokens of a row"):
        LateMaskedLM(make_encoder(), 9).use_terms([UnitScale()])


@registered
class Scores(TaskModel):
    """A head with an argument that it does not say."""

    def __init__(self, encoder, units, dropout=0.1, name="scores"):
        super().__init__(encoder, units, dropout, name)


@registered
class Bare(TaskModel):
    """A head that takes less than its configuration says."""

    def __init__(self, encoder):
        super().__init__(encoder, 2, 0.0, "bare")


@pytest.mark.parametrize(
    ("head", "given", "message"),
    [(Scores, (3,), "Scores takes units, which its get_config does not say"), (Bare, (), "get_config .* says dropout")],
)
def test_a_head_that_could_not_be_opened_again_is_called_so(head, given, message):
    encoder = make_encoder()
    with pytest.warns(UserWarning, match=message):
        assert head(encoder, *given).encoder is encoder
