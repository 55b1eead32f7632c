"""Disentangled attention, as DeBERTa-v2, v3 and mDeBERTa have it: what a token says and how far it is are scored apart.

A score is the sum of three products: of query and key, of the query and the key of their distance, of the key and the
query of their distance; distances are rows of a table that all layers have in common, projected as tokens are. Near
distances have a row each, farther ones share rows, in buckets that grow with the distance. Source: He et al. 2021
(DeBERTa), equations 2 to 4; He et al. 2023 (DeBERTaV3), section 5.1.
"""

from typing import TYPE_CHECKING

from rembed_keras.errors import Count, UserError, check_counts
from rembed_keras.modeling.attention.full import Global
from rembed_keras.modeling.cost import Config, Entry, Work, heads_of

if TYPE_CHECKING:  # the ledger counts without NumPy
    import numpy as np


class Disentangled(Global):
    """Every token attends to all tokens of its document, by what they say and how far away they are.

    Positions need no table beside that of distances. It has `2 * buckets` rows, for either side.

    Args:
        buckets: of distances on either side, even; the nearest half have one distance each.
        longest: distance from which on all are the same, larger than half the buckets.

    Raises:
        UserError: for buckets that distances do not fill.

    >>> [int(row) for row in Disentangled(buckets=4, longest=8).rows(np.array([-9, -3, -1, 0, 1, 2, 3, 9]))]
    [0, 1, 3, 4, 5, 6, 7, 7]
    """

    knows_positions = True

    def __init__(self, buckets: Count = 256, longest: Count = 512):
        check_counts({"the buckets of attention.Disentangled": buckets, "its longest distance": longest})
        if buckets % 2 or longest <= buckets // 2 + 1:
            raise UserError(
                f"attention.Disentangled has {buckets} buckets for distances up to {longest}: "
                "buckets must be even, and the longest distance more than half of them and one"
            )
        self.buckets = buckets
        self.longest = longest

    def rows(self, distances):
        """The row of each distance, from key to query, in the table: int -> int of the same shape."""
        from keras import ops

        limit, distances = self.longest, ops.cast(distances, "int32")
        nearest = ops.convert_to_tensor(_buckets(self.buckets, limit), dtype="int32")
        bucket = ops.take(nearest, ops.minimum(ops.abs(distances), limit), axis=0)
        return ops.clip(ops.sign(distances) * bucket + self.buckets, 0, 2 * self.buckets - 1)

    def shared_layer(self, config: Config, name: str, dtype=None):
        """The table of distances."""
        from rembed_keras.modeling.attention.distances import Distances

        return Distances(2 * self.buckets, config["hidden_dim"], config["layer_norm_epsilon"], name=name, dtype=dtype)

    def shared_entry(self, config: Config) -> Entry:
        """The table that layers have in common, and its norm."""
        hidden = config["hidden_dim"]
        return Entry("distance embeddings", ((2 * self.buckets, hidden), (hidden,), (hidden,)))

    def heads(self, config: Config, dtype=None):
        """The heads of a layer."""
        from rembed_keras.modeling.attention.distances import DisentangledHeads

        return DisentangledHeads(*heads_of(config), self, config["dropout"], dtype=dtype)

    def work(self, config: Config, length: float) -> Work:
        """Beside full attention, products of queries and keys with all rows, which each layer projects for a batch.

        The projections are counted once for `length` tokens.
        """
        plain, hidden, (heads, head_dim) = super().work(config, length), config["hidden_dim"], heads_of(config)
        rows, inner = 2 * self.buckets, heads * head_dim
        of_queries, projected = 2 * rows * inner, 4 * rows * hidden * inner / length
        needed_of_all = of_queries + projected  # the products of keys are as many
        return Work(
            flops=plain.flops + of_queries + needed_of_all,
            needed_of_all=needed_of_all,
            activations=plain.activations + rows * (hidden + 2 * inner) / length,
        )


def _buckets(count: int, longest: int) -> "np.ndarray":
    """The bucket of each distance from 0 to `longest`, in float32 as DeBERTa computes it."""
    import numpy as np

    half = count // 2
    distances = np.arange(longest + 1, dtype=np.float32)
    far = np.log(np.maximum(distances, half) / np.float32(half)) / np.log(np.float32((longest - 1) / half))
    return np.where(distances <= half, distances, np.ceil(far * np.float32(half - 1)) + half).astype(np.int32)
