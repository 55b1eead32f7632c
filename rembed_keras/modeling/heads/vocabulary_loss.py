"""The cross-entropy of predictions over a large vocabulary, without the scores of all of them at once.

A prediction has a score for each token of the vocabulary, so those of a batch can take more memory than the model.
Here a chunk of predictions is scored at a time, and its gradient is taken at once, while its scores are there: nothing
is kept of them, and nothing is scored twice. Where devices of JAX share a batch by its rows, a chunk takes as many
predictions of each of them, and none asks another for its own. The softmax is in float32 whatever the dtype of features
and table.
Source: Hsu et al. 2024 (Liger Kernel), section 3.2, for the gradient in the forward pass.
"""

import keras
from keras import ops

from rembed_keras.modeling.replicas import on_every_device, row_groups


def vocabulary_losses(pairs, bias, targets, weights, chunk_size, differentiable=True, scale=1.0):
    """Cross-entropies in nats, and whether the highest score was the label's.

    Args:
        pairs: what to score with, as `LookupTable.scoring` gives it: pairs of features [B, P, E] and rows [V, E], one a
            band of the vocabulary.
        bias: [V].
        targets: int [B, P], the labels.
        weights: float [B, P], what each loss counts.
        chunk_size: how many predictions are scored at a time, at most.
        differentiable: whether gradients are taken along; without, less is computed and nothing can be learned.
        scale: what the sum is going to be multiplied by, above 0, a float32 scalar: gradients are taken of the product,
            so that in float16 none is lost that the scale would have kept.

    Returns:
        The weighted sum of the losses, a float32 scalar, through which gradients flow to features, rows and bias; the
        losses, float32 [B, P]; and hits, float32 [B, P], 1 where no token scores higher than the target. The last two
        are for looking at: no gradient flows through them.

    >>> features, rows = np.eye(2, 3, dtype="float32")[None], np.eye(5, 3, dtype="float32")
    >>> ones = np.ones((1, 2), "float32")
    >>> total, losses, hits = vocabulary_losses([(features, rows)], np.zeros(5), np.array([[0, 3]]), ones, chunk_size=1)
    >>> ops.convert_to_numpy(hits).tolist(), bool(np.isclose(total, np.sum(losses)))
    ([[1.0, 0.0]], True)
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
    shape = ops.shape(targets)  # [B, P]
    groups, is_whole = row_groups(shape[0])
    inputs = [ops.reshape(each, (groups, -1, *each.shape[2:])) for each in (targets, weights, *features)]
    count = ops.shape(inputs[0])[1]  # [B, P, ...] -> [G, N, ...]
    if not is_whole:  # each device scores all predictions with its own rows of the table
        inputs = [on_every_device(each) for each in inputs]
    own = 2 + len(rows) if with_gradients else 2

    def score(targets, weights, *features):
        """Of a chunk [G, C, ...]: sums, and what is of each prediction, [G, C, ...]."""
        if groups > 1 and is_whole:  # each device sums what is its own, and all of them once, after the last chunk
            total, *others = ops.vectorized_map(lambda part: score_flat(*part), (targets, weights, *features))
            return [total, *others[own:]], others[:own]
        total, *others = score_flat(*(ops.reshape(x, (-1, *x.shape[2:])) for x in (targets, weights, *features)))
        of_each = [ops.reshape(x, (groups, -1, *x.shape[1:])) for x in others[:own]]
        return [total, *others[own:]], of_each

    def score_flat(targets, weights, *features):
        return _score(features, rows, bias, targets, weights, scale, with_gradients)

    def values(sums, columns):
        if groups > 1 and is_whole:
            sums = [ops.sum(each, axis=0) for each in sums]
        columns = [ops.reshape(each[:, :count], (*shape, *each.shape[2:])) for each in columns]
        sums[1:] = [ops.cast(each, like.dtype) for each, like in zip(sums[1:], (*rows, bias), strict=False)]
        return (sums[0], *columns[:2]), [*columns[2:], *sums[1:]]

    size = max(chunk_size // groups, 1)
    if isinstance(count, int) and count <= size:
        return values(*score(*inputs))
    steps = (count + size - 1) // size
    size = (count + steps - 1) // steps  # as many in each chunk as there are in others
    inputs = [_pad(each, steps * size - count) for each in inputs]
    lead = (groups,) if groups > 1 and is_whole else ()
    sums = [ops.zeros(lead, "float32")]
    columns = [ops.zeros_like(inputs[1]) for _ in ("losses", "hits")]
    if with_gradients:
        sums += [ops.zeros((*lead, *each.shape), "float32") for each in (*rows, bias)]
        columns += [ops.zeros_like(each) for each in inputs[2:]]

    def step(index, state):
        start = index * size
        added, parts = score(*(_part(each, start, size) for each in inputs))
        sums = [old + ops.cast(new, "float32") for old, new in zip(state[0], added, strict=True)]
        return sums, [
            ops.slice_update(old, [0, start] + [0] * (len(old.shape) - 2), new)
            for old, new in zip(state[1], parts, strict=True)
        ]

    sums, columns = ops.fori_loop(0, steps, step, (sums, columns))
    return values(sums, columns if is_whole else [on_every_device(each) for each in columns])


def _pad(values, padding):
    """Values [G, N, ...] with zeros after those of each group."""
    zeros = ops.zeros((values.shape[0], padding, *values.shape[2:]), values.dtype)
    return ops.concatenate([values, zeros], axis=1)


def _part(values, start, size):
    """A chunk [G, C, ...] of values [G, N, ...]."""
    return ops.slice(values, [0, start] + [0] * (len(values.shape) - 2), (values.shape[0], size, *values.shape[2:]))


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
    is_right = ops.cast(ops.arange(logits.shape[1], dtype="int32")[None, :] == targets[:, None], "float32")  # [C, V]
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
