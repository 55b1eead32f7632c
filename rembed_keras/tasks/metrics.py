"""The metrics of GLUE, SuperGLUE and XTREME for labels, similarity scores, and tags.

All are pure functions of labels and predictions, in this order, with values from 0 to 1, correlations from -1 to 1.
Which task has which is in `rembed_keras.analysis.reports.averages`; answers as text are scored in
`rembed_keras.tasks.answers`, bitext retrieval in `rembed_keras.tasks.retrieval.mining`.
"""

import importlib
from collections import defaultdict
from collections.abc import Hashable, Sequence
from types import ModuleType

import numpy as np

from rembed_keras.errors import UserError


def accuracy(labels, predictions) -> float:
    """Share of examples whose prediction is the label: SST-2, MNLI, XNLI, PAWS-X, BoolQ and most others.

    Args:
        labels: ids or names [N].
        predictions: of the same kind [N].

    Raises:
        ValueError: for none, or another number of predictions than of labels.

    >>> accuracy([0, 1, 2, 1], [0, 1, 1, 1])
    0.75
    """
    labels, predictions = _paired(labels, predictions)
    return float(np.mean(labels == predictions))


def matthews(labels, predictions) -> float:
    """Matthews correlation of labels: CoLA, AX-b, and with three classes GLUE's diagnostic set.

    With more than two classes it is the R_K of Gorodkin (2004), which GLUE's paper names for its diagnostics. It is 0
    where one side is constant.

    Args:
        labels: int or str [N].
        predictions: of the same kind [N].

    Returns:
        Between -1 and 1.

    Raises:
        ValueError: for none, or another number of predictions than of labels.

    >>> matthews([1, 1, 1, 0], [1, 1, 0, 0])
    0.577...
    """
    from sklearn.metrics import matthews_corrcoef

    labels, predictions = _paired(labels, predictions)
    if _constant(labels) or _constant(predictions):
        return 0.0
    return float(matthews_corrcoef(labels, predictions))


def binary_f1(labels, predictions, positive=1) -> float:
    """F1 of one class: MRPC and QQP; over all answers of all questions it is MultiRC's F1a.

    Args:
        labels: ids or names [N].
        predictions: of the same kind [N].
        positive: the positive class.

    Returns:
        Between 0 and 1; 0 without true positives.

    Raises:
        ValueError: for none, or another number of predictions than of labels.

    >>> binary_f1([1, 1, 0, 0], [1, 0, 1, 1])
    0.4
    """
    from sklearn.metrics import f1_score

    labels, predictions = _paired(labels, predictions)
    return float(f1_score(labels == positive, predictions == positive, zero_division=0.0))


def macro_f1(labels, predictions, num_classes: int) -> float:
    """The mean of the F1 of every class: CommitmentBank, with three.

    A class that occurs in neither labels nor predictions counts as 0. CommitmentBank's data has none such; scorers that
    skip it instead give a higher value on a small sample.

    Args:
        labels: int [N].
        predictions: int [N].
        num_classes: how many; their ids are 0 to num_classes - 1.

    Raises:
        ValueError: for none, or another number of predictions than of labels.

    >>> macro_f1([0, 0, 1, 2], [0, 1, 1, 1], num_classes=3)
    0.388...
    """
    from sklearn.metrics import f1_score

    labels, predictions = _paired(labels, predictions)
    classes = list(range(num_classes))
    return float(f1_score(labels, predictions, labels=classes, average="macro", zero_division=0.0))


def pearson(labels, predictions) -> float:
    """Pearson correlation of scores: STS-B. It is 0 where one side is constant.

    Args:
        labels: float [N].
        predictions: float [N].

    Returns:
        Between -1 and 1.

    Raises:
        ValueError: for none, another number of predictions than of labels, or a value that is not finite.

    >>> pearson([1.0, 2.0, 3.0], [1.0, 2.0, 4.0])
    0.981...
    """
    from scipy.stats import pearsonr

    return _correlation(pearsonr, labels, predictions)


def spearman(labels, predictions) -> float:
    """Spearman correlation of scores, Pearson's of their ranks: STS-B. It is 0 where one side is constant.

    Args:
        labels: float [N].
        predictions: float [N]; equal ones share the mean of their ranks.

    Returns:
        Between -1 and 1.

    Raises:
        ValueError: for none, another number of predictions than of labels, or a value that is not finite.

    >>> spearman([1.0, 2.0, 3.0], [10.0, 20.0, 15.0])
    0.5
    """
    from scipy.stats import spearmanr

    return _correlation(spearmanr, labels, predictions)


def exact_match_by_question(questions: Sequence[Hashable], labels, predictions) -> float:
    """Share of questions of which every answer was classified correctly: MultiRC's EM.

    A question without a right answer needs all of them classified as wrong.

    Args:
        questions: the question that each answer belongs to [N], in any order; with its paragraph, if question ids are
            unique only within paragraphs.
        labels: int [N], whether the answer is right.
        predictions: int [N].

    Raises:
        ValueError: for none, or lengths that differ.

    >>> exact_match_by_question(["a", "a", "b"], [1, 0, 0], [1, 1, 0])
    0.5
    """
    labels, predictions = _paired(labels, predictions)
    if len(questions) != len(labels):
        raise ValueError(f"there are {len(questions)} questions for {len(labels)} answers")
    solved: defaultdict[Hashable, bool] = defaultdict(lambda: True)
    for question, right in zip(questions, labels == predictions, strict=True):
        solved[question] &= bool(right)
    return sum(solved.values()) / len(solved)


def gender_parity(predictions) -> float:
    """Share of sentence pairs that differ in a pronoun's gender and have the same prediction: AX-g, beside accuracy.

    Args:
        predictions: ids or names [2 N]; rows 2i and 2i + 1 are a pair, as in SuperGLUE's file.

    Raises:
        ValueError: for none, or an odd number.

    >>> gender_parity([1, 1, 0, 1])
    0.5
    """
    predictions = np.asarray(predictions)
    if not len(predictions) or len(predictions) % 2:
        raise ValueError(f"{len(predictions)} predictions are not pairs")
    return float(np.mean(predictions[0::2] == predictions[1::2]))


def tag_accuracy(labels: Sequence[Sequence[str]], predictions: Sequence[Sequence[str]]) -> float:
    """Share of words with the right tag, over all sentences together.

    Args:
        labels: tags of every word of N sentences.
        predictions: as many for every sentence.

    Raises:
        ValueError: for none, or sentences of other lengths.

    >>> tag_accuracy([["NOUN", "VERB"], ["DET"]], [["NOUN", "NOUN"], ["DET"]])
    0.666...
    """
    _check_sentences(labels, predictions)
    return accuracy(*([tag for sentence in side for tag in sentence] for side in (labels, predictions)))


def span_f1(labels: Sequence[Sequence[str]], predictions: Sequence[Sequence[str]]) -> float:
    """F1 of named entities, each right if its first word, last word and type are: WikiAnn NER (PAN-X).

    It is seqeval's default, as in XTREME: tags are IOB2, and an I- that continues nothing begins an entity, as in
    CoNLL's script. Entities of all types and sentences are counted together. Without any, on either side, it is 0.

    Args:
        labels: tags "O", "B-type" or "I-type" of every word of N sentences.
        predictions: as many for every sentence.

    Raises:
        ValueError: for none, or sentences of other lengths.
        UserError: where seqeval is not installed.
    """
    _check_sentences(labels, predictions)
    seqeval = seqeval_metrics()
    sides = ([list(sentence) for sentence in side] for side in (labels, predictions))
    return float(seqeval.f1_score(*sides, zero_division=0))


def seqeval_metrics() -> ModuleType:
    """What F1 of spans is computed by; a `UserError` where it is not installed."""
    try:
        return importlib.import_module("seqeval.metrics")
    except ImportError:
        raise UserError("F1 of spans needs seqeval: pip install 'rembed_keras[tasks]'") from None


def pos_f1(labels: Sequence[Sequence[str]], predictions: Sequence[Sequence[str]]) -> float:
    """F1 of parts of speech as XTREME computes it, which is not accuracy.

    XTREME's scorer, and with it the leaderboard, passes bare tags to seqeval, which reads consecutive words with the
    same tag as one entity: both its ends must be right. SCONJ and SYM begin with the S of a single-word entity, so each
    of them is its own. This follows the seqeval of 2020 (0.0.12); 1.2 drops a bare tag's first letter, confuses CCONJ
    and SCONJ, and loses an X at the end of a sentence. `tag_accuracy` is usually some points higher: issue 56 of
    google-research/xtreme.

    Args:
        labels: universal part-of-speech tags of every word of N sentences.
        predictions: as many for every sentence.

    Raises:
        ValueError: for none, or sentences of other lengths.
        UserError: where seqeval is not installed.
    """
    return span_f1([_runs(sentence) for sentence in labels], [_runs(sentence) for sentence in predictions])


def _runs(tags):
    """IOB2 tags whose entities are the runs of equal tags."""
    before = [None, *tags][: len(tags)]
    return [
        f"I-{tag}" if tag == last and not tag.startswith("S") else f"B-{tag}"
        for last, tag in zip(before, tags, strict=True)
    ]


def _check_sentences(labels, predictions):
    if len(labels) != len(predictions):
        raise ValueError(f"{len(predictions)} sentences were predicted for {len(labels)}")
    for i, (ours, theirs) in enumerate(zip(labels, predictions, strict=True)):
        if len(ours) != len(theirs):
            raise ValueError(f"sentence {i} has {len(ours)} words and {len(theirs)} predicted tags")
    if not any(map(len, labels)):
        raise ValueError("there is nothing to score")


def _paired(labels, predictions):
    labels, predictions = np.asarray(labels), np.asarray(predictions)
    if labels.shape != predictions.shape or labels.ndim != 1:
        raise ValueError(f"labels have shape {list(labels.shape)} and predictions {list(predictions.shape)}")
    if not len(labels):
        raise ValueError("there is nothing to score")
    return labels, predictions


def _constant(values):
    return bool(np.all(values == values[0]))


def _correlation(measure, labels, predictions):
    labels, predictions = (values.astype(np.float64) for values in _paired(labels, predictions))
    if not (np.isfinite(labels).all() and np.isfinite(predictions).all()):
        raise ValueError("labels and predictions of a correlation must be finite")
    if _constant(labels) or _constant(predictions):
        return 0.0
    return float(measure(labels, predictions).statistic)
