"""Scores of fine-tuned encoders, beside encoder-free baselines."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
from rich.console import Console

from rembed_keras.analysis.reports.report import report
from rembed_keras.analysis.reports.terminal import Whole
from rembed_keras.data.json_files import json_text
from rembed_keras.data.writing import write_atomically
from rembed_keras.errors import Count, DivergedError, Rate, Seed, UserError, check_counts, check_lists
from rembed_keras.modeling.encoder import Encoder
from rembed_keras.tasks.kinds.encoding import Encoded, are_finite, predict
from rembed_keras.tasks.kinds.task import Task
from rembed_keras.tasks.scores import Score, dump_scores, finite, read_scores, table
from rembed_keras.training.distributed.strategies import place
from rembed_keras.training.initial import finetuned
from rembed_keras.training.initial.encoder_start import EncoderStart
from rembed_keras.training.initial.finetuned import STARTS, Start, has_failed, refuse_others, stopped_at
from rembed_keras.training.initial.weights import InitialWeights
from rembed_keras.training.loop import checkpoints, restoring
from rembed_keras.training.loop.workdir import Workdir

BATCH_SIZE = 64


def evaluate(
    workdir: Workdir,
    task: Task,
    encoder: Callable[..., Encoder] | None = None,
    pretrained: str | InitialWeights | None = None,
    sequence_length: Count = 64,
    learning_rates: Sequence[Rate] = (1e-4,),
    starts: Sequence[Start] = STARTS,
    seeds: Sequence[Seed] = (0,),
    jit_compile: bool = True,
) -> None:
    """Scores fine-tuned models in every language, beside the task's baselines.

    Of several learning rates the one whose models do best on the development data of the training language is scored;
    no other language has a say in it. What each model answered is in `predictions/`.

    Args:
        workdir: the run's folder, with the fine-tuned models.
        task: the task, as in `finetune`.
        encoder: as in `finetune`.
        pretrained: as in `finetune`.
        sequence_length: S, as in `finetune`.
        learning_rates: as in `finetune`.
        starts: the starts to score.
        seeds: the seeds to score.
        jit_compile: whether to use XLA where it works.

    Raises:
        UserError: for a model that was not fine-tuned, or that was with another length, tokenizer or labels, no start,
            seed or learning rate or one twice, several learning rates and no data to choose by, or more tokens than
            the encoder has positions for.
    """
    check_models(task, starts, learning_rates, seeds)
    initial = EncoderStart(workdir.path, encoder, pretrained)
    initial.check_length(sequence_length)
    baselines = task.baselines_beside(STARTS)
    asked = Asked(workdir, task, initial, sequence_length, jit_compile)
    scores, chosen = [], {}
    for start in starts:
        rate = chosen[start] = rate_to_score(asked, start, learning_rates, seeds)
        for seed in seeds:
            model = asked.model(start, rate, seed)
            for language, examples in task.scored.items():
                answers = _answers(asked, model, examples, f"{start}, seed {seed}, in {language}")
                scores += _record(asked, start, seed, language, examples, answers)
    finetuned.keep_chosen_rates(workdir.finetuned / task.name, chosen)
    for system, answer in baselines.items():
        for language, examples in task.scored.items():
            scores += _record(asked, system, None, language, examples, answer(examples))
    for line in asked.shortfalls():
        print(f"evaluate/{task.name}: {line}", flush=True)
    publish(workdir, scores, [*starts, *baselines], task.train_language, initial.languages)


def tabulate(workdir: Workdir) -> None:
    """Shows all scores of a run in one table, and writes it to `report/` in the forms of `rembed report`."""
    made = report([workdir.path])
    made.show()
    made.write(workdir.path / "report")


class Asked:
    """A task, its encoded examples, and the models that are asked.

    Args:
        workdir: the run's folder, with the fine-tuned models.
        task: the task.
        initial: where their encoders came from.
        sequence_length: S.
        jit_compile: whether to use XLA where it works.

    Raises:
        UserError: for models that were fine-tuned with another length, tokenizer or labels.
    """

    def __init__(self, workdir, task, initial, sequence_length, jit_compile=True):
        refuse_others(workdir.finetuned / task.name, task, sequence_length, initial.tokenizer)
        self.workdir, self.task, self.initial, self.sequence_length = workdir, task, initial, sequence_length
        self._jit_compile = place("one_device", BATCH_SIZE, jit_compile).jit_compile
        self._encoded: dict[int, tuple[Sequence[Any], Encoded]] = {}  # by the identity of the examples
        self._model: Any = None
        self._of: Any = None  # its configuration and its start, as its checkpoint says them

    def model(self, start, rate, seed):
        """A fine-tuned model, until the next is asked for; None if its training failed.

        Raises:
            UserError: for one that was not fine-tuned, or was stopped before its end.
        """
        folder = finetuned.folder_of(self.workdir, self.task, start, rate, seed)
        if has_failed(folder):
            return None
        found = checkpoints.latest(folder)
        if found is None:
            raise UserError(f"{folder} is missing: run finetune first")
        if (at := stopped_at(found)) is not None:
            raise UserError(f"{folder} was stopped at {at}: run finetune, which goes on, first")
        described = [found.state.get(key) for key in ("model", "start")]
        if self._model is not None and described == self._of:
            restoring.load_parts(self._model, found)  # whose program is compiled
            return self._model
        keras.backend.clear_session(free_memory=False)
        self._model, self._of = restoring.restore(found), described
        self._model.compile(jit_compile=self._jit_compile)
        return self._model

    def answers(self, model, examples):
        """What a model says to examples, which are encoded once: the list is kept, and should not change.

        Raises:
            DivergedError: for a model whose outputs are not finite.
        """
        encoded = self._encoding(examples)
        outputs = predict(model, encoded.inputs, BATCH_SIZE)
        if not are_finite(outputs):
            raise DivergedError(f"task {self.task.name}: the model's outputs are not finite")
        return self.task.one_each(examples, self.task.answers(examples, encoded, outputs))

    def shortfalls(self):
        """Which of the examples that are scored are not, or not as they are: a line for each matter."""
        task, found = self.task, defaultdict(list)
        for language, examples in task.scored.items():
            every = len(getattr(task.splits, task.part).get(language, examples))
            if every > len(examples):
                yield f"{len(examples):,} of {every:,} {task.part} examples of {language} have labels, and are scored"
            for matter, count in self._encoding(examples).shortfalls().items():
                if count:
                    found[matter].append(f"{count / len(examples):.1%} of {language}")
        for matter, shares in found.items():
            yield f"of the examples that are scored, {', '.join(shares)} {matter}"

    def _encoding(self, examples):
        if id(examples) not in self._encoded:
            self._encoded[id(examples)] = (
                examples,
                self.task.encode(examples, self.initial.tokenizer, self.sequence_length, self.initial.num_segments),
            )
        return self._encoded[id(examples)][1]


def rate_to_score(asked: Asked, start: Start, learning_rates: Sequence[Rate], seeds: Sequence[Seed]) -> Rate:
    """The learning rate whose models do best on development data; the first if every training failed.

    Args:
        asked: the task and its models.
        start: what these began with.
        learning_rates: to choose from.
        seeds: of each, whose scores are averaged.

    Raises:
        UserError: for a model that was not fine-tuned, or several learning rates and no data to choose by.
    """
    if len(learning_rates) == 1:
        return learning_rates[0]
    task = asked.task
    check_choice(task, learning_rates)
    language, examples = task.train_language, task.validation
    found: dict[float, list[float | None]] = {}
    for rate in learning_rates:
        found[rate] = []
        for seed in seeds:
            which = f"{start}, {rate:g}, seed {seed}"
            answers = _answers(asked, asked.model(start, rate, seed), examples, which)
            scores = {} if answers is None else _scored(task, examples, answers, language, which)
            found[rate].append(next(iter(scores.values()), None))
    means = _means(found)
    chosen = max(means, key=means.__getitem__, default=learning_rates[0])
    shown = ", ".join(f"{rate:g}: {means[rate]:.3f}" if rate in means else f"{rate:g}: failed" for rate in found)
    print(f"evaluate/{task.name}: {start} takes learning rate {chosen:g}, by {language} dev data ({shown})", flush=True)
    return chosen


def check_models(task: Task, starts: Sequence[Start], learning_rates: Sequence[Rate], seeds: Sequence[Seed]) -> None:
    """Checks what there is one model each of, and whether it can be described and scored.

    Raises:
        UserError: for none or one twice, a seed out of range, what JSON cannot say of the task, and as `check_choice`
            and `Task.check_metrics`.
    """
    check_lists({"starts": starts, "learning_rates": learning_rates, "seeds": seeds})
    for seed in seeds:
        check_counts({"FINETUNE_SEEDS": seed}, "Seed")
    check_choice(task, learning_rates)
    for describe in (finetuned.description_of, finetuned.model_settings_of):
        describe(task)
    task.check_metrics()


def check_choice(task: Task, learning_rates: Sequence[Rate]) -> None:
    """Checks that there is data to choose one of several learning rates by.

    Raises:
        UserError: if there is none.
    """
    if len(learning_rates) > 1 and not task.validation:
        language = task.train_language
        raise UserError(f"task {task.name} has no dev examples of {language} to choose a learning rate by: name one")


def _means(found):
    """Mean scores of learning rates, without those whose every training failed.

    A training that failed, None, counts 0, or as the worst that did not: a metric may go below 0.
    """
    worst = min((value for values in found.values() for value in values if value is not None), default=0.0)
    failed = min(0.0, worst)
    return {
        rate: float(np.mean([failed if value is None else value for value in values]))
        for rate, values in found.items()
        if any(value is not None for value in values)
    }


def _answers(asked, model, examples, which):
    """What a model says to examples; None if its training failed, or its outputs are not finite, which is printed."""
    if model is None:
        return None
    try:
        return asked.answers(model, examples)
    except DivergedError as error:
        print(f"evaluate/{asked.task.name}: {which}: {error}; it counts as failed", flush=True)
        return None


def _scored(task, examples, answers, language, which):
    """The metrics of answers; None for one that is not finite, as correlations of equal answers, which is printed."""
    values = task.score(examples, answers, language)
    for metric in [metric for metric, value in values.items() if finite(value) is None]:
        print(f"evaluate/{task.name}: {which}: {metric} is {values[metric]}; it counts as failed", flush=True)
    return {metric: finite(value) for metric, value in values.items()}


def _record(asked, system, seed, language, examples, answers):
    """Scores of one system in one language, after its answers are written down; None are those of a failed one."""
    task = asked.task
    values, path = dict.fromkeys(task.metric_names), predictions_of(asked.workdir, task.name, system, seed, language)
    path.unlink(missing_ok=True)  # perhaps of a model before this one
    if answers is not None:
        rows = task.predictions(examples, answers, language)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, "".join(json_text(row, f"task {task.name}: an answer") + "\n" for row in rows))
        values = _scored(task, examples, answers, language, f"{system}, seed {seed}, in {language}")
    return [
        Score(task.name, language, metric, value, seed, task.count(examples, metric), system)
        for metric, value in values.items()
    ]


def predictions_of(workdir: Workdir, task: str, system: str, seed: int | None, language: str) -> Path:
    """The file of a system's answers in a language: one JSON object an example, with `id`, `answer`, `correct`.

    Of candidates it is one a question, with what each was taken for in `candidates`; older runs have one a candidate.
    """
    return workdir.path / "predictions" / task / f"{system}-seed{seed}.{language}.jsonl"


def publish(
    workdir: Workdir, scores: Sequence[Score], systems: Sequence[str], source: str, seen: Sequence[str]
) -> None:
    """Replaces a task's scores in the run's file, but those of other systems on as many examples, and shows them; see
    `scores.table`."""
    task, counted = scores[0].task, {(score.language, score.metric, score.n) for score in scores}
    others = [
        score
        for score in read_scores(workdir.scores)
        if score.task != task or (score.system not in systems and (score.language, score.metric, score.n) in counted)
    ]
    write_atomically(workdir.scores, dump_scores([*others, *scores]))
    Console().print(Whole(table(scores, task, systems, source, seen)))
