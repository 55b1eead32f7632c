"""Models for programs that know nothing of this package: graphs, of an encoder with plain names for all it gives."""

import importlib.util
from collections.abc import Sequence
from typing import Any

import keras

from rembed_keras.errors import UserError


class Exports:
    """A model that is exported as a graph of rows of any length; a mixin that stands before the model's class."""

    def export(
        self,
        filepath: str,
        format: str = "tf_saved_model",  # noqa: A002 - Keras's name
        verbose: bool | None = None,
        input_signature: list | None = None,
        **options,
    ) -> None:
        """Keras's; B and S are open by default.

        Args:
            filepath: as in Keras.
            format: as in Keras: "tf_saved_model", or "onnx", which needs the extra of that name.
            verbose: as in Keras.
            input_signature: as in Keras.
            options: of the format, as in Keras.

        Raises:
            UserError: on JAX, and for ONNX without its extra.
        """
        check_exportable(format)
        own = {"verbose": verbose, "input_signature": input_signature, **options}
        keras.Model.export(self.exported(), filepath, format=format, **own)

    def exported(self) -> keras.Model:
        """The model that is written; this one by default."""
        model: Any = self
        return model


class ExportsNamedOutputs(Exports):
    """An encoder that is exported with a name for each of its outputs; a mixin that stands before the model's class."""

    def exported(self) -> keras.Model:
        """A model of outputs that have a name each: `hidden_states_0` to `hidden_states_L` instead of a list."""
        model: Any = self
        return named_outputs(model)


def named_outputs(encoder: keras.Model) -> keras.Model:
    """A model of an encoder's layers whose outputs have a name each, as formats of other programs want them.

    Args:
        encoder: an `Encoder`.

    Returns:
        A model of the same weights and inputs; outputs are `sequence_output`, `pooled_output` and, instead of a list,
        `hidden_states_0` to `hidden_states_L`, each [B, S, D].

    >>> from rembed_keras.modeling import Encoder
    >>> encoder = Encoder(100, num_layers=1, num_heads=2, hidden_dim=8, intermediate_dim=16, input_embedding_dim=4)
    >>> sorted(named_outputs(encoder).output)
    ['hidden_states_0', 'hidden_states_1', 'pooled_output', 'sequence_output']
    """
    outputs = dict(encoder.output)
    states = outputs.pop("hidden_states")
    model = keras.Model(encoder.input, outputs | {f"hidden_states_{i}": state for i, state in enumerate(states)})
    model(encoder.input)  # Keras exports no model that was never called
    return model


def check_tensorflow(what: str, modules: Sequence[str] = ("tensorflow",)) -> None:
    """Checks that Keras runs on TensorFlow, and that its packages are installed.

    Args:
        what: what needs it, for the message.
        modules: names of the modules that it needs.

    Raises:
        UserError: if not; the message says what to install.
    """
    if missing := [name.replace("_", "-") for name in modules if importlib.util.find_spec(name) is None]:
        raise UserError(
            f"{what} needs KERAS_BACKEND=tensorflow and what is not installed: pip install {' '.join(missing)}"
        )
    if keras.config.backend() != "tensorflow":
        raise UserError(f"{what} needs KERAS_BACKEND=tensorflow; the backend is {keras.config.backend()}")


def check_exportable(file_format: str) -> None:
    """Checks that a graph can be written whose rows are of any length.

    Args:
        file_format: as Keras calls it.

    Raises:
        UserError: on JAX, which looks at lengths while it traces, and for ONNX without the packages that write it.
    """
    check_tensorflow("export")
    if file_format == "onnx" and not all(importlib.util.find_spec(name) for name in ("onnx", "tf2onnx")):
        raise UserError("export to ONNX needs tf2onnx: pip install 'rembed_keras[onnx]'")
