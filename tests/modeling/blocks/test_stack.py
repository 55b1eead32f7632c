import json

import keras
import numpy as np
import pytest

from benchmarks import scanning
from rembed_keras.analysis import ledger
from rembed_keras.errors import UserError
from rembed_keras.modeling import Encoder, LateMaskedLM, MaskedLM, ReplacedTokenDetection
from rembed_keras.modeling.attention import Disentangled
from rembed_keras.modeling.blocks import PostNorm, PreNorm
from rembed_keras.modeling.sizes import groups_of_layers, layers_to_keep
from tests.modeling.forward import forward
from tests.modeling.test_encoder import FIRST, SECOND, SIZES, make_encoder, make_inputs

INPUTS = make_inputs([[FIRST]], 7)
BLOCK = {"attention": 4 * (16 * 16 + 16) + 32, "feed_forward": 2 * 16 * 24 + 24 + 16 + 32}


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("sharing", "groups", "attentions", "feed_forwards"),
    [
        ("none", 1, 4, 4),
        ("attention", 1, 1, 4),
        ("feed_forward", 2, 4, 2),
        ("all", 1, 1, 1),
        ("all", [0, 1, 0, 1], 2, 2),
    ],
)
def test_layers_of_a_group_share_what_is_shared(sharing, groups, attentions, feed_forwards):
    encoder = make_encoder(num_layers=4, layer_sharing=sharing, layer_groups=groups)
    blocks = make_encoder(num_layers=1).count_params() - sum(BLOCK.values())
    assert encoder.count_params() == blocks + attentions * BLOCK["attention"] + feed_forwards * BLOCK["feed_forward"]
    again = Encoder.from_config(json.loads(json.dumps(encoder.get_config())))
    again.set_weights(encoder.get_weights())
    ours, theirs = (forward(each, INPUTS)["sequence_output"] for each in (again, encoder))
    np.testing.assert_array_equal(ours, theirs)


def test_sharing_everything_is_one_block_applied_again_and_again():
    shared = make_encoder(num_layers=3, layer_sharing="all")
    plain = make_encoder(num_layers=3)
    block = [weight.numpy() for weight in shared.parts.blocks[0].weights]
    for layer in range(3):
        for weight, value in zip(plain.parts.blocks[layer].weights, block, strict=True):
            weight.assign(value)
    for part in ("embeddings", "projection", "pooler"):
        getattr(plain.parts, part).set_weights(getattr(shared.parts, part).get_weights())
    np.testing.assert_array_equal(forward(plain, INPUTS)["sequence_output"], forward(shared, INPUTS)["sequence_output"])


@pytest.mark.any_backend
def test_shared_layers_are_saved_once_and_come_back(tmp_path):
    encoder = make_encoder(num_layers=4, layer_sharing="all", layer_groups=2)
    encoder.save_to_preset(str(tmp_path / "preset"))
    again = Encoder.from_preset(str(tmp_path / "preset"))
    ours, theirs = (forward(each, INPUTS)["sequence_output"] for each in (again, encoder))
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("keep", "layers"),
    [("bottom", [0, 1, 2]), ("top", [3, 4, 5]), ("alternate", [0, 2, 5]), ("symmetric", [0, 1, 5])],
)
def test_layers_that_stay(keep, layers):
    assert layers_to_keep(6, 3, keep) == layers
    assert layers_to_keep(6, 6, keep) == [*range(6)]
    encoder = make_encoder(num_layers=6)
    cut = encoder.with_layers(3, keep)
    by_hand = make_encoder(num_layers=3)
    for part in ("embeddings", "projection", "pooler"):
        getattr(by_hand.parts, part).set_weights(getattr(encoder.parts, part).get_weights())
    for block, layer in zip(by_hand.parts.blocks, layers, strict=True):
        block.set_weights(encoder.parts.blocks[layer].get_weights())
    np.testing.assert_array_equal(forward(cut, INPUTS)["sequence_output"], forward(by_hand, INPUTS)["sequence_output"])


@pytest.mark.any_backend
def test_a_cut_encoder_with_shared_layers_comes_back(tmp_path):
    cut = make_encoder(num_layers=6, layer_sharing="attention", layer_groups=2).with_layers(3, "top")
    cut.save_to_preset(str(tmp_path / "preset"))
    again = Encoder.from_preset(str(tmp_path / "preset"))
    assert again.count_params() == cut.count_params()
    np.testing.assert_array_equal(forward(again, INPUTS)["sequence_output"], forward(cut, INPUTS)["sequence_output"])


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("sharing", "groups", "block"),
    [
        ("none", 4, PostNorm),
        ("none", 4, PreNorm),
        ("none", [0, 0, 1, 1], PostNorm),
        ("attention", 1, PreNorm),
        ("attention", [0, 1, 1, 1], PostNorm),
        ("all", 2, PreNorm),
    ],
)
def test_a_cut_encoder_comes_back_from_its_configuration(block, sharing, groups):
    encoder = make_encoder(num_layers=4, block=block, layer_sharing=sharing, layer_groups=groups)
    for kept, keep in ((1, "bottom"), (2, "top"), (3, "symmetric"), (2, "alternate")):
        if keep == "top" and block == PreNorm and sharing == "none":
            continue  # refused, see below
        cut = encoder.with_layers(kept, keep)
        again = Encoder.from_config(json.loads(json.dumps(cut.get_config())))
        again.set_weights(cut.get_weights())
        ours, theirs = (forward(each, INPUTS)["sequence_output"] for each in (again, cut))
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.any_backend
def test_rotary_positions_of_heads_of_an_odd_width_are_refused():
    odd = {"num_layers": 1, "num_heads": 2, "hidden_dim": 6, "intermediate_dim": 8, "input_embedding_dim": 4}
    ledger({"encoder": {"vocabulary_size": 50} | odd, "output_embedding_dim": 4})
    with pytest.raises(UserError, match="a head is 3 wide"):
        ledger({"encoder": {"vocabulary_size": 50, "block": PreNorm} | odd, "output_embedding_dim": 4})
    for make in (lambda: Encoder(50, block=PreNorm, **odd), lambda: make_encoder(block=PreNorm, head_dim=5)):
        with pytest.raises(
            UserError, match=r"^a head is [35] wide, and PreNorm blocks rotate pairs .* an even head_dim$"
        ):
            make()


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("changes", "keep", "message"),
    [
        ({"block": PreNorm}, "top", "the first of PreNorm blocks must stay"),
        ({"block": PreNorm, "layer_sharing": "feed_forward"}, "top", "the first of PreNorm blocks must stay"),
        ({"scalar_mix": True}, "bottom", "an encoder with scalar_mix needs all of its layers"),
        ({}, "middle", "keep is 'middle'; it can be one of bottom, top, alternate, symmetric"),
    ],
)
def test_a_cut_that_cannot_be_made_is_refused_before_training(changes, keep, message):
    encoder = make_encoder(num_layers=3, **changes)
    with pytest.raises(UserError, match=message):
        MaskedLM(encoder, 20, kept_layers=2, keep=keep)
    with pytest.raises(UserError, match=message):
        ledger({"encoder": encoder.get_config(), "output_embedding_dim": 20, "kept_layers": 2, "keep": keep})
    objectives = [
        MaskedLM(encoder, 20),
        LateMaskedLM(encoder, 20, decoder_layers=1),
        ReplacedTokenDetection(encoder, 20, generator_layers=1),
    ]
    for model in objectives:
        with pytest.raises(UserError, match=message):
            model.drop_heads(2, keep)
        with pytest.raises(UserError, match="kept_layers is 0; this encoder has 3 to keep from"):
            model.drop_heads(0)
    if keep == "middle":
        with pytest.raises(UserError, match=message):
            MaskedLM(encoder, 20, keep=keep)
    else:  # nothing is cut
        assert MaskedLM(encoder, 20, kept_layers=3, keep=keep).drop_heads().num_layers == 3


@pytest.mark.any_backend
def test_a_decoder_goes_on_with_a_pattern_of_attention_that_is_longer_than_the_encoder():
    pattern = [Disentangled(4, 8), Disentangled(8, 16)]
    encoder = make_encoder(num_layers=1, attention=pattern)
    model = LateMaskedLM(encoder, 20, decoder_layers=2)
    again = LateMaskedLM.from_config(json.loads(json.dumps(model.get_config())))
    asked = {"encoder": encoder.get_config() | {"attention": pattern}, "output_embedding_dim": 20, "decoder_layers": 2}
    counts = [made.count_params() for made in (model, again)]
    assert counts == [ledger(asked, entries=LateMaskedLM.ledger_entries).total] * 2
    assert again.encoder.get_config()["attention"] == encoder.get_config()["attention"]


@pytest.mark.any_backend
def test_the_model_says_which_layers_it_drops():
    model = MaskedLM(make_encoder(num_layers=4), 20, kept_layers=2, keep="symmetric")
    kept = model.drop_heads()
    assert kept.parts.blocks == [model.encoder.parts.blocks[0], model.encoder.parts.blocks[3]]
    assert model.drop_heads(3).num_layers == 3
    with pytest.raises(ValueError, match="has 4 to keep from"):
        MaskedLM(make_encoder(num_layers=4), 20, kept_layers=5)
    with pytest.raises(ValueError, match="bottom, top, alternate, symmetric"):
        MaskedLM(make_encoder(num_layers=4), 20, kept_layers=2, keep="middle")


def test_a_scalar_mix_is_the_weighted_sum_of_all_states():
    encoder = make_encoder(scalar_mix=True)
    outputs = forward(encoder, INPUTS)
    shares = np.exp(encoder.parts.mix.weight.numpy().astype("float64"))
    shares *= encoder.parts.mix.scale.numpy() / shares.sum()
    expected = sum(share * state for share, state in zip(shares, outputs["hidden_states"], strict=True))
    np.testing.assert_allclose(outputs["sequence_output"], expected, atol=1e-5)
    with pytest.raises(ValueError, match="needs all of its layers"):
        encoder.with_layers(1)


def test_heads_may_be_of_any_width():
    encoder = make_encoder(num_heads=3, head_dim=4)
    assert [tuple(weight.shape) for weight in encoder.parts.blocks[0].attention.heads.weights[:2]] == [
        (16, 3, 4),
        (3, 4),
    ]
    assert forward(encoder, INPUTS)["sequence_output"].shape == (1, 7, 16)


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"block": "mamba"}, "block is 'mamba'; it can be one of Bottleneck, PostNorm, PreNorm"),
        ({"layer_sharing": "some"}, "none, attention, feed_forward, all"),
        ({"layer_sharing": "all", "layer_groups": 3}, "layer_groups is 3; it must be from 1 to num_layers, 2"),
        ({"layer_sharing": "all", "layer_groups": [0]}, "names 1 layers and num_layers is 2"),
        ({"head_dim": 0}, "head_dim is 0"),
    ],
)
def test_refuses_what_cannot_be_built(changes, message):
    with pytest.raises(ValueError, match=message):
        Encoder(**(SIZES | changes))


@pytest.mark.any_backend
def test_groups_are_neighbours():
    assert groups_of_layers(12, 4) == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]


@pytest.mark.parametrize("changes", [{"layer_sharing": "all", "head_dim": 4}, {"block": PreNorm, "scalar_mix": True}])
def test_packing_padding_and_learning_hold_for_every_kind(changes):
    encoder = make_encoder(**changes)
    packed = forward(encoder, make_inputs([[FIRST, SECOND]], 12))["sequence_output"][0]
    for document, span in ((FIRST, slice(0, 7)), (SECOND, slice(7, 11))):
        alone = forward(encoder, make_inputs([[document]], len(document[0])))["sequence_output"][0]
        np.testing.assert_allclose(packed[span], alone, atol=2e-5)
    model = MaskedLM(encoder, 20)
    before = {weight.path: weight.numpy() for weight in model.trainable_weights}
    x = make_inputs([[FIRST, SECOND]], 12) | {"mask_positions": np.array([[1, 8]])}
    model.compile(optimizer=keras.optimizers.Lion(1e-2))
    losses = [float(model.train_on_batch(x, np.array([[4, 5]]), return_dict=True)["loss"]) for _ in range(10)]
    assert losses[-1] < 0.5 * losses[0]
    # a bias of keys moves nothing: softmax does not see what is added to all scores of a query
    still = [
        w.path
        for w in model.trainable_weights
        if np.array_equal(w.numpy(), before[w.path]) and "key/bias" not in w.path
    ]
    assert not still


@pytest.mark.skipif(keras.config.backend() != "jax", reason="XLA's scan is JAX's")
def test_blocks_may_be_scanned(monkeypatch):
    """The benchmark of it, which compares losses too."""
    for name, value in {"HIDDEN_DIM": 8, "HEADS": 2, "ROWS": 2, "LENGTH": 4, "ROUNDS": 1}.items():
        monkeypatch.setattr(scanning, name, value)
    lines = scanning.table({2: scanning.measure(2)}).splitlines()
    assert len(lines) == 3 and lines[2].startswith("| 2 | ") and lines[2].count("|") == lines[0].count("|") == 8
