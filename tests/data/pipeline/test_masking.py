import numpy as np
import pytest
from scipy import stats

from rembed_keras.data.pipeline.masking import mask_rows


@pytest.fixture(scope="module")
def rows(corpus):
    return corpus.tokens("en", 0, 120 * 64).reshape(120, 64)


def mask(rows, corpus, seed=0, num_predictions=10, **options):
    return mask_rows(rows, num_predictions, np.random.default_rng(seed), corpus.tokenizer, **options)


def test_every_row_has_as_many_predictions_and_has_the_original_ids_as_labels(rows, corpus):
    masked = mask(rows, corpus)
    positions, labels = masked["mask_positions"], masked["mask_ids"]
    assert (masked["mask_weights"] == 1).all()
    assert (np.diff(positions, axis=1) > 0).all()
    np.testing.assert_array_equal(np.take_along_axis(rows, positions, axis=1), labels)
    assert not corpus.tokenizer.is_special[labels].any()
    untouched = np.ones_like(rows, bool)
    np.put_along_axis(untouched, positions, False, axis=1)
    np.testing.assert_array_equal(masked["token_ids"][untouched], rows[untouched])


def test_the_shares_are_80_10_10_and_random_pieces_are_uniform(rows, corpus):
    tokenizer = corpus.tokenizer
    masks = kept = total = 0
    drawn = []
    for seed in range(60):
        masked = mask(rows, corpus, seed)
        shown = np.take_along_axis(masked["token_ids"], masked["mask_positions"], axis=1)
        masks += (shown == tokenizer.mask_id).sum()
        kept += (shown == masked["mask_ids"]).sum()
        drawn.append(shown[(shown != tokenizer.mask_id) & (shown != masked["mask_ids"])])
        total += shown.size
    drawn = np.concatenate(drawn)
    assert not tokenizer.is_special[drawn].any()
    assert stats.chisquare([masks, kept, len(drawn)], np.array([0.8, 0.1, 0.1]) * total).pvalue > 0.01
    counts = np.bincount(drawn, minlength=tokenizer.vocabulary_size)[~tokenizer.is_special]
    assert stats.chisquare(counts).pvalue > 0.001


def test_every_token_of_text_is_equally_likely(rows, corpus):
    row = np.repeat(rows[:1], 5000, axis=0)
    masked = mask(row, corpus)
    counts = np.bincount(masked["mask_positions"].ravel(), minlength=64)[~corpus.tokenizer.is_special[rows[0]]]
    assert counts.sum() == 50_000
    # each row draws without repetition, so counts vary less than a multinomial's: a high p-value is no surprise
    assert stats.chisquare(counts).pvalue > 0.001


def test_short_texts_leave_slots_empty(corpus):
    row = np.array([[2, 50, 60, 3] + [0] * 60])
    masked = mask(row, corpus)
    assert masked["mask_weights"].tolist() == [[1, 1] + [0] * 8]
    assert masked["mask_positions"].tolist() == [[1, 2] + [0] * 8]
    assert masked["mask_ids"].tolist() == [[50, 60] + [0] * 8]
    assert masked["token_ids"][0, 0] == 2


def test_the_same_generator_gives_the_same_masks(rows, corpus):
    first, second, other = (mask(rows, corpus, seed)["mask_positions"] for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, second)
    assert (first != other).any()


def test_whole_words_are_masked_whole(rows, corpus):
    tokenizer = corpus.tokenizer
    masked = mask(rows, corpus, whole_word=True)
    chosen = np.zeros_like(rows, bool)
    real = masked["mask_weights"] == 1
    for row, (positions, weights) in enumerate(zip(masked["mask_positions"], real, strict=True)):
        chosen[row, positions[weights]] = True
    special = tokenizer.is_special[rows]
    begins = tokenizer.starts_word[rows] | special
    for row in range(len(rows)):
        words = np.split(np.arange(64), np.flatnonzero(begins[row])[1 if begins[row, 0] else 0 :])
        for word in words:
            inside = word[~special[row, word]]
            assert chosen[row, inside].all() or not chosen[row, inside].any()
    assert real.sum(axis=1).max() <= 10
    assert real.mean() > 0.97  # words of one piece fill the remaining slots
    assert len({tuple(mask(rows[:1], corpus, seed, whole_word=True)["mask_positions"][0]) for seed in range(20)}) > 15
