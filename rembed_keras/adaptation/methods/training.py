"""Methods that say how training starts and proceeds, and leave open what is trained."""

import keras

from rembed_keras import compat
from rembed_keras.adaptation.methods.method import Method, blocks_of, hosted_in
from rembed_keras.errors import Count, Share, UserError, check_counts
from rembed_keras.modeling.blocks.stack import owners
from rembed_keras.modeling.layers.adapters import added_variables
from rembed_keras.modeling.layers.tables import initializer

FIRST = {  # what makes the initializers of weights, by their names
    "kernel": initializer,
    "embeddings": initializer,
    "gamma": keras.initializers.Ones,
    "beta": keras.initializers.Zeros,
    "bias": keras.initializers.Zeros,
}


@keras.saving.register_keras_serializable(package="rembed_keras")
class Reinitialize(Method):
    """Reinitializes the top blocks, and the pooler if it is read; they are trained, whatever else is.

    What attention has in common for all blocks, as the distances of `Disentangled`, stays unless all are reinitialized.

    Args:
        num_layers: how many blocks.
        pooler: whether the pooler is reinitialized.

    Source: Zhang et al. 2021, section 5.
    """

    chooses = False

    def __init__(self, num_layers: Count = 1, pooler: bool = True):
        check_counts({"the number of layers to reinitialize": num_layers})
        self.num_layers = num_layers
        self.pooler = pooler

    def check(self, encoder):
        if self.num_layers > encoder["num_layers"]:
            raise UserError(
                f"num_layers of Reinitialize is {self.num_layers}; this encoder has {encoder['num_layers']} layers"
            )
        self._check_sharing(encoder)
        self._check_added(encoder)
        _check_whole(name for names in (encoder.get("quantized") or {}).values() for name in names)

    def _check_sharing(self, encoder):
        for sublayer in ("attention", "feed_forward"):
            numbers = owners(encoder, sublayer)
            below, top = numbers[: -self.num_layers], numbers[-self.num_layers :]
            if {*below} & {*top}:
                raise UserError(
                    f"num_layers of Reinitialize is {self.num_layers}: layer {len(below) - 1}, which would stay, "
                    "shares sublayers with them"
                )

    def _check_added(self, encoder):
        """Refuses blocks with what another fine-tuning added, which would not begin again."""
        kept = encoder["num_layers"] - self.num_layers
        for number in (each.get("block") for each in hosted_in(encoder)):
            if isinstance(number, int) and number >= kept:
                raise UserError(
                    f"num_layers of Reinitialize is {self.num_layers}, and block {number} has what another fine-tuning "
                    "added, which would stay: start from that task in its run, where it is folded into weights"
                )

    def apply(self, model):
        self._check_sharing(model.encoder.arguments)
        layers = compat.layers_of(model.encoder)
        _check_whole(each.path for each in layers if each.quantization_mode is not None)
        weights = self.restore(model)
        own = [weight for weight in weights if weight.name not in FIRST]  # of blocks of a user's
        begun = _begun(model.encoder, own) if own else {}
        for weight in weights:
            new = begun.get(id(weight))  # one initializer would draw the same for each weight
            weight.assign(FIRST[weight.name]()(weight.shape, weight.dtype) if new is None else new)
        return weights

    def restore(self, model):
        encoder = model.encoder
        layers = blocks_of(encoder, [-1 - i for i in range(self.num_layers)])
        if self.pooler and model.reads == "pooled_output":
            layers.append(encoder.parts.pooler)
        staying = [weight for block in encoder.parts.blocks[: -self.num_layers] for weight in block.weights]
        left = {id(variable) for variable in (*added_variables(encoder), *staying)}  # what is added is fresh already
        weights = {id(weight): weight for layer in layers for weight in layer.weights if id(weight) not in left}
        return [*weights.values()]


@keras.saving.register_keras_serializable(package="rembed_keras")
class LayerwiseDecay(Method):
    """Lowers the learning rate from layer to layer on the way down, so that what is general changes least.

    Block i of L learns at factor^(L - i), counted from 0, what is below the blocks at factor^(L + 1), the head and
    what else is above them at 1 times the learning rate. A sublayer that blocks share counts for the highest of them.
    Outside of a run, a `TrainingOptimizer` has to be given these numbers, see `learning_rate_multipliers`.

    Args:
        factor: above 0, at most 1.

    Raises:
        UserError: for any other factor.

    Source: Howard and Ruder 2018, section 3.2; Clark et al. 2020, appendix B.
    """

    chooses = False

    def __init__(self, factor: Share = 0.9):
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


def _begun(encoder, weights):
    """What some weights of an encoder begin with, by their ids."""
    asked, fresh = {id(weight) for weight in weights}, type(encoder).from_config(encoder.get_config())
    pairs = zip(encoder.weights, fresh.weights, strict=True)
    return {id(weight): new for weight, new in pairs if id(weight) in asked}


def _check_whole(quantized):
    """Checks that nothing is quantized, by the names of what is."""
    for name in quantized:
        raise UserError(f"Reinitialize needs an encoder that is not quantized, and {name} is")
