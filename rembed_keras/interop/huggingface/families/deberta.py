"""DeBERTa-v2, v3 and mDeBERTa. Source: He et al. 2021, 2023; the state dict of Hugging Face's DebertaV2ForMaskedLM."""

import re
from types import MappingProxyType

from rembed_keras.errors import UserError
from rembed_keras.interop.huggingface.families.bert import Bert
from rembed_keras.interop.huggingface.families.family import SIZES, Family
from rembed_keras.modeling.attention import Disentangled
from rembed_keras.modeling.blocks.stack import attention_of, has_position_table
from rembed_keras.modeling.choices import described
from rembed_keras.modeling.input_embeddings import Projected, Summed

# what published models have: the only graph that is read; and what transformers has where a configuration says nothing
FIXED = {
    "relative_attention": (True, False),
    "share_att_key": (True, False),
    "norm_rel_ebd": ("layer_norm", "none"),
    "conv_kernel_size": (0, 0),
    "legacy": (True, True),
}
BOTH = ["c2p", "p2c"]  # scores of content by position, and of position by content
DISTANCES = {"": "encoder.rel_embeddings", "/norm": "encoder.LayerNorm"}


class DebertaV2(Family):
    """DeBERTa from version 2 on: disentangled attention, a table of positions or none, no pooler."""

    kind = "deberta-v2"
    architecture = "DebertaV2"
    prefix = "deberta."
    naming = "deberta-v2"
    outside = MappingProxyType(
        {
            "embeddings/token": "embeddings.word_embeddings",
            "embeddings/position": "embeddings.position_embeddings",
            "embeddings/segment": "embeddings.token_type_embeddings",
            "embeddings/projection": "embeddings.embed_proj",
            "embeddings/norm": "embeddings.LayerNorm",
        }
    )
    head = Bert.head
    sizes = MappingProxyType({**SIZES, "input_embedding_dim": "embedding_size"})
    usual_epsilon = 1e-7
    fewest_segments = 0

    def check(self, config):
        super().check(config)
        for key, (wanted, usual) in FIXED.items():
            if config.get(key, usual) != wanted:
                raise UserError(f"{key} {config.get(key, usual)!r}; only {wanted!r} is supported")
        terms = config.get("pos_att_type") or []
        terms = [each.strip() for each in terms.lower().split("|")] if isinstance(terms, str) else terms
        if sorted(terms) != BOTH:
            raise UserError(f"pos_att_type {terms}; only {BOTH} is supported")

    def arguments(self, config):
        longest = config.get("max_relative_positions", -1)
        longest = config["max_position_embeddings"] if longest < 1 else longest
        buckets = config.get("position_buckets", -1)
        if buckets < 1:
            raise UserError("position_buckets must be positive: distances without buckets are not supported")
        narrow = config.get("embedding_size", config["hidden_size"])
        positions = True if config.get("position_biased_input", True) else None
        kinds: dict = {"attention": [described(Disentangled(buckets, longest))]}
        if positions or narrow != config["hidden_size"]:
            kind = Summed if narrow == config["hidden_size"] else Projected
            kinds["input_embedding"] = described(kind(positions))
        return super().arguments({**config, "embedding_size": narrow}) | kinds

    def config(self, ours, pad_id):
        kind = next((each for each in attention_of(ours) if isinstance(each, Disentangled)), Disentangled())
        fixed = {key: wanted for key, (wanted, _) in FIXED.items()}
        distances = {"position_buckets": kind.buckets, "max_relative_positions": kind.longest}
        own = {"pos_att_type": BOTH, "position_biased_input": has_position_table(ours)}
        return super().config(ours, pad_id) | fixed | distances | own

    def name_of(self, ours, groups):
        shared = re.fullmatch(r"block_\d+/attention/heads/shared_0(/norm)?", ours)
        return self.prefix + DISTANCES[shared[1] or ""] if shared else super().name_of(ours, groups)
