"""R-Drop: two passes with different dropout shall predict the same."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rembed_keras.adaptation.terms.term import Term, Weight
from rembed_keras.errors import UserError
from rembed_keras.modeling.cost import Config, Entry


class RDrop(Term):
    """The mean of both Kullback-Leibler divergences of two passes that draw different dropout, in nats a prediction.

    The second pass has gradients too, so a step costs two. Its own loss, whose expectation is the first's, is left out.
    Of a classifier, a tagger or a span extractor, or of masked tokens; those cost their logits twice, [P, V] a row.

    Args:
        weight: alpha; the paper takes 1 to 5 in fine-tuning. A number, or numbers by step.
        name: what logs call it.

    Raises:
        UserError: for a model without dropout, or one that predicts no distribution, when it is used.

    Source: Liang et al. 2021, equation 2 (arXiv:2106.14448).

    >>> from rembed_keras.modeling import Classifier, Encoder
    >>> encoder = Encoder(100, num_layers=1, num_heads=2, hidden_dim=8, intermediate_dim=16, input_embedding_dim=4)
    >>> model = Classifier(encoder, num_classes=3, dropout=0.1)
    >>> model.use_terms([RDrop(weight=1.0)])
    """

    def __init__(self, weight: Weight = 1.0, name: str = "r_drop"):
        super().__init__(weight, name)

    def check(self, model) -> None:
        from rembed_keras import compat

        if not callable(getattr(model, "symmetric_divergence", None)):
            raise UserError(f"{self.name} compares two distributions, and {type(model).__name__} predicts none")
        if not any(getattr(layer, "rate", 0) for layer in compat.layers_of(model)):
            raise UserError(f"{self.name} compares two passes that dropout tells apart: give the model dropout over 0")

    def loss(self, model, batch: tuple, outputs: Any):
        return model.symmetric_divergence(outputs, model(batch[0], training=True))

    def ledger_entries(self, encoder: Config, entries: Sequence[Entry], length: int) -> list[Entry]:
        """A second pass of all."""
        return [
            replace(entry, name=f"{self.name}: {entry.name}", shapes=(), is_kept=False, in_paper=0, is_trained=False)
            for entry in entries
            if entry.flops or entry.activations
        ]
