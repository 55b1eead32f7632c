"""Teachers: encoders that were trained before, which a loss term asks and nothing changes.

A teacher is opened once, by the stage that uses it, and its weights are in no checkpoint and no preset: a run says
where it is. It is called without dropout, and no gradient flows into it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rembed_keras.errors import UserError, shortened

if TYPE_CHECKING:
    from rembed_keras.modeling.encoder import Encoder
    from rembed_keras.modeling.heads.masked_lm_head import MaskedLMHead


class Teacher:
    """A trained encoder that teaches.

    Args:
        place: the folder of a run, a keras-hub preset or a Hugging Face model, of the student's tokenizer; or an
            `Encoder`, which is then frozen.

    Attributes:
        head: its masked-LM head, once it is open, if whoever asks it `needs_head`.
        sha256: checksum of what is at its place, once it was opened from there.
        strategy: the name of that under which it was opened from there; a stage under another opens it again.

    Raises:
        UserError: for what is neither.

    >>> from rembed_keras.modeling import Encoder
    >>> encoder = Encoder(100, num_layers=1, num_heads=2, hidden_dim=8, intermediate_dim=16, input_embedding_dim=4)
    >>> len(Teacher(encoder).encoder.trainable_variables)
    0
    """

    def __init__(self, place: str | Encoder):
        self.place = place if isinstance(place, str) else None
        self._encoder: Encoder | None = None
        self.head: MaskedLMHead | None = None
        self.sha256: str | None = None
        self.strategy: str | None = None
        self.needs_head = False
        self._was_asked = False  # for a head, at its place
        if self.place is None:
            if not hasattr(place, "parts"):
                raise UserError(f"the place of a teacher is {shortened(place)}; it must be a folder of a model")
            self.take(place)

    def take(self, encoder: Any, head: MaskedLMHead | None = None) -> None:
        """Gives it the encoder of its place, and the masked-LM head that stands there, and freezes both."""
        encoder.trainable = False
        self._encoder, self._was_asked = encoder, self.needs_head
        if head is not None:
            head.trainable = False
            self.head = head

    @property
    def is_open(self) -> bool:
        """Whether it has its encoder, and of its place the head too, if there is one and whoever asks it needs it."""
        lacks_head = self.needs_head and self.head is None and self.place is not None and not self._was_asked
        return self._encoder is not None and not lacks_head

    @property
    def encoder(self) -> Encoder:
        """The encoder.

        Raises:
            UserError: before it was opened.
        """
        if self._encoder is None:
            raise UserError(f"the teacher {self.place} was not opened: give Teacher the encoder itself")
        return self._encoder

    def check_apart(self, student: Encoder, asked_by: str) -> None:
        """Refuses a student that has weights of the teacher's, as one that was cut from it: they are frozen.

        Args:
            student: the encoder that shall learn.
            asked_by: what asks the teacher, for messages.

        Raises:
            UserError: if it has.
        """
        if self.encoder is student:
            raise UserError(f"the teacher of {asked_by} is the student itself, which would be frozen")
        theirs = {id(weight) for weight in self.encoder.weights}
        if any(id(weight) in theirs for weight in student.weights):
            raise UserError(
                f"the teacher of {asked_by} has layers of the student's, which would be frozen: make the student of "
                "copy.deepcopy(encoder), before Teacher(encoder) freezes it"
            )

    def check_inputs(self, x: object) -> None:
        """Refuses arrays of its student's inputs that the teacher has no rows for.

        Args:
            x: a dict of arrays or tensors [N, S]; whatever else it is, nothing is checked.

        Raises:
            UserError: for a token or segment id, or a document, that is beyond the teacher's table.
        """
        from rembed_keras.modeling.texts.inputs import check_inputs

        config = self.encoder.arguments
        try:
            check_inputs(config | ({"num_segments": 0} if config["num_segments"] == 1 else {}), x)  # see `read`
        except UserError as error:
            raise UserError(f"the teacher: {error}") from None

    @property
    def weights(self) -> list:
        """Its weights, once it is open."""
        owned = [*(part.weights for part in (self._encoder, self.head) if part is not None)]
        return [*{id(weight): weight for weights in owned for weight in weights}.values()]

    def read(self, inputs) -> dict:
        """The encoder's outputs of the inputs of an encoder, which may hold more than it takes.

        One that has segment 0 only, as RoBERTa, reads a pair of texts in it.
        """
        read = {key: inputs[key] for key in self.encoder.input}
        if self.encoder.arguments["num_segments"] == 1:
            read["segment_ids"] = 0 * read["segment_ids"]
        return self.encoder(read, training=False)


def check_teacher(given: object, asked_by: str) -> None:
    """Refuses what is no teacher, as the encoder that shall be one.

    Args:
        given: what was given as a teacher.
        asked_by: the name of what asks it.

    Raises:
        UserError: for what reads nothing.
    """
    if not callable(getattr(given, "read", None)):
        raise UserError(f"the teacher of {asked_by} is {shortened(given)}; make a Teacher of it")
