"""Commands about models in folders: convert them, change their vocabulary."""

from pathlib import Path

import click

from rembed_keras.cli.options import SOURCE_FORMATS, TARGET_FORMATS, WHOLE
from rembed_keras.errors import UserError


@click.command()
@click.argument("source")
@click.argument("target")
@click.option("--from", "source_kind", required=True, type=SOURCE_FORMATS, help="Format of SOURCE.")
@click.option("--to", "target_kind", required=True, type=TARGET_FORMATS, help="Format of TARGET, a new folder.")
@click.option("--tokenizer", metavar="MODEL", help="A SentencePiece model to store with it; the source's by default.")
@click.option("--task", metavar="NAME", help="With --from run: the model that was fine-tuned for a task.")
def convert(source, target, source_kind, target_kind, tokenizer, task) -> None:
    """Convert the model SOURCE to another format."""
    from rembed_keras.config.backend import import_framework

    import_framework()
    from rembed_keras import interop, training

    if task is not None:
        if (source_kind, target_kind) != ("run", "savedmodel"):
            raise UserError("--task needs --from run and --to savedmodel")
        training.Answerer(source, task).export(target)
        notes = ["load it after `import tensorflow_text`"]
    elif source_kind == "run":
        model, own_tokenizer = training.model_of_run(source)
        notes = interop.write(model, target, target_kind, Path(tokenizer) if tokenizer else own_tokenizer)
    else:
        notes = interop.convert(source, target, source_kind, target_kind, tokenizer)
    for note in notes:
        click.echo(f"note: {note}")
    click.echo(f"{target}: {target_kind}")


@click.command()
@click.argument("source")
@click.argument("target")
@click.option("--text", "text_dir", required=True, metavar="TEXT_DIR", help="Text whose pieces to keep.")
@click.option("--languages", metavar="CODES", help="Languages of the text to keep, for example de,en; all by default.")
@click.option("--min-count", type=WHOLE, default=1, show_default=True, help="How often a piece must occur to be kept.")
def trim(source: str, target: str, text_dir: str, languages: str | None, min_count: int) -> None:
    """Trim the vocabulary of a preset to what a text uses.

    SOURCE is a keras-hub preset with its tokenizer, TARGET the new preset.
    """
    from rembed_keras.config.backend import import_framework

    import_framework()
    from rembed_keras import interop

    done = interop.trim(source, target, text_dir, languages.split(",") if languages else None, min_count)
    for language, share in done.lost.items():
        click.echo(f"{language}: the pieces of {share:.2%} of its tokens are removed")
    (pieces, left), (before, after) = done.pieces, done.kept_bytes
    click.echo(f"{target}: kept {left:,} of {pieces:,} pieces, {after / 1e6:,.1f} of {before / 1e6:,.1f} MB")


@click.command()
@click.argument("source")
@click.argument("target")
@click.option("--pieces", required=True, metavar="FILE", help="Pieces to add, one per line, UTF-8, U+2581 for a space.")
def extend(source: str, target: str, pieces: str) -> None:
    """Add pieces to the vocabulary of a preset.

    SOURCE is a keras-hub preset with its tokenizer, TARGET the new preset.
    """
    from rembed_keras.config.backend import import_framework

    import_framework()
    from rembed_keras import interop
    from rembed_keras.data.text import read_lines

    added = interop.extend(source, target, list(read_lines(Path(pieces))))
    click.echo(f"{target}: {added:,} pieces added")
