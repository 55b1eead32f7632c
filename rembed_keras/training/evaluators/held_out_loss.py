"""The objective's loss on text that no step trains on: what the training curve hides when text is read repeatedly."""

from typing import TYPE_CHECKING

from rembed_keras.errors import Count, check_counts

if TYPE_CHECKING:  # a recipe is checked without a framework
    from rembed_keras.training.evaluators.evaluator import EvaluationData


class HeldOutLoss:
    """The metrics of the objective on held-out rows: `loss`, `accuracy`, `loss/<language>`, named as in training.

    Rows and masks are the same at every evaluation and in every run of the seed. Languages share the rows as they share
    those of training, so `loss`, in nats per masked token, compares with training's, but for dropout, which is off; a
    language of which no whole row is held out has no curve.

    Args:
        rows: about how many rows in all are evaluated; see `Mixture.held_out`.

    Raises:
        UserError: for no rows.

    >>> HeldOutLoss(rows=64).needs_held_out
    True
    """

    needs_held_out = True

    def __init__(self, rows: Count = 512):
        check_counts({"rows": rows})
        self.rows = rows

    def evaluate(self, model, data: "EvaluationData") -> dict[str, float]:
        """The objective's metrics, means over predictions."""
        return data.metrics(model, data.once(self, lambda: data.batches.held_out(self.rows)))
