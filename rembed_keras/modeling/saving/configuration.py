"""Models rebuilt from a configuration that stood in a file, which may be an untrusted one.

Keras makes of a configuration whatever class it names: layers that run code, load other files or import modules among
them, and functions by name. A model of ours is made of classes of ours and of Keras's dtypes, and its optimizer and
learning rate may be Keras's, so a configuration may name these alone.
"""

import importlib
import sys
from collections.abc import Mapping
from typing import Any, TypeVar

import keras

from rembed_keras.errors import UserError, first_line, shortened
from rembed_keras.modeling import attention, blocks, input_embeddings

OURS = "rembed_keras>"  # what the names begin with under which our classes are registered
# where those are shown that a configuration may begin with, by name since modeling imports none of the rooms above it
PUBLIC = ("rembed_keras.modeling", "rembed_keras.preprocessing", "rembed_keras.adaptation", "rembed_keras.training")
PLAIN = {
    "keras": ("DTypePolicy", "FloatDTypePolicy", "DTypePolicyMap"),
    "keras.dtype_policies": (
        "DTypePolicyMap",
        "Int4DTypePolicy",
        "QuantizedDTypePolicy",
        "QuantizedFloat8DTypePolicy",
    ),
    "keras.optimizers": (
        "Adadelta",
        "Adafactor",
        "Adagrad",
        "Adam",
        "AdamW",
        "Adamax",
        "Ftrl",
        "Lamb",
        "Lion",
        "Muon",
        "Nadam",
        "RMSprop",
        "SGD",
        "ScheduleFreeAdamW",
    ),
    "keras.optimizers.schedules": (
        "CosineDecay",
        "CosineDecayRestarts",
        "ExponentialDecay",
        "InverseTimeDecay",
        "PiecewiseConstantDecay",
        "PolynomialDecay",
    ),
    "keras.quantizers": ("AbsMaxQuantizer", "Int4QuantizationConfig", "Int8QuantizationConfig"),
}  # classes of Keras's, by module, that hold numbers and names alone

# packages whose classes are not a user's own
FRAMEWORKS = (
    "keras",
    "keras_hub",
    "keras_nlp",
    "official",
    "rembed_keras",
    "tensorflow",
    "tensorflow_text",
    "tf_keras",
)

Kind = TypeVar("Kind")


def made(config: object, kind: type[Kind]) -> Kind:
    """What a configuration describes, rebuilt.

    Args:
        config: as `keras.saving.serialize_keras_object` gives it.
        kind: the class that it must be of.

    Raises:
        UserError: for a configuration that names other classes or functions, or that nothing can be made of.
    """
    check_names(config)
    try:
        made = keras.saving.deserialize_keras_object(_plain(config), safe_mode=True)
    except UserError:
        raise
    except Exception as error:  # noqa: BLE001 - constructors raise many kinds at arguments that are not theirs
        reason = first_line(error)
        raise UserError(f"a configuration describes no {kind.__name__}: {reason}") from None
    if not isinstance(made, kind):
        raise UserError(f"a configuration describes no {kind.__name__}: {shortened(config)}")
    return made


def check_names(config: object) -> None:
    """Checks what a configuration names.

    Raises:
        UserError: for a class that is neither ours nor the user's own, and no dtype, optimizer or schedule of Keras's;
            or for a function.

    >>> check_names({"class_name": "Lambda", "module": "keras.layers", "config": {}, "registered_name": None})
    Traceback (most recent call last):
    rembed_keras.errors.UserError: a configuration names 'Lambda' of 'keras.layers', which no model of ours is made of
    """
    if isinstance(config, dict):
        if {"class_name", "registered_name", "module"} & config.keys():
            _check_class(config)
        for value in config.values():
            check_names(value)
    elif isinstance(config, list | tuple):
        for value in config:
            check_names(value)


def _check_class(config):
    name, module, registered = (config.get(key) for key in ("class_name", "module", "registered_name"))
    if isinstance(registered, str) and registered.startswith(OURS):
        if registered == f"{OURS}{name}" and class_of(name) is not None:
            return
    elif _is_of_users_own(registered):
        return
    if registered in (None, name) and any(module == known and name in names for known, names in PLAIN.items()):
        return
    shown = f"{shortened(registered or name)} of {shortened(module)}"
    parts = module.split(".") if isinstance(module, str) else [""]
    is_own = all(part.isidentifier() for part in parts) and parts[0] not in FRAMEWORKS
    remedy = f"import {module} first, in the recipe of a run or by --allow-import {module} elsewhere"
    remedy = f"; if it is your own, {remedy}" if is_own else ""
    if is_own and hasattr(sys.modules.get(module), str(name)):
        remedy = "; if it is your own, decorate it with @keras.saving.register_keras_serializable()"
    raise UserError(f"a configuration names {shown}, which no model of ours is made of{remedy}")


def _is_of_users_own(registered) -> bool:
    """Whether a class is registered that the user's own program, or a package that a recipe may import, brought along.

    A file brings no code: what it names must be registered by then. What frameworks register is not taken, since they
    have classes that read files or run code.
    """
    found = keras.saving.get_registered_object(registered) if isinstance(registered, str) else None
    return isinstance(found, type) and found.__module__.split(".")[0] not in FRAMEWORKS


def class_of(name: object):
    """Our class of a registered name, wherever it stands now; what is public is registered when it is imported."""
    if not isinstance(name, str):
        return None
    for room in (blocks, attention, input_embeddings):  # their kinds know nothing of Keras
        if name in room.__all__:
            return getattr(room, name)
    for public in PUBLIC:
        getattr(importlib.import_module(public), name, None)
    return keras.saving.get_registered_object(f"{OURS}{name}")


def know_classes(config: Any) -> None:
    """Registers those of our classes that a configuration names, wherever they stand: Keras then finds them."""
    if isinstance(config, dict):
        if config.get("registered_name") == f"{OURS}{config.get('class_name')}":
            class_of(config["class_name"])
        for value in config.values():
            know_classes(value)
    elif isinstance(config, list | tuple):
        for value in config:
            know_classes(value)


def class_named(config: Mapping) -> type | None:
    """The class that a part of a configuration names: one that is registered, or ours; None if none is."""
    name, registered = config.get("class_name"), config.get("registered_name")
    is_ours = registered in (None, name, f"{OURS}{name}")  # and not another's of the same name
    return keras.saving.get_registered_object(registered or "") or (class_of(name) if is_ours else None)


def _plain(config):
    """A configuration without what is not needed to make a model: how it was compiled."""
    if isinstance(config, dict):
        return {key: _plain(value) for key, value in config.items() if key not in ("build_config", "compile_config")}
    return [_plain(value) for value in config] if isinstance(config, list | tuple) else config
