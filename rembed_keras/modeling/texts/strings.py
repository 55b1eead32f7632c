"""What texts in memory come as: strings and bytes, lists, arrays and tensors of them, and columns of tables."""

import types
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import keras

from rembed_keras.errors import UserError, shortened

NO_TOKENIZER = "there is no tokenizer: take a preset that has one, or set preprocessor"
ONE_COLUMN = "texts are one column, or a tuple of two: of a dict or a table give these, as table['text']"
NO_BATCHES = (
    "texts come in lists, arrays and data sets of tf.data or Grain, and not from a generator or a PyDataset, nor from "
    "PyTorch's or Grain's DataLoader: make a data set of them, or preprocess what they give"
)


def in_memory(texts: Any) -> Any:
    """A tensor, an array or a column of strings as a list, or as a string where it has no axes; all else as it is.

    >>> in_memory(np.array(["a", "b"])), in_memory(np.array("a"))
    (['a', 'b'], 'a')
    """
    values = texts.numpy() if hasattr(texts, "numpy") else texts
    if is_column(values):
        return values.to_pylist() if hasattr(values, "to_pylist") else [*values]
    return values.tolist() if hasattr(values, "tolist") else values


def is_column(texts: Any) -> bool:
    """Whether it is a column of values that is no array: of `datasets`, of pyarrow in chunks, or of polars.

    >>> is_column(range(2)), is_column([0, 1]), is_column("ab"), is_column(np.arange(2))
    (True, False, False, False)
    """
    if isinstance(texts, str | bytes | list | tuple) or hasattr(texts, "tolist"):
        return False
    return isinstance(texts, Sequence) or hasattr(texts, "to_pylist") or hasattr(texts, "to_arrow")


def is_one_text(texts: Any) -> bool:
    """Whether it is one text, and no collection of them.

    >>> is_one_text("ab"), is_one_text(np.array("ab")), is_one_text(["ab"])
    (True, True, False)
    """
    return isinstance(texts, str | bytes) or (_has_no_axes(texts) and isinstance(in_memory(texts), str | bytes))


def _has_no_axes(texts):
    return tuple(getattr(texts, "shape", (1,))) == ()


def listed(texts: Any) -> list:
    """Texts as a list, of one text too.

    Raises:
        UserError: for a dict or a table, of which a list would have the names of columns, and for what is no text.
    """
    if is_table(texts):
        raise UserError(ONE_COLUMN)
    values = in_memory(texts)
    if not isinstance(values, Iterable):
        raise UserError(f"{shortened(values)} is no text, nor a list of texts")
    return [values] if isinstance(values, str | bytes) else [*values]


def is_table(texts: Any) -> bool:
    """Whether it is a dict, or a table such as a DataFrame of pandas or a data set of `datasets`."""
    return isinstance(texts, Mapping) or hasattr(texts, "columns") or hasattr(texts, "column_names")


def are_texts(part: Any) -> bool:
    """Whether it is a text, or a collection of such, in memory or in a graph."""
    if isinstance(part, str | bytes):
        return True
    if is_column(part):
        first = part[:1] if hasattr(part, "to_pylist") else [*islice(part, 1)]
        return not is_table(part) and are_texts(in_memory(first))
    dtype = getattr(part, "dtype", None)
    if dtype is not None and getattr(dtype, "kind", "O") != "O":
        return dtype.kind in "US"
    if getattr(dtype, "name", "") == "string":
        return True
    values = part.tolist() if hasattr(part, "tolist") else part
    return isinstance(values, str | bytes) or (
        isinstance(values, list) and bool(values) and isinstance(values[0], str | bytes)
    )


def is_tokenized(x: object) -> bool:
    """Whether it is an encoder's inputs, and no texts."""
    return isinstance(x, Mapping) and "token_ids" in x


def is_in_memory(x: Any) -> bool:
    """Whether it is a text or a collection of texts, or a dict or a table, and no generator."""
    has_values = hasattr(x, "tolist") or is_column(x)
    return isinstance(x, str | bytes | list | tuple) or is_table(x) or has_values or are_texts(x)


def is_dataset(x: object) -> bool:
    """Whether it is a data set of tf.data or Grain."""
    return hasattr(x, "element_spec") or (_is_of_grain(x) and hasattr(x, "map"))


def _is_of_grain(x):
    return type(x).__module__.split(".")[0] == "grain"


def check_dataset(x: Any) -> None:
    """Raises a UserError for a data set that knows that it has no batches, or gives texts in columns, as tf.data's may.

    Each of these would be read as a row. Whatever else it is, nothing is checked.
    """
    cardinality = getattr(x, "cardinality", None)
    is_sized = _is_of_grain(x) and is_dataset(x) and hasattr(x, "__len__")
    if (callable(cardinality) and int(cardinality()) == 0) or (is_sized and len(x) == 0):
        raise UserError("the data set has no batches")
    for part in keras.tree.flatten(getattr(x, "element_spec", None)):
        if are_texts(part) and (_rank(part) or 0) > 1 and part.shape[-1] != 1:
            raise UserError(
                f"texts are of shape {tuple(part.shape)}: a row is a text, or a pair a tuple of two tensors"
            )


def check_batches(x: Any) -> None:
    """Raises a UserError for a data set that is empty, or gives one text with its label at a time."""
    check_dataset(x)
    given = getattr(x, "element_spec", None)
    if _is_of_grain(x) and is_dataset(x):
        given = x[0] if hasattr(x, "__len__") else next(iter(x), None)  # to iterate over the former would read ahead
    if isinstance(given, tuple) and len(given) > 1 and _is_single(given[0]):
        raise UserError("the data set gives one text at a time and no batches of them: end it with .batch(32)")


def _is_single(given):
    """Whether what a data set gives is one text, or a row of token ids."""
    if is_tokenized(given):
        return _rank(given["token_ids"]) == 1
    parts = given if isinstance(given, tuple) else (given,)
    return any(_rank(part) == 0 or isinstance(part, str | bytes) for part in parts if are_texts(part))


def _rank(part):
    shape = getattr(part, "shape", None)
    return len(shape) if isinstance(shape, tuple) else getattr(shape, "rank", None)


def without_texts(x: Any) -> Any:
    """What Keras takes batches from, of which the first is looked at.

    Args:
        x: a generator, a PyDataset, or a DataLoader of PyTorch's or Grain's; whatever else it is, nothing is checked.

    Returns:
        The same; of a generator another, which gives the first batch again.

    Raises:
        UserError: for batches of texts, which no preprocessor would meet.
    """
    if isinstance(x, types.GeneratorType):
        first = next(x, None)
        x = _again(first, x)
    elif isinstance(x, keras.utils.PyDataset) and x.num_batches != 0:
        first = x[0]
    elif (hasattr(x, "batch_sampler") and hasattr(x, "collate_fn")) or _is_of_grain(x):
        first = next(iter(x), None)
    else:
        return x
    texts = first[0] if isinstance(first, tuple | list) and first and not are_texts(first) else first
    if are_texts(texts) or (isinstance(texts, tuple | list) and texts and are_texts(texts[0])):
        raise UserError(NO_BATCHES)
    return x


def _again(first, rest):
    if first is not None:
        yield first
    yield from rest
