"""On the library's own mock data: the real features of a data set with random values, without a download."""

import warnings

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


def test_mistakes_are_named(library):
    with pytest.raises(UserError, match=r"data set glu/mrpc:2\.0\.0, split train: "):
        labelled_dataset(("glu/mrpc:2.0.0", "train"))
    with pytest.raises(UserError, match=r"data set glue/mrpc:2\.0\.0 has no feature text; it has "):
        labelled_dataset(("glue/mrpc:2.0.0", "train"))
