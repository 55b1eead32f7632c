"""Names of the weights of an encoder and its head in other libraries.

Every BERT-like model has the same few arrays under names of its own. A `Family` maps them layer by layer; the last part
of a name and the layout follow from the kind of array. The families are those whose graph our blocks compute exactly.
Source: the state dicts of Hugging Face's models, and the variables of the released RemBERT checkpoint.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from rembed_keras.errors import UserError

BERT_BLOCK = {
    "attention/heads/query": "attention.self.query",
    "attention/heads/key": "attention.self.key",
    "attention/heads/value": "attention.self.value",
    "attention/heads/attention_output": "attention.output.dense",
    "attention/norm": "attention.output.LayerNorm",
    "feed_forward/up": "intermediate.dense",
    "feed_forward/down": "output.dense",
    "feed_forward/norm": "output.LayerNorm",
}
ALBERT_BLOCK = {
    "attention/heads/query": "attention.query",
    "attention/heads/key": "attention.key",
    "attention/heads/value": "attention.value",
    "attention/heads/attention_output": "attention.dense",
    "attention/norm": "attention.LayerNorm",
    "feed_forward/up": "ffn",
    "feed_forward/down": "ffn_output",
    "feed_forward/norm": "full_layer_layer_norm",
}
OUTPUT = "head/output_embedding"
OUTPUT_TABLE = f"{OUTPUT}/decoupled/table"
BERT_HEAD = {
    "head/dense": "cls.predictions.transform.dense",
    "head/norm": "cls.predictions.transform.LayerNorm",
    OUTPUT: "cls.predictions",
    OUTPUT_TABLE: "cls.predictions.decoder",
}


@dataclass(frozen=True)
class Family:
    """Names of one kind of model.

    Attributes:
        prefix: of the names of encoder layers in a model with a head.
        block: the name of a block, with `{}` for its index, or that of its group.
        in_block: names of a block's layers, by ours.
        projection: name of the projection of the embeddings; None for a family without one.
        pooler: name of the pooler; None for a family without one.
        head: names of the head's layers, by ours; empty for a family with another kind of head.
        position_offset: rows of the position table before that of the first token.
    """

    prefix: str
    block: str
    in_block: dict[str, str] = field(default_factory=lambda: BERT_BLOCK)
    projection: str | None = None
    pooler: str | None = "pooler.dense"
    head: dict[str, str] = field(default_factory=dict)
    position_offset: int = 0

    def layer(self, ours: str, group_of_layer: list[int]) -> str:
        """Their name of a layer.

        Args:
            ours: the layer's path, for example "block_3/feed_forward/up".
            group_of_layer: the group whose weights each layer has; its own number where nothing is shared.

        Raises:
            UserError: if the family has no such layer.
        """
        in_block = re.fullmatch(r"block_(\d+)/(.+)", ours)
        if in_block:
            return self.prefix + self.block.format(group_of_layer[int(in_block[1])]) + self.in_block[in_block[2]]
        outside = {
            "embeddings/token": "embeddings.word_embeddings",
            "embeddings/position": "embeddings.position_embeddings",
            "embeddings/segment": "embeddings.token_type_embeddings",
            "embeddings/norm": "embeddings.LayerNorm",
            "projection": self.projection,
            "pooler": self.pooler,
        }
        if ours in self.head:
            return self.head[ours]
        if outside.get(ours) is None:
            raise UserError(f"this family of models has no layer {ours}")
        return f"{self.prefix}{outside[ours]}"

    @property
    def head_biases(self) -> tuple[str, str]:
        """Names of the bias of a head's output embedding, that of the decoder first.

        Before version 5, transformers keeps one array under both and saves it by the second name; since then they are
        two arrays in a head that is not tied, and the second is never used.
        """
        return f"{self.head[OUTPUT_TABLE]}.bias", f"{self.head[OUTPUT]}.bias"


FAMILIES = {
    "rembert": Family(
        prefix="rembert.",
        block="encoder.layer.{}.",
        projection="encoder.embedding_hidden_mapping_in",
        head={
            "head/dense": "cls.predictions.dense",
            "head/norm": "cls.predictions.LayerNorm",
            OUTPUT: "cls.predictions.decoder",
            OUTPUT_TABLE: "cls.predictions.decoder",
        },
    ),
    "bert": Family(prefix="bert.", block="encoder.layer.{}.", head=BERT_HEAD),
    "xlm-roberta": Family(
        prefix="roberta.",
        block="encoder.layer.{}.",
        head={
            "head/dense": "lm_head.dense",
            "head/norm": "lm_head.layer_norm",
            OUTPUT: "lm_head",
            OUTPUT_TABLE: "lm_head.decoder",
        },
        position_offset=2,
    ),
    "albert": Family(
        prefix="albert.",
        block="encoder.albert_layer_groups.{}.albert_layers.0.",
        in_block=ALBERT_BLOCK,
        projection="encoder.embedding_hidden_mapping_in",
        pooler="pooler",
        head={
            "head/dense": "predictions.dense",
            "head/norm": "predictions.LayerNorm",
            OUTPUT: "predictions",
            OUTPUT_TABLE: "predictions.decoder",
        },
    ),
    "electra": Family(prefix="electra.", block="encoder.layer.{}.", projection="embeddings_project", pooler=None),
}
TORCH_ENDINGS = {"embeddings": "weight", "kernel": "weight", "gamma": "weight", "beta": "bias", "bias": "bias"}


def torch_names(paths: list[str], family: Family, group_of_layer: list[int]) -> Iterator[tuple[str, str]]:
    """Yields (our path, their name) of weights.

    Args:
        paths: of our weights, for example "projection/kernel".
        family: whose names to give.
        group_of_layer: see `Family.layer`.
    """
    for path in paths:
        layer, _, ending = path.rpartition("/")
        yield path, f"{family.layer(layer, group_of_layer)}.{TORCH_ENDINGS[ending]}"


def tf1_names(paths: list[str], group_of_layer: list[int]) -> Iterator[tuple[str, str]]:
    """Yields (our path, their name) of an encoder's weights in the released checkpoint of RemBERT."""
    family = FAMILIES["rembert"]
    for path in paths:
        layer, _, ending = path.rpartition("/")
        name = family.layer(layer, group_of_layer).removeprefix(family.prefix)
        name = re.sub(r"layer\.(\d+)", r"layer_\1", name).replace(".", "/")
        yield path, f"bert/{name}" if ending == "embeddings" else f"bert/{name}/{ending}"


def to_matrix(path: str, array: np.ndarray) -> np.ndarray:
    """Our array in the plain layout: kernels as [in, out], biases as [out], attention heads concatenated."""
    if path.endswith("attention_output/kernel"):
        return array.reshape(-1, array.shape[-1])  # [H, K, D] -> [H K, D]
    if path.endswith("kernel"):
        return array.reshape(array.shape[0], -1)  # [D, H, K] -> [D, H K]
    return array.reshape(-1) if path.endswith("bias") else array


def is_kernel(path: str) -> bool:
    """Whether PyTorch stores the array transposed."""
    return path.endswith("kernel")
