"""Making a task model ready to learn in some ways, and the account of what a task then costs.

Many tasks can share one pre-trained encoder: what a task needs of its own is its head, what was added for it, and what
of the encoder it moved. That is what its optimizer has slots for and what is stored for it. The ways are in `ways`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import keras

from rembed_keras.errors import UserError
from rembed_keras.modeling.layers.adapters import adapters_of
from rembed_keras.modeling.ways import Way


def tune(model: keras.Model, ways: Sequence[Way]) -> None:
    """Makes a task model ready to learn in some ways.

    Call it once, when the encoder has its pre-trained weights, before `compile` and before the optimizer is built;
    under a strategy in its scope, since layers may be added. With no ways the model stays as it is.

    Args:
        model: a task model: it has an `encoder`, and all else is its head.
        ways: what is done, and what is trained: the union of theirs.

    Raises:
        UserError: for what is no way, a way that does not suit the encoder, or a model that has ways.

    >>> from rembed_keras.modeling import Classifier, Encoder
    >>> from rembed_keras.modeling.ways import Blocks, LayerwiseDecay
    >>> encoder = Encoder(100, num_layers=2, num_heads=2, hidden_dim=8, intermediate_dim=16, input_embedding_dim=4)
    >>> model = Classifier(encoder, num_classes=3)
    >>> tune(model, [Blocks([-1]), LayerwiseDecay(0.5)])
    >>> sorted({variable.path.split("/")[0] for variable in model.trainable_variables})
    ['block_1', 'head', 'pooler']
    """
    for way in ways:
        if not isinstance(way, Way):
            raise UserError(f"{way!r} is no way to fine-tune; in a recipe they are made with (), as @ways.Biases()")
    if model.ways:
        raise UserError("this model was made ready to learn already: give all ways at once")
    model.ways = [*ways]
    others = {id(adapter) for adapter in adapters_of(model.encoder)}  # of another task that has the same encoder
    trained = {id(variable) for way in ways for variable in way.apply(model)}
    model.added = frozenset(id(adapter) for adapter in adapters_of(model.encoder)) - others
    if any(way.chooses for way in ways):
        encoder = model.encoder
        is_frozen = encoder.get_config()["freeze_input_embedding"]
        frozen = {id(weight) for weight in encoder.token_embedding.weights} if is_frozen else set()
        for weight in encoder.weights:
            weight.trainable = id(weight) in trained - frozen


def learning_rate_multipliers(model, ways: Sequence[Way]) -> dict[str, float]:
    """What the learning rates of a tuned model's variables are multiplied by, by path; the product of all ways'.

    >>> from rembed_keras.modeling import Classifier, Encoder
    >>> from rembed_keras.modeling.ways import LayerwiseDecay
    >>> encoder = Encoder(100, num_layers=2, num_heads=2, hidden_dim=8, intermediate_dim=16, input_embedding_dim=4)
    >>> shares = learning_rate_multipliers(Classifier(encoder, 3), [LayerwiseDecay(0.5)])
    >>> [shares[f"{layer}/kernel"] for layer in ("projection", "block_0/feed_forward/up", "block_1/feed_forward/up")]
    [0.125, 0.25, 0.5]
    """
    tables = [way.multipliers(model) for way in ways]
    paths = [variable.path for variable in model.trainable_variables]
    return {
        path: math.prod(table.get(path, 1.0) for table in tables)
        for path in paths
        if any(path in table for table in tables)
    }


def task_variables(model) -> list:
    """The variables that a tuned model needs besides its pre-trained encoder: its head, and what is trained."""
    kept = {id(weight) for weight in model.encoder.weights}
    trained = {id(variable) for variable in model.trainable_variables}
    return [weight for weight in model.weights if id(weight) in trained or id(weight) not in kept]


@dataclass(frozen=True)
class Tuned:
    """What a task costs, in parameters.

    Attributes:
        trainable: those that learn, and that an optimizer has slots for.
        stored: those to be stored for the task, beside an encoder that all tasks share.
        total: those of the model, with what was added.
    """

    trainable: int
    stored: int
    total: int


def tuned(model: keras.Model) -> Tuned:
    """Counts what a task costs in a model that was tuned.

    >>> from rembed_keras.modeling import Classifier, Encoder
    >>> from rembed_keras.modeling.ways import Adapters
    >>> encoder = Encoder(100, num_layers=2, num_heads=2, hidden_dim=8, intermediate_dim=16, input_embedding_dim=4)
    >>> model = Classifier(encoder, num_classes=3)
    >>> tune(model, [Adapters(width=2)])
    >>> tuned(model).stored == 4 * (2 * 8 * 2 + 8 + 2) + 3 * (8 + 1)
    True
    """
    counted = (model.trainable_variables, task_variables(model), model.weights)
    return Tuned(*(sum(math.prod(variable.shape) for variable in variables) for variables in counted))
