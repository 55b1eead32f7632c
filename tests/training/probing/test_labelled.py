"""Probes by a metric of one's own, in a language where it cannot be measured."""

import json

import numpy as np
import pytest

from rembed_keras.tasks import Classification
from rembed_keras.tasks.kinds.examples import Splits
from rembed_keras.training import probe
from rembed_keras.training.loop.workdir import Workdir
from tests.training.stages.test_probe import SETTINGS, eager, examples, run, without_figure  # noqa: F401 - fixtures


def correlation(gold, answers):
    """NaN where all labels are equal."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return float(np.corrcoef(gold, np.arange(len(answers)))[0, 1])


@pytest.mark.usefixtures("without_figure")
def test_a_metric_that_is_not_finite_in_a_language_counts_as_failed_there(run, capsys):  # noqa: F811
    files = [row for row in examples(8, 60) if row.label == "file"]
    splits = Splits(examples(20), {"en": examples(6, 20)}, {"en": examples(8, 40), "de": files, "fr": examples(6, 80)})
    workdir = Workdir(run)
    probe(workdir, [Classification("own", splits, {"correlation": correlation})], **SETTINGS)
    workdir.close()
    text = (run / "scores.json").read_text()
    assert "NaN" not in text
    values = {(row["language"], row["value"] is None) for row in json.loads(text) if row["metric"] == "correlation"}
    assert values == {("en", False), ("de", True), ("fr", False)}
    assert " / nan" in capsys.readouterr().out  # and no mean of the language that is left
    assert json.loads((run / "layers.json").read_text())["own"]
