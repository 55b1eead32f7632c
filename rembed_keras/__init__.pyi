__version__: str

from .analysis.cost.ledger import ledger as ledger
from .data.corpus import Corpus as Corpus
from .data.pipeline.mixture import Mixture as Mixture
from .modeling.encoder import Encoder as Encoder
from .modeling.heads.classification import Classifier as Classifier
from .modeling.heads.regression import Regressor as Regressor
from .modeling.heads.spans import SpanExtractor as SpanExtractor
from .modeling.heads.tagging import Tagger as Tagger
from .modeling.objectives.late_masked_lm import LateMaskedLM as LateMaskedLM
from .modeling.objectives.masked_lm import MaskedLM as MaskedLM
from .modeling.objectives.replaced_tokens import ReplacedTokenDetection as ReplacedTokenDetection
from .modeling.objectives.sum import Sum as Sum
from .preprocessing.masked_lm import MaskedLMPreprocessor as MaskedLMPreprocessor
from .preprocessing.spans import SpanPreprocessor as SpanPreprocessor
from .preprocessing.tagging import TaggerPreprocessor as TaggerPreprocessor
from .preprocessing.texts import TextClassifierPreprocessor as TextClassifierPreprocessor
from .preprocessing.tokenizer import Tokenizer as Tokenizer
from .training.optimizers.adamw import AdamW as AdamW
from .training.optimizers.schedules import WarmupLinearDecay as WarmupLinearDecay
