import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rembed_keras.tasks.retrieval import mining
from rembed_keras.tasks.retrieval.mining import best_threshold, mine, mining_f1, tatoeba_accuracy


def cosine(x, y):
    return x @ y / np.sqrt((x @ x) * (y @ y))


def test_tatoeba_is_precision_at_1_by_cosine_from_english():
    rng = np.random.default_rng(0)
    english = rng.normal(size=(50, 6)) + 1
    others = english + 0.8 * rng.normal(size=(50, 6))
    nearest = [max(range(50), key=lambda j: cosine(english[i], others[j])) for i in range(50)]
    back = [max(range(50), key=lambda j: cosine(english[j], others[i])) for i in range(50)]
    expected = np.mean(np.array(nearest) == np.arange(50))
    assert tatoeba_accuracy(english, others) == pytest.approx(expected)
    assert tatoeba_accuracy(others, english) == pytest.approx(np.mean(np.array(back) == np.arange(50)))
    assert expected != np.mean(np.array(back) == np.arange(50)), "the two directions must differ"
    lengths = rng.uniform(0.1, 10, size=(50, 1))
    assert tatoeba_accuracy(english * lengths, others * lengths[::-1]) == pytest.approx(expected)


def test_a_zero_vector_has_no_neighbor():
    assert tatoeba_accuracy(np.array([[1.0, 0.0], [0.0, 0.0]]), np.eye(2)) == 0.75  # a tie of two for the second


SCORED = st.lists(st.tuples(st.sampled_from([-1.0, 0.0, 0.25, 0.5, 0.75, 1.0]), st.booleans()), max_size=12)


@given(SCORED, st.integers(0, 3))
@settings(deadline=None)
def test_no_threshold_is_better_than_the_best(rows, missed):
    scores = {("s", i): score for i, (score, _) in enumerate(rows)}
    gold = {("s", i) for i, (_, right) in enumerate(rows) if right} | {("gone", i) for i in range(missed)}
    tried = [-2.0, -0.5, 0.1, 0.3, 0.6, 0.8, 1.0, 2.0]  # one between any two scores
    found = mining_f1(scores, gold, best_threshold(scores, gold))
    assert found == pytest.approx(max(mining_f1(scores, gold, threshold) for threshold in tried))


def test_the_threshold_lies_between_two_scores():
    scores = {"a": 0.9, "b": 0.8, "c": 0.5, "d": 0.4}
    # after a 2*1/(1+2), b 2/4, c 4/5, d 4/6: c is best, and the cut is between 0.5 and 0.4
    assert best_threshold(scores, {"a", "c"}) == pytest.approx(0.45)
    assert mining_f1(scores, {"a", "c"}, 0.45) == pytest.approx(0.8)
    assert best_threshold(scores, {"a"}) == pytest.approx(0.85)
    # nothing below the last: its own score
    assert best_threshold(scores, {"a", "b", "c", "d"}) == 0.4
    assert best_threshold(scores, {"x"}) == best_threshold({}, {"x"}) == 0.0


def test_of_equally_good_thresholds_the_highest_is_taken():
    scores = {"a": 0.9, "b": 0.8, "c": 0.7, "d": 0.6}
    # after a 2*1/(1+2), after d 2*2/(4+2)
    assert best_threshold(scores, {"a", "d"}) == pytest.approx(0.85)


def test_equal_scores_are_accepted_together():
    # one right of the three at 0.5; counting it alone would promise F1 1 at a threshold that lets all three in
    scores = {"right": 0.5, "wrong": 0.5, "also wrong": 0.5, "low": 0.1}
    threshold = best_threshold(scores, {"right"})
    assert threshold == pytest.approx(0.3)
    assert mining_f1(scores, {"right"}, threshold) == 0.5  # precision 1/3, recall 1


@pytest.mark.parametrize("low", [1.0, np.nextafter(1.0, 0.0)])  # halfway to the next rounds down, and up
def test_a_threshold_separates_adjacent_floats(low):
    scores = {"right": float(np.nextafter(low, 2.0)), "wrong": float(low)}
    assert mining_f1(scores, {"right"}, best_threshold(scores, {"right"})) == 1.0


def test_f1_of_mined_pairs_by_hand():
    scores = {("a", "x"): 0.9, ("b", "y"): 0.8, ("c", "z"): 0.1}
    gold = {("a", "x"), ("c", "z"), ("d", "u"), ("e", "v")}
    # 2 accepted, 1 right of 4: precision 1/2, recall 1/4
    assert mining_f1(scores, gold, 0.8) == pytest.approx(2 * 0.5 * 0.25 / 0.75)
    assert mining_f1(scores, gold, 0.95) == mining_f1(scores, set(), 0.1) == mining_f1({}, gold, 0.0) == 0.0


def mine_from_scratch(sources, targets, neighbors, margin):
    similarity = np.array([[cosine(x, y) for y in targets] for x in sources])
    ours = np.sort(similarity, axis=1)[:, -neighbors:].mean(axis=1)
    theirs = np.sort(similarity, axis=0)[-neighbors:].mean(axis=0)
    scores = similarity / ((ours[:, None] + theirs) / 2) if margin else similarity
    wanted = set()
    for table, turn in ((similarity, 1), (similarity.T, -1)):
        for row in range(len(table)):
            near = sorted(range(len(table[row])), key=lambda j: -table[row, j])[:neighbors]
            wanted.add(max(((row, j)[::turn] for j in near), key=lambda pair: scores[pair]))
    mined = {}
    for pair in sorted(wanted, key=lambda pair: -scores[pair]):
        if not any(pair[0] == source or pair[1] == target for source, target in mined):
            mined[pair] = scores[pair]
    return mined


@pytest.mark.parametrize("margin", [True, False])
@pytest.mark.parametrize("neighbors", [1, 4, 100])
def test_pairs_are_mined_as_written_out_row_by_row(monkeypatch, margin, neighbors):
    rng = np.random.default_rng(1)
    sources = rng.normal(size=(23, 8)) + 1
    targets = np.concatenate([sources[:15] + 0.4 * rng.normal(size=(15, 8)), rng.normal(size=(16, 8)) + 1])
    expected = mine_from_scratch(sources, targets, neighbors, margin)
    mined = mine(sources, targets, neighbors, margin)
    assert mined == pytest.approx(expected)
    assert list(mined.values()) == sorted(mined.values(), reverse=True), "the highest comes first"
    assert len({s for s, _ in mined}) == len({t for _, t in mined}) == len(mined)
    monkeypatch.setattr(mining, "ROWS", 5)
    assert mine(sources, targets, neighbors, margin) == pytest.approx(expected)
    if neighbors > 1:
        assert mine(sources, targets, neighbors, not margin).keys() != mined.keys(), "the margin must matter here"


def test_a_score_that_is_not_positive_is_no_candidate():
    assert mine(np.array([[1.0, 0.0]]), np.array([[-1.0, 0.0]]), margin=False) == {}
    assert mine(np.array([[1.0, 0.0]]), np.array([[-1.0, 0.0], [0.0, 1.0]])) == {}


def test_a_threshold_of_mined_pairs_has_its_f1():
    rng = np.random.default_rng(2)
    sources = rng.normal(size=(60, 32)).astype(np.float32) + 0.5
    targets = np.concatenate([sources[:20] + 0.3 * rng.normal(size=(20, 32)), rng.normal(size=(70, 32)) + 0.5])
    scores, gold = mine(sources, targets.astype(np.float32)), {(i, i) for i in range(20)}
    assert mining_f1(scores, gold, best_threshold(scores, gold)) > 0.9
    assert mining_f1(scores, gold, 0.0) < 0.6, "without a threshold sentences without a translation are paired too"
