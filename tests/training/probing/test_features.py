"""Hidden states of every layer: whatever the batches and the encoder, which stays as it was."""

from types import SimpleNamespace

import keras
import numpy as np
import pytest

from rembed_keras.analysis.layers import fit_probe, mean_of_tokens, token_cosines
from rembed_keras.errors import UserError
from rembed_keras.modeling.blocks import PreNorm
from rembed_keras.tasks import ParallelText
from rembed_keras.tasks.kinds.encoding import encode
from rembed_keras.training.probing.bitext import BitextProbing
from rembed_keras.training.probing.features import measure_layers
from rembed_keras.training.probing.words import WordProbing
from tests.training.stages.test_probe import ENCODER, LAYERS, SEED, TEXTS


def test_half_precision_and_other_blocks_are_measured_as_well(corpus):
    inputs = encode(TEXTS, corpus.tokenizer, 24)
    for changed in ({"dtype": "mixed_bfloat16"}, {"block": PreNorm, "num_segments": 0}, {"scalar_mix": True}):
        keras.utils.set_random_seed(SEED)
        found, cosines = measure_layers(ENCODER(**changed), inputs, 3, mean_of_tokens, token_cosines)
        assert found.dtype == np.float32 and found.shape == (LAYERS + 1, 5, 8)
        assert np.isfinite(found).all() and (np.abs(cosines) <= 1 + 1e-6).all() and found.std() > 0


def test_states_that_float16_cannot_have_are_refused_whatever_is_measured(corpus, tmp_path):
    encoder = ENCODER(dtype="float16")
    for weight in encoder.parts.blocks[-1].feed_forward.norm.weights:
        weight.assign(weight * 0 + 6e4)  # finite, and their sum is not
    for language in ("de", "en"):
        (tmp_path / f"{language}.txt").write_text("\n".join(TEXTS) + "\n")
    initial = SimpleNamespace(tokenizer=corpus.tokenizer, num_segments=2)
    retrieval = BitextProbing(ParallelText(tmp_path), initial, 16, 4, SEED)
    inputs = encode(TEXTS, corpus.tokenizer, 24)
    said = f"^the encoder's outputs at layer {LAYERS} are not finite: take it in float32$"
    for measured in (lambda: retrieval.score("pretrained", encoder), lambda: measure_layers(encoder, inputs, 3)):
        with pytest.raises(UserError, match=said):
            measured()


def test_neither_padding_nor_batches_change_what_is_measured_and_the_encoder_stays_as_it_is(corpus):
    encoder = ENCODER()
    before = [keras.ops.convert_to_numpy(variable).copy() for variable in encoder.variables]
    short, long = (encode(TEXTS, corpus.tokenizer, length) for length in (24, 32))
    assert short["padding_mask"].sum() == long["padding_mask"].sum()
    once = measure_layers(encoder, short, 5, mean_of_tokens, token_cosines)
    assert [each.shape for each in once] == [(LAYERS + 1, 5, 8), (LAYERS + 1, 5)]
    for inputs, batch_size in ((short, 1), (short, 2), (short, 64), (long, 3)):
        again = measure_layers(encoder, inputs, batch_size, mean_of_tokens, token_cosines)
        for ours, theirs in zip(again, once, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-5)
    states = encoder(short)["hidden_states"]
    for layer, features in zip(states, once[0], strict=True):
        size = int(short["padding_mask"][3].sum())
        np.testing.assert_allclose(np.mean(keras.ops.convert_to_numpy(layer)[3, :size], axis=0), features[3], atol=1e-5)
    after = [keras.ops.convert_to_numpy(variable) for variable in encoder.variables]
    assert all(map(np.array_equal, before, after)) and len(before) == len(after)


def test_the_layer_that_encodes_the_label_is_the_one_that_gives_it():
    inputs = {key: keras.Input((None,), dtype="int32", name=key) for key in ("token_ids", "padding_mask")}
    label = keras.ops.one_hot(inputs["token_ids"] % 3, 3)  # [B, S] -> [B, S, 3]
    position = keras.ops.one_hot(inputs["padding_mask"] * 0, 3)
    encoder = keras.Model(inputs, {"hidden_states": [position, label]})
    ids = np.arange(60, dtype=np.int32)[:, None] * np.ones((1, 4), np.int32)
    (features,) = measure_layers(encoder, {"token_ids": ids, "padding_mask": 0 * ids + 1}, 7, mean_of_tokens)
    labels = np.arange(60) % 3
    accuracies = [fit_probe(each[:30], labels[:30], None, (1.0,)).accuracy(each[30:], labels[30:]) for each in features]
    assert accuracies == [pytest.approx(1 / 3), 1]


def test_words_of_a_table_of_bfloat16_are_compared_in_float32(corpus):
    whole, half = ENCODER(max_sequence_length=64), ENCODER(max_sequence_length=64, dtype="bfloat16")
    for one, other in zip(whole.weights, half.weights, strict=True):
        other.assign(one + 0.3 * ("token" in one.path))  # a direction that all words share
        one.assign(keras.ops.cast(other.value, "float32"))
    probing = WordProbing(corpus, "en", 64, 8)
    found, wanted = (probing.score(each)["table"] for each in (half, whole))
    assert found == pytest.approx(wanted, abs=1e-6)
