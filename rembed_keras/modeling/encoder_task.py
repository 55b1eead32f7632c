"""A keras-hub `Task` whose backbone is an encoder: what pre-training models and task models have in common."""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path

import keras
import keras_hub

from rembed_keras import compat
from rembed_keras.errors import UserError
from rembed_keras.modeling.encoder import Encoder
from rembed_keras.modeling.losses.terms import HasTerms
from rembed_keras.modeling.replicas import OnReplicas
from rembed_keras.modeling.saving.changes import settle_dtypes
from rembed_keras.modeling.saving.presets import located
from rembed_keras.modeling.saving.retracing import Retraced
from rembed_keras.modeling.texts.feeding import TakesTexts, found
from rembed_keras.modeling.texts.vectors import ReadsTexts


class EncoderTask(TakesTexts, ReadsTexts, HasTerms, Retraced, OnReplicas, keras_hub.models.Task):
    """A model around an encoder, with presets: `save_to_preset` and `from_preset`.

    A subclass whose constructor has an `encoder` takes it as `backbone=` too, as keras-hub hands it over, and
    `preprocessor=`: what makes inputs of texts; that of the encoder's tokenizer by default, if it has one.

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

    def __init_subclass__(cls, **arguments):
        super().__init_subclass__(**arguments)
        if "__init__" in vars(cls):
            cls.__init__ = _taking_backbone(cls.__init__)  # type: ignore[method-assign]

    def __init__(self, encoder, inputs, outputs, name):
        self.backbone = encoder
        super().__init__(inputs=inputs, outputs=outputs, name=name, compile=False)
        settle_dtypes(self)

    @classmethod
    def from_preset(cls, preset: str, load_weights: bool = True, **arguments) -> keras.Model:
        """As keras-hub's, which fails at a mixed policy's name unless a dtype is given; the encoder keeps its own.

        Args:
            preset: a name in `Encoder.presets`, a folder that `save_to_preset` or `rembed convert` wrote, or a handle
                of keras-hub's; an encoder's own will do for a task model, whose head is then new.
            load_weights: whether to load them, or to leave new ones.
            arguments: of the model, for example `num_classes`; those of the preset by default. `preprocessor` is one of
                the preset's tokenizer, if it has one; None for none.

        Raises:
            UserError: if the preset is an encoder's, and an argument is missing that the new head needs.
        """
        named, place = dict(arguments), located(preset)
        _check_new_head(cls, preset, Path(place), named)
        preprocessor = named.pop("preprocessor") if "preprocessor" in named else found(cls.preprocessor_cls, place)
        policy = keras.config.dtype_policy()
        model = super().from_preset(place, load_weights, dtype=policy, preprocessor=None, **named)
        if preprocessor is not None:
            model.use_preprocessor(preprocessor)
        return model

    def save_to_preset(self, preset_dir: str, max_shard_size: float = 10) -> None:
        """As keras-hub's, with a preprocessor or without."""
        compat.save_task(self, preset_dir, max_shard_size)

    def compile_from_config(self, config: dict) -> None:
        """As Keras's, which leaves models aside that have a `compile` of their own."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)

    def use_preprocessor(self, preprocessor) -> None:
        """Takes a preprocessor; the encoder, which has none yet, can encode texts by its tokenizer."""
        self.preprocessor = preprocessor
        if self.encoder.preprocessor is None:
            self.encoder.preprocessor = preprocessor

    @property
    def encoder(self) -> Encoder:
        """The encoder, which keras-hub calls the backbone."""
        return self.backbone

    @property
    def non_trainable_weights(self):
        """All weights that no step moves, the pooler's among them where nothing reads it, so that `summary` has all."""
        moved = {id(weight) for weight in self.trainable_weights}
        return [weight for weight in self.weights if id(weight) not in moved]

    @property
    def reading(self) -> Encoder:
        """The encoder that training calls: of the same blocks, where an objective has it read another table."""
        return self.encoder


def _check_new_head(task, preset, folder, named):
    if not folder.is_dir() or (folder / "task.json").is_file():
        return
    needed = [each for each in inspect.signature(task).parameters.values() if each.default is each.empty]
    wanted = {each.name for each in needed if each.kind is each.POSITIONAL_OR_KEYWORD} - {"encoder", *named}
    missing = [f"{each.name}=" for each in needed if each.name in wanted]
    if missing:
        raise UserError(
            f"{preset} is the preset of an encoder: {task.__name__}.from_preset puts a new, untrained head on it, "
            f"which needs {' and '.join(missing)}"
        )


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
        is_given, preprocessor = "preprocessor" in named, named.pop("preprocessor", None)
        constructor(self, *arguments, **named)
        if type(self).__init__ is not takes_either:  # the constructor of a class above, which leaves it to this one's
            return
        of_encoder = self.encoder.preprocessor
        if not is_given and of_encoder is not None:
            preprocessor = self.preprocessor_cls(of_encoder.tokenizer)
        if preprocessor is not None:
            self.use_preprocessor(preprocessor)

    takes_either.__signature__ = signature  # type: ignore[attr-defined]  # gin reads it
    return takes_either
