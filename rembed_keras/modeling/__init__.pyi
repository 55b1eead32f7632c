from .encoder import Encoder as Encoder
from .heads.task_model import Classifier as Classifier
from .heads.task_model import Regressor as Regressor
from .heads.task_model import SpanExtractor as SpanExtractor
from .heads.task_model import Tagger as Tagger
from .objectives.late_masked_lm import LateMaskedLM as LateMaskedLM
from .objectives.masked_lm import MaskedLM as MaskedLM
from .objectives.replaced_tokens import ReplacedTokenDetection as ReplacedTokenDetection
