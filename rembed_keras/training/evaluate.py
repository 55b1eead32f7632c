"""Scores of fine-tuned encoders, beside what is had for nothing."""

from collections.abc import Callable, Sequence

import keras
import numpy as np
from rich.console import Console

from rembed_keras.data.corpus import Corpus
from rembed_keras.errors import UserError
from rembed_keras.modeling.heads import Classifier
from rembed_keras.tasks.baselines import majority, tfidf_classifier
from rembed_keras.tasks.classification import LabelledTask
from rembed_keras.tasks.encoding import encode, predict
from rembed_keras.tasks.scores import Score, dump_scores, read_scores, table
from rembed_keras.training import checkpoints
from rembed_keras.training.distribution import place
from rembed_keras.training.finetune import STARTS, model_name
from rembed_keras.training.workdir import Workdir, write_atomically

BATCH_SIZE = 64


def evaluate(
    workdir: Workdir,
    encoder: Callable,
    task: LabelledTask,
    sequence_length: int = 64,
    starts: Sequence[str] = STARTS,
    seeds: Sequence[int] = (0,),
) -> None:
    """Scores fine-tuned classifiers in every language, beside a character TF-IDF model and the majority class.

    Args:
        workdir: the run's folder, with the fine-tuned models.
        encoder: makes the `Encoder`, as in `finetune`.
        task: the task, as in `finetune`.
        sequence_length: S, as in `finetune`.
        starts: the starts to score.
        seeds: the seeds to score.

    Raises:
        UserError: for a model that was not fine-tuned.
    """
    corpus = Corpus(workdir.corpus)
    languages = list(task.test)
    texts = [text for language in languages for text in task.test[language][0]]
    inputs = encode(texts, corpus.tokenizer, sequence_length)
    scores = []
    for start in starts:
        for seed in seeds:
            model = _load(workdir, encoder, task, start, seed)
            guesses = predict(model, inputs, BATCH_SIZE).argmax(axis=-1)
            scores += _accuracies(task, languages, guesses, start, seed)
    linear = tfidf_classifier(*task.train)
    scores += _accuracies(task, languages, linear.predict(texts), "tfidf", None)
    scores += _accuracies(task, languages, majority(task.train[1], len(texts)), "majority", None)
    publish(workdir, scores, [*starts, "tfidf", "majority"], task.train_language, corpus)


def _load(workdir, encoder, task, start, seed):
    keras.backend.clear_session(free_memory=False)
    placement = place("one_device", BATCH_SIZE)
    model = Classifier(encoder(), len(task.labels))
    model.compile(jit_compile=placement.jit_compile)
    found = checkpoints.latest(workdir.finetuned / model_name(task, start, seed))
    if found is None:
        raise UserError(f"{workdir.finetuned / model_name(task, start, seed)} is missing: run finetune first")
    checkpoints.load_parts(model, found)
    return model


def _accuracies(task, languages, guesses, system, seed):
    scores, start = [], 0
    for language in languages:
        truth = task.test[language][1]
        hits = guesses[start : start + len(truth)] == truth
        scores.append(Score(task.name, language, "accuracy", float(np.mean(hits)), seed, len(truth), system))
        start += len(truth)
    return scores


def publish(workdir: Workdir, scores: Sequence[Score], systems: Sequence[str], source: str, corpus: Corpus) -> None:
    """Replaces a task's scores in the run's file, and shows them; see `scores.table`."""
    task = scores[0].task
    others = [score for score in read_scores(workdir.scores) if score.task != task]
    write_atomically(workdir.scores, dump_scores([*others, *scores]))
    Console().print(table(scores, task, systems, source, corpus.languages))
