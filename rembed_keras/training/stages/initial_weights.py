"""Where fine-tuning starts: a pre-trained encoder, of this run or of elsewhere, or the same encoder untrained."""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from rembed_keras.data.corpus import Corpus
from rembed_keras.data.tokenizers.sentence_piece import Tokenizer
from rembed_keras.errors import UserError
from rembed_keras.interop import read_model
from rembed_keras.modeling.objectives.pretraining import encoder_of
from rembed_keras.training.loop import checkpoints, restoring

Start: TypeAlias = Literal["pretrained", "scratch"]
STARTS: tuple[Start, ...] = get_args(Start)


class InitialWeights:
    """Encoders that are about to learn a task.

    Args:
        folder: the folder of the run.
        encoder: makes the run's `Encoder`; None to make what `pretrained` holds.
        pretrained: the folder of another run, a keras-hub preset or a Hugging Face model to start from; None for the
            run itself.

    Raises:
        UserError: if there is neither an encoder nor a place to take one from.
    """

    def __init__(self, folder: Path, encoder: Callable | None = None, pretrained: str | None = None):
        if encoder is None and pretrained is None:
            raise UserError("fine-tuning needs an encoder: bind `encoder`, or `pretrained` to the folder of a model")
        self._make = encoder
        self.folder = Path(pretrained) if pretrained is not None else folder
        if not self.folder.is_dir():
            raise UserError(f"{self.folder} is not a folder of a model")
        self._is_own = pretrained is None
        self.is_run = pretrained is None or (self.folder / "checkpoints").is_dir()

    @cached_property
    def _found(self):
        found = checkpoints.latest(self.folder / "checkpoints")
        if found is None:
            raise UserError(f"{self.folder / 'checkpoints'} has no pre-trained encoder: run pretrain first")
        return found

    @cached_property
    def _model(self):
        """The encoder of a preset or a Hugging Face folder, and the file of its tokenizer."""
        model, tokenizer = read_model(str(self.folder))
        return encoder_of(model), tokenizer

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that the encoder was trained with."""
        if self.is_run:
            return Corpus(self.folder / "corpus").tokenizer
        if self._model[1] is None:
            raise UserError(f"{self.folder} has no SentencePiece model, and texts cannot be read without it")
        return Tokenizer(self._model[1])

    @cached_property
    def languages(self) -> list[str]:
        """Languages that the encoder saw in pre-training, as far as its folder says."""
        corpus = self.folder / "corpus"
        return Corpus(corpus).languages if self.is_run and corpus.is_dir() else []

    @cached_property
    def num_segments(self) -> int:
        """How many segments the encoder distinguishes."""
        return self.fresh().get_config()["num_segments"]

    def fresh(self):
        """A new encoder with initial weights, of the shape that pre-training keeps."""
        if self._make is not None:
            return self._make()
        if self.is_run:
            return restoring.kept_encoder(self._found)
        return type(self._model[0]).from_config(self._model[0].get_config())

    @cached_property
    def place(self) -> str:
        """Where the weights are: within the run that fine-tunes by a relative path, so that it can be moved."""
        if not self.is_run:
            return str(self.folder.resolve())
        path = self._found.path
        return path.relative_to(self.folder).as_posix() if self._is_own else str(path.resolve())

    def start(self, encoder, start: str) -> None:
        """Gives a fresh encoder the weights of a start.

        Args:
            encoder: a fresh `Encoder`.
            start: "pretrained" for those of the newest checkpoint or of the folder; "scratch" for the ones it has.

        Raises:
            UserError: if the start is unknown, or there is no encoder or one of another shape.
        """
        if start not in STARTS:
            raise UserError(f"a start is {start!r}; it can be one of {', '.join(STARTS)}")
        if start == "scratch":
            return
        if self.is_run:
            restoring.load_kept(encoder, self._found)
            return
        held = self._model[0]
        arrays = zip(encoder.weights, held.weights, strict=True)
        values = {ours.path: checkpoints.read(theirs) for ours, theirs in arrays}
        checkpoints.assign_arrays(encoder.weights, values, self.folder)
