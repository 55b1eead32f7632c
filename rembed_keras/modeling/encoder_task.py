"""A keras-hub `Task` whose backbone is an encoder: what pre-training models and task models have in common."""

import contextlib
import functools
import inspect
import warnings
from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import keras
import keras_hub

from rembed_keras import compat
from rembed_keras.errors import UserError, shortened, with_article
from rembed_keras.modeling.choices import is_ours
from rembed_keras.modeling.encoder import Encoder
from rembed_keras.modeling.losses.row_weights import checks_class_weight
from rembed_keras.modeling.losses.terms import HasTerms
from rembed_keras.modeling.objectives.running_means import ListsLogsOnce
from rembed_keras.modeling.replicas import OnReplicas
from rembed_keras.modeling.saving.changes import OF_LAYERS
from rembed_keras.modeling.saving.configuration import class_named, know_classes
from rembed_keras.modeling.saving.exporting import Exports
from rembed_keras.modeling.saving.freezing import KeepsTableFrozen
from rembed_keras.modeling.saving.naming import names_of_weights, settle_dtypes
from rembed_keras.modeling.saving.presets import located_model, replacing, task_in
from rembed_keras.modeling.saving.retracing import Retraced
from rembed_keras.modeling.sizes import plain
from rembed_keras.modeling.texts.feeding import TakesTexts, found
from rembed_keras.modeling.texts.vectors import ReadsTexts

_HEAD_IS_NEW: ContextVar[bool] = ContextVar("head_is_new", default=False)  # while a preset is read


class EncoderTask(
    ListsLogsOnce,
    TakesTexts,
    ReadsTexts,
    HasTerms,
    Exports,
    Retraced,
    KeepsTableFrozen,
    OnReplicas,
    keras_hub.models.Task,
):
    """A model around an encoder, with presets: `save_to_preset` and `from_preset`.

    A subclass whose constructor has an `encoder` takes it as `backbone=` too, as keras-hub hands it over, and
    `preprocessor=`: what makes inputs of texts; that of the encoder's tokenizer by default, if it has one.

    Attributes:
        number_of_outputs: the argument that says how many outputs the head has; None where none does. A preset of
            another number is read with a new head.

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
    takes_class_weight = False  # whether labels are one class a row
    number_of_outputs: str | None = None
    fit = checks_class_weight(TakesTexts.fit)
    train_on_batch = checks_class_weight(ListsLogsOnce.train_on_batch)

    def __init_subclass__(cls, **arguments):
        super().__init_subclass__(**arguments)
        if "__init__" in vars(cls):
            cls.__init__ = _taking_backbone(cls.__init__)  # type: ignore[method-assign]

    def __init__(self, encoder, inputs, outputs, name):
        self.backbone = encoder
        super().__init__(inputs=inputs, outputs=outputs, name=name, compile=False)
        settle_dtypes(self)

    @classmethod
    def from_preset(cls, preset: str | Path, load_weights: bool = True, **arguments) -> keras.Model:
        """As keras-hub's, which fails at a mixed policy's name unless a dtype is given; the encoder keeps its own.

        Args:
            preset: a name in `Encoder.presets`, a folder that `save_to_preset` or `rembed convert` wrote, or a handle
                of keras-hub's; an encoder's own will do for a task model, whose head is then new.
            load_weights: whether to load them, or to leave new ones.
            arguments: of the model, for example `num_classes`; those of the preset by default. Another number of
                outputs than the preset's is that of a new head. `dtype` is the encoder's. `preprocessor` is one of the
                preset's tokenizer, if it has one; None for none.

        Raises:
            UserError: if the preset is an encoder's, or of a model of another class, and an argument is missing that
                the new head needs.
        """
        named, place = dict(arguments), located_model(preset)
        task = task_in(place)
        kind = class_named(task) if task else None
        is_whole = isinstance(kind, type) and issubclass(kind, cls)
        preprocessor = named.pop("preprocessor") if "preprocessor" in named else found(cls.preprocessor_cls, place)
        given = named.pop("dtype", None)
        dtype = keras.config.dtype_policy() if given is None else given
        if not is_whole:
            _check_new_head(cls, preset, task, named)
            make: Any = cls  # a subclass, whose constructor takes its encoder by this name
            model = make(backbone=Encoder.from_preset(place, load_weights, dtype=dtype, preprocessor=None), **named)
        else:
            number: Any = getattr(kind, "number_of_outputs", None)
            is_new = number in named and named[number] != task["config"].get(number)
            if is_new:
                named["quantized"] = {}  # of the layers that are not the encoder's: a head in few bits would not learn
                named["frozen"] = [name for name in task["config"].get("frozen", ()) if name != "head"]
            else:
                named.pop(number, None)  # or keras-hub would leave a classifier's head out
            if given is not None:
                named["encoder"] = _of_dtype(task["config"]["encoder"], given)
            token = _HEAD_IS_NEW.set(is_new)
            try:
                model = super().from_preset(place, load_weights, dtype=dtype, preprocessor=None, **named)
            finally:
                _HEAD_IS_NEW.reset(token)
        if preprocessor is not None:
            model.preprocessor = preprocessor
        return model

    def load_task_weights(self, filepath: str) -> None:
        """As of keras-hub, of which 0.21 asks for the encoder's too; a new head of `from_preset` stays as it begins."""
        if not _HEAD_IS_NEW.get():
            keras.saving.load_weights(self, filepath, objects_to_skip=[*compat.layers_of(self.backbone)])

    def save_to_preset(self, preset_dir: str, max_shard_size: float = 10) -> None:
        """As keras-hub's, with a preprocessor or without; an earlier preset there is replaced."""
        with replacing(preset_dir) as folder:
            compat.save_task(self, folder, max_shard_size)

    def get_compile_config(self) -> dict:
        """Keras's, in which learning rates by layer go by the paths that weights have in a model that is rebuilt."""
        config, rates = super().get_compile_config(), getattr(getattr(self, "optimizer", None), "multipliers", None)
        if not config or not rates:
            return config
        names, optimizer = names_of_weights(self.encoder), config["optimizer"]
        rebuilt = {weight.path: names.get(id(weight), weight.path) for weight in self.weights}
        own = {"multipliers": {rebuilt.get(path, path): rate for path, rate in rates.items()}}
        return config | {"optimizer": optimizer | {"config": optimizer["config"] | own}}

    def compile_from_config(self, config: dict) -> None:
        """As Keras's, which leaves models aside that have a `compile` of their own."""
        know_classes(config)
        self.compile(**keras.saving.deserialize_keras_object(self.note_terms(config)))
        self.optimizer.build(self.trainable_variables)
        self.check_optimizer()

    def take_preprocessor(self, preprocessor: keras.layers.Layer | None) -> None:
        """What setting `preprocessor` does: an encoder that has none takes it too."""
        super().take_preprocessor(preprocessor)
        if preprocessor is not None and self.encoder.preprocessor is None:
            self.encoder.preprocessor = self.preprocessor  # which then encodes texts by its tokenizer

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


def _of_dtype(encoder, dtype):
    """An encoder as a preset describes it, of another dtype."""
    policy = keras.dtype_policies.serialize(keras.dtype_policies.get(dtype))
    return encoder | {"config": encoder["config"] | {"dtype": policy}}


def _check_new_head(task, preset, former, named):
    needed = [each for each in inspect.signature(task).parameters.values() if each.default is each.empty]
    wanted = {each.name for each in needed if each.kind is each.POSITIONAL_OR_KEYWORD} - {"encoder", *named}
    missing = [f"{each.name}=" for each in needed if each.name in wanted]
    if missing:
        of = with_article(former.get("class_name", "encoder"))
        raise UserError(
            f"{preset} is the preset of {of}: {task.__name__}.from_preset puts a new, untrained head on it, "
            f"which needs {' and '.join(missing)}"
        )


def _warn_of_config(model, signature):
    """Warns of a class of a user's own whose `get_config` does not suit its constructor, before anything is trained."""
    maker = next(kind for kind in type(model).__mro__ if "from_config" in vars(kind))
    taken = signature.parameters.values()
    if is_ours(type(model)) or not is_ours(maker) or any(each.kind is each.VAR_KEYWORD for each in taken):
        return
    names, said, name = {each.name for each in taken} - {"self"}, {*model.get_config(), "encoder"}, type(model).__name__
    lost, more = sorted(names - said), sorted(said - names - {"encoder", "preprocessor", "methods", *OF_LAYERS})
    found = [f"the get_config of {name} says {each}, which its constructor does not take" for each in more]
    found += [f"{name} takes {each}, which its get_config does not say" for each in lost]
    if found:
        warnings.warn(f"{found[0]}: a saved model cannot be read back as it was", stacklevel=3)


def _check_encoder(name, given):
    if not isinstance(given, Encoder):
        remedy = "make one by Encoder(...) or Encoder.from_preset(...)"
        if hasattr(given, "drop_heads") or hasattr(given, "encoder"):
            remedy = "give it " + ("drop_heads() of that" if hasattr(given, "drop_heads") else "encoder of that")
        raise UserError(f"{name} needs an Encoder, and {shortened(given)} is none: {remedy}")


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
        _check_encoder(type(self).__name__, named["encoder"] if "encoder" in named else arguments[0])
        arguments, named = (*map(plain, arguments),), {key: plain(each) for key, each in named.items()}
        is_given, preprocessor = "preprocessor" in named, named.pop("preprocessor", None)
        is_whole = type(self).__init__ is takes_either  # and not the constructor of a class above that one's
        names = Counter(dict(getattr(named.get("encoder", *arguments[:1]), "names_made", ())))
        with compat.numbering_names(names) if is_whole else contextlib.nullcontext():  # which go on where its own end
            constructor(self, *arguments, **named)
        if not is_whole:
            return
        _warn_of_config(self, signature)
        of_encoder = self.encoder.preprocessor
        if not is_given and of_encoder is not None:
            preprocessor = self.preprocessor_cls(of_encoder.tokenizer)
        if preprocessor is not None:
            self.preprocessor = preprocessor

    takes_either.__signature__ = signature  # type: ignore[attr-defined]  # gin reads it
    return takes_either
