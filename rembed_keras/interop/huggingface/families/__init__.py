"""Families of Hugging Face's models whose graph an `Encoder` computes exactly, one file each.

Another family is a subclass of `Family` that is listed here.
"""

from rembed_keras.interop.huggingface.families.albert import Albert
from rembed_keras.interop.huggingface.families.bert import Bert
from rembed_keras.interop.huggingface.families.deberta import DebertaV2
from rembed_keras.interop.huggingface.families.distilbert import DistilBert
from rembed_keras.interop.huggingface.families.electra import Electra
from rembed_keras.interop.huggingface.families.family import Family, Place
from rembed_keras.interop.huggingface.families.mobilebert import MobileBert
from rembed_keras.interop.huggingface.families.modernbert import ModernBert
from rembed_keras.interop.huggingface.families.rembert import RemBert
from rembed_keras.interop.huggingface.families.roberta import Roberta, XlmRoberta, XlmRobertaXl

# in the order in which they are tried for an encoder that is written
FAMILIES: dict[str, Family] = {
    family.kind: family
    for family in (
        Bert(),
        RemBert(),
        Albert(),
        ModernBert(),
        XlmRobertaXl(),
        DebertaV2(),
        MobileBert(),
        DistilBert(),
        Electra(),
        Roberta(),
        XlmRoberta(),
    )
}

__all__ = ["FAMILIES", "Family", "Place"]
