"""The table of filled-in masks, against the model's own logits."""

import numpy as np
import pytest

from rembed_keras.errors import UserError
from rembed_keras.training.distributed.strategies import place
from rembed_keras.training.evaluators import FilledMasks
from rembed_keras.training.evaluators.evaluator import EvaluationData
from tests.training.evaluators.test_held_out_loss import compiled
from tests.training.loop.test_evaluation import make_gdes, make_mixture


def test_every_language_has_a_sentence_with_the_models_most_probable_pieces(held_out_corpus):
    model, mixture = compiled(), make_mixture(held_out_corpus)
    evaluator, data = FilledMasks(sentences=2, top=2, context=3), EvaluationData(mixture, place("one_device", 4))
    table = evaluator.evaluate(model, data)["filled_masks"]
    assert table == evaluator.evaluate(model, data)["filled_masks"]
    assert table == FilledMasks(2, 2, 3).evaluate(model, EvaluationData(mixture, data.placement))["filled_masks"]
    assert [row[0] for row in table.rows] == [language for language in ("de", "en", "ja") for _ in range(2)]
    assert all(row[1].count("[MASK]") == 1 for row in table.rows)

    tokenizer = held_out_corpus.tokenizer
    languages, tokens = mixture.held_out_rows(6)
    first = tokens[np.flatnonzero(languages == 0)[0]]  # the first row of German
    (position,) = [
        each for each in range(16) if tokenizer.decode([int(first[each])]) == table.rows[0][2]
        and tokenizer.decode(first[max(0, each - 3) : each].tolist()) == table.rows[0][1].partition(" [MASK]")[0]
    ]  # fmt: skip
    masked = np.where(np.arange(16) == position, tokenizer.mask_id, first)[None].astype("int32")
    inputs = {
        "token_ids": masked, "segment_ids": np.zeros_like(masked), "mask_positions": np.array([[position]], "int32"),
        "padding_mask": np.cumsum((first == tokenizer.cls_id) | (np.arange(16) == 0))[None].astype("int32"),
    }  # fmt: skip
    logits = np.asarray(model.predict_on_batch({name: inputs[name] for name in model.input}), np.float64)[0, 0]
    shares = np.exp(logits) / np.exp(logits).sum()
    best = np.argsort(np.where(tokenizer.is_special, -1, shares))[::-1][:2]
    expected = [f"{tokenizer.decode([int(each)]) or tokenizer.piece(int(each))} {shares[each]:.0%}" for each in best]
    assert table.rows[0][3] == ", ".join(expected)


def test_no_other_documents_text_is_shown_around_a_mask(held_out_corpus):
    mixture = make_mixture(held_out_corpus)
    chosen = FilledMasks(sentences=4, context=16)._choose(mixture)
    tokenizer, cut = held_out_corpus.tokenizer, 0
    _, rows = FilledMasks(sentences=4)._rows(mixture)
    for row, masked, numbers, (_, shown, _) in zip(
        rows, chosen.inputs["mask_positions"][:, 0], chosen.inputs["padding_mask"], chosen.shown, strict=True
    ):
        own = numbers == numbers[masked]
        sides = (
            tokenizer.decode(row[own & side].tolist()) for side in (np.arange(16) < masked, np.arange(16) > masked)
        )
        assert shown == " [MASK] ".join(sides)
        cut += not own.all()
    assert cut  # rows of several documents


def test_a_language_of_little_weight_has_as_many_sentences(held_out_corpus):
    model, mixture = compiled(), make_mixture(held_out_corpus)
    mixture.weights = np.array([0.98, 0.01, 0.01])
    table = FilledMasks(sentences=3).evaluate(model, EvaluationData(mixture, place("one_device", 4)))["filled_masks"]
    assert [row[0] for row in table.rows] == [language for language in ("de", "en", "ja") for _ in range(3)]


def test_an_objective_without_such_logits_is_refused(held_out_corpus):
    data = EvaluationData(make_mixture(held_out_corpus), place("one_device", 4))
    with pytest.raises(UserError, match="FilledMasks needs logits of masked tokens"):
        FilledMasks().evaluate(compiled(make_gdes), data)
