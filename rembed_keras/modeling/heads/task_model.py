"""What sits on the encoder and is dropped or swapped: the head of pre-training and those of tasks.

Pre-training's head is the place for capacity that nobody pays for later: a dense layer to E_out, a norm, and a table as
wide as one likes. Task heads are one dense layer each, as in BERT, and bring their own loss, so that
`compile(optimizer)` is enough.
"""

import keras
from keras import ops

from rembed_keras.errors import check_counts
from rembed_keras.modeling.layers.activation import activation_function
from rembed_keras.modeling.layers.embeddings import OutputEmbedding
from rembed_keras.modeling.layers.sublayer import pick
from rembed_keras.modeling.layers.tables import initializer
from rembed_keras.modeling.replicas import OnReplicas, layers_loss, num_replicas, weighted_mean
from rembed_keras.modeling.saving.changes import config_with_encoder, quantize_again
from rembed_keras.modeling.saving.configuration import made
from rembed_keras.modeling.tuning import tune
from rembed_keras.modeling.ways import Way


@keras.saving.register_keras_serializable(package="rembed_keras")
class MaskedLMHead(keras.layers.Layer):
    """Scores the vocabulary at the masked positions, and nowhere else.

    Args:
        token_table: the encoder's.
        output_embedding_dim: E_out.
        coupling: "decoupled", "coupled" or "gdes"; see `couplings`.
        output_cutoffs: where the bands of an output table of its own begin; none by default.
        activation: "gelu" or "gelu_tanh".
        layer_norm_epsilon: the norm's epsilon.
        name: the layer's name.
        dtype: dtype or policy of the layer.

    Call arguments: `hidden` [B, S, D] and `mask_positions` int [B, P]. Returns logits [B, P, V] in float32.
    Source: RemBERT's `cls.predictions`: dense D to E_out, activation, norm, table with bias.

    >>> from rembed_keras.modeling.layers.tables import LookupTable
    >>> head = MaskedLMHead(LookupTable(100, 4), output_embedding_dim=24)
    >>> tuple(head(np.zeros((2, 5, 8), "float32"), np.array([[1, 2], [0, 4]])).shape)
    (2, 2, 100)
    """

    def __init__(
        self,
        token_table,
        output_embedding_dim,
        coupling="decoupled",
        output_cutoffs=(),
        activation="gelu",
        layer_norm_epsilon=1e-12,
        name=None,
        dtype=None,
    ):
        super().__init__(name=name, dtype=dtype)
        self.dense = keras.layers.Dense(
            output_embedding_dim,
            kernel_initializer=initializer(),
            name="dense",
            dtype=dtype,
        )
        self.activation = activation_function(activation)
        self.norm = keras.layers.LayerNormalization(epsilon=layer_norm_epsilon, name="norm", dtype=dtype)
        self.output_embedding = OutputEmbedding(
            token_table,
            output_embedding_dim,
            coupling,
            output_cutoffs,
            name="output_embedding",
            dtype=dtype,
        )

    def build(self, hidden_shape, mask_positions_shape=None):
        self.dense.build(hidden_shape)
        feature_shape = (*hidden_shape[:-1], self.dense.units)
        self.norm.build(feature_shape)
        self.output_embedding.build(feature_shape)

    def compute_output_spec(self, hidden, mask_positions):
        return keras.KerasTensor(
            (*mask_positions.shape, self.output_embedding.vocabulary_size),
            dtype="float32",
        )

    def call(self, hidden, mask_positions):
        return self.output_embedding(self.features(pick(hidden, mask_positions)))  # [B, P, E_out] -> [B, P, V]

    def features(self, picked):
        """What words are compared with: [B, P, D] of the predicted tokens -> [B, P, E_out]."""
        return self.norm(self.activation(self.dense(picked)))


class TaskModel(OnReplicas, keras.Model):
    """An encoder with one dense head: what the four task models below have in common.

    A subclass says which of the encoder's outputs its head reads. The loss is the model's own, cross-entropy unless a
    subclass says otherwise, so `model.compile("adam")` suffices; a loss given to `compile` takes its place.

    Args:
        encoder: an `Encoder`; the task model holds it, so its weights are trained along.
        units: width of the head.
        dropout: rate before the head, while training.
        name: the model's name.
    """

    reads = "pooled_output"

    def __init__(self, encoder, units, dropout, name):
        check_counts({f"{name}: the number of outputs": units})
        head = keras.layers.Dense(units, kernel_initializer=initializer(), name="head", dtype="float32")
        hidden = keras.layers.Dropout(dropout, name="dropout")(encoder(encoder.input)[self.reads])
        super().__init__(inputs=encoder.input, outputs=self.arrange(head(hidden), encoder.input), name=name)
        self.encoder = encoder
        self.head = head
        self.ways: list = []  # those of fine-tuning that it was made ready for, see `tuning.tune`
        self.added: frozenset[int] = frozenset()  # ids of the adapters that they added
        self._settings = {"dropout": dropout, "name": name}

    @property
    def trainable_variables(self):
        """All trainable variables, the pooler's only where the head reads it."""
        variables = super().trainable_variables
        return variables if self.reads == "pooled_output" else self.encoder.without_pooler(variables)

    @property
    def trainable_weights(self):
        """As `trainable_variables`."""
        weights = super().trainable_weights
        return weights if self.reads == "pooled_output" else self.encoder.without_pooler(weights)

    def arrange(self, scores, inputs):
        """The head's scores in the shape that the task wants; as they come unless a subclass says otherwise."""
        return scores

    def losses_of(self, y, y_pred):
        """The loss of every single prediction; cross-entropy of logits unless a subclass says otherwise."""
        return ops.sparse_categorical_crossentropy(y, y_pred, from_logits=True)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        """Mean loss of the weighted predictions of all replicas, and what layers add to it."""
        if self.loss is not None:
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        return weighted_mean(self.losses_of(y, y_pred), sample_weight) + layers_loss(self) / num_replicas()

    def get_config(self):
        ways = [keras.saving.serialize_keras_object(way) for way in self.ways]
        return self._settings | config_with_encoder(self, self.added) | {"ways": ways}

    @classmethod
    def from_config(cls, config):
        arguments = {key: value for key, value in config.items() if key not in ("ways", "quantized")}
        model = cls(**(arguments | {"encoder": made(config["encoder"], keras.Model)}))
        tune(model, [made(way, Way) for way in config.get("ways", ())])
        quantize_again(model, config.get("quantized", {}))
        return model


@keras.saving.register_keras_serializable(package="rembed_keras")
class Classifier(TaskModel):
    """Labels a text, or a pair of texts: logits [B, num_classes] over the pooled first token.

    Args:
        encoder: an `Encoder`.
        num_classes: number of labels.
        dropout: rate before the head, while training; 0.1 in the published model.
        name: the model's name.

    Inputs as the encoder's. Trained on labels int [B] with cross-entropy.

    >>> from rembed_keras.modeling import Encoder
    >>> encoder = Encoder(100, num_layers=1, num_heads=2, hidden_dim=8, intermediate_dim=16, input_embedding_dim=4)
    >>> ids = np.array([[2, 7, 3]])
    >>> inputs = {"token_ids": ids, "segment_ids": 0 * ids, "padding_mask": 0 * ids + 1}
    >>> tuple(Classifier(encoder, num_classes=5)(inputs).shape)
    (1, 5)
    """

    def __init__(self, encoder, num_classes, dropout=0.1, name="classifier"):
        super().__init__(encoder, num_classes, dropout, name)
        self.num_classes = num_classes

    def get_config(self):
        return super().get_config() | {"num_classes": self.num_classes}


@keras.saving.register_keras_serializable(package="rembed_keras")
class Tagger(TaskModel):
    """Labels every token: logits [B, S, num_tags].

    Args:
        encoder: an `Encoder`.
        num_tags: number of tags.
        dropout: rate before the head, while training.
        name: the model's name.

    Inputs as the encoder's. Trained on tags int [B, S] with cross-entropy; give `sample_weight` [B, S] to leave out
    padding and all pieces of a word but its first.
    """

    reads = "sequence_output"

    def __init__(self, encoder, num_tags, dropout=0.1, name="tagger"):
        super().__init__(encoder, num_tags, dropout, name)
        self.num_tags = num_tags

    def get_config(self):
        return super().get_config() | {"num_tags": self.num_tags}


@keras.saving.register_keras_serializable(package="rembed_keras")
class SpanExtractor(TaskModel):
    """Finds an answer in a text: logits [B, 2, S] of its first and its last token.

    Args:
        encoder: an `Encoder`.
        name: the model's name.

    Inputs as the encoder's; padding can't be chosen. Trained on positions int [B, 2] with cross-entropy.
    """

    reads = "sequence_output"

    def __init__(self, encoder, name="span_extractor"):
        super().__init__(encoder, 2, 0.0, name)

    def arrange(self, scores, inputs):
        padding = ops.cast(ops.logical_not(inputs["padding_mask"]), scores.dtype)[:, None, :]  # [B, 1, S]
        return ops.transpose(scores, (0, 2, 1)) - 1e9 * padding  # [B, S, 2] -> [B, 2, S]

    def get_config(self):
        return {key: value for key, value in super().get_config().items() if key != "dropout"}


@keras.saving.register_keras_serializable(package="rembed_keras")
class Regressor(TaskModel):
    """Scores a text, or a pair of texts, with one number: output [B].

    Args:
        encoder: an `Encoder`.
        dropout: rate before the head, while training.
        name: the model's name.

    Inputs as the encoder's. Trained on numbers [B] with mean squared error.
    """

    def __init__(self, encoder, dropout=0.1, name="regressor"):
        super().__init__(encoder, 1, dropout, name)

    def arrange(self, scores, inputs):
        return scores[:, 0]  # [B, 1] -> [B]

    def losses_of(self, y, y_pred):
        return ops.square(ops.cast(y, y_pred.dtype) - y_pred)
