"""Labelled texts in files: train on one language, test on many.

A task is a folder of `train.<language>.tsv`, `dev.<language>.tsv` and `test.<language>.tsv` (or `.tsv.gz`), each with
the header `text<TAB>label`.
"""

from pathlib import Path

import grain
import numpy as np

from rembed_keras.data.text import read_lines
from rembed_keras.errors import UserError

HEADER = "text\tlabel"


class LabelledTask:
    """A classification task in a folder.

    Args:
        folder: the folder.
        train_language: the language that is trained on.
        train_size: how many training examples to use, the first ones of the file; all by default.

    Attributes:
        name: the folder's name.
        labels: names of the labels, sorted; a label's id is its place.
        train, dev: (texts, label ids) in the training language.
        test: (texts, label ids) by language.

    Raises:
        UserError: for a file that is missing or malformed, or a label that was never trained.
    """

    def __init__(self, folder: str | Path, train_language: str = "en", train_size: int | None = None):
        self.folder, self.train_language = Path(folder), train_language
        self.name = self.folder.name
        rows = {split: self._read(split, train_language) for split in ("train", "dev")}
        if train_size is not None:
            if (
                isinstance(train_size, bool)
                or not isinstance(train_size, int)
                or not 0 < train_size <= len(rows["train"])
            ):
                raise UserError(f"train_size is {train_size!r}; task {self.folder} has {len(rows['train'])} examples")
            rows["train"] = rows["train"][:train_size]
        self.labels = sorted({label for _, label in rows["train"]})
        if len(self.labels) < 2:
            raise UserError(f"task {self.folder}: the training data has one label; there must be two or more")
        self.train, self.dev = (self._with_ids(split, train_language, rows[split]) for split in ("train", "dev"))
        names = {path.name.split(".")[1] for path in self.folder.glob("test.*.tsv*")}
        if not names:
            raise UserError(f"task {self.folder} has no test.<language>.tsv file")
        self.test = {name: self._with_ids("test", name, self._read("test", name)) for name in sorted(names)}

    def _path(self, split, language):
        for ending in ("tsv.gz", "tsv"):
            path = self.folder / f"{split}.{language}.{ending}"
            if path.exists():
                return path
        raise UserError(f"task {self.folder} has no {split}.{language}.tsv file")

    def _read(self, split, language):
        path = self._path(split, language)
        lines = list(read_lines(path))
        if not lines or lines[0] != HEADER:
            raise UserError(f"{path}, line 1 must be text<TAB>label")
        rows = []
        for number, line in enumerate(lines[1:], start=2):
            text, tab, label = line.rpartition("\t")
            if not (text and tab and label):
                raise UserError(f"{path}, line {number} is not text<TAB>label")
            rows.append((text, label))
        if not rows:
            raise UserError(f"{path} has no examples")
        return rows

    def _with_ids(self, split, language, rows):
        ids = {label: i for i, label in enumerate(self.labels)}
        strange = next((label for _, label in rows if label not in ids), None)
        if strange is not None:
            raise UserError(f"{self._path(split, language)}: label {strange!r} is not in the training data")
        return [text for text, _ in rows], np.array([ids[label] for _, label in rows], np.int32)


def batches(inputs: dict[str, np.ndarray], labels: np.ndarray, batch_size: int, seed: int) -> grain.MapDataset:
    """Training batches as a function of (seed, step): every example once in each pass, in another order each time.

    Args:
        inputs: arrays [N, ...] by name.
        labels: int [N].
        batch_size: B.
        seed: of the orders.

    Returns:
        An endless dataset; `dataset[step]` is `(inputs, labels)` of B examples.
    """
    order = grain.MapDataset.range(len(labels)).seed(seed).shuffle().repeat().batch(batch_size)
    return order.map(lambda rows: ({key: value[rows] for key, value in inputs.items()}, labels[rows]))
