"""Vocabularies of `tokenizer.json` models, trimmed and extended."""

import json

import numpy as np
import pytest
import tokenizers

from rembed_keras.data.tokenizers.opening import open_tokenizer
from rembed_keras.errors import UserError
from rembed_keras.interop import extend, trim, write
from rembed_keras.interop.convert import read_preset
from rembed_keras.interop.vocabularies.protocol import vocabulary_of
from rembed_keras.preprocessing import Tokenizer
from rembed_keras.tasks.kinds.encoding import encode
from tests.data.tokenizers.trained import KINDS, TEXT, UDHR, lines
from tests.interop.models import random_model
from tests.modeling.forward import forward

KEPT = {"de", "en", "ja", "tr"}
ROBERTA = {"type": "RobertaProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2], "trim_offsets": True}
TEMPLATE = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]}},
}


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request, tmp_path_factory):
    """A trained tokenizer, with a template around texts, and special pieces at its end as others have them."""
    made = KINDS[request.param]()
    path = tmp_path_factory.mktemp(request.param) / "tokenizer.json"
    made.add_special_tokens(["[LAST]"])
    parts = json.loads(made.to_str())
    parts["post_processor"] = ROBERTA if request.param == "byte_level" else TEMPLATE
    path.write_text(json.dumps(parts))
    return open_tokenizer(path)


@pytest.fixture(scope="module")
def preset(tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("presets") / "preset"
    sizes = {"vocabulary_size": tokenizer.vocabulary_size, "num_layers": 1, "max_sequence_length": 64}
    model = random_model(sizes)
    write(model, str(folder), "preset", tokenizer.path)
    return folder


@pytest.fixture(scope="module")
def text_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    for path in UDHR:
        if (language := path.name.removesuffix(".txt.gz")) in KEPT:
            (folder / f"{language}.txt").write_text("\n".join(lines(path, 0, None)), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def trimmed(preset, text_dir, tmp_path_factory):
    """What a preset is trimmed to, and what was said of it."""
    folder = tmp_path_factory.mktemp("trimmed") / "small"
    return folder, trim(str(preset), str(folder), str(text_dir))


def pieces(tokenizer, text):
    return [tokenizer.piece(i) for i in tokenizer.encode(text)]


def test_every_text_of_kept_pieces_is_segmented_as_before(trimmed, tokenizer):
    small, done = trimmed
    ours = open_tokenizer(small)
    assert done.pieces == (tokenizer.vocabulary_size, ours.vocabulary_size) and set(done.lost.values()) == {0.0}
    assert ours.vocabulary_size < 0.8 * tokenizer.vocabulary_size
    known = {ours.piece(i) for i in range(ours.vocabulary_size)}
    texts = [line for path in UDHR for line in lines(path, 0, None)[::3]]
    texts += sorted({word for text in texts for word in text.split()})
    whole = [text for text in texts if known.issuperset(pieces(tokenizer, text))]
    assert len(whole) > 3000  # words of other languages too
    assert [pieces(ours, text) for text in whole] == [pieces(tokenizer, text) for text in whole]
    for role in ("pad", "unk", "cls", "sep", "mask"):
        old, new = (each.piece(getattr(each, f"{role}_id")) for each in (tokenizer, ours))
        assert old == new
    frame = ours.parts["post_processor"]
    cls = frame["cls"][1] if "cls" in frame else frame["special_tokens"]["[CLS]"]["ids"][0]
    assert cls == ours.cls_id


def test_outputs_on_text_of_kept_pieces_are_the_same_bits(trimmed, preset, tokenizer, text_dir):
    small, _ = trimmed
    old, new = read_preset(preset)[0], read_preset(small)[0]
    texts = (text_dir / "de.txt").read_text().splitlines()[:6]
    before, after = (encode(texts, each, 48) for each in (tokenizer, open_tokenizer(small)))
    assert (before["token_ids"] != after["token_ids"]).any()
    np.testing.assert_array_equal(
        forward(new.encoder, after)["sequence_output"], forward(old.encoder, before)["sequence_output"]
    )
    assert Tokenizer.from_preset(str(small))(texts[0]) == open_tokenizer(small).encode(texts[0])


def test_a_new_piece_is_used_and_no_other_text_changes(preset, tokenizer, tmp_path):
    kind = tokenizer.parts["model"]["type"]
    word = "\u2581Zwetschgenmus" if kind == "Unigram" else "Zwetschgenmus"
    if kind == "BPE":
        with pytest.raises(UserError, match="a BPE model, to which no piece can be added without changing other text"):
            extend(str(preset), str(tmp_path / "more"), [word])
        assert not [*tmp_path.iterdir()]
        return
    former, size = tokenizer.encode("Zwetschgenmus"), tokenizer.vocabulary_size
    if kind == "Unigram":  # [LAST] is not among the model's pieces
        with pytest.raises(UserError, match="so none can follow them"):
            extend(str(preset), str(tmp_path / "more"), [word])
        parts = tokenizer.parts | {"added_tokens": tokenizer.parts["added_tokens"][:-1]}
        (tmp_path / "tokenizer.json").write_text(json.dumps(parts))
        tokenizer, size = open_tokenizer(tmp_path / "tokenizer.json"), size - 1
        preset = tmp_path / "own"
        write(random_model({"vocabulary_size": size, "num_layers": 1}), str(preset), "preset", tokenizer.path)
    assert len(former) > 1 and extend(str(preset), str(tmp_path / "more"), [word, word, "", "[CLS]"]) == 1
    ours = open_tokenizer(tmp_path / "more")
    assert ours.vocabulary_size == size + 1
    assert ours.encode("Zwetschgenmus") == [size] and size in ours.encode("Das Zwetschgenmus, bitte.")
    texts = [*TEXT, "Zwetschgenm", "Zwetsch genmus"]
    assert ours.encode_batch(texts) == tokenizer.encode_batch(texts)
    rows, longer = (
        read_preset(each)[0].encoder.token_embedding.embeddings.numpy() for each in (preset, tmp_path / "more")
    )
    np.testing.assert_array_equal(longer[:size], rows)
    np.testing.assert_allclose(longer[size], rows[former].mean(axis=0), atol=1e-6)


GAPS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "open", "[unused0]", "zo", "open", "##o", "file"]  # "open" twice


@pytest.mark.parametrize("form", ["vocab.txt", "tokenizer.json"])
def test_a_new_piece_has_a_row_of_its_own_where_ids_are_missing(form, tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(GAPS) + "\n")
    tokenizer = open_tokenizer(tmp_path / "vocab.txt")
    if form == "tokenizer.json":
        tokenizer = open_tokenizer(tokenizer.copy_to(tmp_path))
    assert tokenizer.vocabulary_size == len(GAPS) and not tokenizer.piece(5)
    vocabulary = vocabulary_of(tokenizer)
    assert vocabulary.write_extended(["zoofile", "opener"], tmp_path / "more.json") == [[1], [1]]
    ours = open_tokenizer(tmp_path / "more.json")
    assert ours.vocabulary_size == len(GAPS) + 2 and ours.encode("zoofile opener file") == [11, 12, 10]
    assert [ours.piece(i) for i in range(5, 11)] == ["[unused1]", "[unused0]", "zo", "open", "##o", "file"]
    assert ours.is_special[5] and 5 not in ours.encode("open [unused1]")
    wider = vocabulary_of(ours)
    wider.write_kept(np.array([0, 1, 2, 3, 4, 8, 11]), tmp_path / "less.json")
    assert open_tokenizer(tmp_path / "less.json").encode("zoofile open") == [6, 5]


def test_a_vocabulary_whose_added_piece_hides_another_cannot_be_extended(tmp_path):
    made = tokenizers.BertWordPieceTokenizer(vocab={piece: i for i, piece in enumerate(GAPS)})
    made.add_tokens(["table"])
    made.save(str(tmp_path / "tokenizer.json"))
    tokenizer = open_tokenizer(tmp_path / "tokenizer.json")
    assert tokenizer.encode("table file") == [10, 10]  # the library counts pieces
    with pytest.raises(UserError, match=r"no piece can be added, .*'table': repair its ids first"):
        vocabulary_of(tokenizer).write_extended(["zoofile"], tmp_path / "more.json")
    assert not (tmp_path / "more.json").exists()


def test_what_cannot_be_added_costs_one_line(tmp_path):
    KINDS["word_piece"]().save(str(tmp_path / "tokenizer.json"))
    vocabulary = vocabulary_of(open_tokenizer(tmp_path / "tokenizer.json"))
    with pytest.raises(UserError, match="line 2 of the pieces, 'two words', is not one word"):
        vocabulary.write_extended(["one", "two words"], tmp_path / "out.json")
    with pytest.raises(UserError, match="line 1 of the pieces, 'two words', is not one word"):
        vocabulary.write_extended(["\u2581two\u2581words"], tmp_path / "out.json")
    with pytest.raises(UserError, match=r"line 1 of the pieces, .* is empty after normalization"):
        vocabulary.write_extended([" \t"], tmp_path / "out.json")
    KINDS["unigram"]().save(str(tmp_path / "unigram.json"))
    vocabulary = vocabulary_of(open_tokenizer(tmp_path / "unigram.json"))
    with pytest.raises(UserError, match="line 2 of the pieces, '\u2581two\u2581words', is not one word"):
        vocabulary.write_extended(["\u2581Zwetschgenmus", "\u2581two\u2581words"], tmp_path / "out.json")
    assert not (tmp_path / "out.json").exists()
    levels = {"type": "WordLevel", "unk_token": "[UNK]", "vocab": {f"[{w}]": i for i, w in enumerate(WORDS)}}
    (tmp_path / "levels.json").write_text(json.dumps({"version": "1.0", "added_tokens": [], "model": levels}))
    with pytest.raises(UserError, match="has a WordLevel model; vocabularies are changed of WordPiece, Unigram, BPE"):
        vocabulary_of(open_tokenizer(tmp_path / "levels.json"))


WORDS = ["PAD", "UNK", "CLS", "SEP", "MASK"]


def trimmed_to(text, tokenizer, path):
    """A tokenizer with the pieces of a text, and the former ids of its pieces."""
    used = np.isin(np.arange(tokenizer.vocabulary_size), tokenizer.encode(text))
    vocabulary = vocabulary_of(tokenizer)
    kept = np.flatnonzero(vocabulary.needed(used))
    vocabulary.write_kept(kept, path)
    return open_tokenizer(path), kept


@pytest.mark.parametrize("added", ["COVID", "é!", "日本"])
def test_a_piece_that_normalization_changes_stays_with_its_row(added, tmp_path):
    made = KINDS["word_piece"]()
    made.add_tokens(["Unused", added, "last"])
    made.save(str(tmp_path / "tokenizer.json"))
    whole, text = open_tokenizer(tmp_path), f"all {added} is last"
    ours, kept = trimmed_to(text, whole, tmp_path / "kept.json")
    assert ours.vocabulary_size == len(kept) < 20
    assert kept[ours.encode(text)].tolist() == whole.encode(text)
    former = vocabulary_of(whole).write_extended([added, "newest"], tmp_path / "more.json")
    assert former == [whole.encode("newest")]


def test_a_model_of_characters_alone_is_trimmed(tmp_path):
    vocabulary = {piece: i for i, piece in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abc", "\u0101b"])}
    tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, [])).save(str(tmp_path / "tokenizer.json"))
    whole = open_tokenizer(tmp_path)
    ours, kept = trimmed_to("ab", whole, tmp_path / "kept.json")
    assert kept[ours.encode("ab")].tolist() == whole.encode("ab") and ours.vocabulary_size == 8


def test_a_piece_of_a_template_stays_though_no_text_has_it(tmp_path):
    vocabulary = {piece: i for i, piece in enumerate(["[PAD]", "[UNK]", "[CLS]", "query", "[SEP]", "[MASK]", *"abc"])}
    made = tokenizers.BertWordPieceTokenizer(vocab=vocabulary)
    named = [(piece, vocabulary[piece]) for piece in ("[CLS]", "query", "[SEP]")]
    made.post_processor = tokenizers.processors.TemplateProcessing("[CLS] query $A [SEP]", special_tokens=named)
    made.save(str(tmp_path / "tokenizer.json"))
    _, kept = trimmed_to("a b", open_tokenizer(tmp_path), tmp_path / "kept.json")
    ours = tokenizers.Tokenizer.from_file(str(tmp_path / "kept.json")).encode("b a")
    assert ours.tokens == ["[CLS]", "query", "b", "a", "[SEP]"] and kept[ours.ids].tolist() == made.encode("b a").ids


def test_a_word_piece_vocabulary_has_no_space_before_a_word(tmp_path):
    KINDS["word_piece"]().save(str(tmp_path / "tokenizer.json"))
    whole = open_tokenizer(tmp_path)
    known = next(piece for piece in map(whole.piece, range(whole.vocabulary_size)) if piece.isalpha())
    lines = ["\u2581newest", "newest", f"\u2581{known}"]
    former = vocabulary_of(whole).write_extended(lines, tmp_path / "more.json")
    assert former == [whole.encode("newest")]
    assert open_tokenizer(tmp_path / "more.json").encode("the newest")[-1] == whole.vocabulary_size
