"""What a loss that a user gives to `compile` takes a head's outputs for."""

import inspect
from collections.abc import Sequence
from typing import Any

import keras


def takes_probabilities(loss: Any) -> bool:
    """Whether a loss is a cross-entropy that takes no logits, as Keras's do unless asked.

    >>> takes_probabilities("binary_crossentropy"), takes_probabilities(keras.losses.BinaryCrossentropy(True))
    (True, False)
    """
    loss = keras.losses.get(loss) if isinstance(loss, str) else loss
    if isinstance(loss, keras.losses.Loss):
        return loss.get_config().get("from_logits") is False
    known = inspect.signature(loss).parameters if inspect.isfunction(loss) else {}
    return "from_logits" in known and known["from_logits"].default is False


def is_binary(loss: Any) -> bool:
    """Whether one of some losses takes each output by itself, as that of one label or of none, by its name.

    >>> is_binary(keras.losses.BinaryFocalCrossentropy(from_logits=True)), is_binary(["mse"]), is_binary(None)
    (True, False, False)
    """
    losses = [keras.losses.get(each) if isinstance(each, str) else each for each in keras.tree.flatten(loss)]
    names = [getattr(each, "__name__", type(each).__name__) for each in losses]
    return any(name.lower().startswith("binary") for name in names)


def suited(metrics: Sequence[Any], loss: Any) -> list:
    """A model's own metrics beside a loss: Keras's accuracy would look for one label a row, or take logits for rates.

    Args:
        metrics: as `compile` takes them.
        loss: as `compile` takes it; None for the model's own.

    >>> suited(["accuracy"], None), suited(["accuracy"], keras.losses.BinaryCrossentropy(True))[0].threshold
    (['accuracy'], 0.0)
    """
    logits = {"accuracy": keras.metrics.BinaryAccuracy("accuracy", threshold=0.0)} if is_binary(loss) else {}
    return [logits.get(metric, metric) for metric in metrics]
