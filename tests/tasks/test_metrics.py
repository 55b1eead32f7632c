import sys
import warnings
from importlib.util import find_spec
from itertools import groupby

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rembed_keras.errors import UserError
from rembed_keras.tasks.metrics import (
    accuracy,
    binary_f1,
    exact_match_by_question,
    gender_parity,
    macro_f1,
    matthews,
    pearson,
    pos_f1,
    span_f1,
    spearman,
    tag_accuracy,
)

needs_seqeval = pytest.mark.skipif(find_spec("seqeval") is None, reason="seqeval is not installed")


def pairs_of(values, min_size=1):
    """(labels, predictions) of the same length."""
    rows = st.lists(st.tuples(values, values), min_size=min_size, max_size=30)
    return rows.map(lambda rows: tuple(map(list, zip(*rows, strict=True))))


def counts(labels, predictions, positive):
    """True positives, false positives and false negatives, counted one by one."""
    rows = list(zip(labels, predictions, strict=True))
    right = sum(ours == theirs == positive for ours, theirs in rows)
    return right, sum(p == positive for _, p in rows) - right, sum(g == positive for g, _ in rows) - right


def f1_from_scratch(labels, predictions, positive=1):
    right, wrong, missed = counts(labels, predictions, positive)
    if not right:
        return 0.0
    precision, recall = right / (right + wrong), right / (right + missed)
    return 2 * precision * recall / (precision + recall)


def test_accuracy_is_of_ids_and_of_names():
    assert accuracy(np.array([0, 1, 2]), [0, 2, 2]) == pytest.approx(2 / 3)
    assert accuracy(["neutral", "entailment"], ["neutral", "contradiction"]) == 0.5


@given(pairs_of(st.integers(0, 1)))
@settings(deadline=None)
def test_matthews_of_two_classes_is_that_of_the_contingency_table(pair):
    labels, predictions = pair
    tp, fp, fn = counts(labels, predictions, 1)
    tn = len(labels) - tp - fp - fn
    below = (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)
    expected = (tp * tn - fp * fn) / np.sqrt(below) if below else 0.0
    assert matthews(labels, predictions) == pytest.approx(expected, abs=1e-12)


@given(pairs_of(st.integers(0, 2)))
@settings(deadline=None)
def test_matthews_of_three_classes_is_the_correlation_of_their_indicators(pair):
    # R_K: the covariance of the one-hot rows, summed over classes, by both standard deviations
    ours, theirs = (np.eye(3)[side] - np.eye(3)[side].mean(axis=0) for side in pair)
    spread = np.sqrt((ours**2).sum() * (theirs**2).sum())
    expected = (ours * theirs).sum() / spread if spread > 1e-9 else 0.0
    assert matthews(*pair) == pytest.approx(expected, abs=1e-12)


def test_constant_predictions_correlate_with_nothing_and_warn_of_nothing():
    for constant in ([1, 1, 1, 1], [0, 0, 0, 0]):
        assert matthews([0, 1, 1, 0], constant) == 0.0
        assert matthews(constant, constant) == 0.0
        for measure in (pearson, spearman):
            assert measure([0.0, 1.5, 1.0, 0.2], constant) == 0.0
            assert measure(constant, [0.0, 1.5, 1.0, 0.2]) == 0.0
            assert measure([2.5], [2.5]) == 0.0


@given(pairs_of(st.sampled_from([0, 1])))
@settings(deadline=None)
def test_f1_of_a_class_is_the_harmonic_mean_of_precision_and_recall(pair):
    assert binary_f1(*pair) == pytest.approx(f1_from_scratch(*pair))
    assert binary_f1(*pair, positive=0) == pytest.approx(f1_from_scratch(*pair, positive=0))


def test_a_class_that_was_never_predicted_has_no_f1():
    assert binary_f1([1, 1, 0], [0, 0, 0]) == 0.0
    assert binary_f1([0, 0, 0], [0, 0, 0]) == 0.0


@given(pairs_of(st.integers(0, 2)))
@settings(deadline=None)
def test_macro_f1_is_the_mean_over_all_classes(pair):
    assert macro_f1(*pair, num_classes=3) == pytest.approx(np.mean([f1_from_scratch(*pair, k) for k in range(3)]))


def test_a_class_that_never_occurs_counts_in_the_macro_f1():
    assert macro_f1([0, 1], [0, 1], num_classes=3) == pytest.approx(2 / 3)


def ranks(values):
    """Ranks from 1; ties share their mean."""
    return [(sum(v < value for v in values) + sum(v <= value for v in values) + 1) / 2 for value in values]


def correlation_from_scratch(ours, theirs):
    ours, theirs = (np.array(side, np.float64) - np.mean(side) for side in (ours, theirs))
    spread = np.sqrt((ours**2).sum() * (theirs**2).sum())
    return (ours * theirs).sum() / spread if spread else 0.0


@given(pairs_of(st.integers(-20, 20), min_size=2))
@settings(deadline=None)
def test_correlations_are_those_of_the_values_and_of_their_ranks(pair):
    assert pearson(*pair) == pytest.approx(correlation_from_scratch(*pair), abs=1e-9)
    assert spearman(*pair) == pytest.approx(correlation_from_scratch(*map(ranks, pair)), abs=1e-9)


def test_correlations_in_closed_form():
    x = np.arange(1.0, 11.0)
    assert pearson(x, 3 * x - 7) == pytest.approx(1.0)
    assert pearson(x, -x) == pytest.approx(-1.0)
    assert spearman(x, np.exp(x)) == pytest.approx(1.0)
    # deviations (-1, 0, 1) and (-4/3, -1/3, 5/3): 3 / sqrt(2 * 42/9)
    assert pearson([1, 2, 3], [1, 2, 4]) == pytest.approx(3 / np.sqrt(2 * 42 / 9))


def test_a_score_that_is_not_finite_is_refused():
    with pytest.raises(ValueError, match="finite"):
        pearson([1.0, 2.0], [1.0, np.nan])
    with pytest.raises(ValueError, match="finite"):
        spearman([1.0, np.inf], [1.0, 2.0])


def test_a_question_is_solved_if_all_its_answers_are():
    questions = ["p0q0", "p0q1", "p0q0", "p0q1", "p1q0", "p1q0"]
    labels = [1, 0, 0, 1, 0, 0]
    predictions = [1, 0, 0, 0, 0, 0]
    # p0q0: both right; p0q1: the second is missed; p1q0 has no right answer, and none was predicted
    assert exact_match_by_question(questions, labels, predictions) == pytest.approx(2 / 3)
    assert exact_match_by_question(questions, labels, [1, 0, 0, 1, 0, 1]) == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="there are 1 questions for 2 answers"):
        exact_match_by_question(["a"], [0, 1], [0, 1])


def test_f1_over_all_answers_is_not_the_mean_over_questions():
    # one question of 3 right answers, all found, and one of 1, missed with 1 wrong: 3 right of 4, and of 4 predicted
    labels, predictions = [1, 1, 1, 1, 0], [1, 1, 1, 0, 1]
    assert binary_f1(labels, predictions) == 0.75


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.booleans()), min_size=1, max_size=25))
@settings(deadline=None)
def test_questions_are_gathered_from_any_order(rows):
    by_question = {q: [ours == theirs for name, ours, theirs in rows if name == q] for q, _, _ in rows}
    expected = sum(map(all, by_question.values())) / len(by_question)
    questions, labels, predictions = zip(*rows, strict=True)
    assert exact_match_by_question(questions, labels, predictions) == pytest.approx(expected)


def test_gender_parity_asks_for_sameness_and_not_for_truth():
    assert gender_parity(["yes", "yes", "no", "no"]) == 1.0
    assert gender_parity(["yes", "yes", "no", "no", "yes", "no"]) == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="3 predictions are not pairs"):
        gender_parity([1, 1, 0])
    with pytest.raises(ValueError, match="not pairs"):
        gender_parity([])


def entities(sentence):
    """(type, first, last) of the entities of IOB2 tags; an I- that continues nothing begins one."""
    found = []
    for i, tag in enumerate(sentence):
        kind = tag[2:]
        if tag == "O":
            continue
        if tag.startswith("I-") and i and sentence[i - 1][2:] == kind and sentence[i - 1] != "O":
            found[-1] = (kind, found[-1][1], i)
        else:
            found.append((kind, i, i))
    return found


def f1_of_sets(gold, predicted):
    """F1 over the entities of all sentences."""
    gold, predicted = ({(i, item) for i, row in enumerate(side) for item in row} for side in (gold, predicted))
    right = len(gold & predicted)
    return 2 * right / (len(gold) + len(predicted)) if right else 0.0


def sentences_of(tags):
    words = st.lists(st.tuples(st.sampled_from(tags), st.sampled_from(tags)), min_size=1, max_size=8)
    return st.lists(words.map(lambda rows: tuple(map(list, zip(*rows, strict=True)))), min_size=1, max_size=4).map(
        lambda rows: tuple(map(list, zip(*rows, strict=True)))
    )


@needs_seqeval
@given(sentences_of(["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]))
@settings(deadline=None)
def test_entities_are_right_if_both_ends_and_the_type_are(sides):
    gold, predicted = sides
    assert span_f1(gold, predicted) == pytest.approx(f1_of_sets(map(entities, gold), map(entities, predicted)))


@needs_seqeval
def test_entities_by_hand():
    gold = [["B-PER", "I-PER", "O", "B-LOC"]]
    assert span_f1(gold, gold) == 1.0
    assert span_f1(gold, [["B-PER", "O", "O", "B-LOC"]]) == 0.5  # a part of an entity does not count
    assert span_f1(gold, [["I-PER", "I-PER", "O", "I-LOC"]]) == 1.0  # I- that continues nothing begins an entity
    assert span_f1(gold, [["B-PER", "I-LOC", "O", "B-LOC"]]) == pytest.approx(0.4)  # another type begins another
    assert span_f1(gold, [["B-PER", "B-PER", "O", "B-LOC"]]) == pytest.approx(0.4)  # and so does B-
    assert span_f1([["B-PER"], ["I-PER"]], [["B-PER"], ["B-PER"]]) == 1.0  # no entity crosses sentences


@needs_seqeval
def test_nothing_found_is_worth_nothing():
    nothing, something = [["O", "O"]], [["B-PER", "O"]]
    assert span_f1(nothing, something) == span_f1(something, nothing) == span_f1(nothing, nothing) == 0.0


def runs(sentence):
    """(tag, first, last) of runs of equal tags, with each SCONJ and SYM on its own."""
    found, place = [], 0
    for tag, words in groupby(sentence):
        size = len(list(words))
        steps = [1] * size if tag in ("SCONJ", "SYM") else [size]
        for step in steps:
            found.append((tag, place, place + step - 1))
            place += step
    return found


@needs_seqeval
@given(sentences_of(["NOUN", "VERB", "SYM", "CCONJ", "SCONJ", "INTJ", "X"]))
@settings(deadline=None)
def test_parts_of_speech_are_counted_by_runs(sides):
    gold, predicted = sides
    assert pos_f1(gold, predicted) == pytest.approx(f1_of_sets(map(runs, gold), map(runs, predicted)))


@needs_seqeval
@given(sentences_of(["ADJ", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "PROPN", "PUNCT", "SYM", "VERB"]))
@settings(deadline=None)
def test_parts_of_speech_are_counted_as_seqeval_counts_bare_tags(sides):
    # all but SCONJ and X, which seqeval 1.2 reads differently from that of 2020
    from seqeval.metrics import f1_score

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of tags that are not IOB
        assert pos_f1(*sides) == pytest.approx(f1_score(*sides, zero_division=0))


@needs_seqeval
def test_parts_of_speech_by_hand():
    # the boundary of two runs is moved: neither is right, though 2 words of 3 are
    gold, predicted = [["NOUN", "NOUN", "VERB"]], [["NOUN", "VERB", "VERB"]]
    assert pos_f1(gold, predicted) == 0.0
    assert tag_accuracy(gold, predicted) == pytest.approx(2 / 3)
    assert pos_f1([["SYM", "SYM"]], [["SYM", "NOUN"]]) == 0.5
    assert pos_f1([["CCONJ"]], [["SCONJ"]]) == 0.0  # the same to seqeval 1.2 with bare tags
    assert pos_f1([["NOUN"], ["NOUN"]], [["NOUN"], ["VERB"]]) == 0.5  # no run crosses sentences


def test_tags_are_counted_by_word_over_all_sentences():
    # 3 of 4 words, though 1/2 and 1 of the two sentences' means
    assert tag_accuracy([["A", "B"], ["A", "A"]], [["A", "A"], ["A", "A"]]) == 0.75
    assert tag_accuracy([["A", "B", "C"], ["A"]], [["X", "X", "X"], ["A"]]) == 0.25


def test_a_missing_seqeval_is_reported_in_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "seqeval.metrics", None)
    with pytest.raises(UserError, match=r"^F1 of spans needs seqeval: pip install 'rembed_keras\[tasks\]'$"):
        span_f1([["O"]], [["O"]])


@pytest.mark.parametrize("metric", [accuracy, matthews, binary_f1, pearson, spearman])
def test_what_cannot_be_paired_is_refused(metric):
    with pytest.raises(ValueError, match=r"labels have shape \[3\] and predictions \[2\]"):
        metric([0, 1, 1], [0, 1])
    with pytest.raises(ValueError, match="nothing to score"):
        metric([], [])


@pytest.mark.parametrize("metric", [span_f1, pos_f1, tag_accuracy])
def test_sentences_that_cannot_be_paired_are_refused(metric):
    with pytest.raises(ValueError, match="sentence 1 has 2 words and 1 predicted tags"):
        metric([["O"], ["O", "O"]], [["O"], ["O"]])
    with pytest.raises(ValueError, match="1 sentences were predicted for 2"):
        metric([["O"], ["O"]], [["O"]])
    with pytest.raises(ValueError, match="nothing to score"):
        metric([[]], [[]])
