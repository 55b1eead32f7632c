"""The order of rows by arithmetic: no buffer, no state, and a whole batch of rows at once.

Two functions of a row's index in the run. `Interleaving` gives its language, so that at any moment every language has
had its share; `shuffled` permutes n indices. Both cost the same anywhere in the run, and memory does not grow with the
corpus.
"""

from collections.abc import Sequence

import numpy as np

PERIOD = 2**18  # rows after which the interleaving repeats
ROUNDS = 6
ODD, FACTOR = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)  # of SplitMix64


class Interleaving:
    """Weighted interleaving of sources: each comes as often as its weight says, as evenly spaced as possible.

    Args:
        weights: shares, which add up to one. In 2**18 rows each source gets its share to within one row, and at least
            one.

    Example:
        >>> source, nth = Interleaving([0.5, 0.25, 0.25])(np.arange(8))
        >>> source.tolist(), nth.tolist()
        ([0, 1, 2, 0, 0, 1, 2, 0], [0, 0, 0, 1, 2, 1, 1, 3])
    """

    def __init__(self, weights: Sequence[float] | np.ndarray):
        exact = np.asarray(weights, np.float64) * PERIOD
        self._counts = np.maximum(np.floor(exact).astype(np.int64), 1)
        lacking = PERIOD - int(self._counts.sum())
        owed = np.argsort(self._counts - exact, kind="stable")  # what lost most to rounding comes first
        if lacking >= 0:
            self._counts[owed[:lacking]] += 1
        else:
            self._counts[np.argmax(self._counts)] += lacking
        source = np.repeat(np.arange(len(self._counts)), self._counts)
        nth = np.concatenate([np.arange(count) for count in self._counts])
        due = (nth + 0.5) / self._counts[source]
        order = np.argsort(due, kind="stable")
        self._source, self._nth = source[order].astype(np.int32), nth[order].astype(np.int32)

    def __call__(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The source of each row, and how many rows that source had before, int64 both, in the shape of `rows`."""
        period, row = np.divmod(rows, PERIOD)
        source = self._source[row].astype(np.int64)
        return source, period * self._counts[source] + self._nth[row]

    def totals(self, rows: int) -> np.ndarray:
        """How many of the first rows each source has, int64 [N].

        >>> Interleaving([0.5, 0.25, 0.25]).totals(7).tolist()
        [3, 2, 2]
        """
        periods, rest = divmod(rows, PERIOD)
        return periods * self._counts + np.bincount(self._source[:rest], minlength=len(self._counts))


def shuffled(places: np.ndarray, sizes: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Random permutations by index: each key gives a permutation of 0 to size - 1, of which entry `place` is returned.

    Args:
        places: int64 [N], 0 <= place < size.
        sizes: int64 [N], the size of each permutation.
        keys: uint64 [N], which permutation.

    Returns:
        int64 [N], each from 0 to its size - 1.

    Source: invertible mixing of bits by odd products and shifts (as in SplitMix64, Steele, Lea & Flood 2014), with
    cycle-walking until the result is below the size (Black & Rogaway 2002).

    Example:
        >>> sorted(shuffled(np.arange(5), np.full(5, 5), np.full(5, 7, np.uint64)).tolist())
        [0, 1, 2, 3, 4]
    """
    limits = sizes.astype(np.uint64)
    bits = np.frexp((sizes - 1).astype(np.float64))[1].astype(np.uint64)
    mask, shift = (np.uint64(1) << bits) - np.uint64(1), (bits + np.uint64(1)) // np.uint64(2)
    found, walking = places.astype(np.uint64), np.arange(len(places))
    while len(walking):
        found[walking] = _stir(found[walking], keys[walking], mask[walking], shift[walking])
        walking = walking[found[walking] >= limits[walking]]
    return found.astype(np.int64)


def _stir(values, keys, mask, shift):
    """A keyed permutation of the numbers of as many bits as the mask has."""
    for _ in range(ROUNDS):
        keys = keys * FACTOR + ODD
        values = (values * (keys >> np.uint64(16) | np.uint64(1)) + (keys >> np.uint64(32))) & mask
        values ^= values >> shift
    return values


def key(*numbers: int | np.ndarray) -> np.ndarray:
    """A hash of several integers or arrays of them, uint64: close inputs give unrelated keys."""
    mixed = np.zeros(1, np.uint64)
    for number in numbers:
        mixed = (mixed ^ np.asarray(number).astype(np.uint64)) * FACTOR + ODD
        mixed = (mixed ^ mixed >> np.uint64(29)) * FACTOR
        mixed ^= mixed >> np.uint64(32)
    return mixed
