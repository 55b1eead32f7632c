"""A keras-hub `Task` whose backbone is an encoder: what pre-training models and task models have in common."""

import functools
import inspect
from collections.abc import Callable

import keras
import keras_hub

from rembed_keras.errors import UserError
from rembed_keras.modeling.encoder import Encoder
from rembed_keras.modeling.layers.rows import checks_arrays
from rembed_keras.modeling.losses.terms import HasTerms
from rembed_keras.modeling.replicas import OnReplicas
from rembed_keras.modeling.saving.changes import settle_dtypes


class EncoderTask(HasTerms, OnReplicas, keras_hub.models.Task):
    """A model around an encoder, with presets: `save_to_preset` and `from_preset`.

    A subclass whose constructor has an `encoder` takes it as `backbone=` too, as keras-hub hands it over.

    Args:
        encoder: an `Encoder`.
        inputs: the model's symbolic inputs, a dict.
        outputs: its symbolic outputs.
        name: the model's name.

    Raises:
        UserError: if no encoder is given, or two.
    """

    backbone_cls = Encoder
    reads_rows = True  # whether the encoder sees all tokens of a row in training

    # keras-hub's loops would first send every batch through a preprocessor; there is none
    fit, evaluate, predict = map(checks_arrays, (keras.Model.fit, keras.Model.evaluate, keras.Model.predict))
    train_on_batch, test_on_batch = map(checks_arrays, (keras.Model.train_on_batch, keras.Model.test_on_batch))
    predict_on_batch = checks_arrays(keras.Model.predict_on_batch)

    def __init_subclass__(cls, **arguments):
        super().__init_subclass__(**arguments)
        if "__init__" in vars(cls):
            cls.__init__ = _taking_backbone(cls.__init__)  # type: ignore[method-assign]

    def __init__(self, encoder, inputs, outputs, name):
        self.backbone = encoder
        self.preprocessor = None
        super().__init__(inputs=inputs, outputs=outputs, name=name, compile=False)
        settle_dtypes(self)

    @classmethod
    def from_preset(cls, preset: str, load_weights: bool = True, **arguments) -> keras.Model:
        """As keras-hub's, which fails at a mixed policy's name unless a dtype is given; the encoder keeps its own.

        Args:
            preset: a folder that `save_to_preset` wrote; an encoder's own will do for a task model, whose head is then
                new.
            load_weights: whether to load them, or to leave new ones.
            arguments: of the model, for example `num_classes`; those of the preset by default.
        """
        return super().from_preset(preset, load_weights, dtype=keras.config.dtype_policy(), **arguments)

    @property
    def encoder(self) -> Encoder:
        """The encoder, which keras-hub calls the backbone."""
        return self.backbone

    @property
    def reading(self) -> Encoder:
        """The encoder that training calls: of the same blocks, where an objective has it read another table."""
        return self.encoder


def _taking_backbone(constructor: Callable[..., None]) -> Callable[..., None]:
    """A constructor that takes its `encoder` by keras-hub's name for it, `backbone`, too."""
    signature = inspect.signature(constructor)
    if "encoder" not in signature.parameters:
        return constructor

    @functools.wraps(constructor)
    def takes_either(self, *arguments, **named):
        if bool(arguments) + ("encoder" in named) + ("backbone" in named) != 1:
            raise UserError(f"{type(self).__name__} needs an encoder, as encoder= or, which is the same, as backbone=")
        if "backbone" in named:
            named["encoder"] = named.pop("backbone")
        constructor(self, *arguments, **named)

    takes_either.__signature__ = signature  # type: ignore[attr-defined]  # gin reads it
    return takes_either
