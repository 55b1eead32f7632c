from .definition import Arm as Arm
from .definition import Hypothesis as Hypothesis
from .definition import Study as Study
from .measures import LayerScore as LayerScore
from .measures import Logged as Logged
from .measures import Score as Score
from .verdicts import Verdict as Verdict
from .verdicts import derive as derive
