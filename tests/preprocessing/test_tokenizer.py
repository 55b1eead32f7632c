"""The tokenizer as keras-hub's users know one: over SentencePiece, WordPiece and `tokenizer.json`."""

import json
import shutil

import keras_hub
import numpy as np
import pytest
import tokenizers

from rembed_keras import Tokenizer
from rembed_keras.data.tokenizers.opening import open_tokenizer
from rembed_keras.errors import UserError

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "file", "open", "##s", "."]


@pytest.fixture(scope="module", params=["sentencepiece", "vocab.txt", "tokenizer.json"])
def file(request, tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    if request.param == "sentencepiece":
        return tokenizer.model.copy_to(folder)
    path = folder / request.param
    if path.suffix == ".txt":
        path.write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    else:
        tokenizers.BertWordPieceTokenizer(vocab={piece: i for i, piece in enumerate(PIECES)}).save(str(path))
    return path


def test_ids_are_those_of_the_file_and_presets_keep_them(file, tmp_path):
    ours, plain = Tokenizer(file), open_tokenizer(file)
    texts = ["open the files.", "the file"]
    assert ours.tokenize(texts) == ours(texts) == plain.encode_batch(texts)
    assert ours.tokenize(texts[0]) == plain.encode(texts[0])
    assert ours.detokenize(ours.tokenize(texts)) == [plain.decode(ids) for ids in plain.encode_batch(texts)]
    assert ours.vocabulary_size() == len(ours.get_vocabulary()) == plain.vocabulary_size
    assert [ours.token_to_id(ours.id_to_token(i)) for i in range(10)] == [*range(10)]
    ours.save_to_preset(str(tmp_path / "preset"))
    again = Tokenizer.from_config(json.loads((tmp_path / "preset/tokenizer.json").read_text())["config"])
    again.load_preset_assets(str(tmp_path / "preset"))
    assert again.tokenize(texts) == ours.tokenize(texts)
    assert open_tokenizer(tmp_path / "preset").encode_batch(texts) == ours.tokenize(texts)


def test_keras_hub_opens_it(preset, tokenizer):
    theirs = keras_hub.tokenizers.Tokenizer.from_preset(preset)
    assert isinstance(theirs, Tokenizer) and isinstance(theirs, keras_hub.tokenizers.Tokenizer)
    assert theirs("Save the file") == tokenizer("Save the file")
    assert Tokenizer.from_preset(preset)("Save the file") == tokenizer("Save the file")


def test_a_preset_with_a_bare_file_opens(file, preset, tmp_path):
    """As `rembed convert` wrote presets before they carried a keras-hub tokenizer."""
    for name in ("config.json", "model.weights.h5", "metadata.json"):
        shutil.copy(f"{preset}/{name}", tmp_path)
    open_tokenizer(file).copy_to(tmp_path)
    assert Tokenizer.from_preset(str(tmp_path)).tokenize("the file") == Tokenizer(file).tokenize("the file")


def test_masks_stand_in_a_text(tokenizer):
    mask = tokenizer.model.mask_id
    ids = tokenizer.tokenize_masked("Save the [MASK].")
    assert ids[:-2] == tokenizer.tokenize("Save the") and ids[-2:] == [mask, tokenizer.token_to_id(".")]
    assert tokenizer.tokenize_masked("[MASK] the <mask>").count(mask) == 1  # one mark in a text
    assert tokenizer.tokenize_masked("no mask") == tokenizer.tokenize("no mask")


def test_one_space_is_after_a_mask_where_spaces_are_kept():
    tokenizer = Tokenizer.train(["open the file and save it"] * 20, vocabulary_size=20, normalization="identity")
    ids = tokenizer.tokenize_masked("open the [MASK] and [MASK]  it")
    mask = tokenizer.model.mask_id
    assert ids == [*tokenizer("open the"), mask, *tokenizer("and"), mask, *tokenizer(" it")]


def of_bytes(lines):
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=True)
    made.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    made.train_from_iterator(
        lines, tokenizers.trainers.BpeTrainer(vocab_size=300, special_tokens=special, initial_alphabet=alphabet)
    )
    return made


def of_metaspaces(lines):
    made = tokenizers.Tokenizer(tokenizers.models.Unigram())
    split = [tokenizers.pre_tokenizers.WhitespaceSplit(), tokenizers.pre_tokenizers.Metaspace()]
    made.pre_tokenizer, made.decoder = tokenizers.pre_tokenizers.Sequence(split), tokenizers.decoders.Metaspace()
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    trainer = tokenizers.trainers.UnigramTrainer(vocab_size=40, special_tokens=special, unk_token="<unk>")
    made.train_from_iterator(lines, trainer)
    return made


@pytest.mark.parametrize("make", [of_bytes, of_metaspaces])
def test_a_mask_stands_for_a_piece_and_its_space(make, tmp_path):
    theirs = make(["open the café and save the café."] * 50)
    theirs.add_special_tokens([tokenizers.AddedToken("<mask>", lstrip=True, special=True)])
    theirs.save(str(tmp_path / "tokenizer.json"))
    ours = Tokenizer(tmp_path / "tokenizer.json")
    text = "open the <mask> and save it"
    assert ours.tokenize_masked(text) == theirs.encode(text, add_special_tokens=False).ids
    with_stop = ours.tokenize_masked("save the <mask>.")
    assert ours.detokenize(with_stop[-1:]) == "." and with_stop[-2] == ours.model.mask_id
    shown = [ours.shown(i) for i in ours.tokenize("open the café")]
    assert "".join(shown).replace("▁", "") == "openthecafé"  # of which one alone is a piece
    assert ours.shown(ours.model.unk_id) == "<unk>"


def test_a_part_of_a_character_is_shown_as_its_file_writes_it(tmp_path):
    of_bytes(["open"]).save(str(tmp_path / "tokenizer.json"))
    path = tmp_path / "tokenizer.json"
    made = tokenizers.Tokenizer.from_file(str(path))
    made.add_special_tokens(["<mask>"])
    made.save(str(path))
    ours = Tokenizer(path)
    assert [ours.shown(i) for i in ours.tokenize("é")[-2:]] == ["Ã", "©"]


def test_a_configuration_opens_no_file(tokenizer):
    made = Tokenizer.from_config({"path": str(tokenizer.model.path), "name": "mine"})
    with pytest.raises(UserError, match="no file yet"):
        made.tokenize("a")
    with pytest.raises(UserError, match=r"can be tokenizer\.model or tokenizer\.json"):
        Tokenizer.from_config({"file_name": "../../secret"})


def test_mistakes_are_said(tokenizer):
    with pytest.raises(UserError, match="3 is no text"):
        tokenizer.tokenize(["a", 3])
    with pytest.raises(UserError, match="None is no text"):
        tokenizer.tokenize(["a", None])
    with pytest.raises(UserError, match="half of a surrogate pair"):
        tokenizer.tokenize(["a", "\ud800"])
    with pytest.raises(UserError, match="is not UTF-8"):
        tokenizer.tokenize([b"\xff"])
    with pytest.raises(UserError, match="no piece 'qqqq'"):
        tokenizer.token_to_id("qqqq")


def test_lines_to_train_on_are_texts_as_those_to_tokenize():
    line = "open the file and save it"
    of_bytes, plain = (Tokenizer.train(lines, 20) for lines in ([line.encode()] * 20, (line for _ in range(20))))
    assert of_bytes.model.sha256 == plain.model.sha256 == Tokenizer.train(np.array([line] * 20), 20).model.sha256
    for one in (line, line.encode()):
        with pytest.raises(UserError, match="is one text"):
            Tokenizer.train(one, 20)
    for lines, message in (([line, 3], "3 is no text"), (iter([b"\xff"]), "not UTF-8"), (5, "5 is no text")):
        with pytest.raises(UserError, match=message):
            Tokenizer.train(lines, 20)
    for size in (10.5, "20", 0):
        with pytest.raises(UserError, match=f"vocabulary_size is {size!r}; it must be a positive whole number"):
            Tokenizer.train([line], size)


def test_ids_without_a_piece_are_said(file):
    ours = Tokenizer(file)
    last = ours.vocabulary_size() - 1
    for strange in (10**6, -1, last + 1, None):
        for ask in (
            ours.id_to_token,
            ours.shown,
            lambda i: ours.detokenize([last, i]),
            lambda i: ours.detokenize([[i]]),
        ):
            with pytest.raises(UserError, match=f"no piece of id {strange}: ids are 0 to {last}"):
                ask(strange)
    for strange in (5, [[last], 5]):
        with pytest.raises(UserError, match="5 is no row of ids"):
            ours.detokenize(strange)
    assert ours.id_to_token(np.int64(last)) == ours.get_vocabulary()[-1]
    assert ours.detokenize([]) == ""
