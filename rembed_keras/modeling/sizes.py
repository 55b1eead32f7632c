"""Sizes, what is chosen by a word, and the arithmetic that a model and its ledger both do; needs no framework."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

from rembed_keras.errors import UserError, check_counts, shortened

# what a word chooses
Activation: TypeAlias = Literal["gelu", "gelu_tanh", "relu"]
Keep: TypeAlias = Literal["bottom", "top", "alternate", "symmetric"]
LayerSharing: TypeAlias = Literal["none", "attention", "feed_forward", "all"]
Dtype = Literal["float32", "mixed_bfloat16", "mixed_float16", "bfloat16", "float16", "float64"]
NARROW = ("bfloat16", "float16")  # of weights in these the optimizer keeps float32 copies, and slots of the copies
KEEP = get_args(Keep)
NONE_OF = (
    "head_dim",
    "kept_layers",
    "generator_layers",
    "teacher_dim",
    "output_embedding_dim",
)  # sizes that may be None
LARGEST = 2**31 - 1  # what a size may be
MOST_LAYERS = 10_000


def plain(value: Any) -> Any:
    """A number of NumPy's, as the largest label plus 1, as Python's, which a configuration can say; all else as it is.

    >>> import numpy as np
    >>> plain(np.int64(3)), plain(np.float32(0.5)), plain("gelu")
    (3, 0.5, 'gelu')
    """
    return value.item() if getattr(value, "shape", None) == () and hasattr(value, "item") else value


def check_sizes(config: Mapping[str, object]) -> None:
    """Checks the sizes of a model before anything is counted or built by them.

    Args:
        config: arguments of an encoder or of a model that pre-trains one; what is no size is left aside.

    Raises:
        UserError: for a size that is no whole number, or out of all reason.

    >>> check_sizes({"num_layers": 12, "hidden_dim": "768"})
    Traceback (most recent call last):
    rembed_keras.errors.UserError: hidden_dim is '768'; it must be a positive whole number
    """
    for key, value in config.items():
        is_size = key.startswith(("num_", "max_")) or key.endswith(("_dim", "_layers")) or key == "vocabulary_size"
        if not is_size or (value is None and key in NONE_OF):
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < (key != "num_segments"):
            raise UserError(f"{key} is {shortened(value)}; it must be a positive whole number")
        most = MOST_LAYERS if key.endswith("_layers") else LARGEST
        if value > most:
            raise UserError(f"{key} is {shortened(value)}; it can be {most} at most")
    groups, cutoffs = config.get("layer_groups", 1), config.get("input_cutoffs", ())
    for key, numbers in (("layer_groups", [groups] if isinstance(groups, int) else groups), ("input_cutoffs", cutoffs)):
        if not isinstance(numbers, list | tuple) or not all(isinstance(number, int) for number in numbers):
            raise UserError(f"{key} is {shortened(config[key])}; it must be made of whole numbers")
    check_counts({"dropout": config.get("dropout", 0.0)}, "BelowOne")
    check_counts({"layer_norm_epsilon": config.get("layer_norm_epsilon", 0.0)}, "Rate")


def check_sequence_length(sequence_length: int, max_sequence_length: int) -> None:
    """Checks that an encoder takes rows of a length.

    Raises:
        UserError: for rows that are too long.
    """
    if sequence_length > max_sequence_length:
        raise UserError(
            f"sequence_length is {sequence_length}; the model's max_sequence_length is {max_sequence_length}"
        )


def check_pieces(pieces: int, vocabulary_size: int) -> None:
    """Checks that a model has an embedding for each word piece of a corpus.

    Raises:
        UserError: for more word pieces than rows of the model's tables.
    """
    if pieces > vocabulary_size:
        raise UserError(f"the corpus has {pieces} word pieces; the model's vocabulary_size is {vocabulary_size}")


def band_sizes(
    vocabulary_size: int, embedding_dim: int, cutoffs: Sequence[int], factor: int = 4, name: str = "cutoffs"
) -> list[tuple[int, int]]:
    """Rows and widths of the bands of a table.

    Args:
        vocabulary_size: V.
        embedding_dim: E, the width of the first band.
        cutoffs: ids at which the bands after the first begin, rising.
        factor: a band's width is that of the one before, divided by this and rounded down.
        name: what errors call the cutoffs.

    Returns:
        A list of (rows, width).

    Raises:
        ValueError: if cutoffs do not rise within the vocabulary, or a band has no width left.

    >>> band_sizes(1000, 64, (100, 400), 4)
    [(100, 64), (300, 16), (600, 4)]
    """
    edges = [0, *cutoffs, vocabulary_size]
    if any(isinstance(edge, bool) or not isinstance(edge, int) for edge in edges) or sorted({*edges}) != edges:
        raise UserError(
            f"{name} are {[*cutoffs]}; they must rise from 1 and stay under the vocabulary_size, {edges[-1]}"
        )
    sizes = [(edges[i + 1] - edges[i], embedding_dim // factor**i) for i in range(len(edges) - 1)]
    if sizes[-1][1] < 1:
        raise UserError(f"{name} are {[*cutoffs]}, which leave the last band of a width of {embedding_dim} nothing")
    return sizes


def groups_of_layers(num_layers: int, layer_groups: int | Sequence[int]) -> list[int]:
    """Which group each layer is in; layers of a group share what is shared.

    Args:
        num_layers: L.
        layer_groups: how many groups of neighbours there are, or the group of each layer, numbered from 0.

    Returns:
        A list of L group numbers.

    Raises:
        ValueError: if there are more groups than layers, or not a number for each layer.

    >>> groups_of_layers(5, 2)
    [0, 0, 0, 1, 1]
    """
    if isinstance(layer_groups, int):
        if not 1 <= layer_groups <= num_layers:
            raise UserError(f"layer_groups is {layer_groups}; it must be from 1 to num_layers, {num_layers}")
        return [layer * layer_groups // num_layers for layer in range(num_layers)]
    if len(layer_groups) != num_layers:
        raise UserError(f"layer_groups names {len(layer_groups)} layers and num_layers is {num_layers}")
    return [*layer_groups]


def groups_of(arguments: Mapping[str, Any]) -> list[int]:
    """The group of shared weights of each layer, from an encoder's arguments.

    >>> groups_of({"num_layers": 3, "layer_sharing": "all", "layer_groups": [1, 1, 2]})  # of a cut encoder
    [0, 0, 1]
    """
    if arguments.get("layer_sharing", "none") == "none":
        return [*range(arguments["num_layers"])]
    groups = groups_of_layers(arguments["num_layers"], arguments["layer_groups"])
    return [sorted({*groups}).index(group) for group in groups]


def layers_to_keep(num_layers: int, kept: int, keep: str = "bottom") -> list[int]:
    """Which layers stay when a stack is cut.

    Args:
        num_layers: L of the stack.
        kept: how many stay.
        keep: "bottom" drops the highest, "top" the lowest; "alternate" spreads those that stay evenly from the first
            to the last; "symmetric" drops from the middle.

    Returns:
        Their indices, rising.

    Raises:
        ValueError: if there are not as many, or `keep` is unknown.

    Source: Sajjad et al. 2020, section 3.

    >>> layers_to_keep(12, 6, "alternate"), layers_to_keep(12, 5, "symmetric")
    ([0, 2, 4, 7, 9, 11], [0, 1, 2, 10, 11])
    """
    if isinstance(kept, bool) or not isinstance(kept, int) or not 1 <= kept <= num_layers:
        raise UserError(f"kept_layers is {kept!r}; this encoder has {num_layers} to keep from")
    if keep not in KEEP:
        raise UserError(f"keep is {keep!r}; it can be one of {', '.join(KEEP)}")
    layers = [*range(num_layers)]
    if keep == "top":
        return layers[num_layers - kept :]
    if keep == "symmetric":
        upper = kept // 2
        return layers[: kept - upper] + layers[num_layers - upper :]
    if keep == "alternate" and kept > 1:
        return [round(i * (num_layers - 1) / (kept - 1)) for i in range(kept)]
    return layers[:kept]


def narrowed_arguments(arguments: Mapping[str, Any], width: int) -> dict:
    """The arguments of an encoder whose tables are narrowed, and projected then."""
    return {**arguments, "input_embedding_dim": width, "always_project": True}


def generator_config(encoder: dict, num_layers: int | None = None, scale: float = 0.25) -> dict:
    """Arguments of the small encoder that makes replacements for another to detect.

    Args:
        encoder: the other's arguments.
        num_layers: L of the small one; that of the other by default.
        scale: its number of heads, and with them its widths, as a share of the other's.

    Returns:
        Arguments with the other's embeddings and kind of block, and plain layers.

    Source: Clark et al. 2020, section 3.2.

    >>> big = {"num_layers": 12, "num_heads": 12, "hidden_dim": 768, "intermediate_dim": 3072}
    >>> [generator_config(big)[key] for key in ("num_heads", "hidden_dim", "intermediate_dim")]
    [3, 192, 768]
    """
    heads = max(1, round(encoder["num_heads"] * scale))
    head_dim = encoder.get("head_dim") or encoder["hidden_dim"] // encoder["num_heads"]
    return encoder | {
        "num_layers": encoder["num_layers"] if num_layers is None else num_layers,
        "num_heads": heads,
        "head_dim": None,
        "hidden_dim": heads * head_dim,
        "intermediate_dim": max(1, round(encoder["intermediate_dim"] * scale)),
        "layer_sharing": "none",
        "layer_groups": 1,
        "scalar_mix": False,
        "freeze_input_embedding": False,
        "rematerialize": False,
        "trainable": True,
    }
