"""Every part of a task is answered for itself, whatever it is called."""

import json
from functools import partial

import numpy as np
import pytest

from rembed_keras.modeling import Encoder
from rembed_keras.tasks import Classification
from rembed_keras.tasks.encoding import predict
from rembed_keras.tasks.examples import Labelled, Splits
from rembed_keras.training import AdamW, Answerer, evaluate, finetune, submit
from rembed_keras.training.workdir import Workdir

pytestmark = [
    pytest.mark.usefixtures("without_graphs"),
    pytest.mark.filterwarnings("ignore:.*run_functions_eagerly:UserWarning"),
]


def examples(words):
    return [Labelled(str(i), word, None, ("yes", "no")[i % 2]) for i, word in enumerate(words.split())]


PARTS = {"en": "save open the table", "dev": "window file", "test": "all in and", "test-dev": "of with the new name"}


def test_a_part_called_dev_is_not_answered_as_the_development_data(corpus, tmp_path):
    parts = {name: examples(words) for name, words in PARTS.items()}
    task = Classification("parts", Splits(examples("save open"), {"en": examples("name new old")}, parts))
    settings = {"encoder": partial(Encoder, 900, 1, 2, 8, 16, 4, max_sequence_length=32), "sequence_length": 12}
    rates = {"starts": ("scratch",), "learning_rates": (0.1, 0.01), "seeds": (0,), "jit_compile": False}
    workdir = Workdir(tmp_path / "run")
    (workdir.path / "corpus").symlink_to(corpus.path)
    finetune(workdir, lambda learning_rate, multipliers: AdamW(learning_rate), task, **settings, **rates)
    evaluate(workdir, task, **settings, **rates)
    answered = {}
    submit(workdir, task, lambda *of: answered.update({of[4]: of[3]}), **settings, start="scratch")
    workdir.close()
    answerer = Answerer(workdir.path)
    for name, part in parts.items():
        inputs = task.encode(part, corpus.tokenizer, 12).inputs
        right = [task.labels[i] for i in np.argmax(predict(answerer.model, inputs), axis=-1)]
        path = workdir.path / f"predictions/parts/scratch-seed0.{name}.jsonl"
        assert [json.loads(row)["answer"] for row in path.read_text().splitlines()] == right == answered[name]
