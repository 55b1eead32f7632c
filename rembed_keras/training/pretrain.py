"""The stage that pays: an encoder and a head learn from text, step by step, and survive being killed.

What a step sees is a function of (seed, step), and a checkpoint holds all that a step changes, so a run that was
killed and started again takes the same steps as one that was not, to the bit.
"""

from collections.abc import Callable

import keras

from rembed_keras.errors import UserError
from rembed_keras.training import checkpoints
from rembed_keras.training.callbacks import (
    Checkpointer,
    ProgressLine,
    Recorder,
    StepClock,
)
from rembed_keras.training.distribution import place
from rembed_keras.training.workdir import Board, Workdir

RUN = "pretrain"


def pretrain(
    workdir: Workdir,
    encoder: Callable,
    model: Callable,
    optimizer: Callable,
    mixture: Callable,
    steps: int,
    corpus: str | None = None,
    checkpoint_every: int = 1000,
    log_every: int = 100,
    keep_checkpoints: int = 2,
    strategy: str = "one_device",
    seed: int = 0,
) -> None:
    """Pre-trains until `steps`, from the newest checkpoint if there is one.

    Args:
        workdir: where the prepared corpus lies and checkpoints and the log go.
        encoder: makes the `Encoder`.
        model: makes the pre-training model of an encoder, for example `MaskedLM`.
        optimizer: makes the optimizer.
        mixture: makes the `Mixture` of a `Corpus`.
        steps: steps of the whole run.
        corpus: folder that `rembed prepare` wrote; the workdir's own by default.
        checkpoint_every: steps between checkpoints.
        log_every: steps between rows of the log.
        keep_checkpoints: how many checkpoints stay on disk.
        strategy: where the model lives; see `distribution.place`.
        seed: of the initial weights and of dropout; the data has a seed of its own.

    Raises:
        UserError: for a corpus that is missing or does not fit the model, or a checkpoint of another model.
    """
    from rembed_keras.data.corpus import Corpus

    for knob, value in {
        "STEPS": steps,
        "CHECKPOINT_EVERY": checkpoint_every,
        "LOG_EVERY": log_every,
    }.items():
        if not isinstance(value, int) or value < 1:
            raise UserError(f"{knob} is {value!r}; it must be a positive whole number")
    batches = mixture(Corpus(corpus or workdir.corpus))
    placement = place(strategy, batches.batch_size)
    keras.utils.set_random_seed(seed)
    with placement.scope:
        learner = model(encoder())
        learner.track_groups(batches.languages)
        learner.compile(optimizer=optimizer(), jit_compile=placement.jit_compile)
        learner.optimizer.build(learner.trainable_variables)
    _check_fit(batches, learner.encoder)
    found = checkpoints.latest(workdir.checkpoints)
    if found is not None:
        _restore(learner, found)
        print(f"resuming from {found.path}" if found.step < steps else f"pre-training is done: {found.path}")
    if found is None or found.step < steps:
        _fit(
            learner,
            batches,
            workdir,
            found,
            steps,
            checkpoint_every,
            log_every,
            keep_checkpoints,
        )


def _fit(
    learner,
    batches,
    workdir,
    found,
    steps,
    checkpoint_every,
    log_every,
    keep_checkpoints,
):
    first_step = found.step if found else 0
    clock = StepClock(first_step, steps, batches.batch_size * batches.sequence_length)
    progress = ProgressLine(clock, "pre-training")
    board = Board(
        workdir.tensorboard / RUN,
        workdir.metrics.rewind(RUN, first_step),
        workdir.texts,
    )

    def save(step):
        running = [checkpoints.read(variable).tolist() for variable in _running(learner)]
        parts = {name: checkpoints.read_arrays(owned) for name, owned in _parts(learner).items()}
        checkpoints.save(workdir.checkpoints, step, parts, running, keep_checkpoints)

    def resume():
        if found:
            for variable, value in zip(_running(learner), found.running, strict=True):
                variable.assign(value)

    recorder = Recorder(clock, workdir.metrics, board, RUN, log_every, progress.show)
    checkpointer = Checkpointer(clock, checkpoint_every, save, resume)
    callbacks = [clock, recorder, checkpointer, progress]
    data = batches.batches(first_step, steps)
    learner.fit(data, steps_per_epoch=steps - first_step, shuffle=False, verbose=0, callbacks=callbacks)


def _restore(learner, found):
    for part, owned in _parts(learner).items():
        checkpoints.assign_arrays(owned, found.arrays(part), found.path / f"{part}.safetensors")


def _parts(learner):
    """Variables by the file that they are saved in."""
    kept = {id(weight) for weight in learner.encoder.weights}
    head = [weight for weight in learner.weights if id(weight) not in kept]
    return {
        "encoder": learner.encoder.weights,
        "head": head,
        "optimizer": learner.optimizer.variables,
    }


def _running(learner):
    """What a step changes besides those: states of random generators, and means of the open interval."""
    weights = {id(weight) for weight in learner.weights}
    running = {id(variable): variable for variable in (*learner.variables, *learner.metrics_variables)}
    return [variable for key, variable in running.items() if key not in weights]


def _check_fit(batches, encoder):
    config = encoder.get_config()
    pieces, rows = batches.corpus.tokenizer.vocabulary_size, config["vocabulary_size"]
    if pieces > rows:
        raise UserError(f"the corpus has {pieces} word pieces and the model vocabulary_size {rows}: they must agree")
    if batches.sequence_length > config["max_sequence_length"]:
        raise UserError(
            f"SEQUENCE_LENGTH is {batches.sequence_length}; the model's max_sequence_length is "
            f"{config['max_sequence_length']}"
        )
