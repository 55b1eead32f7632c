from .mini_lm import MiniLM as MiniLM
from .r_drop import RDrop as RDrop
from .supervised_contrast import SupervisedContrast as SupervisedContrast
from .term import Term as Term
