"""Words of scripts whose letters bear marks: a vowel sign or an accent goes on with a word, as does a joiner."""

import numpy as np
import pytest
from tokenizers import Tokenizer as Fast
from tokenizers import decoders, models, normalizers, pre_tokenizers

from rembed_keras.data.pipeline.masking import mask_rows
from rembed_keras.data.tokenizers.fast import FastTokenizer
from rembed_keras.data.tokenizers.protocol import word_begins
from rembed_keras.data.tokenizers.sentence_piece import train_tokenizer
from tests.data.tokenizers.trained import SPECIAL

HINDI = "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है"
WORDS = HINDI.split()


def sentence_piece(folder):
    return train_tokenizer([HINDI] * 20, folder / "tokenizer.model", vocabulary_size=36)


def word_piece(folder):
    letters = [*dict.fromkeys(HINDI.replace(" ", ""))]
    pieces = [*SPECIAL, *letters, *(f"##{letter}" for letter in letters)]
    made = Fast(models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
    made.pre_tokenizer, made.decoder = pre_tokenizers.WhitespaceSplit(), decoders.WordPiece()
    made.save(str(folder / "tokenizer.json"))
    return FastTokenizer(folder / "tokenizer.json")


@pytest.mark.parametrize("make", [sentence_piece, word_piece])
def test_a_word_of_letters_with_marks_begins_once_and_is_masked_whole(make, tmp_path):
    tokenizer = make(tmp_path)
    ids = np.array(tokenizer.encode(HINDI))
    begins = word_begins(ids, tokenizer)
    assert tokenizer.unk_id not in ids and len(ids) > 2 * len(WORDS)
    assert [tokenizer.decode(word).strip() for word in np.split(ids, np.flatnonzero(begins)[1:])] == WORDS
    masked = mask_rows(ids[None], 20, np.random.default_rng(0), tokenizer, whole_word=True)
    chosen = np.zeros(len(ids), bool)
    chosen[masked["mask_positions"][masked["mask_weights"] > 0]] = True
    words = np.cumsum(begins)
    assert chosen.any() and all(len({*chosen[words == word]}) == 1 for word in words)


@pytest.mark.parametrize(
    ("word", "is_word"),
    [("हिन्दी", True), ("\u0645\u06cc\u200c\u0634\u0648\u062f", True), ("e\u0301a\u0301", False)],
)
def test_a_piece_of_three_letters_and_their_marks_can_be_a_word(word, is_word, tmp_path):
    made = Fast(models.WordPiece({piece: i for i, piece in enumerate([*SPECIAL, word, f"##{word}", "a1b"])}))
    made.save(str(tmp_path / "tokenizer.json"))
    tokenizer = FastTokenizer(tmp_path / "tokenizer.json")
    found = [tokenizer.is_word(i) for i in range(tokenizer.vocabulary_size)]
    assert found == [*[False] * len(SPECIAL), is_word, False, False]


def test_a_sentencepiece_model_has_words_of_letters_with_marks(tmp_path):
    text = [" ".join([word] * 20) for word in ("हिन्दी", "मनुष्यों", "सभी", "12345", "और")] * 20
    tokenizer = train_tokenizer(text, tmp_path / "tokenizer.model", vocabulary_size=32)
    pieces = {tokenizer.piece(i): tokenizer.is_word(i) for i in range(tokenizer.vocabulary_size)}
    assert pieces["▁हिन्दी"] and pieces["▁मनुष्यों"] and not pieces["▁12345"]
    assert not any(is_word for piece, is_word in pieces.items() if len(piece) < 4)


def test_chinese_has_no_spaces_where_pieces_say_nothing_of_them(tmp_path):
    vocabulary = {piece: i for i, piece in enumerate([*SPECIAL, *"打开文件の", "open", "##s"])}
    made = Fast(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    made.save(str(tmp_path / "tokenizer.json"))
    tokenizer = FastTokenizer(tmp_path / "tokenizer.json")
    ids = tokenizer.encode("打开文件 opens")
    assert tokenizer.unk_id not in ids and tokenizer.num_bytes[ids].sum() == len("打开文件 opens".encode())
    assert tokenizer.num_bytes[tokenizer.encode("の")].tolist() == [3]
