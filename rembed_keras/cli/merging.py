"""The command that merges models of one shape."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rembed_keras.cli.options import FILLED, OWN_CLASSES, PLACE, import_own_classes, is_given, write_beside
from rembed_keras.errors import UserError

if TYPE_CHECKING:
    from rembed_keras.interop.merging import How

HOWS = ("average", "slerp", "ties", "greedy")  # those of `interop.merging`, which needs a framework
READ_BY = {"share": "slerp", "density": "ties", "base": "ties", "development": "greedy", "pivot": "greedy"}


@click.command()
@click.argument("sources", type=PLACE, nargs=-1, required=True, metavar="SOURCE...")
@click.argument("target", type=PLACE)
@click.option("--how", type=click.Choice(HOWS), default="average", show_default=True, help="How weights are merged.")
@click.option("--base", type=PLACE, metavar="SOURCE", help="With ties: the model that all were trained from.")
@click.option("--share", type=float, default=0.5, show_default=True, help="With slerp: how far to go to the second.")
@click.option("--density", type=float, default=0.2, show_default=True, help="With ties: share of changes that stay.")
@click.option(
    "--development",
    type=PLACE,
    metavar="TEXT_DIR",
    help="With greedy: <language>.txt parallel by line; the score is the mean precision@1 of bitext retrieval.",
)
@click.option(
    "--pivot",
    type=FILLED,
    default="en",
    show_default=True,
    metavar="TEXT",
    help="With greedy: the language that others are paired with.",
)
@OWN_CLASSES
def merge(
    sources: tuple[str, ...],
    target: str,
    how: "How",
    base: str | None,
    share: float,
    density: float,
    development: str | None,
    pivot: str,
    allow_import: tuple[str, ...],
) -> None:
    """Merge the encoders of models of one shape into one.

    Each SOURCE is a run, a keras-hub preset or a Hugging Face folder, TARGET a new preset. All must have one tokenizer;
    their pre-training heads are dropped. Merge models that were trained from the same weights.
    """
    from rembed_keras.config.backend import import_framework

    import_framework()
    from rembed_keras import interop
    from rembed_keras.interop.convert import check_absent
    from rembed_keras.interop.merging import check_how
    from rembed_keras.interop.merging import merge as merged
    from rembed_keras.training.initial.places import said_of_all

    check_absent(Path(target))
    _check_options(how)
    check_how(how, len(sources), base is not None, development is not None, share, density)
    text = _text_of(development, pivot) if development else None
    places = [*sources, *([base] if base else [])]
    import_own_classes(allow_import, *places)
    read = [_read(source) for source in places]
    beside = said_of_all(*sources)
    _check_tokenizers(places, [tokenizer for _, tokenizer, _ in read])
    encoders = [encoder for encoder, _, _ in read]
    tokenizer = read[0][1]
    score = _score(text, tokenizer) if text else None
    made, notes = merged(encoders[: len(sources)], how, encoders[len(sources)] if base else None, share, density, score)
    left_out = [f"{place}: {note}" for place, (_, _, said) in zip(places, read, strict=True) for note in said]
    for note in [*left_out, *notes, *interop.write(made, target, "preset", tokenizer)]:
        click.echo(f"note: {note}")
    write_beside(target, beside)
    click.echo(f"{target}: {how} of {', '.join(sources)}")


def _check_options(how):
    """Refuses options that a method of merging would not read."""
    for name, needed in READ_BY.items():
        if how != needed and is_given(name):
            raise UserError(f"--{name} is read with --how {needed} alone, and --how is {how}")


def _read(source):
    """The encoder of a source, the file of its tokenizer if there is one, and notes."""
    from rembed_keras import training
    from rembed_keras.modeling.objectives.pretraining import kept_encoder

    model, tokenizer, notes = training.model_with_notes(source)
    return kept_encoder(model), tokenizer, notes


def _check_tokenizers(sources, files):
    from rembed_keras.interop import opened_tokenizer

    found = [file and opened_tokenizer(file).segmentation for file in files]
    for source, each in zip(sources, found, strict=True):
        if None in (each, found[0]) and each != found[0]:
            bare, other = (source, sources[0]) if each is None else (sources[0], source)
            raise UserError(
                f"{bare} has no tokenizer beside it, and {other} has one: give it one by `rembed convert --tokenizer`"
            )
        if each != found[0]:
            raise UserError(f"{source} and {sources[0]} have different tokenizers, so rows of their tables differ")


def _text_of(development, pivot):
    """The development data, of which there must be two languages at least."""
    from rembed_keras.tasks.retrieval.parallel_text import ParallelText

    text = ParallelText(development, pivot)
    if not text.languages:
        raise UserError(f"{development} has {pivot} alone: retrieval needs another language, parallel by line")
    return text


def _score(text, tokenizer):
    """Scores an encoder by bitext retrieval."""
    from rembed_keras.interop import opened_tokenizer
    from rembed_keras.tasks.retrieval.parallel_text import precisions, sentence_encoder

    if tokenizer is None:
        raise UserError("the models have no tokenizer beside them, and texts cannot be read without it")
    reader = opened_tokenizer(tokenizer)

    def score(encoder):
        length = min(64, encoder.arguments["max_sequence_length"])
        found = precisions(sentence_encoder(encoder), text, reader, length)
        return sum(sum(pair) for pair in found.values()) / (2 * len(found))

    return score
