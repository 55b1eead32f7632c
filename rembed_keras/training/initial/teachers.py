"""Teachers of loss terms, opened from where they are before anything is trained."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rembed_keras.adaptation.teachers import Teacher
from rembed_keras.data.tokenizers.protocol import AnyTokenizer
from rembed_keras.errors import UserError
from rembed_keras.modeling.blocks.stack import attention_of
from rembed_keras.modeling.losses.weights import by_step
from rembed_keras.modeling.sizes import check_sequence_length
from rembed_keras.training.distributed.strategies import Placement
from rembed_keras.training.initial import places
from rembed_keras.training.loop import restoring


def with_teachers(
    terms: Sequence[Any], tokenizer: AnyTokenizer, sequence_length: int, placement: Placement, is_packed: bool = False
) -> Sequence[Any]:
    """Loss terms, after the teachers of those that count were opened, each once.

    Args:
        terms: see `adaptation.terms`.
        tokenizer: what the student reads texts with.
        sequence_length: S.
        placement: where the student will be built.
        is_packed: whether rows hold several documents.

    Raises:
        UserError: for a teacher that is nowhere, or cannot read what the student reads.
    """
    for term in terms:
        if not isinstance(term, type) and any(weight for _, weight in by_step(term.weight, term.name)):
            for teacher in getattr(term, "teachers", ()):
                if not teacher.is_open:
                    with placement.scope():
                        _open(teacher, tokenizer)
                _check(teacher, tokenizer, sequence_length, is_packed)
    return terms


def _open(teacher: Teacher, tokenizer: AnyTokenizer) -> None:
    place = places.find(Path(str(teacher.place)))
    if place.has_tokenizer and (theirs := place.tokenizer.sha256) != tokenizer.sha256:
        raise UserError(
            f"the teacher {place.name} has another tokenizer than the student: sha256 {theirs[:8]}, not "
            f"{tokenizer.sha256[:8]}"
        )
    held = restoring.held_in(place.path)
    encoder = held.fresh()
    held.give(encoder)
    teacher.take(encoder)


def _check(teacher, tokenizer, sequence_length, is_packed):
    config = teacher.encoder.arguments
    if tokenizer.vocabulary_size > config["vocabulary_size"]:
        pieces = f"{tokenizer.vocabulary_size} word pieces and the teacher vocabulary_size {config['vocabulary_size']}"
        raise UserError(f"the student reads {pieces}: it has another tokenizer")
    alone = [type(kind).__name__ for kind in attention_of(config) if not kind.takes_packed_rows]
    if is_packed and alone:
        raise UserError(f"the teacher's attention.{alone[0]} needs one document a row, and rows of a corpus are packed")
    try:
        check_sequence_length(sequence_length, config["max_sequence_length"])
    except UserError as error:
        raise UserError(f"the teacher {teacher.place or ''}: {error}") from None
