"""Where words begin, and what can be one, by the letters of pieces: marks, as vowel signs of Hindi, go with letters."""

import unicodedata

# prefixes of the Unicode names of letters in scripts without spaces between words: there every piece starts a word
SOLID = ("CJK", "HIRAGANA", "KATAKANA")  # those without spaces between sentences either
UNSPACED = (*SOLID, "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")
WITHIN = ("M", "Cf")  # categories of what is in words beside letters: marks, and joiners
BREAK = "\u200b"  # the space of no width, which separates words of Khmer and Burmese, is no joiner
LETTERS = 3  # of the shortest words that are compared


def begins_word(piece: str) -> bool:
    """Whether a piece begins with a space, which may be U+2581, with punctuation, or in a script without spaces.

    A mark or a joiner, which goes on with the word before it, is no punctuation.

    >>> [begins_word(piece) for piece in ("\u2581a", "a", "!", "の", "ी", "\u200da", "\u200ba")]
    [True, False, True, True, False, False, True]
    """
    first = piece[:1]
    return not (first.isalnum() or _goes_on(first)) or unicodedata.name(first, "").startswith(UNSPACED)


def follows_space(word: str) -> bool:
    """Whether there is a space before a word in a text, as far as its first character says.

    >>> [follows_space(word) for word in ("a", "7", "!", "字")]
    [True, True, False, False]
    """
    return word[:1].isalnum() and not unicodedata.name(word[0], "").startswith(SOLID)


def count_letters(text: str) -> int:
    """Letters of a text of letters, and of marks and joiners, which do not count; 0 for any other text.

    >>> [count_letters(text) for text in ("and", "हिन्दी", "don't")]
    [3, 3, 0]
    """
    others = [character for character in text if not _goes_on(character)]
    return len(others) if all(map(str.isalpha, others)) else 0


def _goes_on(character):
    return character not in ("", BREAK) and unicodedata.category(character).startswith(WITHIN)
