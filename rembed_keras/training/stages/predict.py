"""Answers of a fine-tuned model to a user's own file, a few examples at a time."""

import itertools
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rembed_keras.data.json_files import json_text, read_json
from rembed_keras.data.tokenizers.opening import open_tokenizer
from rembed_keras.errors import UserError, did_you_mean, first_line, shortened
from rembed_keras.interop import write_served_task, written_whole
from rembed_keras.interop.presets import reserve
from rembed_keras.modeling.blocks.positions import longest_row
from rembed_keras.preprocessing import Tokenizer
from rembed_keras.tasks import Candidates, Classification, QuestionAnswering, Regression, Tagging
from rembed_keras.tasks.formats.columns import parse_format
from rembed_keras.tasks.kinds.encoding import are_finite, predict
from rembed_keras.tasks.kinds.task import Task
from rembed_keras.training.distributed.strategies import place
from rembed_keras.training.initial.finetuned import chosen_model
from rembed_keras.training.initial.places import LANGUAGES
from rembed_keras.training.loop import restoring

OURS: tuple[type[Task], ...] = (Classification, Regression, Tagging, QuestionAnswering, Candidates)
KINDS = {kind.__name__: kind for kind in OURS}
CHUNK = 512  # examples that are held at a time
BATCH_SIZE = 64
BREAKS = str.maketrans("\t\n\r", "   ")  # what ends a cell or a line


class Answerer:
    """A fine-tuned model and all that it needs to answer.

    Args:
        run: the folder of a run that fine-tuned.
        task: the task's name; the run's only one by default.

    Raises:
        UserError: if there is no such task, several to choose from, or a model that was not trained to its end.
    """

    def __init__(self, run: str | Path, task: str | None = None):
        folder = _task_folder(Path(run), task)
        about = read_json(folder / "task.json")
        kind, self.sequence_length = _kind(about.pop("kind", None), folder), about.pop("sequence_length", None)
        trained_with = about.pop("tokenizer_sha256", None)
        about.pop(LANGUAGES, None)
        named = about.pop("format", {})
        self.format: Any = kind.format and parse_format(kind.format, named, folder / "task.json")
        make: Any = kind
        try:
            self.task = make(splits=None, **about)
        except (TypeError, AttributeError) as error:
            raise UserError(
                f"{folder / 'task.json'} describes no {kind.__name__}: {first_line(error)}: fine-tune again"
            ) from None
        self.tokenizer = open_tokenizer(folder)
        if trained_with not in (None, self.tokenizer.sha256):
            raise UserError(
                f"{self.tokenizer.path} is not the tokenizer that the task was fine-tuned with: run finetune again"
            )
        self.model = restoring.restore(chosen_model(folder))
        self._check(folder / "task.json")
        self.model.compile(jit_compile=place("one_device", BATCH_SIZE).jit_compile)
        self._num_segments = self.model.encoder.get_config()["num_segments"]

    def _check(self, path):
        """Checks whether the task, the tokenizer and the model belong together."""
        config, length = self.model.encoder.get_config(), self.sequence_length
        labels = self._labels if self._answers_as_ours else None  # which others take from outputs as they like
        if isinstance(length, bool) or not isinstance(length, int) or not 3 <= length <= longest_row(config):
            raise UserError(f"{path}: sequence_length is {shortened(length)}, which the model cannot read")
        if labels is not None and not all(isinstance(label, str) for label in labels):
            raise UserError(f"{path}: labels are {shortened(labels)}, not texts")
        if labels is not None and len(labels) != self.model.output_shape[-1]:
            raise UserError(f"{path} has {len(labels)} labels and the model {self.model.output_shape[-1]}")
        if self.tokenizer.vocabulary_size > config["vocabulary_size"]:
            raise UserError(f"{path}: the tokenizer beside it has more pieces than the model has rows")

    def _check_form(self, consequence):
        """Raises a UserError for a task whose examples are in no file of a user's."""
        if self.format is None:
            answering = ", ".join(name for name, kind in KINDS.items() if kind.format)
            why = f"its kind, {type(self.task).__name__}, names no format of files"
            raise UserError(f"task {self.task.name} {consequence}: {why}; {answering} do")

    @property
    def _answers_as_ours(self):
        """Whether an answer is found in outputs as one of our kinds of tasks finds it."""
        return type(self.task).answers in [kind.answers for kind in OURS]

    @property
    def _labels(self):
        """Names of labels or tags; None for a task of numbers or spans."""
        return getattr(self.task, "labels", getattr(self.task, "tags", None))

    def answers(self, examples: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        """Yields each example with its answer.

        Raises:
            UserError: for a model whose outputs are not finite.
        """
        for chunk, encoded, outputs in self._outputs(examples):
            yield from zip(chunk, self._answers(chunk, encoded, outputs), strict=True)

    def _answers(self, chunk, encoded, outputs):
        return self.task.one_each(chunk, self.task.answers(chunk, encoded, outputs))

    def probabilities(self, examples: Iterable[Any]) -> Iterator[tuple[Any, Any, dict[str, float]]]:
        """Yields each example with its answer and the probability of every label.

        Raises:
            UserError: for a task that chooses among no labels, or a model whose outputs are not finite.
        """
        from scipy.special import softmax

        if not isinstance(self.task, Classification) or len(self.task.labels) != self.model.output_shape[-1]:
            raise UserError(f"task {self.task.name} chooses among no labels of a text: it has no probabilities")
        for chunk, encoded, outputs in self._outputs(examples):
            shares = softmax(outputs.astype(np.float64), axis=-1)
            named = ({label: float(each) for label, each in zip(self.task.labels, row, strict=True)} for row in shares)
            yield from zip(chunk, self._answers(chunk, encoded, outputs), named, strict=True)

    def _outputs(self, examples):
        """Yields examples, a few at a time, encoded too, and the model's outputs for them."""
        for chunk in _chunks(examples):
            encoded = self.task.encode(chunk, self.tokenizer, self.sequence_length, self._num_segments)
            outputs = predict(self.model, encoded.inputs, BATCH_SIZE)
            if not are_finite(outputs):
                raise UserError(
                    f"task {self.task.name}: the model's outputs are not finite, and answer nothing: fine-tune at a "
                    "lower learning rate, or in float32"
                )
            yield chunk, encoded, outputs

    def export(self, target: str | Path) -> None:
        """Writes a SavedModel that takes strings; see `interop.write_served_task`.

        Raises:
            UserError: if it exists, or the task gives no labels or numbers, or finds its answers otherwise.
        """
        self._check_form("becomes no SavedModel, but a preset")
        if not self._answers_as_ours:
            kind = type(self.task).__name__
            raise UserError(f"task {self.task.name} becomes no SavedModel: {kind} finds answers in a way of its own")
        labels, pairs = getattr(self.task, "labels", ()), getattr(self.format, "pairs", None) is True
        with written_whole(Path(target)) as folder:
            write_served_task(self.model, folder, self.tokenizer, self.sequence_length, labels, pairs)

    def save_to_preset(self, target: str | Path) -> list[str]:
        """Writes a keras-hub preset: the model with its head, its preprocessor, and the labels' names in `labels.json`.

        Returns:
            Notes on it, a line each.

        Raises:
            UserError: if it exists or cannot be written, or the model is of a class that names no preprocessor.
        """
        labels, name, make = self._labels, type(self.model).__name__, self.model.preprocessor_cls
        if make is None:
            raise UserError(
                f"{name} has no preprocessor_cls, which reads texts for it: give the class one, such as "
                "rembed_keras.TextClassifierPreprocessor"
            )
        settings = self.task.preprocessing(self.sequence_length)
        preprocessor = make(Tokenizer(self.tokenizer.path), self.sequence_length, **settings)
        with written_whole(Path(target)) as folder:
            reserve(folder, self.model)
            with self.model.preprocessed_by(preprocessor):
                self.model.save_to_preset(str(folder))
            if labels is not None:
                (folder / "labels.json").write_text(json.dumps([*labels], ensure_ascii=False), encoding="utf-8")
        names = [] if labels is None else [f"labels.json has the names of the {len(labels)} labels, by number"]
        package = type(self.model).__module__
        package = "rembed_keras" if package.startswith("rembed_keras.") else package
        return [f"open it by {package}.{name}.from_preset({str(target)!r})", *names]

    def read(self, file: str | Path, text: str | None = None, pair: str | None = None) -> Iterable[Any]:
        """Examples of a user's file: JSON lines or a table for labels, CoNLL for tags, SQuAD's JSON for questions.

        It is read as the recipe read its files, by the columns that it named; labels and tags need not be there.

        Args:
            file: the file; what it is, its name says: `.jsonl`, `.tsv`, `.csv`, all also with `.gz`, or `.parquet`.
            text: the column of the text; the recipe's by default.
            pair: the column of the second text; the recipe's by default.

        Raises:
            UserError: naming file and line, for what cannot be read, or a column that the file or the task lacks; for
                a task whose questions have several candidates.
        """
        self._check_form("answers no file")
        return self.format.named(text, pair).read(file)


def lines_of(answered: Iterable[tuple]) -> Iterator[str]:
    """What is printed of each answer: JSON for texts and questions, a word and its tag a line for sentences.

    A tab or an end of a line within a word, which lists of words may have, is a space.

    Args:
        answered: examples with their answers, and perhaps the probability of every label.
    """
    for example, answer, *probabilities in answered:
        if hasattr(example, "words"):
            words = (word.translate(BREAKS) for word in example.words)
            yield "".join(f"{word}\t{tag}\n" for word, tag in zip(words, answer, strict=True)) + "\n"
        else:
            shown = {"id": example.id, "answer": answer}
            shown |= {"probabilities": probabilities[0]} if probabilities else {}
            yield json_text(shown, "an answer") + "\n"


def _chunks(examples) -> Iterator[Sequence[Any]]:
    examples = iter(examples)
    while chunk := tuple(itertools.islice(examples, CHUNK)):
        yield chunk


def _kind(named, folder) -> type[Task]:
    """The class of a task that `task.json` names; one of others, by its module, if that is imported: no file is."""
    if isinstance(named, str):
        module, _, name = named.rpartition(".")
        kind = getattr(sys.modules.get(module), name, None) if module else KINDS.get(name)
        if isinstance(kind, type) and issubclass(kind, Task):
            return kind
        if module:
            package = module.partition(".")[0]
            raise UserError(
                f"{folder} is a task of kind {shortened(named)}, which is not imported: name its package with "
                f"--allow-import {package}"
            )
    raise UserError(f"{folder} is a task of kind {shortened(named)}; ours are {', '.join(KINDS)}")


def _task_folder(run, task):
    folders = {
        path.parent.relative_to(run / "finetuned").as_posix(): path.parent
        for path in run.glob("finetuned/**/task.json")
    }
    if not folders:
        raise UserError(f"{run} has no fine-tuned model: it is not the folder of a run that fine-tuned")
    if task is None and len(folders) > 1:
        raise UserError(f"{run} has been fine-tuned for {', '.join(sorted(folders))}: say which, with --task")
    if task is not None and task not in folders:
        raise UserError(f"{run} has not been fine-tuned for {task}{did_you_mean(task, folders)}")
    return folders[task] if task is not None else next(iter(folders.values()))
