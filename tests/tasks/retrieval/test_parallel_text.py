import numpy as np
import pytest
from scipy.spatial.distance import cdist

from rembed_keras.data import sample
from rembed_keras.errors import UserError
from rembed_keras.modeling import Encoder
from rembed_keras.tasks import ParallelText
from rembed_keras.tasks.baselines import tfidf_similarity
from rembed_keras.tasks.kinds.encoding import encode
from rembed_keras.tasks.retrieval.parallel_text import (
    check_translations,
    embed,
    hits_at_1,
    precision_at_1,
    sentence_encoder,
)
from tests.modeling.forward import forward


def test_vectors_are_centered_per_language():
    rng = np.random.default_rng(0)
    ours = rng.normal(size=(60, 5))
    theirs = ours + rng.normal(size=5) * 10 + 0.5 * rng.normal(size=(60, 5))
    moved = ours + (theirs - ours).mean(axis=0)
    distance = cdist(moved, theirs)
    expected = (distance.argmin(axis=1) == np.arange(60)).mean(), (distance.argmin(axis=0) == np.arange(60)).mean()
    assert precision_at_1(ours, theirs) == pytest.approx(expected)
    assert 0.3 < expected[0] < 0.99


def test_a_tie_counts_as_its_expected_value():
    assert hits_at_1(np.zeros((4, 4))) == (0.25, 0.25)
    assert hits_at_1(np.eye(4)) == (1.0, 1.0)


@pytest.mark.parametrize("layers", [2, 3])
def test_a_sentence_is_the_mean_of_its_own_tokens(corpus, layers):
    encoder = Encoder(900, layers, 2, 16, 32, 8, max_sequence_length=16)
    texts = ["save the document", "a", "the file is saved in the folder that you chose before this one was made"]
    inputs = encode(texts, corpus.tokenizer, 16)
    states = [np.asarray(state) for state in encoder(inputs)["hidden_states"]]
    middle = states[1] if layers == 2 else (states[1] + states[2]) / 2
    vectors = forward(sentence_encoder(encoder), inputs)
    for i in range(3):
        length = inputs["padding_mask"][i].sum()
        np.testing.assert_allclose(vectors[i], middle[i, 1 : length - 1].mean(axis=0), atol=1e-5)


def test_parallel_files_are_paired_by_line(corpus, tmp_path):
    (tmp_path / "en.txt").write_text("one\ntwo\n\nfour\n")
    (tmp_path / "de.txt").write_text("eins\n\ndrei\nvier\n")
    text = ParallelText(tmp_path)
    assert text.languages == ["de"]
    assert text.pairs("de").tolist() == [0, 3]
    vectors = embed(sentence_encoder(Encoder(900, 2, 2, 16, 32, 8)), text, corpus.tokenizer, 16)
    assert {language: rows.shape for language, rows in vectors.items()} == {"de": (4, 16), "en": (4, 16)}


def test_files_that_cannot_be_paired_are_named(tmp_path):
    (tmp_path / "de.txt").write_text("eins\n")
    with pytest.raises(UserError, match=r"has no en\.txt"):
        ParallelText(tmp_path)
    (tmp_path / "en.txt").write_text("one\ntwo\n")
    with pytest.raises(UserError, match=r"de\.txt has 1 lines and .*en\.txt 2"):
        ParallelText(tmp_path)


def test_a_text_in_the_working_directory_has_its_name(tmp_path, monkeypatch):
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines/en.txt").write_text("a\n")
    monkeypatch.chdir(tmp_path / "lines")
    assert ParallelText(".").name == ParallelText(tmp_path / "lines").name == "lines"


def test_two_texts_of_one_name_are_refused_whose_scores_would_replace_each_other(tmp_path):
    for folder in ("old/text", "new/text", "new/other"):
        (tmp_path / folder).mkdir(parents=True)
        for language in ("en", "de"):
            (tmp_path / folder / f"{language}.txt").write_text("a\n")
    old, new, other = (ParallelText(tmp_path / folder) for folder in ("old/text", "new/text", "new/other"))
    check_translations([old, other])
    with pytest.raises(UserError, match="there are two parallel texts called text"):
        check_translations([old, other, new])


def test_a_language_without_a_pair_is_refused_and_one_whose_pairs_come_later_left_out(tmp_path):
    for language, lines in {"en": "one\ntwo\n\n", "de": "eins\n\ndrei\n", "fr": "\ndeux\n\n"}.items():
        (tmp_path / f"{language}.txt").write_text(lines)
    with pytest.warns(UserWarning, match=r"fr\.txt has no line among the first 1 that .*en\.txt has too"):
        text = ParallelText(tmp_path, most_lines=1)
    assert text.languages == ["de"] and text.lines == {"de": ["eins"], "en": ["one"]}
    assert ParallelText(tmp_path).languages == ["de", "fr"]
    (tmp_path / "nn.txt").write_text("\n\ntri\n")
    for most in (None, 1):
        with pytest.raises(UserError, match=r"nn\.txt has no line that .*en\.txt has too: remove it"):
            ParallelText(tmp_path, most_lines=most)


@pytest.mark.parametrize(("folder", "languages"), [(sample.help_folder(), 23), (sample.declarations_folder(), 54)])
def test_the_embedded_text_is_parallel(folder, languages):
    text = ParallelText(folder)
    assert len(text.languages) == languages
    rows = text.pairs("es")
    ours, theirs = ([text.lines[name][i] for i in rows] for name in ("en", "es"))
    assert min(hits_at_1(tfidf_similarity(ours, theirs))) > 0.5  # related languages share words, if lines agree
