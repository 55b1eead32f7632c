import gzip
import json
from dataclasses import asdict, dataclass

import pytest

from rembed_keras.errors import UserError
from rembed_keras.tasks import labelled_files, labelled_folder, tagged_files
from rembed_keras.tasks.formats.columns import Format, QuestionFormat, TextFormat, WordFormat, parse_format
from rembed_keras.tasks.kinds.examples import Labelled, Question, Splits, Tagged


@pytest.fixture
def write(tmp_path):
    def file(name, text):
        data = text.encode("utf-8")
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return tmp_path / name

    return file


def test_a_file_is_read_by_the_columns_of_the_recipe(write):
    train = write("train.csv", 'key;"first; text";second;y\n7;"a;\n""b""";c;no\nx;d;e;yes\n')
    splits = labelled_files(train, text="first; text", pair="second", label="y", id="key", delimiter=";")
    kept = parse_format(TextFormat, json.loads(json.dumps(asdict(TextFormat.of(splits)))), "task.json")
    unlabelled = write("new.csv.gz", 'second;pair;"first; text";key\nc;0;"a;\n""b""";7\ne;1;d;x\n')
    assert list(kept.read(unlabelled)) == [Labelled(each.id, each.text, each.pair) for each in splits.train]
    rows = [{"first; text": "a", "second": "", "y": ["no name"], "key": 3}, {"first; text": "b", "second": "c"}]
    lines = write("new.jsonl", "\n".join(map(json.dumps, rows)) + "\n")
    assert list(kept.read(lines)) == [Labelled("3", "a", ""), Labelled("2", "b", "c")]


@dataclass(frozen=True)
class ThreeTexts(Format):
    texts: tuple[str, ...] = ()
    more: list[str] | None = None
    skip: int = 0


def test_a_format_of_ones_own_may_have_lists_and_tuples():
    own = ThreeTexts(("a", "b", "c"), ["d"])
    assert parse_format(ThreeTexts, json.loads(json.dumps(asdict(own))), "task.json") == own
    for strange in ({"texts": "a"}, {"skip": "1"}, {"text": "a"}):
        with pytest.raises(UserError, match="which names no columns: fine-tune again"):
            parse_format(ThreeTexts, strange, "task.json")


PAIRED = [Labelled("0", "a", "b", "x"), Labelled("1", "a", "", "y")]
SINGLE = [Labelled("0", "a", None, "x"), Labelled("1", "b", None, "y")]


def test_examples_know_whether_they_are_pairs(write):
    table = write("a.tsv", "text\tpair\nfirst\tsecond\n")
    alone, both = Labelled("2", "first"), Labelled("2", "first", "second")
    for train, pairs, read in ((PAIRED, True, both), (SINGLE, False, alone), (PAIRED + SINGLE, None, both)):
        found = TextFormat.of(Splits(train))
        assert (found.pairs, list(found.read(table))) == (pairs, [read])
    single = write("b.tsv", "text\tother\nfirst\tsecond\n")
    assert list(TextFormat().read(single)) == [alone]  # of a run without a stored format
    assert list(TextFormat().named(pair="other").read(single)) == [both]


@pytest.mark.parametrize("ending", ["tsv", "jsonl"])
def test_a_second_text_that_is_missing_is_not_left_out(ending, write):
    path = write(f"a.{ending}", {"tsv": "text\tsecond\na\tb\n", "jsonl": '{"text": "a", "second": "b"}\n'}[ending])
    for found in (TextFormat(pairs=True), TextFormat().named(pair="seconds"), TextFormat(pairs=True).named(pair="2nd")):
        with pytest.raises(UserError, match=rf"a\.{ending}, line 1 has no (column )?(pair|seconds|2nd)"):
            list(found.read(path))
    with pytest.raises(UserError, match="fine-tuned on single texts, not on pairs: leave out the pair, second"):
        TextFormat(pairs=False).named(pair="second")


def test_a_text_alone_may_have_tabs_as_in_a_labelled_folder(write, tmp_path):
    for split in ("train", "dev"):
        labelled = write(f"{split}.en.tsv", "text\tlabel\na\tb\tx\nc\ty\n")
    write("test.en.tsv", "text\tlabel\na\tb\tx\n")
    splits = labelled_folder(tmp_path)
    kept = TextFormat.of(splits)
    assert [each.text for each in kept.read(labelled)] == [each.text for each in splits.train] == ["a\tb", "c"]
    assert [each.text for each in kept.read(write("new.tsv", "text\na\tb\nc\n"))] == ["a\tb", "c"]
    for header in ("text\tother", "id\ttext", "label\ttext"):
        with pytest.raises(UserError, match=r"line 2 has 3 cells, and the first line 2"):
            list(kept.read(write("new.tsv", f"{header}\na\tb\tc\n")))


@pytest.mark.parametrize("header", ["text\tpair", "text\tpair\tlabel"])
def test_a_pair_has_no_tabs(write, header):
    row = "\t".join("abcd"[: header.count("\t") + 2])
    with pytest.raises(UserError, match=r"new\.tsv, line 2 has \d cells, and the first line \d"):
        list(TextFormat(pairs=True).read(write("new.tsv", f"{header}\n{row}\n")))


BAD_FILES = {
    r"t\.tsv, line 1 has two columns text": ("t.tsv", "text\ttext\na\tb\n"),
    r"t\.tsv, line 1 has two columns id": ("t.tsv", "text\tid\tid\na\tb\tc\n"),
    r"t\.tsv, line 3 has 1 cells, and the first line 2": ("t.tsv", "text\tid\na\tb\nc\n"),
    r"t\.tsv has no examples": ("t.tsv", "text\tid\n\n"),
    r"t\.tsv is empty": ("t.tsv", ""),
    r"t\.jsonl has no examples": ("t.jsonl", "\n"),
    r"t\.jsonl, line 2 has no text; did you mean texts": ("t.jsonl", '{"text": "a"}\n{"texts": "a"}\n'),
}


@pytest.mark.parametrize("message", BAD_FILES)
def test_bad_files_are_named(message, write):
    with pytest.raises(UserError, match=message):
        list(TextFormat(pairs=False).read(write(*BAD_FILES[message])))


def test_words_stand_where_the_recipe_says_with_or_without_tags(write):
    train = write("train", "1|New York|_|LOC\n2|is|_|O\n")
    splits = tagged_files(train, word_column=1, tag_column=3, separator="|")
    kept = parse_format(WordFormat, json.loads(json.dumps(asdict(WordFormat.of(splits)))), "task.json")
    sentences = [Tagged("0", ("New York", "is"))]
    for text in ("1|New York|_|MISC\n2|is|_|\n", "1|New York\n2|is\n", "New York\nis\n"):
        assert kept.read(write("new", text)) == sentences, text
    conllu = "1\tBonn" + "\t_" * 8 + "\n"
    assert WordFormat().read(write("new.conllu", conllu)) == [Tagged("0", ("Bonn",))]
    with pytest.raises(UserError, match="line 1 has no column 5 with a word"):
        WordFormat(word_column=5).read(write("new", "a b\n"))
    with pytest.raises(UserError, match="without named columns: leave out words"):
        kept.named(text="words")


def test_questions_are_read_without_answers(write):
    qas = [{"id": 7, "question": "?", "answers": [{"text": "", "answer_start": 0}]}, {"id": "x", "question": "!"}]
    path = write("a.json", json.dumps({"data": [{"paragraphs": [{"context": "ab", "qas": qas}]}]}))
    assert QuestionFormat().read(path) == [Question("7", "?", "ab"), Question("x", "!", "ab")]


@pytest.mark.parametrize("value", [[], {"words": 1}, {"word_column": ["1"]}, {"separator": 3}, {"word_column": 1.0}])
def test_a_malformed_format_is_refused(value):
    with pytest.raises(UserError, match=r"task\.json: format is .*: fine-tune again"):
        parse_format(WordFormat, value, "task.json")
