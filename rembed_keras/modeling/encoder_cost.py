"""What an encoder costs, from its arguments."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from rembed_keras.modeling.blocks.stack import (
    attention_of,
    block_of,
    has_position_table,
    has_projection,
    input_embedding_of,
    layers_of_cut,
    owners,
    shared_entries,
    sublayer_shapes,
)
from rembed_keras.modeling.cost import BACKWARD, Config, Entry, Shape, Work, size_of

LAST_NORM, MIX = "last norm", "mix of layers"
ATTENTION_OUTPUTS = 4  # of blocks that do not say it, see `PostNorm`


def encoder_entries(
    config: Config,
    length: int,
    kept_layers: int | None = None,
    keep: str = "bottom",
    seen: float = 1.0,
    read: float = 1.0,
) -> list[Entry]:
    """The entries of an encoder.

    Args:
        config: its arguments; those that are left out have its defaults.
        length: S, the tokens that each token attends to.
        kept_layers: how many blocks are kept after pre-training; all by default.
        keep: which; see `layers_of_cut`.
        seen: share of the tokens that the blocks see.
        read: share of the tokens of which the last block's output is needed.

    Returns:
        Entries of what is kept, then of the blocks that are cut, if any are.
    """
    layers = config["num_layers"]
    kept = layers_of_cut(config, kept_layers, keep)
    cut = [layer for layer in range(layers) if layer not in kept]
    works = layer_works(config, seen * length)
    saved = 0 if config.get("scalar_mix") else spared(works[-1], read)
    shapes, shared = _shapes_of_blocks(config, kept, cut), shared_entries(config, kept)
    entries = [
        *embedding_entries(config),
        _blocks_entry(f"{len(kept)} blocks", shapes[0], works, kept, seen, saved),
        *shared.values(),
        *_top_entries(config, length),
    ]
    if cut:
        entry = _blocks_entry(f"{len(cut)} blocks, cut", shapes[1], works, cut, seen, saved)
        apart = [
            replace(each, name=f"{each.name}, cut")
            for number, each in shared_entries(config, cut).items()
            if number not in shared
        ]
        entries += [replace(each, is_kept=False) for each in (entry, *apart)]
    return entries if config.get("trainable", True) else [_frozen(entry) for entry in entries]


def added_entries(encoder: Any) -> list[Entry]:
    """The entry of LoRA, adapters and the like that were added to an `Encoder`; none where nothing was."""
    from rembed_keras.modeling.layers.adapters import added_variables  # only here: needs a framework

    shapes = tuple(tuple(variable.shape) for variable in added_variables(encoder))
    flops = sum(2 * size_of([shape]) for shape in shapes if len(shape) > 1)
    return [Entry("added layers", shapes, flops)] if shapes else []


def reached_entries(config: Config, length: int, depth: int, relates: bool, mixes: bool) -> list[Entry]:
    """The entries of an encoder of which no gradient reaches all: of the rest nothing is trained, nor computed.

    Args:
        config: its arguments.
        length: S.
        depth: how many blocks the loss reads the output of; if all, then after their norm.
        relates: whether it reads queries, keys and values of the next one.
        mixes: whether it reads the mix of layers.
    """
    entries, first = encoder_entries(config, length), len(embedding_entries(config))
    above = layer_works(config, length)[depth:]
    entries[first] = replace(
        entries[first],
        activations=entries[first].activations - round(sum(work.activations for work in above)),
        spared=round(sum(work.flops for work in above)),
        unreached=_unreached_of_blocks(config, depth, relates),
    )
    read = {entry.name for entry in shared_entries(config, range(depth)).values()}
    read |= {LAST_NORM} if not above else set()
    read |= {MIX} if mixes else set()
    for index, entry in enumerate(entries[first + 1 :], first + 1):
        if entry.name not in read:
            entries[index] = replace(entry, activations=0, spared=entry.flops, unreached=entry.shapes)
    return entries if config.get("trainable", True) else [_frozen(entry) for entry in entries]


def _unreached_of_blocks(config, depth, relates):
    """Shapes of the variables of the blocks above, but for those that are read of the first of them."""
    own = {sublayer: owners(config, sublayer) for sublayer in ("attention", "feed_forward")}
    read = {(sublayer, owner): 0 for sublayer in own for owner in own[sublayer][:depth]}
    if relates and depth < config["num_layers"]:
        outputs = getattr(block_of(config), "attention_outputs", ATTENTION_OUTPUTS)
        read.setdefault(("attention", own["attention"][depth]), outputs)
    shapes = sublayer_shapes(config).items()
    return _joined(each[len(each) - read.get(key, len(each)) :] for key, each in shapes)


def embedding_entries(config: Config) -> list[Entry]:
    """The entries of what is below the blocks: tables, their norm, the projection to the width of the blocks."""
    width, hidden, block = config["input_embedding_dim"], config["hidden_dim"], block_of(config)
    entries = input_embedding_of(config).entries(config, block, has_position_table(config))
    if has_projection(config):
        shapes = ((width, hidden), *(((hidden,),) if block.has_biases else ()))
        in_paper = None if width != hidden else 0  # the paper leaves a projection between equal widths out
        flops = 2 * width * hidden
        frozen = 0 if any(entry.trained_shapes for entry in entries) else flops  # the gradient of what is below
        entries.append(Entry("projection", shapes, flops, in_paper=in_paper, frozen=frozen))
    return entries


def layer_works(config: Config, length: float) -> list[Work]:
    """What each layer does with a token that attends to `length` tokens."""
    block = block_of(config)
    return [block.work(config, kind, length) for kind in attention_of(config)]


def spared(work: Work, read: float) -> int:
    """FLOPs per token that a block saves whose output is needed of a share of the tokens only."""
    return round(work.flops - work.needed_of_all - read * work.of_a_pick) if read < 1 else 0


def _top_entries(config, length):
    """The entries of what is above the blocks."""
    hidden, layers = config["hidden_dim"], config["num_layers"]
    entries = []
    if block_of(config).norms_first:
        norm = ((hidden,),) * (1 + block_of(config).has_biases)
        entries.append(Entry(LAST_NORM, norm, activations=hidden))
    if config.get("scalar_mix"):
        entries.append(Entry(MIX, ((layers + 1,), ())))
    once = round(2 * hidden * hidden / length)  # it reads the first token alone
    pooler = Entry("pooler", ((hidden, hidden), (hidden,)), once, in_paper=0, is_trained=False, spared=once)
    return [*entries, pooler]


def _shapes_of_blocks(config, kept, cut):
    """Shapes of the variables of the blocks that stay and of those that are cut; what both share stays."""
    staying: dict[tuple[str, int], tuple[Shape, ...]] = {}
    going: dict[tuple[str, int], tuple[Shape, ...]] = {}
    shapes = sublayer_shapes(config)
    for layers, own in ((kept, staying), (cut, going)):
        for sublayer in ("attention", "feed_forward"):
            owner = owners(config, sublayer)
            own |= {(sublayer, owner[layer]): shapes[sublayer, owner[layer]] for layer in layers}
    return _joined(staying.values()), _joined(shape for key, shape in going.items() if key not in staying)


def _frozen(entry):
    """An entry of an encoder that is not trained: nothing of it is moved, and no gradient needs to reach it."""
    return replace(entry, is_trained=False, frozen=BACKWARD * (entry.flops - entry.spared))


def _joined(groups: Iterable[tuple[Shape, ...]]) -> tuple[Shape, ...]:
    return tuple(shape for group in groups for shape in group)


def _blocks_entry(name, shapes, works, layers, seen, saved):
    """The entry of some of the layers; the last of all saves what is not read of it."""
    return Entry(
        name,
        shapes,
        round(seen * sum(works[layer].flops for layer in layers)),
        activations=round(seen * sum(works[layer].activations for layer in layers)),
        spared=saved if len(works) - 1 in layers else 0,
    )
