"""A task in a language that has test examples alone."""

import numpy as np

from rembed_keras.errors import UserError
from rembed_keras.tasks.kinds.examples import Labelled, Splits

FEWEST = 20  # examples of which some can be scored


def in_language(splits: Splits, language: str) -> Splits:
    """Splits of a language's own: of its test examples half to train on, a tenth for development, the rest to test.

    What is learnt of them is compared with what transfers from the training language. The parts are drawn at random,
    always alike; where examples come from templates, the parts share them, so read scores beside the baselines, which
    are trained on the same. Candidate answers to one question stay together. Examples of a class that no training
    example has are left out.

    Args:
        splits: whose test examples have labels, of `Labelled`.
        language: one of its test sets.

    Raises:
        UserError: if there is no such test set, or too few of its examples have labels.

    >>> rows = [Labelled(str(i), f"text {i}", label="ab"[i % 2]) for i in range(40)]
    >>> own = in_language(Splits([], {}, {"de": rows}), "de")
    >>> len(own.train), len(own.dev["de"]), len(own.test["de"])
    (20, 4, 16)
    """
    if language not in splits.test:
        raise UserError(f"there are no test examples in {language!r}; there are some in {', '.join(splits.test)}")
    rows = [row for row in splits.test[language] if isinstance(row, Labelled) and row.label is not None]
    if len(rows) < FEWEST:
        raise UserError(f"{len(rows)} test examples in {language!r} have labels; {FEWEST} are needed to split them")
    questions: dict[str | int, list[Labelled]] = {}
    for number, row in enumerate(rows):
        questions.setdefault(number if row.group is None else row.group, []).append(row)
    together, count = [*questions.values()], len(questions)
    parts = np.split(np.random.default_rng(0).permutation(count), [count // 2, count * 6 // 10])
    train, dev, test = ([row for i in part for row in together[i]] for part in parts)
    known = {row.label for row in train}
    dev, test = ([row for row in part if row.label in known or not isinstance(row.label, str)] for part in (dev, test))
    return Splits(train, {language: dev}, {language: test}, splits.format, train_language=language)
