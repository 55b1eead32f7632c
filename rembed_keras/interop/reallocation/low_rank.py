"""The best narrow input embedding under a norm: what replaces the tables, and what goes into the projection.

An encoder begins with `W LN(t + p + g)`: the rows of a token, its position and its segment, summed and normalised at
width E. Truncating the SVD of the token table ignores the norm, which subtracts the mean over features and divides by
their deviation: in other coordinates both mean something else, and the hidden states are lost. What is done here:

1. A norm ignores the mean of what it is given, so all rows are centred. Sums of centred rows are centred.
2. With V [E, r] orthonormal, the sum x is approximated by `V V' x`, whose norm is that of its r coordinates `V' x`.
3. These coordinates are put into E' = r + 1 features by an orthonormal Q [r, E'] whose rows sum to 0. The narrow norm
   then subtracts nothing, and with the factor sqrt(E'/E) it divides by the wide norm's own deviation, epsilon included:
   `LN(sqrt(E'/E) Q' V' x) sqrt(E/E') Q V' = LN(V V' x)`, for every token, position and segment.
4. The scale and bias of the wide norm, and the wide projection if there is one, follow linearly: they are absorbed.

Where no norm follows, as in XLM-R XL, `V V' x` is all, and V holds the leading eigenvectors of the mean of `x x'`.

So the narrow encoder computes exactly the wide one of approximated sums, and nothing is lost at E' = E, since centred
rows have E - 1 dimensions. V holds the leading eigenvectors of the mean of `x x' / |x|^2`, the sums as the norm leaves
them: tokens weighted by how often they occur, positions and segments taken to be independent of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rembed_keras.errors import UserError
from rembed_keras.modeling.saving.filling import PIECE, Rows


@dataclass(frozen=True)
class Tables:
    """The tables of an input embedding, all of the same width E.

    Attributes:
        token: rows [V, E].
        others: the tables of positions and segments that there are, each [N, E].
    """

    token: Rows
    others: tuple[Rows, ...]


@dataclass(frozen=True)
class Usage:
    """How often rows of the tables are used; weights need not sum to 1.

    Attributes:
        tokens: float [V].
        others: float [N] for each of the other tables.
    """

    tokens: np.ndarray
    others: tuple[np.ndarray, ...]

    @classmethod
    def even(cls, tables: Tables) -> "Usage":
        """All rows of a table equally often."""
        return cls(np.ones(tables.token.shape[0]), tuple(np.ones(table.shape[0]) for table in tables.others))


@dataclass(frozen=True)
class Narrowing:
    """What makes a narrow input embedding of a wide one.

    Attributes:
        reduce: [E, E'], which every row of the tables is multiplied with.
        expand: [E', E], from the narrow norm, without scale or bias, to the wide norm before its scale and bias.
        share: of the variance that is kept; 1 if nothing is lost.
    """

    reduce: np.ndarray
    expand: np.ndarray
    share: float


def narrow(tables: Tables, width: int, usage: Usage, is_normed: bool = True) -> Narrowing:
    """The narrowing of an input embedding that loses least.

    Memory is two matrices [E, E] in float64 and a few rows: the token table is read twice, in pieces.

    Args:
        tables: the input embedding's.
        width: E', from 2 to E.
        usage: how often their rows are used.
        is_normed: whether a norm follows their sum.

    Raises:
        UserError: for a width that there is none of, or tables with non-finite values.

    >>> rows = np.random.default_rng(0).normal(size=(50, 6))
    >>> found = narrow(Tables(rows, ()), 6, Usage.even(Tables(rows, ())))
    >>> round(found.share, 6), np.allclose(rows @ found.reduce @ found.expand, rows - rows.mean(1, keepdims=True))
    (1.0, True)
    """
    check_width(tables, width)
    wide = tables.token.shape[1]
    moment = second_moment(tables, usage, is_normed)
    if not np.isfinite(moment).all():
        raise UserError("the input embedding has non-finite values: the model cannot be used")
    values, vectors = np.linalg.eigh(moment)  # rising
    rank = width - 1 if is_normed else width
    leading = vectors[:, ::-1][:, :rank]  # [E, r]
    share = float(values[::-1][:rank].sum() / values.sum())
    if not is_normed:
        return Narrowing(leading, leading.T, min(share, 1.0))
    apart = centred_basis(width)  # [r, E']
    scale = np.sqrt(width / wide)
    # rows are centred by the first factor: leading vectors of a moment of centred rows have zero sums
    return Narrowing(scale * (leading - leading.mean(axis=0)) @ apart, apart.T @ leading.T / scale, min(share, 1.0))


def check_width(tables: Tables, width: int) -> None:
    """Checks that tables can be narrowed to a width.

    Raises:
        UserError: for a width that there is none of.
    """
    wide = tables.token.shape[1]
    if not 2 <= width <= wide:
        raise UserError(f"input_embedding_dim is {width}; this model's table allows 2 to {wide}")


def second_moment(tables: Tables, usage: Usage, is_normed: bool = True) -> np.ndarray:
    """The mean of `x x' / |x|^2` of centred sums x, [E, E] in float64; |x|^2 is averaged over all but the token.

    Where no norm follows, that of `x x'` of the sums as they are.

    Args:
        tables: the input embedding's.
        usage: how often their rows are used.
        is_normed: whether a norm follows their sum.
    """
    width = tables.token.shape[1]
    prepared = _centred if is_normed else _float64
    mean, spread = np.zeros(width), np.zeros((width, width))
    for table, weights in zip(tables.others, usage.others, strict=True):
        rows, share = prepared(np.asarray(table)), weights / weights.sum()
        middle = share @ rows
        mean += middle
        spread += ((rows - middle) * share[:, None]).T @ (rows - middle)
    moment, total, share = np.zeros((width, width)), 0.0, usage.tokens / usage.tokens.sum()
    for piece in _pieces(tables.token):
        sums = prepared(np.asarray(tables.token[piece])) + mean  # [n, E]
        squares = (sums * sums).sum(axis=1) + np.trace(spread) if is_normed else 1.0
        weights = share[piece] / np.maximum(squares, np.finfo(np.float32).tiny)
        moment += (sums * weights[:, None]).T @ sums
        total += weights.sum()
    return moment + total * spread


def centred_basis(width: int) -> np.ndarray:
    """Orthonormal rows [E' - 1, E'] that each sum to 0: cosines, as of the DCT-II.

    >>> basis = centred_basis(5)
    >>> np.allclose(basis @ basis.T, np.eye(4)), np.allclose(basis.sum(axis=1), 0)
    (True, True)
    """
    waves, places = np.arange(1, width)[:, None], np.arange(width)[None]
    return np.sqrt(2 / width) * np.cos(np.pi * waves * (places + 0.5) / width)


class Reduced:
    """A table times a matrix, computed as its rows are asked for; `Rows` for `fill`.

    Args:
        table: [N, E].
        matrix: [E, E'].
    """

    def __init__(self, table: Rows, matrix: np.ndarray):
        self._table, self._matrix = table, matrix
        self.shape: tuple[int, ...] = (table.shape[0], matrix.shape[1])

    def __getitem__(self, rows: slice) -> np.ndarray:
        return np.asarray(np.asarray(self._table[rows], np.float64) @ self._matrix, np.float32)

    def __array__(self, dtype=None, copy=None):
        return np.concatenate([self[piece] for piece in _pieces(self._table)]).astype(dtype or np.float32, copy=False)


def _float64(rows):
    return np.asarray(rows, np.float64)


def _centred(rows):
    rows = _float64(rows)
    return rows - rows.mean(axis=1, keepdims=True)


def _pieces(table) -> Iterator[slice]:
    """Slices of a table's rows, of `PIECE` numbers at most."""
    rows, width = table.shape
    step = max(1, PIECE // width)
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))
