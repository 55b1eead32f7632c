from .bitext_retrieval import BitextRetrieval as BitextRetrieval
from .held_out_loss import HeldOutLoss as HeldOutLoss
