"""What each layer of an encoder knows: frozen linear probes, bitext retrieval, similarity, over-smoothing.

A probe is fitted on the training language alone, so that its scores in other languages are zero-shot transfer; its many
examples and convex fit make it steadier than fine-tuning is. Layer k is also what is left when the layers above k are
dropped, since none of them reaches down.
"""

from collections.abc import Callable, Sequence
from functools import partial

from rembed_keras.analysis.layers import draw_layers
from rembed_keras.analysis.layers.probing import INVERSE_STRENGTHS, check_strengths
from rembed_keras.analysis.layers.similarity import FEWEST
from rembed_keras.data.corpus import corpus_of_run
from rembed_keras.errors import Count, Rate, Seed, UserError, did_you_mean
from rembed_keras.modeling.encoder import Encoder
from rembed_keras.tasks.kinds.classification import Classification
from rembed_keras.tasks.kinds.tagging import Tagging
from rembed_keras.tasks.retrieval.parallel_text import ParallelText, check_translations
from rembed_keras.training.initial.encoder_start import check_length, record_kept
from rembed_keras.training.initial.weights import InitialWeights
from rembed_keras.training.loop.workdir import Workdir
from rembed_keras.training.probing.bitext import METRICS, BitextProbing
from rembed_keras.training.probing.labelled import LabelledProbing
from rembed_keras.training.probing.results import Probed, panels_of, show_layers, write_layers
from rembed_keras.training.probing.systems import PRETRAINED, encoders_of
from rembed_keras.training.probing.words import WordProbing
from rembed_keras.training.rehearsal import rehearsed


@rehearsed
def probe(
    workdir: Workdir,
    tasks: Sequence[Classification | Tagging] = (),
    parallel: Sequence[ParallelText] = (),
    words: Sequence[str] = (),
    encoder: Callable[..., Encoder] | None = None,
    pretrained: str | InitialWeights | None = None,
    finetuned: str | None = None,
    sequence_length: Count = 64,
    inverse_strengths: Sequence[Rate] = INVERSE_STRENGTHS,
    batch_size: Count = 32,
    seed: Seed = 0,
) -> None:
    """Measures every layer after pre-training, before it, and after fine-tuning, beside encoder-free baselines.

    Layer 0 is the embeddings, projected. `scores.json` gets rows of the tasks `probe/TASK/layerN`, of probes on the
    mean of a text's tokens, or on the first pieces of words with tags; and `retrieval/TEXT/layerN`, by cosine and by
    CSLS. `layers.json` has by task and system, of the training examples, the similarity of each layer and the next
    (unbiased linear CKA), the mean cosine of a row's tokens at each layer, and which C was chosen; and by language of
    `words` the agreement of word similarity with co-occurrence. `layers.png` is the figure. No encoder is trained.

    Args:
        workdir: the run's folder.
        tasks: the tasks, each of a name of its own.
        parallel: parallel texts for bitext retrieval, each of a name of its own.
        words: languages of the run's corpus whose word similarity is measured.
        encoder: as in `finetune`.
        pretrained: as in `finetune`.
        finetuned: a task that the run fine-tuned on, by name, whose encoder is measured too, as "finetuned".
        sequence_length: S, tokens that are read of an example.
        inverse_strengths: values of C, the inverse strength of L2 regularization; of several the best on the
            development data of the training language.
        batch_size: B, examples at once; results do not depend on it but for rounding.
        seed: of the weights before pre-training, as in `pretrain`.

    Raises:
        UserError: if there is no pre-trained encoder, nothing to measure, two tasks of one name, several values of C
            and no data to choose by, too few training examples, a text without translations, a language that the
            corpus lacks, or an encoder whose outputs are not finite.
    """
    _check(tasks, parallel, words, inverse_strengths)
    if workdir.is_rehearsal:
        workdir.asked_of_corpus.append(partial(_compared, words, sequence_length, batch_size))
        return
    compared = _compared(words, sequence_length, batch_size, corpus_of_run(workdir.path)) if words else {}
    initial, encoders = encoders_of(workdir.path, encoder, pretrained, finetuned, seed)
    for each in encoders.values():
        check_length(each, sequence_length)
    record_kept(workdir, lambda: encoders[PRETRAINED])
    probed, known = [], {}
    for task in tasks:
        probing = LabelledProbing(task, initial, sequence_length, batch_size, seed)
        scored = {system: probing.score(system, each, inverse_strengths) for system, each in encoders.items()}
        num_layers = max(len(about["token_cosine"]) for _, about in scored.values())
        scores = [row for rows, _ in scored.values() for row in rows] + probing.baselines(num_layers)
        probed.append(Probed(f"probe/{task.name}", task.train_language, task.metric_names[:1], scores, num_layers))
        known[task.name] = {"language": task.train_language, "n": len(task.splits.train)}
        known[task.name] |= {system: about for system, (_, about) in scored.items()}
        probed[-1].publish(workdir)
    for text in parallel:
        retrieval = BitextProbing(text, initial, sequence_length, batch_size, seed)
        rows = [row for system, each in encoders.items() for row in retrieval.score(system, each)]
        num_layers = len({row.task for row in rows})
        rows += retrieval.baselines(num_layers)
        probed.append(Probed(f"retrieval/{text.name}", text.pivot, METRICS, rows, num_layers))
        probed[-1].publish(workdir)
    for language, similarity in compared.items():
        about = {"language": language, "n": len(similarity.words)}
        known[f"words of {language}"] = about | {system: similarity.score(each) for system, each in encoders.items()}
    write_layers(workdir, known)
    show_layers(known)
    path = workdir.path / "layers.png"
    draw_layers(path, [panel for each in probed for panel in each.panels()] + panels_of(known))
    print(f"probe: {path}", flush=True)


def _compared(words, sequence_length, batch_size, corpus):
    """The words of each language that are compared."""
    missing = next((language for language in words if language not in corpus.languages), None)
    if missing is not None:
        near = did_you_mean(missing, corpus.languages)
        raise UserError(f"corpus {corpus.path} has no language {missing!r} whose words could be compared{near}")
    return {language: WordProbing(corpus, language, sequence_length, batch_size) for language in words}


def _check(tasks, parallel, words, inverse_strengths):
    if not (tasks or parallel or words):
        raise UserError("there is nothing to probe: bind tasks, parallel or words of training.probe")
    for kind, names in (("tasks", [task.name for task in tasks]), ("texts", [text.name for text in parallel])):
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise UserError(f"there are two {kind} {twice} to probe: give each a name of its own")
    check_translations(parallel)
    for task in tasks:
        if not isinstance(task, Classification | Tagging):
            raise UserError(f"task {task.name} is {type(task).__name__}; probes are of Classification and Tagging")
        if len(task.splits.train) < FEWEST:
            raise UserError(f"task {task.name} has {len(task.splits.train)} training examples; a probe needs {FEWEST}")
        try:
            check_strengths(inverse_strengths, bool(task.validation))
        except UserError as error:
            raise UserError(f"task {task.name}: {error}") from None
