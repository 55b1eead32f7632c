"""Encoder-free baselines: the majority class, and linear models over character n-grams.

A score means little without them. On parallel text in related languages, names and loan words alone score well
above chance.
"""

from collections.abc import Sequence

import numpy as np


def majority(train_labels: np.ndarray, size: int) -> np.ndarray:
    """The majority class of the training labels, `size` times."""
    return np.full(size, np.bincount(train_labels).argmax(), np.int32)


def tfidf_classifier(texts: Sequence[str], labels: np.ndarray):
    """A logistic regression over TF-IDF of character 1- to 4-grams within words, fitted.

    Where all texts are empty there are no features, and it gives the majority class.

    Args:
        texts: N training texts.
        labels: int [N].

    Returns:
        A scikit-learn estimator; `.predict(texts)` gives labels.
    """
    from sklearn.dummy import DummyClassifier
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from threadpoolctl import threadpool_limits

    written = sum(bool(text.strip()) for text in texts)
    if not written:
        return DummyClassifier(strategy="most_frequent").fit(list(texts), labels)
    features = TfidfVectorizer(analyzer="char_wb", ngram_range=(1, 4), sublinear_tf=True, min_df=min(2, written))
    with threadpool_limits(1):  # its products are too small for several threads, which only wait for a core
        return make_pipeline(features, LogisticRegression(C=10.0, max_iter=1000)).fit(list(texts), labels)


def tfidf_similarity(queries: Sequence[str], candidates: Sequence[str]) -> np.ndarray:
    """Cosine similarity [N, M] of texts by TF-IDF of their character 2- to 4-grams within words."""
    from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer

    counts = CountVectorizer(analyzer="char_wb", ngram_range=(2, 4)).fit_transform([*queries, *candidates])
    counts.sort_indices()  # sums over a text are in one order, whatever texts are beside it
    vectors = TfidfTransformer(sublinear_tf=True).fit_transform(counts)
    return (vectors[: len(queries)] @ vectors[len(queries) :].T).toarray()
