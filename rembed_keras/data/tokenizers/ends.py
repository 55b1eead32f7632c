"""What a `tokenizer.json` puts around a text: [CLS] and [SEP], by whatever names."""

import json
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import processors

from rembed_keras.data.tokenizers.beside import special_names
from rembed_keras.data.tokenizers.sentence_piece import SPECIAL_PIECES


def ends(processor: dict[str, Any] | None) -> dict[str, int]:
    """Ids of what begins and ends a text, by role, as far as a file says them: names may mean something else.

    Args:
        processor: the `post_processor` of a file.
    """
    said = processor or {}
    if "processors" in said:
        return {role: i for each in said["processors"] for role, i in ends(each).items()}
    if "cls" in said:  # BERT's and RoBERTa's own
        return {role: said[role][1] for role in ("cls", "sep")}
    found = [each.get("SpecialToken", {}).get("id") for each in said.get("single", ())]
    if len(found) < 2 or None in (found[0], found[-1]):
        return {}
    ids = [said["special_tokens"][name]["ids"] for name in (found[0], found[-1])]
    return {role: each[0] for role, each in zip(("cls", "sep"), ids, strict=True) if len(each) == 1}


def with_named_ends(made: tokenizers.Tokenizer, path: Path) -> tokenizers.Tokenizer:
    """A tokenizer that puts around a text what the files beside its own call [CLS] and [SEP].

    It stays as it is where it has both ends itself, or they are those that it would be read with.
    """
    said = special_names(path)
    cls, sep = said.get("cls", ""), said.get("sep", "")
    cls_id, sep_id = made.token_to_id(cls), made.token_to_id(sep)
    if cls_id is None or sep_id is None or (_usual(made, "cls"), _usual(made, "sep")) == (cls, sep):
        return made
    processor = json.loads(made.to_str())["post_processor"]
    if not ends(processor):
        frame = processors.BertProcessing((sep, sep_id), (cls, cls_id))
        is_other = processor is not None and not made.num_special_tokens_to_add(False)  # as one of offsets, which stays
        made.post_processor = processors.Sequence([made.post_processor, frame]) if is_other else frame
    return made


def _usual(made, role):
    """The name by which a special piece is found where nothing says it."""
    return next((name for name in SPECIAL_PIECES[role] if made.token_to_id(name) is not None), None)
