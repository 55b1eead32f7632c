"""The encoder: everything that is kept after pre-training, and nothing else.

It is a keras-hub `Backbone`, so presets, LoRA and summaries come with it, and it returns every hidden state, so that
probing a layer or cutting the upper ones needs no second model. The graph is RemBERT's: a narrow normalised embedding,
one projection to the hidden width, then BERT's blocks. Source: Chung et al. 2021; the module graph of the released
model (E_in 256, D 1152, 32 layers) is reproduced exactly.
"""

import keras
import keras_hub

from rembed_keras.errors import UserError
from rembed_keras.modeling.embeddings import InputEmbedding, initializer
from rembed_keras.modeling.transformer import (
    ACTIVATIONS,
    TransformerBlock,
    attention_mask,
)


@keras.saving.register_keras_serializable(package="rembed_keras")
class Encoder(keras_hub.models.Backbone):
    """A BERT-like encoder whose input embedding has a width of its own.

    Args:
        vocabulary_size: V, rows of the token table.
        num_layers: L, number of blocks.
        num_heads: H, attention heads per block; must divide `hidden_dim`.
        hidden_dim: D, width of the blocks.
        intermediate_dim: F, width inside the feed-forward pair.
        input_embedding_dim: E_in, width of the token, position and segment tables.
        max_sequence_length: rows of the position table, the longest document.
        num_segments: rows of the segment table.
        dropout: rate everywhere in the encoder; the paper pre-trains with 0.
        activation: "gelu" (exact) or "gelu_tanh".
        layer_norm_epsilon: epsilon of every norm.
        shared_with: an encoder of the same widths and at least as many layers, whose layers are used instead of new
            ones; both then have the same weights. `MaskedLM.drop_heads` cuts layers in this way.
        dtype: dtype or policy of all layers.
        name: the model's name.
        trainable: whether the encoder is trained.

    Inputs, a dict of int arrays [B, S]: `token_ids`; `segment_ids`; `padding_mask`, 0 for padding and, in rows packed
    with several documents, the number 1, 2, 3, ... of the token's document: tokens attend within their document and
    positions restart in each. An ordinary 0/1 mask is the case of one document.

    Outputs, a dict: `sequence_output` [B, S, D]; `pooled_output` [B, D], a dense tanh layer over the first token;
    `hidden_states`, a list of L + 1 arrays [B, S, D], the first being the projected embeddings.

    Raises:
        ValueError: for a size that is not a positive integer, or heads that do not divide the hidden width.

    >>> encoder = Encoder(1000, num_layers=2, num_heads=2, hidden_dim=32, intermediate_dim=64, input_embedding_dim=8)
    >>> ids = np.array([[2, 7, 8, 3, 0]])
    >>> outputs = encoder({"token_ids": ids, "segment_ids": 0 * ids, "padding_mask": (ids > 0).astype("int32")})
    >>> tuple(outputs["sequence_output"].shape), len(outputs["hidden_states"])
    ((1, 5, 32), 3)
    """

    def __init__(
        self,
        vocabulary_size,
        num_layers,
        num_heads,
        hidden_dim,
        intermediate_dim,
        input_embedding_dim,
        max_sequence_length=512,
        num_segments=2,
        dropout=0.0,
        activation="gelu",
        layer_norm_epsilon=1e-12,
        shared_with=None,
        dtype=None,
        name="encoder",
        trainable=True,
    ):
        sizes = {
            "vocabulary_size": vocabulary_size,
            "num_layers": num_layers,
            "num_heads": num_heads,
            "hidden_dim": hidden_dim,
            "intermediate_dim": intermediate_dim,
            "input_embedding_dim": input_embedding_dim,
            "max_sequence_length": max_sequence_length,
            "num_segments": num_segments,
        }
        regularisation = {"dropout": dropout, "layer_norm_epsilon": layer_norm_epsilon}
        _check(sizes, dropout, activation)
        if shared_with is None:
            self.embeddings = InputEmbedding(
                vocabulary_size,
                input_embedding_dim,
                max_sequence_length,
                num_segments,
                name="embeddings",
                dtype=dtype,
                **regularisation,
            )
            dense = {"kernel_initializer": initializer(), "dtype": dtype}
            self.projection = keras.layers.Dense(hidden_dim, name="projection", **dense)
            self.blocks = [
                TransformerBlock(
                    num_heads,
                    hidden_dim,
                    intermediate_dim,
                    activation=activation,
                    name=f"block_{i}",
                    dtype=dtype,
                    **regularisation,
                )
                for i in range(num_layers)
            ]
            self.pooler = keras.layers.Dense(hidden_dim, activation="tanh", name="pooler", **dense)
        else:
            self.embeddings, self.projection = (
                shared_with.embeddings,
                shared_with.projection,
            )
            self.blocks, self.pooler = (
                shared_with.blocks[:num_layers],
                shared_with.pooler,
            )
        inputs = {
            key: keras.Input((None,), dtype="int32", name=key) for key in ("token_ids", "segment_ids", "padding_mask")
        }
        super().__init__(
            inputs=inputs,
            outputs=self._connect(**inputs),
            dtype=dtype,
            name=name,
            trainable=trainable,
        )
        self.token_embedding = self.embeddings.token
        self._sizes = sizes | regularisation | {"activation": activation}

    def _connect(self, token_ids, segment_ids, padding_mask):
        hidden = self.embeddings(token_ids, segment_ids, padding_mask)  # [B, S] -> [B, S, E_in]
        hidden = self.projection(hidden)  # [B, S, E_in] -> [B, S, D]
        mask = attention_mask(padding_mask)  # [B, S] -> [B, S, S]
        hidden_states = [hidden]
        for block in self.blocks:
            hidden_states.append(block(hidden_states[-1], mask))  # [B, S, D] -> [B, S, D]
        pooled = self.pooler(hidden_states[-1][:, 0, :])  # [B, S, D] -> [B, D]
        return {
            "sequence_output": hidden_states[-1],
            "pooled_output": pooled,
            "hidden_states": hidden_states,
        }

    @property
    def num_layers(self) -> int:
        """Number of blocks, L."""
        return len(self.blocks)

    def with_layers(self, num_layers: int) -> "Encoder":
        """An encoder of the lower `num_layers` blocks of this one, sharing their weights.

        Args:
            num_layers: how many blocks to keep, from 1 to L.

        Raises:
            ValueError: if there are not as many.
        """
        if not 1 <= num_layers <= self.num_layers:
            raise UserError(f"num_layers is {num_layers}; this encoder has {self.num_layers} to keep from")
        config = self.get_config() | {
            "num_layers": num_layers,
            "dtype": self.dtype_policy,
        }
        return type(self)(shared_with=self, **config)

    def without_pooler(self, variables: list) -> list:
        """Those of `variables` that a model can move which does not read the pooled output."""
        idle = {id(variable) for variable in self.pooler.variables}
        return [variable for variable in variables if id(variable) not in idle]

    def get_config(self):
        return super().get_config() | self._sizes


def _check(sizes, dropout, activation):
    for key, value in sizes.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UserError(f"{key} is {value!r}; it must be a positive whole number")
    if sizes["hidden_dim"] % sizes["num_heads"]:
        raise UserError(f"num_heads is {sizes['num_heads']}; it must divide hidden_dim, {sizes['hidden_dim']}")
    if not 0 <= dropout < 1:
        raise UserError(f"dropout is {dropout!r}; it must be at least 0 and under 1")
    if activation not in ACTIVATIONS:
        raise UserError(f"activation is {activation!r}; it can be one of {', '.join(ACTIVATIONS)}")
