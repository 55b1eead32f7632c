import numpy as np
import pytest

from rembed_keras.errors import UserError
from rembed_keras.tasks.retrieval.bitext import (
    Bitext,
    BitextSplits,
    bucc_candidates,
    bucc_pairs,
    bucc_scores,
    bucc_thresholds,
    tatoeba_rows,
    tatoeba_scores,
)
from rembed_keras.tasks.retrieval.mining import best_threshold, mine, mining_f1, tatoeba_accuracy


def corpora(seed, size=40, translated=15):
    """A bitext whose first sentences are translations, shuffled in each language, and its vectors."""
    rng = np.random.default_rng(seed)
    orders = rng.permutation(size), rng.permutation(size)
    meanings = rng.normal(size=(size, 16)) + 0.5
    strangers = rng.normal(size=(size, 16)) + 0.5
    english = Bitext({f"en-{i:09}": f"sentence {i}" for i in orders[0]}, {}).english
    others = {f"de-{i:09}": f"Satz {i}" for i in orders[1]}
    gold = frozenset((f"de-{i:09}", f"en-{i:09}") for i in range(translated))
    noise = 0.2 * rng.normal(size=meanings.shape)
    its_meanings = np.where(np.arange(size)[:, None] < translated, meanings + noise, strangers)
    return Bitext(english, others, gold), (meanings[orders[0]], its_meanings[orders[1]])


def test_pairs_are_mined_from_the_other_language_to_english_and_named_by_id():
    bitext, (english, others) = corpora(0)
    found = bucc_candidates(bitext, english, others)
    ids = list(bitext.others), list(bitext.english)
    assert found == {(ids[0][s], ids[1][t]): score for (s, t), score in mine(others, english).items()}
    assert len(set(list(found)[:15]) & bitext.gold) >= 13


def test_the_threshold_is_chosen_on_the_development_set():
    (dev, dev_vectors), (test, test_vectors) = corpora(1), corpora(2)
    thresholds = bucc_thresholds({"de": dev}, {"de": dev_vectors})
    assert thresholds == {"de": best_threshold(bucc_candidates(dev, *dev_vectors), dev.gold)}
    scores = bucc_scores({"de": test}, {"de": test_vectors}, thresholds)
    expected = mining_f1(bucc_candidates(test, *test_vectors), test.gold, thresholds["de"])
    assert scores == {"de": {"f1": expected}} and expected > 0.8
    pairs = bucc_pairs({"de": test}, {"de": test_vectors}, thresholds)["de"]
    right = len(set(pairs) & test.gold)
    assert 2 * right / (len(pairs) + len(test.gold)) == pytest.approx(expected)
    assert 10 < len(pairs) < 20, "the threshold leaves out what has no translation"


def test_equal_sentences_are_ambiguous():
    english = {"en-1": "Yes.", "en-2": "No.", "en-3": "Perhaps."}
    others = {"de-1": "Ja.", "de-2": "Ja.", "de-3": "Nein.", "de-4": "Vielleicht."}
    bitext = Bitext(english, others)
    vectors = np.eye(3), np.eye(3)[[0, 0, 1, 2]]
    assert set(bucc_candidates(bitext, *vectors)) == {("de-3", "en-2"), ("de-4", "en-3")}
    alone = Bitext(english, {name: others[name] for name in ("de-1", "de-3", "de-4")})
    scores, without = bucc_candidates(bitext, *vectors), bucc_candidates(alone, np.eye(3), np.eye(3))
    assert scores["de-3", "en-2"] == without["de-3", "en-2"], "equal sentences are neighbors once"
    assert ("de-1", "en-1") in without


def test_tatoeba_is_retrieved_in_any_order():
    rng = np.random.default_rng(3)
    english = rng.normal(size=(30, 4)) * rng.uniform(0.1, 9, size=(30, 1))
    parallel = english + 2 * rng.normal(size=(30, 4))
    order = rng.permutation(30)
    shuffled = np.empty_like(parallel)
    shuffled[order] = parallel
    names = {str(i): f"line {i}" for i in range(30)}
    bitext = Bitext(names, names, frozenset((str(order[i]), str(i)) for i in range(30)))
    expected = tatoeba_accuracy(english, parallel)
    assert 0.2 < expected < 0.95 and expected != tatoeba_accuracy(parallel, english)
    assert tatoeba_scores({"de": bitext}, {"de": (english, shuffled)}) == {"de": {"accuracy": expected}}
    rows = tatoeba_rows({"de": bitext}, {"de": (english, shuffled)})["de"]
    assert np.mean(np.array(rows) == order) == pytest.approx(expected)


def test_a_vector_of_zeros_is_no_error():
    bitext = Bitext({"0": "a", "1": "b"}, {"0": "c", "1": "d"})
    assert tatoeba_rows({"de": bitext}, {"de": (np.eye(2), np.array([[0.0, 0.0], [1.0, 2.0]]))}) == {"de": [1, 1]}


def test_bitexts_without_gold_pairs_are_not_scored():
    bitext, vectors = Bitext({"0": "a"}, {"0": "b"}), {"sw": (np.eye(1), np.eye(1))}
    for score in (tatoeba_scores, bucc_thresholds, lambda *each: bucc_scores(*each, {"sw": 0.0})):
        with pytest.raises(UserError, match="gold pairs of sw are not public"):
            score({"sw": bitext}, vectors)


def test_a_test_without_a_development_set_beside_others_that_have_one_is_refused():
    bitext = Bitext({"0": "a"}, {"0": "b"})
    with pytest.raises(UserError, match="bitext of fr has no development set to choose a threshold on"):
        BitextSplits({"de": bitext}, {"de": bitext, "fr": bitext})


def test_vectors_of_other_sentences_are_refused():
    bitext = Bitext({"0": "a"}, {"0": "b", "1": "c"}, frozenset({("0", "0")}))
    for use in (tatoeba_scores, tatoeba_rows, bucc_thresholds):
        with pytest.raises(ValueError, match="there are 2 and 1 vectors for 1 English sentences and 2 others"):
            use({"sw": bitext}, {"sw": (np.eye(2), np.eye(2)[:1])})
