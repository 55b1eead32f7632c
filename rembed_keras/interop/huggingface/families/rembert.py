"""RemBERT, whose input table has a width of its own and whose head another. Source: Chung et al. 2021."""

from types import MappingProxyType

from rembed_keras.interop.huggingface.families.family import OUTPUT, OUTPUT_TABLE, SIZES, Family


class RemBert(Family):
    """RemBERT: the only family in which input and output tables have any width; its tables are never tied."""

    kind = "rembert"
    architecture = "RemBert"
    prefix = "rembert."
    outside = MappingProxyType({**Family.outside, "projection": "encoder.embedding_hidden_mapping_in"})
    head = MappingProxyType(
        {
            "head/dense": "cls.predictions.dense",
            "head/norm": "cls.predictions.LayerNorm",
            OUTPUT: "cls.predictions.decoder",
            OUTPUT_TABLE: "cls.predictions.decoder",
        }
    )
    sizes = MappingProxyType({**SIZES, "input_embedding_dim": "input_embedding_size"})
    implied = MappingProxyType({"always_project": True})
    has_wide_head = True
    ties = False

    def head_width(self, config, ours):
        width = config.get("output_embedding_size")
        return super().head_width(config, ours) if width is None else width
