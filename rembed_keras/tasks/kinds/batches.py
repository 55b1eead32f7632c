"""Training batches of a task: which rows, as a function of (seed, step), and how long.

Padding takes as long as tokens do. A batch is cut to its longest row, rounded up to one of a few lengths, and its loss
stays the same but for rounding. Each length is a program of its own, so there is one only where it saves more than it
takes to compile it. Of rows in random order most batches have a long one; grouped by length they have not.
"""

import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import grain
import keras
import numpy as np

from rembed_keras.modeling.parts import padding_read
from rembed_keras.modeling.texts.lengths import can_cut, cut_to, rounded_length, row_lengths
from rembed_keras.tasks.kinds.encoding import Encoded

POOL = 50  # batches whose rows are sorted together
COMPILATION = 2**20  # tokens that a further program must save: more than it takes a CPU, since accelerators are faster


def batches(encoded: Encoded, batch_size: int, seed: int, group_by_length: bool = False) -> grain.MapDataset:
    """Training batches as a function of (seed, step): every row once per epoch, in another order each time.

    Args:
        encoded: rows with targets.
        batch_size: B.
        seed: of the orders.
        group_by_length: whether rows of similar length are in a batch: 50 batches of random rows are sorted by length
            and cut into batches, whose order is random. The batch that an epoch shares with the next has random rows.

    Returns:
        An endless dataset; `dataset[step]` is `(inputs, targets)`, or `(inputs, targets, weights)` where rows have
        weights, of B rows.
    """
    columns = tuple(each for each in (encoded.inputs, encoded.targets, encoded.weights) if each is not None)
    if group_by_length:
        rows_of = _in_groups(row_lengths(encoded.inputs["padding_mask"]), batch_size, seed)
        order = grain.MapDataset.range(sys.maxsize).map(rows_of)
    else:
        rows = grain.MapDataset.range(len(encoded.rows)).seed(seed).shuffle()
        endless = sys.maxsize // (2 * len(rows))  # epochs; Grain's own endless rows are more than batches of 1 can be
        order = rows.repeat(endless).batch(batch_size)
    return order.map(lambda rows: keras.tree.map_structure(lambda column: column[rows], columns))


def _in_groups(lengths: np.ndarray, batch_size: int, seed: int) -> Callable[[int], np.ndarray]:
    """A function from a step to its rows; see `batches`."""
    size = len(lengths)

    @lru_cache(maxsize=2)
    def order(epoch):
        """A permutation of all rows."""
        rng = np.random.default_rng((seed, epoch))
        rows = rng.permutation(size)
        first = min(-epoch * size % batch_size, size)  # those before it are in the last batch of the epoch before
        last = first + (size - first) // batch_size * batch_size
        pools = np.split(rows[first:last], range(POOL * batch_size, last - first, POOL * batch_size))
        grouped = np.concatenate([pool[np.argsort(lengths[pool], kind="stable")] for pool in pools])
        grouped = rng.permutation(grouped.reshape(-1, batch_size)).ravel()
        return np.concatenate([rows[:first], grouped, rows[last:]])

    def rows_of(step):
        epochs, places = np.divmod(np.arange(batch_size) + step * batch_size, size)
        return np.array([order(int(epoch))[place] for epoch, place in zip(epochs, places, strict=True)])

    return rows_of


def lengths_worth_compiling(
    lengths: np.ndarray, longest: int, batch_size: int, steps: int, group_by_length: bool = False
) -> tuple[int, ...]:
    """The lengths that batches are cut to: those with the least padding and compilation together, whatever the seed.

    A further length is one where a training saves more than a million tokens of padding by it. The last one holds the
    longest row.

    Args:
        lengths: tokens of each row, int [N].
        longest: S, of uncut rows.
        batch_size: B.
        steps: of a training.
        group_by_length: whether rows of similar length are in a batch, see `batches`; otherwise the longest of B random
            rows is at most l long with the B-th power of a row's probability.

    >>> lengths_worth_compiling(np.array([9] * 99 + [60]), 64, batch_size=32, steps=100)
    (64,)
    >>> lengths_worth_compiling(np.array([9] * 99 + [60]), 64, batch_size=32, steps=10_000)
    (16, 64)
    """
    sizes = sorted({rounded_length(int(length), longest) for length in np.unique(lengths)})
    reached = np.array([np.mean(lengths <= size) for size in sizes])  # the share of rows that each holds
    shares = [0.0, *reached ** (1 if group_by_length else batch_size)]  # of batches; without any size none
    plans: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]  # the best for all batches up to each size
    for j, size in enumerate(sizes, start=1):
        tokens = steps * batch_size * size
        found = [
            (cost + COMPILATION + tokens * (shares[j] - shares[i]), (*chosen, size))
            for i, (cost, chosen) in enumerate(plans)
        ]
        plans.append(min(found))
    return plans[-1][1]


def cut_batches(
    data: grain.MapDataset,
    model: Any,
    encoded: Encoded,
    steps: int,
    group_by_length: bool = False,
    may_vary: bool = True,
) -> tuple[grain.MapDataset, list[tuple]]:
    """Batches without padding that a training need not compute, the same rows at the same steps.

    Args:
        data: `batches` of the rows.
        model: a task model; it and the teachers of its loss terms must compute the same without padding, or all stays.
        encoded: the rows.
        steps: of the training.
        group_by_length: as of the batches.
        may_vary: whether batches may have several lengths; otherwise all are cut to the longest row.

    Returns:
        The dataset, and a batch of each shape that it has.
    """
    teachers = (teacher for term in model.terms for teacher in getattr(term, "teachers", ()))
    readers = [model, *(teacher.encoder for teacher in teachers)]
    if not all(map(can_cut, readers)):
        return data, [data[0]]
    mask = encoded.inputs["padding_mask"]
    size = len(keras.tree.flatten(data[0])[0])
    padding = max(map(padding_read, readers))
    lengths = lengths_worth_compiling(row_lengths(mask, padding), mask.shape[1], size, steps, group_by_length)
    lengths = lengths if may_vary else lengths[-1:]
    return data.map(lambda batch: cut(batch, lengths, padding)), [cut_to(length, *data[0]) for length in lengths]


def cut(batch: tuple, lengths: Sequence[int], padding: int = 0) -> tuple:
    """A batch without the padding behind the least of some lengths that holds its longest row.

    Args:
        batch: of `batches`; targets are cut where weights say of each token whether its target counts.
        lengths: rising.
        padding: how many tokens of it are kept after the longest row, see `padding_read`.

    >>> inputs = {"padding_mask": np.array([[1, 1, 0, 0, 0], [1, 0, 0, 0, 0]])}
    >>> cut((inputs, np.array([7, 8])), (2, 5))[0]["padding_mask"].shape
    (2, 2)
    """
    needed = int(row_lengths(batch[0]["padding_mask"], padding).max())
    return cut_to(next(length for length in lengths if length >= needed), *batch)
