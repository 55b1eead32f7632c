"""What is measured: sizes of models and batches, and the same random batches for all peers."""

from dataclasses import dataclass, replace

import numpy as np

WEIGHT_DECAY = 0.01  # of AdamW, for all peers
CLIP_NORM = 1.0  # of the global norm, for all peers


@dataclass(frozen=True)
class Shape:
    """Sizes of a model and of its batches; the names are those of `rembed_keras.modeling.Encoder`.

    Attributes:
        num_predictions: masked tokens a row, P.
        learning_rate: of AdamW, constant.
    """

    vocabulary_size: int
    num_layers: int
    num_heads: int
    hidden_dim: int
    intermediate_dim: int
    input_embedding_dim: int
    output_embedding_dim: int
    batch_size: int = 16
    sequence_length: int = 128
    num_predictions: int = 20
    learning_rate: float = 1e-4

    @property
    def tokens(self) -> int:
        """Tokens a batch."""
        return self.batch_size * self.sequence_length


SHAPES = {
    "tiny": Shape(500, 2, 2, 32, 64, 8, 48, batch_size=2, sequence_length=16, num_predictions=3),
    "small": Shape(30_000, 6, 6, 384, 1536, 128, 768),
    "wide": Shape(250_300, 4, 4, 256, 1024, 128, 1536),
    "base": Shape(250_300, 12, 12, 768, 3072, 128, 1536, batch_size=32, sequence_length=512, num_predictions=77),
    "rembert": Shape(250_300, 32, 18, 1152, 4608, 256, 1664, batch_size=8, sequence_length=512, num_predictions=77),
    "middle": Shape(30_000, 4, 4, 256, 1024, 128, 512, batch_size=8),
}


def named(spec: str) -> Shape:
    """A shape by name, or one with other sizes: `named("small,num_layers=2,batch_size=8")`.

    >>> named("small,num_layers=2").num_layers
    2
    """
    name, *changes = spec.split(",")
    return replace(SHAPES[name], **{field: int(size) for field, size in (each.split("=") for each in changes)})


def batches(shape: Shape, count: int, seed: int = 0) -> list[dict[str, np.ndarray]]:
    """Batches of `token_ids` [B, S], `mask_positions` [B, P], `targets` [B, P] and `labels` [B], all int32.

    A word's frequency falls with its id as in text, so that batches hold words many times.
    """
    rng = np.random.default_rng(seed)
    rows = (shape.batch_size, shape.sequence_length)
    made = []
    for _ in range(count):
        ids = np.minimum(shape.vocabulary_size ** rng.random(rows), shape.vocabulary_size - 1).astype("int32")
        positions = np.argsort(rng.random(rows), axis=1)[:, : shape.num_predictions]
        positions = np.sort(positions, axis=1).astype("int32")
        targets = np.take_along_axis(ids, positions, axis=1)
        labels = rng.integers(0, 2, shape.batch_size).astype("int32")
        made.append({"token_ids": ids, "mask_positions": positions, "targets": targets, "labels": labels})
    return made
