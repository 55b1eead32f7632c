"""Word similarity of the input table's vectors and of contextual ones at every layer."""

from functools import cached_property

import keras
import numpy as np

from rembed_keras.analysis.layers import context_counts, ppmi, similarity_correlation, states_of
from rembed_keras.data.corpus import Corpus
from rembed_keras.data.tokenizers.protocol import word_begins
from rembed_keras.errors import UserError
from rembed_keras.tasks.scores import finite
from rembed_keras.training.probing.features import measure_layers

WORDS, ROWS, FEWEST = 200, 256, 4  # words, rows of text for contextual vectors, occurrences of a word there
COUNTED = 1_000_000  # tokens of text that co-occurrences are counted in, at most


class WordProbing:
    """Words of the corpus, and how similar they are by the words around them.

    Words are pieces that are whole words: the most frequent of a language that begin a word, are three letters or more,
    and are read FEWEST times. A contextual vector is the mean of a word's states where it is a whole word.
    Vectors are centered, since those of a layer share a direction.

    Args:
        corpus: the prepared corpus.
        language: whose text is read, from its beginning.
        sequence_length: S.
        batch_size: B, rows at once.

    Raises:
        UserError: if fewer than 3 words are often enough in its text.
    """

    def __init__(self, corpus: Corpus, language: str, sequence_length: int, batch_size: int):
        self._batch_size = batch_size
        tokenizer, size = corpus.tokenizer, min(corpus.num_tokens[language], COUNTED) // sequence_length
        self._rows = rows = corpus.tokens(language, 0, size * sequence_length).reshape(-1, sequence_length)
        begins = word_begins(rows, tokenizer) | tokenizer.is_special[rows]
        begins[:, 1:] |= tokenizer.is_special[rows[:, :-1]]
        ends = np.ones(rows.shape, bool)
        ends[:, :-1] = begins[:, 1:]
        is_word = np.array([tokenizer.is_word(i) for i in range(tokenizer.vocabulary_size)])
        read = rows[:ROWS]
        self._is_whole = (begins & ends)[:ROWS] & is_word[read]
        often = np.bincount(read[self._is_whole], minlength=tokenizer.vocabulary_size)
        common = np.argsort(-corpus.unigram_counts(language), kind="stable")
        self.words = [int(i) for i in common if often[i] >= FEWEST][:WORDS]
        if len(self.words) < 3:
            raise UserError(f"corpus {corpus.path}: {language} has too little text to compare words")
        self.pieces = read[self._is_whole]  # [T], the word of each contextual vector
        self.inputs = {
            "token_ids": read,
            "segment_ids": np.zeros_like(read),
            "padding_mask": np.cumsum(read == tokenizer.cls_id, axis=1, dtype=np.int32) + 1,
        }
        self._is_special = tokenizer.is_special

    @cached_property
    def reference(self) -> np.ndarray:
        """PPMI of the words and the pieces around them, [W, C]."""
        return ppmi(context_counts(self._rows, self.words, len(self._is_special))[:, ~self._is_special])

    def score(self, encoder) -> dict:
        """Spearman's correlation with the similarity by co-occurrence: of the table's vectors, and by layer."""
        inputs = {name: self.inputs[name] for name in self.inputs if name in encoder.input}
        (states,) = measure_layers(encoder, inputs, self._batch_size, states_of, chosen=self._is_whole)
        layers = [np.stack([each[self.pieces == word].mean(axis=0) for word in self.words]) for each in states]
        ids = keras.ops.convert_to_tensor(np.array([self.words], np.int32))
        table = np.asarray(keras.ops.convert_to_numpy(encoder.token_embedding(ids))[0], np.float32)
        found = [similarity_correlation(self.reference, each - each.mean(axis=0)) for each in (table, *layers)]
        shown = [finite(value) for value in found]
        return {"table": shown[0], "layers": shown[1:]}
