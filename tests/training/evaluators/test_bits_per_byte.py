"""Bits per byte, against token by token in float64, closed forms, and a definition of its own."""

import math

import keras
import numpy as np
import pytest

from rembed_keras.data.pipeline.masking import mask_every_word
from rembed_keras.errors import UserError
from rembed_keras.training.distributed.strategies import place
from rembed_keras.training.evaluators import BitsPerByte
from rembed_keras.training.evaluators.evaluator import EvaluationData
from tests.training.evaluators.test_held_out_loss import compiled
from tests.training.loop.test_evaluation import make_gdes, make_mixture, make_sum

LANGUAGES = ["de", "en", "ja"]


@pytest.fixture(scope="module")
def mixture(held_out_corpus):
    return make_mixture(held_out_corpus)


@pytest.fixture(scope="module")
def data(mixture):
    return EvaluationData(mixture, place("one_device", 4))


def words_of(row, tokenizer):
    """For each token of a row the number of its word; -1 for those that are not scored."""
    numbers, number, before = [], -1, True
    for token in row:
        is_left_out = tokenizer.is_special[token] or token == tokenizer.unk_id
        number += not is_left_out and bool(before or tokenizer.starts_word[token])
        numbers.append(-1 if is_left_out else number)
        before = is_left_out
    return np.array(numbers)


@pytest.mark.parametrize("size", [1, 2, 5, 24])
def test_every_token_is_predicted_once_from_what_is_left_of_it_in_its_word(size, mixture):
    tokenizer = mixture.corpus.tokenizer
    _, tokens = mixture.held_out_rows(6)
    tokens[0, :] = tokenizer.cls_id  # without text
    tokens[1, 3:9] = tokenizer.unk_id
    found = mask_every_word(tokens, size, tokenizer)
    times = np.zeros(tokens.shape, int)
    columns = [found.masked[key] for key in ("token_ids", "mask_positions", "mask_ids", "mask_weights")]
    for row, inputs, positions, ids, weights in zip(found.rows, *columns, strict=True):
        masked = np.flatnonzero(inputs != tokens[row])
        used = np.count_nonzero(weights) and int(np.max(np.flatnonzero(positions))) + 1 if positions.any() else 1
        assert positions[:used].tolist() == masked.tolist() and len(masked) <= size
        assert (inputs[masked] == tokenizer.mask_id).all()
        assert ids[:used].tolist() == tokens[row, masked].tolist() and not weights[used:].any()
        word = words_of(tokens[row], tokenizer)
        for position in positions[weights > 0]:
            times[row, position] += 1
            own = np.flatnonzero(word == word[position])
            later = own[own > position][: size - 1]
            if len(own) <= size:
                assert set(own) & set(masked) == {position, *later}
    expected = [words_of(row, tokenizer) >= 0 for row in tokens]
    assert (times == np.array(expected)).all()


def test_it_is_the_sum_over_tokens_in_float64(mixture, data):
    model, tokenizer = compiled(), mixture.corpus.tokenizer
    found = BitsPerByte(rows=5).evaluate(model, data)
    languages, tokens = mixture.held_out_rows(5)
    passes = mask_every_word(tokens, mixture.num_predictions, tokenizer)
    x, y, weights = mixture.batch_of(languages[passes.rows], tokens[passes.rows], passes.masked)
    logits = np.asarray(model.predict({name: x[name] for name in model.input}, verbose=0), np.float64)  # [N, P, V]
    bits, size, unigram = dict.fromkeys(LANGUAGES, 0.0), dict.fromkeys(LANGUAGES, 0), dict.fromkeys(LANGUAGES, 0.0)
    for row, slot in zip(*np.nonzero(weights), strict=True):
        language, token = LANGUAGES[x["language_ids"][row]], int(y[row, slot])
        shares = np.exp(logits[row, slot]) / np.exp(logits[row, slot]).sum()
        bits[language] -= math.log2(shares[token])
        size[language] += len(tokenizer._model.id_to_piece(token).replace("▁", " ").encode())
        counts = mixture.corpus.unigram_counts(language)
        text = [counts[i] + 1 for i in range(900) if not tokenizer.is_special[i]]
        unigram[language] -= math.log2((counts[token] + 1) / sum(text))
    expected = {"bits_per_byte": sum(bits.values()) / sum(size.values())}
    expected["unigram_bits_per_byte"] = sum(unigram.values()) / sum(size.values())
    expected |= {f"bits_per_byte/{name}": bits[name] / size[name] for name in LANGUAGES}
    expected |= {f"unigram_bits_per_byte/{name}": unigram[name] / size[name] for name in LANGUAGES}
    assert found == pytest.approx(expected, rel=1e-5)


def test_a_model_that_knows_nothing_has_the_bits_of_a_uniform_choice(mixture, data):
    model = compiled()
    for variable in model.head.trainable_variables:
        variable.assign(keras.ops.zeros_like(variable))
    found = BitsPerByte(rows=5).evaluate(model, data)
    languages, tokens = mixture.held_out_rows(5)
    for number, language in enumerate(LANGUAGES):
        own = tokens[languages == number]
        count = np.sum(~mixture.corpus.tokenizer.is_special[own] & (own != mixture.corpus.tokenizer.unk_id))
        size = mixture.corpus.tokenizer.num_bytes[own].sum()
        assert found[f"bits_per_byte/{language}"] == pytest.approx(math.log2(900) * count / size, rel=1e-5)


def test_pieces_stand_for_the_bytes_of_the_normalized_text(corpus):
    tokenizer = corpus.tokenizer
    for text in ("Save the file", "Größe ändern", "ファイルを保存"):
        ids = tokenizer.encode(text)
        assert tokenizer.unk_id not in ids
        assert tokenizer.num_bytes[ids].sum() == len(f" {text}".encode())  # a space before the first word
    assert not tokenizer.num_bytes[[tokenizer.cls_id, tokenizer.mask_id, tokenizer.unk_id]].any()


def test_an_objective_of_several_has_those_of_its_masked_tokens_and_one_without_is_refused(data):
    found = BitsPerByte(rows=2).evaluate(compiled(make_sum), data)
    assert {f"bits_per_byte/{name}" for name in LANGUAGES} < found.keys()
    with pytest.raises(UserError, match="the loss of masked tokens by language"):
        BitsPerByte(rows=2).evaluate(compiled(make_gdes), data)


def test_text_that_the_vocabulary_has_nothing_of_is_refused(mixture, data, monkeypatch):
    languages, tokens = mixture.held_out_rows(6)
    unknown = np.where(mixture.corpus.tokenizer.is_special[tokens], tokens, mixture.corpus.tokenizer.unk_id)
    monkeypatch.setattr(mixture, "held_out_rows", lambda rows: (languages, unknown))
    with pytest.raises(UserError, match="knows none of the held-out text"):
        BitsPerByte(rows=6).evaluate(None, data)
