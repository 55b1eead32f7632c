"""What attention and feed-forward sublayers have in common, and who may attend to whom.

Attention and dense layers are Keras's own, so that LoRA, quantization and mixed precision work on them. What is ours is
the mask: rows are packed with several documents, and a token attends to its own document only.
"""

import keras
from keras import ops

from rembed_keras import compat
from rembed_keras.errors import UserError


def attention_mask(padding_mask):
    """Who may attend to whom in packed and padded rows.

    Args:
        padding_mask: int or bool [B, S]; 0 for padding, documents numbered 1, 2, 3, ...

    Returns:
        bool [B, S, S]: query i may look at key j when both are of one document. Padding is never looked at; a
        padding query looks at every real key, as in BERT, so that no softmax is empty.

    >>> np.asarray(attention_mask(np.array([[1, 2, 0]]))).astype(int).tolist()
    [[[1, 0, 0], [0, 1, 0], [1, 1, 0]]]
    """
    padding_mask = ops.cast(padding_mask, "int32")
    query, key = padding_mask[:, :, None], padding_mask[:, None, :]
    return ops.logical_and(key > 0, ops.logical_or(ops.equal(query, key), ops.equal(query, 0)))


def pick(values, at):
    """Values of some tokens: [B, S, ...] at int [B, P] -> [B, P, ...]; the values themselves if `at` is None.

    >>> ops.convert_to_numpy(pick(np.array([[5, 6, 7]]), np.array([[2, 0]]))).tolist()
    [[7, 5]]
    """
    if at is None:
        return values
    return ops.take_along_axis(values, ops.reshape(at, (*ops.shape(at), *[1] * (len(values.shape) - 2))), axis=1)


class Sublayer(keras.layers.Layer):
    """What adds to the hidden states: attention or a feed-forward pair. It may host an adapter.

    An adapter is a layer from [B, S, D] to [B, S, D] that changes what is added; there is none at first.
    """

    adapter: keras.layers.Layer | None = None

    @property
    def projections(self) -> dict[str, keras.layers.Layer]:
        """The matrices, by what they do: "query", "key", "value" and "output", or "up" and "down"."""
        raise NotImplementedError

    def host(self, adapter, hidden_shape) -> None:
        """Builds an adapter as a part of this sublayer, which is built already.

        Raises:
            UserError: if there is one.
        """
        if self.adapter is not None:
            raise UserError(f"{self.path} has an adapter already: a model takes adapters once")
        with compat.unlocked(self):
            self.adapter = adapter
        with keras.name_scope(self.name, caller=self):
            adapter.build(hidden_shape)

    def adapted(self, branch):
        """What is added to the hidden states, after the adapter if there is one; [B, S, D] -> [B, S, D]."""
        return branch if self.adapter is None else self.adapter(branch)


def project(dense, tokens):
    """What a dense layer makes of tokens, [B, S, ...] -> [B, S, ...].

    TensorFlow's gradient of its kernel is one matrix for each row, and then their sum: of one row it is one product.

    >>> dense = keras.layers.EinsumDense("bsd,dhk->bshk", (None, 4, 5))
    >>> tuple(project(dense, np.ones((2, 3, 8), "float32")).shape)
    (2, 3, 4, 5)
    """
    if keras.config.backend() != "tensorflow":
        return dense(tokens)
    made = dense(ops.reshape(tokens, (1, -1, *tokens.shape[2:])))
    return ops.reshape(made, (*ops.shape(tokens)[:2], *made.shape[2:]))
