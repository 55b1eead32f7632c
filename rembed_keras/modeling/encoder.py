"""The encoder: everything that is kept after pre-training, and nothing else.

It is a keras-hub `Backbone`, so presets, LoRA and summaries come with it, and it returns every hidden state, so that
probing a layer or cutting the upper ones needs no second model. The graph is RemBERT's: a narrow normalised embedding,
one projection to the hidden width, then BERT's blocks. Source: Chung et al. 2021; the module graph of the released
model (E_in 256, D 1152, 32 layers) is reproduced exactly.
"""

from dataclasses import dataclass

import keras
import keras_hub

from rembed_keras.errors import UserError, shortened
from rembed_keras.modeling.changes import KEYS, change_again, changes_of, dtypes_of_cut, settle_dtypes
from rembed_keras.modeling.embeddings import InputEmbedding, document_positions
from rembed_keras.modeling.stack import BLOCKS, SHARING, ScalarMix, make_blocks
from rembed_keras.modeling.tables import initializer
from rembed_keras.modeling.transformer import ACTIVATIONS, attention_mask, pick
from rembed_keras.sizes import check_sizes, groups_of_layers, layers_to_keep


@dataclass(frozen=True)
class Parts:
    """The layers of an encoder, which another can be made of."""

    embeddings: InputEmbedding
    projection: keras.layers.Layer | None
    blocks: list
    norm: keras.layers.Layer | None
    mix: keras.layers.Layer | None
    pooler: keras.layers.Layer
    rematerialize: bool = False

    def embed(self, token_ids, segment_ids, padding_mask, training=None):
        """Embeddings at the width of the blocks, [B, S] -> [B, S, D]."""
        hidden = self.embeddings(token_ids, segment_ids, padding_mask, training=training)  # [B, S, E_in]
        return hidden if self.projection is None else self.projection(hidden)  # [B, S, E_in] -> [B, S, D]

    def transform(self, hidden, padding_mask, positions, at=None, training=None):
        """What is read of the blocks, [B, S, D], and all L + 1 states; `positions` are needed by modern blocks.

        If `at` int [B, P] says which tokens are needed, the last block computes no others, and what is read is theirs.
        """
        mask = attention_mask(padding_mask)  # [B, S] -> [B, S, S]
        states = [hidden]
        for block in self.blocks:
            only = at if block is self.blocks[-1] and self.mix is None else None
            call = _function_of_hidden(block, mask, positions, only, training)
            if self.rematerialize and training:
                call = keras.remat(call)
            states.append(call(states[-1]))  # [B, S, D] -> [B, S, D]
        if self.norm is not None:
            states[-1] = self.norm(states[-1])
        return states[-1] if self.mix is None else pick(self.mix(states), at), states


@keras.saving.register_keras_serializable(package="rembed_keras")
class Encoder(keras_hub.models.Backbone):
    """A BERT-like encoder whose input embedding has a width of its own.

    Args:
        vocabulary_size: V, rows of the token table.
        num_layers: L, number of blocks.
        num_heads: H, attention heads per block.
        hidden_dim: D, width of the blocks.
        intermediate_dim: F, width inside the feed-forward pair.
        input_embedding_dim: E_in, width of the token, position and segment tables.
        max_sequence_length: rows of the position table, the longest document.
        num_segments: rows of the segment table; 0 for none.
        dropout: rate everywhere in the encoder; the paper pre-trains with 0.
        activation: "gelu" (exact) or "gelu_tanh".
        layer_norm_epsilon: epsilon of every norm.
        head_dim: width of a head; D / H by default, and H must then divide D.
        block: "bert", with norms after each sublayer and a table of positions; or "modern", with norms before, rotary
            positions, gated feed-forward pairs and no biases. See `modern`.
        layer_sharing: what the layers of a group share: "none", "attention", "feed_forward" or "all".
        layer_groups: how many groups of neighbouring layers there are, or a list of the group of each layer.
        always_project: whether embeddings are projected to D even if E_in = D, as in RemBERT; BERT does not.
        input_cutoffs: ids at which narrower bands of the token table begin; none by default. See `BandedTable`.
        scalar_mix: whether `sequence_output` is a learned mix of all hidden states instead of the last.
        freeze_input_embedding: whether the token table stays as it is in training.
        rematerialize: whether pre-training keeps of each block only what comes in, and computes the rest once more for
            the gradient: less memory for a third more time. Not for replaced-token detection, nor with dropout.
        parts: layers to use instead of new ones, of an encoder of the same widths; both then have the same weights.
            `with_layers` makes cut encoders in this way.
        dtype: dtype or policy of all layers.
        name: the model's name.
        trainable: whether the encoder is trained.

    Inputs, a dict of int arrays [B, S]: `token_ids`; `segment_ids`; `padding_mask`, 0 for padding and, in rows packed
    with several documents, the number 1, 2, 3, ... of the token's document: tokens attend within their document and
    positions restart in each. An ordinary mask, of 0 and 1 or of bools, is the case of one document.

    Outputs, a dict: `sequence_output` [B, S, D]; `pooled_output` [B, D], a dense tanh layer over the first token;
    `hidden_states`, a list of L + 1 arrays [B, S, D], the first being the projected embeddings.

    Raises:
        ValueError: for a size that is not a positive integer, heads that do not divide the hidden width, or an unknown
            option.

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
        head_dim=None,
        block="bert",
        layer_sharing="none",
        layer_groups=1,
        always_project=True,
        input_cutoffs=(),
        scalar_mix=False,
        freeze_input_embedding=False,
        rematerialize=False,
        parts=None,
        dtype=None,
        name="encoder",
        trainable=True,
    ):
        config = {
            "vocabulary_size": vocabulary_size,
            "num_layers": num_layers,
            "num_heads": num_heads,
            "hidden_dim": hidden_dim,
            "intermediate_dim": intermediate_dim,
            "input_embedding_dim": input_embedding_dim,
            "max_sequence_length": max_sequence_length,
            "num_segments": num_segments,
            "dropout": dropout,
            "activation": activation,
            "layer_norm_epsilon": layer_norm_epsilon,
            "head_dim": head_dim,
            "block": block,
            "layer_sharing": layer_sharing,
            "layer_groups": [*layer_groups] if isinstance(layer_groups, list | tuple) else layer_groups,
            "always_project": always_project,
            "input_cutoffs": [*input_cutoffs] if isinstance(input_cutoffs, list | tuple) else input_cutoffs,
            "scalar_mix": scalar_mix,
            "freeze_input_embedding": freeze_input_embedding,
            "rematerialize": rematerialize,
        }
        _check(config)
        self._arguments = config
        self.parts = parts or make_parts(config, dtype)
        inputs = {
            key: keras.Input((None,), dtype="int32", name=key) for key in ("token_ids", "segment_ids", "padding_mask")
        }
        super().__init__(
            inputs=inputs,
            outputs=self._connect(inputs),
            dtype=dtype,
            name=name,
            trainable=trainable,
        )
        self.token_embedding = self.parts.embeddings.token
        settle_dtypes(self)
        if freeze_input_embedding:
            self.token_embedding.trainable = False

    def _transform(self, inputs, at=None, training=None):
        token_ids, segment_ids, documents = (inputs[key] for key in ("token_ids", "segment_ids", "padding_mask"))
        hidden = self.parts.embed(token_ids, segment_ids, documents, training=training)
        positions = document_positions(documents) if self._arguments["block"] == "modern" else None
        return self.parts.transform(hidden, documents, positions, at=at, training=training)

    def _connect(self, inputs):
        last, states = self._transform(inputs)
        pooled = self.parts.pooler(last[:, 0, :])  # [B, S, D] -> [B, D]
        return {"sequence_output": last, "pooled_output": pooled, "hidden_states": states}

    def encode_at(self, inputs: dict, positions, training=None):
        """`sequence_output` of some tokens only: [B, P, D] of positions int [B, P].

        The last block is computed for these tokens alone, so that this is cheaper than the whole and a pick.
        """
        return self._transform(inputs, at=positions, training=training)[0]

    @property
    def arguments(self) -> dict:
        """What it was made with, but for its dtype, its name and whether it is trained."""
        return dict(self._arguments)

    @property
    def num_layers(self) -> int:
        """Number of blocks, L."""
        return len(self.parts.blocks)

    def with_layers(self, num_layers: int, keep: str = "bottom") -> "Encoder":
        """An encoder of some of the blocks of this one, sharing their weights.

        Args:
            num_layers: how many blocks to keep, from 1 to L.
            keep: which: "bottom", "top", "alternate" or "symmetric"; see `layers_to_keep`.

        Raises:
            ValueError: if there are not as many, or this encoder mixes all of its layers.
        """
        layers = layers_to_keep(self.num_layers, num_layers, keep)
        if self.parts.mix is not None and num_layers < self.num_layers:
            raise UserError("an encoder with scalar_mix needs all of its layers: none can be cut")
        if self._arguments["block"] == "modern" and layers[0]:
            raise UserError("modern blocks count on the first of them: keep 'bottom', 'alternate' or 'symmetric'")
        config = self.arguments | {"name": self.name, "trainable": self.trainable}
        groups = groups_of_layers(self.num_layers, config["layer_groups"])
        if config["layer_sharing"] != "none":
            config["layer_groups"] = [groups[layer] for layer in layers]
        blocks = [self.parts.blocks[layer] for layer in layers]
        parts = Parts(**(vars(self.parts) | {"blocks": blocks}))
        dtype = dtypes_of_cut(self.dtype_policy, blocks)
        return type(self)(parts=parts, **(config | {"num_layers": num_layers, "dtype": dtype}))

    def without_pooler(self, variables: list) -> list:
        """Those of `variables` that a model can move which does not read the pooled output."""
        idle = {id(variable) for variable in self.parts.pooler.variables}
        return [variable for variable in variables if id(variable) not in idle]

    def get_config(self):
        # not keras-hub's, in which what is not quantized is as wide as whoever reads it is used to
        dtype = keras.dtype_policies.serialize(self.dtype_policy)
        own = {"name": self.name, "trainable": self.trainable, "dtype": dtype}
        return own | self._arguments | changes_of(self)

    @classmethod
    def from_config(cls, config):
        encoder = super().from_config({key: value for key, value in config.items() if key not in KEYS})
        change_again(encoder, {key: config[key] for key in KEYS if key in config})
        return encoder


def make_parts(config: dict, dtype=None, prefix: str = "") -> Parts:
    """New layers for an encoder.

    Args:
        config: its arguments, all of them.
        dtype: dtype or policy of the layers.
        prefix: what the layers' names begin with, to tell two encoders of one model apart.
    """
    is_bert = config["block"] == "bert"
    width, hidden, epsilon = config["input_embedding_dim"], config["hidden_dim"], config["layer_norm_epsilon"]
    dense = {"kernel_initializer": initializer(), "dtype": dtype}
    return Parts(
        embeddings=InputEmbedding(
            config["vocabulary_size"],
            width,
            config["max_sequence_length"] if is_bert else 0,
            config["num_segments"],
            config["dropout"],
            epsilon,
            config["input_cutoffs"],
            has_bias=is_bert,
            name=f"{prefix}embeddings",
            dtype=dtype,
        ),
        projection=keras.layers.Dense(hidden, use_bias=is_bert, name=f"{prefix}projection", **dense)
        if config["always_project"] or width != hidden
        else None,
        blocks=make_blocks(config, dtype, prefix=prefix),
        norm=None
        if is_bert
        else keras.layers.LayerNormalization(epsilon=epsilon, center=False, name=f"{prefix}norm", dtype=dtype),
        mix=ScalarMix(config["num_layers"] + 1, name=f"{prefix}mix", dtype=dtype) if config["scalar_mix"] else None,
        pooler=keras.layers.Dense(hidden, activation="tanh", name=f"{prefix}pooler", **dense),
        rematerialize=config["rematerialize"],
    )


def _function_of_hidden(block, mask, positions, at, training):
    """A block as a plain function of one argument, as Keras's `remat` wants it."""
    return lambda hidden: block(hidden, mask, positions, at=at, training=training)


def _check(config):
    check_sizes(config)
    if config["head_dim"] is None and config["hidden_dim"] % config["num_heads"]:
        raise UserError(f"num_heads is {config['num_heads']}; it must divide hidden_dim, {config['hidden_dim']}")
    if config["rematerialize"] and config["dropout"]:
        raise UserError("rematerialize needs dropout 0: the second computation would draw another mask")
    options = {"activation": ACTIVATIONS, "block": BLOCKS, "layer_sharing": SHARING}
    for key, choices in options.items():
        if config[key] not in [*choices]:
            raise UserError(f"{key} is {shortened(config[key])}; it can be one of {', '.join(choices)}")
