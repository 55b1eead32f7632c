"""Vocabularies of `tokenizer.json` and `vocab.txt`: WordPiece, Unigram and BPE models.

A text whose pieces are all kept is segmented as before by each of the three. WordPiece takes the longest piece that
fits, and the one it took is still there. Unigram takes the best segmentation, and so is that. BPE joins the pair that
comes first in its list; the pairs that led to a kept piece stay with their parts, so at each step the pair that came
first before is there, and none that came later has moved before it.
"""

import copy
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

from rembed_keras.data.tokenizers.fast import FastTokenizer
from rembed_keras.data.tokenizers.protocol import AnyTokenizer
from rembed_keras.data.tokenizers.sentence_piece import SPACE
from rembed_keras.errors import UserError, shortened
from rembed_keras.interop.vocabularies.pieces import PREFERENCE

UNKNOWN_PENALTY = 10.0  # nats below the rarest piece, by which the library scores an unknown character


class FastVocabulary:
    """The pieces of a tokenizer of the `tokenizers` library, with the methods of `Vocabulary`.

    Args:
        tokenizer: the tokenizer.
    """

    def __init__(self, tokenizer: FastTokenizer):
        self.tokenizer = tokenizer
        self.parts: dict[str, Any] = tokenizer.parts
        self.model: dict[str, Any] = self.parts["model"]
        found = [tokenizer.piece(i) for i in range(tokenizer.vocabulary_size)]
        written = {each["id"]: each["content"] for each in self.parts["added_tokens"]}  # found as normalized text is
        self.pieces = [written.get(i, piece) for i, piece in enumerate(found)]
        self.ids = {piece: i for pieces in (found, self.pieces) for i, piece in enumerate(pieces) if piece}

    def needed(self, used: np.ndarray) -> np.ndarray:
        """Those, [UNK], the special pieces and what else is put around a text; rows that have no piece go."""
        kept = (used | self.tokenizer.is_special) & np.array([bool(piece) for piece in self.pieces])
        kept[[self.tokenizer.unk_id, *(self.ids[piece] for piece in _framing(self.parts.get("post_processor")))]] = True
        return kept

    def write_kept(self, kept: np.ndarray, path: Path) -> None:
        """See `Vocabulary`."""
        new = {self.pieces[old]: i for i, old in enumerate(kept.tolist())}
        parts = copy.deepcopy(self.parts)
        self.renumber(parts["model"], new)
        added = [each for each in parts["added_tokens"] if each["content"] in new]
        parts["added_tokens"] = [each | {"id": new[each["content"]]} for each in added]
        _renumber_frame(parts.get("post_processor"), new)
        _write(parts, path)

    def renumber(self, model: dict[str, Any], new: dict[str, int]) -> None:
        """Gives a model the pieces of `new` alone, by their new ids."""
        model["vocab"] = {
            piece: new[piece] for piece in sorted(model["vocab"].keys() & new.keys(), key=new.__getitem__)
        }

    def write_extended(self, lines: Sequence[str], path: Path) -> list[list[int]]:
        """See `Vocabulary`."""
        parts, former = copy.deepcopy(self.parts), []
        new: list[str] = []
        pieces = self.fill_gaps(parts["model"])
        for number, line in enumerate(lines, start=1):
            if not line or line in self.ids:
                continue
            piece = self.normalized(line)
            if not piece.strip(SPACE + " "):
                raise UserError(
                    f"line {number} of the pieces, {shortened(line)}, is empty after normalization: remove it"
                )
            if piece in self.ids or piece in new:
                continue
            former.append(self.add(parts, piece, len(self.pieces) + len(new), number))
            new.append(piece)
        _write(parts, path)
        if (wrong := _first_difference(FastVocabulary(FastTokenizer(path)).pieces, pieces + new)) is not None:
            path.unlink()
            raise UserError(
                f"{self.tokenizer.path}: no piece can be added, since others would have other ids then, such as "
                f"{shortened((pieces + new)[wrong])}: repair its ids first"
            )
        return former

    def fill_gaps(self, model: dict[str, Any]) -> list[str]:
        """Gives ids without a piece one that stands for no text: by their number the library would number new pieces.

        Args:
            model: that of a tokenizer's parts, whose vocabulary is filled.

        Returns:
            All pieces, by their ids.
        """
        names = (name for i in itertools.count() if (name := f"[unused{i}]") not in self.ids)
        pieces = [piece or next(names) for piece in self.pieces]
        if isinstance(model["vocab"], dict):
            model["vocab"] |= {piece: i for i, piece in enumerate(pieces) if not self.pieces[i]}
        return pieces

    def normalized(self, line: str) -> str:
        """A line after the tokenizer's normalization of text."""
        normalizer = tokenizers.Tokenizer.from_str(json.dumps(self.parts)).normalizer
        return normalizer.normalize_str(line).strip() if normalizer else line

    def check_word(self, text: str, piece: str, number: int) -> None:
        """Refuses a piece, of a line of that number, whose text is cut before the model sees it, which never finds it.

        Raises:
            UserError: if it is.
        """
        before = tokenizers.Tokenizer.from_str(json.dumps(self.parts)).pre_tokenizer
        if before is not None and len(before.pre_tokenize_str(text)) != 1:
            raise UserError(f"line {number} of the pieces, {shortened(piece)}, is not one word: remove it")

    def add(self, parts: dict[str, Any], piece: str, token_id: int, number: int) -> list[int]:
        """Adds a piece, of a line of that number, to the parts of a tokenizer, and returns its former segmentation.

        Raises:
            UserError: for a piece that cannot be added.
        """
        raise NotImplementedError


class WordPieceVocabulary(FastVocabulary):
    """The pieces of a WordPiece model, as BERT's.

    In its vocabulary a new piece would also begin longer words, whose rest may have no pieces. So it is a token that
    stands for a whole word alone, and no other text is segmented otherwise.
    """

    def normalized(self, line: str) -> str:
        """A line after the normalization of text, with spaces for U+2581, but before a word: pieces have none there."""
        return super().normalized(line.removeprefix(SPACE).replace(SPACE, " "))

    def add(self, parts, piece, token_id, number):
        """See `FastVocabulary`."""
        self.check_word(piece, piece, number)
        rules = {"single_word": True, "lstrip": False, "rstrip": False, "normalized": True, "special": False}
        parts["added_tokens"].append({"id": token_id, "content": piece} | rules)
        return self.tokenizer.encode(piece)


class UnigramVocabulary(FastVocabulary):
    """The pieces of a unigram model, as XLM-R's."""

    def needed(self, used: np.ndarray) -> np.ndarray:
        """As of all kinds, and the rarest piece, whose score gives that of unknown characters, and bytes."""
        kept = super().needed(used)
        scores = [score for _, score in self.model["vocab"]]
        kept[int(np.argmin(scores))] = True
        if self.model.get("byte_fallback"):
            kept |= np.array([piece.startswith("<0x") for piece in self.pieces])
        return kept

    def renumber(self, model, new):
        """See `FastVocabulary`."""
        unknown = model["vocab"][model["unk_id"]][0]
        scores = dict(model["vocab"])
        model["vocab"] = [[piece, scores[piece]] for piece in new if piece in scores]
        model["unk_id"] = new[unknown]

    def normalized(self, line: str) -> str:
        """A line after the normalization of text, with U+2581 for spaces, as pieces have it."""
        text = super().normalized(line.strip(SPACE).replace(SPACE, " ")).strip(SPACE)
        return (SPACE if line.startswith(SPACE) else "") + text.replace(" ", SPACE)

    def add(self, parts, piece, token_id, number):
        """See `FastVocabulary`; its score is slightly above that of its former segmentation, as in `pieces`."""
        if token_id != len(parts["model"]["vocab"]):
            raise UserError("its tokenizer has pieces beside those of its unigram model, so none can follow them")
        self.check_word(piece.replace(SPACE, " ").strip(), piece, number)
        plain = tokenizers.Tokenizer.from_str(json.dumps(self.parts | {"normalizer": None, "pre_tokenizer": None}))
        former = plain.encode(piece, add_special_tokens=False)
        scores = [score for _, score in self.model["vocab"]]
        scores[self.model["unk_id"]] = min(scores) - UNKNOWN_PENALTY
        # a row of unknown characters is one piece, each of which counts
        sizes = [
            end - start if i == self.model["unk_id"] else 1
            for i, (start, end) in zip(former.ids, former.offsets, strict=True)
        ]
        score = sum(size * scores[i] for i, size in zip(former.ids, sizes, strict=True))
        parts["model"]["vocab"].append([piece, score + PREFERENCE * (sum(sizes) - 1)])
        return former.ids


class BpeVocabulary(FastVocabulary):
    """The pieces of a BPE model, as RoBERTa's and ModernBERT's."""

    def needed(self, used: np.ndarray) -> np.ndarray:
        """As of all kinds, single characters and bytes, and the parts of pairs that lead to a kept piece."""
        kept = super().needed(used) | np.array([len(piece) == 1 or piece.startswith("<0x") for piece in self.pieces])
        made = np.array(
            [[self.ids[each] for each in (_joined(self.model, pair), *pair)] for pair in _pairs(self.model)], np.int64
        ).reshape(-1, 3)
        count = 0
        while count < (count := int(kept.sum())):  # a part may have parts itself
            kept[made[kept[made[:, 0]], 1:]] = True
        return kept

    def renumber(self, model, new):
        """See `FastVocabulary`."""
        super().renumber(model, new)
        model["merges"] = [[*pair] for pair in _pairs(model) if {*pair, _joined(model, pair)} <= new.keys()]

    def add(self, parts, piece, token_id, number):
        """Refuses: the pairs that lead to a new piece would join in other text too."""
        raise UserError("its tokenizer is a BPE model, to which no piece can be added without changing other text")


KINDS = {"WordPiece": WordPieceVocabulary, "Unigram": UnigramVocabulary, "BPE": BpeVocabulary}


def fast_vocabulary(tokenizer: AnyTokenizer) -> FastVocabulary:
    """The vocabulary of a tokenizer of the `tokenizers` library.

    Raises:
        UserError: for a kind of model that is not known.
    """
    if not isinstance(tokenizer, FastTokenizer):
        raise UserError(f"{tokenizer.path}: its vocabulary cannot be changed")
    kind = tokenizer.parts["model"]["type"]
    if kind not in KINDS:
        raise UserError(f"{tokenizer.path.name} has a {kind} model; vocabularies are changed of {', '.join(KINDS)}")
    return KINDS[kind](tokenizer)


def _pairs(model):
    """The pairs that a BPE model joins, in its order; old files write each as one string."""
    return [tuple(pair.split(" ")) if isinstance(pair, str) else tuple(pair) for pair in model["merges"]]


def _joined(model, pair):
    return pair[0] + pair[1].removeprefix(model.get("continuing_subword_prefix") or "")


def _framing(processor):
    """The pieces that a template puts around a text, which may be special or not."""
    entries = [entry for each in _processors(processor) for entry in (each.get("special_tokens") or {}).values()]
    return [piece for entry in entries for piece in entry["tokens"]]


def _renumber_frame(processor, new):
    """Gives the special pieces around a text their new ids."""
    for each in _processors(processor):
        for name, entry in (each.get("special_tokens") or {}).items():
            each["special_tokens"][name] = entry | {"ids": [new[piece] for piece in entry["tokens"]]}
        for role in ("sep", "cls"):  # of BERT's and RoBERTa's own
            if role in each:
                each[role] = [each[role][0], new[each[role][0]]]


def _processors(processor):
    """Yields a post-processor, if there is one, and those that it is made of."""
    if processor is not None:
        yield processor
        for each in processor.get("processors", ()):
            yield from _processors(each)


def _first_difference(found, pieces):
    """The first id at which a tokenizer has another piece than it should; None if there is none."""
    pairs = itertools.zip_longest(found[: len(pieces)], pieces)
    return next((i for i, (one, other) in enumerate(pairs) if one != other), None)


def _write(parts, path):
    text = json.dumps(parts, ensure_ascii=False)
    path.write_text(tokenizers.Tokenizer.from_str(text).to_str(), encoding="utf-8")
