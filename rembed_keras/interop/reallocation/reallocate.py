"""A trained model with its parameters reallocated: `rembed reallocate`."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import keras

from rembed_keras import compat
from rembed_keras.data.prepare.sources import find_source, note_left_out
from rembed_keras.data.tokenizers.opening import open_tokenizer
from rembed_keras.errors import Count, UserError
from rembed_keras.interop.convert import check_absent, plain_masked_lm, write
from rembed_keras.interop.huggingface.write import check_head, family_of
from rembed_keras.interop.reallocation.depth import stacking, with_depth
from rembed_keras.interop.reallocation.embeddings import tables_of, with_width
from rembed_keras.interop.reallocation.heads import head_arguments, head_to_be, keep_head, new_head, output_rows
from rembed_keras.interop.reallocation.low_rank import check_width
from rembed_keras.interop.reallocation.usage import check_rows, even_usage, usage_of
from rembed_keras.interop.vocabularies.files import copy_tokenizer
from rembed_keras.interop.vocabulary import changeable, trimmed
from rembed_keras.modeling import Encoder, MaskedLM
from rembed_keras.modeling.layers.adapters import added_variables
from rembed_keras.modeling.objectives.pretraining import PretrainingModel, encoder_of
from rembed_keras.modeling.saving.changes import CHANGED, changes_of
from rembed_keras.modeling.sizes import Keep, check_sizes, narrowed_arguments


@dataclass(frozen=True)
class Plan:
    """What to change of a model; None is to leave it.

    Attributes:
        input_embedding_dim: E_in, at most that of the model.
        num_layers: L, more or less than the model has.
        keep: which layers stay if there are fewer; see `layers_to_keep`.
        output_embedding_dim: E_out of the head: a new one, unless the model has one of that width, which stays.
        vocabulary: source of text whose pieces to keep, as of `trim`.
        text: source of text by which pieces are weighted; that of `vocabulary` by default, and none without.
    """

    input_embedding_dim: Count | None = None
    num_layers: Count | None = None
    keep: Keep = "bottom"
    output_embedding_dim: Count | None = None
    vocabulary: str | None = None
    text: str | None = None

    def check(self) -> None:
        """Refuses what a plan says and nothing would read.

        Raises:
            UserError: naming what it needs, or for a size out of all reason.
        """
        sizes = {name: getattr(self, name) for name in ("input_embedding_dim", "num_layers", "output_embedding_dim")}
        check_sizes({name: size for name, size in sizes.items() if size is not None})
        if self.text is not None and self.input_embedding_dim is None:
            raise UserError("the text weights pieces for a narrower input table: give input_embedding_dim too")
        if self.keep != "bottom" and self.num_layers is None:
            raise UserError(f"keep {self.keep!r} says which layers stay if there are fewer: give num_layers too")


@dataclass(frozen=True)
class Reallocated:
    """What was done.

    Attributes:
        before: the arguments of the encoder that was read.
        after: those of the encoder that was written.
        share: of the input embedding's variance that is kept; None if its width is as it was.
        notes: what else to know, a line each.
    """

    before: dict
    after: dict
    share: float | None
    notes: list[str]


def reallocate(
    model: keras.Model, target: str, plan: Plan, tokenizer: Path | None = None, target_kind: str = "preset"
) -> Reallocated:
    """Spends the parameters of a trained model elsewhere, and writes the result.

    Args:
        model: an `Encoder`, or a model that pre-trains one; its weights stay as they are.
        target: the folder to write, which must not exist.
        plan: what to change.
        tokenizer: the file of the model's tokenizer; None if there is none.
        target_kind: "preset" or "huggingface".

    Raises:
        UserError: for a plan that the model or its tokenizer does not allow, or if the target exists; nothing is
            written then.
    """
    check_absent(Path(target))
    plan.check()
    source, notes = plain_masked_lm(model)
    before = encoder_of(source).arguments
    if there := _there(source, plan):
        raise UserError(f"nothing to change: the model has {there} already")
    if added_variables(encoder_of(source)) or changes_of(encoder_of(source)):
        raise UserError(CHANGED)
    if source.get_config().get("quantized"):
        raise UserError("the head has quantized layers: reallocate the model before `quantize`, or its encoder alone")
    if any(getattr(layer, "lora_enabled", False) for layer in compat.layers_of(source)):
        raise UserError("the head has LoRA: save the model, which folds it, and reallocate that, or its encoder alone")
    if plan.keep != "bottom" and plan.num_layers is not None and plan.num_layers >= before["num_layers"]:
        layers = before["num_layers"]
        raise UserError(
            f"keep {plan.keep!r} says which layers stay if there are fewer, and this encoder has {layers}: leave it out"
        )
    _check_made(source, plan, target_kind)
    if tokenizer is None and (plan.text or plan.vocabulary):
        raise UserError("a text is read by a tokenizer, and this model has none beside it")
    if plan.text:
        find_source(plan.text)  # before all of the other is read
    with tempfile.TemporaryDirectory() as folder:
        vocabulary = copy_tokenizer(tokenizer, Path(folder)) if tokenizer else None
        if vocabulary:
            check_rows(vocabulary, before["vocabulary_size"])
        if plan.vocabulary and vocabulary:
            source, vocabulary, said = _trimmed(source, vocabulary, plan.vocabulary, Path(folder) / "new")
            notes += said
        made, share, said = _changed(source, plan, vocabulary)
        file = vocabulary.path if vocabulary else None
        notes += said + write(made, target, target_kind, file, preprocessor=model.preprocessor)
    notes += filter(None, map(note_left_out, dict.fromkeys(filter(None, (plan.vocabulary, plan.text)))))
    return Reallocated(before, encoder_of(made).arguments, share, notes)


def _check_made(source, plan, target_kind):
    """Refuses a model that cannot be made, or not be written, before any text is read."""
    encoder = encoder_of(source)
    arguments = encoder.arguments
    if plan.num_layers is not None:
        _, arguments = stacking(arguments, plan.num_layers, plan.keep)
    if plan.input_embedding_dim is not None:
        check_width(tables_of(encoder), plan.input_embedding_dim)
        arguments = narrowed_arguments(arguments, plan.input_embedding_dim)
    if plan.output_embedding_dim not in (None, _head_width(source)):
        output_rows(source)  # of which none is read yet
    if target_kind == "huggingface":
        family, head = family_of(arguments), head_to_be(source, plan.output_embedding_dim, plan.input_embedding_dim)
        if head is not None:
            check_head(family, arguments, *head)


def _there(source, plan):
    """What a model has already of a plan that asks for nothing else; "" if it asks for more."""
    layers, width = encoder_of(source).num_layers, _head_width(source)
    has_depth, has_head = layers == plan.num_layers, width is not None and width == plan.output_embedding_dim
    named = [f"a depth of {layers}"] * has_depth + [f"a head of width {width}"] * has_head
    own = Plan(num_layers=layers if has_depth else None, output_embedding_dim=width if has_head else None)
    return " and ".join(named) if plan == own else ""


def _trimmed(model, tokenizer, text, folder):
    folder.mkdir()
    file = folder / tokenizer.file_name
    pieces = changeable(model, tokenizer, "the model")
    smaller, done = trimmed(model, tokenizer, pieces, text, file)
    return smaller, open_tokenizer(file), [f"kept {done.pieces[1]:,} of {done.pieces[0]:,} pieces"]


def _changed(source, plan, vocabulary) -> tuple[Encoder | MaskedLM, float | None, list[str]]:
    """A model with another width and depth, the share of variance that it keeps, and notes."""
    encoder, former, share, notes = encoder_of(source), _head_width(source), None, []
    if plan.num_layers is not None:
        is_exact = plan.num_layers <= encoder.num_layers or encoder.block.norms_first
        encoder = with_depth(encoder, plan.num_layers, plan.keep)
        if not is_exact:
            notes.append("new blocks with norms last are the identity up to rounding")
    if plan.input_embedding_dim is not None:
        tables, text = tables_of(encoder), plan.text or plan.vocabulary
        has_positions = encoder.parts.embeddings.position is not None
        has_head = former is not None or plan.output_embedding_dim is not None
        usage = even_usage(tables, vocabulary if has_head else None)
        if text:
            usage = usage_of(text, vocabulary, tables, has_positions, has_head)
        encoder, share = with_width(encoder, plan.input_embedding_dim, usage)
    if plan.output_embedding_dim not in (None, former):
        model, said = new_head(source, encoder, plan.output_embedding_dim)
    elif former and encoder is not source.encoder:
        model, said = keep_head(source, encoder)
    else:
        model, said = (source if isinstance(source, PretrainingModel) else encoder), []
    return model, share, notes + said


def _head_width(source: keras.Model) -> int | None:
    """E_out of the masked-LM head that a model has; None without one."""
    return head_arguments(source)["output_embedding_dim"] if isinstance(source, MaskedLM) else None
