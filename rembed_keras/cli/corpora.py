"""Commands about text: `prepare` makes a corpus, `budget` shows epochs by language."""

import contextlib
import json
import shlex
import sys
import time

import click

from rembed_keras.cli.options import ALLOW_IMPORT, CODES, FILLED, KNOBS, PLACE, RECIPE, WHOLE, is_given
from rembed_keras.errors import UserError


@click.command()
@click.argument("source", type=PLACE)
@click.argument("out_dir", type=PLACE)
@click.option("--languages", type=CODES, metavar="LIST", help="Read these languages of a folder alone, such as en,de.")
@click.option(
    "--vocabulary-size", type=WHOLE, default=8000, show_default=True, help="Number of pieces of the tokenizer to train."
)
@click.option(
    "--tokenizer",
    type=PLACE,
    metavar="FILE",
    help="A SentencePiece model, tokenizer.json or vocab.txt to use instead of training one.",
)
@click.option("--byte-fallback", is_flag=True, help="Encode rare characters as bytes instead of [UNK].")
@click.option(
    "--normalization",
    type=FILLED,
    default="nmt_nfkc",
    show_default=True,
    metavar="RULE",
    help="SentencePiece normalization rule of the tokenizer to train; identity: none.",
)
@click.option("--unicode-form", type=FILLED, metavar="NFC|NFKC", help="Normalize text to this Unicode form first.")
@click.option("--deduplicate", is_flag=True, help="Drop paragraphs that repeat an earlier one of their language.")
@click.option(
    "--near-duplicates", type=float, metavar="0..1", help="Drop paragraphs of at least this Jaccard similarity."
)
@click.option(
    "--language-threshold",
    type=float,
    metavar="0..1",
    help="Drop paragraphs of another language, from this probability.",
)
@click.option(
    "--held-out",
    type=float,
    default=0.0,
    show_default=True,
    metavar="0..1",
    help="Hold out this share of the paragraphs, for evaluation: no step trains on them.",
)
@click.option("--shard-megabytes", default=64.0, show_default=True, help="Megabytes of text per shard.")
@click.option("--processes", type=WHOLE, help="Worker processes; one per core by default.")
@click.option("--beam", metavar="OPTIONS", help="Run on Apache Beam, with these pipeline options.")
def prepare(
    source: str,
    out_dir: str,
    languages: list[str] | None,
    vocabulary_size: int,
    tokenizer: str | None,
    byte_fallback: bool,
    normalization: str,
    unicode_form,
    deduplicate: bool,
    near_duplicates: float | None,
    language_threshold: float | None,
    held_out: float,
    shard_megabytes: float,
    processes: int | None,
    beam: str | None,
) -> None:
    """Prepare a corpus in OUT_DIR from the text in SOURCE.

    A corpus is what pre-training reads: a tokenizer and shards of tokens. SOURCE is a folder of <language>.txt or
    .txt.gz files, of .jsonl, .jsonl.gz or .parquet files, or of WikiExtractor's output; or tfds:NAME/CONFIG:VERSION, a
    data set of tensorflow-datasets. If it is interrupted, the same command resumes.
    """
    from rembed_keras.analysis.prepared import show_prepared
    from rembed_keras.data.prepare.cleaning import Cleaning
    from rembed_keras.data.prepare.corpora import prepare as prepare_corpus

    if tokenizer is not None:
        for name in ("vocabulary_size", "byte_fallback", "normalization"):
            if is_given(name):
                option = f"--{name.replace('_', '-')}"
                raise UserError(f"{option} is of a tokenizer to train: leave it out with --tokenizer")
    if beam is not None and processes is not None:
        raise UserError("--processes is of this machine, and Beam's runner has workers of its own: leave one out")
    begun = time.monotonic()
    cleaning = Cleaning(unicode_form, deduplicate, near_duplicates, language_threshold, held_out)
    corpus = prepare_corpus(
        source,
        out_dir,
        vocabulary_size,
        tokenizer,
        byte_fallback,
        normalization,
        cleaning,
        shard_megabytes,
        processes,
        None if beam is None else _split(beam),
        languages,
    )
    show_prepared(corpus, out_dir, time.monotonic() - begun, source)


def _split(options):
    try:
        return shlex.split(options)
    except ValueError as error:
        reason = str(error).lower()
        raise UserError(f"--beam is {options!r}, which cannot be split into options: {reason}") from None


@click.command()
@RECIPE
@KNOBS
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@ALLOW_IMPORT
def budget(recipe: str, bindings: tuple[str, ...], as_json: bool, allow_import: tuple[str, ...]) -> None:
    """Show how many epochs a RECIPE trains on each language.

    Prepares the corpus if it is not there yet; builds no model.
    """
    from rembed_keras import config

    loaded = config.load(recipe, bindings, allow_import)
    with contextlib.redirect_stdout(sys.stderr if as_json else sys.stdout):  # what preparing a corpus prints
        shown = config.budget(loaded)
    if as_json:
        click.echo(json.dumps(shown.to_json(), indent=1))
        return
    from rich.console import Console

    from rembed_keras.analysis.reports.terminal import Whole

    Console().print(Whole(shown.table()))
