"""What is learned: the encoder that is kept and the heads that are dropped or swapped."""

from rembed_keras.modeling.encoder import Encoder
from rembed_keras.modeling.heads import Classifier, Regressor, SpanExtractor, Tagger
from rembed_keras.modeling.objectives import LateMaskedLM, ReplacedTokenDetection
from rembed_keras.modeling.pretraining import MaskedLM

__all__ = [
    "Classifier",
    "Encoder",
    "LateMaskedLM",
    "MaskedLM",
    "Regressor",
    "ReplacedTokenDetection",
    "SpanExtractor",
    "Tagger",
]
