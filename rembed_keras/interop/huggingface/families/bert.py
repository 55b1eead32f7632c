"""BERT. Source: Devlin et al. 2019; the state dict of Hugging Face's BertForMaskedLM."""

from types import MappingProxyType

from rembed_keras.interop.huggingface.families.family import OUTPUT, OUTPUT_TABLE, Family


class Bert(Family):
    """BERT: the family whose names most others have."""

    kind = "bert"
    architecture = "Bert"
    prefix = "bert."
    head = MappingProxyType(
        {
            "head/dense": "cls.predictions.transform.dense",
            "head/norm": "cls.predictions.transform.LayerNorm",
            OUTPUT: "cls.predictions",
            OUTPUT_TABLE: "cls.predictions.decoder",
        }
    )
