"""Where the encoder of a task starts: with the weights that a recipe names, or the same encoder untrained."""

import json
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

from rembed_keras.analysis.cost import precision
from rembed_keras.analysis.cost.ledger import ledger
from rembed_keras.data.json_files import read_json
from rembed_keras.data.moved import note_of
from rembed_keras.data.text import sha256
from rembed_keras.data.tokenizers.protocol import AnyTokenizer
from rembed_keras.data.writing import write_atomically
from rembed_keras.errors import UserError
from rembed_keras.modeling.blocks.positions import longest_row
from rembed_keras.modeling.encoder import Encoder
from rembed_keras.modeling.saving import presets
from rembed_keras.modeling.saving.filling import blank
from rembed_keras.modeling.saving.presets import name_of
from rembed_keras.modeling.sizes import Dtype, check_sequence_length
from rembed_keras.training.initial import places
from rembed_keras.training.initial.finetuned import INITIAL, PRETRAINING, SETTINGS, STARTS, stopped_at
from rembed_keras.training.initial.weights import DEFAULTS, InitialWeights, initial_weights
from rembed_keras.training.loop import checkpoints, restoring, starting
from rembed_keras.training.loop.workdir import Workdir


def check_length(encoder: Encoder, sequence_length: int) -> None:
    """Checks that an encoder has a position for each token of the longest text that is read.

    Raises:
        UserError: for an encoder with fewer rows in its position table.
    """
    _check_length(encoder.get_config(), sequence_length)


def _check_length(arguments, sequence_length):
    check_sequence_length(sequence_length, longest_row(arguments))


def record_kept(workdir: Workdir, make: Callable[[], Encoder]) -> None:
    """Writes the ledger of an encoder that was pre-trained elsewhere, and is kept here, unless the run has one.

    Args:
        workdir: of the run.
        make: gives the encoder, or one like it, to be counted.
    """
    path = workdir.path / "ledger.json"
    if workdir.is_chief and not path.exists():
        write_atomically(path, json.dumps(ledger(make()).to_json(), indent=1))


class EncoderStart:
    """Encoders that are about to learn a task.

    Args:
        folder: the folder of the run.
        encoder: makes the run's `Encoder`; None to make what `pretrained` holds.
        pretrained: the `InitialWeights`, or the place that they are in; None for the run itself.
        dtype: of the encoders; by default what `encoder` or `pretrained` says.

    Raises:
        UserError: if there is neither an encoder nor a place to take one from.
    """

    def __init__(
        self,
        folder: Path,
        encoder: Callable | None = None,
        pretrained: str | InitialWeights | None = None,
        dtype: Dtype | None = None,
    ):
        if encoder is None and pretrained is None:
            raise UserError("fine-tuning needs an encoder: bind `encoder`, or `pretrained` to the folder of a model")
        self._make = encoder
        self._is_announced = False
        given = initial_weights(pretrained)
        self._dtype, self._own_dtype = dtype, given.dtype
        self._run, self._changes, self._checkpoint = folder, given.changes, given.checkpoint
        self._is_own = given.place is None
        self._is_run = self._is_own and given.task is None
        self.folder = (folder if self._is_own else Path()) / (given.folder or "")
        if not self.folder.is_dir():
            places.find(self.folder)

    @cached_property
    def _place(self):
        if self._is_run and not (self.folder / "checkpoints").is_dir():
            raise UserError(f"{self.folder / 'checkpoints'} has no pre-trained encoder: run pretrain first")
        return places.find(self.folder, self._checkpoint)

    @cached_property
    def _beside(self):
        """The place, to ask for what stands beside an encoder; of this run, which may not have one yet."""
        return places.Place(self.folder, str(self.folder), self.folder) if self._is_run else self._place

    @cached_property
    def _held(self):
        return restoring.held_in(self._place.path).changed(self._changes)

    @cached_property
    def tokenizer(self) -> AnyTokenizer:
        """The tokenizer that the encoder was trained with."""
        return self._beside.tokenizer

    @cached_property
    def languages(self) -> list[str]:
        """Languages that the encoder saw in pre-training, as far as its folder says."""
        return self._beside.languages

    @cached_property
    def _arguments(self):
        if self._make is not None:
            return self.blank().get_config()
        described, _ = places.arguments_at(self._place)  # of which nothing is built
        return self._changes.arguments(described)

    def check(self) -> None:
        """Reads the encoder at its place, if no recipe makes it, so that nothing is done before it is known to be good.

        Raises:
            UserError: if it cannot be read.
        """
        if self._make is None:
            _ = self._held

    @property
    def num_segments(self) -> int:
        """How many segments the encoder distinguishes."""
        return self._arguments.get("num_segments", DEFAULTS["num_segments"])

    @property
    def dtype(self) -> str:
        """The name of the dtype, or policy, of the encoders that `fresh` makes."""
        held = self._own_dtype if self._make is None else None
        return precision.name_of(self._dtype or held or self._arguments.get("dtype"))

    def check_length(self, sequence_length: int) -> None:
        """As the function `check_length`, of the encoder that `fresh` makes."""
        _check_length(self._arguments, sequence_length)

    def fresh(self) -> Encoder:
        """A new encoder with initial weights, of the shape that pre-training keeps."""
        if self._make is None:
            return self._held.fresh(self._dtype or self._own_dtype)
        encoder = self._make()
        if self._dtype is None:
            return encoder
        return type(encoder).from_config(encoder.get_config() | {"dtype": self._dtype})

    def blank(self) -> Encoder:
        """An encoder as `fresh` makes it, to count it: with zeros or trained weights, for to draw others takes long."""
        if self._make is None and not (self._dtype or self._own_dtype):
            return self._held.encoder
        with blank():
            return self.fresh()

    @cached_property
    def record(self) -> dict:
        """Where the weights are, "place", how they are changed, and the checksum of what is given to an encoder.

        A place within the run is relative to it; of one elsewhere it is noted how that lies from the run, too.
        """
        path, is_preset = self._place.path, name_of(self._place.path) in presets.names()
        place = path.relative_to(self._run).as_posix() if self._is_own else name_of(path)
        note = {"place": place} if self._is_own or is_preset else note_of(path, self._run)
        given = starting.checksum(value for _, value in self._held.rows)
        return note | {starting.GIVEN: given} | self._changes.record()

    def hold(self) -> None:
        """Has the run keep the checkpoint that models start from whose own leave out what fine-tuning did not change.

        A later pre-training would remove it.
        """
        if self._is_own:
            (self._place.path / checkpoints.HELD).touch()

    def settings(self, starts: Sequence[str]) -> dict:
        """What models of a task have in common by where they start: a checksum that is the same on every backend, the
        changes, and how far the run's own pre-training has come; nothing if all are untrained."""
        if "pretrained" not in starts:
            return {}
        state = self._place.path / "state.json"
        given = sha256(state) if state.is_file() else self.record[starting.GIVEN]  # a checkpoint says it of its files
        settings = {INITIAL: {"sha256": given[:16]} | self._changes.record()}
        if self._is_run:
            newest = self._newest()
            settings[PRETRAINING] = {"step": newest.step, "is_done": stopped_at(newest) is None}
        elif self._is_own and self._place.task is not None:  # a task of this run, which may start so itself
            kept = self._place.task / SETTINGS
            theirs = read_json(kept).get(PRETRAINING) if kept.exists() else None
            settings |= {} if theirs is None else {PRETRAINING: theirs}
        return settings

    def announce(self, stage: str) -> None:
        """Prints once where a stage starts, if the recipe names it, and what is changed."""
        if self._is_announced:
            return
        self._is_announced = True
        if not self._is_run or self._changes.record() or self._checkpoint != "newest":
            print(f"{stage}: {self._held.said(self._place.name)}", flush=True)
        if (at := self._stopped_at()) is not None:
            print(f"{stage}: the encoder is that of a pre-training that was stopped at {at}", flush=True)

    def _newest(self):
        """The newest checkpoint of the pre-training that the encoder is of; None if it is of none."""
        path = self._place.path
        if path.parent != self.folder / "checkpoints":
            return None
        if self._checkpoint != "newest":
            path = max(checkpoints.by_step(path.parent).items())[1]
        return checkpoints.opened(path)

    def _stopped_at(self):
        """Where the pre-training that the encoder is of was stopped; None if it came to its end."""
        newest = self._newest()
        return None if newest is None else stopped_at(newest)

    def start(self, encoder, start: str) -> None:
        """Gives a fresh encoder the weights of a start.

        Args:
            encoder: a fresh `Encoder`.
            start: "pretrained" for those of a checkpoint or of the folder; "scratch" for the ones it has.

        Raises:
            UserError: if the start is unknown, or there is no encoder or one of another structure.
        """
        if start not in STARTS:
            raise UserError(f"a start is {start!r}; it can be one of {', '.join(STARTS)}")
        if start == "pretrained":
            self._held.give(encoder)
