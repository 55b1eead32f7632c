"""Text of tensorflow-datasets, by name and version; the extra `tasks` brings the library.

`tfds:wiki40b/de:1.3.0,wiki40b/en:1.3.0` is the training split of two data sets, whose languages are the names of their
configurations; `tfds:c4/multilingual:3.1.0` has its languages as splits, of which those for validation are skipped.
What is not on disk is downloaded and prepared. wiki40b's markers (`_START_PARAGRAPH_` and others) are removed.
"""

import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rembed_keras.errors import UserError, first_line

PREFIX = "tfds:"
MARKS = re.compile(r"_START_[A-Z]+_|_NEWLINE_")
VERSION = re.compile(r":\d+\.\d+\.\d+$")


@dataclass(frozen=True)
class DatasetPart:
    """A shard of a split of a data set; see `sources.Part`."""

    name: str
    size: int
    folder: str
    split: str
    language: str

    def read(self) -> Iterator[tuple[str, str]]:
        """Yields the language and its paragraphs.

        Raises:
            UserError: for a file that is damaged.
        """
        library = _library()
        builder = library.builder_from_directory(self.folder)
        ordered = library.ReadConfig(interleave_cycle_length=1, try_autocache=False)
        rows = builder.as_dataset(split=self.split, read_config=ordered, shuffle_files=False)
        try:
            for row in library.as_numpy(rows):
                text = MARKS.sub("\n", row["text"].decode("utf-8"))
                yield from ((self.language, line) for line in map(str.strip, text.split("\n")) if line)
        except Exception as error:  # of TensorFlow, which this does not know
            raise UserError(f"data set in {self.folder}: {first_line(error)}") from error


def dataset_parts(names: str) -> tuple[list[DatasetPart], dict[str, dict[str, str]]]:
    """The parts of data sets, and their entries in the manifest.

    Args:
        names: as in this module's description.

    Raises:
        UserError: if the library is not installed, a name has no version, or a data set cannot be loaded or has no
            text.
    """
    library = _library()
    parts, facts = [], {}
    for name in names.removeprefix(PREFIX).split(","):
        if not VERSION.search(name):
            raise UserError(f"data set {name} has no version: name one, as in wiki40b/de:1.3.0")
        try:
            builder = library.builder(name)
            builder.download_and_prepare()
        except Exception as error:  # the library's own errors have no common parent
            raise UserError(f"data set {name}: {first_line(error)}") from error
        if "text" not in builder.info.features:
            raise UserError(f"data set {name} has no feature text; it has {', '.join(builder.info.features)}")
        facts[name] = {"dataset": builder.info.full_name}
        for split, language in _languages(builder):
            parts += _shards(builder, name, split, language)
    return sorted(parts, key=lambda part: (part.language, part.name)), facts


def _languages(builder: Any) -> list[tuple[str, str]]:
    """Splits to read, and their languages."""
    splits = sorted(builder.info.splits)
    if "train" in splits:
        config = builder.builder_config.name if builder.builder_config else builder.name
        return [("train", config.rpartition(".")[2])]
    return [(split, split) for split in splits if not split.endswith(("validation", "test"))]


def _shards(builder, name, split, language):
    info = builder.info.splits[split]
    label = re.sub(r"[^\w.-]", "_", f"{language}-{name}")
    return [
        DatasetPart(
            f"{label}-{number:05}",
            info.num_bytes // max(info.num_shards, 1),
            str(builder.data_dir),
            f"{split}[{number}shard:{number + 1}shard]",
            language,
        )
        for number in range(info.num_shards)
    ]


def _library() -> Any:
    try:
        return importlib.import_module("tensorflow_datasets")
    except ImportError:
        raise UserError("tensorflow-datasets is not installed: pip install 'rembed-keras[tasks]'") from None
