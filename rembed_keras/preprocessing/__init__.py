"""Texts as a keras-hub user hands them over: a tokenizer and a preprocessor for each kind of task.

Importing this room registers all of our models with keras-hub too, so that its own `from_preset` finds them.
"""

from rembed_keras import modeling
from rembed_keras.preprocessing.finding import FoundAsMaskedLM, FoundAsTextClassifier
from rembed_keras.preprocessing.masked_lm import MaskedLMPreprocessor
from rembed_keras.preprocessing.spans import SpanPreprocessor
from rembed_keras.preprocessing.tagging import TaggerPreprocessor
from rembed_keras.preprocessing.texts import TextClassifierPreprocessor
from rembed_keras.preprocessing.tokenizer import Tokenizer

__all__ = [
    "FoundAsMaskedLM",
    "FoundAsTextClassifier",
    "MaskedLMPreprocessor",
    "SpanPreprocessor",
    "TaggerPreprocessor",
    "TextClassifierPreprocessor",
    "Tokenizer",
]

for _name in dir(modeling):
    getattr(modeling, _name)  # which is imported, and registered, when it is asked for
