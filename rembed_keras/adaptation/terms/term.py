"""What a loss term is: it gives a loss of each row or prediction of a batch, and says what it costs.

A term is a small object that owns no variables. Nothing here imports a framework before a loss is computed, so that
terms are checked and counted when a recipe is read.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from rembed_keras.adaptation.teachers import Teacher
from rembed_keras.errors import CountOrZero, Rate
from rembed_keras.modeling.cost import Config, Entry
from rembed_keras.modeling.losses.weights import by_step

Weight: TypeAlias = Rate | Mapping[CountOrZero, Rate]


class Term:
    """A loss term; your own is a class derived from this one, or any that has what it has.

    Args:
        weight: what the loss is multiplied by: a number, or numbers by the step from which they hold, the first from 0.
            A term whose weight is always 0 is left out.
        name: what logs call it.

    Raises:
        UserError: for a weight that is none.
    """

    def __init__(self, weight: Weight = 1.0, name: str = "term"):
        by_step(weight, f"the weight of {name}")
        self.weight = weight
        self.name = name

    @property
    def teachers(self) -> Sequence[Teacher]:
        """Teachers that it asks."""
        return ()

    def check(self, model) -> None:
        """Refuses a model that it does not suit; asked once, before training.

        Raises:
            UserError: in one line.
        """

    def check_model(self, model) -> None:
        """Refuses a model that it does not suit whatever its teachers are; asked before text is prepared.

        They are not open then.

        Raises:
            UserError: in one line.
        """

    def check_compared(self, student: Config, teacher: Config) -> None:
        """Refuses encoders that it cannot compare; asked when a recipe is read, of each teacher that is there.

        Args:
            student: the arguments of the model's encoder.
            teacher: those of a teacher's.

        Raises:
            UserError: in one line.
        """

    def loss(self, model, batch: tuple, outputs: Any):
        """The losses of a batch, or of a part of it on one replica or in one micro-batch.

        Args:
            model: a pre-training model or a task model. What its encoder computed of the batch is
                `model.reading.note.value`, see `modeling.losses.terms.Note`; called again it draws other dropout.
            batch: inputs, targets and weights of predictions.
            outputs: what the model gave in training; a task model gives logits.

        Returns:
            Float, one a row [B], or one a prediction, as the targets are; the model takes their mean.
        """
        raise NotImplementedError

    def ledger_entries(self, encoder: Config, entries: Sequence[Entry], length: int) -> list[Entry]:
        """What it has a step compute besides, of nothing that is kept; a teacher's pass is counted apart.

        Args:
            encoder: the arguments of the model's encoder.
            entries: the model's.
            length: S.
        """
        return []
