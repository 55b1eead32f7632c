"""Fine-tuning: the encoder alone is loaded, a task's head is put on it, both learn the task in one language.

Pre-training's head is not loaded. The same is done from random weights: the difference is what pre-training was worth.
"""

import itertools
import json
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import keras

from rembed_keras.adaptation.methods import Method
from rembed_keras.adaptation.terms import Term
from rembed_keras.adaptation.tuning import learning_rate_multipliers, task_variables, tune, tuned
from rembed_keras.data.json_files import read_json
from rembed_keras.data.writing import write_atomically
from rembed_keras.errors import BelowOne, Count, CountOrZero, DivergedError, Rate, Seed, Share, check_counts
from rembed_keras.modeling.encoder import Encoder
from rembed_keras.modeling.saving.configuration import check_names
from rembed_keras.modeling.sizes import Dtype
from rembed_keras.tasks.kinds.batches import batches, cut_batches
from rembed_keras.tasks.kinds.task import Task
from rembed_keras.training.distributed.processes import together
from rembed_keras.training.distributed.strategies import Strategy, place
from rembed_keras.training.initial.encoder_start import EncoderStart, record_kept
from rembed_keras.training.initial.finetuned import (
    FAILED,
    SETTINGS,
    STARTS,
    Start,
    begin_task,
    description_of,
    folder_of,
    has_failed,
    model_settings_of,
    retry_failed,
)
from rembed_keras.training.initial.places import LANGUAGES
from rembed_keras.training.initial.teachers import read_by, with_teachers
from rembed_keras.training.initial.weights import InitialWeights
from rembed_keras.training.loop import checkpoints, starting
from rembed_keras.training.loop.callbacks import Measures
from rembed_keras.training.loop.fit import train
from rembed_keras.training.loop.progress import Forecast, Trainings
from rembed_keras.training.loop.workdir import Workdir
from rembed_keras.training.optimizers.schedules import OptimizerOfRate, WarmupLinearDecay
from rembed_keras.training.optimizers.training_optimizer import wrapped
from rembed_keras.training.rehearsal import check_finetuning, rehearsed
from rembed_keras.training.stages.evaluate import check_models


@together
@rehearsed
def finetune(
    workdir: Workdir,
    optimizer: OptimizerOfRate,
    task: Task,
    encoder: Callable[..., Encoder] | None = None,
    pretrained: str | InitialWeights | None = None,
    sequence_length: Count = 64,
    batch_size: Count = 32,
    epochs: Count = 3,
    learning_rates: Sequence[Rate] = (1e-4,),
    methods: Sequence[Method] = (),
    clip_norm: Rate | None = 1.0,
    skip_nonfinite: CountOrZero = 0,
    warmup_share: Share = 0.1,
    dropout: BelowOne | None = None,
    starts: Sequence[Start] = STARTS,
    seeds: Sequence[Seed] = (0,),
    log_every: Count = 50,
    callbacks: Sequence[Callable[..., keras.callbacks.Callback]] = (),
    terms: Sequence[Term] = (),
    strategy: Strategy = "one_device",
    jit_compile: bool = True,
    group_by_length: bool = False,
    dtype: Dtype | None = None,
) -> None:
    """Fine-tunes one model for each start, learning rate and seed; each is resumed, or left alone if it is done.

    A training whose loss is no longer finite counts as failed, which is reported with the scores; the others go on.

    Args:
        workdir: the run's folder.
        optimizer: makes the optimizer of a learning rate, any of Keras's; `TrainingOptimizer` is put around it.
        task: what to learn.
        encoder: makes the `Encoder`; None to make what `pretrained` holds.
        pretrained: what to start from, `InitialWeights` or the folder of another run, one of its fine-tuned tasks, a
            preset or a Hugging Face model; by default the run's own newest checkpoint.
        sequence_length: S, tokens that are read of an example.
        batch_size: B.
        epochs: passes over the training data.
        learning_rates: the highest; it rises from 0 and falls to 0 linearly. `evaluate` chooses among several.
        methods: what trains, or is added and trains, for example `adaptation.Lora()`; everything by default.
        clip_norm: the largest global norm of a gradient; None does not clip.
        skip_nonfinite: how many steps with a non-finite gradient are skipped before training has diverged.
        warmup_share: share of the steps that it rises.
        dropout: rate before the head; 0.1 by default, and none where the head of a task takes none.
        starts: "pretrained" for the pre-trained encoder, "scratch" for one as initialised.
        seeds: of the head's initial weights, of dropout and of the order; one model each.
        log_every: steps between rows of the log.
        callbacks: make callbacks of Keras's or of your own, without (); see `loop.own_callbacks`.
        terms: what is added to the task's loss, for example `adaptation.terms.RDrop()`.
        strategy: where the model lives; see `distribution.place`.
        jit_compile: whether to use XLA where it works.
        group_by_length: whether rows of similar length share batches, which are other batches; see `kinds.batches`.
        dtype: of the models, a dtype or policy of Keras; that of the encoder that they start from by default.

    Raises:
        UserError: for a start that is unknown, no pre-trained encoder to start from or one with fewer positions than
            are read, dropout before a head that takes none, no start, seed or learning rate or one twice, several
            learning rates and no data to choose by, or another task of the same name, one with other examples or
            settings.
    """
    counts = {"FINETUNE_SEQUENCE_LENGTH": sequence_length, "FINETUNE_BATCH_SIZE": batch_size, "log_every": log_every}
    check_counts(counts | {"FINETUNE_EPOCHS": epochs})
    check_models(task, starts, learning_rates, seeds)
    dropout = task.head_dropout(dropout)
    if workdir.is_rehearsal:
        check_finetuning(task, encoder, methods, terms, dropout, optimizer, callbacks, strategy, batch_size)
        return
    initial = EncoderStart(workdir.path, encoder, pretrained, dtype)
    encoded = _encoded(workdir, task, initial, sequence_length)
    record_kept(workdir, initial.blank)
    settings = {
        "epochs": epochs,
        "batch_size": batch_size,
        "warmup_share": warmup_share,
        "dropout": dropout,
        "methods": [type(method).__name__ for method in methods],
        "terms": [type(term).__name__ for term in terms],
        "examples_sha256": encoded.checksum(),
        "group_by_length": group_by_length,
    } | (model_settings_of(task) | initial.settings(starts))
    placement = place(strategy, batch_size, jit_compile, knob="FINETUNE_BATCH_SIZE")
    settings = placement.processes.by_chief(lambda: begin_task(workdir.finetuned / task.name, settings))
    placement.processes.by_chief(lambda: retry_failed(workdir.finetuned / task.name, initial.dtype))
    steps = math.ceil(epochs * len(encoded.rows) / batch_size)
    wrap = partial(wrapped, clip_norm=clip_norm, skip_nonfinite=skip_nonfinite)
    taught = with_teachers(terms, initial.tokenizer, sequence_length, placement)
    learners = _Learners(task, initial, optimizer, wrap, methods, taught, dropout, placement, (warmup_share, steps))
    trainings = _announced(
        workdir, task, len(learning_rates) * len(starts) * len(seeds), tokens=steps * batch_size * sequence_length
    )
    for trainings.number, (rate, start, seed) in enumerate(itertools.product(learning_rates, starts, seeds), start=1):
        folder = folder_of(workdir, task, start, rate, seed)
        if has_failed(folder):
            continue
        data = batches(encoded, batch_size, seed, group_by_length)
        learner = learners.begin(start, rate, seed, data)
        data, shapes = cut_batches(data, learner, encoded, steps, group_by_length, placement.takes_shapes)
        if workdir.is_chief:
            _record_cost(workdir, task, tuned(learner))
            folder.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(folder.parent / SETTINGS, json.dumps(settings, indent=1))
        learner.build_metrics(keras.utils.unpack_x_y_sample_weight(data[0])[1])
        try:
            train(
                learner,
                lambda first, last, data=data: data.slice(slice(first, last)).to_iter_dataset(),
                placement,
                workdir,
                folder,
                run=f"finetune/{folder.relative_to(workdir.finetuned).as_posix()}",
                steps=steps,
                until=steps,
                tokens_per_step=float((encoded.inputs["padding_mask"] > 0).mean(axis=0).sum()) * batch_size,
                checkpoint_every=max(steps, 1),
                log_every=log_every,
                measures=Measures(batch_size),
                keep_checkpoints=1,
                callbacks=callbacks,
                trainings=trainings,
                shapes=shapes,
                read=read_by(taught),
            )
        except DivergedError as error:
            if workdir.is_chief:
                folder.mkdir(parents=True, exist_ok=True)
                write_atomically(folder / FAILED, json.dumps({"reason": str(error), "dtype": initial.dtype}))
                print(f"{error}; it counts as failed", flush=True)
    if workdir.is_chief:
        _record_task(workdir.finetuned / task.name, task, initial, sequence_length)


def _encoded(workdir, task, initial, sequence_length):
    """The training examples as arrays, for an encoder that can read them; how many are not read whole is printed."""
    initial.check()
    initial.check_length(sequence_length)
    encoded = task.encode(task.splits.train, initial.tokenizer, sequence_length, initial.num_segments)
    for matter, count in encoded.shortfalls().items():
        if count and workdir.is_chief:
            print(f"finetune/{task.name}: {count / len(task.splits.train):.1%} of the training examples {matter}")
    return encoded


def _announced(workdir, task, count, tokens):
    """The trainings of a task, each on so many tokens; about how long they take is printed if it is known."""
    trainings = Trainings(count, Forecast(workdir, tokens).seconds())
    if trainings.announced() and workdir.is_chief:
        print(f"finetune/{task.name}: {trainings.announced()}", flush=True)
    return trainings


class _Learners:
    """The models of a task, one after the other; those of one learning rate share one program, compiled once."""

    def __init__(self, task, initial, optimizer, wrap, methods, terms, dropout, placement, schedule):
        self.task, self.initial, self.optimizer, self.wrap = task, initial, optimizer, wrap
        self.methods, self.terms = methods, terms
        self.dropout, self.placement = dropout, placement
        self.schedule = round(schedule[0] * schedule[1]), schedule[1]
        self._learner: Any = None
        self._rate: float | None = None
        self._checksum: str | None = None  # of the pre-trained encoder

    def begin(self, start, rate, seed, data):
        """A compiled model that has learned nothing of the task yet, until the next is asked for."""
        fresh = self._fresh(start, rate, seed, data)
        if rate != self._rate or self._learner.get_config()["methods"] != fresh.get_config()["methods"]:
            self._learner, self._rate = fresh, rate
            return fresh
        ours, theirs = ([*model.variables, *model.optimizer.variables] for model in (self._learner, fresh))
        for variable, value in zip(ours, theirs, strict=True):
            variable.assign(checkpoints.read(value))
        self._learner.start = fresh.start
        return self._learner

    def _fresh(self, start, rate, seed, data):
        keras.backend.clear_session(free_memory=False)
        keras.utils.set_random_seed(seed)
        with self.placement.scope():
            fresh = self.task.make_model(self.initial.fresh(), self.dropout)
        self.initial.start(fresh.encoder, start)
        started = self._started(fresh) if start == "pretrained" else None  # others' initial weights are nowhere else
        methods = self._settled(fresh, data)
        with self.placement.scope():  # a method may add layers
            tune(fresh, methods)
            check_names(keras.saving.serialize_keras_object(fresh))  # or no stage could read what is trained
            fresh.start = started if starting.is_partial(fresh, task_variables(fresh)) else None
            if fresh.start is not None and self.placement.processes.is_chief:
                self.initial.hold()
            multipliers = learning_rate_multipliers(fresh, methods)
            fresh.use_terms(self.terms)
            optimizer = self.optimizer(learning_rate=WarmupLinearDecay(rate, *self.schedule))
            fresh.compile(
                optimizer=self.wrap(fresh, optimizer, multipliers=multipliers),
                weighted_metrics=list(self.task.training_metrics),
                jit_compile=self.placement.jit_compile,
            )
            fresh.optimizer.build(fresh.trainable_variables)
        return fresh

    def _started(self, model):
        """Where the weights are that a model has now, and their checksum; None if all of them will be trained."""
        if self.placement.processes.is_chief:
            self.initial.announce(f"finetune/{self.task.name}")
        if not self.methods and not model.encoder.arguments["freeze_input_embedding"]:
            return None
        self._checksum = self._checksum or starting.checksum(model.encoder.weights)
        return self.initial.record | {"sha256": self._checksum}

    def _settled(self, model, data):
        """The methods, those that ask the training data as they are for this model, which are printed."""
        methods = [method.settle(model, (data[i] for i in itertools.count())) for method in self.methods]
        if self.placement.processes.is_chief:
            for method, given in zip(methods, self.methods, strict=True):
                if method is not given:
                    print(f"finetune/{self.task.name}: {method}", flush=True)
        return methods


def _record_task(folder, task, initial, sequence_length):
    """Writes what answering files, and starting from the task's models, asks for beside these."""
    folder.mkdir(parents=True, exist_ok=True)
    initial.tokenizer.copy_to(folder)
    read = {"sequence_length": sequence_length, "tokenizer_sha256": initial.tokenizer.sha256}
    read |= {LANGUAGES: initial.languages}
    write_atomically(folder / "task.json", json.dumps(description_of(task) | read, indent=1, ensure_ascii=False))


def _record_cost(workdir, task, cost):
    """Writes into the ledger what a task costs besides the encoder that all tasks share, and prints it once."""
    path = workdir.path / "ledger.json"
    costs = read_json(path)
    of_task = {"trainable": cost.trainable, "stored": cost.stored, "total": cost.total}
    of_task |= {"teacher": cost.teacher} if cost.teacher else {}
    if costs.setdefault("tasks", {}).get(task.name) != of_task:
        costs["tasks"][task.name] = of_task
        write_atomically(path, json.dumps(costs, indent=1))
        print(
            f"finetune/{task.name}: {cost.trainable:,} of {cost.total:,} parameters are trained, {cost.stored:,} are "
            "the task's own",
            flush=True,
        )
