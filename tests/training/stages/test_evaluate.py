"""Every part of a task is answered for itself, whatever it is called."""

import json
from functools import partial

import numpy as np
import pytest

from rembed_keras.adaptation import Biases
from rembed_keras.errors import UserError
from rembed_keras.modeling import Encoder
from rembed_keras.tasks import Classification
from rembed_keras.tasks.kinds.encoding import predict
from rembed_keras.tasks.kinds.examples import Labelled, Splits
from rembed_keras.training import AdamW, Answerer, evaluate, finetune, submit

pytestmark = pytest.mark.usefixtures("without_graphs")


def examples(words):
    return [Labelled(str(i), word, None, ("yes", "no")[i % 2]) for i, word in enumerate(words.split())]


PARTS = {"en": "save open the table", "dev": "window file", "test": "all in and", "test-dev": "of with the new name"}


SETTINGS = {"encoder": partial(Encoder, 900, 1, 2, 8, 16, 4, max_sequence_length=32), "sequence_length": 12}
MODELS = {"starts": ("scratch",), "seeds": (0,), "jit_compile": False}


def optimizer(learning_rate):
    return AdamW(learning_rate)


def test_a_part_called_dev_is_not_answered_as_the_development_data(corpus, workdir):
    parts = {name: examples(words) for name, words in PARTS.items()}
    task = Classification("parts", Splits(examples("save open"), {"en": examples("name new old")}, parts))
    rates = MODELS | {"learning_rates": (0.1, 0.01)}
    finetune(workdir, optimizer, task, **SETTINGS, **rates)
    evaluate(workdir, task, **SETTINGS, **rates)
    answered = {}
    submit(workdir, task, lambda *of: answered.update({of[4]: of[3]}), **SETTINGS, start="scratch")
    answerer = Answerer(workdir.path)
    for name, part in parts.items():
        inputs = task.encode(part, corpus.tokenizer, 12).inputs
        right = [task.labels[i] for i in np.argmax(predict(answerer.model, inputs), axis=-1)]
        path = workdir.path / f"predictions/parts/scratch-seed0.{name}.jsonl"
        assert [json.loads(row)["answer"] for row in path.read_text().splitlines()] == right == answered[name]


def test_models_of_another_task_of_the_same_name_are_not_taken_for_its_own(workdir):
    def task(words):
        return Classification("same", Splits(examples(words), {}, {"en": examples("table file")}))

    finetune(workdir, optimizer, task("save open"), **SETTINGS, **MODELS)
    log = workdir.metrics.path.read_bytes()
    finetune(workdir, optimizer, task("save open"), **SETTINGS, **MODELS)
    assert workdir.metrics.path.read_bytes() == log  # done
    for others, key in (({}, "examples_sha256"), ({"epochs": 4}, "epochs"), ({"methods": [Biases()]}, "methods")):
        with pytest.raises(UserError, match=rf"finetuned/same has models whose {key} is .*: give each task a name"):
            finetune(workdir, optimizer, task("save open" if others else "open save"), **SETTINGS, **MODELS, **others)


def test_what_was_not_scored_is_not_handed_in(workdir):
    task = Classification("x", Splits(examples("save open"), {}, {"en": examples("table file")}))
    (workdir.finetuned / "x").mkdir(parents=True)
    with pytest.raises(UserError, match=r"chosen\.json cannot be read: No such file"):
        submit(workdir, task, None, **SETTINGS)
    (workdir.finetuned / "x/chosen.json").write_text('{"scratch": 0.1}')
    with pytest.raises(UserError, match="submit/x: evaluate has scored no model that started pretrained"):
        submit(workdir, task, None, **SETTINGS)
