"""Bitext retrieval while an encoder is pre-trained, and what is found without one."""

import pytest

from rembed_keras.errors import UserError
from rembed_keras.tasks.retrieval.parallel_text import ParallelText
from rembed_keras.training.distributed.strategies import place
from rembed_keras.training.evaluators import BitextRetrieval
from rembed_keras.training.evaluators.evaluator import EvaluationData
from tests.training.evaluators.test_held_out_loss import compiled
from tests.training.pretraining import make_mixture


def write(folder, **languages):
    folder.mkdir()
    for language, lines in languages.items():
        (folder / f"{language}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return ParallelText(folder)


def test_baselines_stand_beside_it(held_out_corpus, tmp_path):
    """German words share letters with English ones, Japanese none; of Finnish the corpus knows nothing."""
    english = ["the import", "a format", "some lines", "four letters"]
    german = ["der import", "ein format", "", "vier letters"]
    text = write(tmp_path / "lines", en=english, de=german, ja=["ア", "イ", "ウ", "エ"], fi=["a", "b", "c", "d"])
    data = EvaluationData(make_mixture(held_out_corpus), place("one_device", 4))
    found = BitextRetrieval([text], 12).evaluate(compiled(), data)
    assert {name for name in found if name.startswith("retrieval/")} == {
        "retrieval/lines", "retrieval/lines/de", "retrieval/lines/ja"
    }  # fmt: skip
    assert found["baseline/retrieval/lines/chance"] == pytest.approx((1 / 3 + 1 / 4) / 2)
    assert found["baseline/retrieval/lines/tfidf"] == pytest.approx((1 + 1 / 4) / 2)
    assert found == BitextRetrieval([text], 12).evaluate(compiled(), data)
    unknown = write(tmp_path / "unknown", en=english, fi=english)
    with pytest.raises(UserError, match="BitextRetrieval: unknown has no language of the corpus beside en"):
        BitextRetrieval([unknown], 12).evaluate(compiled(), data)
