"""How keras-hub finds our models: `keras_hub.models.TextClassifier.from_preset` of our preset is a `Classifier`.

It looks for a subclass of its own class with our backbone. Ours cannot be one: Keras rewrites the bases of a model that
is made of inputs and outputs, and fails where two of them lead to `keras.Model`. So each class here is found in the
place of ours, and hands over.
"""

from typing import Any

import keras
import keras_hub

from rembed_keras.modeling import Classifier, Encoder, MaskedLM
from rembed_keras.preprocessing.masked_lm import MaskedLMPreprocessor
from rembed_keras.preprocessing.texts import TextClassifierPreprocessor

_Kind: Any = type(keras_hub.models.Task)


class _StandsFor(_Kind):
    """The kind of a class that has the subclasses of another, its `ours`."""

    def __subclasscheck__(self, subclass):
        return super().__subclasscheck__(subclass) or issubclass(subclass, vars(self).get("ours", ()))


class _HandsOver:
    """Makes what it stands for."""

    backbone_cls = Encoder
    ours: type

    def __new__(cls, **arguments):
        return cls.ours(**arguments)


@keras.saving.register_keras_serializable(package="rembed_keras")
class FoundAsTextClassifier(_HandsOver, keras_hub.models.TextClassifier, metaclass=_StandsFor):
    """A `Classifier`, for keras-hub: whoever makes one gets that."""

    ours = Classifier
    preprocessor_cls = TextClassifierPreprocessor


@keras.saving.register_keras_serializable(package="rembed_keras")
class FoundAsMaskedLM(_HandsOver, keras_hub.models.MaskedLM, metaclass=_StandsFor):
    """A `MaskedLM`, for keras-hub: whoever makes one gets that."""

    ours = MaskedLM
    preprocessor_cls = MaskedLMPreprocessor
