"""What is learned: the encoder that is kept and the heads that are dropped or swapped."""

from rembed_keras.modeling.encoder import Encoder
from rembed_keras.modeling.heads import Classifier, Regressor, SpanExtractor, Tagger
from rembed_keras.modeling.late_masking import LateMaskedLM
from rembed_keras.modeling.masked_lm import MaskedLM
from rembed_keras.modeling.replaced_tokens import ReplacedTokenDetection

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
