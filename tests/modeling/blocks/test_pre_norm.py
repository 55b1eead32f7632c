"""Pre-norm blocks against the same sums in NumPy and float64, and against Hugging Face's ModernBERT."""

import keras
import numpy as np
import pytest
from keras_hub.layers import RotaryEmbedding

from rembed_keras.modeling import Encoder
from rembed_keras.modeling.attention import Global, Local
from rembed_keras.modeling.attention.rotary import rotate
from rembed_keras.modeling.blocks import PreNorm
from tests.modeling import reference
from tests.modeling.forward import forward
from tests.modeling.test_encoder import FIRST, make_encoder, make_inputs

PRE_NORM = {"block": PreNorm, "num_segments": 0, "always_project": False, "layer_norm_epsilon": 1e-5}


def scale_norm(x, gamma):
    return reference.layer_norm(x, gamma, 0.0, 1e-5)


def turn(x, base=10_000.0):
    """Rotary positions of [S, H, K], as products of complex numbers."""
    half = x.shape[-1] // 2
    angles = np.arange(len(x))[:, None, None] * base ** (-np.arange(half) / half)
    turned = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angles)
    return np.concatenate([turned.real, turned.imag], axis=-1)


def encode(encoder, token_ids):
    """All hidden states of one document, its attention `Global` or `Local`."""
    w = reference.weights_of(encoder)
    x = scale_norm(w["embeddings/token/embeddings"][token_ids], w["embeddings/norm/gamma"])
    if "projection/kernel" in w:
        x = x @ w["projection/kernel"]
    states = [x]
    shares_attention = encoder.get_config()["layer_sharing"] in ("attention", "all")
    for i, block in enumerate(encoder.parts.blocks):
        name = block.attention.path
        normed = scale_norm(x, w[f"{name}/norm/gamma"]) if i or shares_attention else x
        query, key, value = (
            np.einsum("sd,dhk->shk", normed, w[f"{name}/{part}/kernel"]) for part in ("query", "key", "value")
        )
        base = block.attention.kind.rotary_base
        scores = np.einsum("qhk,shk->hqs", turn(query, base), turn(key, base)) / np.sqrt(query.shape[-1])
        reach = (block.attention.kind.window or 2 * len(x)) // 2  # a `Global` has no window
        index = np.arange(len(x))
        scores[:, np.abs(index[:, None] - index) > reach] = -np.inf
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        attended = np.einsum("hqs,shk->qhk", shares / shares.sum(-1, keepdims=True), value)
        x = x + np.einsum("qhk,hkd->qd", attended, w[f"{name}/merge/kernel"])
        name = block.feed_forward.path
        values, gates = np.split(scale_norm(x, w[f"{name}/norm/gamma"]) @ w[f"{name}/up/kernel"], 2, axis=-1)
        x = x + (reference.gelu(values) * gates) @ w[f"{name}/down/kernel"]
        states.append(x)
    states[-1] = scale_norm(x, w["norm/gamma"])
    return states


@pytest.mark.parametrize("width", [6, 16])
def test_equals_the_reference_in_float64(width):
    encoder = make_encoder(**PRE_NORM, input_embedding_dim=width, num_layers=3)
    outputs = forward(encoder, make_inputs([[FIRST]], 7))["hidden_states"]
    for ours, theirs in zip(outputs, encode(encoder, np.array(FIRST[0])), strict=True):
        np.testing.assert_allclose(ours[0], theirs, atol=5e-5)


@pytest.mark.parametrize("window", [2, 5, 12])
def test_alternating_local_attention_equals_the_reference_in_float64(window):
    pattern = [Global(rotary_base=160.0), Local(window, rotary_base=10.0), Local(window, rotary_base=10.0)]
    encoder = make_encoder(**PRE_NORM, num_layers=4, attention=pattern)
    outputs = forward(encoder, make_inputs([[FIRST]], 7))["hidden_states"]
    for ours, theirs in zip(outputs, encode(encoder, np.array(FIRST[0])), strict=True):
        np.testing.assert_allclose(ours[0], theirs, atol=5e-5)


@pytest.mark.any_backend
def test_hidden_states_of_shared_layers_grow_as_those_of_others_do():
    sizes = {}
    for each in ("none", "attention", "feed_forward", "all"):
        keras.utils.set_random_seed(0)
        encoder = Encoder(300, 12, 4, 64, 256, 32, block=PreNorm, layer_sharing=each)
        for weight in encoder.weights:
            if weight.path.endswith("kernel"):
                weight.assign(weight * 8)  # of the size that training gives them
        tokens = np.random.default_rng(0).integers(5, 300, 16)
        states = forward(encoder, make_inputs([[(tokens, 0 * tokens)]], 16))["hidden_states"]
        sizes[each] = np.std(states[11])  # the last is normed
    assert max(sizes.values()) < 4 * sizes["none"]


@pytest.mark.any_backend
def test_has_no_projection_between_equal_widths_and_no_biases_in_its_blocks():
    encoder = make_encoder(**PRE_NORM, input_embedding_dim=16)
    assert encoder.parts.projection is None and encoder.parts.embeddings.position is None
    paths = [weight.path for weight in encoder.weights]
    assert [path for path in paths if path.endswith(("bias", "beta"))] == ["pooler/bias"]


def test_rotations_are_those_of_keras_hub():
    x = np.random.default_rng(0).normal(size=(2, 5, 3, 8)).astype("float32")
    theirs = RotaryEmbedding(max_wavelength=10_000)(x)
    positions = np.tile(np.arange(5), (2, 1))
    np.testing.assert_allclose(np.asarray(rotate(x, positions)), np.asarray(theirs), atol=1e-5)


def test_cutting_keeps_the_first_block():
    encoder = make_encoder(**PRE_NORM, num_layers=4)
    inputs = make_inputs([[FIRST]], 7)
    cut = encoder.with_layers(2)
    state = forward(encoder, inputs)["hidden_states"][2][0].astype("float64")
    expected = scale_norm(state, encoder.parts.norm.gamma.numpy())
    np.testing.assert_allclose(forward(cut, inputs)["sequence_output"][0], expected, atol=1e-5)
    with pytest.raises(ValueError, match="the first of PreNorm blocks must stay"):
        encoder.with_layers(2, "top")


LOCAL = Local(4, rotary_base=50.0)


@pytest.mark.parametrize(
    ("every", "attention"), [(1, None), (3, [Global(), LOCAL, LOCAL])], ids=["global", "alternating"]
)
def test_equals_hugging_faces_modernbert_on_random_weights(peers, every, attention):
    torch, transformers = peers
    torch.manual_seed(0)
    theirs = transformers.ModernBertModel(
        transformers.ModernBertConfig(
            vocab_size=50,
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=4,
            num_attention_heads=2,
            global_attn_every_n_layers=every,
            global_rope_theta=10_000.0,
            local_attention=4,
            local_rope_theta=50.0,
            initializer_range=0.5,
            pad_token_id=0,
            bos_token_id=2,
            cls_token_id=2,
            eos_token_id=3,
            sep_token_id=3,
            attn_implementation="eager",
            reference_compile=False,
        )
    ).eval()
    ours = make_encoder(**PRE_NORM, input_embedding_dim=16, num_layers=4, attention=attention)
    values = {name: value.detach().numpy() for name, value in theirs.state_dict().items()}
    ours.token_embedding.embeddings.assign(values["embeddings.tok_embeddings.weight"])
    ours.parts.embeddings.norm.gamma.assign(values["embeddings.norm.weight"])
    ours.parts.norm.gamma.assign(values["final_norm.weight"])
    for i, block in enumerate(ours.parts.blocks):
        layer = f"layers.{i}"
        if i:
            block.attention.norm.gamma.assign(values[f"{layer}.attn_norm.weight"])
        projections = (block.attention.query, block.attention.key, block.attention.value)
        for projection, kernel in zip(
            projections, np.split(values[f"{layer}.attn.Wqkv.weight"].T, 3, axis=1), strict=True
        ):
            projection.kernel.assign(kernel.reshape(16, 2, 8))
        block.attention.merge.kernel.assign(values[f"{layer}.attn.Wo.weight"].T.reshape(2, 8, 16))
        block.feed_forward.norm.gamma.assign(values[f"{layer}.mlp_norm.weight"])
        block.feed_forward.up.kernel.assign(values[f"{layer}.mlp.Wi.weight"].T)
        block.feed_forward.down.kernel.assign(values[f"{layer}.mlp.Wo.weight"].T)
    inputs = make_inputs([[FIRST]], 9)
    mask = torch.tensor(inputs["padding_mask"])
    with torch.no_grad():
        expected = theirs(input_ids=torch.tensor(inputs["token_ids"]), attention_mask=mask).last_hidden_state.numpy()
    np.testing.assert_allclose(forward(ours, inputs)["sequence_output"][0, :7], expected[0, :7], atol=1e-4)
