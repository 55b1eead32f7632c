"""Labelled examples of tensorflow-datasets, by name and version; the extra `tasks` brings the library."""

import contextlib
import importlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from rembed_keras.errors import UserError, first_line, shortened
from rembed_keras.tasks.kinds.examples import Labelled, Splits

Part = tuple[str, str]  # the name of a data set, and its split
UNLABELED = ("-1", -1.0)  # what test examples have where nobody knows their label


def labelled_dataset(
    train: Part,
    dev: Mapping[str, Part] | None = None,
    test: Mapping[str, Part] | None = None,
    text: str = "text",
    pair: str | None = None,
    label: str = "label",
    id: str | None = None,  # noqa: A002
    data_dir: str | None = None,
    numeric: bool = False,
) -> Splits:
    """Texts, or pairs of texts, with labels, of data sets that tensorflow-datasets knows.

    A part is a name and a split: `("glue/mrpc:2.0.0", "validation")`. Name the version, so that a recipe means the same
    next year. What is not on disk is downloaded and prepared.

    Args:
        train: the training split.
        dev: development splits, for model selection, by language.
        test: test splits, by language; a label of -1, which no training example has, means unlabeled.
        text: the feature with the text.
        pair: that with the second text, if there is one.
        label: that with the label: a name, a fraction, or a whole number, which is a name unless `numeric`.
        id: that with the example's id, of which none comes twice; its index from 0 by default.
        data_dir: where data sets are kept; the library's folder by default.
        numeric: whether labels are numbers to be predicted (regression), and not names of classes.

    Raises:
        UserError: if the library is not installed, it knows no such data set, split or feature, or a data set cannot
            be prepared.
    """
    columns = {"text": text, "pair": pair, "label": label, "id": id}
    examples = _read(train, columns, data_dir, numeric)
    unlabeled = {*UNLABELED} - {example.label for example in examples}
    parts = [
        {language: _read(part, columns, data_dir, numeric) for language, part in (each or {}).items()}
        for each in (dev, test)
    ]
    for language, found in parts[1].items():
        parts[1][language] = [replace(each, label=None) if each.label in unlabeled else each for each in found]
    return Splits(examples, *parts)


def _read(part, columns, data_dir, numeric):
    try:
        library = importlib.import_module("tensorflow_datasets")
    except ImportError:
        raise UserError("tensorflow-datasets is not installed: pip install 'rembed-keras[tasks]'") from None
    name, split = part
    with _in_one_line(f"data set {name}, split {split}"):
        builder = library.builder(name, data_dir=data_dir)
        builder.download_and_prepare()
        rows = library.as_numpy(builder.as_dataset(split=split))
    features = builder.info.features
    missing = next((column for column in columns.values() if column is not None and column not in features), None)
    if missing is not None:
        raise UserError(f"data set {name} has no feature {missing}; it has {', '.join(features)}")
    texts = [columns[role] for role in ("text", "pair") if columns[role] is not None]
    with _in_one_line(f"data set {name}, split {split}"):  # rows are read as they are asked for
        read = enumerate(_with_texts(rows, texts, f"data set {name}"))
        examples = [_example(number, row, columns, features, numeric) for number, row in read]
    if not examples:
        raise UserError(f"data set {name} has no examples in split {split}")
    twice = next((each for each, count in Counter(example.id for example in examples).items() if count > 1), None)
    if twice is not None:
        raise UserError(
            f"data set {name}, split {split}: two examples have the {columns['id']} {twice!r}: name a feature of "
            "ids, or none"
        )
    return examples


@contextlib.contextmanager
def _in_one_line(place):
    """A block whose errors, as of a damaged file or of text that is not UTF-8, are one line that names a place."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # the library's own errors have no common parent
        raise UserError(f"{place}: {first_line(error)}") from error


def _with_texts(rows, columns, place):
    """Yields rows whose columns of texts have texts."""
    for row in rows:
        wrong = next((column for column in columns if not isinstance(row[column], bytes)), None)
        if wrong is not None:
            raise UserError(f"{place} has no text in its feature {wrong}, but {shortened(row[wrong])}: name another")
        yield row


def _example(number, row, columns, features, numeric):
    values = {role: row[column] for role, column in columns.items() if column is not None}
    texts = {role: value.decode("utf-8") for role, value in values.items() if isinstance(value, bytes)}
    label = _label(texts.get("label", values["label"]), features[columns["label"]], numeric)
    return Labelled(texts.get("id", str(values.get("id", number))), texts["text"], texts.get("pair"), label)


def _label(value, feature, numeric):
    if isinstance(value, str):
        return value
    if numeric or np.issubdtype(np.asarray(value).dtype, np.floating):
        return float(value)
    if hasattr(feature, "int2str"):
        return None if value < 0 else feature.int2str(int(value))
    return str(value).lower()
