"""A SentencePiece model as Hugging Face's libraries read it: `tokenizer.json` and its configuration.

Given the model alone, transformers applies the family's own tokenizer class: ALBERT's lowercases, BERT's does not read
SentencePiece, and RemBERT's of version 5 adds no [CLS], reads it as [UNK], and pads with an id beyond the table. So
`tokenizer.json` specifies everything; versions 4 and 5 read it the same way.
"""

import base64
import json
import os
from pathlib import Path

from rembed_keras.data.json_files import read_json
from rembed_keras.data.tokenizers.fast import FastTokenizer
from rembed_keras.data.tokenizers.protocol import AnyTokenizer
from rembed_keras.data.tokenizers.sentence_piece import SPACE, SPECIAL_PIECES
from rembed_keras.interop.spm import read_model

MODEL = "sentencepiece.model"
NORMAL = 1  # type of a piece that is text
USER_DEFINED = 4  # type of a piece that is matched before all others
UNIGRAM = 1  # type of a model


def write_tokenizer(tokenizer: AnyTokenizer, folder: Path) -> list[str]:
    """Writes the files that transformers needs beside the tokenizer's own.

    Args:
        tokenizer: the tokenizer, whose file is in the folder; that of SentencePiece becomes `sentencepiece.model`.
        folder: that of the Hugging Face model.

    Returns:
        Notes.
    """
    if isinstance(tokenizer, FastTokenizer):
        roles = {f"{role}_token": tokenizer.piece(getattr(tokenizer, f"{role}_id")) for role in SPECIAL_PIECES}
        _write_config(folder, roles, "PreTrainedTokenizerFast")
        return []
    model = read_model(tokenizer.path)
    os.rename(tokenizer.path, folder / MODEL)
    roles = {f"{role}_token": model.pieces[getattr(tokenizer, f"{role}_id")].piece for role in SPECIAL_PIECES}
    is_unigram = model.trainer_spec.model_type == UNIGRAM
    _write_config(folder, roles, "PreTrainedTokenizerFast" if is_unigram else "RemBertTokenizer")
    if not is_unigram:
        return ["the tokenizer is not a unigram model, so no tokenizer.json is written"]
    (folder / "tokenizer.json").write_text(json.dumps(_fast(model, tokenizer), ensure_ascii=False), encoding="utf-8")
    spec = model.normalizer_spec
    if spec.add_dummy_prefix and not spec.remove_extra_whitespaces:  # Metaspace puts none before one that is there
        return ["to tokenizer.json a text that begins with a space has one space less than to the SentencePiece model"]
    return []


def _write_config(folder, roles, kind):
    has_segments = read_json(folder / "config.json").get("type_vocab_size", 0) > 1  # others refuse or misread their ids
    segments = ["token_type_ids"] if has_segments else []
    config = {
        "tokenizer_class": kind,
        "model_input_names": ["input_ids", *segments, "attention_mask"],
        "bos_token": roles["cls_token"],
        "eos_token": roles["sep_token"],
        **roles,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")


def _fast(model, tokenizer):
    special = sorted(getattr(tokenizer, f"{role}_id") for role in SPECIAL_PIECES)
    own = [i for i, piece in enumerate(model.pieces) if piece.type == USER_DEFINED and i not in special]
    begin = "always" if model.normalizer_spec.add_dummy_prefix else "never"
    has_longer = any(SPACE in piece.piece[1:] for piece in model.pieces if piece.type == NORMAL)  # than a word
    spaces = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": begin, "split": not has_longer}
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": i, "content": model.pieces[i].piece, "special": i in special}
            | {"single_word": False, "lstrip": i == tokenizer.mask_id, "rstrip": False, "normalized": False}
            for i in sorted([*special, *own])
        ],
        "normalizer": {"type": "Sequence", "normalizers": _normalizers(model.normalizer_spec)},
        "pre_tokenizer": spaces,
        "post_processor": _frame({model.pieces[i].piece: i for i in (tokenizer.cls_id, tokenizer.sep_id)}),
        "decoder": spaces,
        "model": {
            "type": "Unigram",
            "unk_id": tokenizer.unk_id,
            "vocab": [[piece.piece, piece.score] for piece in model.pieces],
            "byte_fallback": model.trainer_spec.byte_fallback,
        },
    }


def _normalizers(spec):
    steps: list[dict] = []
    if spec.precompiled_charsmap:
        charsmap = base64.b64encode(spec.precompiled_charsmap).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": charsmap})
    if spec.remove_extra_whitespaces:
        steps.append({"type": "Strip", "strip_left": True, "strip_right": True})
        steps.append({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "})
    return steps


def _frame(ids):
    """The template [CLS] A [SEP], and for pairs [CLS] A [SEP] B [SEP], with segment ids."""
    cls, sep = ids
    places = [(cls, 0), ("A", 0), (sep, 0), ("B", 1), (sep, 1)]
    items = [{"SpecialToken" if name in ids else "Sequence": {"id": name, "type_id": i}} for name, i in places]
    return {
        "type": "TemplateProcessing",
        "single": items[:3],
        "pair": items,
        "special_tokens": {name: {"id": name, "ids": [i], "tokens": [name]} for name, i in ids.items()},
    }
