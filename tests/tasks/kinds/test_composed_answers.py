"""Answers in text whose characters normalization writes as one: they are given back as they stand in the passage."""

import unicodedata

import numpy as np
import pytest

from rembed_keras.data.tokenizers.opening import open_tokenizer
from rembed_keras.tasks.kinds.examples import Question
from rembed_keras.tasks.kinds.spans import decode_answers
from rembed_keras.tasks.kinds.windows import encode_questions
from tests.data.tokenizers.trained import unigram


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("nfkc") / "tokenizer.json"
    unigram().save(str(path))
    return open_tokenizer(path)


@pytest.mark.parametrize(
    "answer", [*(unicodedata.normalize("NFD", word) for word in ("각", "한국", "가", "café", "ガ")), "ｶﾞｷﾞ"]
)
def test_an_answer_keeps_all_that_is_composed(tokenizer, answer):
    context = f"the {answer} of {answer}"
    question = Question("1", "which?", context, (answer,), (4,))
    encoded = encode_questions([question], tokenizer, sequence_length=60, max_question_length=8)
    logits = 10 * np.eye(60)[encoded.targets]
    assert decode_answers(logits, encoded, [question], max_answer_length=40) == [answer]
