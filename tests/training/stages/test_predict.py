"""A run answers a file that is laid out as its recipe's files were, and takes the model that was scored."""

import contextlib
import json
import shutil
import sys
from dataclasses import replace
from functools import partial
from types import ModuleType

import numpy as np
import pytest

from rembed_keras.errors import UserError
from rembed_keras.modeling import Classifier, Encoder
from rembed_keras.tasks import (
    Candidates,
    Classification,
    QuestionAnswering,
    Regression,
    Tagging,
    labelled_files,
    question_files,
    tagged_files,
)
from rembed_keras.tasks.kinds.examples import Labelled, Splits, Tagged
from rembed_keras.training import AdamW, Answerer, evaluate, finetune, lines_of
from rembed_keras.training.loop.workdir import Workdir
from tests.training.pretraining import eagerly

pytestmark = pytest.mark.usefixtures("without_graphs")


def learn(workdir, task):
    """Two steps, and the scores of the model that they leave."""
    settings = {"encoder": partial(Encoder, 900, 1, 2, 8, 16, 4, max_sequence_length=32), "starts": ("scratch",)}
    settings |= {"jit_compile": False, "sequence_length": 24, "seeds": (0,)}
    finetune(workdir, AdamW, task, batch_size=4, epochs=2, **settings)
    evaluate(workdir, task, **settings)


def squad(ids):
    qas = [
        {"id": name, "question": "what?", "answers": [{"text": "table", "answer_start": 4}] if i % 2 else []}
        for i, name in enumerate(ids)
    ]
    return json.dumps({"data": [{"paragraphs": [{"context": "the table and the end", "qas": qas}]}]})


# by kind of task: its class, its source, the labelled file, and the same without labels, which is what is answered
TEXTS = 'no;sentence;label\n1;save the file;yes\n2;"open; the ""table""";no\n'
PAIRS = [{"a": "save the file", "pair": "wrong", "b": "file"}, {"a": "open it", "pair": "wrong", "b": "table"}]
OWN_FILES = {
    "texts": (
        partial(Classification, "own"),
        partial(labelled_files, text="sentence", id="no", delimiter=";"),
        ("en.csv", TEXTS),
        TEXTS.replace(";label", ";pair"),
    ),
    "pairs": (
        partial(Regression, "own"),
        partial(labelled_files, text="a", pair="b", label="y", numeric=True),
        ("en.jsonl", "".join(json.dumps(row | {"y": i}) + "\n" for i, row in enumerate(PAIRS))),
        "".join(json.dumps(row | {"y": "?"}) + "\n" for row in PAIRS),
    ),
    "tags": (
        partial(Tagging, "own"),
        partial(tagged_files, word_column=1, tag_column=2, separator="|"),
        ("en", "1|New York|B-LOC|0\n2|is|O|0\n\n1|open|O|0\n"),
        "1|New York\n2|is\n\n1|open\n",
    ),
    "questions": (
        partial(QuestionAnswering, "own"),
        question_files,
        ("en.json", squad([7, 8]).replace("[]", '[{"text": "end", "answer_start": 18}]')),
        squad([7, 8]),
    ),
}


@pytest.fixture(scope="module")
def learnt(corpus, tmp_path_factory):
    """Of a kind of task, learnt when first asked for: the task, its run, and the file of it without labels."""
    made = {}

    def of(kind):
        if kind not in made:
            make_task, source, (name, labelled), unlabelled = OWN_FILES[kind]
            folder = tmp_path_factory.mktemp(kind)
            (folder / name).write_text(labelled, encoding="utf-8")
            (folder / f"new.{name}").write_text(unlabelled, encoding="utf-8")
            stride = {"stride": 5} if kind == "questions" else {}
            task = make_task(source(folder / name, test={"en": folder / name}), **stride)
            workdir = Workdir(folder / "run")
            (workdir.path / "corpus").symlink_to(corpus.path)
            with eagerly():
                learn(workdir, task)
            workdir.close()
            made[kind] = task, workdir.path, folder / f"new.{name}"
        return made[kind]

    return of


@pytest.mark.parametrize("kind", OWN_FILES)
def test_a_file_without_labels_is_answered_as_it_was_with_them(kind, learnt):
    task, run, unlabelled = learnt(kind)
    answerer = Answerer(run)
    found = list(answerer.answers(answerer.read(unlabelled)))
    shown = ("words", "question", "context", "text", "pair")
    inputs = [
        [getattr(example, field, None) for field in shown]
        for examples in ([example for example, _ in found], task.splits.test["en"])
        for example in examples
    ]
    assert inputs[: len(found)] == inputs[len(found) :]
    rows = (run / "predictions/own/scratch-seed0.en.jsonl").read_text(encoding="utf-8").splitlines()
    expected = [json.loads(row)["answer"] for row in rows]
    assert [answer for _, answer in found] == (pytest.approx(expected) if kind == "pairs" else expected)
    if kind in ("texts", "questions"):
        assert [json.loads(line)["id"] for line in lines_of(found)] == [json.loads(row)["id"] for row in rows]


def test_a_kind_of_ones_own_by_the_name_of_ours_is_no_kind_of_ours(learnt, tmp_path, monkeypatch):
    task, run, _ = learnt("texts")
    own = type("Classification", (Classification,), {"__module__": "my_package"})
    monkeypatch.setattr(task, "__class__", own)
    shutil.copytree(run, tmp_path / "run")
    (place,) = (tmp_path / "run/finetuned").glob("*/task.json")
    place.write_text(json.dumps(json.loads(place.read_text()) | task.description()))
    with pytest.raises(
        UserError, match=r"kind 'my_package\.Classification', which is not imported: .*import my_package"
    ):
        Answerer(tmp_path / "run")
    package = ModuleType("my_package")
    package.Classification, package.Nothing = own, dict
    monkeypatch.setitem(sys.modules, "my_package", package)
    assert type(Answerer(tmp_path / "run").task) is own
    place.write_text(place.read_text().replace("my_package.Classification", "my_package.Nothing"))
    with pytest.raises(UserError, match=r"kind 'my_package\.Nothing', which is not imported"):
        Answerer(tmp_path / "run")
    place.write_text(place.read_text().replace("my_package.Nothing", "my_package.Classification"))
    monkeypatch.setattr(own, "__init__", lambda self, name, splits: None)
    with pytest.raises(
        UserError, match=r"task\.json describes no Classification: .*argument 'labels': fine-tune again"
    ):
        Answerer(tmp_path / "run")


@pytest.mark.parametrize("kind", ["texts", "pairs"])
def test_a_model_whose_outputs_are_not_finite_answers_nothing(kind, learnt):
    _, run, file = learnt(kind)
    answerer = Answerer(run)
    answerer.model.head.bias.assign(np.full(answerer.model.head.bias.shape, np.nan))
    with pytest.raises(UserError, match="task own: the model's outputs are not finite, and answer nothing"):
        list(answerer.answers(answerer.read(file)))


def test_a_pair_is_never_answered_by_halves(learnt, tmp_path, command):
    shutil.copytree(learnt("pairs")[1], tmp_path / "run", symlinks=True)
    for text, options, message in (
        ("a\tpair\nsave\tfile\n", (), "line 1 has no column b"),
        ("a\tb\nsave\tfile\n", ("--pair", "bb"), "line 1 has no column bb; did you mean b?"),
        ("text\tb\nsave\tfile\n", (), "line 1 has no column a"),
    ):
        (tmp_path / "new.tsv").write_text(text)
        code, out, err = command("predict", "run", "new.tsv", *options, "--out", "answers", cwd=tmp_path)
        assert (code, out, err) == (2, "", f"rembed: new.tsv, {message}\n")
        assert not (tmp_path / "answers").exists()
    (tmp_path / "new.tsv").write_text("one\ttwo\nsave\tfile\n")
    code, out, _ = command("predict", "run", "new.tsv", "--text", "one", "--pair", "two", cwd=tmp_path)
    assert code == 0 and json.loads(out)["id"] == "2"
    options = ("--text", "one", "--pair", "two", "--probabilities")
    code, _, err = command("predict", "run", "new.tsv", *options, cwd=tmp_path)
    assert (code, err) == (2, "rembed: task own chooses among no labels of a text: it has no probabilities\n")
    (tmp_path / "new.txt").write_text("one\ttwo\nsave\tfile\n")
    code, _, err = command("predict", "run", "new.txt", cwd=tmp_path)
    assert (code, "let it end in .jsonl, .tsv or .csv" in err) == (2, True)


@pytest.mark.parametrize("kind", ["texts", "tags"])
def test_a_fine_tuned_task_becomes_a_preset(kind, learnt, command):
    task, run, _ = learnt(kind)
    words = ("convert", "run", "made", "--from", "run", "--to", "preset", "--task", "own")
    code, out, err = command(*words, cwd=run.parent)
    assert code == 0, err
    folder = run.parent / "made"
    labels = task.labels if kind == "texts" else task.tags
    assert json.loads((folder / "labels.json").read_text()) == labels
    assert "from_preset('made')" in out
    answerer = Answerer(run)
    examples = task.splits.test["en"]
    texts = [example.text if kind == "texts" else list(example.words) for example in examples]
    model = type(answerer.model).from_preset(str(folder))
    assert model.preprocessor.sequence_length == answerer.sequence_length
    outputs = model.predict(texts, verbose=0)
    expected = answerer.model.predict(answerer.task.encode(examples, answerer.tokenizer, 24).inputs, verbose=0)
    np.testing.assert_allclose(outputs, expected, atol=1e-5)
    if kind == "texts":
        lines = [json.loads(line) for line in lines_of(answerer.probabilities(examples))]
        shares = [[line["probabilities"][label] for label in labels] for line in lines]
        np.testing.assert_allclose(shares, np.exp(outputs) / np.exp(outputs).sum(axis=1, keepdims=True), atol=1e-5)
        assert [line["id"] for line in lines] == [example.id for example in examples]
        assert all(max(line["probabilities"], key=line["probabilities"].get) == line["answer"] for line in lines)


def test_a_task_of_several_candidates_leaves_its_run_and_answers_no_file(corpus, tmp_path, command):
    rows = [
        Labelled(f"{i}-{word}", f"{word} it", "open", str(word == "open").lower(), str(i))
        for i in range(2)
        for word in ("open", "save")
    ]
    workdir = Workdir(tmp_path / "run")
    (workdir.path / "corpus").symlink_to(corpus.path)
    with contextlib.closing(workdir), eagerly():
        learn(workdir, Candidates("own", Splits(rows, {}, {"en": rows})))
    words = ("convert", "run", "made", "--from", "run", "--task", "own", "--to")
    assert command(*words, "savedmodel", cwd=tmp_path)[2].startswith(
        "rembed: task own becomes no SavedModel, but a preset"
    )
    assert command("predict", "run", "new.tsv", cwd=tmp_path)[2].startswith("rembed: task own answers no file: its")
    code, _, err = command(*words, "preset", cwd=tmp_path)
    assert code == 0, err
    assert json.loads((tmp_path / "made/labels.json").read_text()) == ["false", "true"]
    answerer, model = Answerer(tmp_path / "run"), Classifier.from_preset(str(tmp_path / "made"))
    outputs = model.predict(([row.text for row in rows], [row.pair for row in rows]), verbose=0)
    expected = answerer.model.predict(answerer.task.encode(rows, answerer.tokenizer, 24).inputs, verbose=0)
    np.testing.assert_allclose(outputs, expected, atol=1e-6)


def test_a_preset_of_a_task_of_questions_reads_windows_as_the_task_did(learnt, tmp_path):
    task, run, _ = learnt("questions")
    answerer = Answerer(run)
    answerer.save_to_preset(tmp_path / "made")
    preprocessor = type(answerer.model).from_preset(str(tmp_path / "made")).preprocessor
    long = [replace(each, question="what? " * 9, context=each.context * 9) for each in task.splits.test["en"]]
    expected = task.encode(long, answerer.tokenizer, 24).inputs
    found = preprocessor(([each.question for each in long], [each.context for each in long]), y=None)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)


def test_a_disk_without_room_for_a_preset_of_a_task_is_reported_before_it_is_written(learnt, tmp_path, full_disk):
    with pytest.raises(UserError, match="made cannot be written: No space left on device"):
        Answerer(learnt("questions")[1]).save_to_preset(tmp_path / "made")
    assert not [*tmp_path.iterdir()]


def test_a_word_is_a_line_whatever_it_has():
    sentence = Tagged("0", ("New\nYork", "a\tb"))
    assert [*lines_of([(sentence, ["B-LOC", "O"])])] == ["New York\tB-LOC\na b\tO\n\n"]
