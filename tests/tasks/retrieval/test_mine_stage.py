"""Bitext mining: what is scored, and that development data is called so; and retrieval, by which encoders."""

import contextlib
import json

import keras
import numpy as np
import pytest

from rembed_keras.errors import UserError
from rembed_keras.tasks.retrieval import parallel_text
from rembed_keras.tasks.retrieval.bitext import Bitext, BitextSplits
from rembed_keras.training import mine, retrieve
from rembed_keras.training.initial.encoder_start import EncoderStart
from rembed_keras.training.loop.workdir import Workdir
from rembed_keras.training.stages import submit as submission

pytestmark = pytest.mark.usefixtures("without_graphs")
SENTENCES = ("Save the file.", "Open the table.", "Click the button.", "Close the document.")


def bitext(has_gold):
    ids = [f"{i:02}" for i in range(len(SENTENCES))]
    sides = [{f"{language}-{i}": text for i, text in zip(ids, SENTENCES, strict=True)} for language in ("en", "de")]
    return Bitext(*sides, frozenset((f"de-{i}", f"en-{i}") for i in ids) if has_gold else None)


@pytest.mark.parametrize(("is_open", "metric"), [(True, "f1"), (False, "dev f1")])
def test_the_score_of_a_development_set_is_called_so(is_open, metric, corpus, pretrained, tmp_path):
    texts = BitextSplits({"de": bitext(True)}, {"de": bitext(is_open)})
    workdir = Workdir(tmp_path / "run")
    (workdir.path / "corpus").symlink_to(corpus.path)
    mine(workdir, "bucc2018", texts, pretrained=str(pretrained), sequence_length=16)
    (score,) = json.loads(workdir.scores.read_text())
    workdir.close()
    assert (score["metric"], score["n"]) == (metric, len(SENTENCES))  # its value is the chance of an untrained encoder
    assert (workdir.path / "submission/bucc2018/test-de.tsv").exists() != is_open


def test_vectors_that_are_not_finite_retrieve_nothing_and_are_refused(corpus, pretrained, tmp_path, monkeypatch):
    workdir = Workdir(tmp_path / "run")
    (workdir.path / "corpus").symlink_to(corpus.path)
    monkeypatch.setattr(submission, "predict", lambda *_: np.array([[1.0, 0.0], [0.0, np.nan]] * 2))
    for texts in (BitextSplits({"de": bitext(True)}, {"de": bitext(True)}), BitextSplits({}, {"de": bitext(True)})):
        with pytest.raises(UserError, match="the encoder's outputs for the bitext of de are not finite"):
            mine(workdir, "found", texts, pretrained=str(pretrained), sequence_length=16)
    for language in ("en", "de"):
        (tmp_path / f"{language}.txt").write_text("Save.\nOpen.\n")
    monkeypatch.setattr(parallel_text, "predict", lambda *_: np.array([[1.0, 0.0], [0.0, np.nan]] * 2))
    with pytest.raises(UserError, match=r"the pretrained encoder's outputs for .* are not finite"):
        retrieve(workdir, [parallel_text.ParallelText(tmp_path)], pretrained=str(pretrained), sequence_length=16)
    workdir.close()
    assert not workdir.scores.exists()


def test_the_pretrained_encoder_is_asked_and_then_what_it_was_before_pre_training(pretrained, tmp_path, monkeypatch):
    for language in ("en", "de"):
        (tmp_path / f"{language}.txt").write_text("\n".join(SENTENCES))
    seen, predict = [], parallel_text.predict
    monkeypatch.setattr(parallel_text, "predict", lambda *asked: seen.append(predict(*asked)) or seen[-1])
    text = parallel_text.ParallelText(tmp_path)
    with contextlib.closing(Workdir(tmp_path / "run")) as workdir:
        retrieve(workdir, [text], pretrained=str(pretrained), sequence_length=16, seed=3)
    start = EncoderStart(tmp_path, None, str(pretrained))
    keras.utils.set_random_seed(3)
    encoder = start.fresh()
    for is_pretrained in (False, True):
        if is_pretrained:
            start.start(encoder, "pretrained")
        parallel_text.embed(parallel_text.sentence_encoder(encoder), text, start.tokenizer, 16)
    np.testing.assert_allclose(seen[:2], [seen[3], seen[2]], atol=1e-6)
    assert np.abs(seen[0] - seen[1]).max() > 0.01
