"""Commands about models in folders: convert them, change their vocabulary, reallocate their parameters."""

from pathlib import Path

import click

from rembed_keras.cli.options import (
    CODES,
    FILLED,
    OWN_CLASSES,
    PLACE,
    SOURCE_FORMATS,
    TARGET_FORMATS,
    TARGET_KINDS,
    WHOLE,
    import_own_classes,
    write_beside,
)
from rembed_keras.errors import UserError
from rembed_keras.modeling.sizes import KEEP, Keep


@click.command()
@click.argument("source", type=PLACE)
@click.argument("target", type=PLACE)
@click.option("--from", "source_kind", required=True, type=SOURCE_FORMATS, help="Format of SOURCE.")
@click.option("--to", "target_kind", required=True, type=TARGET_FORMATS, help="Format of TARGET, a new folder.")
@click.option("--tokenizer", type=PLACE, metavar="MODEL", help="Tokenizer to store with it; the source's by default.")
@click.option("--task", type=FILLED, metavar="NAME", help="With --from run: the model that was fine-tuned for a task.")
@click.option(
    "--family",
    type=FILLED,
    metavar="NAME",
    help="With --to huggingface: roberta, distilbert ...; one that fits by default.",
)
@click.option("--push", "name", type=FILLED, metavar="OWNER/NAME", help="Upload TARGET to this repository of a hub.")
@click.option("--dry-run", is_flag=True, help="With --push: list what would be uploaded, and upload nothing.")
@OWN_CLASSES
def convert(source, target, source_kind, target_kind, tokenizer, task, family, name, dry_run, allow_import) -> None:
    """Convert the model SOURCE to another format.

    SOURCE may be OWNER/NAME of a hub with --from huggingface or preset: it is downloaded into the hub's cache.
    """
    _check_push(target_kind, name, dry_run)
    from rembed_keras.config.backend import import_framework

    import_framework()
    from rembed_keras import interop, training
    from rembed_keras.interop.convert import check_target
    from rembed_keras.training.initial.places import said_beside, said_by_preset
    from rembed_keras.training.loop.restoring import NO_CORPUS

    if task is not None and (source_kind != "run" or target_kind == "huggingface" or family or tokenizer):
        raise UserError("--task needs --from run, and --to savedmodel or preset, and neither --family nor --tokenizer")
    check_target(target, target_kind, family)
    import_own_classes(allow_import, source)
    if source_kind in ("huggingface", "preset"):
        source = interop.fetched(source)
    beside: dict[str, str] = {}
    if task is not None:
        fine_tuned = training.Answerer(source, task)
        if target_kind == "preset":
            beside = said_beside(Path(source), task)
            notes = fine_tuned.save_to_preset(target)
        else:
            fine_tuned.export(target)
            notes = ["load it after `import tensorflow_text`"]
    elif source_kind == "run":
        model, own_tokenizer = training.model_of_run(source)
        beside = said_beside(Path(source)) if target_kind == "preset" else {}
        file = Path(tokenizer) if tokenizer else own_tokenizer
        notes = [*([] if file else [NO_CORPUS]), *interop.write(model, target, target_kind, file, family)]
    else:
        beside = said_by_preset(source) if source_kind == target_kind == "preset" else {}
        notes = interop.convert(source, target, source_kind, target_kind, tokenizer, family)
    write_beside(target, beside)
    for note in notes:
        click.echo(f"note: {note}")
    click.echo(f"{target}: {target_kind}")
    if name is not None:
        _push(target, target_kind, name, dry_run)


def _check_push(kind, name, is_dry):
    """Refuses, before anything is read, what cannot be uploaded."""
    if name is None:
        if is_dry:
            raise UserError("--dry-run needs --push")
        return
    from rembed_keras.interop.huggingface.hub import check_name

    check_name(name)
    if kind == "savedmodel":
        raise UserError("--push needs --to preset or huggingface")


def _push(target, kind, name, is_dry):
    """Uploads a folder that was written, with a card, or lists what would be uploaded."""
    from rembed_keras import interop, training
    from rembed_keras.analysis.cost.ledger import ledger

    interop.write_card(target, name, kind, ledger(training.model_of(target)[0]).kept)
    for path, size in interop.contents(target):
        click.echo(f"{path:50}{size:>15,}")
    if is_dry:
        click.echo(f"{name}: nothing is uploaded; leave out --dry-run to upload these files")
        return
    click.echo(f"{name}: {interop.push(target, name)}")


@click.command()
@click.argument("run", type=PLACE)
@click.argument("target", type=PLACE)
@click.option(
    "--licence", type=PLACE, metavar="FILE", help="Of the text; it goes along, and the card says its first paragraph."
)
@OWN_CLASSES
def pack(run: str, target: str, licence: str | None, allow_import: tuple[str, ...]) -> None:
    """Pack the encoder of a finished run as a preset to pass on.

    RUN is the run's folder, TARGET the new preset: no head, half precision, with the tokenizer, the recipe and a model
    card.
    """
    from rembed_keras.config.backend import import_framework

    import_framework()
    from rembed_keras import training
    from rembed_keras.analysis.model_card import RECIPE, model_card, pretraining_log
    from rembed_keras.interop.convert import check_absent
    from rembed_keras.interop.packing import pack as write
    from rembed_keras.modeling.objectives.pretraining import kept_encoder
    from rembed_keras.training.initial.places import said_beside

    check_absent(Path(target))
    terms = None if licence is None else _text_of(Path(licence))
    import_own_classes(allow_import, run)
    log = pretraining_log(run)
    model, tokenizer = training.model_of_run(run, log[-1]["step"])
    if tokenizer is None:
        raise UserError(f"{run} has no corpus, and so no tokenizer to pack")
    about = None if terms is None else terms.strip().split("\n\n")[0]
    kept = kept_encoder(model)
    card = model_card(run, log, Path(target).name, kept.arguments, about)
    texts = {"README.md": card, RECIPE: _text_of(Path(run) / "config.gin")} | said_beside(Path(run))
    size = write(kept, target, tokenizer, texts if terms is None else texts | {"LICENSE": terms})
    click.echo(f"{target}: {size / 1e6:,.1f} MB")


def _text_of(path):
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8'}") from None


@click.command()
@click.argument("source", type=PLACE)
@click.argument("target", type=PLACE)
@click.option(
    "--text",
    "text_dir",
    required=True,
    type=PLACE,
    metavar="TEXT_DIR",
    help="Text to keep the pieces of, as `prepare` reads it.",
)
@click.option(
    "--languages",
    type=CODES,
    metavar="CODES",
    help="Languages of the text to keep, for example de,en; all by default.",
)
@click.option("--min-count", type=WHOLE, default=1, show_default=True, help="How often a piece must occur to be kept.")
@OWN_CLASSES
def trim(
    source: str, target: str, text_dir: str, languages: list[str] | None, min_count: int, allow_import: tuple[str, ...]
) -> None:
    """Trim the vocabulary of a preset to what a text uses.

    SOURCE is a keras-hub preset with its tokenizer, TARGET the new preset.
    """
    from rembed_keras.config.backend import import_framework

    import_framework()
    from rembed_keras import interop
    from rembed_keras.data.prepare.sources import note_left_out
    from rembed_keras.training.initial.places import said_by_preset

    import_own_classes(allow_import)
    beside = said_by_preset(source)
    done = interop.trim(source, target, text_dir, languages, min_count)
    write_beside(target, beside)
    if note := note_left_out(text_dir):
        click.echo(f"note: {note}")
    for language, share in done.lost.items():
        click.echo(f"{language}: the pieces of {share:.2%} of its tokens are removed")
    (pieces, left), (before, after) = done.pieces, done.kept_bytes
    click.echo(f"{target}: kept {left:,} of {pieces:,} pieces, {after / 1e6:,.1f} of {before / 1e6:,.1f} MB")


@click.command()
@click.argument("source", type=PLACE)
@click.argument("target", type=PLACE)
@click.option(
    "--pieces", required=True, type=PLACE, metavar="FILE", help="Pieces to add, one a line, UTF-8, U+2581 for a space."
)
@OWN_CLASSES
def extend(source: str, target: str, pieces: str, allow_import: tuple[str, ...]) -> None:
    """Add pieces to the vocabulary of a preset.

    SOURCE is a keras-hub preset with its tokenizer, TARGET the new preset.
    """
    from rembed_keras.config.backend import import_framework

    import_framework()
    from rembed_keras import interop
    from rembed_keras.data.text import read_lines
    from rembed_keras.training.initial.places import said_by_preset

    import_own_classes(allow_import)
    wanted = list(read_lines(Path(pieces)))
    if not any(wanted):
        raise UserError(f"{pieces} has no pieces: write one a line")
    beside = said_by_preset(source)
    added = interop.extend(source, target, wanted)
    write_beside(target, beside)
    click.echo(f"{target}: {added:,} pieces added")


@click.command()
@click.argument("source", type=PLACE)
@click.argument("target", type=PLACE)
@click.option("--input-embedding-dim", type=WHOLE, help="E_in, the width of the new input table.")
@click.option("--num-layers", type=WHOLE, help="How many layers to have, fewer or more.")
@click.option(
    "--keep", type=click.Choice(KEEP), default="bottom", show_default=True, help="Which layers stay if there are fewer."
)
@click.option("--output-embedding-dim", type=WHOLE, help="E_out: a new head, if the model has none of it.")
@click.option(
    "--vocabulary", type=PLACE, metavar="TEXT_DIR", help="Keep the pieces that this text uses, as `trim` does."
)
@click.option(
    "--text",
    type=PLACE,
    metavar="TEXT_DIR",
    help="Weight pieces by how often they occur here; in --vocabulary by default.",
)
@click.option("--to", "target_kind", type=TARGET_KINDS, default="preset", show_default=True, help="Format of TARGET.")
@OWN_CLASSES
def reallocate(
    source: str,
    target: str,
    input_embedding_dim: int | None,
    num_layers: int | None,
    keep: Keep,
    output_embedding_dim: int | None,
    vocabulary: str | None,
    text: str | None,
    target_kind: str,
    allow_import: tuple[str, ...],
) -> None:
    """Reallocate the parameters of a trained model.

    SOURCE is a run, a keras-hub preset or a Hugging Face folder, TARGET a new folder. A narrower input table is the
    closest one whose encoder computes nearly the same: see "Shrink your encoder" in the documentation.
    """
    if not any((input_embedding_dim, num_layers, output_embedding_dim, vocabulary)):
        raise UserError("nothing to change: give --input-embedding-dim, --num-layers or --vocabulary")
    from rembed_keras.config.backend import import_framework

    import_framework()
    from rembed_keras import interop, training
    from rembed_keras.analysis.cost.ledger import ledger
    from rembed_keras.interop.convert import check_absent
    from rembed_keras.training.initial.places import said_of_all

    check_absent(Path(target))
    plan = interop.Plan(input_embedding_dim, num_layers, keep, output_embedding_dim, vocabulary, text)
    plan.check()
    import_own_classes(allow_import, source)
    model, tokenizer, notes = training.model_with_notes(source)
    beside = said_of_all(source) if target_kind == "preset" else {}
    done = interop.reallocate(model, target, plan, tokenizer, target_kind)
    write_beside(target, beside)
    for note in [*notes, *done.notes]:
        click.echo(f"note: {note}")
    if done.share is not None:
        widths = done.before["input_embedding_dim"], done.after["input_embedding_dim"]
        click.echo(f"input embedding {widths[0]} -> {widths[1]}: {done.share:.2%} of the variance is kept")
    sizes = [{line.name: line.parameters for line in ledger(each).entries} for each in (done.before, done.after)]
    # blocks are counted in the name of their line
    before, after = ({"blocks" if name.endswith("blocks") else name: n for name, n in each.items()} for each in sizes)
    for name in dict.fromkeys([*before, *after]):
        click.echo(f"{name:36}{before.get(name, 0):>14,} -> {after.get(name, 0):>13,}")
    kept = sum(before.values()), sum(after.values())
    click.echo(f"{'parameters kept':36}{kept[0]:>14,} -> {kept[1]:>13,} ({kept[1] / kept[0]:.1%})")
    click.echo(f"{target}: {target_kind}")
