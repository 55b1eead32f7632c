"""Fine-tuning methods: which of an encoder's parameters learn a task, and what is added or reinitialized for it.

A method is a small object; several of them are used together, and what one of them trains is trained. The head is
always trained, and so is what a method adds or reinitializes. `tuning.tune` applies them.
"""

from collections.abc import Sequence

import keras

from rembed_keras.errors import UserError, check_counts
from rembed_keras.modeling.layers.adapters import added_variables, insert_adapters, insert_lora
from rembed_keras.modeling.layers.tables import initializer


class Method:
    """A fine-tuning method; your own is a class with what this one has.

    Attributes:
        chooses: whether it says what is trained; everything is trained if no method of several does.
    """

    chooses = True

    def apply(self, model) -> list:
        """Changes a task model as it needs to, and returns those of the encoder's variables that are trained."""
        raise NotImplementedError

    def multipliers(self, model) -> dict[str, float]:
        """What the learning rates of variables are multiplied by, by their paths; the others' are as they are."""
        return {}

    def get_config(self) -> dict:
        """The arguments that it was made with."""
        return dict(vars(self))

    @classmethod
    def from_config(cls, config: dict) -> "Method":
        """A method of such arguments."""
        return cls(**config)


@keras.saving.register_keras_serializable(package="rembed_keras")
class Everything(Method):
    """Trains all parameters, but for a token table with `freeze_input_embedding`; as if no method were given."""

    def apply(self, model):
        return model.encoder.weights


@keras.saving.register_keras_serializable(package="rembed_keras")
class HeadOnly(Method):
    """Trains the head and nothing of the encoder."""

    def apply(self, model):
        return []


@keras.saving.register_keras_serializable(package="rembed_keras")
class Norms(Method):
    """Trains the scales and biases of all norms."""

    def apply(self, model):
        return _named(model.encoder, "gamma", "beta")


@keras.saving.register_keras_serializable(package="rembed_keras")
class Biases(Method):
    """Trains all biases, those of norms too: BitFit. Not for pre-norm blocks, which have none.

    Source: Ben Zaken et al. 2022.
    """

    def apply(self, model):
        if not any(weight.name == "bias" for block in model.encoder.parts.blocks for weight in block.weights):
            raise UserError("Biases trains biases, and this encoder's blocks have none: take Norms or Lora")
        return _named(model.encoder, "bias", "beta")


@keras.saving.register_keras_serializable(package="rembed_keras")
class Blocks(Method):
    """Trains some of the blocks.

    Args:
        layers: numbers of the blocks, from 0; -1 is the highest. Blocks that share a sublayer train it for all.
        embeddings: whether to train what is below them, too: all tables, their norm and the projection.
        top: whether to train what is above them, too: the last norm, the mix of layers, and the pooler if it is read.
    """

    def __init__(self, layers: Sequence[int], embeddings: bool = False, top: bool = True):
        self.layers = [*layers]
        self.embeddings = embeddings
        self.top = top

    def apply(self, model):
        parts = model.encoder.parts
        chosen = _blocks(model.encoder, self.layers)
        if self.embeddings:
            chosen += [parts.embeddings, parts.projection]
        if self.top:
            chosen += [parts.norm, parts.mix, parts.pooler]
        return [weight for layer in chosen if layer is not None for weight in layer.weights]


@keras.saving.register_keras_serializable(package="rembed_keras")
class Adapters(Method):
    """Adds a bottleneck after each attention and each feed-forward pair, and trains these; see `BottleneckAdapter`.

    The paper trains norms too: `[Adapters(), Norms()]`. Sublayers that blocks share have one adapter.

    Args:
        width: m, of the bottlenecks.
        layers: numbers of the blocks that have them, from 0, -1 being the highest; all by default.

    Source: Houlsby et al. 2019.
    """

    def __init__(self, width: int = 64, layers: Sequence[int] | None = None):
        check_counts({"an adapter's width": width})
        self.width = width
        self.layers = None if layers is None else [*layers]

    def apply(self, model):
        return insert_adapters(model.encoder, _blocks(model.encoder, self.layers), self.width)


@keras.saving.register_keras_serializable(package="rembed_keras")
class Lora(Method):
    """Adds a low-rank product, zero at first, to some of each block's weight matrices, and trains its two factors.

    It is Keras's `enable_lora`. There the matrices of queries, keys and values are [D, H, K], and become
    [D, H, r] times [r, K]: D x H x r + r x K parameters each, of rank r in every head. The others are as in the paper.

    Args:
        rank: r.
        alpha: the products are multiplied by alpha / r; not at all by default.
        targets: which matrices: "query", "key", "value" and "output" of attention, "up" and "down".
        layers: numbers of the blocks that have them, from 0, -1 being the highest; all by default.

    Source: Hu et al. 2022; queries and values are changed there too.
    """

    def __init__(
        self,
        rank: int = 8,
        alpha: float | None = None,
        targets: Sequence[str] = ("query", "value"),
        layers: Sequence[int] | None = None,
    ):
        check_counts({"LoRA's rank": rank})
        self.rank = rank
        self.alpha = alpha
        self.targets = [*targets]
        self.layers = None if layers is None else [*layers]

    def apply(self, model):
        return insert_lora(_blocks(model.encoder, self.layers), self.rank, self.alpha, self.targets)


@keras.saving.register_keras_serializable(package="rembed_keras")
class Reinitialize(Method):
    """Reinitializes the top blocks, and the pooler if it is read; they are trained, whatever else is.

    Args:
        num_layers: how many blocks.
        pooler: whether the pooler is reinitialized.

    Source: Zhang et al. 2021, section 5.
    """

    chooses = False

    def __init__(self, num_layers: int = 1, pooler: bool = True):
        check_counts({"the number of layers to reinitialize": num_layers})
        self.num_layers = num_layers
        self.pooler = pooler

    def apply(self, model):
        encoder = model.encoder
        layers = _blocks(encoder, [-1 - i for i in range(self.num_layers)])
        if self.pooler and model.reads == "pooled_output":
            layers.append(encoder.parts.pooler)
        added = {id(variable) for variable in added_variables(encoder)}  # fresh already
        weights = {id(weight): weight for layer in layers for weight in layer.weights if id(weight) not in added}
        for weight in weights.values():
            first = {"kernel": initializer(), "gamma": keras.initializers.Ones()}
            draw = first.get(weight.name, keras.initializers.Zeros())
            weight.assign(draw(weight.shape, weight.dtype))
        return [*weights.values()]


@keras.saving.register_keras_serializable(package="rembed_keras")
class LayerwiseDecay(Method):
    """Lowers the learning rate from layer to layer on the way down, so that what is general changes least.

    Block i of L learns at factor^(L - i), counted from 0, what is below the blocks at factor^(L + 1), the head and
    what else is above them at 1 times the learning rate. A sublayer that blocks share counts for the highest of them.

    Args:
        factor: above 0, at most 1.

    Raises:
        UserError: for any other factor.

    Source: Howard and Ruder 2018, section 3.2; Clark et al. 2020, appendix B.
    """

    chooses = False

    def __init__(self, factor: float = 0.9):
        if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor <= 1:
            raise UserError(f"the factor of LayerwiseDecay is {factor!r}; it must be above 0 and at most 1")
        self.factor = factor

    def apply(self, model):
        return []

    def multipliers(self, model):
        parts = model.encoder.parts
        levels = [[parts.embeddings, parts.projection], *([block] for block in parts.blocks)]
        return {
            weight.path: self.factor ** (len(levels) - level)
            for level, layers in enumerate(levels)
            for layer in layers
            if layer is not None
            for weight in layer.weights
        }


def _named(encoder, *names):
    return [weight for weight in encoder.weights if weight.name in names]


def _blocks(encoder, layers):
    """Blocks of an encoder by their numbers; all of them if those are None."""
    blocks = encoder.parts.blocks
    if layers is None:
        return [*blocks]
    for layer in layers:
        if isinstance(layer, bool) or not isinstance(layer, int) or not -len(blocks) <= layer < len(blocks):
            raise UserError(f"there is no block {layer!r}: this encoder has {len(blocks)}, numbered from 0")
    return [blocks[layer] for layer in layers]
