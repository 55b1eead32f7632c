"""What training reads and does not change, a corpus and teachers: a checkpoint has their checksums.

A folder may have been replaced since a run was stopped. Training that goes on with other text, or another teacher, is
neither that run nor another.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rembed_keras.data.corpus import ELSEWHERE, Corpus, corpus_of_run
from rembed_keras.data.moved import note_of
from rembed_keras.data.tokenizers.protocol import AnyTokenizer
from rembed_keras.data.writing import write_atomically
from rembed_keras.errors import UserError
from rembed_keras.training.loop.checkpoints import Checkpoint
from rembed_keras.training.loop.workdir import Workdir

READ = "read"  # in the state of a checkpoint
TOKENIZER = "tokenizer"  # a kind of what is there


class Read(NamedTuple):
    """What is read: what it is, in a word, where it is, and its checksum."""

    kind: str
    place: str
    sha256: str


def read_tokenizer(corpus: Corpus) -> Read:
    """A corpus's tokenizer as what pre-training reads: later stages have no need of the text, and need the same ids."""
    return Read(TOKENIZER, str(corpus.tokenizer.path), corpus.tokenizer.sha256)


def tokenizer_of_run(run: Path, state: Mapping, name: str) -> AnyTokenizer:
    """The tokenizer of the corpus that a run has, with which its encoder was trained as far as its checkpoint says.

    Args:
        run: the run's folder.
        state: of the encoder's checkpoint.
        name: of the encoder, for the message.

    Raises:
        UserError: if it is another than the encoder was trained with, and as `corpus_of_run`.
    """
    tokenizer, there = corpus_of_run(run).tokenizer, state.get(READ)
    known = [sha256 for kind, sha256 in there if kind == TOKENIZER] if isinstance(there, list) else []
    if known and known != [tokenizer.sha256]:
        raise UserError(
            f"{tokenizer.path} is another tokenizer than {name} was trained with: bring that one's corpus back"
        )
    return tokenizer


def state_of(read: Sequence[Read]) -> dict:
    """What a checkpoint says of what is read, which may be moved: nothing of its place."""
    return {READ: [[each.kind, each.sha256] for each in read]} if read else {}


def check_same(found: Checkpoint, read: Sequence[Read]) -> None:
    """Checks that training goes on with what it has read so far; a checkpoint that does not say it is believed.

    Raises:
        UserError: naming what is another.
    """
    there = found.state.get(READ)
    for each, before in zip(read, there if isinstance(there, list) else (), strict=False):
        if [each.kind, each.sha256] != before:
            raise UserError(
                f"the {each.kind} {each.place} is another than {found.path} was trained with: bring that one back, or "
                "choose another WORKDIR"
            )


def read_corpus(workdir: Workdir, corpus: Corpus, found: Checkpoint | None) -> Read:
    """A corpus as what pre-training reads; where it is, unless it is the run's own, is noted for later stages.

    Args:
        workdir: the run's folder.
        corpus: the corpus.
        found: the checkpoint that the run goes on from, if there is one.

    Raises:
        UserError: if the checkpoint was trained with another.
    """
    read = Read("corpus", str(corpus.path), corpus.sha256)
    if found is not None:
        check_same(found, [read])
    if workdir.is_chief and corpus.path.resolve() == workdir.corpus.resolve():
        (workdir.path / ELSEWHERE).unlink(missing_ok=True)
    elif workdir.is_chief:
        note = note_of(corpus.path, workdir.path) | {"sha256": corpus.sha256}
        write_atomically(workdir.path / ELSEWHERE, json.dumps(note, indent=1))
    return read
