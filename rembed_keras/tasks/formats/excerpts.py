"""The first examples of each part of a task, to see whether a recipe runs before all of them are paid for."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import dropwhile, groupby, islice
from typing import Any

from rembed_keras.errors import Count, check_counts
from rembed_keras.tasks.kinds.examples import Example, Question, Splits, Tagged
from rembed_keras.tasks.retrieval.bitext import Bitext, BitextSplits


def excerpt(splits: Splits | BitextSplits, most: Count) -> Splits | BitextSplits:
    """The first examples of every part, in their order.

    Training examples have every label of the whole, whatever it takes, and where only later examples of another part
    are labeled it has the first of them too. Candidate answers to one question stay together, and so do sentences and
    their translations.

    Args:
        splits: all examples of a task, or all sentences of a bitext task.
        most: about how many examples a part, and a language of it, keeps.

    Raises:
        UserError: for no examples.

    >>> from rembed_keras.tasks.kinds.examples import Labelled
    >>> rows = [Labelled(str(i), "a text", label="ab"[i > 7]) for i in range(10)]
    >>> [example.id for example in excerpt(Splits(rows, test={"en": rows}), most=2).train]
    ['0', '8']
    >>> [example.id for example in excerpt(Splits(rows, test={"en": rows}), most=2).test["en"]]
    ['0', '1']
    """
    check_counts({"most": most})
    if isinstance(splits, BitextSplits):
        return BitextSplits(*({key: _pairs(each, most) for key, each in part.items()} for part in _parts(splits)))
    dev, test = ({key: _with_a_labeled_one(each, most) for key, each in part.items()} for part in _parts(splits))
    return replace(splits, train=_with_all_labels(splits.train, most), dev=dev, test=test)


def _parts(splits):
    return splits.dev, splits.test


def _question(example: Any) -> Any:
    """What must not be cut apart: the candidate answers to a question, or an example, which of one's own has no id."""
    return getattr(example, "group", None) or getattr(example, "id", id(example))


def _first(examples: Sequence[Example], most: int) -> Iterator[Example]:
    """Yields examples until there are enough, and the rest of the last one's question."""
    taken = 0
    for _, together in groupby(examples, _question):
        if taken >= most:
            return
        for example in together:
            taken += 1
            yield example


def _with_a_labeled_one(examples: Sequence[Example], most: int) -> list[Example]:
    """The first questions, and after them the first that has an answer if none of them has."""
    chosen = [*_first(examples, most)]
    if any(map(_has_answer, chosen)):
        return chosen
    return [*chosen, *_first([*dropwhile(lambda example: not _has_answer(example), examples)], 1)]


def _has_answer(example: Any) -> bool:
    return bool(example.answers) if isinstance(example, Question) else getattr(example, "target", True) is not None


def _labels(example: Any) -> Iterable[str]:
    """The names of labels that an example shows; numbers and answers are none."""
    if isinstance(example, Tagged):
        return example.tags or ()
    label = getattr(example, "label", None)
    return (label,) if isinstance(label, str) else ()


def _with_all_labels(examples: Sequence[Example], most: int) -> list[Example]:
    """The first questions that show a label which none before shows, and the first others up to `most` examples."""
    questions = [[*together] for _, together in groupby(examples, _question)]
    known: set[str] = set()
    chosen, size = set(), 0
    for number, together in enumerate(questions):
        own = {label for example in together for label in _labels(example)}
        if not own <= known:
            known |= own
            chosen.add(number)
            size += len(together)
    for number, together in enumerate(questions):
        if size >= most:
            break
        if number not in chosen:
            chosen.add(number)
            size += len(together)
    return [example for number in sorted(chosen) for example in questions[number]]


def _pairs(bitext: Bitext, most: int) -> Bitext:
    """The first sentences that have a translation, with it, and the first of those that have none."""
    if bitext.gold is None:
        return Bitext(_some(bitext.english, bitext.english, most), _some(bitext.others, bitext.others, most))
    translations = {ours: other for other, ours in bitext.gold}
    names = [*islice((name for name in bitext.english if name in translations), most)]
    gold = frozenset((translations[name], name) for name in names)
    without = [{pair[side] for pair in bitext.gold} for side in (1, 0)]
    english, others = (
        _some(side, [name for name in side if name not in paired], most)
        for side, paired in zip((bitext.english, bitext.others), without, strict=True)
    )
    return Bitext(
        {name: bitext.english[name] for name in names} | english,
        {translations[name]: bitext.others[translations[name]] for name in names} | others,
        gold,
    )


def _some(sentences: Mapping[str, str], names: Iterable[str], most: int) -> dict[str, str]:
    return {name: sentences[name] for name in islice(names, most)}
