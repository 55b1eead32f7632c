"""Linear probes: 1 where the label is linear, chance where it is shuffled, and C by validation alone."""

import numpy as np
import pytest
from scipy.stats import binom

from rembed_keras.analysis.layers import fit_probe
from rembed_keras.errors import UserError

RANDOM = np.random.default_rng(11)


def examples(size, classes, width=12):
    """Features of which one direction a class encodes the label, under noise in all others; and labels."""
    labels = np.arange(size) % classes
    features = 0.1 * RANDOM.normal(size=(size, width))
    features[:, :classes] = np.eye(classes)[labels] + 0.01 * RANDOM.normal(size=(size, classes))
    rotation, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(width, width)))
    return 100 * features @ rotation - 7, labels


@pytest.mark.parametrize("classes", [2, 5])
def test_a_label_that_is_linear_in_the_features_is_read_without_error(classes):
    train, validation, test = (examples(size, classes) for size in (300, 60, 200))
    probe = fit_probe(*train, validation)
    assert probe.accuracy(*test) == 1
    assert probe.logits(test[0]).shape == (200, classes)


@pytest.mark.parametrize("classes", [2, 5])
def test_shuffled_labels_give_chance(classes):
    (train, labels), validation, (test, gold) = (examples(size, classes) for size in (400, 100, 500))
    shuffled = RANDOM.permutation(labels)
    low, high = binom.interval(0.999, len(gold), 1 / classes)
    features = train.copy(), (validation[0], RANDOM.permutation(validation[1]))
    probe = fit_probe(features[0], shuffled, features[1])
    assert low <= len(gold) * probe.accuracy(test, RANDOM.permutation(gold)) <= high


def test_strength_is_chosen_on_validation_examples_the_strongest_of_equals():
    noise = RANDOM.normal(size=(60, 50))
    labels = np.arange(60) % 2
    validation = (RANDOM.normal(size=(40, 50)), np.arange(40) % 2)
    strengths = (1.0, 1e-4, 1e-2)
    alone = {c: fit_probe(noise, labels, validation, (c,)) for c in strengths}
    best = max(probe.validation_accuracy for probe in alone.values())
    chosen = fit_probe(noise, labels, validation, strengths)
    assert chosen.validation_accuracy == best == chosen.accuracy(*validation)
    assert chosen.inverse_strength == min(c for c in strengths if alone[c].validation_accuracy == best)
    clear = fit_probe(*examples(100, 2), examples(50, 2), strengths)
    assert clear.inverse_strength == 1e-4


def test_factors_and_shifts_of_dimensions_change_nothing():
    train, test = examples(100, 3), examples(90, 3)
    scale, shift = np.logspace(-3, 3, 12), np.arange(12) * 10
    plain = fit_probe(*train, None, (0.1,)).logits(test[0])
    scaled = fit_probe(train[0] * scale + shift, train[1], None, (0.1,)).logits(test[0] * scale + shift)
    np.testing.assert_allclose(scaled, plain, atol=1e-3)


def test_what_cannot_be_fitted_is_refused():
    features, labels = examples(12, 2)
    for strengths, message in ((((0.1, 1.0)), "no validation"), ((), "above 0"), ((0.0,), "above 0")):
        with pytest.raises(UserError, match=message):
            fit_probe(features, labels, None, strengths)
    with pytest.raises(ValueError, match="0 to K - 1"):
        fit_probe(features, labels * 2, None, (1.0,))


def test_balanced_labels_weigh_the_same_however_rare_they_are():
    """Overlapping classes, one nine times as frequent: the plain probe gives the rare one away."""
    labels = (RANDOM.random(3000) < 0.1).astype(int)
    features = RANDOM.normal(size=(3000, 1)) + labels[:, None]
    shares = {}
    for balanced in (False, True):
        probe = fit_probe(features, labels, None, (1.0,), balanced)
        hits = probe.logits(features).argmax(axis=1) == labels
        shares[balanced] = [hits[labels == label].mean() for label in (0, 1)]
        assert probe.accuracy(features, labels, balanced=True) == pytest.approx(np.mean(shares[balanced]))
    assert shares[False][1] < 0.1
    assert shares[True] == pytest.approx([0.69, 0.69], abs=0.07)  # Gaussians a unit apart, cut halfway: Phi(1/2)
