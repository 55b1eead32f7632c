"""Fine-tuning methods that add layers to an encoder and train these: adapters, LoRA and RoAd."""

from collections.abc import Sequence

import keras

from rembed_keras.adaptation.methods.method import OfBlocks, blocks_of, hosted_in, listed
from rembed_keras.adaptation.projections import LowRank, Rotations, Variant
from rembed_keras.errors import Count, Rate, check_counts
from rembed_keras.modeling.blocks.stack import owners
from rembed_keras.modeling.layers.adapters import (
    ADAPTERS,
    PROJECTIONS,
    Projection,
    insert_adapters,
    insert_changes,
    insert_keras_lora,
)
from rembed_keras.modeling.layers.sublayer import PLACES, Place, check_bits, taken

SUBLAYERS = {"up": "feed_forward", "down": "feed_forward"}  # of projections; those of all others are "attention"
OUTPUTS = ("attention_output", "merge")  # what the layer of the projection "output" is called


@keras.saving.register_keras_serializable(package="rembed_keras")
class Adapters(OfBlocks):
    """Adds a bottleneck after each attention and each feed-forward pair, or beside them, and trains these.

    The first paper trains norms too: `[Adapters(), Norms()]`. Sublayers that blocks share have one adapter.

    Args:
        width: m, of the bottlenecks.
        layers: numbers of the blocks that have them, from 0, -1 being the highest; all by default.
        place: "after" a sublayer, or "beside" it, reading what it reads: parallel adapters.

    Source: Houlsby et al. 2019; He et al. 2022 for those beside.
    """

    adds = True
    folds = False

    def __init__(self, width: Count = 64, layers: Sequence[int] | None = None, place: Place = "after"):
        check_counts({"an adapter's width": width})
        self.width = width
        self.layers = listed(layers)
        self.place = place

    def check(self, encoder):
        super().check(encoder)
        _check_room(encoder, self.layers, (self.place,), ADAPTERS.get(self.place))

    def apply(self, model):
        return insert_adapters(model.encoder, blocks_of(model.encoder, self.layers), self.width, self.place)


@keras.saving.register_keras_serializable(package="rembed_keras")
class Lora(OfBlocks):
    """Adds a low-rank product, zero at first, to some of each block's weight matrices, and trains its factors.

    Args:
        rank: r, of the product over the whole matrix, all heads together: r x (I + O) parameters for I features in and
            O out.
        alpha: the products are multiplied by alpha / r; not at all by default.
        targets: which matrices: "query", "key", "value" and "output" of attention, "up" and "down".
        layers: numbers of the blocks that have them, from 0, -1 being the highest; all by default.
        per_head: whether it is Keras's `enable_lora`, in which the matrices of queries, keys and values, [D, H, K],
            become [D, H, r] times [r, K]: of rank r in every head, with D x H x r + r x K parameters each. It is what
            version 0.1 had.

    Source: Hu et al. 2022; queries and values are changed there too.
    """

    adds = True

    def __init__(
        self,
        rank: Count = 8,
        alpha: Rate | None = None,
        targets: Sequence[Projection] = ("query", "value"),
        layers: Sequence[int] | None = None,
        per_head: bool = False,
    ):
        check_counts({"LoRA's rank": rank})
        self.rank = rank
        self.alpha = alpha
        self.targets = [*targets]
        self.layers = listed(layers)
        self.per_head = per_head

    def check(self, encoder):
        super().check(encoder)
        if not self.per_head:
            _check_bits(encoder, self.layers, self.targets, "lora")
            _check_room(encoder, self.layers, self.targets, "lora")

    def apply(self, model):
        blocks = blocks_of(model.encoder, self.layers)
        if self.per_head:
            return insert_keras_lora(blocks, self.rank, self.alpha, self.targets)
        return insert_changes(blocks, self.targets, lambda dtype: LowRank(self.rank, self.alpha, dtype=dtype))

    @classmethod
    def from_config(cls, config):
        return cls(**({"per_head": True} | config))  # version 0.1 knew no other and did not say so


@keras.saving.register_keras_serializable(package="rembed_keras")
class RoAd(OfBlocks):
    """Rotates and scales pairs of features of some projections, and trains the angles and the scales.

    Args:
        variant: how many angles and scales a pair has: 1, 2 or 4; O, 2 x O or 4 x O parameters for O features.
        group_size: features whose halves are paired; all those of a projection by default.
        targets: which projections: "query", "key", "value" and "output" of attention, "up" and "down".
        layers: numbers of the blocks that have them, from 0, -1 being the highest; all by default.

    Source: Liao and Monz 2024, who change all projections too.
    """

    adds = True

    def __init__(
        self,
        variant: Variant = 1,
        group_size: Count | None = None,
        targets: Sequence[Projection] = PROJECTIONS,
        layers: Sequence[int] | None = None,
    ):
        self.variant = variant
        self.group_size = group_size
        self.targets = [*targets]
        self.layers = listed(layers)

    def check(self, encoder):
        super().check(encoder)
        _check_bits(encoder, self.layers, self.targets, "road")
        _check_room(encoder, self.layers, self.targets, "road")

    def apply(self, model):
        blocks = blocks_of(model.encoder, self.layers)
        return insert_changes(blocks, self.targets, lambda dtype: Rotations(self.variant, self.group_size, dtype=dtype))


def _check_bits(encoder, layers, targets, change):
    """Checks, of an encoder's arguments, that matrices in few bits can host a change; as `host_on` does of layers."""
    blocks = _standing(encoder, layers)
    for mode, names in (encoder.get("quantized") or {}).items():
        for name in names:
            block, last = name.partition("/")[0], name.rpartition("/")[2]
            target = "output" if last in OUTPUTS else last
            if target in targets and block in blocks[SUBLAYERS.get(target, "attention")]:
                check_bits(name, mode, change)


def _check_room(encoder, layers, places, added):
    """Checks, of an encoder's arguments, that nothing of the name of what is added is there; as hosts do of layers."""
    blocks = _standing(encoder, layers)
    for hosted in hosted_in(encoder):
        try:
            sublayer, place, name = hosted["sublayer"], hosted["place"], hosted["layer"]["config"]["name"]
            block = f"block_{hosted['block']}"
            is_there = name == added and place.rpartition("/")[2] in places and block in blocks[sublayer]
        except (TypeError, KeyError, AttributeError):
            continue  # which is said where the encoder is read
        if is_there:
            raise taken(f"{block}/{sublayer}" + ("" if place in PLACES else f"/{place}"), name)


def _standing(encoder, layers):
    """The first blocks in which the sublayers of some blocks stand, which others may share, by kind of sublayer."""
    chosen = range(encoder["num_layers"]) if layers is None else layers
    own = {kind: owners(encoder, kind) for kind in ("attention", "feed_forward")}
    return {kind: {f"block_{numbers.index(numbers[i])}" for i in chosen} for kind, numbers in own.items()}
