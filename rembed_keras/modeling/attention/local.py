"""Local attention, as most layers of ModernBERT and mmBERT have it: a sliding window over a document.

Rows are cut into blocks of half a window, and each block attends to itself and its two neighbours: 1.5 windows of keys
a token whatever the length, where a mask over all S keys would cost as much as full attention. Medians of forward and
backward, of interleaved runs on two busy CPU cores, 8 rows of 512 tokens, 12 heads of 64, a window of 128: compiled by
XLA 0.20 s instead of 0.29 s on TensorFlow and 0.55 s instead of 1.20 s on JAX; on TensorFlow without XLA, 0.51 s
instead of 0.30 s. Source: Beltagy et al. 2020, section 3.1; Warner et al. 2024, section 2.1.1.
"""

from rembed_keras.errors import Count, UserError, check_counts
from rembed_keras.modeling.attention.full import Global, Kernel, softmax_attention
from rembed_keras.modeling.cost import Config, Work, inner_dim


class Local(Global):
    """Every token attends to the tokens of its document within half a window on either side.

    Distance is that of positions in the document, so tokens that late masking leaves out count in it.

    Args:
        window: tokens in all, at least 2; a token attends to those at most `window // 2` positions away.
        rotary_base: of rotary positions, in blocks that have them.
        kernel: as of `attention.Global`.

    Raises:
        UserError: for a window under 2, or another kernel.

    >>> Local(window=4).work({"num_heads": 2, "hidden_dim": 8}, length=16).flops  # 3 blocks of 2 keys
    192.0
    """

    takes_kernels = True
    window: int

    def __init__(self, window: Count = 128, rotary_base: float = 10_000.0, kernel: Kernel = "auto"):
        check_counts({"the window of attention.Local": window})
        if window < 2:
            raise UserError("the window of attention.Local is 1; it must be at least 2: half of it is on either side")
        super().__init__(rotary_base, kernel)
        self.window = window

    def restrict(self, mask, positions):
        """A token is also left itself, so that padding has something to attend to."""
        from keras import ops

        distance = ops.abs(positions[:, :, None] - positions[:, None, :])  # [B, S] -> [B, S, S]
        index = ops.arange(ops.shape(mask)[1], dtype="int32")
        is_near = ops.logical_and(mask, distance <= self.window // 2)
        return ops.logical_or(is_near, index[:, None] == index)

    def attend(self, query, key, value, mask, at, drop):
        """Softmax over the window: in blocks, but where rows are short or some queries are picked."""
        if at is not None or self._is_short(key.shape[1]):
            return softmax_attention(query, key, value, mask, drop)
        from keras import ops

        half = self.window // 2
        count, spare = _blocks(ops.shape(query)[1], half)
        return _attend_in_blocks(query, key, value, _mask_of_blocks(mask, count, half, spare), half, drop)

    def work(self, config: Config, length: float) -> Work:
        """Keys that are computed, those that the mask leaves out and those beyond the row's ends too.

        A key and a value are kept for each of the three blocks that read them.
        """
        if self._is_short(length):
            return super().work(config, length)
        half = self.window // 2
        padded = -(-length // half) * half / length  # blocks are filled up
        keys, inner = 3 * half * padded, inner_dim(config)
        return Work(
            flops=4 * keys * inner,
            needed_of_all=0,
            activations=config["num_heads"] * keys + 4 * inner,
            per_pick=4 * length * inner,
        )

    def _is_short(self, length):
        """Whether a block and its neighbors would hold the whole row; False for a length that is not known yet."""
        return length is not None and length <= 3 * (self.window // 2)


def attend_in_blocks(query, key, value, documents, key_documents, window):
    """Attention in blocks to the tokens of one's document within a window, without a mask of all pairs.

    Args:
        query: [B, S, H, K].
        key: [B, S, H, K].
        value: [B, S, H, K].
        documents: int [B, S], of queries, 0 for padding, which attends to itself.
        key_documents: the same.
        window: tokens in all; positions in a document are those in its row, but for a constant.

    Returns:
        [B, S, H, K].
    """
    from keras import ops

    half = window // 2
    count, spare = _blocks(ops.shape(query)[1], half)
    own = ops.reshape(ops.pad(documents, [[0, 0], [0, spare]]), (-1, count, half, 1))  # [B, S] -> [B, N, C, 1]
    other = _with_neighbors(key_documents[:, :, None, None], count, half, spare)[:, :, None, :, 0, 0]  # [B, N, 1, 3C]
    distance = ops.arange(half)[:, None] + half - ops.arange(3 * half)  # [C, 3C]
    is_near = ops.logical_and(other > 0, ops.logical_and(ops.equal(own, other), ops.abs(distance) <= half))
    return _attend_in_blocks(query, key, value, ops.logical_or(is_near, ops.equal(distance, 0)), half, None)


def _blocks(length, half):
    """How many blocks of half a window a row has, and how many tokens the last one lacks."""
    count = (length + half - 1) // half
    return count, count * half - length


def _attend_in_blocks(query, key, value, mask, half, drop):
    """Softmax over a mask [B, N, C, 3C] of N blocks of half a window, C: [B, S, H, K] -> [B, S, H, K]."""
    from keras import ops

    batch, length, heads, width = ops.shape(query)
    count, spare = _blocks(length, half)
    query = ops.pad(query, [[0, 0], [0, spare], [0, 0], [0, 0]])
    query = ops.reshape(query, (batch, count, half, heads, width))  # [B, S, H, K] -> [B, N, C, H, K]
    key, value = (_with_neighbors(each, count, half, spare) for each in (key, value))
    attended = softmax_attention(query, key, value, mask, drop)
    attended = ops.reshape(attended, (batch, count * half, heads, width))
    return attended[:, :length]  # [B, N, C, H, K] -> [B, S, H, K]


def _with_neighbors(x, count, half, spare):
    """Each block between the one before and the one after it: [B, S, H, K] -> [B, N, 3C, H, K]."""
    from keras import ops

    padded = ops.pad(x, [[0, 0], [half, spare + half], [0, 0], [0, 0]])
    blocks = ops.reshape(padded, (ops.shape(x)[0], count + 2, half, *ops.shape(x)[2:]))  # [B, N + 2, C, H, K]
    return ops.concatenate([blocks[:, :-2], blocks[:, 1:-1], blocks[:, 2:]], axis=2)


def _mask_of_blocks(mask, count, half, spare):
    """What a mask says of each block's queries and the keys in it and around it: [B, S, S] -> [B, N, C, 3C].

    Block n's keys are blocks n, n + 1 and n + 2 of the padded row: three diagonals of [N, N + 2]. Laid out in rows one
    longer, [N, N + 3], they are the first three columns.
    """
    from keras import ops

    batch = ops.shape(mask)[0]
    mask = ops.pad(mask, [[0, 0], [0, spare], [half, spare + half]])
    mask = ops.reshape(mask, (batch, count, half, count + 2, half))
    mask = ops.transpose(mask, (0, 2, 4, 1, 3))  # [B, N, C, N + 2, C] -> [B, C, C, N, N + 2]
    mask = ops.reshape(mask, (batch, half, half, count * (count + 2)))
    mask = ops.pad(mask, [[0, 0], [0, 0], [0, 0], [0, count]])
    mask = ops.reshape(mask, (batch, half, half, count, count + 3))[..., :3]
    mask = ops.transpose(mask, (0, 3, 1, 4, 2))  # [B, C, C, N, 3] -> [B, N, C, 3, C]
    return ops.reshape(mask, (batch, count, half, 3 * half))
