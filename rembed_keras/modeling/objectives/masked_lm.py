"""The objective of BERT and RemBERT: tokens are masked, and a head predicts them."""

from collections.abc import Sequence

import keras

from rembed_keras.errors import Count
from rembed_keras.modeling.blocks.stack import layers_of_cut
from rembed_keras.modeling.couplings.naming import COUPLINGS, Coupling
from rembed_keras.modeling.encoder import Encoder
from rembed_keras.modeling.objectives.masked_lm_cost import masked_lm_entries
from rembed_keras.modeling.objectives.masked_tokens import MaskedTokenPrediction, make_head, with_mask_positions
from rembed_keras.modeling.sizes import Keep


@keras.saving.register_keras_serializable(package="rembed_keras")
class MaskedLM(MaskedTokenPrediction):
    """Masked-language-model pre-training of an encoder, with an output embedding of any width.

    Args:
        encoder: an `Encoder`; what is kept.
        output_embedding_dim: E_out, the width of the output table; dropped after pre-training.
        coupling: "decoupled" gives the output a table of its own; "coupled" shares the encoder's token table; "gdes"
            shares it without its gradient and adds a table of differences. The last two need E_out = E_in. "extended"
            shares it and adds columns of its own to it, so that E_out can be larger.
        output_cutoffs: ids at which narrower bands of a decoupled output table begin; none by default.
        kept_layers: how many blocks `drop_heads` keeps; all by default. The others exist in pre-training only.
        keep: which blocks stay then: "bottom", "top", "alternate" or "symmetric".
        loss_chunk: how many predictions are scored at a time in training, so that no more than [loss_chunk, V] logits
            exist; more take more memory, fewer more time.
        micro_batches: parts of a batch that are trained on one after the other before the optimizer steps: activations
            of one part exist at a time, and the step is the same. Rows of padding fill a batch that they do not share
            evenly, as one that is left over in `fit`; they count in nothing but means over rows that layers add.
        name: the model's name.

    Inputs as the encoder's and `mask_positions` int [B, P]; `predict` gives logits [B, P, V]. `fit` takes `y` int
    [B, P], the masked tokens' ids, and `sample_weight` [B, P], 0 for slots without a prediction, or [B], of rows. The
    loss is the model's own: `compile(optimizer=...)` suffices. Logs have `loss` in nats and `accuracy`, per prediction.

    Raises:
        ValueError: for an unknown coupling, widths that a coupling cannot share, or a cut that cannot be made; see
            `layers_of_cut`.

    Source: Chung et al. 2021, sections 3 and 4.

    >>> from rembed_keras.modeling import Encoder
    >>> encoder = Encoder(100, num_layers=2, num_heads=2, hidden_dim=8, intermediate_dim=16, input_embedding_dim=4)
    >>> model = MaskedLM(encoder, output_embedding_dim=32)
    >>> model.drop_heads(num_layers=1).num_layers
    1
    """

    ledger_entries = staticmethod(masked_lm_entries)

    def __init__(
        self,
        encoder: Encoder,
        output_embedding_dim: Count,
        coupling: Coupling = "decoupled",
        output_cutoffs: Sequence[Count] = (),
        kept_layers: Count | None = None,
        keep: Keep = "bottom",
        loss_chunk: Count = 512,
        micro_batches: Count = 1,
        name: str = "masked_lm",
    ):
        layers_of_cut(encoder.get_config(), kept_layers, keep)  # before anything is built for a cut that cannot be made
        head = make_head(encoder, output_embedding_dim, coupling, output_cutoffs)
        arguments = {
            "output_embedding_dim": output_embedding_dim,
            "coupling": COUPLINGS.told(coupling),
            "output_cutoffs": [*output_cutoffs],
            "kept_layers": kept_layers,
            "keep": keep,
        }
        hidden = encoder(encoder.input)["sequence_output"]
        inputs = with_mask_positions(encoder.input)
        super().__init__(encoder, head, inputs, hidden, loss_chunk, micro_batches, arguments, name)

    def hidden_at_predictions(self, inputs, training=None):
        return self.encoder.encode_at(inputs, inputs["mask_positions"], training=training)
