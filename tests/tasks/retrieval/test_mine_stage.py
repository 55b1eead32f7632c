"""Bitext mining: what is scored, and that development data is called so; and retrieval, by which encoders."""

import contextlib
import errno
import json
from functools import partial

import keras
import numpy as np
import pytest

from rembed_keras.analysis.cost.ledger import ledger
from rembed_keras.analysis.reports.report import report
from rembed_keras.errors import UserError
from rembed_keras.tasks.retrieval import parallel_text
from rembed_keras.tasks.retrieval.bitext import Bitext, BitextSplits
from rembed_keras.training import mine, probe, retrieve
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


def test_what_the_encoder_keeps_is_counted_as_where_it_is_fine_tuned(pretrained, tmp_path):
    for language in ("en", "de"):
        (tmp_path / f"{language}.txt").write_text("\n".join(SENTENCES))
    stages = {
        "mine": partial(mine, name="found", texts=BitextSplits({}, {"de": bitext(True)})),
        "retrieve": partial(retrieve, texts=[parallel_text.ParallelText(tmp_path)]),
        "probe": partial(probe, parallel=[parallel_text.ParallelText(tmp_path)]),
    }
    kept = ledger(EncoderStart(tmp_path, None, str(pretrained)).blank()).to_json()
    for name, stage in stages.items():
        with contextlib.closing(Workdir(tmp_path / name)) as workdir:
            stage(workdir, pretrained=str(pretrained), sequence_length=16)
        assert json.loads((tmp_path / name / "ledger.json").read_text()) == kept
    assert report([tmp_path / "mine"]).runs[0].kept == kept["kept"]


def test_open_tests_are_scored_before_what_is_hidden_is_handed_in(pretrained, tmp_path, monkeypatch, capsys):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    texts = BitextSplits({}, {"de": bitext(True), "fr": bitext(False)})
    monkeypatch.setenv("COLUMNS", "40")
    with contextlib.closing(Workdir(tmp_path / "run[bold]")) as workdir:
        with monkeypatch.context() as patch:
            patch.setattr(submission, "write_tatoeba", full)
            with pytest.raises(OSError, match="No space left"):
                mine(workdir, "found[red]", texts, pretrained=str(pretrained), sequence_length=16)
        (score,) = json.loads(workdir.scores.read_text())
        assert (score["task"], score["language"]) == ("found[red]", "de")
        mine(workdir, "found[red]", texts, pretrained=str(pretrained), sequence_length=16)
    handed_in = f"mine/found[red]: 1 tests are hidden; what is handed in is in {workdir.path}/submission\n"
    assert capsys.readouterr().out.endswith(handed_in)


@pytest.mark.parametrize(("dev", "suite"), [({"xx": bitext(True)}, "bucc2018"), ({}, "tatoeba")])
def test_a_language_that_cannot_be_handed_in_is_refused_before_any_work(dev, suite, tmp_path):
    texts = BitextSplits(dev, {"xx": bitext(False)})
    with contextlib.closing(Workdir(tmp_path / "run")) as workdir:
        for workdir.is_rehearsal in (True, False):
            with pytest.raises(UserError, match=f"XTREME's {suite} has no language 'xx'"):
                mine(workdir, "found", texts, pretrained=str(tmp_path / "nowhere"))
        workdir.is_rehearsal = True
        mine(workdir, "found", BitextSplits(dev, {"xx": bitext(True)}), pretrained=str(tmp_path / "nowhere"))


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
