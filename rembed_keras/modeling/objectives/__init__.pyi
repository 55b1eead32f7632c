from .late_masked_lm import LateMaskedLM as LateMaskedLM
from .masked_lm import MaskedLM as MaskedLM
from .pretraining import PretrainingModel as PretrainingModel
from .replaced_tokens import ReplacedTokenDetection as ReplacedTokenDetection
from .sum import Sum as Sum
