"""Sequence labelling: words with tags as the encoder's inputs, and tags of pieces back to tags of words.

Every word is tokenized by itself, as in XTREME, so its pieces do not depend on its neighbors. Words are taken to have a
space between them: a tokenizer that would write them without one, as byte-level BPE, reads every word but the first of
a sentence with a space before it. A word's tag is that of its first piece; the other pieces have no target.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from rembed_keras.data.tokenizers.protocol import AnyTokenizer
from rembed_keras.errors import UserError, did_you_mean
from rembed_keras.modeling import Tagger
from rembed_keras.tasks.formats.columns import WordFormat
from rembed_keras.tasks.kinds.encoding import Encoded, fill_rows
from rembed_keras.tasks.kinds.examples import Splits, Tagged
from rembed_keras.tasks.kinds.task import Task
from rembed_keras.tasks.metrics import pos_f1, seqeval_metrics, span_f1, tag_accuracy

SPAN = ("B-", "I-", "E-", "S-")  # prefixes of the tags of a span's words


def encode_tagged(
    sentences: Sequence[Tagged],
    tokenizer: AnyTokenizer,
    sequence_length: int,
    tags: Sequence[str],
    num_segments: int = 2,
) -> Encoded:
    """`[CLS] words [SEP]`, with each word's tag as target of its first piece.

    A sentence that is longer than a row is continued in the next row at a word boundary, so every word is predicted
    once. Only a word that is longer than a whole row is truncated, and has a row of its own. A word without pieces,
    such as a lone space, is one [UNK].

    Args:
        sentences: sentences of words; one without words has a row without a target.
        tokenizer: the encoder's.
        sequence_length: S, 3 or more.
        tags: names in the order of their ids.
        num_segments: as in `encode_pairs`; all tokens are of segment 0.

    Returns:
        Rows with `targets` int32 [N, S], None if any sentence is unlabeled, and `weights` 1 at the first piece of each
        word, labeled or not.

    Raises:
        UserError: for an unknown tag, another number of tags than of words, or a sequence length below 3.

    Source: Hu et al. 2020, "XTREME", POS and NER; the first piece as in Devlin et al. 2019, section 5.3.
    """
    if sequence_length < 3:
        raise UserError(f"the sequence length is {sequence_length}; a word needs 3 or more")
    room = sequence_length - 2
    tag_ids = _tag_ids(sentences, tags)
    pieces = _pieces_of_words(sentences, tokenizer)
    lost = [sum(max(0, len(word) - room) for word in words) for words in pieces]
    rows: list[int] = []
    contents: list[list[int]] = []
    places: list[np.ndarray] = []
    for number, sentence in enumerate(pieces):
        for words in _wrapped([word[:room] for word in sentence], room):
            rows.append(number)
            contents.append([piece for word in words for piece in word])
            places.append(np.cumsum([1, *map(len, words)])[:-1])
    weights = np.zeros((len(rows), sequence_length), np.float32)
    for row, first_pieces in enumerate(places):
        weights[row, first_pieces] = 1
    targets = None
    if tag_ids is not None:
        targets = np.zeros(weights.shape, np.int32)
        targets[weights > 0] = tag_ids
    return Encoded(
        inputs=fill_rows(contents, [None] * len(rows), tokenizer, sequence_length, num_segments),
        targets=targets,
        weights=weights,
        rows=np.array(rows, np.int32),
        truncated=sum(count > 0 for count in lost),
        lost=sum(lost),
    )


def decode_tags(predicted: np.ndarray, encoded: Encoded, tags: Sequence[str]) -> list[tuple[str, ...]]:
    """The tags of every sentence's words.

    Args:
        predicted: ids of tags [N, S], for every token of every row.
        encoded: the rows, from `encode_tagged`.
        tags: names in the order of their ids.

    Returns:
        For each sentence as many tags as it has words.

    Raises:
        ValueError: for predictions of other rows.

    >>> rows, weights = np.array([0, 0, 1], np.int32), np.array([[0, 1, 0, 0], [0, 1, 1, 0], [0, 1, 0, 0]])
    >>> encoded = Encoded({}, None, weights, rows, truncated=0, lost=0)
    >>> decode_tags([[0, 1, 0, 0], [0, 0, 1, 0], [1, 0, 1, 1]], encoded, ["NOUN", "VERB"])
    [('VERB', 'NOUN', 'VERB'), ('NOUN',)]
    """
    weights = np.asarray(encoded.weights)
    if np.shape(predicted) != weights.shape:
        raise ValueError(f"predicted tags have shape {np.shape(predicted)} for rows of shape {weights.shape}")
    sentences: list[list[str]] = [[] for _ in range(encoded.rows[-1] + 1 if len(encoded.rows) else 0)]
    for number, ids, is_first_piece in zip(encoded.rows, np.asarray(predicted), weights > 0, strict=True):
        sentences[number] += [tags[i] for i in ids[is_first_piece]]
    return [tuple(sentence) for sentence in sentences]


def _wrapped(words: Sequence[list[int]], room: int) -> list[list[list[int]]]:
    """Words in rows, each with as many as fit."""
    rows: list[list[list[int]]] = [[]]
    used = 0
    for word in words:
        if used + len(word) > room:
            rows.append([])
            used = 0
        rows[-1].append(word)
        used += len(word)
    return rows


def _pieces_of_words(sentences, tokenizer) -> list[list[list[int]]]:
    """Ids of each word of each sentence."""
    space = " " if _leaves_out_spaces(tokenizer) else ""
    written = [[space * (i > 0 and word != "") + word for i, word in enumerate(each.words)] for each in sentences]
    words = list(dict.fromkeys(word for sentence in written for word in sentence))
    ids = {word: ids or [tokenizer.unk_id] for word, ids in zip(words, tokenizer.encode_batch(words), strict=True)}
    return [[ids[word] for word in sentence] for sentence in written]


def _leaves_out_spaces(tokenizer) -> bool:
    """Whether words that are encoded one by one are text without spaces, and are not with a space before each."""
    bare, spaced = tokenizer.encode_batch(["a", " a"])
    return tokenizer.decode(bare + bare) == "aa" and tokenizer.decode(bare + spaced) == "a a"


def _tag_ids(sentences, tags) -> list[int] | None:
    """Ids of the tags of all words of all sentences; None if any sentence is unlabeled."""
    known = {tag: i for i, tag in enumerate(tags)}
    for sentence in sentences:
        if sentence.tags is None:
            continue
        if len(sentence.tags) != len(sentence.words):
            raise UserError(f"sentence {sentence.id} has {len(sentence.words)} words and {len(sentence.tags)} tags")
        strange = next((tag for tag in sentence.tags if tag not in known), None)
        if strange is not None:
            raise UserError(f"sentence {sentence.id}: there is no tag {strange!r}{did_you_mean(strange, known)}")
    if any(sentence.tags is None for sentence in sentences):
        return None
    return [known[tag] for sentence in sentences for tag in sentence.tags]


class Tagging(Task):
    """A tag for every word.

    Args:
        name: as in `Task`.
        splits: examples of `Tagged`.
        metrics: as in `Task`; of sentences of tags. By default accuracy, preceded by span F1 where every tag is "O" or
            part of a span, such as "B-PER".
        tags: names in the order of their ids; those of the training examples, sorted, by default.
        train_language: as in `Task`.
        part: as in `Task`.

    Raises:
        UserError: for fewer than two tags, or one that is not in the training data.
    """

    takes = "words with tags"
    format = WordFormat

    def __init__(
        self,
        name: str,
        splits: Splits | None,
        metrics: Mapping[str, Callable] | None = None,
        tags: Sequence[str] | None = None,
        train_language: str | None = None,
        part: str = "test",
    ):
        super().__init__(name, splits, metrics or {"accuracy": tag_accuracy}, train_language, part)
        trained = {tag for example in self.splits.train for tag in example.tags}
        self.tags = sorted(trained) if tags is None else list(tags)
        if len(self.tags) < 2:
            raise UserError(f"task {name}: the training data has fewer than two tags")
        self.check_labels(trained, self.tags, lambda example: example.tags or ())
        if not metrics and all(tag == "O" or tag.startswith(SPAN) for tag in self.tags):
            self.metrics = {"f1": span_f1} | self.metrics
        if splits is not None and {span_f1, pos_f1} & set(self.metrics.values()):
            seqeval_metrics()  # before anything is trained

    def fits(self, example):
        return isinstance(example, Tagged)

    def gold(self, example):
        return example.tags

    def make_model(self, encoder, dropout):
        return Tagger(encoder, len(self.tags), dropout)

    def encode(self, examples, tokenizer, sequence_length, num_segments=2):
        return encode_tagged(examples, tokenizer, sequence_length, self.tags, num_segments)

    def answers(self, examples, encoded, outputs):
        return [list(tags) for tags in decode_tags(np.argmax(outputs, axis=-1), encoded, self.tags)]

    def correct(self, example, answer):
        """The share of words with the right tag."""
        hits = [ours == theirs for ours, theirs in zip(answer, example.tags, strict=True)]
        return sum(hits) / len(hits) if hits else 1.0

    def baselines(self):
        every = Counter(tag for example in self.splits.train for tag in example.tags)
        by_word: dict[str, Counter] = defaultdict(Counter)
        for example in self.splits.train:
            for word, tag in zip(example.words, example.tags, strict=True):
                by_word[word][tag] += 1
        most = every.most_common(1)[0][0]
        known = {word: counts.most_common(1)[0][0] for word, counts in by_word.items()}
        return {
            "lexicon": lambda examples: [[known.get(word, most) for word in example.words] for example in examples],
            "majority": lambda examples: [[most] * len(example.words) for example in examples],
        }

    def description(self):
        return super().description() | {"tags": self.tags}
