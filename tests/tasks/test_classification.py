import gzip

import numpy as np
import pytest

from rembed_keras.data import sample
from rembed_keras.errors import UserError
from rembed_keras.tasks import LabelledTask
from rembed_keras.tasks.baselines import majority, tfidf_classifier
from rembed_keras.tasks.classification import batches
from rembed_keras.tasks.encoding import encode

GOOD = {
    "train.en.tsv": "text\tlabel\nred apple\tfruit\ngreen leek\tvegetable\n",
    "dev.en.tsv": "text\tlabel\nold apple\tfruit\n",
    "test.de.tsv": "text\tlabel\nroter Apfel\tfruit\n",
}


def write(folder, files):
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_a_folder_becomes_a_task(tmp_path):
    (tmp_path / "test.fr.tsv.gz").write_bytes(gzip.compress(b"text\tlabel\npoireau\tvegetable\n"))
    task = LabelledTask(write(tmp_path, GOOD))
    assert task.labels == ["fruit", "vegetable"]
    assert task.train[0] == ["red apple", "green leek"] and task.train[1].tolist() == [0, 1]
    assert {language: labels.tolist() for language, (_, labels) in task.test.items()} == {"de": [0], "fr": [1]}


def test_fewer_examples_can_be_asked_for(tmp_path):
    write(tmp_path, GOOD)
    with pytest.raises(UserError, match=r"train_size is 3; task .* has 2 examples"):
        LabelledTask(tmp_path, train_size=3)
    assert LabelledTask(tmp_path, train_size=2).train[0] == ["red apple", "green leek"]


MISTAKES = {
    r"has no train\.en\.tsv": {"train.en.tsv": None},
    r"has no test\.<language>\.tsv": {"test.de.tsv": None},
    r"dev\.en\.tsv, line 1 must be text<TAB>label": {"dev.en.tsv": "apple\tfruit\n"},
    r"train\.en\.tsv, line 3 is not text<TAB>label": {"train.en.tsv": "text\tlabel\na\tfruit\nleek\n"},
    r"label 'stone' is not in the training data": {"test.de.tsv": "text\tlabel\nKiesel\tstone\n"},
    r"has one label": {"train.en.tsv": "text\tlabel\na\tfruit\n"},
    r"dev\.en\.tsv has no examples": {"dev.en.tsv": "text\tlabel\n"},
}


@pytest.mark.parametrize("message", MISTAKES)
def test_mistakes_are_named(message, tmp_path):
    files = {name: text for name, text in (GOOD | MISTAKES[message]).items() if text is not None}
    with pytest.raises(UserError, match=message):
        LabelledTask(write(tmp_path, files))


def test_training_order_is_a_permutation_for_each_pass():
    inputs, labels = {"token_ids": np.arange(10)[:, None]}, np.arange(10)
    data = batches(inputs, labels, 4, seed=1)
    seen = np.concatenate([data[step][1] for step in range(10)])
    for one_pass in np.split(seen, 4):
        assert sorted(one_pass) == list(range(10))
    assert len({tuple(one_pass) for one_pass in np.split(seen, 4)}) == 4
    np.testing.assert_array_equal(data[7][0]["token_ids"][:, 0], data[7][1])


def test_encoding_cuts_and_pads(corpus):
    inputs = encode(["save", "the document " * 50], corpus.tokenizer, 12)
    short, long = inputs["token_ids"]
    ids = corpus.tokenizer.encode("save")
    assert short.tolist() == [2, *ids, 3] + [0] * (10 - len(ids))
    assert long[0] == 2 and long[-1] == 3 and (long[1:-1] > 4).all()
    np.testing.assert_array_equal(inputs["padding_mask"], (inputs["token_ids"] != 0).astype(int))


def test_the_embedded_task_is_learnable_and_its_splits_are_apart():
    task = LabelledTask(sample.topics_folder())
    assert len(task.labels) == 8 and len(task.test) == 25
    held_out = {text for texts, _ in (*task.test.values(), task.dev) for text in texts}
    assert not held_out & set(task.train[0])
    assert not set(task.dev[0]) & set(task.test["en"][0])
    model = tfidf_classifier(task.train[0][:2000], task.train[1][:2000])
    texts, labels = task.test["en"]
    most = (majority(task.train[1], len(labels)) == labels).mean()
    assert (model.predict(texts) == labels).mean() > most + 0.15
