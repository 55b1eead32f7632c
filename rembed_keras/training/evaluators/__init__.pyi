from .bitext_retrieval import BitextRetrieval as BitextRetrieval
from .bits_per_byte import BitsPerByte as BitsPerByte
from .filled_masks import FilledMasks as FilledMasks
from .frozen_probe import FrozenProbe as FrozenProbe
from .held_out_loss import HeldOutLoss as HeldOutLoss
