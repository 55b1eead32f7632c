"""An objective: the language of a row, from the mean of its tokens' hidden states."""

import keras
from keras import ops

from rembed_keras.errors import Count, UserError
from rembed_keras.modeling import Encoder
from rembed_keras.modeling.cost import Config, Entry
from rembed_keras.modeling.encoder_cost import encoder_entries
from rembed_keras.modeling.objectives import PretrainingModel


@keras.saving.register_keras_serializable(package="own_parts")
class LanguageIdentification(PretrainingModel):
    """Predicts which of `num_languages` a row is in; its head is dropped after pre-training.

    >>> encoder = Encoder(100, num_layers=1, num_heads=2, hidden_dim=8, intermediate_dim=16, input_embedding_dim=4)
    >>> [tuple(variable.shape) for variable in LanguageIdentification(encoder, 3).droppable_variables]
    [(8, 3), (3,)]
    """

    takes_metrics = False  # a user's metrics would be of token ids

    def __init__(self, encoder: Encoder, num_languages: Count, micro_batches: Count = 1, name: str = "languages"):
        head = keras.layers.Dense(num_languages, name="head", dtype="float32")
        hidden = encoder(encoder.input)["sequence_output"]  # [B, S, D]
        is_token = ops.cast(encoder.input["padding_mask"] > 0, hidden.dtype)[:, :, None]
        mean = ops.sum(hidden * is_token, axis=1) / ops.maximum(ops.sum(is_token, axis=1), 1)  # [B, D]
        super().__init__(encoder, encoder.input, head(mean), {"num_languages": num_languages}, name, micro_batches)

    def track_groups(self, groups):
        if len(groups) > (known := self.get_config()["num_languages"]):  # of those beyond, JAX would learn nothing
            raise UserError(f"num_languages of {self.name} is {known}, and the text has {len(groups)} languages")
        super().track_groups(groups)

    def nats_of(self, logs):
        return None  # it predicts no masked tokens

    def loss_of(self, x, y, y_pred, sample_weight):
        return ops.sum(_losses(x, y_pred) * x["row_shares"])  # of the whole batch; rows that only fill it have none

    def update_metrics(self, x, y, y_pred, sample_weight):
        hits = ops.cast(ops.equal(ops.argmax(y_pred, axis=-1), x["language_ids"]), "float32")
        losses = _losses(x, y_pred)
        rows = (each[:, None] for each in (losses, hits, x["row_weights"]))  # [B] -> [B, 1]
        self.track(*rows, x["language_ids"])

    @staticmethod
    def ledger_entries(config: Config, sequence_length: int, mask_rate: float) -> list[Entry]:
        """The encoder's entries and those of the head, which reads one vector a row."""
        hidden, languages = config["encoder"]["hidden_dim"], config["num_languages"]
        flops, shapes = round(2 * hidden * languages / sequence_length), ((hidden, languages), (languages,))
        head = Entry("language head", shapes, flops, is_kept=False, in_paper=0, dtype="float32")
        return [*encoder_entries(config["encoder"], sequence_length), head]


def _losses(x, logits):
    """Nats [B] of logits [B, languages]."""
    return ops.sparse_categorical_crossentropy(x["language_ids"], logits, from_logits=True)
