"""Submissions to XTREME: a folder per task, with a file of predictions per language.

Predictions are by line, in the order of the test file, and answers to questions by id. What XTREME's `evaluate.py`
would reject, or silently count as wrong, is refused. Source: google-research/xtreme, its README and
`mock_test_data/predictions`.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from rembed_keras.data.writing import write_atomically
from rembed_keras.errors import UserError, did_you_mean
from rembed_keras.tasks.kinds.examples import Labelled, Question, Tagged
from rembed_keras.tasks.retrieval.bitext import Bitext
from rembed_keras.tasks.suites.submissions import checked_by
from rembed_keras.tasks.suites.xtreme import LABELS, LANGUAGES, TAGS

QUESTIONS = ("xquad", "mlqa", "tydiqa")


@checked_by(lambda task, language: _path(".", task, language, LABELS), lambda task, language: LABELS[task])
def write_labels(
    folder: str | Path, task: str, examples: Sequence[Labelled], answers: Sequence[str], language: str
) -> Path:
    """Writes a file of XNLI or PAWS-X: one label per line.

    Args:
        folder: where to write; it is made if it is not there.
        task: "xnli" or "pawsx".
        examples: N examples, the test set of a language.
        answers: N labels.
        language: the language.

    Returns:
        The file, such as `xnli/test-de.tsv` in the folder.

    Raises:
        UserError: for another task, or a language that it does not have.
        ValueError: for another number of answers than of examples, or an answer that is no label of the task.
    """
    path = _path(folder, task, language, LABELS)
    _check_size(examples, answers)
    _check_known(answers, LABELS[task])
    return _write(path, _lines(answers))


@checked_by(lambda task, language: _path(".", task, language, TAGS), lambda task, language: TAGS[task])
def write_tags(
    folder: str | Path, task: str, examples: Sequence[Tagged], answers: Sequence[Sequence[str]], language: str
) -> Path:
    """Writes a file of UD-POS or PAN-X: one tag per line, and an empty line between sentences.

    Args:
        folder: where to write; it is made if it is not there.
        task: "udpos" or "panx".
        examples: N sentences, the test set of a language.
        answers: for each sentence one tag per word.
        language: the language.

    Returns:
        The file, such as `panx/test-de.tsv` in the folder.

    Raises:
        UserError: for another task, or a language that it does not have.
        ValueError: for another number of sentences, or of tags than of words, or a tag that the task does not have.
    """
    path = _path(folder, task, language, TAGS)
    _check_size(examples, answers)
    for sentence, tags in zip(examples, answers, strict=True):
        if len(sentence.words) != len(tags):
            raise ValueError(f"sentence {sentence.id} has {len(sentence.words)} words and {len(tags)} predicted tags")
        _check_known(tags, TAGS[task])
    return _write(path, "\n".join(_lines(tags) for tags in answers))


@checked_by(lambda task, language: _path(".", task, language, QUESTIONS))
def write_answers(
    folder: str | Path, task: str, examples: Sequence[Question], answers: Sequence[str], language: str
) -> Path:
    """Writes a file of XQuAD, MLQA or TyDiQA: one JSON object of answers by question id.

    Args:
        folder: where to write; it is made if it is not there.
        task: "xquad", "mlqa" or "tydiqa".
        examples: N questions, the test set of a language.
        answers: N answers; "" for none.
        language: the language.

    Returns:
        The file, such as `mlqa/test-de.json` in the folder.

    Raises:
        UserError: for another task, or a language that it does not have.
        ValueError: for another number of answers than of questions.
    """
    path = _path(folder, task, language, QUESTIONS)
    _check_size(examples, answers)
    by_id = {question.id: answer for question, answer in zip(examples, answers, strict=True)}
    return _write(path, json.dumps(by_id, indent=1) + "\n")


def write_bucc(folder: str | Path, pairs: Iterable[tuple[str, str]], language: str) -> Path:
    """Writes a file of BUCC: one pair of ids per line, the other language's first.

    Args:
        folder: where to write; it is made if it is not there.
        pairs: the mined pairs of a language, from `bucc_pairs`.
        language: the language other than English.

    Returns:
        The file, such as `bucc2018/test-de.tsv` in the folder.

    Raises:
        UserError: for a language that BUCC does not have.
    """
    path = _path(folder, "bucc2018", language, LANGUAGES)
    return _write(path, _lines(f"{other}\t{english}" for other, english in pairs))


def write_tatoeba(folder: str | Path, bitext: Bitext, rows: Sequence[int], language: str) -> Path:
    """Writes a file of Tatoeba: for every English sentence the row of its translation.

    Args:
        folder: where to write; it is made if it is not there.
        bitext: the N English sentences and M others of a language.
        rows: N rows of the others, from 0, from `tatoeba_rows`.
        language: the language other than English.

    Returns:
        The file, such as `tatoeba/test-de.tsv` in the folder.

    Raises:
        UserError: for a language that Tatoeba does not have.
        ValueError: for another number of rows than of sentences, or a row that is not from 0 to M - 1.
    """
    path = _path(folder, "tatoeba", language, LANGUAGES)
    _check_size(bitext.english, rows)
    _check_known(rows, range(len(bitext.others)))
    return _write(path, _lines(int(row) for row in rows))


def check_language(task: str, language: str) -> None:
    """Checks that XTREME has a language, before answers in it are sought.

    Raises:
        UserError: for another task, or a language that it does not have.
    """
    _path(".", task, language, LANGUAGES)


def missing_files(folder: str | Path, tasks: Iterable[str] = tuple(LANGUAGES)) -> list[str]:
    """Files that a submission still lacks: XTREME scores a task only if all of its languages are there.

    Args:
        folder: the submission.
        tasks: the tasks that it should have, names of `LANGUAGES`; all nine by default.

    >>> missing_files("nowhere", ["bucc2018"])
    ['bucc2018/test-de.tsv', 'bucc2018/test-fr.tsv', 'bucc2018/test-ru.tsv', 'bucc2018/test-zh.tsv']
    """
    wanted = [_name(task, language) for task in tasks for language in LANGUAGES[task]]
    return [name for name in wanted if not (Path(folder) / name).is_file()]


def _name(task, language):
    return f"{task}/test-{language}.{'json' if task in QUESTIONS else 'tsv'}"


def _path(folder, task, language, tasks):
    if task not in tasks:
        raise UserError(f"{task!r} is none of {', '.join(tasks)}{did_you_mean(task, tasks)}")
    if language not in LANGUAGES[task]:
        raise UserError(f"XTREME's {task} has no language {language!r}, but {' '.join(LANGUAGES[task])}")
    return Path(folder) / _name(task, language)


def _check_size(examples, answers):
    if len(examples) != len(answers):
        raise ValueError(f"there are {len(answers)} answers for {len(examples)} examples")


def _check_known(answers, known):
    strange = next((answer for answer in answers if answer not in known), None)
    if strange is not None:
        raise ValueError(f"{strange!r} is none of {', '.join(map(str, known[:20]))}")


def _lines(items):
    return "".join(f"{item}\n" for item in items)


def _write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text)
    return path
