"""The encoder: everything that is kept after pre-training, and nothing else.

It is a keras-hub `Backbone`, so presets, LoRA and summaries come with it, and it returns every hidden state, so that
probing a layer or cutting the upper ones needs no second model. The graph is RemBERT's: a narrow normalised embedding,
one projection to the hidden width, then BERT's blocks. Source: Chung et al. 2021; the module graph of the released
model (E_in 256, D 1152, 32 layers) is reproduced exactly.
"""

from collections import Counter
from collections.abc import Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import keras
import keras_hub

from rembed_keras import compat
from rembed_keras.errors import BelowOne, Count, CountOrZero, Rate
from rembed_keras.modeling.blocks import PostNorm
from rembed_keras.modeling.blocks.stack import block_of, check_encoder, cut_arguments, described_kinds, layers_of_cut
from rembed_keras.modeling.choices import Choice
from rembed_keras.modeling.documents import document_positions
from rembed_keras.modeling.losses.terms import Note
from rembed_keras.modeling.parts import Parts, make_parts
from rembed_keras.modeling.saving.changes import KEYS, change_again, changes_of, frozen_in
from rembed_keras.modeling.saving.configuration import made
from rembed_keras.modeling.saving.exporting import ExportsNamedOutputs
from rembed_keras.modeling.saving.failing import weights_kept
from rembed_keras.modeling.saving.freezing import KeepsTableFrozen, is_frozen
from rembed_keras.modeling.saving.naming import check_dtype, dtypes_of_cut, settle_dtypes
from rembed_keras.modeling.saving.presets import described as described_presets
from rembed_keras.modeling.saving.presets import located_model, replacing, task_in
from rembed_keras.modeling.saving.retracing import Retraced
from rembed_keras.modeling.sizes import Activation, Dtype, LayerSharing, plain
from rembed_keras.modeling.texts.feeding import PLAIN_TEXT, found
from rembed_keras.modeling.texts.inputs import checks_arrays
from rembed_keras.modeling.texts.shared_rows import on_shared_rows
from rembed_keras.modeling.texts.vectors import ReadsTexts

_DTYPE: ContextVar[Any] = ContextVar("dtype", default=None)  # that a preset is opened in: keras-hub 0.21 keeps its own


@keras.saving.register_keras_serializable(package="rembed_keras")
class Encoder(ReadsTexts, ExportsNamedOutputs, Retraced, KeepsTableFrozen, keras_hub.models.Backbone):
    """A BERT-like encoder whose input embedding has a width of its own.

    Args:
        vocabulary_size: V, rows of the token table.
        num_layers: L, number of blocks.
        num_heads: H, attention heads per block.
        hidden_dim: D, width of the blocks.
        intermediate_dim: F, width inside the feed-forward pair.
        input_embedding_dim: E_in, width of the token, position and segment tables.
        max_sequence_length: rows of the position table, the longest document. Without such a table, as where blocks
            rotate, any length is read, and this is what preprocessors take by default.
        num_segments: rows of the segment table; 0 for none.
        dropout: rate everywhere in the encoder; the paper pre-trains with 0.
        activation: "gelu" (exact), "gelu_tanh" or "relu".
        layer_norm_epsilon: epsilon of every norm.
        head_dim: width of a head; D / H by default, and H must then divide D.
        block: the kind of block, a class or an object: `blocks.PostNorm`, BERT's, with norms after each sublayer and a
            table of positions; or `blocks.PreNorm`, ModernBERT's, with norms before, rotary positions, gated
            feed-forward pairs and no biases; or one of your own.
        attention: the kind of attention, see `modeling.attention`; or a list of kinds that is repeated over the layers;
            `attention.Global` by default.
        layer_sharing: what the layers of a group share: "none", "attention", "feed_forward" or "all". Attention that
            blocks with norms first share has its norm in layer 0 too.
        layer_groups: how many groups of neighbouring layers there are, or a list of the group of each layer.
        always_project: whether embeddings are projected to D even if E_in = D, as in RemBERT; BERT does not.
        input_cutoffs: ids at which narrower bands of the token table begin; none by default. See `BandedTable`.
        scalar_mix: whether `sequence_output` is a learned mix of all hidden states instead of the last.
        freeze_input_embedding: whether the token table stays as it is in training.
        rematerialize: whether training, pre-training and fine-tuning alike, keeps of each block only what comes in, and
            computes the rest once more for the gradient: less memory for 15 % more time where `benchmarks/README.md`
            measures it. Not with dropout.
        input_embedding: the kind of input embedding, see `modeling.input_embeddings`; `input_embeddings.Summed` by
            default.
        parts: layers to use instead of new ones, of an encoder of the same widths; both then have the same weights.
            `with_layers` makes cut encoders of such.
        dtype: dtype or policy of all layers: in "mixed_bfloat16" weights are float32 and products bfloat16.
        name: the model's name.
        trainable: whether the encoder is trained.

    Inputs, a dict of int arrays [B, S]: `token_ids`; `segment_ids`; `padding_mask`, 0 for padding and, in rows packed
    with several documents, the number 1, 2, 3, ... of the token's document: tokens attend within their document and
    positions restart in each. An ordinary mask, of 0 and 1 or of bools, is the case of one document.

    Outputs, a dict: `sequence_output` [B, S, D]; `pooled_output` [B, D], a dense tanh layer over the first token;
    `hidden_states`, a list of L + 1 arrays [B, S, D], the first being the projected embeddings.

    Raises:
        ValueError: for a size that is not a positive integer, heads that do not divide the hidden width, an unknown
            option, or a dtype of quantized layers.

    >>> encoder = Encoder(1000, num_layers=2, num_heads=2, hidden_dim=32, intermediate_dim=64, input_embedding_dim=8)
    >>> ids = np.array([[2, 7, 8, 3, 0]])
    >>> outputs = encoder({"token_ids": ids, "segment_ids": 0 * ids, "padding_mask": (ids > 0).astype("int32")})
    >>> tuple(outputs["sequence_output"].shape), len(outputs["hidden_states"])
    ((1, 5, 32), 3)
    """

    predict_on_batch = checks_arrays(keras.Model.predict_on_batch)

    def __init__(
        self,
        vocabulary_size: Count,
        num_layers: Count,
        num_heads: Count,
        hidden_dim: Count,
        intermediate_dim: Count,
        input_embedding_dim: Count,
        max_sequence_length: Count = 512,
        num_segments: CountOrZero = 2,
        dropout: BelowOne = 0.0,
        activation: Activation = "gelu",
        layer_norm_epsilon: Rate = 1e-12,
        head_dim: Count | None = None,
        block: Choice = PostNorm,
        attention: Choice | Sequence[Choice] | None = None,
        layer_sharing: LayerSharing = "none",
        layer_groups: Count | Sequence[CountOrZero] = 1,
        always_project: bool = True,
        input_cutoffs: Sequence[Count] = (),
        scalar_mix: bool = False,
        freeze_input_embedding: bool = False,
        rematerialize: bool = False,
        input_embedding: Choice | None = None,
        parts: Parts | None = None,
        dtype: Dtype | keras.DTypePolicy | None = None,
        name: str = "encoder",
        trainable: bool = True,
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
            "attention": attention,
            "layer_sharing": layer_sharing,
            "layer_groups": [*layer_groups] if isinstance(layer_groups, list | tuple) else layer_groups,
            "always_project": always_project,
            "input_cutoffs": [*input_cutoffs] if isinstance(input_cutoffs, list | tuple) else input_cutoffs,
            "scalar_mix": scalar_mix,
            "freeze_input_embedding": freeze_input_embedding,
            "rematerialize": rematerialize,
            "input_embedding": input_embedding,
        }
        config = {key: plain(each) for key, each in config.items()}
        check_encoder(config)
        check_dtype(dtype)
        self.block = block_of(config)
        config |= described_kinds(config)
        self._arguments = config
        names: Counter = Counter()  # or parts without names would have other paths in an encoder that is made later
        with compat.numbering_names(names):
            self.parts = parts or make_parts(config, dtype)
            inputs = {
                key: keras.Input((None,), dtype="int32", name=key)
                for key in ("token_ids", "segment_ids", "padding_mask")
            }
            super().__init__(inputs=inputs, outputs=self._connect(inputs), dtype=dtype, name=name)
        self.names_made = (*names.items(),)
        self.token_embedding = self.parts.embeddings.token
        self.note = Note(set())
        settle_dtypes(self)
        if freeze_input_embedding:
            self.token_embedding.trainable = False
        if not trainable:  # set at last, since Keras hands it to the layers that are there
            self.trainable = False

    def _transform(self, inputs, at=None, training=None):
        token_ids, segment_ids, documents = (inputs[key] for key in ("token_ids", "segment_ids", "padding_mask"))
        hidden = self.parts.embed(token_ids, segment_ids, documents, training=training)
        positions = document_positions(documents)
        return self.parts.transform(hidden, documents, positions, at=at, training=training)

    def _connect(self, inputs):
        last, states = self._transform(inputs)
        pooled = self.parts.pooler(last[:, 0, :])  # [B, S, D] -> [B, D]
        return {"sequence_output": last, "pooled_output": pooled, "hidden_states": states}

    def encode_at(self, inputs: dict, positions, training=None):
        """`sequence_output` of some tokens only: [B, P, D] of positions int [B, P].

        The last block is computed for these tokens alone, so that this is cheaper than the whole and a pick.
        """
        last, states = self._transform(inputs, at=positions, training=training)
        self.note.take(inputs=inputs, hidden_states=states)
        return last

    @checks_arrays
    def predict(self, x, batch_size=None, verbose="auto", steps=None, callbacks=None):
        """Keras's, of ids that are looked at first."""
        own = verbose, steps, callbacks
        with weights_kept(self):
            return on_shared_rows(lambda *given: keras.Model.predict(self, *given, *own), x, batch_size)

    def call(self, inputs, training=None, mask=None):
        outputs = super().call(inputs, training=training, mask=mask)
        self.note.take(inputs=inputs, **outputs)
        return outputs

    @classmethod
    def from_preset(cls, preset: str | Path, load_weights: bool = True, **arguments) -> "Encoder":
        """As keras-hub's, with the preset's tokenizer, if there is one, as a part of `preprocessor`.

        Of a model whose pre-training keeps some blocks, these: its `drop_heads()`. keras-hub's own `Backbone` has all.

        Args:
            preset: a name in `Encoder.presets`, which come with the package; a folder that `save_to_preset` or
                `rembed convert` wrote; or a handle of keras-hub's.
            load_weights: whether to load them, or to leave new ones.
            arguments: of the encoder, such as `dtype`; and `preprocessor`, None for none.

        Raises:
            UserError: for a name that is none of these; see `located_model`.
        """
        named, preset = dict(arguments), located_model(preset)
        preprocessor = named.pop("preprocessor") if "preprocessor" in named else found(PLAIN_TEXT, preset)
        token = _DTYPE.set(named.get("dtype"))
        try:
            encoder, task = super().from_preset(preset, load_weights, **named), task_in(preset).get("config", {})
        finally:
            _DTYPE.reset(token)
        if task.get("kept_layers") is not None and "num_layers" not in named:
            encoder = encoder.with_layers(task["kept_layers"], task.get("keep", "bottom"))
        encoder.preprocessor = preprocessor
        return encoder

    def save_to_preset(self, preset_dir: str, max_shard_size: float = 10) -> None:
        """As keras-hub's, with the tokenizer of `preprocessor`, if there is one, in place of an earlier preset."""
        with replacing(preset_dir) as folder:
            super().save_to_preset(folder, max_shard_size)
            if self.preprocessor is not None:
                self.preprocessor.tokenizer.save_to_preset(folder)

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
            ValueError: for a cut that cannot be made; see `layers_of_cut`.
        """
        config = self.arguments | {"name": self.name, "trainable": not is_frozen(self)}
        layers = layers_of_cut(config, num_layers, keep)
        blocks = [self.parts.blocks[layer] for layer in layers]
        parts = Parts(**(vars(self.parts) | {"blocks": blocks}))
        arguments = cut_arguments(config, layers)
        dtype = dtypes_of_cut(self.dtype_policy, blocks, arguments)
        cut = type(self)(parts=parts, **(arguments | {"dtype": dtype}))
        cut.preprocessor = self.preprocessor
        return cut

    def without_pooler(self, variables: list) -> list:
        """Those of `variables` that a model can move which does not read the pooled output."""
        idle = {id(variable) for variable in self.parts.pooler.variables}
        return [variable for variable in variables if id(variable) not in idle]

    def get_config(self):
        # not keras-hub's, in which what is not quantized is as wide as whoever reads it is used to
        dtype = keras.dtype_policies.serialize(self.dtype_policy)
        own = {"name": self.name, "trainable": not is_frozen(self), "dtype": dtype}
        return own | self._arguments | changes_of(self) | frozen_in(self) | self.config_of_preprocessor()

    @classmethod
    def from_config(cls, config):
        others, asked = (*KEYS, "preprocessor"), {} if _DTYPE.get() is None else {"dtype": _DTYPE.get()}
        encoder = super().from_config({key: value for key, value in config.items() if key not in others} | asked)
        change_again(encoder, {key: config[key] for key in KEYS if key in config})
        if config.get("preprocessor") is not None:
            encoder.preprocessor = made(config["preprocessor"], keras.layers.Layer)
        return encoder


compat.hub_presets().register_presets(described_presets(), Encoder)
