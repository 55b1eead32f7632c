"""CSLS, against loops, and for a hub."""

import numpy as np

from rembed_keras.tasks.retrieval.parallel_text import cosines, csls, hits_at_1

RANDOM = np.random.default_rng(5)
OURS, THEIRS = RANDOM.normal(size=(9, 4)) + 2, RANDOM.normal(size=(9, 4)) - 1


def test_it_is_that_of_a_loop_over_pairs():
    for neighbors in (1, 3, 10):
        similarity, expected = cosines(OURS, THEIRS), np.zeros((9, 9))
        centered = [side - side.mean(axis=0) for side in (OURS, THEIRS)]
        unit = [[vector / np.sqrt(vector @ vector) for vector in side] for side in centered]
        cosine = [[ours @ theirs for theirs in unit[1]] for ours in unit[0]]
        for i in range(9):
            for j in range(9):
                mine = sorted(cosine[i], reverse=True)[:neighbors]
                yours = sorted((row[j] for row in cosine), reverse=True)[:neighbors]
                expected[i, j] = 2 * cosine[i][j] - sum(mine) / len(mine) - sum(yours) / len(yours)
        np.testing.assert_allclose(similarity, cosine, atol=1e-12)
        np.testing.assert_allclose(csls(similarity, neighbors), expected, atol=1e-12)


def test_a_hub_hides_translations_from_cosines_and_not_from_csls():
    similarity = np.full((6, 6), 0.1) + 0.4 * np.eye(6)
    similarity[:, 0] = 0.6
    assert hits_at_1(similarity)[0] == 1 / 6
    assert hits_at_1(csls(similarity, 2))[0] > 0.8


def test_equal_vectors_are_found_by_chance_alone():
    same = cosines(np.ones((5, 3)), np.ones((5, 3)))
    assert hits_at_1(same) == hits_at_1(csls(same)) == (0.2, 0.2)
