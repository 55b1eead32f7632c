import gzip
import json
from functools import partial

import pytest

from rembed_keras.data import sample
from rembed_keras.errors import UserError
from rembed_keras.tasks.formats.files import labelled_files, labelled_folder, question_files, tagged_files
from rembed_keras.tasks.kinds.classification import Classification
from rembed_keras.tasks.kinds.examples import Labelled, Question, Tagged

GOOD = {
    "train.en.tsv": "text\tlabel\nred apple\tfruit\ngreen leek\tvegetable\n",
    "dev.en.tsv": "text\tlabel\nold apple\tfruit\n",
    "test.de.tsv": "text\tlabel\nroter\tApfel\tfruit\n",
}


def write(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_a_folder_becomes_a_task(tmp_path):
    (tmp_path / "test.fr.tsv.gz").write_bytes(gzip.compress(b"text\tlabel\npoireau\tvegetable\n"))
    splits = labelled_folder(write(tmp_path, GOOD))
    assert splits.train == [Labelled("0", "red apple", label="fruit"), Labelled("1", "green leek", label="vegetable")]
    assert splits.dev == {"en": [Labelled("0", "old apple", label="fruit")]}
    assert splits.test == {
        "de": [Labelled("0", "roter\tApfel", label="fruit")],
        "fr": [Labelled("0", "poireau", label="vegetable")],
    }


def test_a_folder_says_in_which_language_it_trains(tmp_path):
    folder = write(tmp_path, {name.replace(".en.", ".de."): text for name, text in GOOD.items()})
    splits = labelled_folder(folder, "de")
    task = Classification("x", splits)
    assert task.train_language == "de" and task.validation == splits.dev["de"]


def test_spaces_around_a_text_are_removed(tmp_path):
    splits = labelled_folder(write(tmp_path, GOOD | {"test.de.tsv": "text\tlabel\n roter\tApfel \tfruit\n"}))
    assert splits.test["de"][0].text == "roter\tApfel"
    (tmp_path / "test.de.tsv").write_text("text\tlabel\nroter Apfel\t fruit\n")
    assert labelled_folder(tmp_path).test["de"][0].label == "fruit"


@pytest.mark.parametrize("name", ["train.en", "dev.en", "test.de"])
def test_one_of_two_files_of_a_language_is_not_chosen(name, tmp_path):
    write(tmp_path, GOOD)
    (tmp_path / f"{name}.tsv.gz").write_bytes(gzip.compress(GOOD[f"{name}.tsv"].encode()))
    both = "{} of '{}': keep one".format(*name.split("."))
    with pytest.raises(UserError, match=rf"{name}\.tsv and .*{name}\.tsv\.gz are both {both}"):
        labelled_folder(tmp_path)


@pytest.mark.parametrize("size", [3, 0, -1, True, 1.0])
def test_train_size_is_at_most_the_number_of_examples(size, tmp_path):
    write(tmp_path, GOOD)
    with pytest.raises(UserError, match=rf"train_size is {size}; task .* has 2 examples"):
        labelled_folder(tmp_path, train_size=size)
    with pytest.raises(UserError, match=rf"train_size is {size}; .*train\.en\.tsv has 2 examples"):
        labelled_files(tmp_path / "train.en.tsv", train_size=size)


def test_a_label_that_the_first_examples_lack_asks_for_more(tmp_path):
    write(
        tmp_path,
        GOOD
        | {"train.en.tsv": "text\tlabel\na\tfruit\nb\tleaf\nc\tstone\n", "test.de.tsv": "text\tlabel\nKiesel\tstone\n"},
    )
    assert labelled_folder(tmp_path).test
    with pytest.raises(UserError, match=r"'stone' .*: of that the first 2 examples are used, use more"):
        labelled_folder(tmp_path, train_size=2)


MISTAKES = {
    r"has no train\.en\.tsv": {"train.en.tsv": None},
    r"has no test\.<language>\.tsv": {"test.de.tsv": None},
    r"dev\.en\.tsv, line 1 must be text<TAB>label": {"dev.en.tsv": "apple\tfruit\n"},
    r"train\.en\.tsv, line 3 is not text<TAB>label": {"train.en.tsv": "text\tlabel\na\tfruit\nleek\n"},
    r"test\.de\.tsv: label 'stone' is not in the training data": {"test.de.tsv": "text\tlabel\nKiesel\tstone\n"},
    r"has one label": {"train.en.tsv": "text\tlabel\na\tfruit\n"},
    r"dev\.en\.tsv has no examples": {"dev.en.tsv": "text\tlabel\n"},
}


@pytest.mark.parametrize("message", MISTAKES)
def test_mistakes_in_a_folder_are_named(message, tmp_path):
    files = {name: text for name, text in (GOOD | MISTAKES[message]).items() if text is not None}
    with pytest.raises(UserError, match=message):
        labelled_folder(write(tmp_path, files))


def test_the_splits_of_the_embedded_task_are_apart():
    splits = labelled_folder(sample.topics_folder())
    assert len({example.label for example in splits.train}) == 8 and len(splits.test) == 25
    held_out = {example.text for part in (*splits.test.values(), splits.dev["en"]) for example in part}
    assert not held_out & {example.text for example in splits.train}
    assert not {e.text for e in splits.dev["en"]} & {e.text for e in splits.test["en"]}


def test_labelled_files_of_several_kinds(tmp_path):
    write(
        tmp_path,
        {
            "train.csv": 'a,b,y\n"x, y",z,no\nu,"v\nw",yes\n',
            "dev.tsv": "a\tb\ty\nx\tz\tno\n",
            "test/en.jsonl": json.dumps({"a": "x", "b": "z"}) + "\n",
            "test/sw.jsonl": json.dumps({"a": "x", "b": "z", "y": "yes"}) + "\n",
            "test/.hidden.jsonl": "",
        },
    )
    splits = labelled_files(
        tmp_path / "train.csv", {"en": tmp_path / "dev.tsv"}, f"{tmp_path}/test/{{language}}.jsonl", "a", "b", "y"
    )
    assert splits.train == [Labelled("0", "x, y", "z", "no"), Labelled("1", "u", "v\nw", "yes")]
    assert splits.dev == {"en": [Labelled("0", "x", "z", "no")]}
    assert list(splits.test) == ["en", "sw"]
    assert [splits.test[language][0].label for language in ("en", "sw")] == [None, "yes"]


def test_labels_may_be_numbers(tmp_path):
    write(tmp_path, {"train.tsv": "text\tlabel\na\t1\n", "en.tsv": "text\tlabel\na\t2.5\n"})
    splits = labelled_files(tmp_path / "train.tsv", test={"en": tmp_path / "en.tsv"}, numeric=True)
    assert (splits.train[0].label, splits.test["en"][0].label) == (1.0, 2.5)
    with pytest.raises(UserError, match=r"train\.tsv: the training data has one label"):
        labelled_files(tmp_path / "train.tsv")


def test_labels_occur_in_training_and_may_be_missing_in_tests_alone(tmp_path):
    write(tmp_path, GOOD | {"bare.tsv": "text\nx\n", "stone.tsv": "text\tlabel\nx\tstone\n"})
    train, bare, stone = (tmp_path / name for name in ("train.en.tsv", "bare.tsv", "stone.tsv"))
    assert labelled_files(train, test={"en": bare}).test["en"][0].label is None
    with pytest.raises(UserError, match=r"bare\.tsv, line 1 has no column label"):
        labelled_files(train, dev={"en": bare})
    write(tmp_path, {"both.tsv": "text\tlabel\nx\t\ny\tstone\n"})
    with pytest.raises(UserError, match=r"both\.tsv: label 'stone' is not in the training data"):
        labelled_files(train, test={"en": tmp_path / "both.tsv"})
    for part in ("dev", "test"):
        with pytest.raises(UserError, match=r"stone\.tsv: label 'stone' is not in the training data"):
            labelled_files(train, **{part: {"en": stone}})


def test_the_placeholder_of_a_path_is_the_language(tmp_path):
    words = "a\tX\n"
    files = [
        "en/test.en.tsv",
        "de/test.de.tsv",
        "de/test.fr.tsv",
        "de/test.de.tsv.gz",
        "zh-TW/test.zh-TW.tsv",
        "ja/test.ko.tsv",
    ]
    folder = write(tmp_path / "a[1]*", dict.fromkeys(files, words))
    train = write(tmp_path, {"train.tsv": words}) / "train.tsv"
    found = tagged_files(train, test=folder / "{language}" / "test.{language}.tsv").test
    assert list(found) == ["de", "en", "zh-TW"]
    with pytest.raises(UserError, match="no file matches"):
        tagged_files(train, test=f"{folder}/x.{{language}}.tsv")
    with pytest.raises(UserError, match=r"names no language: .* one with \{language\} in it"):
        tagged_files(train, dev=folder / files[1])


@pytest.mark.parametrize("name", ["train", "en"])
def test_the_training_data_are_no_language(name, tmp_path):
    folder = write(tmp_path / "my", {f"{name}.tsv": "a\tX\nb\tY\n", "de.tsv": "a\tX\n"})
    with pytest.raises(UserError, match=rf"finds .*my/{name}\.tsv, the training data, as a language '{name}': give"):
        tagged_files(folder / f"{name}.tsv", test=folder / "{language}.tsv")
    (folder / f"{name}.tsv").rename(tmp_path / "train.tsv")
    assert [*tagged_files(tmp_path / "train.tsv", test=folder / "{language}.tsv").test] == ["de"]


def test_tagged_files(tmp_path):
    write(tmp_path, {"train": "a X 1\n\nb Y 2\n", "de": "c X 3\n", "sw": "d\n"})
    test = {"de": tmp_path / "de", "sw": tmp_path / "sw"}
    splits = tagged_files(tmp_path / "train", {"de": tmp_path / "de"}, test, tag_column=1, train_size=1)
    assert [(e.words, e.tags) for e in splits.train] == [(("a",), ("X",))]
    assert splits.dev["de"][0].tags == ("X",) and splits.test["sw"][0].tags is None
    with pytest.raises(UserError, match="line 1 has no column 1 with a tag"):
        tagged_files(tmp_path / "train", {"sw": tmp_path / "sw"}, tag_column=1)


def test_sentences_in_rows(tmp_path):
    rows = [{"words": ["New York", "is"], "pos": ["X", 7]}, {"words": [], "pos": []}, {"words": ["a"], "pos": [3]}]
    lines = "\n".join(map(json.dumps, rows))
    write(
        tmp_path, {"train.jsonl": lines, "sw.jsonl": '{"words": ["d"]}\n{"words": ["e"], "pos": null}', "de": "c X\n"}
    )
    source = partial(tagged_files, tmp_path / "train.jsonl", word_column="words")
    splits = source(test={"sw": tmp_path / "sw.jsonl"}, tag_column="pos")
    assert splits.train == [Tagged("0", ("New York", "is"), ("X", "7")), Tagged("2", ("a",), ("3",))]
    assert splits.test["sw"] == splits.format.read(tmp_path / "sw.jsonl") == [Tagged("0", ("d",)), Tagged("1", ("e",))]
    assert splits.format.read(tmp_path / "de") == [Tagged("0", ("c",))]  # of the CoNLL kind
    for message, more in {
        r"train\.jsonl, line 1 has no tags": {},
        r"sw\.jsonl, line 1 has no pos": {"tag_column": "pos", "dev": {"sw": tmp_path / "sw.jsonl"}},
        r"train\.jsonl: a column is 1; here it is a name": {"tag_column": 1},
        r"de: a column is 'words'; here it is a number, from 0": {"tag_column": "pos", "dev": {"de": tmp_path / "de"}},
    }.items():
        with pytest.raises(UserError, match=message):
            source(**more)


@pytest.mark.parametrize(
    ("row", "message"),
    {
        '{"tokens": ["a"], "tags": []}': "has 1 tokens and 0 tags",
        '{"tokens": ["a"], "tags": [null]}': "tags has None, not a text",
        '{"tokens": ["a", ""], "tags": ["X", "X"]}': "tokens has '', not a text",
        '{"tokens": "a b", "tags": ["X", "X"]}': "tokens is 'a b', not an array",
        '{"token": ["a"], "tags": ["X"]}': "has no tokens; did you mean token",
    }.items(),
)
def test_bad_sentences_in_rows_are_named(row, message, tmp_path):
    write(tmp_path, {"train.jsonl": row})
    with pytest.raises(UserError, match=rf"train\.jsonl, line 1:? {message}"):
        tagged_files(tmp_path / "train.jsonl")


def test_questions_in_rows(tmp_path):
    row = {"question": "?", "context": "abc"}
    answers = {"text": ["b", "c"], "answer_start": [1, 2]}
    squad = [{"text": "b", "answer_start": 1}, {"text": "c", "answer_start": 2}]
    lines = [row | {"answers": answers, "id": "x"}, row | {"answers": squad}]
    bare = [row, row | {"answers": None}, row | {"answers": {"text": [], "answer_start": []}}]
    write(
        tmp_path, {f"{name}.jsonl": "\n".join(map(json.dumps, each)) for name, each in {"a": lines, "b": bare}.items()}
    )
    splits = question_files(tmp_path / "a.jsonl", test={"sw": tmp_path / "b.jsonl"})
    assert splits.train == [Question(name, "?", "abc", ("b", "c"), (1, 2)) for name in ("x", "1")]
    assert [question.id for question in splits.test["sw"]] == ["0", "1", "2"] and not splits.test["sw"][1].answers
    for changes, message in (
        ({}, "has no answer"),
        ({"answers": {"text": ["b"], "answer_start": []}}, "has 1 answers and 0 starts"),
        ({"answers": {"text": ["b"], "answer_start": [0]}}, "answer 'b' is not at character 0 of its context"),
        ({"answers": answers, "id": "0"}, "an earlier question has the id '0' too"),
        ({"answers": answers, "context": 3}, "context is 3, not a text"),
    ):
        write(tmp_path, {"c.jsonl": json.dumps(row | {"answers": answers}) + "\n" + json.dumps(row | changes)})
        with pytest.raises(UserError, match=rf"c\.jsonl, line 2.*{message}"):
            question_files(tmp_path / "c.jsonl")


def test_question_files(tmp_path):
    def squad(answers):
        qas = [{"id": "q", "question": "?", "answers": answers}]
        return json.dumps({"data": [{"paragraphs": [{"context": "ab", "qas": qas}]}]})

    answer = [{"text": "b", "answer_start": 1}]
    write(tmp_path, {"train.json": squad(answer), "test.xx.json": squad([])})
    train, test = tmp_path / "train.json", tmp_path / "test.{language}.json"
    splits = question_files(train, {"en": train}, test)
    assert splits.train == splits.dev["en"] and splits.train[0].starts == (1,)
    assert splits.test["xx"][0].answers == ()
    with pytest.raises(UserError, match=r"test\.xx\.json, article 1, paragraph 1, question 'q' has no answer"):
        question_files(train, dev=test)
