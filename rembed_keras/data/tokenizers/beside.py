"""What the files beside a tokenizer's say of it, as transformers reads them: its class, its settings, added pieces."""

from pathlib import Path
from typing import Any

from rembed_keras.data.json_files import read_json
from rembed_keras.data.tokenizers.sentence_piece import SPECIAL_PIECES
from rembed_keras.errors import UserError

BERTS = frozenset(
    ("Bert", "ConvBert", "DistilBert", "Electra", "LayoutLM", "Lxmert", "MobileBert", "Retribert", "SqueezeBert")
)  # whose tokenizers are BERT's by other names
BYTE_LEVEL = frozenset(("Bart", "GPT2", "Roberta"))  # whose classes say what stands before a text
# what BERT's normalizer does, by the names of the library: the setting's name, and what holds where none is said
NORMALIZATION = {
    "lowercase": ("do_lower_case", True),
    "strip_accents": ("strip_accents", None),
    "handle_chinese_chars": ("tokenize_chinese_chars", True),
}
USUAL = {"single_word": False, "lstrip": False, "rstrip": False}


def settings(path: Path) -> dict[str, Any]:
    """What `tokenizer_config.json` beside a file says; nothing if it is not there.

    Raises:
        UserError: if it is not JSON.
    """
    return _read(path.with_name("tokenizer_config.json"))


def tokenizer_class(path: Path) -> str | None:
    """The name of the class that reads a file, without "Tokenizer", for example "Bert"; None where none is said.

    Raises:
        UserError: if what is beside it is not JSON.
    """
    for said in (settings(path), _read(path.with_name("config.json"))):
        if isinstance(name := said.get("tokenizer_class"), str):
            return name.removesuffix("Fast").removesuffix("Tokenizer")
    return None


def is_berts(path: Path) -> bool:
    """Whether BERT's class reads a file, or one that does the same; so it is where none is said."""
    return tokenizer_class(path) in (None, *BERTS)


def normalization(path: Path) -> dict[str, Any]:
    """How BERT's class normalizes text, by the names of the `tokenizers` library."""
    said = settings(path)
    return {name: said.get(theirs, usual) for name, (theirs, usual) in NORMALIZATION.items()}


def overrides_normalization(path: Path) -> bool:
    """Whether what `normalization` gives holds even if a `tokenizer.json` says otherwise: if BERT's class reads it."""
    said = settings(path)
    if not said or tokenizer_class(path) is not None:
        return bool(said) and is_berts(path)
    return any(theirs in said for theirs, _ in NORMALIZATION.values())


def space_before(path: Path) -> bool | None:
    """Whether the class that reads a byte-level `tokenizer.json` puts a space before a text, whatever that file says.

    None where the file says it: RoBERTa's and like classes alone go by their setting, and leave it out where none is.
    """
    name = tokenizer_class(path)
    is_robertas = name is None and _read(path.with_name("config.json")).get("model_type") == "roberta"
    return bool(settings(path).get("add_prefix_space", False)) if name in BYTE_LEVEL or is_robertas else None


def special_names(path: Path) -> dict[str, str]:
    """Names of special pieces by their roles, for example "cls", as far as the files beside a tokenizer's say them.

    Raises:
        UserError: if what is beside it is not JSON.
    """
    found = {**_read(path.with_name("special_tokens_map.json")), **settings(path)}
    named = {role: found.get(f"{role}_token") for role in SPECIAL_PIECES}
    names = {role: each.get("content") if isinstance(each, dict) else each for role, each in named.items()}
    return {role: name for role, name in names.items() if isinstance(name, str)}


def added_pieces(path: Path) -> dict[int, dict[str, Any]]:
    """Pieces that were added to a tokenizer after it was made, by their ids, which rise.

    Args:
        path: the tokenizer's file, which may not have them: `tokenizer_config.json` or `added_tokens.json` beside it
            does.

    Returns:
        Of each piece its `content` and the library's rules, `special` and `normalized` among them.

    Raises:
        UserError: for a file that says no such thing.
    """
    said = settings(path)
    try:
        if "added_tokens_decoder" in said:
            found = {int(i): _rules(**each) for i, each in said["added_tokens_decoder"].items()}
        else:
            special = _contents([said, _read(path.with_name("special_tokens_map.json"))])
            added = _read(path.with_name("added_tokens.json"))
            found = {int(i): _rules(content, content in special) for content, i in added.items()}
    except (AttributeError, TypeError, ValueError):
        raise UserError(f"the pieces that were added to {path} cannot be read from the files beside it") from None
    return dict(sorted(found.items()))


def _read(path):
    return read_json(path) if path.exists() else {}


def _rules(content, special=False, normalized=None, **rules):
    own = {key: bool(rules.get(key, usual)) for key, usual in USUAL.items()}
    is_normalized = not special if normalized is None else bool(normalized)
    return {"content": str(content), "special": bool(special), "normalized": is_normalized, **own}


def _contents(found):
    """All strings in the values of objects: names of special pieces among others."""
    if isinstance(found, str):
        return {found}
    if isinstance(found, dict):
        return _contents([*found.values()])
    return {name for each in found for name in _contents(each)} if isinstance(found, list) else set()
