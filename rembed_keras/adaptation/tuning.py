"""Making a task model ready for fine-tuning methods, and the count of what a task then costs.

Many tasks can share one pre-trained encoder: what a task needs of its own is its head, what was added for it, and what
of the encoder it moved. That is what its optimizer has slots for and what is stored for it. The methods are in
`methods`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import keras

from rembed_keras.adaptation.methods import Method
from rembed_keras.errors import UserError, shortened


def tune(model: keras.Model, methods: Sequence[Method]) -> None:
    """Makes a task model ready to be fine-tuned by some methods.

    Call it once, when the encoder has its pre-trained weights, before `compile` and before the optimizer is built;
    under a strategy in its scope, since layers may be added. With no methods the model stays as it is.

    Args:
        model: a task model: it has an `encoder`, and all else is its head.
        methods: what is done, and what is trained: the union of theirs.

    Raises:
        UserError: for what is no method, a method that does not suit the encoder, or a model that has methods.

    >>> from rembed_keras.adaptation import Blocks, LayerwiseDecay
    >>> from rembed_keras.modeling import Classifier, Encoder
    >>> encoder = Encoder(100, num_layers=2, num_heads=2, hidden_dim=8, intermediate_dim=16, input_embedding_dim=4)
    >>> model = Classifier(encoder, num_classes=3)
    >>> tune(model, [Blocks([-1]), LayerwiseDecay(0.5)])
    >>> sorted({variable.path.split("/")[0] for variable in model.trainable_variables})
    ['block_1', 'head', 'pooler']
    """
    if not hasattr(model, "adapt"):
        raise UserError(f"tune takes a task model, such as Classifier(encoder, 3), and {shortened(model)} is none")
    if not isinstance(methods, Sequence):
        raise UserError(f"fine-tuning methods are a list, and {shortened(methods)} is none: put it in []")
    encoder = model.encoder.get_config()
    for method in methods:
        if not isinstance(method, type) and hasattr(method, "check"):
            method.check(encoder)  # before another one has changed anything
    model.adapt(methods)


def learning_rate_multipliers(model: keras.Model, methods: Sequence[Method]) -> dict[str, float]:
    """What the learning rates of a tuned model's variables are multiplied by, by path; the product of all methods'.

    >>> from rembed_keras.adaptation import LayerwiseDecay
    >>> from rembed_keras.modeling import Classifier, Encoder
    >>> encoder = Encoder(100, num_layers=2, num_heads=2, hidden_dim=8, intermediate_dim=16, input_embedding_dim=4)
    >>> shares = learning_rate_multipliers(Classifier(encoder, 3), [LayerwiseDecay(0.5)])
    >>> [shares[f"{layer}/kernel"] for layer in ("projection", "block_0/feed_forward/up", "block_1/feed_forward/up")]
    [0.125, 0.25, 0.5]
    """
    tables = [method.multipliers(model) for method in methods]
    paths = [variable.path for variable in model.trainable_variables]
    return {
        path: math.prod(table.get(path, 1.0) for table in tables)
        for path in paths
        if any(path in table for table in tables)
    }


def task_variables(model: keras.Model) -> list:
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
        teacher: those of its loss terms' teachers, which are in none of the others.
    """

    trainable: int
    stored: int
    total: int
    teacher: int = 0


def tuned(model: keras.Model) -> Tuned:
    """Counts what a task costs in a model that was tuned.

    >>> from rembed_keras.adaptation import Adapters
    >>> from rembed_keras.modeling import Classifier, Encoder
    >>> encoder = Encoder(100, num_layers=2, num_heads=2, hidden_dim=8, intermediate_dim=16, input_embedding_dim=4)
    >>> model = Classifier(encoder, num_classes=3)
    >>> tune(model, [Adapters(width=2)])
    >>> tuned(model).stored == 4 * (2 * 8 * 2 + 8 + 2) + 3 * (8 + 1)
    True
    """
    counted = (model.trainable_variables, task_variables(model), model.weights, model.teacher_variables)
    return Tuned(*(sum(math.prod(variable.shape) for variable in variables) for variables in counted))
