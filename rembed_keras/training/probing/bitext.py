"""Bitext retrieval by every layer, by cosine and by CSLS, beside TF-IDF and chance."""

import numpy as np

from rembed_keras.analysis.layers import mean_of_inner_tokens
from rembed_keras.tasks.baselines import tfidf_similarity
from rembed_keras.tasks.kinds.encoding import encode
from rembed_keras.tasks.retrieval.parallel_text import ParallelText, cosines, csls, hits_at_1
from rembed_keras.tasks.scores import Score
from rembed_keras.training.probing.features import measure_layers

METRICS = COSINE, CSLS = "cosine P@1", "CSLS P@1"


class BitextProbing:
    """Parallel text, encoded once for all encoders.

    A sentence is the mean of its tokens at a layer, without [CLS] and [SEP], less the mean of its language. Precision@1
    is the mean of both directions, from the pivot and into it.

    Args:
        text: the sentences.
        initial: where the encoders came from.
        sequence_length: S.
        batch_size: B, rows at once.
        seed: that scores are given.
    """

    def __init__(self, text: ParallelText, initial, sequence_length: int, batch_size: int, seed: int):
        self.text, self._batch_size, self._seed = text, batch_size, seed
        lines = [line for each in text.lines.values() for line in each]
        self._inputs = encode(lines, initial.tokenizer, sequence_length)

    def score(self, system, encoder):
        """Rows of all layers and languages."""
        (vectors,) = measure_layers(encoder, self._inputs, self._batch_size, mean_of_inner_tokens)
        scores = []
        for layer, each in enumerate(vectors):
            by_language = dict(zip(self.text.lines, np.split(each, len(self.text.lines)), strict=True))
            for language in self.text.languages:
                rows = self.text.pairs(language)
                similarity = cosines(by_language[self.text.pivot][rows], by_language[language][rows])
                scores += self._rows(layer, language, similarity, self._seed, system)
        return scores

    def baselines(self, num_layers):
        """Rows of TF-IDF and of chance, which stand beside every layer."""
        scores = []
        for language in self.text.languages:
            rows = self.text.pairs(language)
            similarity = tfidf_similarity(
                *([self.text.lines[name][i] for i in rows] for name in (self.text.pivot, language))
            )
            for layer in range(num_layers):
                scores += self._rows(layer, language, similarity, None, "tfidf")
                scores += self._rows(layer, language, np.zeros_like(similarity), None, "chance")
        return scores

    def _rows(self, layer, language, similarity, seed, system):
        name = f"retrieval/{self.text.name}/layer{layer}"
        found = zip(METRICS, (similarity, csls(similarity)), strict=True)
        return [
            Score(name, language, metric, sum(hits_at_1(each)) / 2, seed, len(similarity), system)
            for metric, each in found
        ]
