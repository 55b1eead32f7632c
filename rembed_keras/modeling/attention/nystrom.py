"""Nyström attention: a softmax matrix of S x S rebuilt from S x m and m x m, linear in the length.

Landmarks are means of segments of neighboring tokens. With Q~ and K~ the landmarks of queries and keys,

    softmax(Q K') V  ~  softmax(Q K~') pinv(softmax(Q~ K~')) (softmax(Q~ K') V)

Segments divide the tokens of the document, not the row, so that padding changes nothing. The paper's depthwise
convolution beside it has variables, which kinds of attention have not, and is left out. Source: Xiong et al. 2021,
sections 3.2 and 3.3, equations 13 and 14.
"""

from rembed_keras.errors import Count, check_counts
from rembed_keras.modeling.attention.full import Global, masked_softmax, softmax_attention
from rembed_keras.modeling.cost import Config, Work, heads_of

PACKED = (
    "attention.Nystrom mixes the documents of a packed row in its landmarks: "
    "give it one document a row, or take attention.Global or attention.Local"
)


class Nystrom(Global):
    """Every token attends to m landmarks, and these to all tokens; one document a row.

    Rows of at most m tokens get full attention, which is then both exact and cheaper. Attention probabilities do not
    exist, so that no dropout falls on them. In a program of XLA's on TensorFlow, which cannot report an error, packed
    rows become NaN.

    Args:
        landmarks: m.
        iterations: of the pseudo-inverse; each of them is four products of [m, m].
        rotary_base: of rotary positions, in blocks that have them.

    Raises:
        UserError: for counts under 1, and for packed rows when it is called.
    """

    needs_all_queries = True
    takes_packed_rows = False

    def __init__(self, landmarks: Count = 64, iterations: Count = 6, rotary_base: float = 10_000.0):
        check_counts({"the landmarks of attention.Nystrom": landmarks, "its iterations": iterations})
        super().__init__(rotary_base)
        self.landmarks = landmarks
        self.iterations = iterations

    def attend(self, query, key, value, mask, at, drop):
        """Full attention of short rows, and its approximation of others."""
        from keras import ops

        from rembed_keras.modeling.layers.rows import check_rows
        from rembed_keras.modeling.layers.sublayer import pick

        is_packed = ops.any(ops.not_equal(mask, mask[:, :1]), axis=(1, 2))  # whether tokens have different keys, [B]
        is_packed = check_rows(ops.cast(is_packed, "int32"), 1, PACKED, in_graphs=True)
        value = ops.where(is_packed[:, None, None, None] > 0, float("nan"), value)

        def exact():
            return softmax_attention(pick(query, at), key, value, pick(mask, at), drop=None)

        def approximate():
            return self._approximate(query, key, value, mask[:, 0], at)

        if key.shape[1] is None:
            return ops.cond(ops.shape(key)[1] <= self.landmarks, exact, approximate)
        return exact() if key.shape[1] <= self.landmarks else approximate()

    def _approximate(self, query, key, value, is_key, at):
        """The sum of values, [B, S, H, K] -> [B, Q, H, K], for a document whose tokens `is_key` says, [B, S]."""
        from keras import ops

        from rembed_keras.modeling.layers.sublayer import pick

        queries, exists = segment_means(query, is_key, self.landmarks)  # [B, S, H, K] -> [B, m, H, K], [B, m]
        keys, _ = segment_means(key, is_key, self.landmarks)
        mask = ops.repeat(is_key[:, None, :], self.landmarks, axis=1)
        gathered = softmax_attention(queries, key, value, mask, drop=None)  # [B, m, H, K]
        core = _shares(queries, keys, exists)  # [B, H, m, m]
        alone = ops.eye(self.landmarks, dtype="float32")
        core = ops.where(exists[:, None, :, None], core, alone)  # others are left to themselves
        mixed = ops.einsum("bhmn,bnhk->bmhk", ops.cast(pseudo_inverse(core, self.iterations), value.dtype), gathered)
        return ops.einsum("bhqm,bmhk->bqhk", ops.cast(_shares(pick(query, at), keys, exists), value.dtype), mixed)

    def work(self, config: Config, length: float) -> Work:
        """Three products of [S, m] and as many of [m, m] as the pseudo-inverse takes; one of the former is by query."""
        if length <= self.landmarks:
            return super().work(config, length)
        heads, head_dim = heads_of(config)
        landmarks, inner = self.landmarks, heads * head_dim
        of_row = 4 * landmarks**2 * inner + 8 * self.iterations * landmarks**3 * heads
        needed_of_all = 4 * landmarks * inner + of_row / length
        squares = (5 * self.iterations + 3) * heads * landmarks**2  # matrices [m, m] that the backward pass needs
        return Work(
            flops=needed_of_all + 4 * landmarks * inner,
            needed_of_all=needed_of_all,
            activations=4 * heads * landmarks + (squares + 4 * landmarks * inner) / length,
        )


def segment_means(x, is_token, count):
    """Means of neighboring tokens, in segments as equal as they can be.

    Args:
        x: [B, S, H, K].
        is_token: bool [B, S]; what is not, padding, is in no segment.
        count: m, of segments; each token is one where there are fewer.

    Returns:
        Means [B, m, H, K], and whether there is such a segment, bool [B, m].
    """
    from keras import ops

    batch, length, heads, width = ops.shape(x)
    is_token = ops.cast(is_token, "int32")
    tokens = ops.sum(is_token, axis=1, keepdims=True)  # [B, 1]
    rank = ops.maximum(ops.cumsum(is_token, axis=1) - 1, 0)
    segment = rank * count // ops.maximum(tokens, count)  # [B, S]
    segment = ops.reshape(segment + count * ops.arange(batch, dtype="int32")[:, None], (-1,))
    counted = ops.reshape(ops.cast(is_token, "float32"), (-1, 1))
    features = ops.reshape(ops.cast(x, "float32"), (batch * length, heads * width)) * counted
    sums, sizes = (ops.segment_sum(each, segment, num_segments=batch * count) for each in (features, counted))
    means = ops.reshape(sums / ops.maximum(sizes, 1.0), (batch, count, heads, width))
    return ops.cast(means, x.dtype), ops.arange(count, dtype="int32") < tokens


def pseudo_inverse(matrix, iterations):
    """The Moore-Penrose inverse of [..., m, m], whose entries are not negative, by iteration.

    >>> import numpy as np
    >>> matrix = np.array([[0.8, 0.2], [0.3, 0.7]], "float32")
    >>> bool(np.allclose(pseudo_inverse(matrix, 6) @ matrix, np.eye(2), atol=1e-5))
    True
    """
    from keras import ops

    one = ops.eye(matrix.shape[-1], dtype=matrix.dtype)
    norms = [ops.max(ops.sum(matrix, axis=axis), axis=-1)[..., None, None] for axis in (-1, -2)]
    inverse = ops.swapaxes(matrix, -1, -2) / (norms[0] * norms[1])
    for _ in range(iterations):
        product = ops.matmul(matrix, inverse)
        inner = 15.0 * one - ops.matmul(product, 7.0 * one - product)
        inverse = 0.25 * ops.matmul(inverse, 13.0 * one - ops.matmul(product, inner))
    return inverse


def _shares(query, key, exists):
    """Softmax over landmarks that there are: [B, Q, H, K], [B, m, H, K], bool [B, m] -> float32 [B, H, Q, m]."""
    from keras import ops

    scores = ops.einsum("bqhk,bmhk->bhqm", query * ops.cast(query.shape[-1] ** -0.5, query.dtype), key)
    return masked_softmax(scores, exists[:, None, None, :])
