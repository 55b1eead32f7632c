"""A SavedModel of an encoder with the tokenizer in the graph: strings in, vectors out."""

from pathlib import Path

import keras

from rembed_keras.errors import UserError
from rembed_keras.interop.in_graph import check_in_graph, check_servable, in_graph
from rembed_keras.modeling.blocks.positions import longest_row
from rembed_keras.modeling.objectives.pretraining import encoder_of
from rembed_keras.modeling.parts import padding_read


def write_saved_model(model: keras.Model, folder: Path, tokenizer) -> list[str]:
    """Writes an encoder with its tokenizer.

    The signature `serving_default` takes `texts`, strings [B], and gives `sequence_output` float [B, S, D],
    `pooled_output` [B, D], `sentence_vectors` [B, D], the mean of the tokens other than [CLS] and [SEP], and
    `token_ids` int [B, S], padded to the longest text; texts are cut to `max_sequence_length` tokens, whatever
    positions are. Loading it needs `import tensorflow_text`.

    Args:
        model: an `Encoder`, or a `MaskedLM`, whose head is dropped.
        folder: an empty folder.
        tokenizer: a SentencePiece model, or a WordPiece model as BERT's.

    Returns:
        Notes.

    Raises:
        UserError: if there is no tokenizer, or one that has no twin in a graph, or the backend is not TensorFlow.
    """
    check_servable()
    if tokenizer is None:
        raise UserError("a SavedModel takes strings and needs a tokenizer: name one with --tokenizer MODEL")
    check_in_graph(tokenizer)
    import tensorflow as tf

    encoder = encoder_of(model)
    tf.saved_model.save(_served(encoder, tokenizer), str(folder))
    return ["load it after `import tensorflow_text`"] + (["the head is dropped"] if model is not encoder else [])


def _served(encoder, tokenizer):
    import tensorflow as tf

    longest = encoder.get_config()["max_sequence_length"]
    padding, most = padding_read(encoder), longest_row(encoder.arguments)

    class Served(tf.Module):
        def __init__(self):
            super().__init__()
            self.encoder = encoder
            self.tokenizer = in_graph(tokenizer)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "texts")])
        def serve(self, texts):
            pieces = self.tokenizer.tokenize(texts)[:, : longest - 2]
            ones = tf.ones_like(texts, tf.int32)[:, None]
            rows = tf.concat([tokenizer.cls_id * ones, pieces, tokenizer.sep_id * ones], axis=1)
            mask = tf.ones_like(rows).to_tensor()
            token_ids = rows.to_tensor(default_value=tokenizer.pad_id)
            least = [[0, 0], [0, tf.maximum(0, 2 - tf.shape(mask)[1])]]  # of no texts the longest row has no length
            token_ids, mask = tf.pad(token_ids, least, constant_values=tokenizer.pad_id), tf.pad(mask, least)
            length = tf.shape(token_ids)[1]
            ends = [[0, 0], [0, tf.minimum(padding, most - length)]]  # what is read with the longest row's [SEP]
            read = tf.pad(token_ids, ends, constant_values=tokenizer.pad_id), tf.pad(mask, ends)
            outputs = self.encoder({"token_ids": read[0], "segment_ids": 0 * read[1], "padding_mask": read[1]})
            hidden, pooled = (tf.cast(outputs[name], tf.float32) for name in ("sequence_output", "pooled_output"))
            hidden = hidden[:, :length]
            inner = tf.cast((mask > 0) & (token_ids != tokenizer.cls_id) & (token_ids != tokenizer.sep_id), tf.float32)
            total = tf.reduce_sum(hidden * inner[:, :, None], axis=1)  # [B, S, D] -> [B, D]
            return {
                "token_ids": token_ids,
                "sequence_output": hidden,
                "pooled_output": pooled,
                "sentence_vectors": tf.math.divide_no_nan(total, tf.reduce_sum(inner, axis=1, keepdims=True)),
            }

    return Served()
