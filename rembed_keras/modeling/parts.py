"""The layers of an encoder, which another encoder can be made of."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import keras

from rembed_keras import compat
from rembed_keras.modeling.blocks.stack import (
    block_of,
    has_position_table,
    has_projection,
    input_embedding_of,
    make_blocks,
)
from rembed_keras.modeling.documents import attention_mask
from rembed_keras.modeling.layers.embeddings import InputEmbedding
from rembed_keras.modeling.layers.scalar_mix import ScalarMix
from rembed_keras.modeling.layers.sublayer import pick
from rembed_keras.modeling.layers.tables import initializer


@dataclass(frozen=True)
class Parts:
    """The layers of an encoder, which another can be made of."""

    embeddings: InputEmbedding
    projection: keras.layers.Layer | None
    blocks: list
    norm: keras.layers.Layer | None
    mix: keras.layers.Layer | None
    pooler: keras.layers.Layer

    def embed(self, token_ids, segment_ids, padding_mask, training=None):
        """Embeddings at the width of the blocks, [B, S] -> [B, S, D]."""
        hidden = self.embeddings(token_ids, segment_ids, padding_mask, training=training)  # [B, S, E_in]
        if self.projection is None:
            return hidden
        return self.projection(hidden, training=training)  # [B, S, E_in] -> [B, S, D]

    def transform(self, hidden, padding_mask, positions, at=None, is_whole=True, training=None):
        """What is read of the blocks, [B, S, D], and all L + 1 states; `positions` are of tokens in their documents.

        If `at` int [B, P] says which tokens are needed, the last block computes no others, and what is read is theirs.
        Where documents are not whole, tokens being left out of them, `is_whole` is False.
        """
        mask = attention_mask(padding_mask)  # [B, S] -> [B, S, S]
        documents = padding_mask if is_whole else None
        states = [hidden]
        for block in self.blocks:
            only = at if block is self.blocks[-1] and self.mix is None else None
            arguments = {"at": only, "documents": documents, "training": training}
            states.append(block(states[-1], mask, positions, **arguments))  # [B, S, D] -> [B, S, D]
        if self.norm is not None:
            states[-1] = self.norm(states[-1])
        return states[-1] if self.mix is None else pick(self.mix(states), at), states


def make_parts(config: Mapping[str, Any], dtype=None, prefix: str = "") -> Parts:
    """New layers for an encoder.

    Args:
        config: its arguments, all of them.
        dtype: dtype or policy of the layers.
        prefix: what the layers' names begin with, to tell two encoders of one model apart.
    """
    block = block_of(config)
    hidden_dim, epsilon = config["hidden_dim"], config["layer_norm_epsilon"]
    dense = {"kernel_initializer": initializer(), "dtype": dtype}
    projection = norm = mix = None
    if has_projection(config):
        projection = keras.layers.Dense(hidden_dim, use_bias=block.has_biases, name=f"{prefix}projection", **dense)
    if block.norms_first:
        norm = keras.layers.LayerNormalization(
            epsilon=epsilon, center=block.has_biases, name=f"{prefix}norm", dtype=dtype
        )
    if config["scalar_mix"]:
        mix = ScalarMix(config["num_layers"] + 1, name=f"{prefix}mix", dtype=dtype)
    kind = input_embedding_of(config)
    embeddings = kind.layer(config, block, has_position_table(config), f"{prefix}embeddings", dtype)
    embeddings.reads_neighbours = kind.reads_neighbours
    return Parts(
        embeddings=embeddings,
        projection=projection,
        blocks=make_blocks(config, dtype, prefix=prefix),
        norm=norm,
        mix=mix,
        pooler=keras.layers.Dense(hidden_dim, activation="tanh", name=f"{prefix}pooler", **dense),
    )


def padding_read(model: keras.Model) -> int:
    """How many tokens of padding a row needs after its last token: 1 where a token is read with its neighbours."""
    return int(any(getattr(layer, "reads_neighbours", False) for layer in compat.layers_of(model)))
