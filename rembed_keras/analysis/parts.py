"""What each part of a model costs, in closed form from the sizes.

Parameters are exact. FLOPs are those of matrix products, a multiplication and an addition counting as two. Activations
are the numbers that a backward pass needs of the forward pass: operands of matrix products, and what goes into norms,
activation functions and softmax; frameworks keep up to half as much again, and rematerialisation less.
"""

from dataclasses import dataclass, replace

from rembed_keras.sizes import band_sizes, groups_of_layers, layers_of_cut, shares_attention


@dataclass(frozen=True)
class Entry:
    """One line of the account.

    Attributes:
        name: the part of the model.
        parameters: how many it has.
        flops: of a forward pass, per token of input.
        is_kept: whether it is part of the encoder that is kept.
        in_paper: how many of the parameters the paper counts.
        trained: how many of the parameters pre-training moves, and an optimizer has slots for.
        activations: numbers kept for the backward pass, per token of input.
        spared: FLOPs of a forward pass, per token of input, that pre-training needs not: those of the pooler, and of
            the last block for tokens that are not predicted.
    """

    name: str
    parameters: int
    flops: int
    is_kept: bool
    in_paper: int
    trained: int
    activations: int
    spared: int = 0


def encoder_entries(
    config: dict,
    length: int,
    kept_layers: int | None = None,
    keep: str = "bottom",
    seen: float = 1.0,
    read: float = 1.0,
) -> list[Entry]:
    """The lines of an encoder.

    Args:
        config: its arguments; those that are left out have its defaults.
        length: S, the tokens that each token attends to.
        kept_layers: how many blocks are kept after pre-training; all by default.
        keep: which; see `sizes.layers_of_cut`.
        seen: share of the tokens that the blocks see.
        read: share of the tokens of which the last block's output is needed.

    Returns:
        Lines of what is kept, then of the blocks that are cut, if any are.
    """
    vocabulary, width, hidden = (config[key] for key in ("vocabulary_size", "input_embedding_dim", "hidden_dim"))
    is_bert = config.get("block", "bert") == "bert"
    rows = (config.get("max_sequence_length", 512) if is_bert else 0) + config.get("num_segments", 2)
    table, table_flops = _table(vocabulary, width, config.get("input_cutoffs", ()))
    small = rows * width + (2 * width if is_bert else width)
    has_projection = config.get("always_project", True) or width != hidden
    projection = (width * hidden + (hidden if is_bert else 0)) if has_projection else 0
    layers = config["num_layers"]
    kept = layers_of_cut(config, kept_layers, keep)
    kept_blocks, cut_blocks = _blocks(config, kept)
    flops, activations = (seen * work for work in _block_work(config, seen * length))
    pooler = hidden * hidden + hidden
    entries = [
        _kept("input embedding", table, table_flops, trained=0 if config.get("freeze_input_embedding") else table),
        _kept("positions, segments, norm", small, activations=2 * width),
    ]
    if has_projection:
        product = 2 * width * hidden
        entries.append(_kept("projection", projection, product, in_paper=projection if width != hidden else 0))
    entries.append(
        _kept(f"{len(kept)} blocks", kept_blocks, round(len(kept) * flops), activations=round(len(kept) * activations))
    )
    spared = 0 if config.get("scalar_mix") else _spared(config, length, read)
    if layers - 1 in kept:
        entries[-1] = replace(entries[-1], spared=spared)
    if not is_bert:
        entries.append(_kept("last norm", hidden, activations=hidden))
    if config.get("scalar_mix"):
        entries.append(_kept("mix of layers", layers + 2))
    once = round(2 * hidden * hidden / length)
    entries.append(replace(_kept("pooler", pooler, once, in_paper=0, trained=0), spared=once))
    if len(kept) < layers:
        cut = layers - len(kept)
        entries.append(
            _dropped(f"{cut} blocks, cut", cut_blocks, round(cut * flops), cut_blocks, round(cut * activations))
        )
        if layers - 1 not in kept:
            entries[-1] = replace(entries[-1], spared=spared)
    return entries


def head_entries(config: dict, width: int, coupling: str, cutoffs=(), mask_rate: float = 0.15) -> list[Entry]:
    """The lines of a masked-language-model head.

    Args:
        config: the encoder's arguments.
        width: E_out.
        coupling: "decoupled", "coupled" or "gdes".
        cutoffs: where the bands of a decoupled output table begin.
        mask_rate: share of the tokens that reach the head.
    """
    vocabulary, hidden = config["vocabulary_size"], config["hidden_dim"]
    bands = config.get("input_cutoffs", ()) if coupling == "coupled" else cutoffs
    table, flops = _table(vocabulary, width, bands)
    flops += sum(2 * rows * wide for rows, wide in _bands(vocabulary, width, bands))
    own = 0 if coupling == "coupled" else table
    dense = hidden * width + 3 * width
    kept_back = (hidden + 3 * width, vocabulary)  # of the head's dense layer and norm; of the softmax
    return [
        _dropped("head", dense, round(mask_rate * 2 * hidden * width), 0, round(mask_rate * kept_back[0])),
        _dropped(
            "output embedding" if own else "output bias; table shared",
            own + vocabulary,
            round(mask_rate * flops),
            own,
            round(mask_rate * kept_back[1]),
        ),
    ]


def decoder_entries(config: dict, num_layers: int, length: int, mask_rate: float) -> list[Entry]:
    """The line of the decoder that [MASK] enters late.

    Args:
        config: the encoder's arguments.
        num_layers: blocks of the decoder.
        length: S.
        mask_rate: share of the tokens of which the last block's output is needed.
    """
    plain = config | {"num_layers": num_layers, "layer_sharing": "none", "layer_groups": 1}
    (parameters, _), hidden = _blocks(plain, [*range(num_layers)]), config["hidden_dim"]
    if config.get("block", "bert") == "bert":
        parameters += config.get("max_sequence_length", 512) * hidden  # positions
    else:
        parameters += 2 * hidden  # norms of what comes in and of what goes out
    flops, activations = (num_layers * work for work in _block_work(config, length))
    line = _dropped(f"decoder, {num_layers} blocks", parameters + hidden, round(flops), 0, round(activations))
    return [replace(line, spared=_spared(config, length, mask_rate))]


def detection_entries(config: dict, generator: dict, head: list[Entry], is_shared: bool, length: int) -> list[Entry]:
    """The lines of a generator with its head, and of what finds its replacements.

    Args:
        config: the encoder's arguments.
        generator: the generator's; see `sizes.generator_config`.
        head: lines of the generator's head.
        is_shared: whether it reads the encoder's tables.
        length: S.
    """
    tables = ("input embedding", "positions, segments, norm")
    lines = encoder_entries(generator, length)
    if is_shared:  # read once more, but paid for as the encoder's
        lines = [replace(line, parameters=0, trained=0) if line.name in tables else line for line in lines]
        lines = [line for line in lines if line.parameters or line.flops or line.activations]
    hidden = config["hidden_dim"]
    detector = hidden * hidden + hidden + hidden + 1
    return [
        *(replace(entry, name=f"generator: {entry.name}", is_kept=False, in_paper=0) for entry in (*lines, *head)),
        _dropped("detector", detector, 2 * hidden * hidden + 2 * hidden, 0, 3 * hidden),
    ]


def _bands(vocabulary, width, cutoffs):
    return band_sizes(vocabulary, width, cutoffs, factor=4)


def _table(vocabulary, width, cutoffs):
    """Parameters of a table, and FLOPs of the projections of its bands, per token."""
    bands = _bands(vocabulary, width, cutoffs)
    projections = sum(wide * width for _, wide in bands[1:])
    return sum(rows * wide for rows, wide in bands) + projections, 2 * projections


def _inner(config):
    """Width of all heads together."""
    return config["num_heads"] * (config.get("head_dim") or config["hidden_dim"] // config["num_heads"])


def _blocks(config, kept):
    """Parameters of the blocks that stay and of those that are cut; what both share stays."""
    hidden, wide, inner = config["hidden_dim"], config["intermediate_dim"], _inner(config)
    if config.get("block", "bert") == "bert":
        attention = 3 * (hidden * inner + inner) + inner * hidden + hidden + 2 * hidden
        feed_forward = 2 * hidden * wide + wide + hidden + 2 * hidden
        first = 0
    else:
        attention = 4 * hidden * inner + hidden
        feed_forward = 3 * hidden * wide + hidden
        first = 0 if shares_attention(config) else hidden  # its input is normed already
    layers, sharing = config["num_layers"], config.get("layer_sharing", "none")
    groups = groups_of_layers(layers, config.get("layer_groups", 1)) if sharing != "none" else []
    totals = [-first, 0]
    for size, sharers in ((attention, ("attention", "all")), (feed_forward, ("feed_forward", "all"))):
        owner = groups if sharing in sharers else [*range(layers)]
        staying = {owner[layer] for layer in kept}
        totals[0] += size * len(staying)
        totals[1] += size * len({*owner} - staying)
    return totals


def _block_work(config, length):
    """FLOPs and activations of one block, per token."""
    hidden, wide, inner = config["hidden_dim"], config["intermediate_dim"], _inner(config)
    attention = 2 * 4 * hidden * inner + 4 * length * inner
    held = 2 * hidden + 4 * inner + config["num_heads"] * length
    if config.get("block", "bert") == "bert":
        return attention + 4 * hidden * wide, held + 2 * hidden + 2 * wide
    return attention + 6 * hidden * wide, held + 2 * hidden + 4 * wide


def _spared(config, length, read):
    """FLOPs per token that a block saves whose output is needed of some tokens only; keys and values are of all."""
    flops, _ = _block_work(config, length)
    return round((1 - read) * (flops - 4 * config["hidden_dim"] * _inner(config)))


def _kept(name, parameters, flops=0, in_paper=None, trained=None, activations=0):
    in_paper = parameters if in_paper is None else in_paper
    trained = parameters if trained is None else trained
    return Entry(name, parameters, flops, True, in_paper, trained, activations)


def _dropped(name, parameters, flops, in_paper, activations):
    return Entry(name, parameters, flops, False, in_paper, parameters, activations)
