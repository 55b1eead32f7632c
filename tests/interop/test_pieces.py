"""Pieces that are added to a vocabulary: their parts, and that they change nothing else."""

import gzip
import itertools
import subprocess
import sys

import numpy as np
import pytest
from sentencepiece import SentencePieceProcessor

from rembed_keras.data import sample
from rembed_keras.data.text import read_lines
from rembed_keras.data.tokenizers.sentence_piece import SPACE, train_tokenizer
from rembed_keras.errors import UserError
from rembed_keras.interop import extend, write
from rembed_keras.interop.presets import read_preset
from rembed_keras.interop.spm import message_class, read_model, write_model
from rembed_keras.interop.vocabularies.pieces import new_pieces
from tests.interop.models import random_model

TEXTS = [
    line
    for language in ("de", "en", "ja")
    for line in gzip.decompress((sample.text_folder() / f"{language}.txt.gz").read_bytes()).decode().splitlines()[:400]
]


@pytest.fixture
def model(corpus):
    return read_model(corpus.tokenizer.path)


@pytest.fixture(scope="module")
def spelling(text_dir, tmp_path_factory):
    """A model with byte fallback."""
    path = tmp_path_factory.mktemp("bytes") / "tokenizer.model"
    train_tokenizer(filter(None, read_lines(text_dir / "en.txt")), path, 700, byte_fallback=True)
    return read_model(path)


def extended(model, lines, path):
    """The model with more pieces, and each text's segmentation before and after."""
    before = SentencePieceProcessor(model_proto=model.SerializeToString())
    kind, new = type(model.pieces[0]), new_pieces(model, lines)
    copy = type(model)()
    copy.CopyFrom(model)
    write_model(copy, [*model.pieces, *(kind(piece=each.piece, score=each.score) for each in new)], path)
    after = SentencePieceProcessor(model_file=str(path))
    cuts = zip(*(each.encode(TEXTS, return_type=str) for each in (before, after)), strict=True)
    return new, after, [*cuts]


def borders(pieces):
    return {*itertools.accumulate(map(len, pieces))}


def words_without_their_space(model, count):
    """Pieces that exist at the beginning of a word only, without its space."""
    known = {piece.piece for piece in model.pieces}
    found = [piece[1:] for piece in known if piece.startswith(SPACE) and len(piece) > 2 and piece[1:] not in known]
    return sorted(found)[:count]


def test_a_piece_within_words_is_made_of_the_one_that_begins_a_word(model, tmp_path):
    words = words_without_their_space(model, 50)
    assert len(words) == 50
    ids = {piece.piece: number for number, piece in enumerate(model.pieces)}
    new, _, cuts = extended(model, words, tmp_path / "more.model")
    assert [(each.piece, each.parts) for each in new] == [(word, [ids[SPACE + word]]) for word in words]
    assert not any(ids["[UNK]"] in each.parts for each in new)
    used = 0
    for before, after in cuts:
        assert "".join(before) == "".join(after)
        assert borders(after) <= borders(before)  # new pieces join old ones, and nothing is segmented differently
        joined = {*after} & {*words}
        used += len(joined)
        assert joined or before == after
    assert used > 20


def test_whole_words_stay_whole(model, tmp_path):
    words = words_without_their_space(model, 50)
    _, after, _ = extended(model, words, tmp_path / "more.model")
    assert [after.encode(word, return_type=str) for word in words] == [[SPACE + word] for word in words]


def test_scores_are_slightly_above_the_best_segmentation(model):
    scores = {piece.piece: piece.score for piece in model.pieces if piece.type == 1}

    def best(text):
        """Brute force, over all segmentations."""
        found = [0.0] + [-np.inf] * len(text)
        for end in range(1, len(text) + 1):
            for start in range(end):
                found[end] = max(found[end], found[start] + scores.get(text[start:end], -np.inf))
        return found[-1]

    for each in new_pieces(model, [*words_without_their_space(model, 50), f"{SPACE}Menschenrechte", "rechte"]):
        assert best(each.piece) < each.score < best(each.piece) + 0.02


@pytest.mark.parametrize("vocabulary", ["model", "spelling"])
def test_unknown_characters_have_their_penalty(vocabulary, request, tmp_path):
    model = request.getfixturevalue(vocabulary)
    least = min(piece.score for piece in model.pieces if piece.type == 1)
    new, after, _ = extended(model, ["\u20bf", "x\u20bf", "\u20bf\u20bf"], tmp_path / "more.model")
    assert [each.score < least - 9 for each in new] == [True] * 3
    cut = after.encode("\u20bf x\u20bf \u20bf\u20bfb", return_type=str)
    assert cut == [SPACE, "\u20bf", SPACE, "x\u20bf", SPACE, "\u20bf\u20bf", "b"]


def test_characters_are_unknown_where_spaces_are_too(model, tmp_path):
    """As after trimming to a text without a lone space piece."""
    write_model(model, [piece for piece in model.pieces if piece.piece != SPACE], tmp_path / "small.model")
    (new,) = new_pieces(read_model(tmp_path / "small.model"), ["\u20bf"])
    assert new.parts == [1]


def test_a_piece_is_preferred_to_new_ones_within_it(model, tmp_path):
    lines = [f"{SPACE}Menschen", "rechte", f"{SPACE}Menschenrechte", f"{SPACE}Menschenrechte{SPACE}und"]
    _, after, _ = extended(model, lines, tmp_path / "more.model")
    assert after.encode("Menschenrechte", return_type=str) == lines[2:3]
    assert after.encode("Menschenrechte und", return_type=str) == lines[3:]
    assert after.encode("Menschen", return_type=str) == lines[:1]


def test_pieces_are_written_as_text_is_normalized(model, tmp_path):
    new, after, _ = extended(model, ["\ufb01xed", f"New{SPACE}{SPACE}York", "New York", "", "[CLS]"], tmp_path / "x")
    assert [each.piece for each in new] == ["fixed", f"New{SPACE}York"]
    assert "fixed" in after.encode("su\ufb01xed", return_type=str)


@pytest.mark.parametrize("line", [SPACE * 2, "\u200b", "\u200e", f"{SPACE}\u200b", "\x01"])
def test_a_line_without_text_is_named(line, model):
    with pytest.raises(UserError, match=r"line 3 of the pieces, '.*', is empty after normalization"):
        new_pieces(model, [f"{SPACE}fine", "", line])


def test_a_line_that_no_file_can_hold_is_named(model):
    with pytest.raises(UserError, match=r"line 2 of the pieces, .*, has U\+0000"):
        new_pieces(model, [f"{SPACE}fine", "a\0b"])


def test_spaces_are_pieces_where_they_are_kept(text_dir, tmp_path):
    """As in source code, for a tokenizer without normalization."""
    path = tmp_path / "identity.model"
    train_tokenizer(filter(None, read_lines(text_dir / "en.txt")), path, 300, normalization="identity")
    (new,), after, _ = extended(read_model(path), [SPACE * 4], tmp_path / "more.model")
    assert new.piece == SPACE * 4 and new.parts
    assert SPACE * 4 in after.encode("if x:\n    y", return_type=str)


def test_sentencepiece_has_its_models_as_messages():
    kind = message_class()
    model = kind(pieces=[kind.SentencePiece(piece="a", score=-1.5)])
    model.trainer_spec.vocab_size = 7
    again = kind.FromString(model.SerializeToString())
    assert (again.pieces[0].piece, again.pieces[0].score, again.trainer_spec.vocab_size) == ("a", -1.5, 7)


def test_sentencepiece_is_imported_beside_an_older_protobuf():
    code = (
        "from google.protobuf import runtime_version as versions\n"
        "def refuse(*found): raise versions.VersionError('the runtime is older')\n"
        "versions.ValidateProtobufRuntimeVersion = refuse\n"
        "from rembed_keras.interop.spm import message_class\n"
        "kind = message_class()\n"
        "print(kind().trainer_spec.vocab_size, versions.ValidateProtobufRuntimeVersion is refuse)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "8000 True\n", done.stderr


def test_new_rows_of_bfloat16_are_rounded_once(corpus, tmp_path):
    model = random_model({"vocabulary_size": 900, "dtype": "bfloat16"})
    write(model, str(tmp_path / "preset"), "preset", corpus.tokenizer.path)
    extend(str(tmp_path / "preset"), str(tmp_path / "more"), [f"{SPACE}Menschenrechte"])
    made, _ = read_preset(tmp_path / "more")
    rows, longer = (each.encoder.token_embedding.embeddings.numpy() for each in (model, made))
    assert longer.dtype == rows.dtype and rows.dtype.itemsize == 2
    parts = rows[corpus.tokenizer.encode("Menschenrechte")]
    wanted = parts.astype("float64").mean(axis=0).astype(rows.dtype)
    np.testing.assert_array_equal(longer[900], wanted)
    assert (parts.mean(axis=0) != wanted).any()
