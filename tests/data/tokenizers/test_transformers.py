"""Ids and offsets of all kinds of tokenizers against transformers, on the Universal Declaration in all languages."""

import unicodedata

import numpy as np
import pytest

from rembed_keras.data.tokenizers.opening import open_tokenizer
from rembed_keras.data.tokenizers.sentence_piece import SPACE
from rembed_keras.interop import write
from tests.data.tokenizers.trained import KINDS, TEXT, UDHR, lines, word_piece, write_vocabulary
from tests.interop.models import random_model


def spans(ours, text):
    ids, starts, ends = ours.encode_with_offsets(text)
    return ids, [*zip(starts.tolist(), ends.tolist(), strict=True)]


def their_spans(theirs, texts):
    """Ids and offsets by their fast tokenizer, without the whitespace that it leaves within some spans."""
    found = theirs(texts, add_special_tokens=False, return_offsets_mapping=True)
    for text, ids, offsets in zip(texts, found["input_ids"], found["offset_mapping"], strict=True):
        pieces = [text[start:end] for start, end in offsets]
        starts = [s + len(piece) - len(piece.lstrip()) for (s, _), piece in zip(offsets, pieces, strict=True)]
        yield ids, [(s, s + len(piece.strip())) for s, piece in zip(starts, pieces, strict=True)]


def in_python(transformers):
    """BERT's tokenizer as it was before the library in Rust."""
    if transformers.__version__ < "5":
        return transformers.BertTokenizer
    from transformers.models.bert.tokenization_bert_legacy import BertTokenizerLegacy

    return BertTokenizerLegacy


@pytest.mark.parametrize(("lowercase", "strip_accents"), [(True, None), (True, False), (False, None), (False, True)])
def test_a_vocabulary_gives_berts_ids_and_offsets(lowercase, strip_accents, peers, tmp_path):
    _, transformers = peers
    ours = open_tokenizer(write_vocabulary(word_piece(lowercase, strip_accents), tmp_path, lowercase, strip_accents))
    texts = [line for path in UDHR for line in lines(path, 0, None)[::5]]
    theirs = transformers.BertTokenizerFast.from_pretrained(tmp_path)
    assert len(UDHR) == 55 and theirs.is_fast
    for text, expected in zip(texts, their_spans(theirs, texts), strict=True):
        assert spans(ours, text) == expected
    original = in_python(transformers).from_pretrained(tmp_path)
    for text in texts[::5]:  # composed, as it does first and the others do not
        expected = original.convert_tokens_to_ids(original.tokenize(text))
        assert ours.encode(unicodedata.normalize("NFC", text)) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_a_tokenizer_file_gives_their_ids_and_offsets(kind, peers, tmp_path):
    _, transformers = peers
    KINDS[kind]().save(str(tmp_path / "tokenizer.json"))
    ours = open_tokenizer(tmp_path / "tokenizer.json")
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    texts = [line for path in UDHR for line in lines(path, 0, None)[::5]]
    for text, expected in zip(texts, their_spans(theirs, texts), strict=True):
        assert spans(ours, text) == expected
        assert ours.decode(ours.encode(text)) == theirs.decode(
            expected[0], skip_special_tokens=True, clean_up_tokenization_spaces=False
        )


def test_a_sentencepiece_model_gives_their_ids_and_offsets(corpus, peers, tmp_path):
    """Written for transformers, which reads it with another library."""
    _, transformers = peers
    model = random_model({"vocabulary_size": 900}).encoder
    write(model, str(tmp_path / "out"), "huggingface", corpus.tokenizer.path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    agree = []
    for text, (ids, offsets) in zip(TEXT, their_spans(theirs, TEXT), strict=True):
        own, own_offsets = spans(corpus.tokenizer, text)
        assert own == ids
        pairs = zip(own, own_offsets, offsets, strict=True)
        # a space alone has no span of ours, and the character after it as that of theirs
        agree += [one == other for i, one, other in pairs if corpus.tokenizer.piece(i) != SPACE]
    assert np.mean(agree) > 0.99
