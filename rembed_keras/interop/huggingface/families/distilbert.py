"""DistilBERT, without segments and pooler. Source: Sanh et al. 2019; the state dict of Hugging Face's."""

from types import MappingProxyType

from rembed_keras.interop.huggingface.families.family import OUTPUT, OUTPUT_TABLE, Family


class DistilBert(Family):
    """DistilBERT, whose table of positions is read as it is stored, sinusoids or not."""

    kind = "distilbert"
    architecture = "DistilBert"
    prefix = "distilbert."
    block = "transformer.layer.{}."
    naming = "distilbert"
    outside = MappingProxyType(
        {
            "embeddings/token": "embeddings.word_embeddings",
            "embeddings/position": "embeddings.position_embeddings",
            "embeddings/norm": "embeddings.LayerNorm",
        }
    )
    head = MappingProxyType(
        {
            "head/dense": "vocab_transform",
            "head/norm": "vocab_layer_norm",
            OUTPUT: "vocab_projector",
            OUTPUT_TABLE: "vocab_projector",
        }
    )
    sizes = MappingProxyType(
        {
            "vocabulary_size": "vocab_size",
            "num_layers": "n_layers",
            "num_heads": "n_heads",
            "hidden_dim": "dim",
            "intermediate_dim": "hidden_dim",
            "input_embedding_dim": "dim",
            "max_sequence_length": "max_position_embeddings",
        }
    )
    implied = MappingProxyType({"always_project": False, "num_segments": 0})
    rates = ("dropout", "attention_dropout")
    activation = "activation"
    epsilon = None
