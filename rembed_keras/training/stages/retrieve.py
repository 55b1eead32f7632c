"""What an encoder knows of languages before any fine-tuning, by bitext retrieval."""

import json
from collections.abc import Callable, Sequence
from functools import partial

import keras
import numpy as np

from rembed_keras.analysis.reports.score_plots import draw_curves
from rembed_keras.data.corpus import corpus_of_run
from rembed_keras.data.writing import write_atomically
from rembed_keras.errors import Count, Seed, UserError
from rembed_keras.modeling.encoder import Encoder
from rembed_keras.tasks.retrieval.parallel_text import (
    ParallelText,
    baselines,
    check_translations,
    precisions,
    sentence_encoder,
)
from rembed_keras.tasks.scores import Score
from rembed_keras.training.initial.encoder_start import EncoderStart, check_length, record_kept
from rembed_keras.training.initial.places import RECORD
from rembed_keras.training.initial.weights import InitialWeights
from rembed_keras.training.loop import checkpoints, restoring
from rembed_keras.training.loop.workdir import Workdir
from rembed_keras.training.rehearsal import rehearsed
from rembed_keras.training.stages.evaluate import publish


@rehearsed
def retrieve(
    workdir: Workdir,
    texts: Sequence[ParallelText],
    encoder: Callable[..., Encoder] | None = None,
    pretrained: str | InitialWeights | None = None,
    sequence_length: Count = 64,
    seed: Seed = 0,
) -> None:
    """Scores bitext retrieval (precision@1), after pre-training and before, beside TF-IDF and chance.

    Args:
        workdir: the run's folder.
        texts: the parallel texts.
        encoder: as in `finetune`.
        pretrained: as in `finetune`.
        sequence_length: S, tokens that are read of a sentence.
        seed: of the weights before pre-training, as in `pretrain`.

    Raises:
        UserError: if there is no pre-trained encoder, one with fewer positions than are read or whose outputs are not
            finite, a text without translations, or two texts of one name.
    """
    check_translations(texts)
    if workdir.is_rehearsal:
        return
    initial = EncoderStart(workdir.path, encoder, pretrained)
    keras.utils.set_random_seed(seed)
    probed = initial.fresh()
    check_length(probed, sequence_length)
    record_kept(workdir, lambda: probed)
    sentences, found = sentence_encoder(probed), {}
    starts = {
        "pretrained": partial(initial.start, probed, "pretrained"),
        "untrained": partial(probed.set_weights, probed.get_weights()),
    }
    for system, start in starts.items():
        start()
        asked = initial.tokenizer, sequence_length, f"the {system} encoder"
        found[system] = {text: _precisions(sentences, text, *asked) for text in texts}
    for text in texts:
        scores: list[Score] = []
        for system in found:
            for language in text.languages:
                scores += _both_directions(text, language, found[system][text][language], seed, system)
        for language in text.languages:
            for system, values in baselines(text, language).items():
                scores += _both_directions(text, language, values, None, system)
        publish(workdir, scores, ["pretrained", "untrained", "tfidf", "chance"], text.pivot, initial.languages)


@rehearsed
def trace_retrieval(
    workdir: Workdir,
    encoder: Callable[..., Encoder],
    texts: Sequence[ParallelText],
    sequence_length: Count = 64,
    seed: Seed = 0,
) -> None:
    """Scores every checkpoint that is kept, and draws `retrieval.png`: bitext retrieval against tokens read.

    Before the first step stands the encoder as initialised, unless pre-training started from other weights. Means are
    over the languages that the corpus has; a text without any has no curve.

    Args:
        workdir: the run's folder; see `pretrain`'s `keep_checkpoint_every`.
        encoder: makes the `Encoder`.
        texts: the parallel texts.
        sequence_length: S, tokens that are read of a sentence.
        seed: of the weights before pre-training, as in `pretrain`.

    Raises:
        UserError: for an encoder with fewer positions than are read or whose outputs are not finite, a text without
            translations, or two texts of one name.
    """
    check_translations(texts)
    if workdir.is_rehearsal:
        return
    corpus = corpus_of_run(workdir.path)
    rows = [{"step": 0, "tokens": 0}, *workdir.metrics.rows("pretrain")]  # one at the end of every phase
    keras.utils.set_random_seed(seed)
    probed = encoder()
    check_length(probed, sequence_length)
    sentences = sentence_encoder(probed)
    points = []
    read = {text: [name for name in text.languages if name in corpus.languages] for text in texts}
    for text in [each for each in texts if not read[each]]:
        print(f"retrieval against tokens: {text.name} has no language that was read, and is left out", flush=True)
        del read[text]
    curves: dict[str, list[tuple[float, float]]] = {text.name: [] for text in read}
    first = () if (workdir.path / RECORD).exists() else (None,)
    for found in (*first, *reversed([*checkpoints.newest_first(workdir.checkpoints)])):
        if found:
            restoring.load_kept(probed, found)
        step = found.step if found else 0
        tokens = round(float(np.interp(step, [row["step"] for row in rows], [row["tokens"] for row in rows])))
        for text, names in read.items():
            found_at = _precisions(sentences, text, corpus.tokenizer, sequence_length, f"the encoder of step {step}")
            mean = float(np.mean([found_at[name] for name in names]))
            points.append({"text": text.name, "step": step, "tokens": tokens, "P@1": mean})
            curves[text.name].append((tokens / 1e6, 100 * mean))
    write_atomically(workdir.path / "retrieval.json", json.dumps(points, indent=1))
    draw_curves(
        workdir.path / "retrieval.png",
        curves,
        x="million tokens read in pre-training",
        y="bitext retrieval, precision@1 in % (languages read)",
    )
    print(f"retrieval against tokens: {workdir.path / 'retrieval.png'}", flush=True)


def _precisions(model, text, tokenizer, sequence_length, encoder):
    with np.errstate(invalid="ignore"):  # which is refused below
        found = precisions(model, text, tokenizer, sequence_length)
    if not np.isfinite([*found.values()]).all():
        raise UserError(f"{encoder}'s outputs for {text.name} are not finite: take it in float32")
    return found


def _both_directions(text, language, found, seed, system):
    n = len(text.pairs(language))
    directions = zip((f"P@1 from {text.pivot}", f"P@1 into {text.pivot}"), found, strict=True)
    return [Score(f"retrieval/{text.name}", language, metric, value, seed, n, system) for metric, value in directions]
