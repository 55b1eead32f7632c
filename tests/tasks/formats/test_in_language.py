"""A language's own splits: parts that share nothing, always alike, with labels that were trained on."""

import pytest

from rembed_keras.errors import UserError
from rembed_keras.tasks import Candidates, Classification, Regression, in_language
from rembed_keras.tasks.kinds.examples import Labelled, Splits

ROWS = [Labelled(str(i), f"text {i}", label="abc"[i % 3]) for i in range(60)] + [Labelled("odd", "x", label="rare")]
SPLITS = Splits([], {}, {"de": ROWS, "fr": ROWS[:19], "is": [Labelled(str(i), "x") for i in range(60)]})


def test_the_parts_are_all_there_is_once_and_always_alike():
    own = in_language(SPLITS, "de")
    parts = [own.train, own.dev["de"], own.test["de"]]
    ids = [row.id for part in parts for row in part]
    assert len(ids) == len(set(ids)) and {*ids} - {"odd"} == {row.id for row in ROWS} - {"odd"}
    assert [len(part) for part in parts] == pytest.approx([30, 6, 24], abs=1)
    assert in_language(SPLITS, "de") == own
    assert {row.label for part in parts[1:] for row in part} <= {row.label for row in own.train}


def test_a_task_is_made_of_them():
    task = Classification("own", in_language(SPLITS, "de"))
    assert {"a", "b", "c"} <= {*task.labels} and [*task.scored] == ["de"] and task.validation


def test_numbers_that_no_training_example_has_are_scored():
    rows = [Labelled(str(i), f"text {i}", label=i / 7) for i in range(40)]
    task = Regression("own", in_language(Splits([], {}, {"de": rows}), "de"))
    assert [len(task.splits.train), len(task.validation), len(task.scored["de"])] == [20, 4, 16]


def test_candidates_of_a_question_stay_together():
    rows = [
        Labelled(f"{question}-{each}", "asked", each, each, group=str(question), answer=each)
        for question in range(40)
        for each in ("true", "false")
    ]
    own = in_language(Splits([], {}, {"de": rows}), "de")
    parts = [own.train, own.dev["de"], own.test["de"]]
    assert [len(part) for part in parts] == [40, 8, 32]
    assert sum(len({row.group for row in part}) for part in parts) == 40
    task = Candidates("own", own)
    assert task.count(task.scored["de"], "accuracy") == 16


@pytest.mark.parametrize(
    ("language", "said"),
    [("it", "no test examples in 'it'"), ("fr", "19 test examples in 'fr'"), ("is", "0 test examples in 'is'")],
)
def test_what_cannot_be_split_is_refused(language, said):
    with pytest.raises(UserError, match=said):
        in_language(SPLITS, language)
