"""Tokenizers as parts of a TensorFlow graph, with the ids of those outside it: SentencePiece and BERT's WordPiece.

tensorflow-text has both kinds of models. What BERT does to a text before is written here of TensorFlow's operations:
the ready-made normalizer of tensorflow-text either folds case and strips accents or does neither.
"""

from typing import Any

from rembed_keras.data.tokenizers.protocol import AnyTokenizer
from rembed_keras.data.tokenizers.sentence_piece import Tokenizer
from rembed_keras.errors import UserError
from rembed_keras.modeling.saving.exporting import check_tensorflow

BLANK = r"[\s\x{0B}\x{85}\p{Z}]"
CONTROL = r"[\x{00}-\x{08}\x{0B}\x{0C}\x{0E}-\x{1F}\x{7F}-\x{9F}\x{FFFD}\p{Cf}\p{Co}]"
CHINESE = (
    r"[\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2B73F}\x{2B740}-\x{2B81F}\x{2B920}-\x{2CEAF}"
    r"\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F}]"
)
PUNCTUATION = r"[!-/:-@\[-`{-~\p{P}]"
BYTES = 4  # of the longest character
WANTED = {"normalizer": "BertNormalizer", "pre_tokenizer": "BertPreTokenizer", "model": "WordPiece"}


def in_graph(tokenizer: AnyTokenizer) -> Any:
    """A `tf.Module` whose `tokenize(texts)` makes of strings [B] the ids of each, without special pieces, int32 ragged.

    Special pieces that a text spells are read as outside a graph: as text, but for user-defined ones of SentencePiece.

    Raises:
        UserError: for a tokenizer that has no twin in a graph.
    """
    check_in_graph(tokenizer)
    import tensorflow as tf
    import tensorflow_text as tf_text

    if isinstance(tokenizer, Tokenizer):
        return tf_text.SentencepieceTokenizer(tokenizer.contents, out_type=tf.int32)

    model, steps = tokenizer.parts["model"], tokenizer.parts["normalizer"]  # type: ignore[attr-defined]
    longest = model["max_input_chars_per_word"]
    strips = steps["lowercase"] if steps["strip_accents"] is None else steps["strip_accents"]
    unknown = model["unk_token"]
    rows = [tokenizer.piece(i) for i in range(tokenizer.vocabulary_size)]
    # a row without a piece of the model gets one that no word can be
    pieces = [piece if piece in model["vocab"] else f"[no piece {i}]" for i, piece in enumerate(rows)]
    replace = tf.strings.regex_replace

    class WordPiece(tf.Module):
        def __init__(self):
            super().__init__()
            self.model = tf_text.FastWordpieceTokenizer(
                pieces,
                suffix_indicator=model["continuing_subword_prefix"],
                max_bytes_per_word=BYTES * longest + 1,
                token_out_type=tf.int32,
                unknown_token=unknown,
                no_pretokenization=True,
            )

        def tokenize(self, texts):
            words = tf.strings.split(self.words(texts), " ")  # [B, words]
            sizes = tf.strings.length(words.flat_values, "UTF8_CHAR")
            words = words.with_flat_values(tf.where(sizes > longest, unknown, words.flat_values))
            found = self.model.tokenize(words.flat_values)
            return words.with_flat_values(found).merge_dims(1, 2)

        def words(self, texts):
            if steps["clean_text"]:
                texts = replace(replace(texts, CONTROL, ""), BLANK, " ")
            if steps["handle_chinese_chars"]:
                texts = replace(texts, f"({CHINESE})", r" \1 ")
            if strips:
                texts = replace(tf_text.normalize_utf8(texts, "NFD"), r"\p{Mn}", "")
            if steps["lowercase"]:  # letter by letter: a capital sigma that ends a word would become another letter
                texts = tf.strings.lower(replace(texts, "\u03a3", "\u03c3"), encoding="utf-8")
            texts = replace(texts, f"({PUNCTUATION})", r" \1 ")
            return tf.strings.strip(replace(texts, f"{BLANK}+", " "))

    return WordPiece()


def check_servable() -> None:
    """Checks that a SavedModel can be written here, before a model is read for it.

    Raises:
        UserError: on JAX, and where TensorFlow or tensorflow-text is not installed.
    """
    check_tensorflow("a SavedModel", ("tensorflow", "tensorflow_text"))


def check_in_graph(tokenizer: AnyTokenizer) -> None:
    """Checks that a tokenizer can be part of a graph.

    Raises:
        UserError: for one that is neither a SentencePiece model nor a WordPiece model with BERT's words.
    """
    if isinstance(tokenizer, Tokenizer):
        return
    parts = getattr(tokenizer, "parts", {})
    found = {name: (parts.get(name) or {}).get("type") for name in WANTED}
    reads = "SentencePiece models, and WordPiece models with the words of BERT"
    if found != WANTED:
        kinds = ", ".join(str(kind) for kind in found.values())
        raise UserError(
            f"{tokenizer.path}: a SavedModel reads strings by {reads}; this is {kinds}, without a twin there"
        )
    if added := [each["content"] for each in parts["added_tokens"] if not each["special"]]:
        raise UserError(
            f"{tokenizer.path}: a SavedModel reads strings by {reads}, without added pieces such as {added[0]!r}"
        )
