"""Linear probes of every layer on a task: on means of a text's tokens, or on the first pieces of words with tags."""

import itertools

import numpy as np

from rembed_keras.analysis.layers import fit_probe, linear_cka, mean_of_tokens, states_of, token_cosines
from rembed_keras.tasks.kinds.classification import Classification
from rembed_keras.tasks.kinds.encoding import Encoded
from rembed_keras.tasks.kinds.tagging import Tagging
from rembed_keras.tasks.scores import Score, finite
from rembed_keras.training.probing.features import measure_layers
from rembed_keras.training.probing.systems import SYSTEMS

BALANCED = "balanced_accuracy"  # name of a metric


class LabelledProbing:
    """One task, encoded once for all encoders.

    Args:
        task: a `Classification` or `Tagging`; labels weigh the same if its first metric is "balanced_accuracy".
        initial: where its encoders came from.
        sequence_length: S.
        batch_size: B, rows at once.
        seed: that scores are given.
    """

    def __init__(self, task: Classification | Tagging, initial, sequence_length: int, batch_size: int, seed: int):
        self.task, self._batch_size, self._seed = task, batch_size, seed
        self._is_balanced = task.metric_names[0] == BALANCED  # fitted for what is scored

        def encode(examples):
            return task.encode(examples, initial.tokenizer, sequence_length, initial.num_segments)

        self._train = encode(task.splits.train)
        self._validation = encode(task.validation) if task.validation else None
        self._scored = {language: encode(examples) for language, examples in task.scored.items()}

    def score(self, system, encoder, inverse_strengths):
        """Rows of all layers and languages, and what `layers.json` says of the system."""
        train = self._features(encoder, self._train)
        chosen_by: list = [None] * len(train)
        if self._validation is not None:
            labels = _labels(self._validation)
            chosen_by = [(each, labels) for each in self._features(encoder, self._validation)]
        probes = [
            fit_probe(each, _labels(self._train), validation, inverse_strengths, self._is_balanced)
            for each, validation in zip(train, chosen_by, strict=True)
        ]
        scores = []
        for language, encoded in self._scored.items():
            features = self._features(encoder, encoded)
            for layer, fitted in enumerate(probes):
                outputs = _outputs(fitted.logits(features[layer]), encoded)
                answers = self.task.answers(self.task.scored[language], encoded, outputs)
                scores += self._rows(layer, language, answers, self._seed, system)
        similar = [linear_cka(lower, upper) for lower, upper in itertools.pairwise(train)]
        (cosines,) = self._measured(encoder, self._train, token_cosines)
        return scores, {
            "token_cosine": [float(np.mean(each)) for each in cosines],  # of [CLS] and [SEP] at least
            "cka_with_next": [finite(value) for value in similar],
            "inverse_strength": [fitted.inverse_strength for fitted in probes],
        }

    def baselines(self, num_layers):
        """Rows of the encoder-free baselines, which stand beside every layer."""
        answered = [
            (system, language, answer(examples))
            for system, answer in self.task.baselines_beside(SYSTEMS).items()
            for language, examples in self.task.scored.items()
        ]
        return [
            row
            for layer in range(num_layers)
            for system, language, answers in answered
            for row in self._rows(layer, language, answers, None, system)
        ]

    def _features(self, encoder, encoded):
        """[L + 1, N, D], N texts or words."""
        if encoded.weights is None:
            return self._measured(encoder, encoded, mean_of_tokens)[0]
        return self._measured(encoder, encoded, states_of, chosen=encoded.weights)[0]

    def _measured(self, encoder, encoded, *measures, chosen=None):
        return measure_layers(encoder, encoded.inputs, self._batch_size, *measures, chosen=chosen)

    def _rows(self, layer, language, answers, seed, system):
        name, examples = f"probe/{self.task.name}/layer{layer}", self.task.scored[language]
        values = self.task.score(examples, answers, language)
        return [
            Score(name, language, metric, finite(value), seed, self.task.count(examples, metric), system)
            for metric, value in values.items()
        ]


def _labels(encoded: Encoded) -> np.ndarray:
    """Ids of labels [N] of texts or words."""
    targets = np.asarray(encoded.targets)
    return targets if encoded.weights is None else targets[encoded.weights > 0]


def _outputs(logits, encoded):
    """Logits [N, K] as the task's own head gives them; [rows, S, K] of words."""
    if encoded.weights is None:
        return logits
    outputs = np.zeros((*encoded.weights.shape, logits.shape[1]))
    outputs[encoded.weights > 0] = logits
    return outputs
