"""The command that merges models of one shape."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rembed_keras.errors import UserError

if TYPE_CHECKING:
    from rembed_keras.interop.merging import How

HOWS = ("average", "slerp", "ties", "greedy")  # those of `interop.merging`, which needs a framework


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.argument("target")
@click.option("--how", type=click.Choice(HOWS), default="average", show_default=True, help="How weights are merged.")
@click.option("--base", metavar="SOURCE", help="With ties: the model that all were trained from.")
@click.option("--share", type=float, default=0.5, show_default=True, help="With slerp: how far to go to the second.")
@click.option("--density", type=float, default=0.2, show_default=True, help="With ties: share of changes that stay.")
@click.option(
    "--development",
    metavar="TEXT_DIR",
    help="With greedy: <language>.txt parallel by line; the score is the mean precision@1 of bitext retrieval.",
)
@click.option("--pivot", default="en", show_default=True, help="With greedy: the language that others are paired with.")
def merge(
    sources: tuple[str, ...],
    target: str,
    how: "How",
    base: str | None,
    share: float,
    density: float,
    development: str | None,
    pivot: str,
) -> None:
    """Merge the encoders of models of one shape into one.

    Each SOURCE is a run, a keras-hub preset or a Hugging Face folder, TARGET a new preset. All must have one tokenizer;
    their pre-training heads are dropped. Merge models that were trained from the same weights.
    """
    from rembed_keras.config.backend import import_framework

    import_framework()
    from rembed_keras import interop
    from rembed_keras.interop.convert import check_absent
    from rembed_keras.interop.merging import merge as merged

    check_absent(Path(target))
    read = [_read(source) for source in (*sources, *([base] if base else []))]
    _check_tokenizers([*sources, *([base] if base else [])], [tokenizer for _, tokenizer in read])
    encoders = [encoder for encoder, _ in read]
    tokenizer = read[0][1]
    score = _score(development, pivot, tokenizer) if development else None
    made, notes = merged(encoders[: len(sources)], how, encoders[len(sources)] if base else None, share, density, score)
    for note in [*notes, *interop.write(made, target, "preset", tokenizer)]:
        click.echo(f"note: {note}")
    click.echo(f"{target}: {how} of {', '.join(sources)}")


def _read(source):
    """The encoder of a source, and the file of its tokenizer if there is one."""
    from rembed_keras import training
    from rembed_keras.modeling.objectives import PretrainingModel

    model, tokenizer = training.model_of(source)
    return model.drop_heads() if isinstance(model, PretrainingModel) else model, tokenizer


def _check_tokenizers(sources, files):
    from rembed_keras.data.tokenizers.opening import open_tokenizer

    found = [file and open_tokenizer(file).sha256 for file in files]
    for source, each in zip(sources, found, strict=True):
        if each != found[0]:
            raise UserError(f"{source} and {sources[0]} have different tokenizers, so rows of their tables differ")


def _score(development, pivot, tokenizer):
    """Scores an encoder by bitext retrieval."""
    from rembed_keras.data.tokenizers.opening import open_tokenizer
    from rembed_keras.tasks.retrieval.parallel_text import ParallelText, precisions, sentence_encoder

    text = ParallelText(development, pivot)
    if not text.languages:
        raise UserError(f"{development} has {pivot} alone: retrieval needs another language, parallel by line")
    if tokenizer is None:
        raise UserError("the models have no tokenizer beside them, and texts cannot be read without it")
    reader = open_tokenizer(tokenizer)

    def score(encoder):
        length = min(64, encoder.arguments["max_sequence_length"])
        found = precisions(sentence_encoder(encoder), text, reader, length)
        return sum(sum(pair) for pair in found.values()) / (2 * len(found))

    return score
