"""Kinds of transformer blocks: which sublayers there are, what they cost, and how layers are stacked.

A kind is a small object that owns no variables and makes the layers that do. Your own is a class with what `PostNorm`
has.
"""

from rembed_keras.modeling.blocks.bottleneck import Bottleneck
from rembed_keras.modeling.blocks.post_norm import PostNorm
from rembed_keras.modeling.blocks.pre_norm import PreNorm
from rembed_keras.modeling.blocks.pre_norm_bert import PreNormBert

__all__ = ["Bottleneck", "PostNorm", "PreNorm", "PreNormBert"]
