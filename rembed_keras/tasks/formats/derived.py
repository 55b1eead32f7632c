"""Tasks whose labels come from the text itself, so that any text in any language has as many as it has words.

Lines of parallel text are split by their number, so no translation of a training sentence is in a test set. A label
that no training example has is left out, and so is a language that has no test sentence then.
"""

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache

from rembed_keras.data.tokenizers.words import UNSPACED
from rembed_keras.errors import UserError
from rembed_keras.tasks.kinds.examples import Example, Labelled, Splits, Tagged
from rembed_keras.tasks.retrieval.parallel_text import ParallelText

ALL_LANGUAGES = "all"
PARTS = ("train", "train", "train", "dev", "test", "test")  # of six lines
BANDS = ((1, "1"), (3, "2-3"), (15, "4-15"))  # occurrences of a word up to a number; others are of the last band
OFTEN = "16 or more"
LENGTHS = (16, 32, 64, 128)  # characters


def capitalization(text: ParallelText, train_language: str = "en") -> Splits:
    """Words in lower case, and whether each began with a capital: "capital" or "small".

    The first word of a sentence is left out, which is a capital by its place, and so are languages without capitals.

    Args:
        text: the sentences.
        train_language: the language of the training examples, or "all".
    """

    def tag(language, lines):
        for number, words in _words(lines):
            if len(words) > 1:
                tags = tuple("capital" if word[0].isupper() else "small" for word in words[1:])
                yield number, Tagged(str(number), tuple(word.lower() for word in words[1:]), tags)

    return _splits(text, train_language, tag, lambda found: _have_capitals([each for _, each in found]))


def frequency_bands(text: ParallelText, train_language: str = "en") -> Splits:
    """Words, and how often each occurs in all of its language's lines: "1", "2-3", "4-15" or "16 or more" times.

    Languages without spaces between words are left out.

    Args:
        text: as in `capitalization`.
        train_language: as in `capitalization`.
    """

    def tag(language, lines):
        counts = Counter(word.lower() for _, words in _words(lines) for word in words)
        for number, words in _words(lines):
            yield number, Tagged(str(number), tuple(words), tuple(_band(counts[word.lower()]) for word in words))

    return _splits(text, train_language, tag)


def scripts(text: ParallelText, train_language: str = "all") -> Splits:
    """Sentences, and the script of most of their letters, as Unicode names it: "LATIN", "HANGUL", "CJK".

    Args:
        text: as in `capitalization`.
        train_language: as in `capitalization`; a language alone has one script, mostly.
    """

    def label(language, lines):
        for number, line in lines:
            found = Counter(_script(character) for character in line if character.isalpha())
            if found:
                yield number, Labelled(str(number), line, None, found.most_common(1)[0][0])

    return _splits(text, train_language, label)


def sentence_lengths(text: ParallelText, train_language: str = "en") -> Splits:
    """Sentences, and their length in characters: "up to 16", "up to 32" and so on, "over 128".

    Args:
        text: as in `capitalization`.
        train_language: as in `capitalization`.
    """

    def label(language, lines):
        for number, line in lines:
            limit = next((limit for limit in LENGTHS if len(line) <= limit), None)
            yield number, Labelled(str(number), line, None, f"up to {limit}" if limit else f"over {LENGTHS[-1]}")

    return _splits(text, train_language, label)


def balanced_accuracy(labels: Sequence[Sequence[str]], predictions: Sequence[Sequence[str]]) -> float:
    """The mean over tags of the share of words with the tag that got it: 1 / K for any one of K tags, however frequent.

    Args:
        labels: tags of each sentence.
        predictions: tags of each sentence.

    >>> balanced_accuracy([["small", "small"], ["small", "capital"]], [["small", "small"], ["small", "small"]])
    0.5
    """
    hits, words = Counter[str](), Counter[str]()
    for ours, theirs in zip(labels, predictions, strict=True):
        words.update(ours)
        hits.update(tag for tag, other in zip(ours, theirs, strict=True) if tag == other)
    return sum(hits[tag] / count for tag, count in words.items()) / len(words)


def _splits(
    text: ParallelText,
    train_language: str,
    examples_of: Callable[[str, Sequence[tuple[int, str]]], Iterator[tuple[int, Example]]],
    is_kept: Callable[[Sequence[tuple[int, Example]]], bool] = bool,
) -> Splits:
    if train_language not in (*text.lines, ALL_LANGUAGES):
        raise UserError(f"{text.name} has no language {train_language!r} to derive training examples from")
    by_language = {}
    for language, lines in text.lines.items():
        found = [*examples_of(language, [(number, line) for number, line in enumerate(lines) if line])]
        if is_kept(found):
            by_language[language] = found
    ours = [*by_language] if train_language == ALL_LANGUAGES else [train_language]
    train = [*_part(by_language, ours, "train")]
    known = {label for example in train for label in _labels(example)}
    dev, test = (
        {
            language: rows
            for language in by_language
            if (rows := [row for row in _part(by_language, [language], part) if known.issuperset(_labels(row))])
        }
        for part in ("dev", "test")
    )
    if train_language == ALL_LANGUAGES:
        named = [replace(row, id=f"{name}-{row.id}") for name, rows in dev.items() for row in rows]
        dev = {ALL_LANGUAGES: named}
    return Splits(train, dev, test, train_language=train_language)


def _part(by_language: Mapping[str, Sequence], languages: Iterable[str], part: str) -> Iterator[Example]:
    for language in languages:
        for number, example in by_language.get(language, ()):
            if PARTS[number % len(PARTS)] == part:
                yield example


def _labels(example):
    return example.tags if isinstance(example, Tagged) else (example.label,)


def _have_capitals(sentences):
    """Whether some words of a language have one, and most could: names in Latin letters, in Korean, make it none."""
    first = Counter(word[0].islower() for each in sentences for word in each.words if word[0].isalpha())
    return first[True] > first[False] and any("capital" in each.tags for each in sentences)


def _words(lines):
    """Words of each line, of languages that have spaces: of whose letters not most are of scripts without."""
    letters = Counter(_script(letter) in UNSPACED for _, line in lines for letter in line if letter.isalpha())
    if letters[True] > letters[False]:
        return
    for number, line in lines:
        words = line.split()
        if words and _script(next(filter(str.isalpha, line), " ")) not in UNSPACED:
            yield number, words


def _band(count):
    return next((name for most, name in BANDS if count <= most), OFTEN)


@cache
def _script(character):
    return unicodedata.name(character, "UNKNOWN").split()[0].split("-")[0]
