"""An encoder that was trained elsewhere: its structure, and the values of its weights, which may still be in a file."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import keras

from rembed_keras.errors import UserError
from rembed_keras.modeling import Encoder
from rembed_keras.modeling.layers.adapters import added_variables, hosted_by, merge, sublayers
from rembed_keras.modeling.saving.changes import changes_of, frozen_in
from rembed_keras.modeling.saving.filling import Rows, blank
from rembed_keras.modeling.sizes import Dtype
from rembed_keras.training.initial.weights import Changes, check_same, mix_values
from rembed_keras.training.loop import checkpoints


@dataclass
class Held:
    """An encoder to start from.

    Attributes:
        encoder: of its structure; its weights may be blank.
        rows: name, for messages, and value of each of the encoder's weights, in their order.
        source: where they are, for messages.
        changes: what was changed of the structure, in words.
        head: values of the pre-training head, by path, if they were asked for.
        objective: the registered name of the pre-training model that the head is of.
    """

    encoder: Encoder
    rows: list[tuple[str, Rows]]
    source: Path
    changes: list[str] = field(default_factory=list)
    head: Mapping[str, Rows] = field(default_factory=dict)
    objective: str | None = None

    @classmethod
    def whole(cls, encoder: Encoder, source: Path, weights: list | None = None) -> "Held":
        """An encoder that has its weights, or others whose values are its own."""
        weights = encoder.weights if weights is None else weights
        return cls(encoder, [(weight.path, weight) for weight in weights], source)

    def changed(self, changes: Changes) -> "Held":
        """The encoder with structural changes.

        Raises:
            UserError: for a change that cannot be made.
        """
        if not changes.record():
            return self
        try:
            config = self.encoder.arguments
            said, arguments = changes.said(config), changes.arguments(config)
        except UserError as error:
            raise UserError(f"{self.source}: {error}") from None
        cut = self.encoder.with_layers(arguments["num_layers"], changes.keep)
        by_weight = {id(weight): pair for weight, pair in zip(self.encoder.weights, self.rows, strict=True)}
        rows = [by_weight[id(weight)] for weight in cut.weights]
        if changes.scalar_mix:
            cut, rows = _mixed(cut, rows)
        return Held(cut, rows, self.source, said, self.head, self.objective)

    def fresh(self, dtype: Dtype | None = None) -> Encoder:
        """An encoder of this structure, newly initialized, of a dtype; of its own by default."""
        config = self.encoder.get_config()
        return type(self.encoder).from_config(config if dtype is None else config | {"dtype": dtype})

    def give(self, encoder: Encoder) -> None:
        """Gives another encoder the values.

        Raises:
            UserError: naming what differs, if it has another structure; nothing was changed then.
        """
        check_same(self.encoder.arguments, encoder.arguments, self.source)
        if changes_of(self.encoder) != changes_of(encoder):
            raise UserError(
                f"{self.source} has adapters or quantized layers that the encoder of this stage has not, or the reverse"
            )
        self.fill(encoder.weights)

    def fill(self, weights: list) -> None:
        """Gives as many weights of the same shapes the values.

        Raises:
            UserError: for another number or shape; nothing was changed then.
        """
        checkpoints.assign_in_order(weights, self.rows, self.source)

    def give_head(self, model: keras.Model) -> bool:
        """Gives a pre-training model the head, if it is of the same class and its weights have these names and shapes.

        A model that can start from the heads of another class gets one whose weights are among its own.

        Returns:
            Whether it did.
        """
        wanted = {variable.path: tuple(variable.shape) for variable in model.droppable_variables}
        there = {path: tuple(self.head[path].shape) for path in self.head}
        is_same = keras.saving.get_registered_name(type(model)) == self.objective and there == wanted
        is_part = self.objective in model.heads_of and there.items() <= wanted.items()
        if not there or not (is_same or is_part):
            return False
        variables = [variable for variable in model.droppable_variables if variable.path in there]
        rows = [(variable.path, self.head[variable.path]) for variable in variables]
        checkpoints.assign_in_order(variables, rows, self.source)
        return True

    def said(self, name: str) -> str:
        """Where training starts, for people to read; `name` is what the place is called."""
        return f"starts from {name}" + (f": {', '.join(self.changes)}" if self.changes else "")


def folded(encoder: Encoder, source: Path) -> Held:
    """A fine-tuned encoder, in whose matrices the changes of projections are folded that fine-tuning trained.

    Args:
        encoder: the encoder, which is changed by that.
        source: where it is, for messages.

    Raises:
        UserError: for additions that cannot be folded.
    """
    if any(each.after or each.beside for each in sublayers(encoder.parts.blocks)):
        raise UserError(f"{source} was fine-tuned with adapters, which cannot be folded into an encoder's own weights")
    added = {id(variable) for variable in added_variables(encoder)}
    if not added:
        return Held.whole(encoder, source)
    if "quantized" in changes_of(encoder):
        raise UserError(f"{source} is quantized: what its fine-tuning method added cannot be folded into it")
    merge(encoder)
    kept = {key: value for key, value in encoder.get_config().items() if key not in ("hosted", "frozen")}
    config = kept | frozen_in(encoder, {id(layer) for layer in hosted_by(encoder)})
    with blank():
        plain = type(encoder).from_config(config)
    return Held.whole(plain, source, [weight for weight in encoder.weights if id(weight) not in added])


def _mixed(encoder, rows):
    """An encoder with a scalar mix on it, and the values of its weights."""
    with blank():
        mixed = type(encoder).from_config(encoder.get_config() | {"scalar_mix": True})
    values = {
        id(getattr(mixed.parts.mix, name)): (name, value) for name, value in mix_values(mixed.num_layers + 1).items()
    }
    others = iter(rows)
    return mixed, [values[id(weight)] if id(weight) in values else next(others) for weight in mixed.weights]
