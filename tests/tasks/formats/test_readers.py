import json

import pytest

from rembed_keras.errors import UserError
from rembed_keras.tasks.formats.conll import read_conll
from rembed_keras.tasks.formats.questions import read_squad
from rembed_keras.tasks.formats.readers import read_records, read_table
from rembed_keras.tasks.kinds.examples import Labelled, Question, Tagged


@pytest.fixture
def write(tmp_path):
    def file(name, text):
        (tmp_path / name).write_text(text, encoding="utf-8", newline="")
        return tmp_path / name

    return file


def test_a_table_by_the_names_of_its_columns(write):
    path = write("a.tsv", "\ufeffno\ta\tb\ty\r\nx1\t\"lone\tquote\u2028s \tyes\r\nx2\t\t'\tno\r\n")
    assert read_table(path, "a", "b", "y", "no") == [
        Labelled("x1", '"lone', "quote\u2028s ", "yes"),
        Labelled("x2", "", "'", "no"),  # an empty text is a text
    ]
    assert read_table(path, "b", label=None)[1] == Labelled("1", "'")


def test_spaces_around_labels_and_tags_make_no_classes(write):
    assert [each.label for each in read_table(write("a.tsv", "text\tlabel\na\tx\nb\t x \n"))] == ["x", "x"]
    assert [each.label for each in read_table(write("b.csv", "text,label\na, x\nb,\n"), unlabeled=True)] == ["x", None]
    assert read_records(write("c.jsonl", '{"text": "a", "label": "x\u00a0"}'))[0].label == "x"
    assert read_conll(write("d.tsv", "a\tO\nb\tO \n")) == [Tagged("0", ("a", "b"), ("O", "O"))]


def test_labels_of_tables(write):
    path = write("a.tsv", "text\tlabel\nx\t2.5\ny\t-1e-1\n")
    assert [example.label for example in read_table(path, numeric=True)] == [2.5, -0.1]
    assert [example.label for example in read_table(path)] == ["2.5", "-1e-1"]
    with pytest.raises(UserError, match=r"a\.tsv, line 3: label is '-1e-1', none of 2\.5, 3"):
        read_table(path, labels=("2.5", "3"))
    part = write("b.tsv", "text\tlabel\nx\t\ny\tgood\n")
    assert [example.label for example in read_table(part, unlabeled=True)] == [None, "good"]
    assert read_table(write("c.tsv", "text\nx\n"), unlabeled=True) == [Labelled("0", "x")]


BAD_TABLES = {
    r"t\.tsv, line 3 has 3 cells, and the first line 2": "text\tlabel\na\tb\na\tb\tc\n",
    r"t\.tsv, line 2 has 1 cells": "text\tlabel\na\n",
    r"t\.tsv is empty": "",
    r"t\.tsv has no examples": "text\tlabel\n\n",
    r"t\.tsv, line 1 has no column text; did you mean texts": "texts\tlabel\na\tb\n",
    r"t\.tsv, line 1 has two columns text": "text\ttext\tlabel\na\tb\tc\n",
    r"t\.tsv, line 2 has no label": "text\tlabel\na\t\n",
}


@pytest.mark.parametrize("message", BAD_TABLES)
def test_bad_tables_are_named(message, write):
    with pytest.raises(UserError, match=message):
        read_table(write("t.tsv", BAD_TABLES[message]))


def test_ids_that_come_twice_are_refused(write):
    """Predictions of two runs are compared by them."""
    table = write("t.tsv", "doc\ttext\tlabel\n1\ta\tb\n2\tc\td\n\n1\te\tf\n")
    lines = write("l.jsonl", '{"doc": 1, "text": "a"}\n\n{"doc": "1", "text": "c"}\n')
    with pytest.raises(
        UserError, match=r"t\.tsv, line 5: an earlier example has the doc '1' too: name a column of ids"
    ):
        read_table(table, id="doc")
    with pytest.raises(UserError, match=r"l\.jsonl, line 3: an earlier example has the doc '1' too"):
        read_records(lines, id="doc", label=None)
    assert [example.id for example in read_table(table)] == ["0", "1", "2"]


@pytest.mark.parametrize("value", ["x", "nan", "inf", "1,5", "1_000"])
def test_labels_that_are_not_numbers_are_named(value, write):
    with pytest.raises(UserError, match=rf"t\.tsv, line 2: label is '{value}', not a number"):
        read_table(write("t.tsv", f"text\tlabel\na\t{value}\n"), numeric=True)


def test_broken_rows_are_skipped_and_counted(write):
    path = write("t.tsv", "text\tlabel\na\t0\nb\nc\t\nd\t1\t2\ne\t1\n")
    with pytest.warns(UserWarning, match=r"t\.tsv: skipped 3 broken rows, the first in line 3"):
        assert [(e.id, e.text) for e in read_table(path, skip_broken=True)] == [("0", "a"), ("1", "e")]


def test_json_lines(write):
    rows = [
        {"text": " a\u2028", "pair": "", "label": True, "n": 7, "more": []},
        {"text": "b", "pair": "c", "label": 0, "n": "eight"},
    ]
    path = write("a.jsonl", "".join(json.dumps(row, ensure_ascii=False) + "\r\n" for row in rows))
    assert read_records(path, pair="pair", id="n") == [
        Labelled("7", " a\u2028", "", "true"),
        Labelled("eight", "b", "c", "0"),
    ]
    assert read_records(write("b.jsonl", '{"text": "a", "label": 3}\n'), numeric=True)[0].label == 3.0
    with pytest.raises(UserError, match=r"b\.jsonl, line 1: label is 9+, not a number"):
        read_records(write("b.jsonl", f'{{"text": "a", "label": {"9" * 400}}}\n'), numeric=True)


BAD_LINES = {
    "text is 3, not a text": '{"text": 3, "label": "a"}',
    "line 1 has no label; did you mean labels": '{"text": "a", "labels": "b"}',
    "line 1 has no label$": '{"text": "a", "label": null}',
    "label is 0.5, not a name; say numeric=True": '{"text": "a", "label": 0.5}',
    r"label is \['b'\], not a name": '{"text": "a", "label": ["b"]}',
    "begins a JSON array": '[{"text": "a", "label": "b"}]',
    "has no examples": "",
}


@pytest.mark.parametrize("message", BAD_LINES)
def test_bad_json_lines_are_named(message, write):
    with pytest.raises(UserError, match=message):
        read_records(write("a.jsonl", BAD_LINES[message] + "\n"))


def test_conll_2003(write):
    text = "-DOCSTART- -X- O O\n\n# NN O B-X\nEU NNP I-NP B-ORG\r\n\n\n \nrejects  VBZ I-VP O \n"
    assert read_conll(write("a.txt", text)) == [
        Tagged("0", ("#", "EU"), ("B-X", "B-ORG")),
        Tagged("1", ("rejects",), ("O",)),
    ]
    assert read_conll(write("a.txt", text), tag_column=1)[1].tags == ("VBZ",)


def test_tabs_keep_spaces_in_words_and_comments_have_other_columns(write):
    text = "# a comment\n10\u00a0000\tNUM\n\u2028\tX\n#\tSYM\n\n# id 4\tx\ty\nNew York\tPROPN"
    assert read_conll(write("a.tsv", text)) == [
        Tagged("0", ("10\u00a0000", "\u2028", "#"), ("NUM", "X", "SYM")),
        Tagged("1", ("New York",), ("PROPN",)),
    ]


def conllu(*rows):
    return "".join("\t".join([index, word, "_", tag, "XPOS", *"_____"]) + "\n" for index, word, tag in rows)


def test_conllu_reads_words_and_not_multi_word_tokens(write):
    text = (
        "# sent_id = 1\n# text = du pain\n"
        + conllu(("1-2", "du", "_"), ("1", "de", "ADP"), ("2", "le", "DET"), ("2.1", "gap", "VERB"), ("3", "#", "SYM"))
        + "\n"
    )
    path = write("a.conllu", text)
    assert read_conll(path) == [Tagged("0", ("de", "le", "#"), ("ADP", "DET", "SYM"))]
    assert read_conll(path, tag_column=4)[0].tags == ("XPOS",) * 3
    hidden = write("hidden.conllu", conllu(("1", "de", "_"), ("2", "_", "_")))
    assert read_conll(hidden, unlabeled=True) == [Tagged("0", ("de", "_"))]
    assert read_conll(hidden)[0].tags == ("_", "_")


def test_unlabeled_words(write):
    path = write("a.tsv", "one\ntwo\n\nthree\n")
    assert read_conll(path, unlabeled=True) == [Tagged("0", ("one", "two")), Tagged("1", ("three",))]
    with pytest.raises(UserError, match=r"a\.tsv, line 1 has no column -1 with a tag"):
        read_conll(path)
    for text in ("1\tone\n2\ttwo\n", "1\tone\t\n2\ttwo\t\n"):
        path = write("a.tsv", text)
        assert read_conll(path, 1, 2, unlabeled=True) == [Tagged("0", ("one", "two"))]
        with pytest.raises(UserError, match=r"line 1 has (no column 2 with a|an empty) tag"):
            read_conll(path, 1, 2)
    with pytest.raises(UserError, match="line 2 has an empty tag"):
        read_conll(write("a.tsv", "one\tX\ntwo\t\n"), unlabeled=True)
    assert read_conll(write("a.tsv", "one\n"), word_column=1, unlabeled=True) == [Tagged("0", ("one",))]


BAD_CONLL = {
    r"a\.tsv, line 3 has 3 columns, and the first word's line 2": "a\tX\n\nb\tX\tY\n",
    r"a\.tsv, line 2 has 1 columns": "a\tX\n#no comment\n",
    r"a\.tsv, line 2 has an empty word": "a\tX\n\tX\n",
    r"a\.tsv, line 2 has an empty tag": "a\tX\nb\t\n",
    r"a\.tsv has no words": "# nothing\n\n-DOCSTART- O\n",
}


@pytest.mark.parametrize("message", BAD_CONLL)
def test_bad_conll_is_named(message, write):
    with pytest.raises(UserError, match=message):
        read_conll(write("a.tsv", BAD_CONLL[message]))


def test_a_column_that_is_not_there_is_named(write):
    with pytest.raises(UserError, match=r"line 1 has no column 2 with a tag"):
        read_conll(write("a.tsv", "a\tX\n"), tag_column=2)


def squad(answered=True, **changes):
    answer = {"text": "Mond", "answer_start": 6} | changes
    question = {"id": "q1", "question": "Was?", "answers": [answer, {"text": "M", "answer_start": 6}]}
    bare = {"id": "q2", "question": "Wie?", "is_impossible": True, "plausible_answers": [answer]}
    questions = [question] if answered else [question, bare]
    return {
        "version": "1.1",
        "data": [{"title": "T", "paragraphs": [{"context": "𝔇er\u2028: Mond", "qas": questions}]}],
    }


def test_squad_counts_code_points(write):
    content = squad(answered=False)
    assert content["data"][0]["paragraphs"][0]["context"].index("Mond") == 6
    path = write("a.json", "\ufeff" + json.dumps(content, ensure_ascii=False))
    assert read_squad(path, unlabeled=True) == [
        Question("q1", "Was?", "𝔇er\u2028: Mond", ("Mond", "M"), (6, 6)),
        Question("q2", "Wie?", "𝔇er\u2028: Mond"),
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"answer_start": 7}, "answer 'Mond' is not at character 7 of its context"),
        ({"answer_start": -4}, "answer .Mond. is not at character -4"),
        ({"answer_start": "6"}, "answer_start is '6', not a whole number"),
        ({"text": ""}, "answer '' is not at character 6"),
    ],
)
def test_answers_are_at_their_start(changes, message, write):
    with pytest.raises(UserError, match=rf"a\.json, article 1, paragraph 1, question 'q1': {message}"):
        read_squad(write("a.json", json.dumps(squad(**changes))))


def test_questions_may_be_numbered(write):
    content = squad()
    content["data"][0]["paragraphs"][0]["qas"][0]["id"] = 7
    assert [question.id for question in read_squad(write("a.json", json.dumps(content)))] == ["7"]
    for wrong in (True, None, 7.0):
        content["data"][0]["paragraphs"][0]["qas"][0]["id"] = wrong
        with pytest.raises(UserError, match=f"paragraph 1: id is {wrong}, not a text"):
            read_squad(write("a.json", json.dumps(content)))


def test_questions_without_answers_are_unlabeled(write):
    path = write("a.json", json.dumps(squad(answered=False, text="", answer_start=0)))
    assert [question.answers for question in read_squad(path, unlabeled=True)] == [("M",), ()]
    path = write("a.json", json.dumps(squad(answered=False)))
    with pytest.raises(UserError, match="paragraph 1, question 'q2' has no answer: leave out questions that"):
        read_squad(path)
    path = write("a.json", json.dumps(squad(answer_start=5)))
    with pytest.raises(UserError, match="answer 'Mond' is not at character 5 of its context"):
        read_squad(path, unlabeled=True)


def test_questions_are_read_by_the_prefix_of_their_ids(write):
    path = write("a.json", json.dumps(squad(answered=False)))
    assert [question.id for question in read_squad(path, prefix="q1")] == ["q1"]  # the other has no answer
    with pytest.raises(UserError, match=r"a\.json has no questions whose id begins with 'english-'"):
        read_squad(path, prefix="english-")


def test_two_columns_of_labels_are_named_where_they_may_be_missing_too(write):
    with pytest.raises(UserError, match=r"t\.tsv, line 1 has two columns label"):
        read_table(write("t.tsv", "text\tlabel\tlabel\na\tb\tc\n"), unlabeled=True)


def test_bad_squad_is_named(write):
    content = squad()
    content["data"][0]["paragraphs"] *= 2
    for text, message in {
        json.dumps(content): "article 1, paragraph 2: an earlier question has the id 'q1' too",
        '{\n"data": [': r"a\.json is not JSON: .* line 2",
        '{"dada": []}': r"a\.json has no data; did you mean dada",
        '{"data": []}': "has no questions",
        '{"data": [{"title": "x"}]}': r"article 1 has no paragraphs",
        "[]": "is not an object with data",
    }.items():
        with pytest.raises(UserError, match=message):
            read_squad(write("a.json", text))
