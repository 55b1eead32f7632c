"""Answers to tests whose answers are hidden, as their owners want them handed in, and translations that are mined."""

from collections.abc import Callable, Sequence
from typing import Any

import keras

from rembed_keras.errors import Count, DivergedError, Seed, UserError, shortened
from rembed_keras.modeling.encoder import Encoder
from rembed_keras.tasks.kinds.encoding import are_finite, encode, predict
from rembed_keras.tasks.kinds.task import Task
from rembed_keras.tasks.retrieval import bitext
from rembed_keras.tasks.retrieval.parallel_text import sentence_encoder
from rembed_keras.tasks.scores import Score
from rembed_keras.tasks.suites.xtreme_submissions import check_language, write_bucc, write_tatoeba
from rembed_keras.training.initial.encoder_start import EncoderStart, check_length, record_kept
from rembed_keras.training.initial.finetuned import Start, chosen_rates
from rembed_keras.training.initial.weights import InitialWeights
from rembed_keras.training.loop.workdir import Workdir
from rembed_keras.training.rehearsal import rehearsed
from rembed_keras.training.stages.evaluate import Asked, publish


@rehearsed
def submit(
    workdir: Workdir,
    task: Task,
    write: Callable,
    encoder: Callable[..., Encoder] | None = None,
    pretrained: str | InitialWeights | None = None,
    sequence_length: Count = 64,
    seeds: Sequence[Seed] = (0,),
    start: Start = "pretrained",
) -> None:
    """Writes the answers to every part of the test into `submission/`, by the first model that did not fail.

    Of several learning rates the one that `evaluate` chose is taken.

    Args:
        workdir: the run's folder, after `evaluate`.
        task: the task, as in `finetune`.
        write: writes the answers to one part: `write(folder, task's name, examples, answers, part)`. If it has a
            `check`, that is called with the task's name and each part before anything is trained; if it has `labels`,
            these of both are what answers can be.
        encoder: as in `finetune`.
        pretrained: as in `finetune`.
        sequence_length: S, as in `finetune`.
        seeds: seeds to choose from, in order.
        start: which start to hand in.

    Raises:
        UserError: if `evaluate` has not scored it, or it was fine-tuned with another length, tokenizer or labels; for
            labels that a submission does not take; and as `check` does.
    """
    for part in task.splits.test:
        _check_part(task, part, write)
    if workdir.is_rehearsal:
        return
    if not task.splits.test:
        print(f"submit/{task.name}: there are no test examples to answer; nothing is handed in", flush=True)
        return
    initial = EncoderStart(workdir.path, encoder, pretrained)
    initial.check_length(sequence_length)
    asked = Asked(workdir, task, initial, sequence_length)
    chosen = chosen_rates(workdir.finetuned / task.name)
    if start not in chosen:
        raise UserError(f"submit/{task.name}: evaluate has scored no model that started {start}")
    answered = _answered(asked, start, chosen[start], seeds)
    if answered is None:
        print(f"submit/{task.name}: every model has failed; nothing is handed in", flush=True)
        return
    for part, answers in answered.items():
        written = write(workdir.path / "submission", task.name, task.splits.test[part], answers, part)
        print(f"submit/{task.name}: {written}", flush=True)


def _check_part(task: Any, part, write: Any) -> None:
    """Checks that answers to a part of the test can be written."""
    if (check := getattr(write, "check", None)) is not None:
        check(task.name, part)
    known = write.labels(task.name, part) if hasattr(write, "labels") else ()
    ours = getattr(task, "labels", getattr(task, "tags", ()))
    strange = next((label for label in ours if known and label not in known), None)
    if strange is not None:
        raise UserError(
            f"submit/{task.name}: the task has the label {shortened(strange)}, and a submission takes "
            f"{', '.join(known)}: read the suite's own files, or leave this stage out"
        )


def _answered(asked, start, rate, seeds):
    """What the first model that has not failed says to every part of the test; None if all have."""
    for seed in seeds:
        model = asked.model(start, rate, seed)
        if model is None:
            continue
        try:
            return {part: asked.answers(model, examples) for part, examples in asked.task.splits.test.items()}
        except DivergedError as error:
            print(f"submit/{asked.task.name}: {start}, seed {seed}: {error}; it counts as failed", flush=True)
    return None


@rehearsed
def mine(
    workdir: Workdir,
    name: str,
    texts: bitext.BitextSplits,
    encoder: Callable[..., Encoder] | None = None,
    pretrained: str | InitialWeights | None = None,
    sequence_length: Count = 64,
    start: Start = "pretrained",
    seed: Seed = 0,
) -> None:
    """Retrieves bitext by the nearest mean-pooled sentences, without fine-tuning: BUCC's and Tatoeba's.

    Where a development set is there, as in BUCC, pairs are believed above the threshold that suits it best; else every
    English sentence is asked for its translation, as in Tatoeba. Tests whose translations are hidden are handed in. If
    all are, the development set is scored instead, at the thresholds that suit it best, as "dev f1".

    Args:
        workdir: the run's folder.
        name: what scores call the task.
        texts: the sentences, by language.
        encoder: as in `finetune`.
        pretrained: as in `finetune`.
        sequence_length: S, tokens that are read of a sentence.
        start: "pretrained", or "scratch" for an untrained encoder.
        seed: of an untrained encoder's weights.

    Raises:
        UserError: for an encoder whose outputs are not finite, or that has fewer positions than are read; or a hidden
            test in a language that the suite does not have.
    """
    open_tests = {language: each for language, each in texts.test.items() if each.gold is not None}
    hidden = {language: each for language, each in texts.test.items() if each.gold is None}
    for language in hidden:
        check_language("bucc2018" if texts.dev else "tatoeba", language)
    if workdir.is_rehearsal:
        return
    initial = EncoderStart(workdir.path, encoder, pretrained)
    keras.utils.set_random_seed(seed)
    probed = initial.fresh()
    check_length(probed, sequence_length)
    record_kept(workdir, lambda: probed)
    initial.start(probed, start)
    model = sentence_encoder(probed)
    dev, test = (_vectors(model, initial.tokenizer, part, sequence_length) for part in (texts.dev, texts.test))
    thresholds = bitext.bucc_thresholds(texts.dev, dev) if texts.dev else None
    if thresholds is not None:
        scored = bitext.bucc_scores(open_tests or texts.dev, test if open_tests else dev, thresholds)
        if not open_tests:  # no score of a test: thresholds were chosen on the same sentences
            scored = {name: {f"dev {metric}": value for metric, value in each.items()} for name, each in scored.items()}
    else:
        scored = bitext.tatoeba_scores(open_tests, test)
    sizes = {language: len(each.english) for language, each in (open_tests or texts.dev).items()}
    scores = [
        Score(name, language, metric, value, seed if start == "scratch" else None, sizes[language], start)
        for language, values in scored.items()
        for metric, value in values.items()
    ]
    if scores:
        publish(workdir, scores, [start], "en", initial.languages)
    folder = workdir.path / "submission"
    if thresholds is not None:
        for language, pairs in bitext.bucc_pairs(hidden, test, thresholds).items():
            write_bucc(folder, pairs, language)
    else:
        for language, rows in bitext.tatoeba_rows(hidden, test).items():
            write_tatoeba(folder, hidden[language], rows, language)
    if hidden:
        print(f"mine/{name}: {len(hidden)} tests are hidden; what is handed in is in {folder}", flush=True)


def _vectors(model: keras.Model, tokenizer, texts, sequence_length):
    """Vectors (English [N, D], others [M, D]) by language."""
    sides = {language: (each.english, each.others) for language, each in texts.items()}
    vectors = {
        language: tuple(predict(model, encode(list(side.values()), tokenizer, sequence_length)) for side in both)
        for language, both in sides.items()
    }
    strange = next((language for language, both in vectors.items() if not are_finite(both)), None)
    if strange is not None:  # nothing would be found, as if there were no translations
        raise UserError(f"the encoder's outputs for the bitext of {strange} are not finite: take it in float32")
    return vectors
