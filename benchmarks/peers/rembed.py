"""The package itself, as its recipes run it."""

import keras
import numpy as np

from benchmarks.peers.fitting import Fitting
from benchmarks.shapes import CLIP_NORM, WEIGHT_DECAY, Shape
from rembed_keras.config.backend import TRAINING, settle_environment
from rembed_keras.modeling import Classifier, Encoder, MaskedLM
from rembed_keras.training.optimizers.adamw import AdamW
from rembed_keras.training.optimizers.training_optimizer import TrainingOptimizer

settle_environment(TRAINING)


def training(shape: Shape, variant: str):
    """A step of pre-training."""
    options = {
        "bfloat16": {"dtype": "mixed_bfloat16"},
        "bfloat16, no xla": {"dtype": "mixed_bfloat16"},
        "gelu_tanh": {"activation": "gelu_tanh"},
        "rematerialized": {"rematerialize": True},
        "bfloat16, one chunk": {"dtype": "mixed_bfloat16"},
        "bfloat16, rematerialized": {"dtype": "mixed_bfloat16", "rematerialize": True},
    }
    chunk = {"chunks of 160": 160, "bfloat16, one chunk": shape.batch_size * shape.num_predictions}.get(variant, 512)
    parts = {"2 micro-batches": 2, "4 micro-batches": 4}.get(variant, 1)
    encoder = _encoder(shape, **options.get(variant, {}))
    model = MaskedLM(encoder, shape.output_embedding_dim, loss_chunk=chunk, micro_batches=parts)

    def arrange(batch):
        x = _inputs(batch["token_ids"]) | {"mask_positions": batch["mask_positions"]}
        return x, batch["targets"], np.ones(batch["targets"].shape, "float32")

    return _step(model, shape, variant, arrange)


def device_bytes() -> int | None:
    """The most memory that was in use on an accelerator, on JAX."""
    if keras.config.backend() != "jax":
        return None
    import jax

    return (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use")


def finetuning(shape: Shape, variant: str):
    """A step of fine-tuning of the encoder alone, without what was dropped."""
    model = Classifier(_encoder(shape), num_classes=2, dropout=0.0)
    return _step(model, shape, variant, lambda batch: (_inputs(batch["token_ids"]), batch["labels"]))


def inference(shape: Shape, variant: str):
    """Hidden states of a batch."""
    import tensorflow as tf

    encoder = _encoder(shape)
    encode = tf.function(lambda ids: encoder(_inputs(ids))["sequence_output"], jit_compile=_is_compiled(variant))
    return lambda batch: float(encode(tf.constant(batch["token_ids"]))[0, 0, 0])


def _is_compiled(variant):
    return not variant.endswith("no xla")


def _encoder(shape, **options):
    keras.utils.set_random_seed(0)
    return Encoder(
        shape.vocabulary_size,
        shape.num_layers,
        shape.num_heads,
        shape.hidden_dim,
        shape.intermediate_dim,
        shape.input_embedding_dim,
        max_sequence_length=shape.sequence_length,
        **options,
    )


def _inputs(ids):
    return {"token_ids": ids, "segment_ids": 0 * ids, "padding_mask": 0 * ids + 1}


def _step(model, shape, variant, arrange):
    model.compile(
        TrainingOptimizer(AdamW(shape.learning_rate, weight_decay=WEIGHT_DECAY), CLIP_NORM),
        jit_compile=_is_compiled(variant),
    )
    if keras.config.backend() == "jax":
        return Fitting(model, arrange)
    model.optimizer.build(model.trainable_variables)
    model.make_train_function()
    return lambda batch: float(model.train_function(iter([arrange(batch)]))["loss"])
