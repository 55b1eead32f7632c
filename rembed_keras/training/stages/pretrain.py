"""The stage that pays: an encoder and a head that will be dropped learn from text."""

from collections.abc import Callable, Sequence

import keras
import numpy as np

from rembed_keras.adaptation.terms import Term
from rembed_keras.data.corpus import Corpus
from rembed_keras.data.json_files import read_json
from rembed_keras.data.pipeline.mixture import Mixture
from rembed_keras.data.pipeline.schedules import check_shares
from rembed_keras.errors import Count, CountOrZero, Rate, Seed, check_counts
from rembed_keras.modeling.blocks.positions import longest_row
from rembed_keras.modeling.blocks.stack import check_packed_rows
from rembed_keras.modeling.encoder import Encoder
from rembed_keras.modeling.objectives.pretraining import PretrainingModel
from rembed_keras.modeling.sizes import check_pieces, check_sequence_length
from rembed_keras.training.distributed import devices
from rembed_keras.training.distributed.meshes import whole
from rembed_keras.training.distributed.processes import together
from rembed_keras.training.distributed.strategies import Placement, Strategy, place
from rembed_keras.training.evaluators.evaluator import EvaluationData, Evaluator
from rembed_keras.training.initial.pretraining_start import PretrainingStart
from rembed_keras.training.initial.reading import read_corpus, read_tokenizer
from rembed_keras.training.initial.teachers import open_teachers, read_by, with_teachers
from rembed_keras.training.initial.weights import InitialWeights
from rembed_keras.training.loop import checkpoints
from rembed_keras.training.loop.callbacks import Measures
from rembed_keras.training.loop.evaluation import Best, planned
from rembed_keras.training.loop.fit import train
from rembed_keras.training.loop.own_callbacks import OwnCallbacks
from rembed_keras.training.loop.workdir import Workdir
from rembed_keras.training.optimizers.training_optimizer import wrapped
from rembed_keras.training.rehearsal import check_pretraining, rehearsed
from rembed_keras.training.sinks.pieces import frequent_ids, pieces_of
from rembed_keras.training.stages.run import pretraining


@together
@pretraining
@rehearsed
def pretrain(
    workdir: Workdir,
    encoder: Callable[..., Encoder] | None,
    model: Callable[..., PretrainingModel],
    optimizer: Callable[..., keras.optimizers.Optimizer],
    mixture: Callable[..., Mixture],
    steps: Count,
    corpus: str | None = None,
    initial: str | InitialWeights | None = None,
    clip_norm: Rate | None = 1.0,
    skip_nonfinite: CountOrZero = 0,
    checkpoint_every: Count = 1000,
    log_every: Count = 100,
    keep_checkpoints: Count = 2,
    keep_checkpoint_every: Count | None = None,
    callbacks: Sequence[Callable[..., keras.callbacks.Callback]] = (),
    terms: Sequence[Term] = (),
    eval_every: Count | None = None,
    evaluators: Sequence[Evaluator] = (),
    keep_best: str | None = None,
    best_is: Best = "lowest",
    profile_steps: CountOrZero = 0,
    strategy: Strategy = "one_device",
    jit_compile: bool = True,
    seed: Seed = 0,
) -> None:
    """Pre-trains until `steps`, from the newest checkpoint if there is one.

    A schedule of sizes in `mixture` makes phases; the steps, the optimizer and its learning rate go on through all.

    Args:
        workdir: the run's folder; checkpoints and the log go there.
        encoder: makes the `Encoder`; None for one as that of `initial`.
        model: makes the pre-training model of an encoder, for example `MaskedLM`.
        optimizer: makes the optimizer, any of Keras's; `TrainingOptimizer` is put around it.
        mixture: makes the `Mixture` of a `Corpus`; where its batches or rows change size, a checkpoint is written.
        steps: steps of the whole run.
        corpus: folder that `rembed prepare` wrote; the workdir's own by default.
        initial: what the encoder starts from, `InitialWeights` or the folder of a run, one of its fine-tuned tasks, a
            preset or a Hugging Face model; from scratch by default. A pre-training head of the same class, names and
            shapes starts along. They are not read once there is a checkpoint.
        clip_norm: the largest global norm of a gradient; None does not clip.
        skip_nonfinite: how many steps with a non-finite gradient are skipped before training has diverged.
        checkpoint_every: steps between checkpoints.
        log_every: steps between rows of the log.
        keep_checkpoints: how many of the newest checkpoints stay on disk.
        keep_checkpoint_every: checkpoints of these steps, and their multiples, stay too, for `trace_retrieval`.
        callbacks: make callbacks of Keras's or of your own, without (); see `loop.own_callbacks`.
        terms: what is added to the model's loss, for example `adaptation.terms.MiniLM()`.
        eval_every: steps between evaluations; None evaluates nothing.
        evaluators: what is evaluated; see `evaluators.evaluator`.
        keep_best: a scalar of theirs, such as "loss": the checkpoint of its best step so far stays, which
            `checkpoints/best.json` names; None keeps none.
        best_is: whether its "lowest" or "highest" value is the best.
        profile_steps: how many steps are profiled, for TensorBoard; see `sinks.profiling`.
        strategy: where the model lives; see `distribution.place`.
        jit_compile: whether to use XLA where it works.
        seed: of the initial weights and of dropout; the data has a seed of its own.

    Raises:
        UserError: for a corpus that is missing or does not fit the model, initial weights of another structure or
            tokenizer, checkpoints of another model, corpus or teacher, or an evaluation without evaluators or held-out
            text.
    """
    check_counts({"STEPS": steps, "CHECKPOINT_EVERY": checkpoint_every, "LOG_EVERY": log_every})
    every = 1 if keep_checkpoint_every is None else keep_checkpoint_every
    check_counts({"keep_checkpoints": keep_checkpoints, "keep_checkpoint_every": every})
    check_counts({"SEED": seed}, "Seed")
    own = OwnCallbacks(callbacks)
    if workdir.is_rehearsal:
        check_pretraining(encoder, model, optimizer, terms, evaluators if eval_every else ())
        return
    batches = mixture(Corpus(corpus or workdir.corpus)).up_to(steps)
    placement = place(strategy, batches.batch_size, jit_compile)
    placement.processes.by_chief(lambda: [check(batches.corpus) for check in workdir.asked_of_corpus])
    evaluation = planned(evaluators, eval_every, EvaluationData(batches, placement), keep_best, best_is)
    start = PretrainingStart(workdir, initial, batches.corpus.tokenizer)
    read = read_corpus(workdir, batches.corpus, start.resumed)
    terms = with_teachers(terms, batches.corpus.tokenizer, batches.sequence_length, placement, is_packed=True)
    keras.utils.set_random_seed(seed)

    def make():
        learner = start.make(encoder, model)
        reading = batches.corpus.tokenizer, batches.sequence_length, placement
        open_teachers(learner.teachers, *reading, is_packed=True)
        learner.check_teachers()
        return learner

    learner = made_learner(make, optimizer, terms, batches.languages, placement, clip_norm, skip_nonfinite)
    _check_fit(batches, learner.encoder)
    phases, costs, began = batches.phases(steps), _costs(workdir), _began(workdir, start.resumed, steps)
    check_shares({phase.first_step: phase.batch_size for phase in phases}, placement.replicas * learner.micro_batches)
    try:
        for number, phase in enumerate(_to_come(phases, workdir)):
            if workdir.is_chief and len(phases) > 1:
                shape = f"{phase.batch_size:,} rows of {phase.sequence_length:,} tokens"
                print(f"pretrain: steps {phase.first_step} to {phase.last_step} take {shape}", flush=True)
            learner.train_function = None  # one that was traced for both shapes may compute other bits
            train(
                learner,
                batches.batches,
                placement,
                workdir,
                workdir.checkpoints,
                run="pretrain",
                steps=phase.last_step,
                until=steps,
                tokens_per_step=phase.tokens_per_step,
                checkpoint_every=checkpoint_every,
                log_every=log_every,
                measures=_measures(costs, began, batches, learner, placement, phases, phase),
                keep_checkpoints=keep_checkpoints,
                keep_checkpoint_every=keep_checkpoint_every,
                callbacks=own,
                evaluation=evaluation,
                profile_steps=profile_steps if number == 0 else 0,
                coordinates=lambda step, batch: _coordinates(batches, step, batch),
                begins=_before(began, phases, phase)[:2],
                began=began,
                read=[read, *read_by(terms, learner.teachers), read_tokenizer(batches.corpus)],
            )
    except Exception:
        if batches.corpus.damage is not None:  # which became another error on its way through threads and graphs
            raise batches.corpus.damage from None
        raise
    ids, languages = frequent_ids(batches)
    vectors = whole(learner.encoder.token_embedding(ids[None]))[0]  # [1, N] -> [N, E_in]
    if not workdir.is_chief:
        return
    workdir.watch.show_pieces(pieces_of(batches, ids, languages, vectors))
    _say_loss(workdir, learner, batches, steps)


def _say_loss(workdir, learner, batches, steps):
    """Prints where the loss ended beside what it is without context; every row may have a step that was skipped.

    Rows of later steps are of a pre-training after this one.
    """
    rows = [row for row in workdir.metrics.rows("pretrain") if row["loss"] is not None and row["step"] <= steps]
    nats, entropy = learner.nats_of(rows[-1]) if rows else None, batches.unigram_entropy
    if nats is not None:
        print(
            f"pretrain: the loss ended at {nats:.2f} nats per masked token; the unigram entropy is {entropy:.2f}, "
            f"{abs(entropy - nats):.2f} {'more' if entropy >= nats else 'less'}",
            flush=True,
        )


def made_learner(
    make: Callable,
    optimizer: Callable,
    terms: Sequence[Term],
    languages: Sequence[str],
    placement: Placement,
    clip_norm: Rate | None,
    skip_nonfinite: CountOrZero,
):
    """A model and its optimizer, ready for `fit`, with variables where a strategy has them.

    Args:
        make: makes the pre-training model.
        optimizer: makes the optimizer.
        terms: as of `pretrain`, after their teachers were opened.
        languages: whose losses are logged.
        placement: of the strategy.
        clip_norm: as of `pretrain`.
        skip_nonfinite: as of `pretrain`.
    """
    with placement.scope():
        learner = make()
        learner.use_terms(terms)
        learner.track_groups(languages)
        trained_by = wrapped(learner, optimizer(), clip_norm, skip_nonfinite)
        learner.compile(optimizer=trained_by, jit_compile=placement.jit_compile)
        learner.optimizer.build(learner.trainable_variables)
    return learner


def _measures(costs, began, batches, learner, placement, phases, phase):
    """What rows of a phase say beside losses: FLOPs by the run's ledger, and the entropy that a loss without context
    has."""
    rate = devices.published_flops()
    constants = {"unigram_entropy": batches.unigram_entropy} if _is_in_nats(learner) else {}
    here = phases.index(phase)
    _, _, before = _before(began, phases, phase)
    peak, flops = None if rate is None else placement.replicas * rate, _flops_per_token(costs, phase)
    later = sum(
        (each.last_step - each.first_step) * each.tokens_per_step * (_flops_per_token(costs, each) or 1)
        for each in phases[here + 1 :]
    )
    return Measures(phase.batch_size, flops, peak, constants, before, later / (phase.tokens_per_step * (flops or 1)))


def _costs(workdir):
    """The run's ledger; None if it has none."""
    path = workdir.path / "ledger.json"
    return read_json(path) if path.exists() else None


def _flops_per_token(costs, phase):
    """Of training, in a phase of a run; None if it has no ledger."""
    if costs is None:
        return None
    begun = [each for each in costs.get("phases", []) if each["first_step"] < phase.last_step]  # of all pre-trainings
    return begun[-1]["training_flops"] / begun[-1]["tokens"] if begun else costs["training_flops_per_token"]["total"]


def _began(workdir, found, steps):
    """The step from which this pre-training went on, where another was before, and the tokens and rows until then.

    A callback may have ended that one before its last step, so the log says it, and checkpoints keep it.
    """
    state = found.state if found else {}
    if state.get("until", steps) >= steps:
        return tuple(state.get("began", (0, 0, 0)))
    last = [row for row in workdir.metrics.rows("pretrain") if row["step"] == found.step]
    return (found.step, last[-1]["tokens"], last[-1]["examples"]) if last else (0, 0, 0)


def _before(began, phases, phase):
    """From which step on batches are as in a phase, and the tokens and rows of all steps before it."""
    begin, tokens, rows = began
    for each in phases[: phases.index(phase)]:
        steps = max(0, each.last_step - max(each.first_step, begin))
        tokens, rows = tokens + steps * each.tokens_per_step, rows + steps * each.batch_size
    return max(phase.first_step, begin), tokens, rows


def _is_in_nats(learner):
    """Whether a model's loss is that of masked tokens, and no sum of several."""
    try:
        return learner.nats_of({"loss": 1.0}) == 1.0
    except KeyError:
        return False


def _coordinates(batches, step, batch):
    """How to have a batch again: `Mixture(corpus, ..., seed=seed)[step]`."""
    counts = np.bincount(batch[0]["language_ids"], minlength=len(batches.languages))
    rows = {language: int(count) for language, count in zip(batches.languages, counts, strict=True) if count}
    return {"seed": batches.seed, "step": step - 1, "rows": rows}


def _to_come(phases, workdir):
    """The phases that are not over yet; the last one in any case."""
    found = checkpoints.latest(workdir.checkpoints)
    done = found.step if found else 0
    return [phase for phase in phases[:-1] if phase.last_step > done] + phases[-1:]


def _check_fit(batches, encoder):
    config = encoder.get_config()
    check_packed_rows(config)
    check_pieces(batches.corpus.tokenizer.vocabulary_size, config["vocabulary_size"])
    check_sequence_length(batches.sequence_length, longest_row(config))
