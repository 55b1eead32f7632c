"""Exact match and token F1 of answers as text, after normalisation of case, punctuation, articles and spaces.

Exact match (EM) is 1 if prediction and reference are equal after normalisation; F1 is over the words that they share.
With several references the best one counts. SQuAD's normalisation is English, and XTREME scores XQuAD and TyDiQA-GoldP
with it in every language; MLQA has its own for each of its seven. Sources: the evaluation scripts of SQuAD 1.1, MLQA
and ReCoRD.
"""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from rembed_keras.errors import UserError, did_you_mean

ENGLISH_ARTICLES = "a an the"
# the articles that MLQA removes; Hindi and Chinese have none
MLQA_ARTICLES = {
    "ar": "",
    "de": "ein eine einen einem eines einer der die das den dem des",
    "en": ENGLISH_ARTICLES,
    "es": "un una unos unas el la los las",
    "hi": "",
    "vi": "của là cái chiếc những",
    "zh": "",
}
# MLQA's script removes these two letters everywhere, inside a word too
ARABIC_ARTICLE = "ال"
# each ideograph is a word, and so is any other text between ideographs or spaces
MIXED_SEGMENTATION = re.compile("[\u4e00-\u9fa5]|[^\\s\u4e00-\u9fa5]+")


def squad_normalize(text: str) -> str:
    """An answer in lower case, without ASCII punctuation and English articles, single spaces between words.

    >>> squad_normalize("The  Eiffel-Tower, a sight!")
    'eiffeltower sight'
    """
    text = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return " ".join(_without(ENGLISH_ARTICLES, text).split())


def mlqa_normalize(text: str, language: str) -> str:
    """An answer as MLQA compares it: in lower case, without punctuation and articles, single spaces between words.

    Punctuation is that of Unicode and ASCII. Words are separated by spaces; in Chinese every ideograph is one.

    Args:
        text: an answer.
        language: "ar", "de", "en", "es", "hi", "vi" or "zh": that of the answer.

    Raises:
        UserError: for another language.

    >>> mlqa_normalize("¿El río «Amazonas»?", "es")
    'río amazonas'
    >>> mlqa_normalize("在1889年。", "zh")
    '在 1889 年'
    """
    if language not in MLQA_ARTICLES:
        known = ", ".join(MLQA_ARTICLES)
        raise UserError(f"MLQA has no language {language!r}, but {known}{did_you_mean(language, MLQA_ARTICLES)}")
    text = "".join(letter for letter in text.lower() if not _is_punctuation(letter))
    text = _without(MLQA_ARTICLES[language], text)
    if language == "ar":
        text = text.replace(ARABIC_ARTICLE, " ")
    return " ".join(MIXED_SEGMENTATION.findall(text) if language == "zh" else text.split())


def exact_match(prediction: str, references: Sequence[str], normalize: Callable[[str], str] = squad_normalize) -> float:
    """1 if a prediction equals one of the references after normalisation, else 0.

    Args:
        prediction: the predicted answer; "" for none.
        references: the right answers, one or more.
        normalize: the normalisation.

    Raises:
        ValueError: without references.

    >>> exact_match("the Moon.", ["Moon", "Earth's moon"])
    1.0
    """
    return float(normalize(prediction) in {normalize(reference) for reference in _some(references)})


def token_f1(prediction: str, references: Sequence[str], normalize: Callable[[str], str] = squad_normalize) -> float:
    """F1 over the words of a prediction and a reference; the highest over the references.

    A word counts as often as both have it. F1 is 0 where they share none, also where both are empty after
    normalisation, as "" and "the" are: SQuAD 1.1 then gives an exact match and no F1.

    Args:
        prediction: the predicted answer; "" for none.
        references: the right answers, one or more.
        normalize: the normalisation, which separates words by spaces.

    Raises:
        ValueError: without references.

    >>> token_f1("in the year 1889", ["1889", "March 1889"])
    0.5
    """
    given = normalize(prediction).split()
    return max(_overlap(given, normalize(reference).split()) for reference in _some(references))


def squad_scores(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """EM and F1 with SQuAD 1.1's normalisation: SQuAD, XQuAD and TyDiQA-GoldP, and ReCoRD.

    The references of a ReCoRD query are the names of its entity, each once.

    Args:
        predictions: predicted answers [N]; "" for none.
        references: right answers to each question [N], one or more.

    Returns:
        `{"exact_match": ..., "f1": ...}`, means over the questions, between 0 and 1.

    Raises:
        ValueError: without questions, for another number of predictions, or a question without references.

    >>> squad_scores(["the Moon", "Mars rover"], [["Moon"], ["Mars", "Phobos"]])
    {'exact_match': 0.5, 'f1': 0.833...}
    """
    return _scores(predictions, references, squad_normalize)


def mlqa_scores(predictions: Sequence[str], references: Sequence[Sequence[str]], language: str) -> dict[str, float]:
    """EM and F1 with MLQA's normalisation.

    Args:
        predictions: predicted answers [N]; "" for none.
        references: right answers to each question [N], one or more.
        language: that of the answers and the passage, not of the questions.

    Returns:
        `{"exact_match": ..., "f1": ...}`, means over the questions, between 0 and 1.

    Raises:
        UserError: for a language that MLQA does not have.
        ValueError: without questions, for another number of predictions, or a question without references.

    >>> mlqa_scores(["1889年三月"], [["1889年"]], "zh")
    {'exact_match': 0.0, 'f1': 0.666...}
    """
    return _scores(predictions, references, partial(mlqa_normalize, language=language))


def _scores(predictions, references, normalize):
    if len(predictions) != len(references) or not len(references):
        raise ValueError(f"there are {len(predictions)} predictions for {len(references)} questions")
    totals = {"exact_match": 0.0, "f1": 0.0}
    for given, right in zip(predictions, references, strict=True):
        totals["exact_match"] += exact_match(given, right, normalize)
        totals["f1"] += token_f1(given, right, normalize)
    return {name: total / len(references) for name, total in totals.items()}


def _some(references):
    if not references:
        raise ValueError("a question without a right answer cannot be scored")
    return references


def _overlap(given, right):
    shared = (Counter(given) & Counter(right)).total()
    return 2 * shared / (len(given) + len(right)) if shared else 0.0


def _without(words, text):
    """Text with some words replaced by spaces; `words` are separated by spaces."""
    return re.sub(rf"\b({words.replace(' ', '|')})\b", " ", text) if words else text


def _is_punctuation(letter):
    return letter in string.punctuation or unicodedata.category(letter).startswith("P")
