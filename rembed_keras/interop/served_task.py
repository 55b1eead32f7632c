"""A fine-tuned model as a SavedModel: strings in, labels out, with the tokenizer in the graph."""

from collections.abc import Sequence
from pathlib import Path

import keras

from rembed_keras.data.tokenizers.protocol import AnyTokenizer
from rembed_keras.errors import UserError
from rembed_keras.interop.in_graph import check_in_graph, check_servable, in_graph
from rembed_keras.modeling import Classifier, Regressor


def write_served_task(
    model: keras.Model,
    folder: Path,
    tokenizer: AnyTokenizer,
    sequence_length: int,
    labels: Sequence[str] = (),
    pairs: bool = False,
) -> None:
    """Writes a classifier or a regressor.

    The signature `pairs` takes `texts` and `pairs`, strings [B] each; `serving_default` takes `texts` alone, or both
    for a task of pairs. Outputs are `probabilities` float [B, C] and `labels`, strings [B], or `values` float [B] of a
    regressor. Loading it needs `import tensorflow_text`, and nothing of this package.

    Args:
        model: a `Classifier` or a `Regressor`.
        folder: a folder that does not exist or is empty.
        tokenizer: the encoder's, a SentencePiece model or a WordPiece model as BERT's.
        sequence_length: S; longer texts are truncated as in fine-tuning.
        labels: names by their ids; of a classifier only.
        pairs: whether every example of the task is a pair.

    Raises:
        UserError: for another model, another number of labels than it has, a tokenizer that has no twin in a graph, or
            if the backend is not TensorFlow.
    """
    check_servable()
    if not isinstance(model, Classifier | Regressor):
        raise UserError("a SavedModel of a task needs a classifier or a regressor; taggers and QA are not supported")
    classes = model.num_classes if isinstance(model, Classifier) else 0
    if len(labels) != classes:
        raise UserError(f"{model.name} has {classes} classes, and {len(labels)} labels are given: name each of them")
    check_in_graph(tokenizer)
    import tensorflow as tf

    served = _served(model, tokenizer, sequence_length, list(labels))
    signatures = {"serving_default": served.pairs if pairs else served.texts, "pairs": served.pairs}
    tf.saved_model.save(served, str(folder), signatures=signatures)


def _served(model, tokenizer, length, labels):
    import tensorflow as tf

    string = tf.TensorSpec([None], tf.string, "texts")

    class Served(tf.Module):
        def __init__(self):
            super().__init__()
            self.model = model
            self.tokenizer = in_graph(tokenizer)

        @tf.function(input_signature=[string])
        def texts(self, texts):
            first = self.tokenizer.tokenize(texts)[:, : length - 2]
            return self.answer([first], texts)

        @tf.function(input_signature=[string, tf.TensorSpec([None], tf.string, "pairs")])
        def pairs(self, texts, pairs):
            first, second = self.tokenizer.tokenize(texts), self.tokenizer.tokenize(pairs)
            room = length - 3
            second_room = tf.maximum(room // 2, room - tf.cast(first.row_lengths(), tf.int32))
            second = _cut(tf, second, second_room)
            first = _cut(tf, first, room - tf.cast(second.row_lengths(), tf.int32))
            return self.answer([first, second], texts)

        def answer(self, parts, texts):
            ends = tf.ones_like(texts, tf.int32)[:, None]
            rows = [tokenizer.cls_id * ends]
            for part in parts:
                rows += [part, tokenizer.sep_id * ends]
            rows = tf.concat(rows, axis=1)
            mask = tf.ones_like(rows).to_tensor(shape=[None, length])
            places = tf.range(length)[None]  # [1, S]
            begins = tf.cast(parts[0].row_lengths(), tf.int32)[:, None] + 2
            outputs = self.model(
                {
                    "token_ids": rows.to_tensor(default_value=tokenizer.pad_id, shape=[None, length]),
                    "segment_ids": mask * tf.cast(places >= begins, tf.int32) * segments,
                    "padding_mask": mask,
                }
            )
            if not labels:
                return {"values": outputs}
            best = tf.argmax(outputs, axis=-1)
            return {"probabilities": tf.nn.softmax(outputs), "labels": tf.gather(tf.constant(labels), best)}

    segments = int(model.encoder.get_config()["num_segments"] > 1)
    return Served()


def _cut(tf, rows, lengths):
    """The first `lengths` elements of each row of a ragged tensor."""
    places = tf.ragged.range(rows.row_lengths())
    return tf.ragged.boolean_mask(rows, places < tf.cast(lengths, tf.int64)[:, None])
