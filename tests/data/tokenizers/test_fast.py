"""Tokenizers of Hugging Face's library: ids, offsets, special pieces, beginnings of words, and what is refused."""

import json

import numpy as np
import pytest
import tokenizers
from tokenizers import models, processors

from rembed_keras.data.tokenizers.fast import FastTokenizer
from rembed_keras.data.tokenizers.opening import open_tokenizer
from rembed_keras.data.tokenizers.protocol import check_words, word_begins
from rembed_keras.data.tokenizers.sentence_piece import Tokenizer
from rembed_keras.errors import UserError
from tests.data.tokenizers.trained import KINDS, SPECIAL, TEXT, UDHR, write_vocabulary


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizers")
    for name in KINDS:
        (path / name).mkdir()
        made = KINDS[name]()
        if name == "word_piece":
            write_vocabulary(made, path)
        made.enable_truncation(5)  # as folders of sentence encoders have it: not for us
        made.enable_padding(length=7)
        made.save(str(path / name / "tokenizer.json"))
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_ids_and_offsets_are_the_librarys_in_all_languages(kind, folder):
    path = folder / kind / "tokenizer.json"
    ours, theirs = FastTokenizer(path), tokenizers.Tokenizer.from_file(str(path))
    theirs.no_truncation()
    theirs.no_padding()
    assert len(UDHR) > 50
    for text, ids in zip(TEXT, ours.encode_batch(TEXT), strict=True):
        found = theirs.encode(text, add_special_tokens=False)
        again, starts, ends = ours.encode_with_offsets(text)
        assert ids == found.ids == again == ours.encode(text)
        pieces = [text[start:end] for start, end in zip(starts, ends, strict=True)]
        assert pieces == [text[start:end].strip() for start, end in found.offsets]
    assert [*ours.encode_stream(TEXT[:5])] == ours.encode_batch(TEXT[:5])


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_is_the_same_tokenizer(kind, folder, tmp_path):
    first = open_tokenizer(folder / kind)
    second = open_tokenizer(first.copy_to(tmp_path))
    assert isinstance(second, FastTokenizer) and second.sha256 == first.sha256
    assert second.path == tmp_path / "tokenizer.json" and second.encode_batch(TEXT[:3]) == first.encode_batch(TEXT[:3])
    assert first.vocabulary_size == len(first.is_special) == len(first.starts_word)
    ids = [first.cls_id, *first.encode("human rights"), first.sep_id, first.pad_id]
    assert first.decode(ids) == "human rights"


def test_what_frames_a_text_is_what_the_file_says_and_not_what_has_the_usual_name(tmp_path):
    names = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]  # as mmBERT's, to which <s> is a mark of HTML
    pieces = [*names, "<s>", "</s>", "a"]
    made = tokenizers.Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, [], unk_token="<unk>"))
    made.add_special_tokens(names)
    ends = [("<bos>", 2), ("<eos>", 1)]
    made.post_processor = processors.TemplateProcessing(single="<bos> $A <eos>", special_tokens=ends)
    made.save(str(tmp_path / "tokenizer.json"))
    ours = FastTokenizer(tmp_path / "tokenizer.json")
    assert (ours.pad_id, ours.unk_id, ours.cls_id, ours.sep_id, ours.mask_id) == (0, 3, 2, 1, 4)
    assert ours.encode_documents(["a"]).tolist() == made.encode("a").ids
    for other in (processors.BertProcessing(*reversed(ends)), processors.RobertaProcessing(*reversed(ends))):
        made.post_processor = processors.Sequence([other])
        made.save(str(tmp_path / "tokenizer.json"))
        assert FastTokenizer(tmp_path / "tokenizer.json").cls_id == 2
    made.post_processor = processors.TemplateProcessing(single="$A <eos>", special_tokens=ends)
    made.save(str(tmp_path / "tokenizer.json"))
    assert FastTokenizer(tmp_path / "tokenizer.json").cls_id == 5  # by its name: nothing begins a text


def test_the_same_text_has_the_same_ids_and_what_no_piece_has_is_known_before(tmp_path):
    pieces = {piece: i for i, piece in enumerate([*SPECIAL, "a", "b", "ab"])}
    made = tokenizers.Tokenizer(models.BPE(pieces, [("a", "b")], dropout=0.5, unk_token="[UNK]"))
    made.save(str(tmp_path / "tokenizer.json"))
    ours = FastTokenizer(tmp_path / "tokenizer.json")
    assert ours.encode("ab" * 40) == [7] * 40
    assert open_tokenizer(ours.copy_to(tmp_path)).sha256 == ours.sha256
    made = tokenizers.Tokenizer(models.Unigram([(piece, -1.0) for piece in pieces], None, False))
    made.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(UserError, match="has no unk_id"):
        FastTokenizer(tmp_path / "tokenizer.json")


def test_special_pieces_and_words(folder):
    ours = open_tokenizer(folder / "word_piece")
    assert [ours.pad_id, ours.unk_id, ours.cls_id, ours.sep_id, ours.mask_id] == [0, 1, 2, 3, 4]
    assert np.flatnonzero(ours.is_special).tolist() == [0, 2, 3, 4]
    ids, begins = ours.encode("everyone, everywhere!"), ours.starts_word
    pieces = [ours.piece(i) for i in ids]
    assert any(piece.startswith("##") for piece in pieces)
    assert [bool(begins[i]) for i in ids] == [not piece.startswith("##") for piece in pieces]
    bytes_ = open_tokenizer(folder / "byte_level")
    ids = bytes_.encode("all human, beings 人")
    assert bytes_.decode(np.array(ids)[bytes_.starts_word[ids]][:1]).startswith(" ")


def test_a_vocabulary_reads_as_its_configuration_says(folder, tmp_path):
    whole, plain = open_tokenizer(folder / "word_piece"), open_tokenizer(folder / "vocab.txt")
    assert plain.encode_batch(TEXT) == whole.encode_batch(TEXT)
    (tmp_path / "vocab.txt").write_bytes((folder / "vocab.txt").read_bytes())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False}))
    cased = open_tokenizer(tmp_path / "vocab.txt")
    assert cased.encode("human") == plain.encode("Human") == plain.encode("human") != cased.encode("Human")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"strip_accents": False}))
    kept = open_tokenizer(tmp_path / "vocab.txt")
    assert kept.encode("é") != plain.encode("é") == plain.encode("e")


def test_a_row_of_a_vocabulary_may_be_a_line_separator(tmp_path):
    """As in that of bert-base-chinese: only a line feed ends a row."""
    pieces = [*SPECIAL, "\u2028", "a", "\u0085", "open", "##s"]
    (tmp_path / "vocab.txt").write_bytes("\r\n".join([*pieces, ""]).encode())
    ours = open_tokenizer(tmp_path / "vocab.txt")
    assert [ours.piece(i) for i in range(ours.vocabulary_size)] == pieces
    assert ours.encode("opens a") == [8, 9, 6]


@pytest.mark.parametrize("kind", KINDS)
def test_special_pieces_that_a_text_spells_are_text(kind, folder):
    ours = open_tokenizer(folder / kind)
    text = "all [CLS] human [SEP] beings [MASK] [PAD]"
    special = {ours.pad_id, ours.cls_id, ours.sep_id, ours.mask_id}
    for ids in (ours.encode(text), ours.encode_batch([text])[0], ours.encode_with_offsets(text)[0]):
        assert not special & {*ids}
    rows = ours.encode_documents([text, text])
    assert np.flatnonzero(rows == ours.cls_id).tolist() == [0, len(rows) // 2]


def byte_fallback():
    """BPE over characters, and over bytes where there is no such piece, as Gemma's."""
    vocabulary = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", "a", "b"]
    made = tokenizers.Tokenizer(
        tokenizers.models.BPE(
            {piece: i for i, piece in enumerate(vocabulary)}, [], unk_token="[UNK]", byte_fallback=True
        )
    )
    made.normalizer = tokenizers.normalizers.Replace(" ", "\u2581")
    made.add_special_tokens(SPECIAL)
    return made


def byte_level():
    """Pieces of one byte, and one of a space with the first byte of a letter."""
    pieces = [*SPECIAL, *sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()), "\u0120\u00c3"]
    merges = [("\u0120", "\u00c3")]
    made = tokenizers.Tokenizer(tokenizers.models.BPE({piece: i for i, piece in enumerate(pieces)}, merges))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens(SPECIAL)
    return made


@pytest.mark.parametrize(
    ("make", "begins"),
    [
        (byte_fallback, {"b": [0], " a": [1, 0], "\u00e9": [0, 0], " \u00e9": [1, 0, 0], "!": [0], "\u4eba": [0] * 3}),
        (byte_level, {"b": [0], " a": [1, 0], "\u00e9": [0, 0], " \u00e9": [1, 0], "!": [1], "\u4eba": [0] * 3}),
    ],
)
def test_a_byte_is_a_byte_and_begins_no_word_by_itself(make, begins, tmp_path):
    make().save(str(tmp_path / "tokenizer.json"))
    ours = open_tokenizer(tmp_path / "tokenizer.json")
    for text, expected in begins.items():
        ids = ours.encode(text)
        assert ours.starts_word[ids].tolist() == expected
        assert ours.num_bytes[ids].sum() == len(text.encode())


def marked_bpe(**marks):
    """BPE over words that spaces separate, with a mark within or at the end of each, as HerBERT's."""
    made = tokenizers.Tokenizer(models.BPE(unk_token="[UNK]", **marks))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.decoder = tokenizers.decoders.BPEDecoder()
    train = tokenizers.trainers.BpeTrainer(vocab_size=99, special_tokens=SPECIAL, show_progress=False, **marks)
    made.train_from_iterator(["kept heads, kept"] * 9 + ["adhesive"], train)
    return made


def whole_words():
    vocabulary = {piece: i for i, piece in enumerate([*SPECIAL, "kept", "heads", ",", "adhesive"])}
    made = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.add_special_tokens(SPECIAL)
    return made


def bytes_before_words():
    """Pieces of bytes, that a normalizer makes instead of what cuts text into words."""
    made = byte_level()
    made.pre_tokenizer, made.normalizer = None, tokenizers.normalizers.ByteLevel()
    return made


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: marked_bpe(continuing_subword_prefix="##"), "kept, headsept heads"),
        (lambda: marked_bpe(end_of_word_suffix="</w>"), "kept, headsept heads"),
        (whole_words, "kept, adhesive heads"),
        (bytes_before_words, " é, é"),
    ],
)
def test_words_begin_where_a_model_says_so_by_marks_or_by_spaces(make, text, tmp_path):
    made = make()
    made.add_tokens(["ab"])
    made.save(str(tmp_path / "tokenizer.json"))
    ours = open_tokenizer(tmp_path)
    ids, starts, _ = ours.encode_with_offsets(text)
    after = [start != starts[i - 1] and not text[:start][-1:].isalnum() for i, start in enumerate(starts)]
    begins = [bool(each) or not text[start].isalnum() for each, start in zip(after, starts, strict=True)]
    assert 0 < sum(begins) < len(begins) or make is whole_words
    found = word_begins(np.array([[ours.encode(",")[0], *ids]]), ours)[0, 1:]
    assert found.tolist() == begins
    assert ours.num_bytes[ids].sum() == len(text.encode()) + (text[0] != " ")  # and a space at the first word
    check_words(ours)


def test_words_that_nothing_marks_are_not_masked_whole(tmp_path):
    """As of a model that is trained by the library's first example: nothing would be masked."""
    marked_bpe().save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(UserError, match="do not say where words begin"):
        check_words(open_tokenizer(tmp_path))


@pytest.mark.parametrize("kind", KINDS)
def test_words_that_spaces_or_marks_begin_may_be_masked_whole(kind, folder):
    check_words(open_tokenizer(folder / kind))


FAULTS = {
    "missing": (None, "No such file"),
    "empty": ("", "is not one that"),
    "other JSON": ('{"model": {"type": "os.system"}}', "is not one that"),
    "no special pieces": (
        '{"version": "1.0", "model": {"type": "WordLevel", "unk_token": "a", "vocab": {"a": 0}}}',
        r"has no \[PAD\] or <pad> piece",
    ),
}


def test_pieces_that_were_added_beside_bytes_are_text(tmp_path):
    made = byte_level()
    made.add_tokens(["日本", "école", "¿que"])
    made.save(str(tmp_path / "tokenizer.json"))
    ours = open_tokenizer(tmp_path)
    for text, expected in (("日本", [True]), ("aécole", [False, False]), ("a¿que", [False, True])):
        ids = ours.encode(text)
        assert ours.starts_word[ids].tolist() == expected
        assert ours.num_bytes[ids].sum() == len(text.encode())


@pytest.mark.parametrize("what", FAULTS)
def test_what_is_no_tokenizer_is_refused(what, tmp_path):
    content, message = FAULTS[what]
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(UserError, match=message):
        open_tokenizer(tmp_path / "tokenizer.json")


def test_other_files_are_sentencepiece_models(corpus):
    assert isinstance(open_tokenizer(corpus.path), Tokenizer)
