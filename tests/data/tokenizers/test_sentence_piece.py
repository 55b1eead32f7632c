import numpy as np
import pytest
import sentencepiece

from rembed_keras.data.text import read_lines
from rembed_keras.data.tokenizers.sentence_piece import SAMPLE, Tokenizer, _samples, train_tokenizer
from rembed_keras.errors import UserError


@pytest.fixture
def lines(text_dir):
    return list(filter(None, read_lines(text_dir / "en.txt")))


def test_special_pieces_are_found_by_name(corpus):
    tokenizer = corpus.tokenizer
    ids = [tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id]
    assert ids == [0, 1, 2, 3, 4]
    model = sentencepiece.SentencePieceProcessor(model_file=str(tokenizer.path))
    assert [model.id_to_piece(i) for i in ids] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert np.flatnonzero(tokenizer.is_special).tolist() == [0, 2, 3, 4]


def test_the_special_pieces_of_other_models_are_found_too(lines, tmp_path):
    places = {"bos_id": 0, "pad_id": 1, "eos_id": 2, "unk_id": 3, "user_defined_symbols": ["<mask>"]}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_prefix=str(tmp_path / "xlmr"), vocab_size=300, minloglevel=2, **places
    )
    tokenizer = Tokenizer(tmp_path / "xlmr.model")
    assert (tokenizer.cls_id, tokenizer.pad_id, tokenizer.sep_id, tokenizer.unk_id, tokenizer.mask_id) == (
        0,
        1,
        2,
        3,
        4,
    )
    assert tokenizer.is_special[tokenizer.mask_id]


def test_text_round_trips_and_special_names_in_text_stay_text(corpus):
    text = "Click the [MASK] button and save the document."
    ids = corpus.tokenizer.encode(text)
    assert corpus.tokenizer.mask_id not in ids
    assert corpus.tokenizer.decode(ids) == text
    assert corpus.tokenizer.encode_batch([text, ""]) == [ids, []]
    assert corpus.tokenizer.decode([2, *ids, 3, 0, 0]) == text


@pytest.mark.parametrize("join", [" ", ""])
def test_documents_of_any_length_are_trained_on(join, lines, tmp_path):
    """One document per line, with spaces and without; SentencePiece drops lines over 4,192 bytes."""
    script = {letter: chr(0x905 + number) for number, letter in enumerate("abcdefghijklmnopqrstuvwxyz")}
    document = join.join(" ".join(lines[100:300]).lower().translate(str.maketrans(script)).split())
    assert len(document.encode()) > 3 * SAMPLE
    tokenizer = train_tokenizer([*lines[:100], document], tmp_path / "x.model", 300)
    ids = np.array(tokenizer.encode(document))
    assert np.mean(ids == tokenizer.unk_id) < 0.005


def test_text_with_the_sign_that_sentencepiece_reserves_is_trained_on(lines, tmp_path):
    tokenizer = train_tokenizer([f"\u2585 {line}" for line in lines], tmp_path / "x.model", 300)
    assert tokenizer.sha256 == train_tokenizer(lines, tmp_path / "y.model", 300).sha256


@pytest.mark.parametrize(
    "text",
    [
        "x" * 4192,
        "x" * 4193,
        "\u00e4\u20ac\U0001f600" * 3000,
        "wort und w\u00f6rter " * 900,
        " " * 9000,
        "x " * 4192,
        "",
    ],
)
def test_samples_cover_the_whole_text(text):
    samples = list(_samples([text]))
    assert all(len(sample.encode()) <= SAMPLE for sample in samples)
    assert (" " if " " in text else "").join(samples) == text


def test_training_is_deterministic(lines, tmp_path):
    first, second = (train_tokenizer(lines, tmp_path / name, 300) for name in ("a.model", "b.model"))
    assert first.sha256 == second.sha256


def test_words_begin_after_spaces_and_everywhere_in_scripts_without(corpus):
    tokenizer = corpus.tokenizer
    model = sentencepiece.SentencePieceProcessor(model_file=str(tokenizer.path))
    starts = {model.id_to_piece(i): bool(tokenizer.starts_word[i]) for i in range(tokenizer.vocabulary_size)}
    assert starts["▁the"] and starts["."] and starts["の"]
    assert not starts["s"] and not starts["ung"]


def test_bytes_encode_characters_without_a_piece(lines, tmp_path):
    spelling = train_tokenizer(lines, tmp_path / "bytes.model", 600, byte_fallback=True)
    assert spelling.decode(spelling.encode("ꙮ")) == "ꙮ"
    plain = train_tokenizer(lines, tmp_path / "plain.model", 600)
    assert plain.unk_id in plain.encode("ꙮ")


def test_a_vocabulary_that_is_too_large_names_one_that_works(tmp_path):
    lines = ["the cat sat on the mat", "the dog sat on the log"] * 5
    with pytest.raises(UserError, match="vocabulary_size 500 is more than the text supports: at most") as caught:
        train_tokenizer(lines, tmp_path / "x.model", 500)
    largest = int(str(caught.value).split()[-1])
    assert train_tokenizer(lines, tmp_path / "x.model", largest).vocabulary_size == largest
    with pytest.raises(UserError, match="vocabulary_size 8 is too small for"):
        train_tokenizer(lines, tmp_path / "x.model", 8)


def test_a_file_that_is_not_a_tokenizer_is_named(lines, tmp_path):
    with pytest.raises(UserError, match=r"none\.model: No such file"):
        Tokenizer(tmp_path / "none.model")
    (tmp_path / "text.model").write_text("not a model")
    with pytest.raises(UserError, match=r"text\.model is not a SentencePiece model"):
        Tokenizer(tmp_path / "text.model")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_prefix=str(tmp_path / "bare"), vocab_size=300, minloglevel=2
    )
    with pytest.raises(UserError, match=r"bare\.model has no \[PAD\] or <pad> piece"):
        Tokenizer(tmp_path / "bare.model")
    (tmp_path / "bare.model").rename(tmp_path / "sentencepiece.bpe.model")
    with pytest.raises(UserError, match=r"or <pad> piece: convert its model to a preset, and name the tokenizer.model"):
        Tokenizer(tmp_path / "sentencepiece.bpe.model")
