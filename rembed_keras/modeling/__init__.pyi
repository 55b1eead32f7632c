from .encoder import Encoder as Encoder
from .heads.classification import Classifier as Classifier
from .heads.regression import Regressor as Regressor
from .heads.spans import SpanExtractor as SpanExtractor
from .heads.tagging import Tagger as Tagger
from .objectives.late_masked_lm import LateMaskedLM as LateMaskedLM
from .objectives.masked_lm import MaskedLM as MaskedLM
from .objectives.replaced_tokens import ReplacedTokenDetection as ReplacedTokenDetection
