"""The cross-entropy of predictions over a large vocabulary, without the scores of all of them at once.

A prediction has a score for each token of the vocabulary, so those of a batch can take more memory than the model.
Here a chunk of predictions is scored at a time, and its gradient is taken at once, while its scores are there: nothing
is kept of them, and nothing is scored twice. The softmax is in float32 whatever the dtype of features and table.
Source: Hsu et al. 2024 (Liger Kernel), section 3.2, for the gradient in the forward pass.
"""

import keras
from keras import ops


def vocabulary_losses(pairs, bias, targets, weights, chunk_size, differentiable=True, scale=1.0):
    """Cross-entropies in nats, and whether the highest score was the label's.

    Args:
        pairs: what to score with, as `LookupTable.scoring` gives it: pairs of features [N, E] and rows [V, E], one a
            band of the vocabulary.
        bias: [V].
        targets: int [N], the labels.
        weights: float [N], what each loss counts.
        chunk_size: how many predictions are scored at a time, at most.
        differentiable: whether gradients are taken along; without, less is computed and nothing can be learned.
        scale: what the sum is going to be multiplied by, above 0, a float32 scalar: gradients are taken of the product,
            so that in float16 none is lost that the scale would have kept.

    Returns:
        The weighted sum of the losses, a float32 scalar, through which gradients flow to features, rows and bias; the
        losses, float32 [N]; and hits, float32 [N], 1 where no token scores higher than the target. The last two are
        for looking at: no gradient flows through them.

    >>> features, rows = np.eye(2, 3, dtype="float32"), np.eye(5, 3, dtype="float32")
    >>> ones = np.ones(2, "float32")
    >>> total, losses, hits = vocabulary_losses([(features, rows)], np.zeros(5), np.array([0, 3]), ones, chunk_size=1)
    >>> ops.convert_to_numpy(hits).tolist(), bool(np.isclose(total, np.sum(losses)))
    ([1.0, 0.0], True)
    """
    targets, weights, scale = ops.cast(targets, "int32"), ops.cast(weights, "float32"), ops.cast(scale, "float32")
    features, rows = ([*each] for each in zip(*pairs, strict=True))
    rows = [ops.convert_to_tensor(row) for row in rows]
    if not differentiable:
        return _by_chunk(features, rows, bias, targets, weights, chunk_size, scale, with_gradients=False)[0]

    @ops.custom_gradient
    def scored(*tensors):
        parts = tensors[: len(pairs)], tensors[len(pairs) : -1], tensors[-1]
        values, gradients = _by_chunk(*parts, targets, weights, chunk_size, scale, with_gradients=True)

        def gradient(*upstream):
            rest = keras.tree.flatten(upstream)[0] / scale  # 1 if the sum was multiplied as was said
            return tuple(each * ops.cast(rest, each.dtype) for each in gradients)

        return values, gradient

    total, losses, hits = scored(*features, *rows, ops.cast(bias, "float32"))
    return total, ops.stop_gradient(losses), ops.stop_gradient(hits)


def _by_chunk(features, rows, bias, targets, weights, chunk_size, scale, with_gradients):
    """The values that `vocabulary_losses` returns, and scaled gradients of the first by features, rows and bias."""
    count = ops.shape(targets)[0]
    if isinstance(count, int) and count <= chunk_size:
        total, losses, hits, *gradients = _score(features, rows, bias, targets, weights, scale, with_gradients)
        return (total, losses, hits), gradients
    steps = (count + chunk_size - 1) // chunk_size
    chunk_size = (count + steps - 1) // steps  # as many in each chunk as there are in others
    padding = steps * chunk_size - count
    inputs = [_pad(each, padding) for each in (targets, weights, *features)]
    sums = [ops.zeros((), "float32")]
    columns = [ops.zeros_like(inputs[1]) for _ in ("losses", "hits")]
    if with_gradients:
        sums += [ops.zeros(each.shape, "float32") for each in (*rows, bias)]
        columns += [ops.zeros_like(each) for each in inputs[2:]]

    def step(index, state):
        start = index * chunk_size
        targets, weights, *features = (_part(each, start, chunk_size) for each in inputs)
        total, losses, hits, *gradients = _score(features, rows, bias, targets, weights, scale, with_gradients)
        by_features, by_tables = gradients[: len(rows)], gradients[len(rows) :]
        sums = [old + ops.cast(new, "float32") for old, new in zip(state[0], [total, *by_tables], strict=True)]
        new = [losses, hits, *by_features]
        return sums, [
            ops.slice_update(old, [start] + [0] * (len(old.shape) - 1), part)
            for old, part in zip(state[1], new, strict=True)
        ]

    (total, *by_tables), columns = ops.fori_loop(0, steps, step, (sums, columns))
    losses, hits, *by_features = (each[:count] for each in columns)
    by_tables = [ops.cast(each, like.dtype) for each, like in zip(by_tables, (*rows, bias), strict=False)]
    return (total, losses, hits), [*by_features, *by_tables]


def _pad(values, padding):
    """Values [N, ...] with zeros after them."""
    return ops.concatenate([values, ops.zeros((padding, *values.shape[1:]), values.dtype)], axis=0)


def _part(values, start, size):
    """A chunk [C, ...] of values [N, ...]."""
    return ops.slice(values, [start] + [0] * (len(values.shape) - 1), (size, *values.shape[1:]))


def _score(features, rows, bias, targets, weights, scale, with_gradients):
    """Weighted sum of losses, losses [C] and hits [C] of a chunk; scaled gradients by features, rows and bias."""
    logits = score_tokens(zip(features, rows, strict=True), bias)  # C times [E] -> [C, V]
    right = ops.take_along_axis(logits, targets[:, None], axis=1)  # [C, V] -> [C, 1]
    highest = ops.max(logits, axis=1, keepdims=True)
    powers = ops.exp(logits - highest)
    mass = ops.sum(powers, axis=1, keepdims=True)
    losses = (highest + ops.log(mass) - right)[:, 0]
    hits = ops.cast(right >= highest, "float32")[:, 0]
    values = [ops.sum(losses * weights), losses, hits]
    if not with_gradients:
        return values
    is_right = ops.cast(ops.arange(logits.shape[1])[None, :] == targets[:, None], "float32")  # [C, V]
    slope = (powers / mass - is_right) * (weights * scale)[:, None]
    by_features, by_rows, start = [], [], 0
    for feature, row in zip(features, rows, strict=True):
        part = ops.cast(slope[:, start : start + row.shape[0]], row.dtype)  # a band's columns
        by_features.append(ops.matmul(part, row))  # [C, V] x [V, E] -> [C, E]
        by_rows.append(ops.matmul(ops.transpose(part), feature))  # [V, C] x [C, E] -> [V, E]
        start += row.shape[0]
    return [*values, *by_features, *by_rows, ops.sum(slope, axis=0)]


def score_tokens(pairs, bias):
    """Logits [..., V] in float32 of pairs of features [..., E] and rows [V, E], a band at a time."""
    scores = [ops.cast(ops.matmul(part, ops.transpose(rows)), "float32") for part, rows in pairs]
    return ops.concatenate(scores, axis=-1) + ops.cast(bias, "float32")
