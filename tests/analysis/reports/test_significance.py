"""P-values against their own definition, by simulation, and against scipy; power by simulated tests."""

import math

import numpy as np
import pytest
from scipy import stats

from rembed_keras.analysis.reports.comparison import _visible
from rembed_keras.analysis.reports.power import (
    accuracy_power,
    seeds_power,
    smallest_accuracy_difference,
    smallest_seeds_difference,
)
from rembed_keras.analysis.reports.significance import (
    average_languages,
    holm,
    paired_bootstrap,
    paired_t,
    sign_flip_test,
    spread,
)


def test_failed_runs_are_counted_and_not_averaged():
    found = spread([0.5, None, 0.7, math.nan, 0.9])
    assert (found.mean, found.std, found.n, found.failed) == (pytest.approx(0.7), pytest.approx(0.2), 3, 2)
    alone = spread([0.5])
    assert alone.mean == 0.5 and math.isnan(alone.std)
    nothing = spread([None, None])
    assert math.isnan(nothing.mean) and (nothing.n, nothing.failed) == (0, 2)


def answers(generator, k, n, seed_std, shift=0.0):
    """Differences of two systems, of k seeds on n examples: -1, 0 or 1, with effects of seed and example."""
    difficulty = generator.normal(0, 1.5, n)

    def system(shift):
        liking = generator.normal(0, 0.7, n) + generator.normal(shift, seed_std, (k, 1))
        return (generator.random((k, n)) < 1 / (1 + np.exp(-difficulty - liking))).astype(float)

    return system(shift), system(0.0)


def p_values(k, n, seed_std, times):
    generator = np.random.default_rng(0)
    return np.array(
        [paired_bootstrap(*answers(generator, k, n, seed_std), resamples=999, seed=i).p for i in range(times)]
    )


def test_p_of_the_bootstrap_is_uniform_where_there_is_no_difference():
    found = p_values(k=1, n=400, seed_std=0, times=2000)
    for level in (0.02, 0.05, 0.1, 0.25, 0.5, 0.75):
        assert np.mean(found <= level) == pytest.approx(level, abs=4 * math.sqrt(level * (1 - level) / 2000) + 0.015)


def test_p_of_the_bootstrap_is_uniform_over_seeds_where_these_are_what_varies():
    found = p_values(k=4, n=2000, seed_std=0.8, times=800)
    assert stats.kstest(found, "uniform").pvalue > 0.01


@pytest.mark.parametrize(("k", "seed_std"), [(2, 0.3), (3, 0.1), (5, 0.3)])
def test_seeds_and_examples_together_find_no_more_than_they_may(k, seed_std):
    found = p_values(k, 300, seed_std, times=600)
    for level in (0.01, 0.05, 0.1):
        assert np.mean(found <= level) <= level + 3 * math.sqrt(level * (1 - level) / 600)
    assert np.mean(found <= 0.5) > 0.3  # and have power


def test_the_interval_is_that_of_scipy():
    ours, theirs = answers(np.random.default_rng(1), 1, 300, 0, shift=0.5)
    found = paired_bootstrap(ours, theirs)
    other = stats.bootstrap((ours[0] - theirs[0],), np.mean, method="percentile", n_resamples=10_000, rng=0)
    assert (found.low, found.high) == pytest.approx(tuple(other.confidence_interval), abs=0.004)
    assert found.difference == pytest.approx(np.mean(ours) - np.mean(theirs))
    gaps = ours - theirs
    assert found.p == pytest.approx(2 * stats.norm.sf(gaps.mean() / (gaps.std() / math.sqrt(300))), rel=0.5)


def test_equal_systems_do_not_differ_and_the_draws_are_seeded():
    ours, theirs = answers(np.random.default_rng(2), 3, 50, 0.1)
    assert paired_bootstrap(ours, ours).p == 1.0
    assert paired_bootstrap(ours, theirs, seed=1) == paired_bootstrap(ours, theirs, seed=1)
    assert paired_bootstrap(ours, theirs, seed=1) != paired_bootstrap(ours, theirs, seed=2)
    with pytest.raises(ValueError, match="shape"):
        paired_bootstrap(ours, theirs[:, :40])


@pytest.mark.parametrize("seeds", [1, 3])
def test_a_few_examples_that_agree_are_no_evidence(seeds):
    one = paired_bootstrap(np.ones((seeds, 1)), np.zeros((seeds, 1)))
    assert one.difference == 1.0 and np.isnan([one.low, one.high, one.p]).all()
    for count, least in ((2, 0.5), (5, 0.0625), (6, 0.03125)):
        assert paired_bootstrap(np.ones((seeds, count)), np.zeros((seeds, count))).p == least


@pytest.mark.parametrize("count", [2, 5, 6, 200])
def test_the_interval_of_examples_that_agree_is_the_exact_one_of_a_share(count):
    right, wrong = np.ones(count), np.zeros(count)
    least = stats.binomtest(count, count).proportion_ci(0.95, method="exact").low
    alone = paired_bootstrap(right, wrong, least=0.0)
    assert (alone.low, alone.high) == (pytest.approx(least), 1.0)
    same = paired_bootstrap(np.tile(right, (3, 1)), np.tile(right, (3, 1)))
    assert (same.low, same.high) == (pytest.approx(least - 1), pytest.approx(1 - least))
    better, worse = paired_bootstrap(right, wrong), paired_bootstrap(wrong, right)
    assert (better.low, better.high) == (pytest.approx(2 * least - 1), 1.0) == (-worse.high, -worse.low)
    assert (better.low > 0) == (better.p < 0.05)


def test_draws_are_made_in_parts_where_they_are_many(monkeypatch):
    numbers = np.random.default_rng(3).normal(0.1, 1, 500)
    monkeypatch.setattr("rembed_keras.analysis.reports.significance.BLOCK", 500 * 300)
    found = paired_bootstrap(numbers, np.zeros(500), resamples=1000)
    assert found.high - found.low == pytest.approx(2 * 1.96 * numbers.std() / math.sqrt(500), rel=0.15)


def width(scores, others, languages, ids):
    found = paired_bootstrap(average_languages(scores, languages, ids), average_languages(others, languages, ids))
    return found.high - found.low


def test_languages_have_equal_weight_and_translations_are_not_new_examples():
    ours, theirs = answers(np.random.default_rng(4), 2, 200, 0)
    ids = [f"{number:03}" for number in range(200)]
    np.testing.assert_allclose(average_languages(ours, ["de"] * 200, ids), ours, atol=1e-12)
    names = ["de"] * 50 + ["fr"] * 150
    means = (ours[:, :50].mean(axis=1) + ours[:, 50:].mean(axis=1)) / 2
    np.testing.assert_allclose(average_languages(ours, names, ids).mean(axis=1), means)
    ours, theirs = ours[:1], theirs[:1]
    alone = width(ours, theirs, ["de"] * 200, ids)
    twice = [np.tile(each, 2) for each in (ours, theirs)]
    names = ["de"] * 200 + ["fr"] * 200
    assert width(*twice, names, ids * 2) == pytest.approx(alone, rel=0.05)
    others = [f"x{name}" for name in ids]
    assert width(*twice, names, ids + others) == pytest.approx(alone / math.sqrt(2), rel=0.05)


def test_a_mean_of_languages_varies_as_its_strata_do():
    generator = np.random.default_rng(5)
    gaps = np.concatenate([generator.normal(0.3, 0.2, 40), generator.normal(-0.3, 0.6, 160)])[None]
    names = ["de"] * 40 + ["fr"] * 160
    found = width(gaps, np.zeros_like(gaps), names, [str(number) for number in range(200)])
    error = math.sqrt(gaps[0, :40].var() / 40 + gaps[0, 40:].var() / 160) / 2
    assert found == pytest.approx(2 * 1.96 * error, rel=0.05)


def test_t_is_that_of_scipy():
    ours, theirs = np.random.default_rng(6).normal([[0.52], [0.5]], 0.01, (2, 6))
    found, other = paired_t(ours - theirs), stats.ttest_rel(ours, theirs)
    assert found.p == pytest.approx(other.pvalue)
    assert (found.low, found.high) == pytest.approx(tuple(other.confidence_interval()))
    in_languages = np.stack([ours - theirs + 0.01, ours - theirs - 0.01], axis=1)  # [K, 2], of the same mean
    assert paired_t(in_languages).p == pytest.approx(found.p)
    for too_few in ([0.02], [0.02, 0.02, 0.02]):
        assert math.isnan(paired_t(too_few).p)


@pytest.mark.parametrize("k", [3, 8, 12])
def test_sign_flips_are_those_of_scipy(k):
    gaps = np.random.default_rng(k).normal(0.5, 1, k)
    exact = stats.permutation_test(
        (gaps, np.zeros(k)), lambda a, b: np.mean(a - b), permutation_type="samples", n_resamples=math.inf
    )
    assert sign_flip_test(gaps) == pytest.approx(exact.pvalue)


def test_random_sign_flips_come_near_to_all():
    gaps = np.random.default_rng(7).normal(0.4, 1, 17)
    patterns = 1 - 2 * (np.arange(2**17)[:, None] >> np.arange(17) & 1)
    exact = np.mean(np.abs(patterns @ gaps) >= abs(gaps.sum()) - 1e-12)
    assert sign_flip_test(gaps) == pytest.approx(exact, abs=4 * math.sqrt(exact / 10_000))
    assert sign_flip_test(np.ones(40)) == pytest.approx(1 / 10_001)  # never 0


def test_sign_flips_are_uniform_by_seed_and_would_not_be_by_language():
    generator = np.random.default_rng(8)
    by_seed, by_cell = [], []
    for _ in range(600):
        gaps = generator.normal(0, 0.02, (7, 1)) + generator.normal(0, 0.01, (7, 2))
        by_seed.append(sign_flip_test(gaps))
        by_cell.append(sign_flip_test(gaps.ravel()))
    for level in (1 / 64, 1 / 8, 1 / 2):
        assert np.mean(np.array(by_seed) <= level) == pytest.approx(level, abs=4 * math.sqrt(level / 600))
    assert np.mean(np.array(by_cell) <= 0.05) > 0.1


def test_holm_by_hand():
    assert holm([0.01, 0.02, 0.03, 0.005]) == pytest.approx([0.03, 0.04, 0.04, 0.02])
    assert holm([0.6, 0.6]) == pytest.approx([1.0, 1.0])
    assert holm([0.04]) == pytest.approx([0.04]) and len(holm([])) == 0
    values = np.random.default_rng(9).random(20) ** 3
    adjusted = holm(values)
    assert (adjusted >= values).all() and (np.diff(adjusted[np.argsort(values)]) >= 0).all()


def mcnemar_power(n, difference, agreement, times=40_000):
    losing = max(0.0, (1 - agreement - difference) / 2)
    shares = [1 - agreement - losing, losing, agreement]
    wins, losses, _ = np.random.default_rng(0).multinomial(n, shares, times).T
    statistic = np.abs(wins - losses) / np.sqrt(np.maximum(wins + losses, 1))
    return np.mean(statistic > stats.norm.isf(0.025))


@pytest.mark.parametrize(
    ("n", "agreement"), [(60, 0.4), (200, 0.5), (300, 0.8), (1000, 0.8), (1000, 0.95), (5000, 0.98)]
)
def test_power_over_examples_is_that_of_tests_that_are_run(n, agreement):
    smallest = smallest_accuracy_difference(n, agreement)
    assert mcnemar_power(n, smallest, agreement) == pytest.approx(0.8, abs=0.02)
    for difference in (0, smallest / 2, 1.3 * smallest):
        found = mcnemar_power(n, difference, agreement)
        assert accuracy_power(n, difference, agreement) == pytest.approx(found, abs=0.012)


def test_systems_that_hardly_disagree_must_disagree_more_to_differ():
    smallest = smallest_accuracy_difference(300, agreement=0.999)
    assert smallest == pytest.approx(smallest_accuracy_difference(300, agreement=1.0)) and smallest > 0.001
    assert mcnemar_power(300, smallest, 1 - smallest) >= 0.8
    assert smallest_accuracy_difference(3, agreement=0.5) == math.inf
    assert smallest_accuracy_difference(300, agreement=0.8, alpha=0.9) == 0.0
    assert accuracy_power(300, 0, agreement=1) == 0
    with pytest.raises(ValueError, match=r"agree on 90.0% cannot differ by 20.0%"):
        accuracy_power(300, 0.2, agreement=0.9)


@pytest.mark.parametrize("k", [2, 3, 5, 10, 40])
def test_power_over_seeds_is_that_of_tests_that_are_run(k):
    std, smallest = 0.012, smallest_seeds_difference(k, 0.012)
    noise = np.random.default_rng(k).normal(0, std, (40_000, k))
    for difference, expected in ((smallest, 0.8), (0, 0.05), (smallest / 2, seeds_power(k, smallest / 2, std))):
        found = np.mean(stats.ttest_1samp(noise + difference, 0, axis=1).pvalue < 0.05)
        assert found == pytest.approx(expected, abs=0.01)
    assert smallest_seeds_difference(1, std) == math.inf


@pytest.mark.parametrize("alpha", [1e-6, 0.05, 0.9])
def test_power_over_seeds_is_the_level_of_no_difference_and_grows_to_1(alpha):
    for k in (2, 3, 10):
        found = [seeds_power(k, difference, 0.01, alpha) for difference in (0, 1e-12, 0.001, 0.01, 1, 1e6, 1e300)]
        assert found[:2] == pytest.approx([alpha, alpha]) and np.all(np.diff(found) > -1e-9) and found[-1] == 1


def test_what_seeds_and_examples_see_adds_up_as_squares():
    k, n, generator = 4, 400, np.random.default_rng(10)
    seed_std, disagreement = 0.01, 0.2
    detectable = math.hypot(smallest_seeds_difference(k, seed_std), smallest_accuracy_difference(n, 1 - disagreement))
    found = []
    for index in range(500):
        shares = [(disagreement - detectable) / 2, 1 - disagreement, (disagreement + detectable) / 2]
        gaps = generator.choice([-1.0, 0.0, 1.0], n, p=shares) + generator.normal(0, seed_std, (k, 1))
        found.append(paired_bootstrap(gaps, np.zeros_like(gaps), resamples=999, seed=index).p < 0.05)
    assert np.mean(found) == pytest.approx(0.8, abs=0.07)


def test_what_examples_of_a_small_language_hide_is_seen():
    """Each language counts the same, so that an answer of a hundred weighs as a hundred of ten thousand."""
    rng, sizes = np.random.default_rng(0), (10_000, 100)
    shares = np.concatenate([np.full(size, sum(sizes) / (2 * size)) for size in sizes])
    gaps = rng.choice([-1.0, 0.0, 1.0], sum(sizes), p=[0.1, 0.8, 0.1]) * shares
    detectable = _visible(np.zeros((1, 2)), (gaps[None], 0 * gaps[None]))
    z = stats.norm.isf(0.025) + stats.norm.isf(0.2)
    assert detectable == pytest.approx(z * np.sqrt(np.mean(gaps**2) / len(gaps)), rel=1e-3)
