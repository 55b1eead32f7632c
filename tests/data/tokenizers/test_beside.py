"""What files beside a tokenizer's say of it: ids are those of transformers."""

import json

import pytest
import tokenizers

from rembed_keras.data.tokenizers.opening import open_tokenizer
from rembed_keras.errors import UserError

PIECES = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "the",
    "file",
    "open",
    "##s",
    "zo",
    "##o",
]
TEXT = "open the zoofiles Zoo"
RULES = {"content": "zoofile", "lstrip": False, "normalized": True, "rstrip": False, "special": False}
CASED = {"tokenizer_class": "BertTokenizer", "do_lower_case": False}
BESIDE = {
    "none": {},
    "added_tokens.json": {"added_tokens.json": {"zoofile": 11}},
    "in the configuration": {
        "tokenizer_config.json": {
            "added_tokens_decoder": {
                "11": RULES | {"single_word": True},
                "1": {**RULES, "content": "[UNK]", "special": True},
            }
        }
    },
    "special": {
        "added_tokens.json": {"zoofile": 11},
        "special_tokens_map.json": {"additional_special_tokens": ["zoofile"]},
    },
    "of the vocabulary": {"added_tokens.json": {"zo": 9, "zoofile": 11}},
    "cased": {"tokenizer_config.json": CASED},
}


@pytest.fixture
def folder(tmp_path):
    def made(beside, whole=False):
        if whole:
            vocabulary = {piece: i for i, piece in enumerate(PIECES)}
            tokenizers.BertWordPieceTokenizer(vocab=vocabulary).save(str(tmp_path / "tokenizer.json"))
        else:
            (tmp_path / "vocab.txt").write_text("\n".join(PIECES) + "\n")
        for name, content in beside.items():
            (tmp_path / name).write_text(json.dumps(content))
        return tmp_path / ("tokenizer.json" if whole else "vocab.txt")

    return made


def test_pieces_that_were_added_have_their_ids(folder, tmp_path):
    assert open_tokenizer(folder({})).encode("open zoofile") == [7, 1]
    path = folder(BESIDE["added_tokens.json"])
    ours = open_tokenizer(path)
    assert ours.vocabulary_size == 12 and ours.encode("open the zoofile") == [7, 5, 11]
    assert open_tokenizer(ours.copy_to(tmp_path)).encode("open the zoofile") == [7, 5, 11]


def test_added_pieces_whose_ids_cannot_be_are_refused(folder):
    path = folder({"added_tokens.json": {"zoofile": 14}})
    with pytest.raises(UserError, match=r"the piece 'zoofile' the id 14, and vocab\.txt gives it 11"):
        open_tokenizer(path)
    with pytest.raises(UserError, match="cannot be read from the files beside it"):
        open_tokenizer(folder({"added_tokens.json": {"zoofile": None}}))


@pytest.mark.parametrize(
    "beside", [CASED, {"do_lower_case": False}, CASED | {"tokenizer_class": "DistilBertTokenizerFast"}]
)
def test_the_configuration_overrides_a_tokenizer_json_that_berts_class_reads(beside, folder):
    ours = open_tokenizer(folder({"tokenizer_config.json": beside}, whole=True))
    assert ours.encode("Open the File") == [1, 5, 1]
    assert ours.encode("open the file") == [7, 5, 6]


@pytest.mark.parametrize("beside", [{}, {"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": False}])
def test_a_tokenizer_json_holds_where_another_class_reads_it(beside, folder):
    path = folder({"tokenizer_config.json": beside}, whole=True)
    assert open_tokenizer(path).encode("Open the File") == [7, 5, 6]


@pytest.mark.parametrize("frame", ["", "<bos> $A"])
@pytest.mark.parametrize("has_offsets", [False, True])
def test_what_files_beside_call_cls_and_sep_is_put_around_a_text(frame, has_offsets, tmp_path):
    pieces = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<s>", "</s>", "open"]  # <s> is a tag of HTML
    model = tokenizers.models.WordLevel({piece: i for i, piece in enumerate(pieces)}, unk_token="<unk>")
    made, processors = tokenizers.Tokenizer(model), []
    if has_offsets:
        processors.append(tokenizers.processors.ByteLevel(trim_offsets=True))
    if frame:
        processors.append(tokenizers.processors.TemplateProcessing(single=frame, special_tokens=[("<bos>", 2)]))
    if processors:
        made.post_processor = tokenizers.processors.Sequence(processors)
    made.save(str(tmp_path / "tokenizer.json"))
    assert (open_tokenizer(tmp_path).cls_id, open_tokenizer(tmp_path).sep_id) == (5, 6)
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"cls_token": "<s>", "sep_token": "<eos>"}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"cls_token": {"content": "<bos>"}}))
    (tmp_path / "copy").mkdir()
    ours = open_tokenizer(open_tokenizer(tmp_path).copy_to(tmp_path / "copy"))
    assert (ours.cls_id, ours.sep_id, ours.encode("open")) == (2, 1, [7])
    assert tokenizers.Tokenizer.from_file(str(tmp_path / "copy/tokenizer.json")).encode("open").ids == [2, 7, 1]


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("what", BESIDE)
def test_ids_are_those_of_transformers(what, whole, folder, peers, tmp_path):
    _, transformers = peers
    ours = open_tokenizer(folder(BESIDE[what], whole))
    theirs = transformers.BertTokenizerFast.from_pretrained(tmp_path)
    text = TEXT.replace("zoofiles", "zoo") if what == "special" else TEXT  # which to us is text
    assert ours.encode(text) == theirs(text, add_special_tokens=False)["input_ids"]
    assert ours.vocabulary_size == len(theirs)


def byte_level(folder, begins, beside):
    """The tokenizer of a folder in which the file says whether a space begins a text, and so may what is beside it."""
    pieces = [*PIECES[:5], "\u0120", "a", "b", "\u0120a"]
    model = tokenizers.models.BPE({piece: i for i, piece in enumerate(pieces)}, [("\u0120", "a")])
    made = tokenizers.Tokenizer(model)
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=begins)
    made.save(str(folder / "tokenizer.json"))
    for name, content in beside.items():
        (folder / name).write_text(json.dumps(content))
    return open_tokenizer(folder / "tokenizer.json")


@pytest.mark.parametrize("begins", [False, True])
@pytest.mark.parametrize(
    ("beside", "expected"),
    [
        ({"tokenizer_config.json": {"tokenizer_class": "RobertaTokenizer", "add_prefix_space": True}}, True),
        ({"tokenizer_config.json": {"tokenizer_class": "RobertaTokenizerFast"}}, False),
        ({"config.json": {"model_type": "roberta"}}, False),
        ({"tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast"}}, None),
        ({}, None),
    ],
)
def test_a_space_before_a_text_is_that_of_the_class_that_reads_a_file(begins, beside, expected, tmp_path):
    ours = byte_level(tmp_path, begins, beside)
    (tmp_path / "copy").mkdir()
    copy = open_tokenizer(ours.copy_to(tmp_path / "copy"))
    has_space = begins if expected is None else expected
    assert ours.encode("ab") == copy.encode("ab") == ([8, 7] if has_space else [6, 7])


@pytest.mark.parametrize("begins", [False, True])
@pytest.mark.parametrize("said", [{}, {"add_prefix_space": False}, {"add_prefix_space": True}])
@pytest.mark.parametrize("name", ["RobertaTokenizer", "GPT2Tokenizer", "BartTokenizerFast"])
def test_a_space_before_a_text_is_that_of_transformers(name, said, begins, peers, tmp_path):
    _, transformers = peers
    config = {"config.json": {"model_type": "roberta"}, "tokenizer_config.json": {"tokenizer_class": name} | said}
    ours = byte_level(tmp_path, begins, config)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert ours.encode("ab a") == theirs("ab a", add_special_tokens=False)["input_ids"]
