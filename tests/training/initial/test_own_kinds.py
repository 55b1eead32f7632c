"""A kind of task of one's own is trained, scored and asked, whatever of NumPy's and of Python's it gives."""

import contextlib
import json
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from keras import ops

from rembed_keras.errors import UserError
from rembed_keras.modeling import Classifier
from rembed_keras.tasks.formats.columns import TextFormat
from rembed_keras.tasks.kinds.encoding import encode_pairs
from rembed_keras.tasks.kinds.examples import Labelled, Splits
from rembed_keras.tasks.kinds.task import Task
from rembed_keras.training import Answerer, lines_of
from rembed_keras.training.initial.finetuned import begin_task, description_of, model_settings_of
from rembed_keras.training.loop.workdir import Workdir
from rembed_keras.training.stages.evaluate import check_models
from tests.training.pretraining import eagerly
from tests.training.stages.test_predict import learn

pytestmark = pytest.mark.usefixtures("without_graphs")


@keras.saving.register_keras_serializable(package="tests_of_own_kinds")
class OrdinalModel(Classifier):
    """A logit for each step from a level to the next."""

    own_metrics = ()
    takes_class_weight = False

    def losses_of(self, y, y_pred):
        return ops.mean(ops.binary_crossentropy(y, y_pred, from_logits=True), axis=-1)


class Ordinal(Task):
    """Levels in their order: one output fewer than there are levels, and answers that are NumPy's."""

    training_metrics = ()
    format = TextFormat

    def __init__(self, name, splits, labels=None):
        super().__init__(name, splits, {"near": lambda gold, answers: -np.abs(np.subtract(gold, answers)).max()})
        self.labels = labels or tuple(np.unique([each.label for each in self.splits.train]))

    def gold(self, example):
        return example.label

    def make_model(self, encoder, dropout):
        return OrdinalModel(encoder, len(self.labels) - 1, dropout)

    def model_settings(self):
        return {"steps": tuple(range(len(self.labels) - 1))}

    def encode(self, examples, tokenizer, sequence_length, num_segments=2):
        targets = None
        if all(each.label is not None for each in examples):
            targets = np.array([[each.label > level for level in self.labels[:-1]] for each in examples], np.float32)
        return encode_pairs(examples, tokenizer, sequence_length, targets, num_segments)

    def answers(self, examples, encoded, outputs):
        return np.asarray(self.labels, np.float32)[(np.asarray(outputs) > 0).sum(axis=1)]

    def correct(self, example, answer):
        return np.asarray(answer) == example.label

    def baselines(self):
        return {"lowest": lambda examples: np.full(len(examples), self.labels[0])}

    def description(self):
        return super().description() | {"labels": self.labels}


ROWS = [Labelled(str(i), f"save {i}", None, float(i % 3)) for i in range(6)]


def ordinal():
    return Ordinal("own", Splits(ROWS, {}, {"en": ROWS}))


def test_a_kind_that_answers_by_numbers_of_numpys_is_scored_and_asked(corpus, tmp_path, monkeypatch):
    workdir = Workdir(tmp_path / "run")
    (workdir.path / "corpus").symlink_to(corpus.path)
    with contextlib.closing(workdir), eagerly():
        learn(workdir, ordinal())
    kept = (tmp_path / "run/predictions/own/scratch-seed0.en.jsonl").read_text()
    rows = [json.loads(row) for row in kept.splitlines()]
    assert all(row["answer"] in (0.0, 1.0, 2.0) and row["correct"] in (True, False) for row in rows)
    (tmp_path / "new.tsv").write_text("text\n" + "".join(f"{each.text}\n" for each in ROWS))
    answerer = Answerer(tmp_path / "run")
    lines = [json.loads(line) for line in lines_of(answerer.answers(answerer.read(tmp_path / "new.tsv")))]
    assert [line["answer"] for line in lines] == [row["answer"] for row in rows]
    monkeypatch.setattr(answerer.task, "answers", lambda examples, encoded, outputs: [0.0])
    with pytest.raises(UserError, match=r"the model answers 6 examples by \[0\.0\]; it must be one each"):
        list(answerer.answers(ROWS))


def test_answers_to_examples_without_an_id_are_kept_by_their_number():
    task = ordinal()
    rows = task.predictions([SimpleNamespace(label=2.0)] * 2, [2.0, 1.0], "en")
    assert [(row["id"], bool(row["correct"])) for row in rows] == [("0", True), ("1", False)]


def test_lists_that_are_tuples_are_no_other_settings_when_a_run_goes_on(tmp_path):
    settings = begin_task(tmp_path, model_settings_of(ordinal()))
    (tmp_path / "settings.json").write_text(json.dumps(settings))
    assert begin_task(tmp_path, model_settings_of(ordinal())) == settings == {"steps": [0, 1]}
    assert description_of(ordinal())["labels"] == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("said", ["description", "model_settings"])
def test_what_json_cannot_say_of_a_task_is_refused_before_it_is_trained(said, monkeypatch):
    task = ordinal()
    monkeypatch.setattr(task, said, lambda: {"levels": {1}})
    with pytest.raises(UserError, match=rf"task own: its {said} is nothing that JSON can say: \{{1\}} is a set"):
        check_models(task, ("scratch",), (0.1,), (0,))
