"""Labelled examples of tensorflow-datasets, by name and version; the extra `tasks` brings the library."""

import importlib
from collections.abc import Mapping

from rembed_keras.errors import UserError
from rembed_keras.tasks.kinds.examples import Labelled, Splits

Part = tuple[str, str]  # the name of a data set, and its split


def labelled_dataset(
    train: Part,
    dev: Mapping[str, Part] | None = None,
    test: Mapping[str, Part] | None = None,
    text: str = "text",
    pair: str | None = None,
    label: str = "label",
    id: str | None = None,  # noqa: A002
    data_dir: str | None = None,
) -> Splits:
    """Texts, or pairs of texts, with labels, of data sets that tensorflow-datasets knows.

    A part is a name and a split: `("glue/mrpc:2.0.0", "validation")`. Name the version, so that a recipe means the same
    next year. What is not on disk is downloaded and prepared.

    Args:
        train: the training split.
        dev: development splits, for model selection, by language.
        test: test splits, by language; a label of -1 means unlabeled.
        text: the feature with the text.
        pair: that with the second text, if there is one.
        label: that with the label, a name or a number.
        id: that with the example's id; its index from 0 by default.
        data_dir: where data sets are kept; the library's folder by default.

    Raises:
        UserError: if the library is not installed, it knows no such data set, split or feature, or a data set cannot
            be prepared.
    """
    columns = {"text": text, "pair": pair, "label": label, "id": id}
    parts = {
        name: {language: _read(part, columns, data_dir) for language, part in (each or {}).items()}
        for name, each in (("dev", dev), ("test", test))
    }
    return Splits(_read(train, columns, data_dir), **parts)


def _read(part, columns, data_dir):
    try:
        library = importlib.import_module("tensorflow_datasets")
    except ImportError:
        raise UserError("tensorflow-datasets is not installed: pip install 'rembed-keras[tasks]'") from None
    name, split = part
    try:
        builder = library.builder(name, data_dir=data_dir)
        builder.download_and_prepare()
        rows = library.as_numpy(builder.as_dataset(split=split))
    except Exception as error:  # the library's own errors have no common parent
        raise UserError(f"data set {name}, split {split}: {str(error).splitlines()[0]}") from error
    features = builder.info.features
    missing = next((column for column in columns.values() if column is not None and column not in features), None)
    if missing is not None:
        raise UserError(f"data set {name} has no feature {missing}; it has {', '.join(features)}")
    examples = [_example(number, row, columns, features) for number, row in enumerate(rows)]
    if not examples:
        raise UserError(f"data set {name} has no examples in split {split}")
    return examples


def _example(number, row, columns, features):
    values = {role: row[column] for role, column in columns.items() if column is not None}
    texts = {role: value.decode("utf-8") for role, value in values.items() if isinstance(value, bytes)}
    label = texts.get("label", values["label"])
    if hasattr(features[columns["label"]], "int2str"):
        label = None if label < 0 else features[columns["label"]].int2str(int(label))
    elif not isinstance(label, str):
        label = float(label)
    return Labelled(texts.get("id", str(values.get("id", number))), texts["text"], texts.get("pair"), label)
