"""Which variables are matrices, for optimizers that treat them as such."""

UNFIT = ("bias", "gamma", "beta")


def matrix_shape(variable) -> tuple[int, int] | None:
    """Rows and columns of the matrix that a variable multiplies by.

    Attention's kernels have an axis of heads, [D, H, K] and [H, K, D]; the matrix is [D, HK] and [HK, D], of the two
    ways to join axes the one that is nearer to a square. Tables of embeddings, norms and biases are no matrices.

    Args:
        variable: has a `shape`, `name` and `path`.

    Returns:
        None for what is no matrix.

    >>> import keras
    >>> matrix_shape(keras.Variable(np.zeros((8, 2, 4)), name="kernel"))
    (8, 8)
    """
    shape = tuple(variable.shape)
    if len(shape) not in (2, 3) or variable.name in UNFIT or "embedding" in variable.path.lower():
        return None
    joined = [(shape[0], shape[1] * shape[-1]), (shape[0] * shape[1], shape[-1])] if len(shape) == 3 else [shape]
    return min(joined, key=lambda pair: max(pair) / min(pair))
