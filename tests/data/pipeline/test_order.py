import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from rembed_keras.data.pipeline.order import PERIOD, Interleaving, key, shuffled


@settings(deadline=None)
@given(size=st.integers(1, 3000), number=st.integers(0, 2**64 - 1))
def test_an_order_is_a_permutation(size, number):
    order = shuffled(np.arange(size), np.full(size, size), np.full(size, number, np.uint64))
    np.testing.assert_array_equal(np.sort(order), np.arange(size))


def test_indices_of_a_huge_corpus_are_shuffled_too():
    size, places = 10**13 + 7, 10**13 - np.arange(5000)
    found = shuffled(places, np.full(5000, size), np.repeat(key(3), 5000))
    assert len(set(found.tolist())) == 5000 and found.min() >= 0 and found.max() < size
    assert stats.kstest(found / size, "uniform").pvalue > 1e-3


def test_every_index_is_equally_likely_at_every_place_and_beside_every_other():
    orders, size = 20_000, 1000
    keys, sizes = key(0, np.arange(orders)), np.full(orders, size)
    first, second, last = (shuffled(np.full(orders, place), sizes, keys) for place in (0, 1, size - 1))
    for found in (first, second, last):
        assert stats.chisquare(np.bincount(found, minlength=size)).pvalue > 1e-3
    assert stats.chisquare(np.bincount((second - first) % size, minlength=size)[1:]).pvalue > 1e-3


def test_all_permutations_of_few_indices_come():
    keys = key(7, np.arange(6000))
    orders = np.stack([shuffled(np.full(6000, i), np.full(6000, 4), keys) for i in range(4)], axis=1)
    counts = dict.fromkeys(itertools.permutations(range(4)), 0)
    for order in orders.tolist():
        counts[tuple(order)] += 1
    assert min(counts.values()) > 0.7 * 6000 / 24 and max(counts.values()) < 1.3 * 6000 / 24


@pytest.mark.parametrize(
    "weights", [[1.0], [0.5, 0.25, 0.25], [0.9, 0.099999, 1e-9], np.random.default_rng(0).dirichlet([1] * 40)]
)
def test_sources_are_interleaved_by_share_and_their_rows_count_up(weights):
    rows = np.arange(2 * PERIOD + 1000)
    source, nth = Interleaving(weights)(rows)
    for i, weight in enumerate(weights):
        mine = np.flatnonzero(source == i)
        np.testing.assert_array_equal(nth[mine], np.arange(len(mine)))
        had = np.cumsum(source == i)
        assert np.abs(had - weight * (rows + 1)).max() < 4.01
        assert len(mine) >= 2


def test_a_row_does_not_need_those_before_it():
    interleaving = Interleaving([0.7, 0.2, 0.1])
    source, nth = interleaving(np.arange(3 * PERIOD))
    later, count = interleaving(np.arange(2 * PERIOD + 17, 2 * PERIOD + 27))
    np.testing.assert_array_equal(later, source[2 * PERIOD + 17 : 2 * PERIOD + 27])
    np.testing.assert_array_equal(count, nth[2 * PERIOD + 17 : 2 * PERIOD + 27])


def test_keys_of_close_numbers_are_unrelated():
    keys = key(np.repeat(np.arange(64), 64), np.tile(np.arange(64), 64))
    assert len(set(keys.tolist())) == 4096
    bits = np.unpackbits(keys.view(np.uint8)).mean()
    assert bits == pytest.approx(0.5, abs=0.01)
    assert key(1, 2) != key(2, 1)
