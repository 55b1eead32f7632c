import collections

import numpy as np
import pytest

from rembed_keras.data.pipeline.mixture import Mixture
from rembed_keras.data.prepare.corpora import prepare
from rembed_keras.errors import UserError


def same(first, second):
    for one, other in zip(first[0].items(), second[0].items(), strict=True):
        assert one[0] == other[0]
        np.testing.assert_array_equal(one[1], other[1])
    np.testing.assert_array_equal(first[1], second[1])
    np.testing.assert_array_equal(first[2], second[2])


def test_a_batch_does_not_need_those_before_it(corpus):
    steps = list(Mixture(corpus, 8, 32).batches(0, 40))
    fresh = Mixture(corpus, 8, 32)
    for step in (39, 0, 17):
        same(fresh[step], steps[step])
    for step, batch in enumerate(fresh.batches(25, 30), start=25):
        same(batch, steps[step])


def test_shapes_and_documents(corpus):
    x, y, weights = Mixture(corpus, 8, 32)[3]
    assert {key: (value.shape, value.dtype.name) for key, value in x.items()} == {
        "token_ids": ((8, 32), "int32"),
        "segment_ids": ((8, 32), "int32"),
        "padding_mask": ((8, 32), "int32"),
        "mask_positions": ((8, 5), "int32"),
        "language_ids": ((8,), "int32"),
    }
    assert y.shape == weights.shape == (8, 5)
    restored = x["token_ids"].copy()
    np.put_along_axis(restored, x["mask_positions"], y, axis=1)
    for row, documents in zip(restored, x["padding_mask"], strict=True):
        number = 1
        for i, token in enumerate(row):
            number += int(token == corpus.tokenizer.cls_id and i > 0)
            assert documents[i] == number


def rows_of(mixture, steps):
    """Every row before masking, with its language."""
    for step in range(steps):
        x, y, _ = mixture[step]
        tokens = x["token_ids"].copy()
        np.put_along_axis(tokens, x["mask_positions"], y, axis=1)
        yield from zip(x["language_ids"].tolist(), tokens, strict=True)


def test_an_epoch_over_a_language_reads_every_slice_once(corpus):
    mixture = Mixture(corpus, 4, 32, alpha=0.0)
    size = corpus.num_tokens["ja"]
    slices = size // 32
    stream = corpus.tokens("ja", 0, size)
    epochs = [[], []]
    for language, row in rows_of(mixture, 3 * 2 * slices // 4 + 2):
        if corpus.languages[language] == "ja":
            done = sum(map(len, epochs)) // slices
            if done < 2:
                epochs[done].append(row)
    cuts = [cut_of(rows, stream, slices) for rows in epochs]
    assert cuts[0] != cuts[1]
    assert epochs[0][0].tolist() not in [epochs[1][0].tolist(), stream[:32].tolist()]


def cut_of(rows, stream, slices):
    """The offset of the slices that these rows are, each once."""
    found = collections.Counter(map(tuple, rows))
    for cut in range(32):
        cyclic = np.roll(stream, -cut)[: slices * 32]
        if found == collections.Counter(map(tuple, cyclic.reshape(slices, 32))):
            return cut
    raise AssertionError("no cut gives these rows")


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_languages_are_sampled_by_size_to_the_power_of_alpha(corpus, alpha):
    mixture = Mixture(corpus, 16, 32, alpha=alpha)
    sizes = np.array([corpus.num_tokens[language] for language in corpus.languages], float)
    expected = sizes**alpha / (sizes**alpha).sum()
    np.testing.assert_allclose(mixture.weights, expected)
    seen = collections.Counter()
    for step in range(60):
        seen.update(mixture[step][0]["language_ids"].tolist())
        drawn = np.array([seen[i] for i in range(3)])
        assert np.abs(drawn - expected * drawn.sum()).max() <= 2  # at any moment, not in the long run only


def test_every_step_masks_other_positions(corpus):
    mixture = Mixture(corpus, 8, 32)
    first, second = mixture[0][0]["mask_positions"], mixture[1][0]["mask_positions"]
    assert (first == second).mean() < 0.4


def test_the_mask_rate_may_be_a_schedule(corpus):
    rates = {0: 0.3, 3: 0.1, 5: 0.2}
    mixture = Mixture(corpus, 4, 40, mask_rate=rates)
    assert mixture.num_predictions == 12
    counts = []
    for step in range(7):
        x, y, weights = mixture[step]
        assert x["mask_positions"].shape == y.shape == weights.shape == (4, 12)
        counts.append(int(weights.sum(axis=1).max()))
        assert not x["mask_positions"][weights == 0].any() and not y[weights == 0].any()
    assert counts == [12, 12, 12, 4, 4, 8, 8]
    plain = Mixture(corpus, 4, 40, mask_rate=0.1)[3]
    np.testing.assert_array_equal(mixture[3][0]["token_ids"], plain[0]["token_ids"])


def test_another_seed_gives_other_rows_and_masks(corpus):
    first, other = Mixture(corpus, 8, 32, seed=0)[0], Mixture(corpus, 8, 32, seed=1)[0]
    assert (first[0]["token_ids"] != other[0]["token_ids"]).any()
    assert (first[0]["mask_positions"] != other[0]["mask_positions"]).any()


def test_unigram_entropy_is_that_of_the_labels(corpus):
    mixture = Mixture(corpus, 64, 32, alpha=0.3)
    counts = np.zeros(900)
    for step in range(120):
        _, y, weights = mixture[step]
        np.add.at(counts, y[weights == 1], 1)
    shares = counts[counts > 0] / counts.sum()
    drawn = -(shares * np.log(shares)).sum()
    assert mixture.unigram_entropy == pytest.approx(drawn, abs=0.03)


def test_a_language_without_labels_has_no_share_in_the_unigram_entropy(corpus, tmp_path):
    (tmp_path / "text").mkdir()
    (tmp_path / "text/en.txt").write_text("open the file and save the table\n" * 30, encoding="utf-8")
    (tmp_path / "text/zz.txt").write_text("\u200b\n" * 30, encoding="utf-8")  # of which normalization leaves nothing
    both = prepare(tmp_path / "text", tmp_path / "both", tokenizer=corpus.tokenizer.path)
    alone = prepare(tmp_path / "text", tmp_path / "alone", tokenizer=corpus.tokenizer.path, languages=["en"])
    entropies = [Mixture(each, 2, 16).unigram_entropy for each in (both, alone)]
    assert entropies[0] == pytest.approx(entropies[1]) and entropies[0] > 1
    nothing = prepare(tmp_path / "text", tmp_path / "nothing", tokenizer=corpus.tokenizer.path, languages=["zz"])
    assert str(Mixture(nothing, 2, 16).unigram_entropy) == "0.0"


SCHEDULE = {0: 1.0, 7: 0.3, 30: 0.0}


def test_alpha_may_be_a_schedule(corpus):
    mixture = Mixture(corpus, 16, 32, alpha=SCHEDULE)
    sizes = np.array([corpus.num_tokens[language] for language in corpus.languages], float)
    bounds = [*SCHEDULE, 60]
    for (first, alpha), last in zip(SCHEDULE.items(), bounds[1:], strict=True):
        expected = sizes**alpha / (sizes**alpha).sum()
        seen = collections.Counter()
        for step in range(first, last):
            seen.update(mixture[step][0]["language_ids"].tolist())
            drawn = np.array([seen[i] for i in range(3)])
            assert np.abs(drawn - expected * drawn.sum()).max() <= 2
        so_far = mixture.rows(last) - mixture.rows(first)
        assert so_far.tolist() == drawn.tolist()
    np.testing.assert_allclose(mixture.weights, 1 / 3)
    same(Mixture(corpus, 16, 32, alpha=SCHEDULE)[45], mixture[45])
    same(mixture[3], Mixture(corpus, 16, 32, alpha=1.0)[3])


def test_a_language_continues_with_its_next_row_when_alpha_changes(corpus):
    """Its rows, in order, are those of a run with constant alpha."""

    def own(alpha, steps):
        rows = rows_of(Mixture(corpus, 8, 32, alpha=alpha), steps)
        return [row.tolist() for language, row in rows if corpus.languages[language] == "ja"]

    changed, plain = own({0: 0.9, 30: 0.1, 90: 1.0}, 120), own(0.0, 90)
    slices = corpus.num_tokens["ja"] // 32
    assert slices < min(len(changed), len(plain))  # into the second epoch
    assert changed == plain[: len(changed)]
    assert len({tuple(row) for row in changed[:slices]}) == slices


MISTAKES = {
    "BATCH_SIZE is 0": {"batch_size": 0},
    "SEQUENCE_LENGTH is 'long'": {"sequence_length": "long"},
    "alpha is 3": {"alpha": 3},
    r"alpha is \{3: 0.5\}; it must give an exponent from step 0 on": {"alpha": {3: 0.5}},
    "alpha is 2; it must be from 0": {"alpha": {0: 0.5, 9: 2}},
    "mask_rate is 0": {"mask_rate": 0},
    "it must give a share from step 0 on": {"mask_rate": {5: 0.1}},
    "mask_rate is 2": {"mask_rate": {0: 0.1, 5: 2}},
    "de has .* tokens, fewer than a row": {"sequence_length": 10**6},
}


@pytest.mark.parametrize("message", MISTAKES)
def test_settings_out_of_range_are_named(corpus, message):
    with pytest.raises(UserError, match=message):
        Mixture(corpus, **({"batch_size": 8, "sequence_length": 32} | MISTAKES[message]))


def test_words_that_no_piece_begins_are_not_masked_whole(corpus, monkeypatch):
    monkeypatch.setitem(vars(corpus.tokenizer), "starts_word", np.zeros(corpus.tokenizer.vocabulary_size, bool))
    with pytest.raises(UserError, match="do not say where words begin"):
        Mixture(corpus, batch_size=8, sequence_length=32, whole_word=True)
    Mixture(corpus, batch_size=8, sequence_length=32)


def test_a_blank_batch_is_shaped_like_a_real_one(corpus):
    for rate in (0.15, {0: 0.1, 3: 0.3}):
        (x, *others), (blank_x, *blanks) = Mixture(corpus, 4, 16, mask_rate=rate)[0], Mixture.blank(4, 16, rate)
        assert {key: (each.shape, each.dtype) for key, each in x.items()} == {
            key: (each.shape, each.dtype) for key, each in blank_x.items()
        }
        assert [(each.shape, each.dtype) for each in others] == [(each.shape, each.dtype) for each in blanks]
