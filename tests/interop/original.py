"""A TensorFlow 1 checkpoint in the format of RemBERT's original release, which the package reads and does not write."""

import numpy as np


def write_original(encoder, prefix, leave_out=()):
    """Writes a checkpoint with the names of the release, spelled out here, with Adam's slots and parts of a head."""
    import tensorflow as tf

    w = {weight.path: weight.numpy() for weight in encoder.weights}
    width = encoder.get_config()["hidden_dim"]
    arrays = {
        "bert/embeddings/word_embeddings": w["embeddings/token/embeddings"],
        "bert/embeddings/position_embeddings": w["embeddings/position/embeddings"],
        "bert/embeddings/token_type_embeddings": w["embeddings/segment/embeddings"],
        "bert/embeddings/LayerNorm/gamma": w["embeddings/norm/gamma"],
        "bert/embeddings/LayerNorm/beta": w["embeddings/norm/beta"],
        "bert/encoder/embedding_hidden_mapping_in/kernel": w["projection/kernel"],
        "bert/encoder/embedding_hidden_mapping_in/bias": w["projection/bias"],
        "bert/pooler/dense/kernel": w["pooler/kernel"],
        "bert/pooler/dense/bias": w["pooler/bias"],
    }
    for i in range(encoder.num_layers):
        theirs, ours = f"bert/encoder/layer_{i}", f"block_{i}"
        for part in ("query", "key", "value"):
            kernel, bias = (w[f"{ours}/attention/heads/{part}/{name}"] for name in ("kernel", "bias"))
            arrays[f"{theirs}/attention/self/{part}/kernel"] = kernel.reshape(width, width)
            arrays[f"{theirs}/attention/self/{part}/bias"] = bias.reshape(width)
        arrays[f"{theirs}/attention/output/dense/kernel"] = w[
            f"{ours}/attention/heads/attention_output/kernel"
        ].reshape(width, width)
        arrays[f"{theirs}/attention/output/dense/bias"] = w[f"{ours}/attention/heads/attention_output/bias"]
        for place, norm in (("attention/output", "attention"), ("output", "feed_forward")):
            for name in ("gamma", "beta"):
                arrays[f"{theirs}/{place}/LayerNorm/{name}"] = w[f"{ours}/{norm}/norm/{name}"]
        for place, dense in (("intermediate", "up"), ("output", "down")):
            for name in ("kernel", "bias"):
                arrays[f"{theirs}/{place}/dense/{name}"] = w[f"{ours}/feed_forward/{dense}/{name}"]
    arrays = {name: value for name, value in arrays.items() if name not in leave_out}
    slots = {f"{name}/adam_{slot}": np.zeros_like(value) for name, value in arrays.items() for slot in "mv"}
    others = {"global_step": np.int64(7), "cls/predictions/output_bias": np.zeros(7, np.float32)}
    everything = arrays | slots | others
    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=[*everything],
        shape_and_slices=[""] * len(everything),
        tensors=[tf.constant(value) for value in everything.values()],
    )
