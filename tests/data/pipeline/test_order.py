import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from rembed_keras.data.pipeline.order import PERIOD, Shares, key, shuffled


@settings(deadline=None)
@given(size=st.integers(1, 3000), number=st.integers(0, 2**64 - 1))
def test_an_order_has_everything_once(size, number):
    order = shuffled(np.arange(size), np.full(size, size), np.full(size, number, np.uint64))
    np.testing.assert_array_equal(np.sort(order), np.arange(size))


def test_places_of_a_huge_corpus_are_shuffled_too():
    size, places = 10**13 + 7, 10**13 - np.arange(5000)
    things = shuffled(places, np.full(5000, size), np.repeat(key(3), 5000))
    assert len(set(things.tolist())) == 5000 and things.min() >= 0 and things.max() < size
    assert stats.kstest(things / size, "uniform").pvalue > 1e-3


def test_every_thing_is_as_likely_at_every_place_and_beside_every_other():
    orders, size = 20_000, 1000
    keys, sizes = key(0, np.arange(orders)), np.full(orders, size)
    first, second, last = (shuffled(np.full(orders, place), sizes, keys) for place in (0, 1, size - 1))
    for things in (first, second, last):
        assert stats.chisquare(np.bincount(things, minlength=size)).pvalue > 1e-3
    assert stats.chisquare(np.bincount((second - first) % size, minlength=size)[1:]).pvalue > 1e-3


def test_all_orders_of_few_things_come():
    keys = key(7, np.arange(6000))
    orders = np.stack([shuffled(np.full(6000, i), np.full(6000, 4), keys) for i in range(4)], axis=1)
    counts = dict.fromkeys(itertools.permutations(range(4)), 0)
    for order in orders.tolist():
        counts[tuple(order)] += 1
    assert min(counts.values()) > 0.7 * 6000 / 24 and max(counts.values()) < 1.3 * 6000 / 24


@pytest.mark.parametrize(
    "weights", [[1.0], [0.5, 0.25, 0.25], [0.9, 0.099999, 1e-9], np.random.default_rng(0).dirichlet([1] * 40)]
)
def test_turns_come_by_share_and_count_up(weights):
    turns = np.arange(2 * PERIOD + 1000)
    owner, nth = Shares(weights)(turns)
    for i, weight in enumerate(weights):
        mine = np.flatnonzero(owner == i)
        np.testing.assert_array_equal(nth[mine], np.arange(len(mine)))
        had = np.cumsum(owner == i)
        assert np.abs(had - weight * (turns + 1)).max() < 4.01
        assert len(mine) >= 2


def test_turns_can_be_had_without_those_before():
    shares = Shares([0.7, 0.2, 0.1])
    owner, nth = shares(np.arange(3 * PERIOD))
    later, count = shares(np.arange(2 * PERIOD + 17, 2 * PERIOD + 27))
    np.testing.assert_array_equal(later, owner[2 * PERIOD + 17 : 2 * PERIOD + 27])
    np.testing.assert_array_equal(count, nth[2 * PERIOD + 17 : 2 * PERIOD + 27])


def test_keys_of_like_numbers_have_nothing_in_common():
    keys = key(np.repeat(np.arange(64), 64), np.tile(np.arange(64), 64))
    assert len(set(keys.tolist())) == 4096
    bits = np.unpackbits(keys.view(np.uint8)).mean()
    assert bits == pytest.approx(0.5, abs=0.01)
    assert key(1, 2) != key(2, 1)
