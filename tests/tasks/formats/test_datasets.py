"""On the library's own mock data: the real features of a data set with random values, without a download."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest

from rembed_keras.errors import UserError
from rembed_keras.tasks import labelled_dataset

pytestmark = pytest.mark.slow


@pytest.fixture
def library():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made_up = pytest.importorskip(
            "tensorflow_datasets", reason="needs the extra: pip install 'rembed-keras[tasks]'"
        )
        with made_up.testing.mock_data(num_examples=6):
            yield made_up


def test_a_pair_task_is_read_by_name_and_version(library):
    part = ("glue/mrpc:2.0.0", "validation")
    splits = labelled_dataset(("glue/mrpc:2.0.0", "train"), test={"en": part}, text="sentence1", pair="sentence2")
    assert len(splits.train) == len(splits.test["en"]) == 6 and not splits.dev
    rows = library.as_numpy(library.load("glue/mrpc:2.0.0", split="train"))
    for example, row in zip(splits.train, rows, strict=True):
        assert (example.text, example.pair) == (row["sentence1"].decode(), row["sentence2"].decode())
        assert example.label == ("not_equivalent", "equivalent")[row["label"]]


def test_numbers_stay_numbers(library):
    splits = labelled_dataset(("glue/stsb:2.0.0", "train"), text="sentence1", pair="sentence2", id="idx")
    assert all(isinstance(example.label, float) for example in splits.train)
    assert all(example.id.lstrip("-").isdigit() for example in splits.train)


@pytest.mark.parametrize(
    ("dtype", "numeric", "values", "labels"),
    [
        ("int64", False, [3, -1, 0], ["3", None, "0"]),
        ("int64", True, [3, -1, 0], [3.0, None, 0.0]),
        ("bool", False, [True, False, True], ["true", "false", "true"]),
        ("float32", False, [0.5, -1.0, 0.0], [0.5, None, 0.0]),
        ("label", False, [2, -1, 0], ["c", None, "a"]),
        ("label", True, [2, -1, 0], [2.0, None, 0.0]),
        ("text", False, [b"x", b"-2", b"z"], ["x", "-2", "z"]),
    ],
)
def test_a_test_label_of_minus_one_is_none_and_whole_numbers_are_names(
    dtype, numeric, values, labels, library, monkeypatch
):
    features = library.features
    known = {"label": features.ClassLabel(names=["a", "b", "c"]), "text": features.Text()}
    feature = known[dtype] if dtype in known else features.Tensor(shape=(), dtype=np.dtype(dtype))

    class Made:
        info = SimpleNamespace(features={"text": features.Text(), "label": feature})

        def download_and_prepare(self):
            """It is there."""

        def as_dataset(self, split):
            raw = [
                value if dtype == "text" else np.dtype("int64" if dtype == "label" else dtype).type(value)
                for value in values
            ]
            return [{"text": b"t", "label": value} for value in (raw if split == "test" else raw[::2])]

    monkeypatch.setattr(library, "builder", lambda *_, **__: Made())
    monkeypatch.setattr(library, "as_numpy", lambda rows: rows)
    splits = labelled_dataset(("made:1.0.0", "train"), test={"en": ("made:1.0.0", "test")}, numeric=numeric)
    assert [example.label for example in splits.train] == labels[::2]
    assert [example.label for example in splits.test["en"]] == labels


def test_minus_one_is_a_label_where_training_examples_have_it(library, monkeypatch):
    rows = [{"text": b"t", "label": np.int64(value)} for value in (-1, 1)]
    made = SimpleNamespace(
        info=SimpleNamespace(features={"text": None, "label": None}),
        download_and_prepare=lambda: None,
        as_dataset=lambda split: rows,
    )
    monkeypatch.setattr(library, "builder", lambda *_, **__: made)
    monkeypatch.setattr(library, "as_numpy", lambda found: found)
    splits = labelled_dataset(("made:1.0.0", "train"), test={"en": ("made:1.0.0", "test")})
    assert [example.label for example in splits.test["en"]] == ["-1", "1"]


def test_ids_that_come_twice_are_refused(library, monkeypatch):
    rows = [{"text": b"t", "label": b"a", "id": np.int64(value)} for value in (1, 2, 1)]
    made = SimpleNamespace(
        info=SimpleNamespace(features={"text": None, "label": None, "id": None}),
        download_and_prepare=lambda: None,
        as_dataset=lambda split: rows,
    )
    monkeypatch.setattr(library, "builder", lambda *_, **__: made)
    monkeypatch.setattr(library, "as_numpy", lambda found: found)
    assert [example.id for example in labelled_dataset(("made:1.0.0", "train")).train] == ["0", "1", "2"]
    with pytest.raises(UserError, match=r"made:1\.0\.0, split train: two examples have the id '1': name a feature of"):
        labelled_dataset(("made:1.0.0", "train"), id="id")


def damaged():
    yield {"text": b"t", "label": b"a"}
    raise RuntimeError("corrupted record at 17\n[Op:IteratorGetNext]")


@pytest.mark.parametrize(
    ("rows", "said"),
    [(damaged, "corrupted record at 17$"), (lambda: [{"text": b"\xe9", "label": b"a"}], "'utf-8' codec")],
)
def test_files_that_cannot_be_read_are_one_line(rows, said, library, monkeypatch):
    made = SimpleNamespace(
        info=SimpleNamespace(features={"text": None, "label": None}),
        download_and_prepare=lambda: None,
        as_dataset=lambda split: rows(),
    )
    monkeypatch.setattr(library, "builder", lambda *_, **__: made)
    monkeypatch.setattr(library, "as_numpy", lambda found: found)
    with pytest.raises(UserError, match=rf"^data set made:1\.0\.0, split train: {said}"):
        labelled_dataset(("made:1.0.0", "train"))


def test_mistakes_are_named(library):
    with pytest.raises(UserError, match=r"data set glu/mrpc:2\.0\.0, split train: "):
        labelled_dataset(("glu/mrpc:2.0.0", "train"))
    with pytest.raises(UserError, match=r"data set glue/mrpc:2\.0\.0 has no text in its feature idx, but "):
        labelled_dataset(("glue/mrpc:2.0.0", "train"), text="sentence1", pair="idx")
    with pytest.raises(UserError, match=r"data set glue/mrpc:2\.0\.0 has no feature text; it has "):
        labelled_dataset(("glue/mrpc:2.0.0", "train"))
