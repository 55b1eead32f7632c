"""What each layer of an encoder knows before any fine-tuning: frozen linear probes, similarity, over-smoothing.

A probe is fitted on the training language alone, so that its scores in other languages are zero-shot transfer; its many
examples and convex fit make it steadier than fine-tuning is.
"""

import itertools
import json
import math
import re
from collections.abc import Callable, Sequence

import keras
import numpy as np
from rich.console import Console

from rembed_keras.analysis.layers import draw_layers, fit_probe, linear_cka, mean_of_tokens, token_cosines
from rembed_keras.analysis.layers.probing import INVERSE_STRENGTHS, check_strengths
from rembed_keras.analysis.layers.similarity import FEWEST
from rembed_keras.data.json_files import read_json
from rembed_keras.errors import Count, Rate, Seed, UserError
from rembed_keras.tasks.kinds.classification import Classification
from rembed_keras.tasks.kinds.encoding import predict
from rembed_keras.tasks.scores import Score, dump_scores, read_scores
from rembed_keras.training.initial.encoder_start import EncoderStart
from rembed_keras.training.initial.weights import InitialWeights
from rembed_keras.training.loop.workdir import Workdir, write_atomically

SYSTEMS = {"pretrained": "pretrained", "untrained": "scratch"}  # and where each starts


def probe(
    workdir: Workdir,
    tasks: Sequence[Classification],
    encoder: Callable | None = None,
    pretrained: str | InitialWeights | None = None,
    sequence_length: Count = 64,
    inverse_strengths: Sequence[Rate] = INVERSE_STRENGTHS,
    batch_size: Count = 32,
    seed: Seed = 0,
) -> None:
    """Scores a linear probe of every layer, after pre-training and before, beside the tasks' baselines.

    Features are means of a layer's hidden states over tokens; layer 0 is the embeddings, projected. Rows of
    `scores.json` are of the tasks `probe/TASK/layerN`. `layers.json` has by task and system, of the training examples,
    the similarity of each layer and the next (unbiased linear CKA) and the mean cosine of a sentence's tokens at each
    layer, and which C was chosen. `probes/TASK.png` is the figure. The encoder is not trained.

    Args:
        workdir: the run's folder.
        tasks: the tasks, each of a name of its own.
        encoder: as in `finetune`.
        pretrained: as in `finetune`.
        sequence_length: S, tokens that are read of an example.
        inverse_strengths: values of C, the inverse strength of L2 regularization; of several the best on the
            development data of the training language.
        batch_size: B, examples at once; results do not depend on it but for rounding.
        seed: of the weights before pre-training, as in `pretrain`.

    Raises:
        UserError: if there is no pre-trained encoder, two tasks of one name, several values of C and no data to choose
            by, or too few training examples.
    """
    _check(tasks, inverse_strengths)
    initial = EncoderStart(workdir.path, encoder, pretrained)
    encoders = {}
    for system, start in SYSTEMS.items():
        keras.utils.set_random_seed(seed)
        encoders[system] = initial.fresh()
        initial.start(encoders[system], start)
    for task in tasks:
        probing = _Probing(task, initial, sequence_length, batch_size, seed)
        scores, known = [], {}
        for system, probed in encoders.items():
            rows, known[system] = probing.score(system, probed, inverse_strengths)
            scores += rows
        num_layers = len(known["pretrained"]["token_cosine"])
        scores += probing.baselines(num_layers)
        _publish(workdir, task, scores, num_layers)
        about = {"language": task.train_language, "n": len(task.splits.train)}
        _write_layers(workdir, task.name, about | known)


def measure_layers(encoder, inputs: dict[str, np.ndarray], batch_size: int, *measures: Callable) -> list[np.ndarray]:
    """Measures the hidden states of every layer, batch by batch, so that no more than a batch of them is held.

    Args:
        encoder: an `Encoder` of L layers; it is not changed.
        inputs: its inputs, int [N, S].
        batch_size: B, examples at once.
        measures: functions of states [B, S, D] and a padding mask [B, S], such as `mean_of_tokens`.

    Returns:
        For each measure, float32 [L + 1, N, ...]; the first of L + 1 are the embeddings.
    """
    measured: list[list] = [[] for _ in measures]
    for begin in range(0, len(inputs["token_ids"]), batch_size):
        batch = {key: value[begin : begin + batch_size] for key, value in inputs.items()}
        states = [np.asarray(each, np.float32) for each in predict(encoder, batch, batch_size)["hidden_states"]]
        for found, measure in zip(measured, measures, strict=True):
            found.append([np.float32(measure(each, batch["padding_mask"])) for each in states])
    return [np.concatenate(found, axis=1) for found in measured]


class _Probing:
    """One task, encoded once for all encoders."""

    def __init__(self, task, initial, sequence_length, batch_size, seed):
        self.task, self._batch_size, self._seed = task, batch_size, seed

        def encode(examples):
            return task.encode(examples, initial.tokenizer, sequence_length, initial.num_segments)

        self._train = encode(task.splits.train)
        self._validation = encode(task.validation) if task.validation else None
        self._scored = {language: encode(examples) for language, examples in task.scored.items()}

    def score(self, system, encoder, inverse_strengths):
        """Rows of all layers and languages, and what `layers.json` says of the system."""
        train, cosines = self._measured(encoder, self._train, mean_of_tokens, token_cosines)
        chosen_by: list = [None] * len(train)
        if self._validation is not None:
            (features,) = self._measured(encoder, self._validation, mean_of_tokens)
            chosen_by = [(each, self._validation.targets) for each in features]
        probes = [
            fit_probe(each, self._train.targets, validation, inverse_strengths)
            for each, validation in zip(train, chosen_by, strict=True)
        ]
        scores = []
        for language, encoded in self._scored.items():
            (features,) = self._measured(encoder, encoded, mean_of_tokens)
            for layer, fitted in enumerate(probes):
                answers = self.task.answers(self.task.scored[language], encoded, fitted.logits(features[layer]))
                scores += self._rows(layer, language, answers, self._seed, system)
        similar = [linear_cka(lower, upper) for lower, upper in itertools.pairwise(train)]
        return scores, {
            "token_cosine": [float(np.mean(each)) for each in cosines],  # of [CLS] and [SEP] at least
            "cka_with_next": [value if math.isfinite(value) else None for value in similar],
            "inverse_strength": [fitted.inverse_strength for fitted in probes],
        }

    def baselines(self, num_layers):
        """Rows of the encoder-free baselines, which stand beside every layer."""
        answered = [
            (system, language, answer(examples))
            for system, answer in self.task.baselines().items()
            for language, examples in self.task.scored.items()
        ]
        return [
            row
            for layer in range(num_layers)
            for system, language, answers in answered
            for row in self._rows(layer, language, answers, None, system)
        ]

    def _measured(self, encoder, encoded, *measures):
        return measure_layers(encoder, encoded.inputs, self._batch_size, *measures)

    def _rows(self, layer, language, answers, seed, system):
        name, examples = f"probe/{self.task.name}/layer{layer}", self.task.scored[language]
        values = self.task.score(examples, answers, language)
        return [Score(name, language, metric, value, seed, len(examples), system) for metric, value in values.items()]


def _check(tasks, inverse_strengths):
    names = [task.name for task in tasks]
    for task in tasks:
        if names.count(task.name) > 1:
            raise UserError(f"there are two tasks {task.name} to probe: give each a name of its own")
        if len(task.splits.train) < FEWEST:
            raise UserError(f"task {task.name} has {len(task.splits.train)} training examples; a probe needs {FEWEST}")
        try:
            check_strengths(inverse_strengths, bool(task.validation))
        except UserError as error:
            raise UserError(f"task {task.name}: {error}") from None


def _publish(workdir, task, scores, num_layers):
    """Replaces the rows of a task's probes in the run's file, draws them and shows them."""
    own = re.compile(rf"probe/{re.escape(task.name)}/layer\d+")
    others = [score for score in read_scores(workdir.scores) if not own.fullmatch(score.task)]
    write_atomically(workdir.scores, dump_scores([*others, *scores]))
    metric, means = task.metric_names[0], _means(task, scores, num_layers)
    baselines = {
        system: {name: values[0] for name, values in groups.items()}
        for system, groups in means.items()
        if system not in SYSTEMS
    }
    path = workdir.path / "probes" / f"{task.name}.png"
    probed = {system: means[system] for system in SYSTEMS}
    draw_layers(path, probed, baselines, f"{metric} of a linear probe, {task.name}, %")
    groups = " / ".join(means["pretrained"])
    Console().print(_table(f"probe/{task.name}: {metric} in %, {groups}", means, num_layers))
    print(f"probe: {path}", flush=True)


def _means(task, scores, num_layers):
    """By system and group of languages, the mean score at each layer by the task's first metric."""
    targets = [language for language in task.scored if language != task.train_language]
    groups = {task.train_language: {task.train_language} & {*task.scored}, f"mean of {len(targets)} others": {*targets}}
    values = {
        (score.system, score.task, score.language): score.value
        for score in scores
        if score.metric == task.metric_names[0]
    }
    return {
        system: {
            name: [
                float(np.mean([values[system, f"probe/{task.name}/layer{layer}", each] for each in languages]))
                for layer in range(num_layers)
            ]
            for name, languages in groups.items()
            if languages
        }
        for system in dict.fromkeys(score.system for score in scores)
    }


def _table(title, values, num_layers):
    """A row a layer, a column a system."""
    from rich.table import Table

    shown = Table(title=title)
    for column in ("layer", *values):
        shown.add_column(column, justify="right")
    for layer in range(num_layers):
        cells = [" / ".join(f"{100 * row[layer]:.1f}" for row in rows.values()) for rows in values.values()]
        shown.add_row(str(layer), *cells)
    return shown


def _write_layers(workdir, name, known):
    path = workdir.path / "layers.json"
    there = read_json(path) if path.exists() else {}
    write_atomically(path, json.dumps(there | {name: known}, indent=1) + "\n")
