"""Reader of the original release of RemBERT: a TensorFlow 1 checkpoint of the encoder.

The file has arrays by name and no configuration, so sizes are inferred from shapes; the number of heads, which no shape
shows, follows from the published head width, 64. Adam's slots and the step are skipped, and so is the pre-training
head, whose names the release does not document.
"""

import contextlib
import importlib.util
import math
import re
from pathlib import Path

import keras
import numpy as np

from rembed_keras.errors import UserError, first_line
from rembed_keras.interop.huggingface.families import FAMILIES
from rembed_keras.interop.huggingface.layout import to_matrix
from rembed_keras.modeling import Encoder
from rembed_keras.modeling.saving.filling import blank, fill

HEAD_DIM = 64
SKIPPED = re.compile(r"adam_[mv]|AdamWeightDecay|global_step|output_embedding|cls/")


def read_tf1(prefix: Path) -> tuple[keras.Model, list[str]]:
    """Reads an encoder.

    Args:
        prefix: the checkpoint's path without `.index`; or a folder, of whose checkpoints that of the last step counts.

    Returns:
        The `Encoder`, with tanh GELU as in the original code; and notes.

    Raises:
        UserError: for a missing or damaged checkpoint, a variable that is missing or has the wrong shape, or if
            TensorFlow, which reads it on both backends, is not installed.
    """
    if importlib.util.find_spec("tensorflow") is None:
        raise UserError("TensorFlow reads the original release, and is not installed: pip install tensorflow")
    import tensorflow as tf

    if prefix.is_dir():
        found = sorted(prefix.glob("*.index"), key=_by_step)
        if not found:
            raise UserError(f"{prefix} has no TensorFlow checkpoint: no *.index file is there")
        prefix = found[-1].with_suffix("")
    with _readable(prefix):
        reader = tf.train.load_checkpoint(str(prefix))
        shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    needed = sum(math.prod(shapes[name]) * dtype.size for name, dtype in dtypes.items() if dtype.is_floating)
    there = [file for file in prefix.parent.iterdir() if file.name.startswith(f"{prefix.name}.data-")]
    if needed > sum(file.stat().st_size for file in there):
        raise UserError(f"{prefix} needs more bytes than its data files have: they are truncated or incomplete")
    shapes = {name: shape for name, shape in shapes.items() if not SKIPPED.search(name)}
    with blank():
        encoder = Encoder(**_encoder_config(shapes, prefix))
    weights = {weight.path: weight for weight in encoder.weights}
    names = {path: _name(path, [*range(encoder.num_layers)]) for path in weights}
    for path, name in names.items():
        shape = weights[path].shape
        wanted = to_matrix(path, np.empty(shape, np.bool_)).shape
        if name not in shapes:
            raise UserError(f"{prefix} has no variable {name}")
        if tuple(shapes[name]) != wanted:
            raise UserError(f"{prefix}: {name} has shape {tuple(shapes[name])}; it should be {wanted}")
    for path, name in names.items():
        with _readable(prefix):  # its checksum is verified here
            value = reader.get_tensor(name)
        fill(weights[path], value.reshape(weights[path].shape))
    unknown = sorted(shapes.keys() - set(names.values()))
    notes = ["GELU is the tanh form of the original code"]
    if unknown:
        notes.append(f"{len(unknown)} variables outside the encoder were skipped, such as {unknown[0]}")
    return encoder, notes


def _name(path, layers):
    """Theirs of one of our weights: Hugging Face's RemBERT keeps the names, and separates them otherwise."""
    family = FAMILIES["rembert"]
    name, _, ending = family.place(path, layers).name.removeprefix(family.prefix).rpartition(".")
    name, ending = re.sub(r"layer\.(\d+)", r"layer_\1", name).replace(".", "/"), path.rpartition("/")[2]
    return f"bert/{name}" if ending == "embeddings" else f"bert/{name}/{ending}"


def _by_step(index):
    """A key that sorts model.ckpt-9000 before model.ckpt-10000, and a name without a step before both."""
    step = re.search(r"-(\d+)$", index.stem)
    return int(step[1]) if step else -1, index.name


@contextlib.contextmanager
def _readable(prefix):
    """Reports a checkpoint that cannot be read in one line."""
    import tensorflow as tf

    try:
        yield
    except (ValueError, IndexError, RuntimeError, tf.errors.OpError) as error:
        raise UserError(f"{prefix} is not a readable TensorFlow checkpoint: {first_line(error)}") from None


def _encoder_config(shapes, prefix):
    def shape(name):
        if name not in shapes:
            raise UserError(f"{prefix} has no variable {name}")
        return shapes[name]

    layers = {int(found[1]) for name in shapes if (found := re.match(r"bert/encoder/layer_(\d+)/", name))}
    vocabulary, width = shape("bert/embeddings/word_embeddings")
    hidden = shape("bert/encoder/embedding_hidden_mapping_in/kernel")[1]
    if hidden % HEAD_DIM:
        raise UserError(f"{prefix} has hidden_dim {hidden}, which is not a multiple of the head width {HEAD_DIM}")
    return {
        "vocabulary_size": vocabulary,
        "num_layers": max(layers, default=-1) + 1,
        "num_heads": hidden // HEAD_DIM,
        "hidden_dim": hidden,
        "intermediate_dim": shape("bert/encoder/layer_0/intermediate/dense/kernel")[1],
        "input_embedding_dim": width,
        "max_sequence_length": shape("bert/embeddings/position_embeddings")[0],
        "num_segments": shape("bert/embeddings/token_type_embeddings")[0],
        "activation": "gelu_tanh",
    }
