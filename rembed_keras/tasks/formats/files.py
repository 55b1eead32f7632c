"""A user's own files as a task, described in a recipe alone.

Train on one file and score on others, one per language. They are given by language, or all at once by a path with the
placeholder `{language}`: `data/test.{language}.tsv`.
"""

import glob
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from rembed_keras.data.text import read_lines
from rembed_keras.errors import Count, UserError
from rembed_keras.tasks.formats.columns import TextFormat, WordFormat
from rembed_keras.tasks.formats.lines import has_objects
from rembed_keras.tasks.formats.questions import read_questions
from rembed_keras.tasks.formats.readers import read_records, read_table
from rembed_keras.tasks.formats.sentences import read_sentences
from rembed_keras.tasks.kinds.examples import Labelled, Splits

# a file by language, or a path with {language} in it
Paths = Mapping[str, str | Path] | str | Path

AnyExample = TypeVar("AnyExample")

HEADER = "text\tlabel"
PLACEHOLDER = "{language}"


def labelled_files(
    train: str | Path,
    dev: Paths | None = None,
    test: Paths | None = None,
    text: str = "text",
    pair: str | None = None,
    label: str = "label",
    id: str | None = None,  # noqa: A002
    delimiter: str | None = None,
    numeric: bool = False,
    train_size: Count | None = None,
) -> Splits:
    """Texts, or pairs of texts, with labels, in tables, JSON lines or Parquet; the ending of a file's name says which.

    Args:
        train: the training file, `.tsv`, `.csv` or `.jsonl`, all also with `.gz` at the end, or `.parquet`.
        dev: development files, for model selection.
        test: test files; labels may be missing in them.
        text: name of the column with the first text.
        pair: that of the second text; None if there is none.
        label: that of the label.
        id: that of the examples' ids, of which none comes twice; by default they are numbered from 0.
        delimiter: between the cells of a table, whatever the file name's ending; by default as that says.
        numeric: whether labels are numbers to be predicted (regression), and not names of classes.
        train_size: how many training examples to use, the first ones of the file; all by default.

    Returns:
        Examples of `Labelled`.

    Raises:
        UserError: for a file that is missing or malformed, training data with one class, a label that is not in the
            training data, or a train_size that is out of range.
    """

    def read(path, unlabeled):
        if has_objects(path):
            return read_records(path, text, pair, label, id, numeric, unlabeled=unlabeled)
        return read_table(path, text, pair, label, id, delimiter, numeric, unlabeled=unlabeled)

    examples = _first(read(train, unlabeled=False), train_size, str(train))
    parts: list[dict[str, list[Labelled]]] = []
    labels = None if numeric else _labels(examples, str(train))
    for paths, unlabeled in ((_by_language(dev, train), False), (_by_language(test, train), True)):
        parts.append({language: read(path, unlabeled) for language, path in paths.items()})
        for language, path in paths.items():
            _check_trained(parts[-1][language], labels, path, train_size)
    return Splits(examples, parts[0], parts[1], TextFormat(text, pair or "pair", id or "id", delimiter))


def tagged_files(
    train: str | Path,
    dev: Paths | None = None,
    test: Paths | None = None,
    word_column: int | str | None = None,
    tag_column: int | str | None = None,
    separator: str | None = None,
    train_size: Count | None = None,
) -> Splits:
    """Sentences of words with tags, in CoNLL files, JSON lines or Parquet; see `read_sentences`.

    Args:
        train: the training file; lists of words and tags are in `.jsonl`, `.jsonl.gz` and `.parquet`.
        dev: development files, for model selection.
        test: test files; tags may be missing in them.
        word_column: index of the word's column, from 0; by default 0, in CoNLL-U 1. Or the name of the lists of words;
            by default `tokens`.
        tag_column: index of the tag's column; by default the last, in CoNLL-U 3. Or the name of the lists of tags; by
            default `tags`.
        separator: between columns; by default tabs if there are any, else spaces.
        train_size: how many sentences of the training file to use, the first ones; all by default.

    Returns:
        Examples of `Tagged`.

    Raises:
        UserError: for a file that is missing or malformed, or a train_size that is out of range.
    """

    def read(path, unlabeled=False):
        return read_sentences(path, word_column, tag_column, separator, unlabeled)

    return Splits(
        _first(read(train), train_size, str(train)),
        {language: read(path) for language, path in _by_language(dev, train).items()},
        {language: read(path, unlabeled=True) for language, path in _by_language(test, train).items()},
        WordFormat(word_column, separator),
    )


def question_files(
    train: str | Path, dev: Paths | None = None, test: Paths | None = None, train_size: Count | None = None
) -> Splits:
    """Extractive question answering, in SQuAD's JSON, JSON lines or Parquet; see `read_questions`.

    Args:
        train: the training file.
        dev: development files, for model selection.
        test: test files; answers may be missing in them.
        train_size: how many questions of the training file to use, the first ones; all by default.

    Returns:
        Examples of `Question`.

    Raises:
        UserError: for a file that is missing or malformed, a question without an answer elsewhere than in a test, or a
            train_size that is out of range.
    """
    questions = _first(read_questions(train), train_size, str(train))
    return Splits(
        questions,
        {language: read_questions(path) for language, path in _by_language(dev, train).items()},
        {language: read_questions(path, unlabeled=True) for language, path in _by_language(test, train).items()},
    )


def labelled_folder(folder: str | Path, train_language: str = "en", train_size: Count | None = None) -> Splits:
    """A folder of `train.<language>.tsv`, `dev.<language>.tsv` and `test.<language>.tsv`, or `.tsv.gz`.

    Each begins with the line `text<TAB>label`. Spaces around a text and a label are removed, tabs in a text are
    kept.

    Args:
        folder: the folder.
        train_language: the language of the training file, and of the development file that is read.
        train_size: how many training examples to use, the first ones of the file; all by default.

    Returns:
        Examples of `Labelled`.

    Raises:
        UserError: for a file that is missing or malformed, or there twice, training data with one class, a label that
            is not in the training data, or a train_size that is out of range.
    """
    folder = Path(folder)
    languages = sorted({path.name.split(".")[1] for path in folder.glob("test.*.tsv*")})
    train_path, dev_path = (_file_of(folder, split, train_language) for split in ("train", "dev"))
    train = _first(_read_labelled(train_path), train_size, f"task {folder}")
    labels = _labels(train, f"task {folder}")
    if not languages:
        raise UserError(f"task {folder} has no test.<language>.tsv file")
    parts = [{train_language: dev_path}, {language: _file_of(folder, "test", language) for language in languages}]
    read = [{language: _read_labelled(path) for language, path in paths.items()} for paths in parts]
    for paths, examples in zip(parts, read, strict=True):
        for language, path in paths.items():
            _check_trained(examples[language], labels, path, train_size)
    return Splits(train, *read, train_language=train_language)


def _file_of(folder, split, language):
    paths = [folder / f"{split}.{language}.{ending}" for ending in ("tsv", "tsv.gz")]
    found = [path for path in paths if path.exists()]
    if not found:
        raise UserError(f"task {folder} has no {split}.{language}.tsv file")
    if len(found) > 1:
        raise UserError(f"{found[0]} and {found[1]} are both {split} of {language!r}: keep one")
    return found[0]


def _read_labelled(path):
    lines = read_lines(path)
    if next(lines, None) != HEADER:
        raise UserError(f"{path}, line 1 must be text<TAB>label")
    examples = []
    for number, line in enumerate(lines, start=2):
        text, tab, label = line.rpartition("\t")
        text, label = text.rstrip(" "), label.strip()
        if not (text and tab and label):
            raise UserError(f"{path}, line {number} is not text<TAB>label")
        examples.append(Labelled(str(number - 2), text, label=label))
    if not examples:
        raise UserError(f"{path} has no examples")
    return examples


def _by_language(paths: Paths | None, train: str | Path) -> dict[str, Path]:
    """Files by language; sorted by language where they are found by a pattern, by which training data are none."""
    if paths is None:
        return {}
    if isinstance(paths, Mapping):
        return {language: Path(path) for language, path in paths.items()}
    pattern = Path(paths).as_posix()
    before, *rest = pattern.split(PLACEHOLDER)
    if not rest:
        raise UserError(f"{paths} names no language: give a path for each language, or one with {PLACEHOLDER} in it")
    shape = re.compile("(?P<language>[^/]+)".join([re.escape(before), "(?P=language)".join(map(re.escape, rest))]))
    found = {}
    for path in glob.glob("*".join(map(glob.escape, [before, *rest]))):  # noqa: PTH207 - absolute patterns too
        match = shape.fullmatch(Path(path).as_posix())
        if match:
            found[match["language"]] = Path(path)
    if not found:
        raise UserError(f"no file matches {paths} for any language")
    for name, file in found.items():
        if file.resolve() == Path(train).resolve():
            raise UserError(
                f"{paths} finds {file}, the training data, as a language {name!r}: give a path for each language, or "
                "keep that file elsewhere"
            )
    return dict(sorted(found.items()))


def _first(examples: list[AnyExample], train_size: int | None, place: str) -> list[AnyExample]:
    if train_size is None:
        return examples
    if isinstance(train_size, bool) or not isinstance(train_size, int) or not 0 < train_size <= len(examples):
        raise UserError(f"train_size is {train_size!r}; {place} has {len(examples)} examples")
    return examples[:train_size]


def _labels(examples: Sequence[Labelled], place: str):
    labels = {example.label for example in examples}
    if len(labels) < 2:
        raise UserError(f"{place}: the training data has one label; there must be two or more")
    return labels | {None}


def _check_trained(examples, labels, path, train_size):
    """Checks that labels occur in training; `labels` is None for regression, which has nothing to check."""
    strange = next((example.label for example in examples if labels and example.label not in labels), None)
    if strange is not None:
        few = f": of that the first {train_size} examples are used, use more (FINETUNE_EXAMPLES)" if train_size else ""
        raise UserError(f"{path}: label {strange!r} is not in the training data{few}")
