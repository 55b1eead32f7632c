"""Text becomes batches: tokenizer, corpus, mixture and masking, each a function of (seed, step)."""

from rembed_keras.data.corpus import Corpus
from rembed_keras.data.mixture import Mixture
from rembed_keras.data.tokenizer import Tokenizer

__all__ = ["Corpus", "Mixture", "Tokenizer"]
