"""ELECTRA's discriminator. Source: Clark et al. 2020."""

from types import MappingProxyType

from rembed_keras.interop.huggingface.families.family import SIZES, Family


class Electra(Family):
    """ELECTRA, without a pooler, and without its heads, which are not those of a masked LM alone."""

    kind = "electra"
    architecture = "Electra"
    prefix = "electra."
    outside = MappingProxyType(
        {
            **{ours: theirs for ours, theirs in Family.outside.items() if ours != "pooler"},
            "projection": "embeddings_project",
        }
    )
    sizes = MappingProxyType({**SIZES, "input_embedding_dim": "embedding_size"})
