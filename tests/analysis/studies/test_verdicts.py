"""Verdicts of studies: against scipy, on simulated effects, on shuffled labels, and between identical arms."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from rembed_keras.analysis.studies.definition import Hypothesis
from rembed_keras.analysis.studies.verdicts import by_language, derive, differences, differing, lacking

HIGHER = Hypothesis("h", "new", "old", "accuracy", "higher", 0.02)


def rows_of(arm, scores, measure="accuracy", languages=("de", "fr", "ja")):
    """Rows of scores [seeds, languages]."""
    return [
        {"arm": arm, "seed": seed, "measure": measure, "language": language, "value": float(value)}
        for seed, row in enumerate(scores)
        for language, value in zip(languages, row, strict=True)
    ]


def simulated(effect, seeds=5, noise=0.01, seed=0):
    """Scores of two arms that share what is hard about seeds and languages."""
    draw = np.random.default_rng(seed)
    both = draw.normal(0.5, 0.1, (1, 3)) + draw.normal(0, 0.05, (seeds, 1))
    arms = (both + shift + draw.normal(0, noise, (seeds, 3)) for shift in (effect, 0.0))
    return [row for arm, scores in zip(("new", "old"), arms, strict=True) for row in rows_of(arm, scores)]


def test_a_verdict_is_scipys_paired_test_of_means_over_languages():
    rows = simulated(0.01)
    table = {(row["arm"], row["seed"], row["language"]): row["value"] for row in rows}
    means = [
        [np.mean([table[arm, s, name] for name in ("de", "fr", "ja")]) for s in range(5)] for arm in ("new", "old")
    ]
    expected = stats.ttest_rel(*means)
    low, high = expected.confidence_interval(0.95)
    (verdict,) = derive([HIGHER], rows)
    assert verdict.p == pytest.approx(expected.pvalue) and verdict.adjusted_p == pytest.approx(expected.pvalue)
    assert (verdict.low, verdict.high) == pytest.approx((low, high))
    assert verdict.difference == pytest.approx(np.mean(means[0]) - np.mean(means[1]))
    assert (verdict.seeds, verdict.languages) == (5, 3)


@pytest.mark.parametrize(
    ("effect", "verdict"), [(0.05, "supported"), (-0.05, "contradicted"), (0.0, "too close to call")]
)
def test_a_known_effect_is_called(effect, verdict):
    assert derive([HIGHER], simulated(effect))[0].verdict == verdict
    mirrored = {"supported": "contradicted", "contradicted": "supported"}.get(verdict, verdict)
    assert derive([replace(HIGHER, expected="lower")], simulated(effect))[0].verdict == mirrored


def test_shuffled_arms_are_called_no_more_often_than_the_level():
    """Whether arms are named right is drawn for each seed, so any call is false."""
    called, draw = 0, np.random.default_rng(0)
    for trial in range(400):
        rows, swapped = simulated(0.05, seed=trial), draw.integers(2, size=5)
        other = {"new": "old", "old": "new"}
        names = [other[row["arm"]] if swapped[row["seed"]] else row["arm"] for row in rows]
        shuffled = [row | {"arm": name} for row, name in zip(rows, names, strict=True)]
        called += derive([HIGHER], shuffled)[0].verdict != "too close to call"
    assert (
        called / 400 < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 400) + 2 / 2**5
    )  # all seeds are on one side in two patterns


def test_power_is_the_share_of_simulated_studies_that_call_the_effect():
    trials = [derive([HIGHER], simulated(0.02, noise=0.02, seed=trial))[0] for trial in range(500)]
    share = np.mean([trial.verdict == "supported" for trial in trials])
    exact = derive([HIGHER], simulated(0.02, noise=0.02))[0]
    std = 0.02 * math.sqrt(2 / 3)  # of a seed's mean over three languages, of a difference of two arms
    noncentral = 0.02 / std * math.sqrt(5)
    expected = stats.nct.sf(stats.t.isf(0.025, 4), 4, noncentral)
    assert share == pytest.approx(expected, abs=0.07)
    assert 0 < exact.power < 1 and exact.detectable > 0


def test_identical_arms_differ_by_nothing_and_are_never_called():
    scores = np.random.default_rng(0).normal(0.5, 0.1, (5, 3))
    (verdict,) = derive([HIGHER], [*rows_of("new", scores), *rows_of("old", scores)])
    assert (verdict.difference, verdict.verdict, verdict.p) == (0.0, "too close to call", None)


def test_p_values_are_adjusted_over_all_hypotheses():
    rows = simulated(0.012)
    alone = derive([HIGHER], rows)[0]
    absent = [replace(HIGHER, name=f"h{number}", measure="absent") for number in range(9)]
    among, *others = derive([HIGHER, *absent], rows)
    assert among.adjusted_p == pytest.approx(min(1.0, 10 * alone.p)) and among.p == alone.p
    assert alone.verdict == "supported" and among.verdict == "too close to call"
    assert among.detectable > alone.detectable
    assert {(each.verdict, each.note) for each in others} == {("too close to call", "no seed has a score of both arms")}


def test_only_pairs_count():
    rows = [row for row in simulated(0.05) if (row["arm"], row["seed"]) != ("old", 2)]
    rows = [row for row in rows if (row["arm"], row["seed"], row["language"]) != ("new", 4, "ja")]
    found = differences(HIGHER, rows)
    assert found.shape == (4, 2)
    assert derive([HIGHER], rows)[0].seeds == 4
    assert set(by_language(HIGHER, rows)) == {"de", "fr"}


def test_languages_that_a_run_lacks_are_left_out_and_named():
    complete = simulated(0.05)
    rows = [row for row in complete if (row["arm"], row["seed"], row["language"]) != ("new", 4, "ja")]
    (verdict,) = derive([HIGHER], rows)
    assert (verdict.languages, verdict.note) == (2, "left out, since not every run has them: ja")
    assert lacking(HIGHER, rows) == {("new", 4): ["ja"]} and not lacking(HIGHER, complete)
    (small,) = derive([replace(HIGHER, smallest_effect=0.5)], rows)
    assert small.note == (
        "the effect is smaller than 0.5, the smallest worth seeing; left out, since not every run has them: ja"
    )
    (none,) = derive([HIGHER], rows_of("new", [[0.5]], languages=["de"]) + rows_of("old", [[0.5]], languages=["fr"]))
    assert (none.seeds, none.note) == (0, "no language has a score in every run: de, fr")
    for found, before in (
        (verdict, ""),
        (small, small.note.partition(";")[0]),
        (none, "no seed has a score of both arms"),
    ):
        assert not differing(found, found)
        assert not differing(found, replace(found, note=before)), "of an earlier version"
        assert differing(found, replace(found, note="another")) == ["note"]
    assert differing(replace(verdict, note=""), verdict) == ["note"]


def test_one_seed_says_nothing():
    (verdict,) = derive([HIGHER], simulated(0.3, seeds=1))
    assert (verdict.verdict, verdict.low, verdict.note) == (
        "too close to call",
        None,
        "with one seed nothing can be said",
    )


def test_an_effect_below_the_smallest_worth_seeing_is_noted():
    (small,) = derive([replace(HIGHER, smallest_effect=0.5)], simulated(0.05))
    assert small.verdict == "supported" and small.note == "the effect is smaller than 0.5, the smallest worth seeing"
    (none,) = derive([replace(HIGHER, smallest_effect=0.5)], simulated(0.0))
    assert none.note == "an effect of 0.5 as expected is outside the interval"


def test_by_language_has_an_interval_each():
    rows = simulated(0.05)
    table = {(row["arm"], row["seed"], row["language"]): row["value"] for row in rows}
    ours, theirs = ([table[arm, seed, "fr"] for seed in range(5)] for arm in ("new", "old"))
    low, high = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    found = by_language(HIGHER, rows)["fr"]
    assert (found.low, found.high) == pytest.approx((low, high))


def test_verdicts_agree_up_to_rounding_alone():
    (verdict,) = derive([HIGHER], simulated(0.05))
    assert not differing(verdict, replace(verdict, p=verdict.p * (1 + 1e-9)))
    assert differing(verdict, replace(verdict, p=verdict.p * 1.01)) == ["p"]
    assert differing(verdict, replace(verdict, verdict="contradicted")) == ["verdict"]
    assert differing(verdict, replace(verdict, low=None)) == ["low"]
