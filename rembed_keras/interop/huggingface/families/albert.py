"""ALBERT, whose layers share their weights. Source: Lan et al. 2020."""

from types import MappingProxyType

from rembed_keras.errors import UserError
from rembed_keras.interop.huggingface.families.family import OUTPUT, OUTPUT_TABLE, SIZES, Family
from rembed_keras.modeling.sizes import groups_of, groups_of_layers


class Albert(Family):
    """ALBERT: groups of adjacent layers that share everything, and an input table of a width of its own."""

    kind = "albert"
    architecture = "Albert"
    prefix = "albert."
    block = "encoder.albert_layer_groups.{}.albert_layers.0."
    naming = "albert"
    outside = MappingProxyType(
        {**Family.outside, "projection": "encoder.embedding_hidden_mapping_in", "pooler": "pooler"}
    )
    head = MappingProxyType(
        {
            "head/dense": "predictions.dense",
            "head/norm": "predictions.LayerNorm",
            OUTPUT: "predictions",
            OUTPUT_TABLE: "predictions.decoder",
        }
    )
    sizes = MappingProxyType({**SIZES, "input_embedding_dim": "embedding_size"})
    implied = MappingProxyType({"always_project": True, "layer_sharing": "all"})
    usual_activation = "gelu_new"

    def check(self, config):
        super().check(config)
        if config.get("inner_group_num", 1) != 1:
            raise UserError(f"inner_group_num {config['inner_group_num']}; only 1 is supported")

    def arguments(self, config):
        return super().arguments(config) | {"layer_groups": config.get("num_hidden_groups", 1)}

    def config(self, ours, pad_id):
        groups = {"num_hidden_groups": len({*groups_of(ours)}), "inner_group_num": 1}
        return super().config(ours, pad_id) | groups

    def obstacles(self, ours):
        groups = groups_of(ours)
        is_even = groups == groups_of_layers(len(groups), len({*groups}))
        return super().obstacles({**ours, "layer_groups": len({*groups}) if is_even else groups})
