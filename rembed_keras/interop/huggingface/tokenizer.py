"""A SentencePiece model as Hugging Face's libraries read it: `tokenizer.json` and its configuration.

Given the model alone, transformers applies the family's own tokenizer class: ALBERT's lowercases, BERT's does not read
SentencePiece, and RemBERT's of version 5 adds no [CLS], reads it as [UNK], and pads with an id beyond the table. So
`tokenizer.json` specifies everything; versions 4 and 5 read it the same way.
"""

import base64
import json
import os
from pathlib import Path

import tokenizers

from rembed_keras.data.json_files import read_json
from rembed_keras.data.tokenizers.fast import FastTokenizer
from rembed_keras.data.tokenizers.protocol import AnyTokenizer
from rembed_keras.data.tokenizers.sentence_piece import SPACE, SPECIAL_PIECES
from rembed_keras.interop.huggingface.families import FAMILIES
from rembed_keras.interop.huggingface.families.family import DEFAULTS
from rembed_keras.interop.spm import read_model
from rembed_keras.modeling.blocks.stack import has_position_table

MODEL = "sentencepiece.model"
NORMAL = 1  # type of a piece that is text
USER_DEFINED = 4  # type of a piece that is preferred to others
TEXT = (NORMAL, USER_DEFINED)
UNIGRAM = 1  # type of a model
# letters that SentencePiece composes of three characters, or of two of half a width; `tokenizers` of two others alone
COMPOSED = ("e\u0302\u0301", "\u1112\u1161\u11ab", "\uff8a\uff9f")


def write_tokenizer(tokenizer: AnyTokenizer, folder: Path) -> list[str]:
    """Writes the files that transformers needs beside the tokenizer's own.

    Args:
        tokenizer: the tokenizer, whose file is in the folder; that of SentencePiece becomes `sentencepiece.model`.
        folder: that of the Hugging Face model.

    Returns:
        Notes.
    """
    config = read_json(folder / "config.json")
    if isinstance(tokenizer, FastTokenizer):
        roles = {f"{role}_token": tokenizer.piece(getattr(tokenizer, f"{role}_id")) for role in SPECIAL_PIECES}
        _write_config(folder, config, roles | _space_before(tokenizer), "PreTrainedTokenizerFast")
        return _put_frame(tokenizer, config)
    model = read_model(tokenizer.path)
    os.rename(tokenizer.path, folder / MODEL)
    roles = {f"{role}_token": model.pieces[getattr(tokenizer, f"{role}_id")].piece for role in SPECIAL_PIECES}
    obstacle = _obstacle(model)
    _write_config(folder, config, roles, "RemBertTokenizer" if obstacle else "PreTrainedTokenizerFast")
    if obstacle:
        return [f"the tokenizer {obstacle}, so no tokenizer.json is written"]
    text = json.dumps(_fast(model, tokenizer, config), ensure_ascii=False)
    (folder / "tokenizer.json").write_text(text, encoding="utf-8")
    notes, spec = [], model.normalizer_spec
    if spec.add_dummy_prefix and not spec.remove_extra_whitespaces:  # Metaspace puts none before one that is there
        notes.append(
            "to tokenizer.json a text that begins with a space has one space less than to the SentencePiece model"
        )
    theirs = tokenizers.Tokenizer.from_str(text)
    if any(_is_read_otherwise(each, tokenizer, theirs) for each in COMPOSED):
        notes.append(
            "letters in parts (NFD), and kana of half a width, have other ids to tokenizer.json than to the "
            "SentencePiece model: bring such texts into NFKC for it"
        )
    if unlike := _unlike(model, tokenizer, theirs):
        named = ", ".join(unlike[:3]) + (f" and {len(unlike) - 3:,} others" if len(unlike) > 3 else "")
        notes.append(f"a text that has {named} has other ids to tokenizer.json than to the SentencePiece model")
    return notes


def _space_before(tokenizer):
    """Whether texts of bytes begin with a space, as a configuration says it, by which transformers 4 goes."""
    before = tokenizer.parts["pre_tokenizer"] or {}
    return {name: value for name, value in before.items() if name == "add_prefix_space"}


def _put_frame(tokenizer, config):
    """Has a `tokenizer.json` put [CLS] and [SEP] around a text, as they always are here; returns notes."""
    made = tokenizers.Tokenizer.from_file(str(tokenizer.path))
    inner, ends = made.encode("a", add_special_tokens=False).ids, (tokenizer.cls_id, tokenizer.sep_id)
    if made.encode("a").ids == [ends[0], *inner, ends[1]]:
        return []
    parts, names = json.loads(made.to_str()), [tokenizer.piece(i) for i in ends]
    frame = _frame(dict(zip(names, ends, strict=True)), FAMILIES[config["model_type"]].doubles_separator)
    tokenizer.path.write_text(json.dumps(parts | {"post_processor": frame}, ensure_ascii=False), encoding="utf-8")
    return [f"tokenizer.json puts {names[0]} and {names[1]} around a text now, which the one that was read did not"]


def _obstacle(model):
    """What of a SentencePiece model no `tokenizer.json` can say."""
    if model.trainer_spec.model_type != UNIGRAM:
        return "is not a unigram model"
    if model.trainer_spec.treat_whitespace_as_suffix:
        return "has spaces at the ends of pieces"
    return None if model.normalizer_spec.escape_whitespaces else f"has spaces that are not {SPACE}"


def _is_read_otherwise(text, tokenizer, theirs):
    return tokenizer.encode(text) != theirs.encode(text, add_special_tokens=False).ids


def _unlike(model, tokenizer, theirs):
    """Pieces that are no plain text, whose spelling in a text the two read otherwise.

    To `tokenizer.json` a piece is text whatever its type, and one that normalization would change is never found.
    """
    special = {getattr(tokenizer, f"{role}_id") for role in SPECIAL_PIECES}
    others = [piece.piece for i, piece in enumerate(model.pieces) if piece.type != NORMAL and i not in special]
    unlike = []
    for piece in others:
        text = piece.replace(SPACE, " ")
        if any(_is_read_otherwise(each, tokenizer, theirs) for each in (text, f"{text} {text}", f"a{text}a")):
            unlike.append(piece)
    return unlike


def _longest(config):
    """Tokens of the longest input of a model; None if it has no table of positions."""
    arguments = DEFAULTS | FAMILIES[config["model_type"]].arguments(config)
    return arguments["max_sequence_length"] if has_position_table(arguments) else None


def _write_config(folder, config, roles, kind):
    has_segments = config.get("type_vocab_size", 0) > 1  # others refuse or misread their ids
    segments = ["token_type_ids"] if has_segments else []
    longest = _longest(config)
    said = {
        "tokenizer_class": kind,
        "model_input_names": ["input_ids", *segments, "attention_mask"],
        **({} if longest is None else {"model_max_length": longest}),
        "bos_token": roles["cls_token"],
        "eos_token": roles["sep_token"],
        **roles,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(said, indent=2), encoding="utf-8")


def _fast(model, tokenizer, config):
    special = sorted(getattr(tokenizer, f"{role}_id") for role in SPECIAL_PIECES)
    begin = "always" if model.normalizer_spec.add_dummy_prefix else "never"
    has_longer = any(SPACE in piece.piece[1:] for piece in model.pieces if piece.type in TEXT)  # than a word
    has_bytes = model.trainer_spec.byte_fallback
    spaces = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": begin, "split": not has_longer}
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": i, "content": model.pieces[i].piece, "special": True}
            | {"single_word": False, "lstrip": i == tokenizer.mask_id, "rstrip": False, "normalized": False}
            for i in special
        ],
        "normalizer": {"type": "Sequence", "normalizers": _normalizers(model.normalizer_spec)},
        "pre_tokenizer": spaces,
        "post_processor": _frame(
            {model.pieces[i].piece: i for i in (tokenizer.cls_id, tokenizer.sep_id)},
            FAMILIES[config["model_type"]].doubles_separator,
        ),
        "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, spaces]} if has_bytes else spaces,
        "model": {
            "type": "Unigram",
            "unk_id": tokenizer.unk_id,
            "vocab": [[piece.piece, score] for piece, score in zip(model.pieces, _scores(model), strict=True)],
            "byte_fallback": has_bytes,
        },
    }


def _scores(model):
    """Scores of pieces; a user-defined one has that with which SentencePiece prefers it to its parts."""
    highest = max(0.0, *(piece.score for piece in model.pieces if piece.type == NORMAL))  # it takes 0 if all are less
    return [
        len(piece.piece.encode()) * highest - 0.1 if piece.type == USER_DEFINED else piece.score
        for piece in model.pieces
    ]


def _normalizers(spec):
    steps: list[dict] = []
    if spec.precompiled_charsmap:
        charsmap = base64.b64encode(spec.precompiled_charsmap).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": charsmap})
    if spec.remove_extra_whitespaces:
        for pattern, content in ((r"\A +| +\z", ""), (" {2,}", " ")):  # of spaces alone: other white space stays
            steps.append({"type": "Replace", "pattern": {"Regex": pattern}, "content": content})
    return steps


def _frame(ids, is_doubled):
    """The template [CLS] A [SEP], and for pairs [CLS] A [SEP] B [SEP], with segment ids.

    With `is_doubled` two [SEP] are between the texts of a pair, and all segment ids are 0.
    """
    cls, sep = ids
    second = 0 if is_doubled else 1
    places = [(cls, 0), ("A", 0), (sep, 0), *[(sep, 0)] * is_doubled, ("B", second), (sep, second)]
    items = [{"SpecialToken" if name in ids else "Sequence": {"id": name, "type_id": i}} for name, i in places]
    return {
        "type": "TemplateProcessing",
        "single": items[:3],
        "pair": items,
        "special_tokens": {name: {"id": name, "ids": [i], "tokens": [name]} for name, i in ids.items()},
    }
