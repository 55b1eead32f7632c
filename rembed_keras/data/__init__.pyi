from .corpus import Corpus as Corpus
from .pipeline.mixture import Mixture as Mixture
from .tokenizers.sentence_piece import Tokenizer as Tokenizer
