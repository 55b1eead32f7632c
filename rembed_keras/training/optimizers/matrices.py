"""Which variables are matrices, for optimizers that treat them as such. No framework is imported."""

from collections.abc import Iterable
from typing import NamedTuple

from rembed_keras.modeling.cost import Entry, Shape

UNFIT = ("bias", "gamma", "beta", "embeddings", "angle", "scale")


def matrix_shape(variable) -> tuple[int, int] | None:
    """Rows and columns of the matrix that a variable multiplies by.

    Attention's kernels have an axis of heads, [D, H, K] and [H, K, D]; the matrix is [D, HK] and [HK, D], of the two
    ways to join axes the one that is nearer to a square. Tables of embeddings, norms and biases are no matrices, nor
    are the angles and scales of RoAd, which have an axis of groups.

    Args:
        variable: has a `shape`, `name` and `path`.

    Returns:
        None for what is no matrix.

    >>> import keras
    >>> matrix_shape(keras.Variable(np.zeros((8, 2, 4)), name="kernel"))
    (8, 8)
    """
    shape = tuple(variable.shape)
    if len(shape) not in (2, 3) or variable.name in UNFIT:
        return None
    joined = [(shape[0], shape[1] * shape[-1]), (shape[0] * shape[1], shape[-1])] if len(shape) == 3 else [shape]
    return min(joined, key=lambda pair: max(pair) / min(pair))


class Described(NamedTuple):
    """A variable that is not there, as far as an optimizer looks at it."""

    shape: Shape
    name: str
    path: str


def variables_of(entry: Entry) -> list[Described]:
    """The trained variables of an entry; one whose shape ends the shape before it is the bias of that kernel.

    >>> [variable.name for variable in variables_of(Entry("projection", ((4, 8), (8,))))]
    ['kernel', 'bias']
    >>> [variable.name for variable in variables_of(Entry("input embedding", ((9, 8), (30, 2), (2, 8)), tables=2))]
    ['embeddings', 'embeddings', 'kernel']
    """
    shapes = entry.trained_shapes
    tables = entry.shapes[: entry.tables] or (entry.shapes if "embedding" in entry.name else ())

    def name(before, shape):
        return "embeddings" if shape in tables else "bias" if before[1:] == shape else "kernel"

    return [
        Described(shape, name(before, shape), f"{entry.name}/{index}")
        for index, (before, shape) in enumerate(zip(((), *shapes), shapes, strict=False))
    ]


def muon_slots(entries: Iterable[Entry]) -> list[tuple[Shape, ...]]:
    """Shapes of what Muon remembers of each entry's variables: a number of each parameter of a matrix, two of others.

    >>> muon_slots([Entry("projection", ((4, 8), (8,)))])
    [((4, 8), (8,), (8,))]
    """
    return [
        tuple(
            shape for each in variables_of(entry) for shape in [each.shape] * (2 if matrix_shape(each) is None else 1)
        )
        for entry in entries
    ]
