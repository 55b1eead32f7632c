"""Which row comes when, by arithmetic: no buffer, no state, and whole batches of rows at once.

Two functions of a row's place in the run. `Shares` says whose turn it is, so that at any moment every language has had
its share; `shuffled` says which of n things comes at a place, each once. Both cost the same at the first place and at
the last, and memory does not grow with the corpus.
"""

from collections.abc import Sequence

import numpy as np

PERIOD = 2**18  # turns after which the order of turns begins anew
ROUNDS = 6
ODD, FACTOR = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)  # of SplitMix64


class Shares:
    """Turns of those who share a run, each as often as its weight says and as evenly as can be.

    Args:
        weights: shares, which add up to one. In 2**18 turns each gets its share to within one turn, and one at least.

    Example:
        >>> owner, nth = Shares([0.5, 0.25, 0.25])(np.arange(8))
        >>> owner.tolist(), nth.tolist()
        ([0, 1, 2, 0, 0, 1, 2, 0], [0, 0, 0, 1, 2, 1, 1, 3])
    """

    def __init__(self, weights: Sequence[float] | np.ndarray):
        exact = np.asarray(weights, np.float64) * PERIOD
        self._counts = np.maximum(np.floor(exact).astype(np.int64), 1)
        lacking = PERIOD - int(self._counts.sum())
        owed = np.argsort(self._counts - exact, kind="stable")  # those who lost most to rounding come first
        if lacking >= 0:
            self._counts[owed[:lacking]] += 1
        else:
            self._counts[np.argmax(self._counts)] += lacking
        owner = np.repeat(np.arange(len(self._counts)), self._counts)
        nth = np.concatenate([np.arange(count) for count in self._counts])
        due = (nth + 0.5) / self._counts[owner]
        order = np.argsort(due, kind="stable")
        self._owner, self._nth = owner[order].astype(np.int32), nth[order].astype(np.int32)

    def __call__(self, turns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Whose turns these are, and how many turns the same one had before, int64 both, in the shape of `turns`."""
        period, turn = np.divmod(turns, PERIOD)
        owner = self._owner[turn].astype(np.int64)
        return owner, period * self._counts[owner] + self._nth[turn]

    def totals(self, turns: int) -> np.ndarray:
        """How many of the first turns each has, int64 [N].

        >>> Shares([0.5, 0.25, 0.25]).totals(7).tolist()
        [3, 2, 2]
        """
        periods, rest = divmod(turns, PERIOD)
        return periods * self._counts + np.bincount(self._owner[:rest], minlength=len(self._counts))


def shuffled(places: np.ndarray, sizes: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """What comes at a place of a random order of n things: each key gives one order, in which each thing is once.

    Args:
        places: int64 [N], 0 <= place < size.
        sizes: int64 [N], how many things there are, for each place.
        keys: uint64 [N], which order, for each place.

    Returns:
        int64 [N], 0 <= thing < size.

    Source: products with odd numbers and shifted sums, each of which can be undone on the bits of a place (as in
    SplitMix64, Steele, Lea & Flood 2014), walked until the result is under n (Black & Rogaway 2002).

    Example:
        >>> sorted(shuffled(np.arange(5), np.full(5, 5), np.full(5, 7, np.uint64)).tolist())
        [0, 1, 2, 3, 4]
    """
    limits = sizes.astype(np.uint64)
    bits = np.frexp((sizes - 1).astype(np.float64))[1].astype(np.uint64)
    mask, shift = (np.uint64(1) << bits) - np.uint64(1), (bits + np.uint64(1)) // np.uint64(2)
    things, walking = places.astype(np.uint64), np.arange(len(places))
    while len(walking):
        things[walking] = _stir(things[walking], keys[walking], mask[walking], shift[walking])
        walking = walking[things[walking] >= limits[walking]]
    return things.astype(np.int64)


def _stir(values, keys, mask, shift):
    """A permutation of the numbers of so many bits."""
    for _ in range(ROUNDS):
        keys = keys * FACTOR + ODD
        values = (values * (keys >> np.uint64(16) | np.uint64(1)) + (keys >> np.uint64(32))) & mask
        values ^= values >> shift
    return values


def key(*numbers: int | np.ndarray) -> np.ndarray:
    """One uint64 of several whole numbers or arrays of them, so that like numbers have nothing in common."""
    mixed = np.zeros(1, np.uint64)
    for number in numbers:
        mixed = (mixed ^ np.asarray(number).astype(np.uint64)) * FACTOR + ODD
        mixed = (mixed ^ mixed >> np.uint64(29)) * FACTOR
        mixed ^= mixed >> np.uint64(32)
    return mixed
