"""What Keras's `clone_model` meets, which would make a model of ours layer by layer."""

import keras

from rembed_keras.errors import UserError


def made_with_its_model(layer: keras.layers.Layer) -> dict:
    """`get_config` of a layer that holds others of its model, or is held by them, so that none is made of it alone.

    Raises:
        UserError: whenever it is asked.
    """
    raise UserError(
        f"{layer.name} is made by its model, and not alone: instead of clone_model take "
        "type(model).from_config(model.get_config())"
    )
