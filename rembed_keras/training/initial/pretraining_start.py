"""Where pre-training starts: from scratch, or with the weights of an encoder that was trained before.

They are read once. A run that has a checkpoint goes on from that, whether what it started from is still there or not,
and `initial_weights.json` in its folder says what that was.
"""

import json
from collections.abc import Callable
from pathlib import Path

import keras

from rembed_keras.data.tokenizers.protocol import AnyTokenizer
from rembed_keras.data.writing import write_atomically
from rembed_keras.errors import UserError
from rembed_keras.modeling import Encoder
from rembed_keras.modeling.saving.presets import name_of
from rembed_keras.training.initial import places
from rembed_keras.training.initial.weights import InitialWeights, initial_weights
from rembed_keras.training.loop import checkpoints, restoring, starting
from rembed_keras.training.loop.workdir import Workdir

NOTHING = "training.pretrain has no encoder, and no initial weights to take one from: bind encoder, or set INITIAL"


class PretrainingStart:
    """What pre-training starts from.

    The encoder gets its weights before the objective is built on it, so that tables which an objective begins as copies
    of the encoder's begin as copies of trained ones. A pre-training head of the same class whose weights have the same
    names and shapes is taken along; any other begins untrained, which is printed.

    Args:
        workdir: the run's folder.
        initial: the weights, or the place that they are in; None to start from scratch.
        tokenizer: of the corpus.

    Attributes:
        resumed: the checkpoint that the run goes on from; None if there is none.

    Raises:
        UserError: if there are no such weights, or they were trained with another tokenizer.
    """

    def __init__(self, workdir: Workdir, initial: str | InitialWeights | None, tokenizer: AnyTokenizer):
        self._workdir, self._held = workdir, None
        self._given = initial_weights(initial)
        self.resumed = checkpoints.latest(workdir.checkpoints)
        if initial is None or self.resumed is not None:
            return
        self._place = place_of(initial)
        self._place.check_tokenizer(tokenizer)
        self._held = restoring.held_in(self._place.path, with_head=True).changed(self._given.changes)

    def make(self, encoder: Callable | None, model: Callable) -> keras.Model:
        """The pre-training model, with the weights that it starts from.

        Args:
            encoder: makes the `Encoder`; None for one as that of the initial weights.
            model: makes the pre-training model of an encoder.

        Raises:
            UserError: naming what of the encoder has another structure than the one that the weights are of; or if
                there is neither an encoder nor weights.
        """
        made = self._same() if encoder is None else encoder()
        if self._held is None:
            return model(made)
        self._held.give(made)
        sha256 = starting.checksum(made.weights)
        learner = model(made)
        has_head = self._held.give_head(learner)
        record = {"place": name_of(self._place.path)} | self._given.changes.record()
        record |= {"sha256": sha256, "head": has_head, places.LANGUAGES: self._place.languages}
        head = "its pre-training head too" if has_head else "the pre-training head is new"
        if self._workdir.is_chief:
            write_atomically(self._workdir.path / places.RECORD, json.dumps(record, indent=1))
            print(f"pretrain: {self._held.said(self._place.name)}; {head}", flush=True)
        return learner

    def _same(self) -> Encoder:
        """An encoder as that of the initial weights, or of the checkpoint that the run goes on from, of the recipe's
        dtype."""
        if self._held is not None:
            return self._held.fresh(self._given.dtype)
        if self.resumed is None:
            raise UserError(NOTHING)
        return restoring.encoder_in(self.resumed, self._given.dtype)


def place_of(initial: str | InitialWeights) -> places.Place:
    """Where the weights are that pre-training starts from.

    Raises:
        UserError: if there are none.
    """
    given = initial_weights(initial)
    given.check_elsewhere()
    return places.find(Path(str(given.folder)), given.checkpoint)
