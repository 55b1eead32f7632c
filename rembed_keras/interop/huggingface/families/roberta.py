"""RoBERTa, XLM-R and XLM-R XL, whose positions begin after the id of padding.

Source: Liu et al. 2019; Conneau et al. 2020; Goyal et al. 2021; the state dicts of Hugging Face's.
"""

from types import MappingProxyType

from rembed_keras.interop.huggingface.families.family import OUTPUT, OUTPUT_TABLE, Family
from rembed_keras.modeling.blocks import PreNormBert
from rembed_keras.modeling.choices import described


class Roberta(Family):
    """RoBERTa: BERT's graph and names, with a head of its own and a position table that begins with unused rows."""

    kind = "roberta"
    architecture = "Roberta"
    prefix = "roberta."
    head = MappingProxyType(
        {
            "head/dense": "lm_head.dense",
            "head/norm": "lm_head.layer_norm",
            OUTPUT: "lm_head",
            OUTPUT_TABLE: "lm_head.decoder",
        }
    )
    head_activation = "gelu"
    doubles_separator = True
    usual_pad = 1

    def skipped_positions(self, config):
        return config.get("pad_token_id", self.usual_pad) + 1


class XlmRoberta(Roberta):
    """XLM-R, which is RoBERTa under another name, and so are others that say they are of this type."""

    kind = "xlm-roberta"
    architecture = "XLMRoberta"


class XlmRobertaXl(Roberta):
    """XLM-R XL and XXL: norms first, and none of the embeddings."""

    kind = "xlm-roberta-xl"
    architecture = "XLMRobertaXL"
    naming = "xlm-roberta-xl"
    outside = MappingProxyType(
        {
            **{ours: theirs for ours, theirs in Roberta.outside.items() if ours != "embeddings/norm"},
            "norm": "encoder.LayerNorm",
        }
    )
    implied = MappingProxyType({"always_project": False, "block": described(PreNormBert())})
    usual_epsilon = 1e-5
