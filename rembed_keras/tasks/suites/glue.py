"""GLUE from the files of its official download, with a folder per task: `glue_data/CoLA/train.tsv` and so on.

Labels have the names of submissions, see `rembed_keras.tasks.suites.submissions`. Test sets are unlabeled, and
optional: they are read where their files are there. Quotes are ordinary characters in these files. Source: Wang et al.
2019, "GLUE"; nyu-mll/GLUE-baselines, download_glue_data.py.
"""

from pathlib import Path

from rembed_keras.errors import UserError
from rembed_keras.tasks.formats.columns import TextFormat
from rembed_keras.tasks.formats.lines import read_rows
from rembed_keras.tasks.formats.readers import read_table
from rembed_keras.tasks.kinds.examples import Labelled, Splits

BINARY = ("0", "1")
ENTAILMENT = ("entailment", "not_entailment")
THREE_WAY = ("contradiction", "entailment", "neutral")
HIGHEST_SCORE = 5.0  # of STS-B; the lowest is 0


def cola(folder: str | Path) -> Splits:
    """CoLA: whether a sentence is acceptable English, "1", or not, "0".

    Args:
        folder: the folder of GLUE; `CoLA/train.tsv` and `dev.tsv` have four columns without a header.

    Raises:
        UserError: for a file that is missing or malformed.
    """
    train, dev = (_read_cola(Path(folder) / "CoLA" / name) for name in ("train.tsv", "dev.tsv"))
    return Splits(train, {"en": dev}, _tests(folder, "CoLA", "sentence"), TextFormat("sentence", id="index"))


def sst2(folder: str | Path) -> Splits:
    """SST-2: whether a phrase of a film review is positive, "1", or negative, "0".

    Args:
        folder: the folder of GLUE, with `SST-2/train.tsv`, `dev.tsv` and `test.tsv`.

    Raises:
        UserError: for a file that is missing or malformed.
    """
    train, dev = (
        read_table(Path(folder) / "SST-2" / name, "sentence", labels=BINARY) for name in ("train.tsv", "dev.tsv")
    )
    return Splits(train, {"en": dev}, _tests(folder, "SST-2", "sentence"), TextFormat("sentence", id="index"))


def mrpc(folder: str | Path) -> Splits:
    """MRPC: whether two sentences are paraphrases, "1", or not, "0".

    Args:
        folder: the folder of GLUE, with `MRPC/train.tsv`, `dev.tsv` and `test.tsv`; or with Microsoft's files
            `MRPC/msr_paraphrase_train.txt` and `msr_paraphrase_test.txt`, which is labeled, and GLUE's `dev_ids.tsv`,
            which lists the development examples.

    Raises:
        UserError: for a file that is missing or malformed.
    """
    folder = Path(folder)
    original = folder / "MRPC" / "msr_paraphrase_train.txt"
    if original.exists() and not (folder / "MRPC" / "train.tsv").exists():
        return _split_mrpc(original)
    train, dev = (_read_mrpc(folder / "MRPC" / name) for name in ("train.tsv", "dev.tsv"))
    return _paired(folder, "MRPC", train, dev, "#1 String", "#2 String")


def stsb(folder: str | Path) -> Splits:
    """STS-B: the semantic similarity of two sentences, a number from 0 to 5.

    Args:
        folder: the folder of GLUE, with `STS-B/train.tsv`, `dev.tsv` and `test.tsv`; or with the files of the original
            benchmark `STS-B/sts-train.csv`, `sts-dev.csv` and `sts-test.csv`, which is labeled.

    Raises:
        UserError: for a file that is missing or malformed, or a score that is not from 0 to 5.
    """
    folder = Path(folder)
    if (folder / "STS-B" / "sts-train.csv").exists() and not (folder / "STS-B" / "train.tsv").exists():
        train, dev, test = (_read_sts(folder / "STS-B" / f"sts-{name}.csv") for name in ("train", "dev", "test"))
        return Splits(train, {"en": dev}, {"en": test})
    train, dev = (_read_scores(folder / "STS-B" / name) for name in ("train.tsv", "dev.tsv"))
    return _paired(folder, "STS-B", train, dev, "sentence1", "sentence2")


def qqp(folder: str | Path) -> Splits:
    """QQP: whether two questions are duplicates, "1", or not, "0".

    Some rows of the official `train.tsv` lack columns. They are skipped, as is usual, with a warning that counts them.
    A question may be empty.

    Args:
        folder: the folder of GLUE, with `QQP/train.tsv`, `dev.tsv` and `test.tsv`.

    Raises:
        UserError: for a file that is missing or otherwise malformed.
    """
    train, dev = (
        read_table(
            Path(folder) / "QQP" / name, "question1", "question2", "is_duplicate", "id", labels=BINARY, skip_broken=True
        )
        for name in ("train.tsv", "dev.tsv")
    )
    return _paired(folder, "QQP", train, dev, "question1", "question2", "id")


def mnli(folder: str | Path) -> Splits:
    """MNLI: whether the first sentence entails the second, contradicts it, or neither.

    Args:
        folder: the folder of GLUE, with `MNLI/train.tsv`, `dev_matched.tsv`, `dev_mismatched.tsv` and so on.

    Returns:
        Parts "en", which is the matched one, of the same genres as the training data, and "mismatched". The test parts
        include "diagnostic" where its file is there; see `diagnostic`.

    Raises:
        UserError: for a file that is missing or malformed.
    """
    folder = Path(folder)
    train, matched, mismatched = (
        read_table(folder / "MNLI" / name, "sentence1", "sentence2", "gold_label", "index", labels=THREE_WAY)
        for name in ("train.tsv", "dev_matched.tsv", "dev_mismatched.tsv")
    )
    tests: dict[str, list[Labelled]] = {}
    for part, name in (("en", "test_matched.tsv"), ("mismatched", "test_mismatched.tsv")):
        tests |= _tests(folder, "MNLI", "sentence1", "sentence2", part=part, name=name)
    columns = TextFormat("sentence1", "sentence2", "index")
    return Splits(train, {"en": matched, "mismatched": mismatched}, tests | _diagnostic(folder), columns)


def diagnostic(folder: str | Path) -> Splits:
    """GLUE's diagnostic set, for models of MNLI; it has no training data.

    Args:
        folder: the folder of GLUE, with `diagnostic-full.tsv`, which has labels, or `diagnostic.tsv`, in its folder
            `diagnostic` or `MNLI`.

    Returns:
        The test part "diagnostic". Rows of the full file, which have no ids, are numbered from 0, which gives the ids
        of the other.

    Raises:
        UserError: for a file that is missing or malformed.
    """
    found = _diagnostic(Path(folder))
    if not found:
        raise UserError(f"{folder} has no diagnostic/diagnostic-full.tsv, and no diagnostic/diagnostic.tsv")
    return Splits([], {}, found)


def qnli(folder: str | Path) -> Splits:
    """QNLI: whether a sentence answers a question, "entailment" or "not_entailment".

    Args:
        folder: the folder of GLUE, with `QNLI/train.tsv`, `dev.tsv` and `test.tsv`.

    Raises:
        UserError: for a file that is missing or malformed.
    """
    return _pairs(folder, "QNLI", "question", "sentence", ENTAILMENT)


def rte(folder: str | Path) -> Splits:
    """RTE: whether the first text entails the second, "entailment" or "not_entailment".

    Args:
        folder: the folder of GLUE, with `RTE/train.tsv`, `dev.tsv` and `test.tsv`.

    Raises:
        UserError: for a file that is missing or malformed.
    """
    return _pairs(folder, "RTE", "sentence1", "sentence2", ENTAILMENT)


def wnli(folder: str | Path) -> Splits:
    """WNLI: whether the second sentence, which replaces a pronoun by a name, follows from the first, "1", or not, "0".

    Args:
        folder: the folder of GLUE, with `WNLI/train.tsv`, `dev.tsv` and `test.tsv`.

    Raises:
        UserError: for a file that is missing or malformed.
    """
    return _pairs(folder, "WNLI", "sentence1", "sentence2", BINARY)


def _pairs(folder, task, text, pair, labels):
    train, dev = (
        read_table(Path(folder) / task / name, text, pair, "label", "index", labels=labels)
        for name in ("train.tsv", "dev.tsv")
    )
    return _paired(folder, task, train, dev, text, pair)


def _paired(folder, task, train, dev, text, pair, id="index"):  # noqa: A002
    """A task of pairs, which names the columns of its files."""
    return Splits(train, {"en": dev}, _tests(folder, task, text, pair, id), TextFormat(text, pair, id))


def _tests(folder, task, text, pair=None, id="index", part="en", name="test.tsv"):  # noqa: A002
    """The test part, if its file is there."""
    path = Path(folder) / task / name
    return {part: read_table(path, text, pair, None, id)} if path.exists() else {}


def _diagnostic(folder):
    for name in ("diagnostic-full.tsv", "diagnostic.tsv"):
        for place in ("diagnostic", "MNLI"):
            path = folder / place / name
            if path.exists() and "full" in name:
                return {"diagnostic": read_table(path, "Premise", "Hypothesis", "Label", labels=THREE_WAY)}
            if path.exists():
                return {"diagnostic": read_table(path, "sentence1", "sentence2", None, "index")}
    return {}


def _read_cola(path):
    examples: list[Labelled] = []
    for number, cells in read_rows(path):
        if len(cells) != 4 or cells[1] not in BINARY:
            raise UserError(f"{path}, line {number} is not source<TAB>0 or 1<TAB>mark<TAB>sentence")
        examples.append(Labelled(str(len(examples)), cells[3], label=cells[1]))
    if not examples:
        raise UserError(f"{path} has no examples")
    return examples


def _read_mrpc(path):
    return read_table(path, "#1 String", "#2 String", "Quality", delimiter="\t", labels=BINARY)


def _split_mrpc(path):
    """Microsoft's training data, split by GLUE's ids of development examples, which are pairs of sentence ids."""
    dev_ids = {tuple(cells) for _, cells in read_rows(path.with_name("dev_ids.tsv"))}
    ids = [tuple(cells[1:3]) for _, cells in read_rows(path, "\t")][1:]
    parts: dict[bool, list[Labelled]] = {False: [], True: []}
    for example, name in zip(_read_mrpc(path), ids, strict=True):
        parts[name in dev_ids].append(example)
    if not parts[True]:
        raise UserError(f"{path.with_name('dev_ids.tsv')} names no example of {path.name}")
    test = path.with_name("msr_paraphrase_test.txt")
    tests = {"en": _read_mrpc(test)} if test.exists() else {}
    return Splits(parts[False], {"en": parts[True]}, tests, TextFormat("#1 String", "#2 String", delimiter="\t"))


def _read_scores(path):
    examples = read_table(path, "sentence1", "sentence2", "score", "index", numeric=True)
    for example in examples:
        _check_score(example.label, f"{path}, example {example.id}")
    return examples


def _read_sts(path):
    """The original has no header: genre, file, year, id, score, two sentences, at times their sources."""
    examples: list[Labelled] = []
    for number, cells in read_rows(path, "\t"):
        place = f"{path}, line {number}"
        try:
            score, text, pair = float(cells[4]), cells[5], cells[6]
        except (IndexError, ValueError):
            raise UserError(f"{place} has no score in its fifth column and two sentences after it") from None
        _check_score(score, place)
        examples.append(Labelled(str(len(examples)), text, pair, score))
    if not examples:
        raise UserError(f"{path} has no examples")
    return examples


def _check_score(score, place):
    if not 0 <= score <= HIGHEST_SCORE:
        raise UserError(f"{place}: score {score:g} is not from 0 to 5")
