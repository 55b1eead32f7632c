"""Batches and rows that change their size at a step."""

import numpy as np
import pytest

from rembed_keras.data.pipeline.mixture import Mixture
from rembed_keras.errors import UserError

GROWING = {"batch_size": {0: 8, 20: 2}, "sequence_length": {0: 16, 20: 64}}


def test_batches_have_the_sizes_of_their_phase(corpus):
    mixture, plain = Mixture(corpus, **GROWING), Mixture(corpus, 8, 16)
    assert (mixture.batch_size, mixture.sequence_length, mixture.num_predictions) == (2, 64, 10)
    for step in (0, 19):  # as without a schedule
        for ours, theirs in zip(mixture[step][0].items(), plain[step][0].items(), strict=True):
            np.testing.assert_array_equal(ours[1], theirs[1])
    x, y, weights = mixture[20]
    assert x["token_ids"].shape == (2, 64) and y.shape == weights.shape == (2, 10) and weights.sum() == 20
    first, second = mixture.phases(50)
    assert first == (0, 20, 8, 16) and second == (20, 50, 2, 64)
    assert [*mixture.phases(20)] == [first] and len(Mixture(corpus, 8, 16, alpha={0: 0.5, 9: 0.1}).phases(20)) == 1
    assert Mixture.blank(**GROWING)[0]["token_ids"].shape == (2, 64)


def test_tokens_are_those_of_all_phases(corpus):
    mixture = Mixture(corpus, **GROWING, alpha={0: 0.5, 30: 1.0})
    rows, tokens = np.zeros((2, 3), np.int64)
    for step in range(45):
        languages, counts = np.unique(mixture[step][0]["language_ids"], return_counts=True)
        rows[languages] += counts
        tokens[languages] += counts * mixture[step][0]["token_ids"].shape[1]
    assert mixture.rows(45).tolist() == rows.tolist() and mixture.tokens(45).tolist() == tokens.tolist()


def test_what_comes_after_the_last_step_is_left_out(held_out_corpus):
    """The last numbers and the longest rows are those of a run that never reaches what a schedule says of later."""
    later = {"batch_size": {0: 8, 9: 6}, "sequence_length": {0: 16, 9: 32}, "alpha": {0: 1.0, 9: 0.0}}
    later["mask_rate"] = {0: 0.2, 9: 0.4}
    mixture, plain = Mixture(held_out_corpus, **later), Mixture(held_out_corpus, 8, 16, alpha=1.0, mask_rate=0.2)
    bounded = mixture.up_to(9)
    for name in ("batch_size", "sequence_length", "num_predictions", "unigram_entropy"):
        assert getattr(bounded, name) == getattr(plain, name) != getattr(mixture, name)
    assert bounded.phases(9) == plain.phases(9) and bounded.weights.tolist() == plain.weights.tolist()
    for ours, theirs in ((bounded.held_out(9), plain.held_out(9)), (bounded[8], plain[8])):
        for one, two in zip((*ours[0].values(), *ours[1:]), (*theirs[0].values(), *theirs[1:]), strict=True):
            np.testing.assert_array_equal(one, two)
    whole = mixture.up_to(10)
    assert whole.sequence_length == 32 and whole.unigram_entropy == mixture.unigram_entropy
    assert whole[9][0]["token_ids"].tolist() == mixture[9][0]["token_ids"].tolist()


def test_longer_rows_begin_a_new_epoch(corpus):
    """The first epoch after the change has each slice of a language once, wherever it stood before."""
    mixture = Mixture(corpus, {0: 8, 20: 2}, {0: 16, 20: 64}, alpha=0.0)
    slices = corpus.num_tokens["ja"] // 64
    own = []
    for step in range(20, 20 + 2 * slices):
        languages, tokens = mixture._rows(step)
        own += [row for i, row in zip(languages, tokens.tolist(), strict=True) if corpus.languages[i] == "ja"]
    stream = corpus.tokens("ja", 0, corpus.num_tokens["ja"] // 64 * 64 + 63).tolist()
    starts = [next(i for i in range(len(stream)) if stream[i : i + 64] == row) for row in own[:slices]]
    assert slices > 20 and len({*starts}) == slices and len({start % 64 for start in starts}) == 1


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"batch_size": {5: 8}}, r"BATCH_SIZE is \{5: 8\}; it must give a size from step 0 on, as in \{0: 64"),
        ({"sequence_length": {0: 64, 9: "long"}}, r"SEQUENCE_LENGTH is .* must be a whole number of at least 8"),
        ({"sequence_length": {0: 64, 9: 10**7}}, "fewer than a row of SEQUENCE_LENGTH 10000000"),
    ],
)
def test_schedules_that_make_no_sense_are_refused(sizes, message, corpus):
    with pytest.raises(UserError, match=message):
        Mixture(corpus, **{"batch_size": 8, "sequence_length": 16} | sizes)
