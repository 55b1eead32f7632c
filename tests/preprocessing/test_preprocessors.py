"""Texts become the inputs that tasks are trained on elsewhere; masks are a function of the seed and the text."""

import keras
import numpy as np
import pytest

from rembed_keras import MaskedLMPreprocessor, SpanPreprocessor, TaggerPreprocessor, TextClassifierPreprocessor
from rembed_keras.errors import UserError
from rembed_keras.tasks.kinds.encoding import encode


def test_texts_and_pairs(tokenizer, lines):
    preprocessor = TextClassifierPreprocessor(tokenizer, sequence_length=24)
    ours, expected = preprocessor(lines[:9]), encode(lines[:9], tokenizer.model, 24)
    for name, array in expected.items():
        np.testing.assert_array_equal(ours[name], array)
    x, y = preprocessor((["save"], ["the file"]), y=[1])
    assert y.tolist() == [1] and x["segment_ids"].sum() == len(tokenizer("the file")) + 1
    with pytest.raises(UserError, match="labels are names"):
        preprocessor(["a"], y=["yes"])


def test_masks_are_a_function_of_seed_and_text(tokenizer, lines):
    preprocessor = MaskedLMPreprocessor(tokenizer, sequence_length=40, mask_rate=0.2, seed=3)
    x, y, weights = preprocessor(lines[:20])
    plain = encode(lines[:20], tokenizer.model, 40)["token_ids"]
    for row in range(20):
        length = len(tokenizer(lines[row])[:38])
        assert weights[row].sum() == max(1, round(0.2 * length))
        places = x["mask_positions"][row][weights[row] > 0]
        np.testing.assert_array_equal(plain[row, places], y[row][weights[row] > 0])
        changed = np.flatnonzero(x["token_ids"][row] != plain[row])
        assert set(changed) <= set(places)
    one_by_one = [preprocessor([line]) for line in lines[:20]]
    np.testing.assert_array_equal(np.concatenate([each[1] for each in one_by_one]), y)
    other = MaskedLMPreprocessor(tokenizer, sequence_length=40, mask_rate=0.2, seed=4)(lines[:20])
    assert (other[0]["mask_positions"] != x["mask_positions"]).any()
    with pytest.raises(UserError, match="leave y out"):
        preprocessor(lines[:2], y=[0, 1])


def test_tags_are_at_first_pieces(tokenizer):
    preprocessor = TaggerPreprocessor(tokenizer, sequence_length=24)
    _, y, weights = preprocessor([["save", "unbelievable"], ["file"]], y=[[1, 2], [3]])
    first = 1 + len(tokenizer("save"))
    assert y[0, 1] == 1 and y[0, first] == 2 and y[1, 1] == 3
    assert np.flatnonzero(weights[0]).tolist() == [1, first]


def test_answers_are_spans_of_tokens(tokenizer):
    preprocessor = SpanPreprocessor(tokenizer, sequence_length=32, max_question_length=12)
    x, y = preprocessor((["save what?"], ["the file"]), y=(["file"], [4]))
    found = x["token_ids"][0, y[0, 0] : y[0, 1] + 1]
    assert tokenizer.detokenize(found).strip() == "file"
    with pytest.raises(UserError, match="a pair"):
        preprocessor(["one text"])


@pytest.mark.parametrize(
    "make", [TextClassifierPreprocessor, MaskedLMPreprocessor, TaggerPreprocessor, SpanPreprocessor]
)
def test_presets_hold_them(make, tokenizer, preset, tmp_path):
    preprocessor = make(tokenizer, sequence_length=20)
    preprocessor.save_to_preset(str(tmp_path))
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(preprocessor))
    assert again.sequence_length == 20
    again.load_preset_assets(str(tmp_path))
    assert again.tokenizer("Save the file") == tokenizer("Save the file")
    assert make.from_preset(preset).tokenizer("Save") == tokenizer("Save")
