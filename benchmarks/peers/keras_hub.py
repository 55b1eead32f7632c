"""keras-hub's BERT: one table for both ends, as wide as the encoder. The nearest that it has to the shapes."""

import keras
import keras_hub
import numpy as np

from benchmarks.peers.fitting import Fitting
from benchmarks.shapes import CLIP_NORM, WEIGHT_DECAY, Shape


def training(shape: Shape, variant: str):
    """A step of pre-training."""
    dtype = "mixed_bfloat16" if variant == "bfloat16" else None
    model = keras_hub.models.BertMaskedLM(_backbone(shape, dtype), preprocessor=None)

    def arrange(batch):
        x = _inputs(batch["token_ids"]) | {"mask_positions": batch["mask_positions"]}
        return x, batch["targets"], np.ones(batch["targets"].shape, "float32")

    return _step(model, shape, variant, arrange)


def finetuning(shape: Shape, variant: str):
    """A step of fine-tuning."""
    model = keras_hub.models.BertTextClassifier(_backbone(shape), num_classes=2, preprocessor=None, dropout=0.0)
    return _step(model, shape, variant, lambda batch: (_inputs(batch["token_ids"]), batch["labels"]))


def inference(shape: Shape, variant: str):
    """Hidden states of a batch."""
    import tensorflow as tf

    backbone = _backbone(shape)
    encode = tf.function(lambda ids: backbone(_inputs(ids))["sequence_output"], jit_compile=variant == "xla")
    return lambda batch: float(encode(tf.constant(batch["token_ids"]))[0, 0, 0])


def _backbone(shape, dtype=None):
    keras.utils.set_random_seed(0)
    return keras_hub.models.BertBackbone(
        vocabulary_size=shape.vocabulary_size,
        num_layers=shape.num_layers,
        num_heads=shape.num_heads,
        hidden_dim=shape.hidden_dim,
        intermediate_dim=shape.intermediate_dim,
        dropout=0.0,
        max_sequence_length=shape.sequence_length,
        dtype=dtype,
    )


def _inputs(ids):
    return {"token_ids": ids, "segment_ids": 0 * ids, "padding_mask": 0 * ids + 1}


def _step(model, shape, variant, arrange):
    model.compile(
        optimizer=keras.optimizers.AdamW(shape.learning_rate, weight_decay=WEIGHT_DECAY, global_clipnorm=CLIP_NORM),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=True if variant == "xla" else "auto",
    )
    if keras.config.backend() == "jax":
        return Fitting(model, arrange)
    model.optimizer.build(model.trainable_variables)
    model.make_train_function()
    return lambda batch: float(model.train_function(iter([arrange(batch)]))["loss"])
