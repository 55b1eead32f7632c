"""Texts in `fit`, `evaluate` and `predict`, through a preprocessor as keras-hub has it.

What is in memory, lists, NumPy arrays and columns of a table, is tokenized once before the first step, so that Keras
shuffles and splits it as it does arrays, and without the padding behind the longest text, unless outputs have it.
Data sets of tf.data and Grain are mapped batch by batch. What has `token_ids` is taken as it is, with a preprocessor
and without.
"""

import contextlib
import importlib
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import keras
import keras_hub

from rembed_keras.errors import UserError
from rembed_keras.modeling.layers.rows import check_labels, with_labels_checked
from rembed_keras.modeling.saving.failing import weights_kept
from rembed_keras.modeling.texts.inputs import arrays_of, check_inputs, checks_arrays, checks_batch, narrowed
from rembed_keras.modeling.texts.lengths import token_axes, without_padding
from rembed_keras.modeling.texts.shared_rows import check_shared, on_shared_rows
from rembed_keras.modeling.texts.strings import (
    NO_TOKENIZER,
    are_texts,
    check_batches,
    check_dataset,
    is_dataset,
    is_in_memory,
    is_tokenized,
    without_texts,
)

ROOM = "rembed_keras.preprocessing"  # named, since modeling imports none of the rooms above it
PLAIN_TEXT = "TextClassifierPreprocessor"  # for encoders: texts as they are, without labels
LEARNING_RATE = 5e-5  # of keras-hub's tasks, where a user compiles nothing
_IS_SAVED: ContextVar[bool] = ContextVar("is_saved", default=False)  # whole, in a file of Keras's


class Preprocessing:
    """A class's `preprocessor_cls`, which keras-hub asks a task for; imported when it is asked for.

    Args:
        name: of the class.
    """

    def __init__(self, name: str):
        self.name = name

    def __get__(self, instance, owner=None):
        return getattr(importlib.import_module(ROOM), self.name)


def found(kind: Any, preset: str) -> Any:
    """The preprocessor that a preset has the tokenizer for; None if it has none.

    Args:
        kind: its class, or the name of it.
        preset: a folder or a handle of keras-hub's.
    """
    return (getattr(importlib.import_module(ROOM), kind) if isinstance(kind, str) else kind).found_in(preset)


class HoldsPreprocessor:
    """A model with a preprocessor that is no layer of it: no summary, checkpoint or walk over layers meets it."""

    _preprocessor: Any = None

    @property
    def preprocessor(self) -> Any:
        """What makes inputs of texts, a `keras_hub.models.Preprocessor`; None for none.

        One that is longer than the encoder, or of other segments, is copied: another model may have it too.
        """
        return self._preprocessor

    @preprocessor.setter
    def preprocessor(self, value):
        self.take_preprocessor(value)

    def take_preprocessor(self, preprocessor: keras.layers.Layer | None) -> None:
        """What setting `preprocessor` does; a model that is made of others hands it on."""
        suited: Any = getattr(preprocessor, "suited", None)
        if suited is not None:
            model: Any = self
            preprocessor = suited(getattr(model, "encoder", model).arguments)
        object.__setattr__(self, "_preprocessor", preprocessor)

    def save(self, filepath: str | Path, overwrite: bool = True, zipped: bool | None = None, **options) -> None:
        """Keras's, with what reads texts: that of the encoder too, where it is another than the model's.

        Args:
            filepath: as in Keras.
            overwrite: as in Keras.
            zipped: as in Keras.
            options: of formats, as in Keras.
        """
        with self._saved_whole():
            super().save(filepath, overwrite=overwrite, zipped=zipped, **options)  # type: ignore[misc] # the model's

    def __reduce__(self):
        with self._saved_whole():  # by `pickle` and `copy.deepcopy`, which have Keras write a file in memory
            return super().__reduce__()

    @contextlib.contextmanager
    def _saved_whole(self):
        self.take_preprocessor(self.preprocessor)  # again, for an encoder whose own was taken from it
        token = _IS_SAVED.set(True)
        try:
            yield
        finally:
            _IS_SAVED.reset(token)

    def config_of_preprocessor(self) -> dict:
        """The "preprocessor" of a configuration that goes to a file with its tokenizer; nothing for any other."""
        if self.preprocessor is None or not _IS_SAVED.get():
            return {}
        return {"preprocessor": keras.saving.serialize_keras_object(self.preprocessor)}

    def __setattr__(self, name, value):
        if name == "preprocessor":  # of which Keras would make a layer before it is set
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)


class TakesTexts(HoldsPreprocessor):
    """Loops that take texts where there is a preprocessor; a mixin that stands before keras-hub's `Task`."""

    needs_labels = False  # beside texts
    no_labels = "there are no labels: give them as y"

    train_on_batch = checks_batch(keras.Model.train_on_batch, "train")
    test_on_batch = checks_batch(keras.Model.test_on_batch, "test")
    predict_on_batch = checks_arrays(keras.Model.predict_on_batch)

    @contextlib.contextmanager
    def preprocessed_by(self, preprocessor) -> Iterator[None]:
        """While open, the model has another preprocessor, as to be saved with it."""
        model: Any = self
        former, of_encoder = self.preprocessor, model.encoder.preprocessor
        self.preprocessor = preprocessor
        try:
            yield
        finally:
            self.preprocessor = former
            model.encoder.preprocessor = of_encoder

    def preprocess_samples(self, x, y=None, sample_weight=None):
        """A batch of a data set as the model takes it, with checked labels; keras-hub maps a data set by it."""
        batch = self._preprocessed(x, y, sample_weight)
        return keras.utils.pack_x_y_sample_weight(*with_labels_checked(self.check_labels, *batch))

    def _preprocessed(self, x, y, sample_weight):
        """What the model takes of texts and their labels; what has `token_ids` as it is."""
        if self.preprocessor is None or is_tokenized(x):
            return x, y, sample_weight
        return keras.utils.unpack_x_y_sample_weight(self.preprocessor(x, y=y, sample_weight=sample_weight))

    def fit(
        self,
        x=None,
        y=None,
        batch_size=None,
        epochs=1,
        verbose="auto",
        callbacks=None,
        validation_split=0.0,
        validation_data=None,
        sample_weight=None,
        **options,
    ):
        """Keras's, of texts too; a model that was not compiled is, with Adam at 5e-5.

        Args:
            x: texts: a list, a NumPy array or a column; or a data set of tf.data or Grain whose batches are (texts,
                labels), or texts alone for a pre-training objective; or inputs as the model's.
            y: labels, if `x` is no data set.
            batch_size: as in Keras.
            epochs: as in Keras.
            verbose: as in Keras.
            callbacks: as in Keras.
            validation_split: as in Keras.
            validation_data: as in Keras, of texts too.
            sample_weight: as in Keras.
            options: Keras's other ones.
        """
        check_batches(x)
        if validation_split and is_dataset(x):
            raise UserError("validation_split cuts what is in memory: give another data set as validation_data")
        self._settle()
        own = {"epochs": epochs, "verbose": verbose, "callbacks": callbacks, **options}
        own["validation_split"] = validation_split
        validation_data = self._validation(validation_data, options.get("validation_batch_size") or batch_size)
        with weights_kept(self, is_trained=True):
            if self.preprocessor is not None and is_dataset(x):
                own.pop("validation_split")
                own.setdefault("shuffle", False)  # a data set's order is its own, and Keras warns
                return keras_hub.models.Task.fit(self, x, y, batch_size, sample_weight, validation_data, **own)
            x, y, sample_weight = self._labelled(x, y, sample_weight, "train", *(["test"] if validation_split else []))
            check_shared(x, batch_size, validation_split)
            own |= {"validation_data": validation_data, "sample_weight": sample_weight}
            return keras.Model.fit(self, x, y, batch_size, **own)

    def evaluate(self, x=None, y=None, batch_size=None, verbose="auto", sample_weight=None, **options):
        """Keras's, of texts too; see `fit`."""
        check_batches(x)
        self._settle()
        own = {"verbose": verbose, **options}
        if options.get("_use_cached_eval_dataset", False):
            return keras.Model.evaluate(self, x, y, batch_size, sample_weight=sample_weight, **own)
        with weights_kept(self):
            if self.preprocessor is not None and is_dataset(x):
                return keras_hub.models.Task.evaluate(self, x, y, batch_size, sample_weight, **own)
            x, y, sample_weight = self._labelled(x, y, sample_weight, "test")
            check_shared(x, batch_size)
            return keras.Model.evaluate(self, x, y, batch_size, sample_weight=sample_weight, **own)

    def predict(self, x, batch_size=None, verbose="auto", steps=None, callbacks=None):
        """Keras's, of texts too; see `fit`."""
        check_dataset(x)
        own = {"verbose": verbose, "steps": steps, "callbacks": callbacks}
        with weights_kept(self):
            if self.preprocessor is not None and is_dataset(x):
                return keras_hub.models.Task.predict(self, x, batch_size, **own)
            axes = token_axes(self)
            x, _, _ = self._arrays(x, None, None, is_cut=axes is not None and not any(axes))
            return on_shared_rows(lambda *given: keras.Model.predict(self, *given, **own), x, batch_size)

    def _settle(self):
        model: Any = self
        if not model.compiled:
            model.compile(keras.optimizers.Adam(LEARNING_RATE))

    def _validation(self, validation_data, batch_size):
        """What to validate on, preprocessed: keras-hub 0.21 would leave that to an `evaluate` of its own."""
        if is_dataset(validation_data) and self.preprocessor is not None:
            check_batches(validation_data)
            return validation_data.map(self._mapped)
        if are_texts(validation_data):
            validation_data = (validation_data,)
        if isinstance(validation_data, tuple | list):
            parts = keras.utils.unpack_x_y_sample_weight(tuple(validation_data))
            labelled = self._labelled(*parts, "test")
            check_shared(labelled[0], batch_size)
            return tuple(part for part in labelled if part is not None)
        return validation_data if self.preprocessor is None else without_texts(validation_data)

    def _mapped(self, *batch):
        parts = batch[0] if len(batch) == 1 and isinstance(batch[0], tuple) else batch
        return self.preprocess_samples(*parts)

    def _arrays(self, x, y, sample_weight, is_cut=True):
        """What is in memory as arrays, checked, of texts perhaps without padding; whatever else it is, as it is."""
        if x is None:
            raise UserError("x is None: give texts, or inputs as the model's")
        if self.preprocessor is not None and is_in_memory(x):
            is_cut = is_cut and not is_tokenized(x)
            x, y, sample_weight = self._preprocessed(x, y, sample_weight)
            if is_cut:
                x, y, sample_weight = without_padding(self, x, y, sample_weight)
        elif self.preprocessor is not None:
            x = without_texts(x)
        elif are_texts(x):
            raise UserError(NO_TOKENIZER)
        model: Any = self
        if is_tokenized(x) and 0 in getattr(x["token_ids"], "shape", ()):
            raise UserError("there are no texts")
        check_inputs(model.encoder.arguments, x)
        x, y, sample_weight = arrays_of(model, x, y, sample_weight)
        self.check_labels(x, y, sample_weight)
        return x, narrowed(y), sample_weight

    def _labelled(self, x, y, sample_weight, *steps):
        """As `_arrays`, of what must have labels if the model learns them, for some of its steps."""
        x, y, sample_weight = self._arrays(x, y, sample_weight)
        self.check_given(x, y)
        model: Any = self
        for step in steps:
            model.check_taught(step, x)
            model.note_labels(step, y, sample_weight)
        return x, y, sample_weight

    def check_given(self, x, y) -> None:
        """Raises a UserError for inputs in memory without the labels that the model learns."""
        if self.needs_labels and y is None and is_tokenized(x):
            raise UserError(self.no_labels)

    def check_labels(self, x, y, sample_weight) -> None:
        """Raises a UserError for labels in memory that the model has no output for, if its loss is its own."""
        known = None if getattr(self, "loss", None) is not None else self.known_labels(x)
        if known is not None:
            check_labels(y, *known, sample_weight)

    def known_labels(self, x: Any) -> tuple[int, str] | None:
        """How many labels there are for inputs, and what says so; None for a model that learns no labels."""
        return None
