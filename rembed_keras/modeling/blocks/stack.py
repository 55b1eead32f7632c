"""The stack: which block and which attention each layer has, and which layers share sublayers.

What is said here of a configuration holds for the model that is built and for its ledger alike.
"""

from collections.abc import Iterable, Sequence
from typing import get_args

from rembed_keras.errors import UserError, shortened
from rembed_keras.modeling import attention, blocks, input_embeddings
from rembed_keras.modeling.attention.full import check_place
from rembed_keras.modeling.choices import chosen, described
from rembed_keras.modeling.cost import Config, Entry, Shape, named_apart
from rembed_keras.modeling.sizes import (
    Activation,
    LayerSharing,
    band_sizes,
    check_sizes,
    groups_of_layers,
    layers_to_keep,
)

WORDS = {"activation": get_args(Activation), "layer_sharing": get_args(LayerSharing)}
FORMER_BLOCKS = {"bert": blocks.PostNorm, "modern": blocks.PreNorm}  # as checkpoints and presets of version 0.1 say it


def check_encoder(config: Config) -> None:
    """Checks an encoder's arguments, before anything is counted or built by them.

    Args:
        config: the arguments; those that are left out have their defaults.

    Raises:
        UserError: for arguments of which no encoder can be built.

    >>> check_encoder({"num_layers": 1, "num_heads": 3, "hidden_dim": 8})
    Traceback (most recent call last):
    rembed_keras.errors.UserError: num_heads is 3; it must divide hidden_dim, 8
    """
    check_sizes(config)
    heads, hidden = config["num_heads"], config["hidden_dim"]
    if config.get("head_dim") is None and hidden % heads:
        raise UserError(f"num_heads is {heads}; it must divide hidden_dim, {hidden}")
    groups(config)
    if cutoffs := config.get("input_cutoffs"):
        band_sizes(config["vocabulary_size"], config["input_embedding_dim"], cutoffs, name="input_cutoffs")
    if config.get("rematerialize") and config.get("dropout"):
        raise UserError("rematerialize needs dropout 0: the second computation would draw another mask")
    for key, choices in WORDS.items():
        if config.get(key, choices[0]) not in choices:
            raise UserError(f"{key} is {shortened(config[key])}; it can be one of {', '.join(choices)}")


def block_of(config: Config):
    """The kind of block that an encoder's arguments ask for.

    >>> type(block_of({"block": "modern"})).__name__
    'PreNorm'
    """
    return chosen("block", config.get("block") or blocks.PostNorm, blocks, blocks.PostNorm, FORMER_BLOCKS)


def pattern_of(config: Config) -> list:
    """The kinds of attention that an encoder's arguments list, of one layer after the other."""
    given = config.get("attention") or [attention.Global]
    given = given if isinstance(given, list | tuple) else [given]
    return [chosen("attention", each, attention, attention.Global, {}) for each in given]


def attention_of(config: Config) -> list:
    """The kind of attention of each layer: what the arguments list, repeated over the layers.

    Raises:
        UserError: if layers that share their attention should have it of two kinds, or blocks have no place for what
            attention brings.
    """
    pattern = pattern_of(config)
    kinds = [pattern[layer % len(pattern)] for layer in range(config["num_layers"])]
    block = block_of(config)
    for kind in pattern:
        check_place(kind, block, config.get("head_dim") or config.get("hidden_dim", 0) // config.get("num_heads", 1))
    first: dict = {}
    for owner, kind in zip(owners(config, "attention"), kinds, strict=True):
        former = first.setdefault(owner, kind)
        if former is not kind and described(former) != described(kind):
            raise UserError(
                "layers that share their attention have it of different kinds: align layer_groups with them"
            )
    return kinds


def input_embedding_of(config: Config):
    """The kind of input embedding that an encoder's arguments ask for."""
    given = config.get("input_embedding") or input_embeddings.Summed
    return chosen("input_embedding", given, input_embeddings, input_embeddings.Summed, {})


def described_kinds(config: Config) -> dict:
    """Block, attention and input embedding as a configuration says them; None for the usual of the last two.

    The pattern of attention kinds is as it was given: a decoder with more layers than the encoder goes on with it.
    """
    told: dict = {"block": described(block_of(config)), "attention": None, "input_embedding": None}
    if config.get("attention") is not None:
        attention_of(config)  # which may refuse it
        told["attention"] = [described(kind) for kind in pattern_of(config)]
    if config.get("input_embedding") is not None:
        told["input_embedding"] = described(input_embedding_of(config))
    return told


def has_position_table(config: Config) -> bool:
    """Whether positions are embedded, in a table of `max_sequence_length` rows."""
    is_needed = block_of(config).has_position_table and not any(kind.knows_positions for kind in attention_of(config))
    return input_embedding_of(config).has_positions(is_needed)


def has_projection(config: Config) -> bool:
    """Whether embeddings are projected to the width of the blocks, after their norm."""
    kind = input_embedding_of(config)
    is_wanted = config.get("always_project", True) or kind.width(config) != config["hidden_dim"]
    return kind.takes_projection and is_wanted


def check_packed_rows(config: Config) -> None:
    """Checks that an encoder takes rows of several documents, as those of a corpus are.

    Raises:
        UserError: for an attention in which the documents of a row are not left alone by one another.
    """
    for kind in attention_of(config):
        if not kind.takes_packed_rows:
            name = type(kind).__name__
            raise UserError(f"attention {name} needs one document a row, and rows of a corpus are packed with several")


def check_narrowing(config: Config) -> None:
    """Checks that an encoder's tables can be narrowed, a projection to the width of the blocks making up for it.

    Raises:
        UserError: for an input embedding that takes no such projection.
    """
    kind = input_embedding_of(config)
    if not kind.takes_projection:
        name = type(kind).__name__
        raise UserError(f"input embedding {name} has no projection after its norm: its tables cannot be narrowed")


def is_shared(config: Config, sublayer: str) -> bool:
    """Whether the layers of a group share their "attention" or their "feed_forward"."""
    return config.get("layer_sharing", "none") in (sublayer, "all")


def groups(config: Config) -> list[int]:
    """The group of each layer."""
    return groups_of_layers(config["num_layers"], config.get("layer_groups", 1))


def owners(config: Config, sublayer: str) -> list[int]:
    """For each layer the number of what it owns, or shares with its group."""
    return groups(config) if is_shared(config, sublayer) else [*range(config["num_layers"])]


def needs_norm(config: Config, layer: int, input_is_normed: bool = True) -> bool:
    """Whether a layer's attention has a norm before it, if its block has norms first.

    The first layer's input is normed already if embeddings are; an attention that other layers share comes after them
    too.
    """
    is_normed = input_is_normed and input_embedding_of(config).is_normed(block_of(config))
    return layer > 0 or not is_normed or is_shared(config, "attention")


def layers_of_cut(config: Config, kept: int | None = None, keep: str = "bottom") -> list[int]:
    """Which layers of an encoder stay when it is cut after pre-training.

    Args:
        config: the encoder's arguments; those that are left out have its defaults.
        kept: how many layers stay; all by default.
        keep: which; see `sizes.layers_to_keep`.

    Returns:
        Their indices, rising.

    Raises:
        UserError: if what stays is no encoder: a mix of layers needs all of them, and blocks with norms first need the
            first layer, whose attention alone has no norm, unless layers share attention.

    >>> layers_of_cut({"num_layers": 4, "block": blocks.PreNorm}, 2, "top")
    Traceback (most recent call last):
    rembed_keras.errors.UserError: the first of PreNorm blocks must stay: keep bottom, alternate or symmetric
    """
    num_layers = config["num_layers"]
    layers = layers_to_keep(num_layers, num_layers if kept is None else kept, keep)
    if config.get("scalar_mix") and len(layers) < num_layers:
        raise UserError("an encoder with scalar_mix needs all of its layers: none can be cut")
    block = block_of(config)
    if layers[0] and block.norms_first and not needs_norm(config, layer=0):
        raise UserError(f"the first of {type(block).__name__} blocks must stay: keep bottom, alternate or symmetric")
    return layers


def cut_arguments(config: Config, layers: Sequence[int]) -> dict:
    """The arguments of an encoder that has some layers of another.

    Args:
        config: the other's arguments.
        layers: the indices of the layers that stay, rising; see `layers_of_cut`.

    >>> cut_arguments({"num_layers": 4, "layer_sharing": "all", "layer_groups": 2}, [0, 3])["layer_groups"]
    [0, 1]
    """
    own = groups(config)
    is_plain = config.get("layer_sharing", "none") == "none"
    cut: dict = {"num_layers": len(layers), "layer_groups": 1 if is_plain else [own[layer] for layer in layers]}
    if config.get("attention") is not None:  # a pattern over all layers
        kinds = [described(kind) for kind in attention_of(config)]
        cut["attention"] = [kinds[layer] for layer in layers]
    has_positions = has_position_table(config)
    if has_position_table({**config, **cut}) != has_positions:  # the layers that knew positions are gone
        kind = described(input_embedding_of(config))
        cut["input_embedding"] = kind | {"config": kind["config"] | {"positions": has_positions}}
    left_out = {"hosted"} if len(layers) < len(own) else set()  # whose blocks have other numbers now
    return {**{key: value for key, value in config.items() if key not in left_out}, **cut}


def kept_arguments(config: Config, model: Config) -> dict:
    """The arguments of the encoder that a model keeps.

    Args:
        config: the arguments of its encoder.
        model: its own; those of a pre-training model may say `kept_layers` and `keep`.
    """
    return cut_arguments(config, layers_of_cut(config, model.get("kept_layers"), model.get("keep") or "bottom"))


def sublayer_shapes(config: Config, input_is_normed: bool = True) -> dict[tuple[str, int], tuple[Shape, ...]]:
    """Shapes of the variables of each sublayer that there is, by what it is and its number."""
    block = block_of(config)
    shapes: dict[tuple[str, int], tuple[Shape, ...]] = {}
    for layer, owner in enumerate(owners(config, "attention")):
        has_norm = needs_norm(config, layer, input_is_normed)
        shapes.setdefault(("attention", owner), block.attention_shapes(config, has_norm))
    for owner in owners(config, "feed_forward"):
        shapes.setdefault(("feed_forward", owner), block.feed_forward_shapes(config))
    return shapes


def shared_entries(config: Config, layers: Iterable[int]) -> dict[int, Entry]:
    """The ledger's entries of what all layers of a kind of attention have in common, by the kind's number.

    Args:
        config: an encoder's arguments.
        layers: which layers to look at.
    """
    kinds = attention_of(config)
    numbers = kind_numbers(kinds)
    found = named_apart({number: kind.shared_entry(config) for number, kind in zip(numbers, kinds, strict=True)})
    return {numbers[layer]: found[numbers[layer]] for layer in layers if numbers[layer] in found}


def kind_numbers(kinds) -> list[int]:
    """For each layer the number of its kind of attention, in the order in which they come."""
    said = [repr(described(kind)) for kind in kinds]
    order = [*dict.fromkeys(said)]
    return [order.index(each) for each in said]


def make_blocks(config: Config, dtype=None, input_is_normed: bool = True, prefix: str = "") -> list:
    """The blocks of an encoder, sublayers of a group being the same object where they are shared.

    Args:
        config: the encoder's arguments, all of them.
        dtype: dtype or policy of the layers.
        input_is_normed: whether what comes in is normed, so that the first of blocks with norms first needs none.
        prefix: what the blocks' names begin with.
    """
    from rembed_keras.modeling.blocks.block import TransformerBlock

    block, kinds = block_of(config), attention_of(config)
    made: dict = {}
    shared: dict = {}
    stack = []
    numbers = kind_numbers(kinds)
    for layer, pair in enumerate(zip(owners(config, "attention"), owners(config, "feed_forward"), strict=True)):
        attends, feeds = (("attention", pair[0]), ("feed_forward", pair[1]))
        if attends not in made:
            has_norm = needs_norm(config, layer, input_is_normed)
            made[attends] = block.attention(config, kinds[layer], has_norm, dtype)
            number = numbers[layer]
            if number not in shared:
                shared[number] = kinds[layer].shared_layer(config, f"{prefix}shared_{number}", dtype)
            if shared[number] is not None:
                made[attends].heads.shared = shared[number]
        if feeds not in made:
            made[feeds] = block.feed_forward(config, dtype)
        rematerialize = config.get("rematerialize", False)
        name = f"{prefix}block_{layer}"
        stack.append(TransformerBlock(made[attends], made[feeds], rematerialize, name=name, dtype=dtype))
    return stack
