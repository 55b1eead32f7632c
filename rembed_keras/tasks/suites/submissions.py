"""Submissions to GLUE and SuperGLUE: one file per test set, to be zipped together.

Sources: the FAQ of gluebenchmark.com and super.gluebenchmark.com, and the submission writers of nyu-mll/jiant.
"""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

from rembed_keras.data.writing import write_atomically
from rembed_keras.errors import UserError, did_you_mean
from rembed_keras.tasks.kinds.examples import Labelled
from rembed_keras.tasks.suites import glue, superglue

# by task and test part: the file's name and the label names
GLUE_FILES: dict[tuple[str, str], tuple[str, Sequence[str]]] = {
    ("cola", "en"): ("CoLA.tsv", glue.BINARY),
    ("sst2", "en"): ("SST-2.tsv", glue.BINARY),
    ("mrpc", "en"): ("MRPC.tsv", glue.BINARY),
    ("stsb", "en"): ("STS-B.tsv", ()),
    ("qqp", "en"): ("QQP.tsv", glue.BINARY),
    ("mnli", "en"): ("MNLI-m.tsv", glue.THREE_WAY),
    ("mnli", "mismatched"): ("MNLI-mm.tsv", glue.THREE_WAY),
    ("mnli", "diagnostic"): ("AX.tsv", glue.THREE_WAY),
    ("qnli", "en"): ("QNLI.tsv", glue.ENTAILMENT),
    ("rte", "en"): ("RTE.tsv", glue.ENTAILMENT),
    ("wnli", "en"): ("WNLI.tsv", glue.BINARY),
}
SUPERGLUE_FILES: dict[tuple[str, str], tuple[str, Sequence[str]]] = {
    ("boolq", "en"): ("BoolQ.jsonl", superglue.TRUTH),
    ("cb", "en"): ("CB.jsonl", superglue.THREE_WAY),
    ("copa", "en"): ("COPA.jsonl", superglue.TRUTH),
    ("multirc", "en"): ("MultiRC.jsonl", superglue.TRUTH),
    ("record", "en"): ("ReCoRD.jsonl", superglue.TRUTH),
    ("rte", "en"): ("RTE.jsonl", superglue.ENTAILMENT),
    ("rte", "AX-b"): ("AX-b.jsonl", superglue.ENTAILMENT),
    ("rte", "AX-g"): ("AX-g.jsonl", superglue.ENTAILMENT),
    ("wic", "en"): ("WiC.jsonl", superglue.TRUTH),
    ("wsc", "en"): ("WSC.jsonl", superglue.TRUTH),
}


def checked_by(
    check: Callable[[str, str], object], labels: Callable[[str, str], Sequence[str]] = lambda task, part: ()
) -> Callable:
    """Marks what writes answers with what refuses a task's name, or a part of its test, before anything is trained.

    Args:
        check: called with both.
        labels: of both gives what answers can be; nothing where they can be anything.
    """

    def marked(write: Callable) -> Callable:
        vars(write).update(check=check, labels=labels)
        return write

    return marked


@checked_by(lambda task, part: _file(GLUE_FILES, task, part), lambda task, part: GLUE_FILES[task, part][1])
def write_glue(
    folder: str | Path, task: str, examples: Sequence[Labelled], answers: Sequence[str | float], part: str = "en"
) -> Path:
    """Writes a file of a GLUE submission: one line per example, its index and the prediction.

    Args:
        folder: where to write; it is made if it is not there.
        task: "cola", "mnli" and so on: the name of the function in `rembed_keras.tasks.suites.glue`.
        examples: N examples, a test part of the task.
        answers: N labels; for "stsb" numbers, which are clipped to 0 to 5 and written with three decimals.
        part: the part, for MNLI also "mismatched" and "diagnostic".

    Returns:
        The file, such as `CoLA.tsv`, `MNLI-m.tsv`, `MNLI-mm.tsv` or `AX.tsv`.

    Raises:
        UserError: for an unknown task or part.
        ValueError: for another number of answers than of examples, or an answer that is no label of the task.
    """
    name, labels = _file(GLUE_FILES, task, part)
    _check(examples, answers, labels)
    if not labels:
        scores = [float(answer) for answer in answers]
        if not all(map(math.isfinite, scores)):
            raise ValueError("predicted scores must be finite")
        answers = [f"{min(max(score, 0.0), glue.HIGHEST_SCORE):.3f}" for score in scores]
    rows = [f"{example.id}\t{answer}" for example, answer in zip(examples, answers, strict=True)]
    return _write(folder, name, ["index\tprediction", *rows])


@checked_by(lambda task, part: _file(SUPERGLUE_FILES, task, part), lambda task, part: SUPERGLUE_FILES[task, part][1])
def write_superglue(
    folder: str | Path, task: str, examples: Sequence[Labelled], answers: Sequence[str], part: str = "en"
) -> Path:
    """Writes a file of a SuperGLUE submission: one line of JSON per example, per passage in MultiRC.

    Args:
        folder: where to write; it is made if it is not there.
        task: "boolq", "rte" and so on: the name of the function in `rembed_keras.tasks.suites.superglue`.
        examples: N examples, a test part of the task.
        answers: N labels. In COPA and ReCoRD exactly one candidate of every question is "true".
        part: the part, for RTE also "AX-b" and "AX-g".

    Returns:
        The file, such as `BoolQ.jsonl`.

    Raises:
        UserError: for an unknown task or part, or an id that is none of SuperGLUE's.
        ValueError: for another number of answers than of examples, an answer that is no label of the task, or a
            question of COPA or ReCoRD without exactly one "true".
    """
    name, labels = _file(SUPERGLUE_FILES, task, part)
    _check(examples, answers, labels)
    rows = SUPERGLUE_ROWS.get(task, _label_rows)(examples, answers)
    return _write(folder, name, [json.dumps(row) for row in rows])


def _label_rows(examples, answers):
    numbers = [_numbers(example.id, 1)[0] for example in examples]
    return [{"idx": number, "label": answer} for number, answer in zip(numbers, answers, strict=True)]


def _numbers(name, count):
    """The numbers that an id of SuperGLUE is made of."""
    parts = name.split("-")
    if len(parts) != count or not all(map(str.isdecimal, parts)):
        raise UserError(f"the id {name!r} is none of SuperGLUE's, which are numbers: read its own files")
    return [*map(int, parts)]


def _capitalized(examples, answers):
    return _label_rows(examples, [answer.capitalize() for answer in answers])


def _copa_rows(examples, answers):
    numbers = [_numbers(example.id, 2) for example in _chosen(examples, answers).values()]
    return [{"idx": group, "label": number} for group, number in numbers]


def _record_rows(examples, answers):
    chosen = [*_chosen(examples, answers).values()]
    return [{"idx": _numbers(example.id, 2)[0], "label": example.answer} for example in chosen]


def _multirc_rows(examples, answers):
    passages: dict[int, dict[int, list]] = {}
    for example, answer in zip(examples, answers, strict=True):
        passage, question, number = _numbers(example.id, 3)
        questions = passages.setdefault(passage, {})
        questions.setdefault(question, []).append({"idx": number, "label": int(answer == "true")})
    return [
        {
            "idx": passage,
            "passage": {"questions": [{"idx": number, "answers": each} for number, each in questions.items()]},
        }
        for passage, questions in passages.items()
    ]


def _chosen(examples, answers):
    """The candidate of each question that is predicted as true."""
    chosen: dict[str, Labelled | None] = dict.fromkeys(example.group for example in examples)
    for example, answer in zip(examples, answers, strict=True):
        if answer == "true":
            if chosen[example.group] is not None:
                raise ValueError(f"question {example.group} has two candidates that are true")
            chosen[example.group] = example
    missing = next((group for group, example in chosen.items() if example is None), None)
    if missing is not None:
        raise ValueError(f"question {missing} has no candidate that is true")
    return chosen


# rows of the tasks whose submissions are not plain labels
SUPERGLUE_ROWS = {"copa": _copa_rows, "multirc": _multirc_rows, "record": _record_rows, "wsc": _capitalized}


def _file(files, task, part):
    parts = {known: file for (name, known), file in files.items() if name == task}
    if not parts:
        raise UserError(f"the submission has no task {task}{did_you_mean(task, [name for name, _ in files])}")
    if part not in parts:
        raise UserError(f"{task} has no test {part}, but {', '.join(parts)}")
    return parts[part]


def _check(examples, answers, labels):
    if len(examples) != len(answers):
        raise ValueError(f"there are {len(answers)} answers for {len(examples)} examples")
    strange = next((answer for answer in answers if labels and answer not in labels), None)
    if strange is not None:
        raise ValueError(f"{strange!r} is none of {', '.join(labels)}")


def _write(folder, name, lines):
    path = Path(folder) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, "".join(f"{line}\n" for line in lines))
    return path
