"""MobileBERT. Source: Sun et al. 2020; the state dict of Hugging Face's MobileBertForMaskedLM."""

import re
from types import MappingProxyType

from rembed_keras.errors import UserError
from rembed_keras.interop.huggingface.families.bert import Bert
from rembed_keras.interop.huggingface.families.family import OUTPUT, SIZES, Family
from rembed_keras.modeling.blocks import Bottleneck
from rembed_keras.modeling.blocks.stack import block_of
from rembed_keras.modeling.choices import described
from rembed_keras.modeling.cost import inner_dim
from rembed_keras.modeling.input_embeddings import Trigrams

# what the published model has, and transformers where a configuration says nothing: the only graph that is read
FIXED = {
    "trigram_input": True,
    "use_bottleneck": True,
    "use_bottleneck_attention": False,
    "key_query_shared_bottleneck": True,
    "normalization_type": "no_norm",
}


class MobileBert(Family):
    """MobileBERT: trigrams of a narrow table, bottlenecks around every layer, and a head that extends the table."""

    kind = "mobilebert"
    architecture = "MobileBert"
    prefix = "mobilebert."
    naming = "mobilebert"
    outside = MappingProxyType({**Family.outside, "embeddings/projection": "embeddings.embedding_transformation"})
    head = MappingProxyType({**Bert.head, f"{OUTPUT}/extended/columns": "cls.predictions.dense"})
    sizes = MappingProxyType({**SIZES, "input_embedding_dim": "embedding_size"})
    implied = MappingProxyType({"block": described(Bottleneck()), "input_embedding": described(Trigrams())})
    usual_activation = "relu"
    tied = "extended"
    unties = False

    def check(self, config):
        super().check(config)
        for key, wanted in FIXED.items():
            if config.get(key, wanted) != wanted:
                raise UserError(f"{key} {config[key]!r}; only {wanted!r} is supported")

    def arguments(self, config):
        narrow, heads = config["intra_bottleneck_size"], config["num_attention_heads"]
        if narrow % heads:
            raise UserError(f"num_attention_heads is {heads}; it must divide intra_bottleneck_size, {narrow}")
        block = described(Bottleneck(config["num_feedforward_networks"]))
        return super().arguments(config) | {"head_dim": narrow // heads, "block": block}

    def config(self, ours, pad_id):
        pairs = getattr(block_of(ours), "pairs", 1)
        narrow = {"intra_bottleneck_size": inner_dim(ours), "true_hidden_size": inner_dim(ours)}
        own = {"num_feedforward_networks": pairs, "classifier_activation": True}
        return super().config(ours, pad_id) | FIXED | narrow | own

    def head_width(self, config, ours):
        return ours["hidden_dim"]

    def name_of(self, ours, groups):
        numbered = re.fullmatch(r"(.+/pair_)(\d+)(/.+)", ours)
        if numbered is None:
            return super().name_of(ours, groups)
        name = super().name_of(f"{numbered[1]}{{}}{numbered[3]}", groups)
        return name and name.format(numbered[2])
