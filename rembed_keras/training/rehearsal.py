"""Stages that come later look at what they will do before the first one begins: days may lie between.

What nobody has to train for is found then: a batch that the replicas cannot share, a callback that is none, an
optimizer that needs a newer Keras, a fine-tuning method or a loss term that the model does not suit, a text that is not
there. A stage that can be rehearsed is marked for it, and is called with a `Workdir` that says so.
"""

import gc
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import keras

from rembed_keras import compat
from rembed_keras.adaptation.methods import Method
from rembed_keras.adaptation.terms import Term
from rembed_keras.adaptation.tuning import tune
from rembed_keras.errors import BelowOne, Count, UserError
from rembed_keras.modeling.encoder import Encoder
from rembed_keras.modeling.losses.weights import counts
from rembed_keras.modeling.objectives.pretraining import PretrainingModel
from rembed_keras.modeling.saving.configuration import check_names
from rembed_keras.modeling.saving.filling import blank
from rembed_keras.tasks.kinds.task import Task
from rembed_keras.training.distributed.processes import is_together
from rembed_keras.training.distributed.strategies import Strategy, place
from rembed_keras.training.evaluators.evaluator import Evaluator
from rembed_keras.training.loop.own_callbacks import OwnCallbacks
from rembed_keras.training.loop.workdir import Workdir
from rembed_keras.training.optimizers.inner import check_inner
from rembed_keras.training.optimizers.schedules import OptimizerOfRate, WarmupLinearDecay


def rehearsed(stage: Callable) -> Callable:
    """Marks a stage that, called with a `Workdir` of a rehearsal, checks its arguments and ends."""
    vars(stage)["is_rehearsed"] = True
    return stage


def rehearse(
    stages: Sequence[Callable], workdir: Workdir, by_chief: Callable[[Callable], Any] = lambda action: action()
) -> None:
    """Has those of some stages check their arguments that can and are not about to begin.

    Args:
        stages: in their order.
        workdir: of the run.
        by_chief: has the chief alone do what it is given, for stages that are the chief's; see `Processes`.

    Raises:
        UserError: as they do.
    """
    workdir.is_rehearsal = True
    try:
        for stage in stages[1:]:
            if getattr(stage, "is_rehearsed", False) and is_together(stage):
                stage(workdir)
            elif getattr(stage, "is_rehearsed", False):
                by_chief(partial(stage, workdir))
    finally:
        workdir.is_rehearsal = False


def check_optimizer(optimizer: Callable[..., keras.optimizers.Optimizer]) -> None:
    """Makes an optimizer once: it may need a newer Keras, or be none that a run can wrap.

    Args:
        optimizer: makes it.

    Raises:
        UserError: as it does, and for one that cannot be wrapped.
    """
    with compat.numbering_names(Counter()):  # the one that trains has the name that it would have had
        check_inner(optimizer())


def check_pretraining(
    encoder: Callable[..., Encoder] | None,
    model: Callable[..., PretrainingModel],
    optimizer: Callable[..., keras.optimizers.Optimizer],
    terms: Sequence[Term],
    evaluators: Sequence[Evaluator] = (),
) -> None:
    """Checks what `pretrain` is given, as far as that takes no text, nor a teacher that a term asks.

    Args:
        encoder: makes the encoder; None for one that is not there yet, which nothing is held against.
        model: makes the pre-training model of an encoder.
        optimizer: makes the optimizer.
        terms: what is added to the loss.
        evaluators: what is evaluated.

    Raises:
        UserError: for an optimizer that cannot be made, or a term or an evaluator that the model does not suit.
    """
    check_optimizer(optimizer)
    own, made = _without_teachers(terms), [each for each in evaluators if not isinstance(each, type)]
    checks = [each.check for each in made if hasattr(each, "check")]
    checks += [each.check_model for each in terms if _asks_teacher(each) and hasattr(each, "check_model")]
    if encoder is not None and (own or checks):
        with blank():
            learner = model(encoder())
            learner.use_terms(own)
        for check in checks:
            check(learner)
        del learner
        gc.collect()  # models refer to themselves, and the first stage may need all memory that there is


def _asks_teacher(term):
    """Whether a term counts, and asks a teacher."""
    return not isinstance(term, type) and bool(getattr(term, "teachers", ())) and counts(term)


def _without_teachers(terms):
    return [each for each in terms if not getattr(each, "teachers", ())]


def check_finetuning(
    task: Task,
    encoder: Callable[..., Encoder] | None,
    methods: Sequence[Method],
    terms: Sequence[Term],
    dropout: BelowOne,
    optimizer: OptimizerOfRate,
    callbacks: Sequence[Callable],
    strategy: Strategy,
    batch_size: Count,
) -> None:
    """Checks what `finetune` is given, as far as that takes neither an encoder that was trained nor training data.

    A method that training data settle is not applied, and a term that asks a teacher is left aside.

    Args:
        task: as of `finetune`, and all others.
        encoder: makes the encoder; None for one that is not there yet, which methods and terms are not held against.
        methods: what trains, or is added and trains.
        terms: what is added to the loss.
        dropout: rate before the head.
        optimizer: makes the optimizer of a learning rate.
        callbacks: make callbacks.
        strategy: where the models live.
        batch_size: B.

    Raises:
        UserError: for callbacks that are none, an optimizer that cannot be made, a batch that replicas cannot share, or
            a method or term that the model does not suit.
    """
    place(strategy, batch_size, knob="FINETUNE_BATCH_SIZE")
    terms = _without_teachers(terms)
    try:
        OwnCallbacks(callbacks)
        check_optimizer(partial(optimizer, learning_rate=WarmupLinearDecay(1.0, 0, 1)))
        if encoder is not None and (methods or terms):
            _check_model(task, encoder, methods, terms, dropout)
    except UserError as error:
        raise UserError(f"finetune/{task.name}: {error}") from None


def _check_model(task, encoder, methods, terms, dropout):
    """Holds methods and terms against a model whose weights are blank."""
    of_data = [each for each in methods if getattr(type(each), "settle", Method.settle) is not Method.settle]
    with blank():
        model = task.make_model(encoder(), dropout)
        for each in of_data:
            each.check_model(model)
        tune(model, [each for each in methods if each not in of_data])
        model.use_terms(terms)
        check_names(keras.saving.serialize_keras_object(model))
    del model
    gc.collect()
