"""Sentences of words with tags."""

from collections.abc import Sequence

import keras

from rembed_keras.errors import UserError, shortened
from rembed_keras.preprocessing.labels import is_list, whole_numbers
from rembed_keras.preprocessing.texts import TextPreprocessor, rows_of, weights_of_rows
from rembed_keras.preprocessing.tokenizer import as_texts
from rembed_keras.tasks.kinds.examples import Tagged
from rembed_keras.tasks.kinds.tagging import encode_tagged


@keras.saving.register_keras_serializable(package="rembed_keras")
class TaggerPreprocessor(TextPreprocessor):
    """`[CLS] words [SEP]` with the tag of each word at its first piece, for `Tagger`.

    Args:
        tokenizer: a `Tokenizer`.
        sequence_length: S; a sentence that is longer continues in a row of its own. By default as in
            `TextClassifierPreprocessor`.
        num_segments: as in `TextClassifierPreprocessor`.
        name: the layer's name.

    Call arguments: sentences, each a list of words; `y`, a list of the numbers of their tags. Returns the inputs int32
    [N, S], and with `y` the tags int32 [N, S] and weights float32 [N, S], at the first piece of each word 1, or the
    sentence's `sample_weight`.

    Raises:
        UserError: for another number of tags than of words, and tags that are no whole numbers.

    >>> from rembed_keras import Tokenizer
    >>> tokenizer = Tokenizer.train(["the encoder is kept and the head is dropped"] * 20, vocabulary_size=20)
    >>> x, y, sample_weight = TaggerPreprocessor(tokenizer, sequence_length=16)([["the", "head"]], y=[[0, 1]])
    >>> y.shape, float(sample_weight.sum())
    ((1, 16), 2.0)
    """

    def arrays(self, x: Sequence[Sequence[str]], y, sample_weight):
        for words in x:
            if not is_list(words):
                is_text = isinstance(words, str | bytes)
                what = "a text: split it" if is_text else "none: leave it out"
                raise UserError(f"a sentence is a list of words, and {shortened(words)} is {what}")
        numbers = None if y is None else [_numbers(row) for row in y]
        tags = [None] * len(x) if numbers is None else [tuple(map(str, row)) for row in numbers]
        pairs = rows_of({"sentences": x, "rows of tags": tags})
        sentences = [Tagged(str(i), tuple(as_texts(words)), each) for i, (words, each) in enumerate(pairs)]
        known = [str(i) for i in range(1 + max((tag for row in numbers or () for tag in row), default=-1))]
        found = encode_tagged(sentences, self.tokenizer.model, self.sequence_length, known, self.num_segments)
        if y is None:
            return found.inputs, None, None
        of_sentences = weights_of_rows(sample_weight, len(sentences))
        if of_sentences is None:
            return found.inputs, found.targets, found.weights
        return found.inputs, found.targets, found.weights * of_sentences[found.rows, None]  # [N, S]


def _numbers(row):
    if not is_list(row):
        raise UserError(f"the tags of a sentence are a list of numbers, and {shortened(row)} is none")
    return whole_numbers(row, "tag: give their numbers, from 0")
