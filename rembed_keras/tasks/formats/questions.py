"""Questions that a span of their passage answers: SQuAD's JSON, and the rows that `datasets` makes of it."""

from pathlib import Path
from typing import Any

from rembed_keras.data.json_files import parse_json
from rembed_keras.data.text import read_exact_lines
from rembed_keras.errors import UserError
from rembed_keras.tasks.formats.lines import field, has_objects, identifier, place_of, read_objects
from rembed_keras.tasks.kinds.examples import Question


def read_questions(path: str | Path, unlabeled: bool = False) -> list[Question]:
    """Questions of a file: of JSON lines or Parquet as its ending says, else of SQuAD's format by `read_squad`.

    A row has `question`, `context` and `answers`, as `{"text": ["river"], "answer_start": [14]}` or as SQuAD has them,
    and perhaps `id`; else questions are numbered from 0.

    Args:
        path: the file.
        unlabeled: whether questions may have no answers.

    Raises:
        UserError: as `read_squad`, and for a row that lacks a column.
    """
    if not has_objects(path):
        return read_squad(path, unlabeled)
    needed = {"question", "context"} if unlabeled else {"question", "context", "answers"}
    questions: dict[str, Question] = {}
    for index, (number, row) in enumerate(read_objects(path, needed, ["id", "answers"])):
        place = place_of(path, number)
        name = str(index) if row.get("id") is None else identifier(row, "id", place)
        _check_new(name, questions, place)
        answers = {"answers": _as_in_squad(row.get("answers"), place)}
        questions[name] = _question(name, row | answers, field(row, "context", str, place), unlabeled, place)
    if not questions:
        raise UserError(f"{path} has no questions")
    return [*questions.values()]


def _as_in_squad(answers: Any, place: str) -> Any:
    """Answers as SQuAD has them, of a list of texts and one of their starts."""
    if answers is None:
        return []
    if not isinstance(answers, dict):
        return answers
    texts, starts = field(answers, "text", list, place), field(answers, "answer_start", list, place)
    if len(texts) != len(starts):
        raise UserError(f"{place} has {len(texts)} answers and {len(starts)} starts")
    return [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]


def _check_new(name, questions, place):
    if name in questions:
        raise UserError(f"{place}: an earlier question has the id {name!r} too")


def read_squad(path: str | Path, unlabeled: bool = False, prefix: str = "") -> list[Question]:
    """Questions of a file in the format of SQuAD 1.1: articles of paragraphs, each a context with questions.

    Args:
        path: the file.
        unlabeled: whether questions may have no answers, or empty ones, which are skipped.
        prefix: of the ids of the questions to read, such as "english-"; others are skipped.

    Raises:
        UserError: for a file that is not JSON, a missing value, an id that comes twice, no question, a question without
            an answer, or an answer that is not at its start in the context.
    """
    content = parse_json("".join(read_exact_lines(path, keep_ends=True)), path)
    questions: dict[str, Question] = {}
    for i, article in enumerate(field(content, "data", list, path), start=1):
        for j, paragraph in enumerate(field(article, "paragraphs", list, f"{path}, article {i}"), start=1):
            place = f"{path}, article {i}, paragraph {j}"
            context = field(paragraph, "context", str, place)
            for row in field(paragraph, "qas", list, place):
                name = identifier(row, "id", place)
                _check_new(name, questions, place)
                if name.startswith(prefix):
                    questions[name] = _question(name, row, context, unlabeled, f"{place}, question {name!r}")
    if not questions:
        raise UserError(f"{path} has no questions" + (f" whose id begins with {prefix!r}" if prefix else ""))
    return [*questions.values()]


def _question(name, row, context, unlabeled, place):
    answers, starts = [], []
    for answer in field(row, "answers", list, place) if "answers" in row else []:
        text, start = field(answer, "text", str, place), field(answer, "answer_start", int, place)
        if unlabeled and not text:
            continue
        if not text or start < 0 or not context.startswith(text, start):
            raise UserError(f"{place}: answer {text!r} is not at character {start} of its context")
        answers.append(text)
        starts.append(start)
    if not answers and not unlabeled:
        raise UserError(f"{place} has no answer: leave out questions that their passage does not answer")
    return Question(name, field(row, "question", str, place), context, tuple(answers), tuple(starts))
