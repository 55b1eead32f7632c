"""Text and labelled examples in Parquet, as pyarrow and `datasets` write them."""

import json
import sys

import numpy as np
import pytest

from rembed_keras.data.parquet import read_parquet
from rembed_keras.data.prepare.corpora import prepare
from rembed_keras.data.prepare.sources import find_source, left_out
from rembed_keras.errors import UserError
from rembed_keras.tasks.formats.columns import QuestionFormat, TextFormat
from rembed_keras.tasks.formats.files import labelled_files, question_files, tagged_files
from rembed_keras.tasks.kinds.examples import Labelled, Question, Tagged

pyarrow = pytest.importorskip("pyarrow", reason="needs the extra: pip install 'rembed-keras[parquet]'")
parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra: pip install 'rembed-keras[parquet]'")


def write(path, rows, classes=None, **how):
    """Writes rows as pyarrow does, and as `datasets` does where the labels are numbers of classes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pyarrow.Table.from_pylist(rows)
    if classes:
        string, label = {"dtype": "string", "_type": "Value"}, {"names": classes, "_type": "ClassLabel"}
        lists = {"tags": {"feature": label, "length": -1, "_type": "Sequence"}, "more_tags": [label]}
        features = {"text": string, "label": label, "of": {"names": string}, **lists}
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    parquet.write_table(table, path, **how)
    return path


@pytest.mark.parametrize("compression", ["NONE", "SNAPPY", "ZSTD"])
def test_parts_of_a_file_are_its_groups_of_rows(compression, tmp_path, monkeypatch):
    rows = [{"id": i, "text": f"one {i}\n\n two {i} ", "lang": ("en", " de ", None)[i % 3]} for i in range(50)]
    write(tmp_path / "fr" / "train-00000.parquet", rows, row_group_size=7, compression=compression)
    write(tmp_path / "it.parquet", [{"text": "uno"}, {"text": ""}])
    expected = [(("en", "de", "fr")[i % 3], paragraph) for i in range(50) for paragraph in (f"one {i}", f"two {i}")]
    expected.append(("it", "uno"))
    whole = find_source(tmp_path)
    assert sorted(whole.files) == ["fr/train-00000.parquet", "it.parquet"] and not left_out(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr("rembed_keras.data.parquet.column_names", None)  # what files have is known by now
        assert [part.language for part in whole.parts] == [None, "it"]
    assert [*find_source(tmp_path, languages=["de"]).files] == ["fr/train-00000.parquet"]
    for part_bytes in (10**6, 1500, 400, 50):
        parts = find_source(tmp_path, part_bytes).parts
        assert [pair for part in parts for pair in part.read()] == expected
        assert (len(parts) > 2) == (part_bytes < 10**6)
    assert len({len([*part.read()]) for part in find_source(tmp_path, 400).parts}) > 1  # each is read by one part


@pytest.mark.parametrize("use_dictionary", [True, False])
def test_groups_without_rows_are_none(use_dictionary, tmp_path):
    schema = pyarrow.schema([("text", pyarrow.string())])
    with parquet.ParquetWriter(tmp_path / "de.parquet", schema, use_dictionary=use_dictionary) as file:
        for text in ([], ["eins"], [], ["zwei"]):
            file.write_batch(pyarrow.record_batch([pyarrow.array(text, pyarrow.string())], schema=schema))
    assert parquet.ParquetFile(tmp_path / "de.parquet").num_row_groups > 2
    assert [row for row, _ in read_parquet(tmp_path / "de.parquet", ["text"])] == [1, 2]
    assert [text for part in find_source(tmp_path, 20).parts for _, text in part.read()] == ["eins", "zwei"]


def test_a_corpus_is_that_of_the_same_text_in_lines(corpus, text_dir, tmp_path):
    for path in text_dir.iterdir():
        lines = path.read_text(encoding="utf-8").splitlines()
        write(tmp_path / "text" / f"{path.stem}.parquet", [{"text": line} for line in lines], row_group_size=64)
    made = prepare(tmp_path / "text", tmp_path / "out", tokenizer=corpus.tokenizer.path, shard_megabytes=0.02)
    assert made.num_tokens == corpus.num_tokens
    for language, size in corpus.num_tokens.items():
        np.testing.assert_array_equal(made.tokens(language, 0, size), corpus.tokens(language, 0, size))


def test_labelled_examples(tmp_path):
    rows = [{"text": "bad\tfilm", "label": 0, "key": 7}, {"text": "good", "label": 1, "key": 8}]
    train = write(tmp_path / "train.parquet", rows, classes=["neg", "pos"])
    test = write(tmp_path / "test.de.parquet", [{"text": "gut", "label": -1}], classes=["neg", "pos"])
    read = labelled_files(train, test={"de": test}, id=None)
    assert read.train == [Labelled("0", "bad\tfilm", label="neg"), Labelled("1", "good", label="pos")]
    assert read.test["de"] == [Labelled("0", "gut")]
    assert labelled_files(train, id="key").train[0].id == "7"
    assert [each.label for each in labelled_files(train, numeric=True, text="text", label="key").train] == [7.0, 8.0]
    moment = pyarrow.scalar(1, pyarrow.timestamp("ns"))  # more exact than Python's
    plain = write(tmp_path / "plain.parquet", [row | {"seen": moment} for row in rows])
    assert [each.label for each in labelled_files(plain).train] == ["0", "1"]
    assert [*TextFormat().read(train)] == [Labelled("1", "bad\tfilm"), Labelled("2", "good")]


def test_sentences_and_questions(tmp_path):
    rows = [
        {"tokens": ["New York", "is"], "tags": [1, 0], "more_tags": [0, 0]},
        {"tokens": [], "tags": [], "more_tags": []},
    ]
    path = write(tmp_path / "train.parquet", rows, classes=["O", "B-LOC"])
    read = tagged_files(path)
    assert read.train == [Tagged("0", ("New York", "is"), ("B-LOC", "O"))]
    assert tagged_files(path, tag_column="more_tags").train[0].tags == ("O", "O")
    with pytest.raises(UserError, match=r"train\.parquet, row 2: tokens has no word to answer for"):
        read.format.read(path)
    assert read.format.read(write(tmp_path / "one.parquet", rows[:1])) == [Tagged("0", ("New York", "is"))]
    row = {"question": "?", "context": "abc", "id": "x"}
    for answers in ({"text": ["b"], "answer_start": [1]}, [{"text": "b", "answer_start": 1}]):
        path = write(tmp_path / "questions.parquet", [row | {"answers": answers}])
        assert question_files(path, test={"de": path}).test["de"] == [Question("x", "?", "abc", ("b",), (1,))]
    bare = write(tmp_path / "bare.parquet", [row])
    assert QuestionFormat().read(bare) == [Question("x", "?", "abc")]
    with pytest.raises(UserError, match=r"bare\.parquet has no column answers"):
        question_files(bare)
    with pytest.raises(UserError, match=r"row 1: tags has None, not a text"):
        tagged_files(write(tmp_path / "none.parquet", [{"tokens": ["a"], "tags": [-1]}], classes=["O"]))


def test_shards_of_one_file_are_one_language(tmp_path):
    named = {
        "de-00000-of-00002.parquet": "de",
        "de-00001-of-00002-a09b74b3ef9c3b56.parquet": "de",
        "0000.parquet": "text",
        "000_00001.parquet": "text",
        "20231101.fr/train-00000-of-00001.parquet": "20231101.fr",
        "it.parquet/part.0.parquet": "it",
        "zh-2.parquet": "zh-2",
    }
    for name in named:
        write(tmp_path / "text" / name, [{"text": name}])
    source = find_source(tmp_path / "text")
    assert {name: language for part in source.parts for language, name in part.read()} == named
    assert {part.name for part in source.parts} == {part.language for part in source.parts} == {*named.values()}
    assert [*find_source(tmp_path / "text", languages=["it"]).files] == ["it.parquet/part.0.parquet"]
    (tmp_path / "text/fr.PARQUET").touch()
    assert left_out(tmp_path / "text") == ["fr.PARQUET"]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"texts": "a"}], r"de\.parquet has no column text; did you mean texts"),
        ([{"text": "a"}, {"text": None}], r'de\.parquet, row 2: it must be an object with a string "text"'),
        ([{"text": "a", "lang": 5}], r"de\.parquet, row 1: its language is 5, which is not a name"),
        (b"PAR1 and no more of it", r"de\.parquet is not a whole Parquet file: "),
        (b"", r"de\.parquet is not a whole Parquet file: "),
        (None, r"de\.parquet is not a whole Parquet file: "),
    ],
)
def test_mistakes_are_reported_in_one_line(rows, said, tmp_path, corpus):
    path = tmp_path / "text" / "de.parquet"
    if isinstance(rows, list):
        write(path, rows)
    else:
        whole = write(path, [{"text": "word " * 100}] * 9).read_bytes()
        path.write_bytes(whole[:-30] if rows is None else rows)
    with pytest.raises(UserError, match=said) as caught:
        prepare(tmp_path / "text", tmp_path / "out", tokenizer=corpus.tokenizer.path)
    assert "\n" not in str(caught.value) and not (tmp_path / "out").exists()


def test_text_of_two_formats_and_a_lacking_library_are_refused(tmp_path, monkeypatch):
    path = write(tmp_path / "de.parquet", [{"text": "a"}])
    for name, said in (("en.jsonl", "are of two formats: keep text of one format"), ("en.txt", "and en.txt")):
        (tmp_path / name).write_text('{"text": "a"}\n')
        with pytest.raises(UserError, match=said):
            find_source(tmp_path)
        (tmp_path / name).unlink()
    with pytest.raises(UserError, match=r"train\.parquet, row 1 has no label"):
        labelled_files(write(tmp_path / "train.parquet", [{"text": "a", "label": None}]))
    for name, said in (("gone.parquet", "gone.parquet: No such file"), ("", ": Is a directory")):
        with pytest.raises(UserError, match=said):
            labelled_files(tmp_path / name if name else write(tmp_path / "of.parquet/a.parquet", []).parent)
    twice = pyarrow.Table.from_arrays([pyarrow.array(["a"])] * 2, names=["text", "text"])
    parquet.write_table(twice, path)
    with pytest.raises(UserError, match=r"de\.parquet has two columns text"):
        next(read_parquet(path, ["text"]))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError, match=r"de\.parquet: to read Parquet takes pyarrow: pip install"):
        next(read_parquet(path))
