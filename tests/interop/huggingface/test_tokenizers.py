"""The files that Hugging Face's libraries read of a SentencePiece model, against the model itself."""

import io
import json
import random

import pytest
import sentencepiece
import tokenizers

from rembed_keras.data.tokenizers.opening import open_tokenizer
from rembed_keras.interop import tokenizer_of, write
from rembed_keras.interop.spm import read_model, write_model
from rembed_keras.modeling.blocks import PreNorm
from tests.interop.models import random_model

LINES = ["open the file and save it", "the table of a file is kept <sep2> open the head", "is [CLS] paid twice?"] * 40
WORDS = [*("the", "file", "open", "<sep2>", " ", "  ", "\u00e9", "\u6f22", "he", "head", "x", "th", ".", "[")]
PLAIN = {"input_embedding_dim": 16, "always_project": False}


IN_PARTS = (
    "letters in parts (NFD), and kana of half a width, have other ids to tokenizer.json than to the SentencePiece "
    "model: bring such texts into NFKC for it"
)
IDS = {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3, "control_symbols": ["[MASK]"]}
SPECIAL = IDS | {"pad_piece": "[PAD]", "unk_piece": "[UNK]", "bos_piece": "[CLS]", "eos_piece": "[SEP]"}
FAIRSEQ = {"pad_id": -1, "unk_id": 0, "bos_id": 1, "eos_id": 2}


def trained(path, special=SPECIAL, **changes):
    """The path of a model with the special pieces of this package, and others."""
    made = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES),
        model_writer=made,
        hard_vocab_limit=False,
        minloglevel=2,
        **({"vocab_size": 50} | special | changes),
    )
    path.write_bytes(made.getvalue())
    return path


def written(path, folder, family=None, **encoder):
    """The notes of a folder with a model's tokenizer, and the tokenizer."""
    ours = open_tokenizer(path)
    model = random_model({"vocabulary_size": ours.vocabulary_size} | encoder).encoder
    return write(model, str(folder), "huggingface", path, family), ours


def differing(ours, folder, words):
    theirs = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    rng = random.Random(0)
    texts = ["".join(rng.choices(words, k=rng.randint(1, 9))) for _ in range(400)]
    return [text for text in texts if ours.encode(text) != theirs.encode(text, add_special_tokens=False).ids]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"user_defined_symbols": ["<sep2>"]},
        {"user_defined_symbols": ["<sep2>", "th", "\u2581file"]},
        {"user_defined_symbols": ["efi", "the\u2581file", "head\u2581the"]},
        {"user_defined_symbols": ["<sep2>", "th"], "add_dummy_prefix": False},
        {"user_defined_symbols": ["<sep2>"], "normalization_rule_name": "identity"},
    ],
)
def test_user_defined_pieces_are_found_as_in_the_model(changes, tmp_path):
    notes, ours = written(trained(tmp_path / "own.model", **changes), tmp_path / "out")
    assert notes == [] and not differing(ours, tmp_path / "out", WORDS)


def test_white_space_at_the_ends_of_a_text_stays_as_in_the_model(tmp_path):
    notes, ours = written(trained(tmp_path / "own.model", normalization_rule_name="nfkc"), tmp_path / "out")
    assert notes == [] and not differing(ours, tmp_path / "out", [*WORDS, "\t", "\n", "\u2028", "\u00a0"])


@pytest.mark.parametrize(
    ("letter", "parts"), [("\u1ebf", "e\u0302\u0301"), ("\ud55c", "\u1112\u1161\u11ab"), ("\u30d1", "\uff8a\uff9f")]
)
def test_letters_in_parts_that_a_tokenizer_json_does_not_compose_are_noted(letter, parts, tmp_path):
    notes, ours = written(trained(tmp_path / "own.model", required_chars=letter), tmp_path / "out")
    assert notes == [IN_PARTS]
    assert differing(ours, tmp_path / "out", [parts]) and not differing(ours, tmp_path / "out", [*WORDS, letter])


@pytest.mark.parametrize(
    ("changes", "spelled", "said"),
    [
        ({"control_symbols": ["[MASK]", "<lang>"]}, "<lang>", "a text that has <lang> has other ids"),
        ({"user_defined_symbols": ["\ufb01"]}, "\ufb01", "a text that has \ufb01 has other ids"),
        ({"byte_fallback": True, "vocab_size": 310}, "<0x41>", "<0x00>, <0x01>, <0x02> and 253 others has other ids"),
    ],
)
def test_pieces_that_a_tokenizer_json_reads_otherwise_are_noted(changes, spelled, said, tmp_path):
    notes, ours = written(trained(tmp_path / "own.model", **changes), tmp_path / "out")
    in_parts = [IN_PARTS] if "byte_fallback" in changes else []  # which reads every letter
    assert notes[:-1] == in_parts and said in notes[-1]
    assert differing(ours, tmp_path / "out", [spelled]) and not differing(ours, tmp_path / "out", WORDS)


def test_bytes_are_decoded_as_the_text_that_they_are(tmp_path):
    _, ours = written(trained(tmp_path / "own.model", byte_fallback=True, vocab_size=310), tmp_path / "out")
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "out/tokenizer.json"))
    for text in ("open the \u6f22\u5b57 file", "\u00e9 head", "\u6f22"):
        assert theirs.decode(theirs.encode(text).ids) == ours.decode(ours.encode(text)) == text


def test_no_tokenizer_json_is_written_where_spaces_end_pieces(tmp_path):
    notes, _ = written(trained(tmp_path / "own.model", treat_whitespace_as_suffix=True), tmp_path / "out")
    assert notes == ["the tokenizer has spaces at the ends of pieces, so no tokenizer.json is written"]
    assert not (tmp_path / "out/tokenizer.json").exists()


@pytest.mark.parametrize(
    ("family", "encoder", "longest"),
    [
        ("rembert", {}, 20),
        ("xlm-roberta", PLAIN | {"num_segments": 1}, 20),
        ("modernbert", PLAIN | {"block": PreNorm(), "num_segments": 0}, None),
    ],
)
def test_the_longest_input_is_said(family, encoder, longest, tmp_path):
    written(trained(tmp_path / "own.model"), tmp_path / "out", family, **encoder)
    said = json.loads((tmp_path / "out/tokenizer_config.json").read_text())
    assert said.get("model_max_length") == longest


@pytest.mark.parametrize("family", ["roberta", "xlm-roberta"])
def test_two_separators_are_between_the_texts_of_a_pair_of_roberta(family, tmp_path):
    path = trained(tmp_path / "sentencepiece.bpe.model", FAIRSEQ)
    model = random_model(PLAIN | {"num_segments": 1}).encoder
    write(model, str(tmp_path / "out"), "huggingface", path, family)
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "out/tokenizer.json"))
    found = theirs.encode("the file", "the head")
    assert [token for token in found.tokens if token in ("<s>", "</s>")] == ["<s>", "</s>", "</s>", "</s>"]
    assert {*found.type_ids} == {0}


@pytest.mark.parametrize("frame", ["", "[CLS] $A", "[CLS] $A [SEP]"])
def test_a_tokenizer_json_puts_the_special_pieces_around_texts_that_the_encoder_reads(frame, tmp_path):
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    made.train_from_iterator(LINES, tokenizers.trainers.WordPieceTrainer(vocab_size=60, special_tokens=special))
    if frame:
        made.post_processor = tokenizers.processors.TemplateProcessing(
            single=frame, special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
        )
    made.save(str(tmp_path / "tokenizer.json"))
    notes, ours = written(tmp_path / "tokenizer.json", tmp_path / "out", **PLAIN)
    said = "tokenizer.json puts [CLS] and [SEP] around a text now, which the one that was read did not"
    assert notes == ([] if frame == "[CLS] $A [SEP]" else [said])
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "out/tokenizer.json"))
    assert theirs.encode("open the file").ids == [2, *ours.encode("open the file"), 3]
    assert open_tokenizer(tmp_path / "out/tokenizer.json").encode("open it") == ours.encode("open it")
    if notes:
        pair = theirs.encode("the file", "the head")
        assert pair.tokens.count("[SEP]") == 2 and {*pair.type_ids} == {0, 1}


def byte_level(folder, begins):
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=begins)
    trainer = tokenizers.trainers.BpeTrainer(special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    made.train_from_iterator(LINES, trainer)
    made.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


@pytest.mark.parametrize("begins", [True, False])
def test_whether_a_space_is_before_a_text_of_bytes_is_said(begins, tmp_path):
    written(byte_level(tmp_path, begins), tmp_path / "out", **PLAIN)
    assert json.loads((tmp_path / "out/tokenizer_config.json").read_text())["add_prefix_space"] is begins


@pytest.mark.parametrize("begins", [True, False])
def test_texts_of_bytes_have_our_ids(begins, peers, tmp_path):
    _, transformers = peers
    _, ours = written(byte_level(tmp_path, begins), tmp_path / "out", **PLAIN)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert [theirs(line)["input_ids"][1:-1] for line in LINES[:2]] == [ours.encode(line) for line in LINES[:2]]


def test_pairs_and_long_texts_are_those_of_xlmr(peers, tmp_path):
    _, transformers = peers
    path = trained(tmp_path / "sentencepiece.bpe.model", FAIRSEQ)
    model = random_model(PLAIN | {"num_segments": 1}).encoder
    write(model, str(tmp_path / "out"), "huggingface", path, "xlm-roberta")
    ours = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    long = "the file " * 400
    assert len(ours(long, truncation=True)["input_ids"]) == ours.model_max_length == 20
    if transformers.__version__ < "5":  # whose own of version 5 reads no sentencepiece.bpe.model
        theirs = transformers.XLMRobertaTokenizer(str(path), model_max_length=20)
        for texts in (("the file", "open the head"), (long,), (long, "the head")):
            assert ours(*texts, truncation=True)["input_ids"] == theirs(*texts, truncation=True)["input_ids"]


def test_a_tokenizer_json_is_taken_where_the_model_beside_it_lacks_pieces(corpus, tmp_path):
    corpus.tokenizer.copy_to(tmp_path).rename(file := tmp_path / "sentencepiece.model")
    (tmp_path / "tokenizer.json").write_text("{}")
    added = tmp_path / "added_tokens.json"
    for pieces, taken in (({"[MASK]": 4}, file.name), ({"[MASK]": 4, "heptagon": 900}, "tokenizer.json")):
        added.write_text(json.dumps(pieces))
        assert tokenizer_of(tmp_path).name == taken
    model = read_model(file)
    write_model(model, [piece for piece in model.pieces if piece.piece != "[MASK]"], file)
    assert tokenizer_of(tmp_path).name == "tokenizer.json"


@pytest.mark.parametrize("name", ["sentencepiece.bpe.model", "sentencepiece.model"])
def test_a_tokenizer_json_is_taken_where_the_model_beside_it_has_other_pieces(name, tmp_path):
    path = trained(tmp_path / name, FAIRSEQ if "bpe" in name else SPECIAL)
    write(random_model().encoder, str(tmp_path / "out"), "huggingface", path)
    (tmp_path / "out/tokenizer.json").rename(whole := tmp_path / "tokenizer.json")
    assert tokenizer_of(tmp_path) == path
    parts = json.loads(whole.read_text())
    removed = parts["model"]["vocab"].pop(20)[0]  # as those do who trim a vocabulary, and leave the model as it is
    for each in parts["added_tokens"]:
        each["id"] -= each["id"] > 20
    whole.write_text(json.dumps(parts))
    assert tokenizer_of(tmp_path) == whole
    ours = open_tokenizer(whole)
    assert removed not in [ours.piece(i) for i in range(ours.vocabulary_size)]


@pytest.mark.parametrize(("role", "name"), [("cls", "[CLS]"), ("cls", "the"), ("mask", "[SEP]"), ("pad", "[SEP]")])
def test_a_model_that_would_begin_a_text_otherwise_than_its_class_is_not_read(role, name, corpus, tmp_path):
    corpus.tokenizer.copy_to(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({f"{role}_token": name}))
    assert (tokenizer_of(tmp_path) is None) == (name == "the" or role == "mask")
