"""Readers of the files in XTREME's download folder; errors name the file and line.

Test files may be labeled or not: XTREME's scripts remove the labels. They also write pairs of sentences with Python's
csv module, which ends lines with a carriage return and doubles quotation marks; both are undone here. Questions are
read by `questions.read_squad`. Source: google-research/xtreme, `utils_preprocess.py`.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from rembed_keras.data.text import read_exact_lines
from rembed_keras.errors import UserError, did_you_mean
from rembed_keras.tasks.formats.lines import read_rows
from rembed_keras.tasks.kinds.examples import Labelled, Tagged
from rembed_keras.tasks.retrieval.bitext import Bitext

Kind = TypeVar("Kind")

QUOTED = re.compile(r'"((?:[^"]|"")*)"')
LANGUAGE_CODE = re.compile("[a-z]{2,3}:")
HEADER = ["sentence1", "sentence2"]  # PAWS-X's, in files that still have it
# LASER's codes of XTREME's languages
LASER_CODES = (
    "af=afr ar=ara bg=bul bn=ben de=deu el=ell es=spa et=est eu=eus fa=pes fi=fin fr=fra he=heb hi=hin hu=hun id=ind "
    "it=ita ja=jpn jv=jav ka=kat kk=kaz ko=kor ml=mal mr=mar nl=nld pt=por ru=rus sw=swh ta=tam te=tel th=tha tl=tgl "
    "tr=tur ur=urd vi=vie zh=cmn"
)
OTHER_NAMES = {"contradictory": "contradiction"}  # in XNLI's copy of MultiNLI


def read_pairs(path: Path, labels: Sequence[str], part: str) -> list[Labelled]:
    """Reads rows of sentence, sentence and label: XNLI and PAWS-X.

    All rows are kept, also those with an empty sentence or PAWS-X's "NS", since a submission needs a label for each.

    Args:
        path: the file.
        labels: names of the labels.
        part: "train", which must have every label, "dev", or "test", which may lack the column of labels.

    Raises:
        UserError: for an unknown or a missing label, a row with another number of columns, or no row.
    """
    examples: list[Labelled] = []
    columns = 0
    for number, row in read_rows(path, delimiter="\t"):
        cells = [unquote(cell).strip() for cell in row]
        if number == 1 and cells[:2] == HEADER:
            continue
        columns = columns or (2 if part == "test" and len(cells) == 2 else 3)
        if len(cells) != columns:
            raise UserError(f"{path}, line {number} has {len(cells)} columns; there must be {columns}")
        label = OTHER_NAMES.get(cells[2], cells[2]) if columns == 3 else None
        if label is not None:
            _check_known("label", label, labels, path, number)
        examples.append(Labelled(str(len(examples)), cells[0], cells[1], label))
    if part == "train":
        _check_classes({pair.label for pair in examples}, labels, path)
    return _some(examples, path, "examples")


def unquote(cell: str) -> str:
    """A cell as it was before the csv module wrote it.

    The module quotes a cell only if it has a quotation mark inside, so any others around a cell are the sentence's own.

    >>> unquote('"He said ""no""."'), unquote('"no"')
    ('He said "no".', '"no"')
    """
    quoted = QUOTED.fullmatch(cell)
    return quoted[1].replace('""', '"') if quoted and '""' in quoted[1] else cell


def read_tagged(path: Path, tags: Sequence[str], part: str) -> list[Tagged]:
    """Reads lines of a word and its tag, with one or more empty lines between sentences: UD-POS and PAN-X.

    A word may have spaces. In a file with tags it may be empty, where XTREME's scripts removed all of it; in one
    without, such a line ends the sentence, as it does in XTREME. The language prefix of every word in WikiAnn's own
    files, such as "en:", is removed.

    Args:
        path: the file.
        tags: names of the tags.
        part: "train", which must have every tag, "dev", or "test", which may lack the column of tags.

    Raises:
        UserError: for an unknown or a missing tag, a line with another number of columns, or no sentence.
    """
    sentences: list[list[tuple[str, str]]] = [[]]
    columns = 0
    for number, line in enumerate(read_exact_lines(path), start=1):
        if not line.strip():
            sentences.append([])
            continue
        cells = [cell.strip() for cell in line.split("\t")]
        columns = columns or (1 if part == "test" and len(cells) == 1 else 2)
        if len(cells) != columns:
            raise UserError(f"{path}, line {number} has {len(cells)} columns; there must be {columns}")
        if columns == 2:
            _check_known("tag", cells[1], tags, path, number)
        sentences[-1].append((cells[0], cells[-1]))
    sentences = _without_language([sentence for sentence in sentences if sentence])
    if part == "train":
        _check_classes({tag for sentence in sentences for _, tag in sentence}, tags, path)
    examples = []
    for number, sentence in enumerate(sentences):
        words, its_tags = zip(*sentence, strict=True)
        examples.append(Tagged(str(number), words, its_tags if columns == 2 else None))
    return _some(examples, path, "sentences")


def read_bucc(folder: Path, language: str, part: str) -> Bitext:
    """Reads the sentences of a language and of English, and their gold pairs where there are any: BUCC.

    A line is an id and a sentence; further columns are ignored, as in XTREME.

    Args:
        folder: where the files are.
        language: the language other than English.
        part: "dev" or "test".

    Raises:
        UserError: for a missing or empty file, a line without a tab, an id that comes twice, or a gold id without a
            sentence.
    """
    stem = f"{language}-en.{part}"
    others, english = (_read_sentences(folder / f"{stem}.{side}") for side in (language, "en"))
    path = folder / f"{stem}.gold"
    if part == "test" and not path.exists():
        return Bitext(english, others)
    gold = set()
    for number, cells in read_rows(path, delimiter="\t"):
        if len(cells) != 2 or cells[0].strip() not in others or cells[1].strip() not in english:
            raise UserError(f"{path}, line {number} is not the ids of a sentence of {language} and an English one")
        gold.add((cells[0].strip(), cells[1].strip()))
    return Bitext(english, others, frozenset(gold))


def read_tatoeba(folder: Path, language: str) -> Bitext:
    """Reads the sentences of a language and of English, and their gold pairs if they can be restored: Tatoeba.

    Args:
        folder: where the files are.
        language: the language other than English.

    Raises:
        UserError: for a missing or empty file, files of different length, or a LASER file of other sentences.
    """
    paths = [folder / f"{language}-en.{side}" for side in ("en", language)]
    english, others = ([line.strip() for line in read_exact_lines(path)] for path in paths)
    if not english or len(english) != len(others):
        raise UserError(f"{paths[0]} has {len(english)} lines and {paths[1]} {len(others)}: they must agree")
    codes = dict(pair.split("=") for pair in LASER_CODES.split())
    original = folder / f"tatoeba.{codes[language]}-eng.eng"
    rows = None  # of each English sentence's translation
    if english != sorted(english):
        rows = list(range(len(english)))
    elif original.exists():
        lines = [line.strip() for line in read_exact_lines(original)]
        rows = sorted(range(len(lines)), key=lines.__getitem__)
        if [lines[row] for row in rows] != english:
            raise UserError(f"{original} has other sentences than {paths[0]}")
    gold = None if rows is None else frozenset((str(row), str(place)) for place, row in enumerate(rows))
    return Bitext(_numbered(english), _numbered(others), gold)


def _without_language(sentences):
    """Words and tags without the language prefix, such as "en:", if every word has it."""
    code = LANGUAGE_CODE.match(sentences[0][0][0]) if sentences else None
    if code is None or not all(word.startswith(code[0]) for sentence in sentences for word, _ in sentence):
        return sentences
    return [[(word.removeprefix(code[0]).strip(), tag) for word, tag in sentence] for sentence in sentences]


def _numbered(lines):
    return {str(number): line for number, line in enumerate(lines)}


def _read_sentences(path):
    sentences: dict[str, str] = {}
    for number, cells in read_rows(path, delimiter="\t"):
        name = cells[0].strip()
        if len(cells) < 2 or not name:
            raise UserError(f"{path}, line {number} is not id<TAB>sentence")
        if name in sentences:
            raise UserError(f"{path}, line {number} has the id {name} again")
        sentences[name] = cells[1].strip()
    if not sentences:
        raise UserError(f"{path} has no sentences")
    return sentences


def _check_classes(seen, classes, path):
    missing = [name for name in classes if name not in seen]
    if seen and missing:
        raise UserError(f"{path} has no example of {', '.join(missing)}: every class needs training data")


def _check_known(kind, name, known, path, number):
    if name not in known:
        names = ", ".join(known)
        raise UserError(f"{path}, line {number}: {kind} {name!r} is none of {names}{did_you_mean(name, known)}")


def _some(examples: list[Kind], path: Path, kind: str) -> list[Kind]:
    if not examples:
        raise UserError(f"{path} has no {kind}")
    return examples
