"""Teachers of loss terms, opened from where they are before anything is trained."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rembed_keras.adaptation.teachers import Teacher
from rembed_keras.data.text import sha256
from rembed_keras.data.tokenizers.protocol import AnyTokenizer
from rembed_keras.errors import UserError
from rembed_keras.modeling.blocks.positions import longest_row
from rembed_keras.modeling.blocks.stack import check_packed_rows
from rembed_keras.modeling.losses.weights import counts
from rembed_keras.modeling.sizes import check_pieces, check_sequence_length
from rembed_keras.training.distributed.strategies import Placement
from rembed_keras.training.initial import places
from rembed_keras.training.initial.reading import Read
from rembed_keras.training.loop import restoring, starting


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
        if not isinstance(term, type) and counts(term):
            open_teachers(getattr(term, "teachers", ()), tokenizer, sequence_length, placement, is_packed)
    return terms


def open_teachers(
    teachers: Sequence[Teacher],
    tokenizer: AnyTokenizer,
    sequence_length: int,
    placement: Placement,
    is_packed: bool = False,
) -> None:
    """Opens teachers that are not open yet, or are where a stage before was trained; arguments and errors as of
    `with_teachers`."""
    for teacher in teachers:
        is_elsewhere = getattr(teacher, "strategy", None) not in (None, placement.name)
        if not teacher.is_open or is_elsewhere:
            with placement.scope():
                _open(teacher, tokenizer)
            teacher.strategy = placement.name
        _check(teacher, tokenizer, sequence_length, is_packed)


def read_by(terms: Sequence[Any], others: Sequence[Teacher] = ()) -> list[Read]:
    """The teachers that are read from where they are: those of loss terms that were opened, and others, each once."""
    asked = [each for term in terms for each in getattr(term, "teachers", ())]
    known = {id(each): each for each in (*asked, *others) if each.sha256 is not None}
    return [Read("teacher", str(each.place), each.sha256) for each in known.values()]


def _open(teacher: Teacher, tokenizer: AnyTokenizer) -> None:
    place = places.find(Path(str(teacher.place)))
    if place.has_tokenizer:
        place.check_tokenizer(tokenizer, "a teacher reads what the student reads, so prepare it with the teacher's")
    whole = restoring.masked_lm_in(place.path) if teacher.needs_head else None
    if whole is not None:
        teacher.take(whole.encoder, whole.head)
    else:
        held = restoring.held_in(place.path)
        encoder = held.fresh()
        held.give(encoder)
        teacher.take(encoder)
    state = place.path / "state.json"  # of a checkpoint, which has the checksums of its files
    teacher.sha256 = sha256(state) if state.is_file() else starting.checksum(teacher.weights)


def _check(teacher, tokenizer, sequence_length, is_packed):
    config = teacher.encoder.arguments
    try:
        if is_packed:
            check_packed_rows(config)
        check_pieces(tokenizer.vocabulary_size, config["vocabulary_size"])
        check_sequence_length(sequence_length, longest_row(config))
    except UserError as error:
        of = f" {teacher.place}" if teacher.place else ""
        raise UserError(f"the teacher{of}: {error}") from None
