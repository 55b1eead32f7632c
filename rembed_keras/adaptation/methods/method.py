"""What a fine-tuning method is: it says what of an encoder learns a task, what is added for it, and how that folds.

A method is a small object; several of them are used together, and what one of them trains is trained. The head is
always trained, and so is what a method adds or reinitializes. `adaptation.tune` applies them. What a method adds are
layers, which stand after a sublayer or beside it (`Sublayer.host`) or on a projection (`host_on`); those on a
projection are `ProjectionChange`s, which say how they fold into its matrix.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from rembed_keras.errors import UserError
from rembed_keras.modeling.cost import Config


class Method:
    """A fine-tuning method; your own is a class derived from this one, registered as Keras serializes objects.

    Attributes:
        chooses: whether it says what is trained; everything is trained if no method of several does.
        adds: whether it adds layers to the encoder.
        folds: whether what it adds, if anything, can be folded, so that other training can start from the encoder.
    """

    chooses = True
    adds = False
    folds = True

    def check(self, encoder: Config) -> None:
        """Checks, before anything is trained, that an encoder of some arguments has what the method changes.

        Raises:
            UserError: if it has not.
        """

    def check_model(self, model) -> None:
        """Checks, before anything is trained, a method that data settles, which cannot be applied then.

        Args:
            model: a task model whose weights are blank.

        Raises:
            UserError: for what `settle` would refuse whatever the data.
        """

    def settle(self, model, batches: Iterable[Any]) -> "Method":
        """The method for this model and task, if data decides what it does; itself if not.

        Args:
            model: a task model whose encoder has its starting weights.
            batches: of training data, `(inputs, targets)` or `(inputs, targets, weights)`.
        """
        return self

    def apply(self, model) -> list:
        """Changes a task model as it needs to, and returns those of the encoder's variables that are trained."""
        raise NotImplementedError

    def restore(self, model) -> list:
        """What `apply` does to a model that is read from a file, whose weights follow, and may be quantized by now."""
        return self.apply(model)

    def multipliers(self, model) -> dict[str, float]:
        """What the learning rates of variables are multiplied by, by their paths; the others' are as they are."""
        return {}

    def get_config(self) -> dict:
        """The arguments that it was made with."""
        return dict(vars(self))

    def __repr__(self):
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.get_config().items())
        return f"{type(self).__name__}({arguments})"

    @classmethod
    def from_config(cls, config: dict) -> "Method":
        """A method of such arguments."""
        return cls(**config)


class OfBlocks(Method):
    """A method that changes some of the blocks.

    Attributes:
        layers: their numbers, from 0, -1 being the highest; None for all.
    """

    layers: Sequence[int] | None

    def check(self, encoder):
        check_blocks(self.layers or (), encoder["num_layers"])


def named(weights, *names: str) -> list:
    """Those of some weights that have one of the names."""
    return [weight for weight in weights if weight.name in names]


def listed(layers: Iterable[int] | None) -> list[int] | None:
    """Numbers of blocks as a list; None stays.

    Raises:
        UserError: for a number alone.
    """
    if isinstance(layers, int):
        raise UserError(f"layers is {layers}: give a list of numbers of blocks, such as [{layers}]")
    return None if layers is None else [*layers]


def hosted_in(encoder: Config) -> list[dict]:
    """What an encoder's arguments say was added to it; what is malformed is said where the encoder is read."""
    there = encoder.get("hosted")
    return [each for each in there if isinstance(each, dict)] if isinstance(there, list) else []


def blocks_of(encoder, layers) -> list:
    """Blocks of an encoder by their numbers, -1 being the highest; all of them if those are None.

    Raises:
        UserError: for a block that is not there.
    """
    blocks = encoder.parts.blocks
    if layers is None:
        return [*blocks]
    check_blocks(layers, len(blocks))
    return [blocks[layer] for layer in layers]


def check_blocks(layers: Iterable[int], count: int) -> None:
    """Checks numbers of blocks, -1 being the highest, of an encoder that has so many.

    Raises:
        UserError: for a block that is not there.
    """
    for layer in layers:
        if isinstance(layer, bool) or not isinstance(layer, int) or not -count <= layer < count:
            raise UserError(f"there is no block {layer!r}: this encoder has {count}, numbered from 0")
