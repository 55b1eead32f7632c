"""SuperGLUE from the files of its official download, with a folder per task: `SuperGLUE/BoolQ/train.jsonl` etc.

Everything becomes texts and pairs with labels. Where a question has several candidate answers (COPA, MultiRC, ReCoRD),
each is an example of its own with the label "true" or "false", the question's id as `group` and its text as `answer`.
Test sets are unlabeled, and optional: they are read where their files are there. What is missing or malformed is a
`UserError` that names file and line. Source: Wang et al. 2019, "SuperGLUE", and the files of version 2.
"""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rembed_keras.errors import UserError
from rembed_keras.tasks.formats.lines import field, read_objects
from rembed_keras.tasks.kinds.examples import Labelled, Splits
from rembed_keras.tasks.suites.glue import ENTAILMENT, THREE_WAY

TRUTH = ("false", "true")
# test sets for models of RTE, and the keys of their texts
ENTAILMENT_TESTS = {"AX-b": ("sentence1", "sentence2"), "AX-g": ("premise", "hypothesis")}
# what COPA's two kinds of question ask, in the words of its authors
COPA_QUESTIONS = {"cause": "What was the cause of this?", "effect": "What happened as a result?"}
# ends of a sentence; after anything else in a passage of ReCoRD a full stop is added
SENTENCE_ENDS = (".", "!", "?", '"', "'")

Row = dict[str, Any]


def boolq(folder: str | Path) -> Splits:
    """BoolQ: a passage and a question that it answers with yes, "true", or no, "false".

    Args:
        folder: the folder of SuperGLUE, with `BoolQ/train.jsonl`, `val.jsonl` and `test.jsonl`, as for every task.

    Raises:
        UserError: for a file that is missing or malformed.
    """
    return _splits(folder, "BoolQ", lambda row, place: [_pair(row, place, "passage", "question", TRUTH)])


def cb(folder: str | Path) -> Splits:
    """CommitmentBank: whether the first text commits its author to the second ("entailment"), its negation, or neither.

    Args:
        folder: the folder of SuperGLUE.
    """
    return _splits(folder, "CB", lambda row, place: [_pair(row, place, "premise", "hypothesis", THREE_WAY)])


def copa(folder: str | Path) -> Splits:
    """COPA: which of two sentences is the cause, or the effect, of another.

    A text is the premise and the question, as in `COPA_QUESTIONS`; its pair is one of the two choices.

    Args:
        folder: the folder of SuperGLUE.
    """
    return _splits(folder, "COPA", _copa)


def multirc(folder: str | Path) -> Splits:
    """MultiRC: which of a question's candidate answers are right; all may be, or none.

    A text is the passage; its pair is the question and, after a space, one candidate answer.

    Args:
        folder: the folder of SuperGLUE.
    """
    return _splits(folder, "MultiRC", _multirc)


def record(folder: str | Path) -> Splits:
    """ReCoRD: which entity of a passage fills a cloze query.

    A text is the passage, followed by its highlights as sentences; its pair is the query with one of the passage's
    entities in the gap. A name that occurs more than once is one candidate. All right answers are among the candidates,
    so the answers of a query's "true" candidates are the references of exact match and F1.

    Args:
        folder: the folder of SuperGLUE.

    Raises:
        UserError: for a file that is missing or malformed, or a right answer that is not among the names.
    """
    return _splits(folder, "ReCoRD", _record)


def rte(folder: str | Path) -> Splits:
    """RTE: whether the first text entails the second, "entailment" or "not_entailment".

    Args:
        folder: the folder of SuperGLUE.

    Returns:
        The test parts include "AX-b" and "AX-g" where their files are there; see `ax_b` and `ax_g`.
    """
    splits = _splits(folder, "RTE", lambda row, place: [_pair(row, place, "premise", "hypothesis", ENTAILMENT)])
    tests = dict(splits.test)
    for name in ENTAILMENT_TESTS:
        if (Path(folder) / name).exists():
            tests[name] = _entailment_test(folder, name)
    return Splits(splits.train, splits.dev, tests)


def ax_b(folder: str | Path) -> Splits:
    """AX-b, SuperGLUE's broad-coverage diagnostic set for models of RTE: a labeled test part "AX-b", no training data.

    Args:
        folder: the folder of SuperGLUE, with `AX-b/AX-b.jsonl`.

    Raises:
        UserError: for a file that is missing or malformed.
    """
    return Splits([], {}, {"AX-b": _entailment_test(folder, "AX-b")})


def ax_g(folder: str | Path) -> Splits:
    """AX-g, Winogender, for models of RTE: a labeled test part "AX-g", no training data.

    Consecutive examples differ in the pronoun's gender alone, which `rembed_keras.tasks.metrics.gender_parity` needs.

    Args:
        folder: the folder of SuperGLUE, with `AX-g/AX-g.jsonl`.

    Raises:
        UserError: for a file that is missing or malformed.
    """
    return Splits([], {}, {"AX-g": _entailment_test(folder, "AX-g")})


def wic(folder: str | Path) -> Splits:
    """WiC: whether a word means the same in two sentences, "true", or not, "false".

    The word is marked by straight double quotes in both.

    Args:
        folder: the folder of SuperGLUE.

    Raises:
        UserError: for a file that is missing or malformed, or a word's offsets outside its sentence.
    """
    return _splits(folder, "WiC", _wic)


def wsc(folder: str | Path) -> Splits:
    """WSC: whether a pronoun refers to a noun, "true", or not, "false".

    There is one text, with asterisks around the noun and number signs around the pronoun: "*Mark* lied. #He# laughed."
    Some official nouns differ from the text in case or in a full stop: the same number of words is marked.

    Args:
        folder: the folder of SuperGLUE.

    Raises:
        UserError: for a file that is missing or malformed, or a word that is not in the text.

    Source of the marks: Raffel et al. 2020, the T5 paper's preprocessing.
    """
    return _splits(folder, "WSC", _wsc)


def _splits(folder, task, examples_of: Callable[[Row, str], Iterable[Labelled]]) -> Splits:
    folder = Path(folder) / task
    train, dev = (_read(folder / name, examples_of) for name in ("train.jsonl", "val.jsonl"))
    for path, examples in ((folder / "train.jsonl", train), (folder / "val.jsonl", dev)):
        unlabeled = next((example for example in examples if example.label is None), None)
        if unlabeled is not None:
            raise UserError(f"{path}, example {unlabeled.id} has no label")
    test = folder / "test.jsonl"
    return Splits(train, {"en": dev}, {"en": _read(test, examples_of)} if test.exists() else {})


def _read(path, examples_of):
    examples = [example for number, row in read_objects(path) for example in examples_of(row, f"{path}, line {number}")]
    if not examples:
        raise UserError(f"{path} has no examples")
    return examples


def _entailment_test(folder, name):
    text, pair = ENTAILMENT_TESTS[name]
    path = Path(folder) / name / f"{name}.jsonl"
    return _read(path, lambda row, place: [_pair(row, place, text, pair, ENTAILMENT)])


def _pair(row, place, text, pair, labels):
    return Labelled(
        _name(row, place), field(row, text, str, place), field(row, pair, str, place), _label(row, place, labels)
    )


def _name(row, place):
    name = row.get("idx")
    return name if isinstance(name, str) else str(field(row, "idx", int, place))


def _label(row, place, labels=TRUTH):
    """A label as submissions have it; JSON's true and 1 are "true"."""
    label = row.get("label")
    if label is None:
        return None
    if labels is TRUTH and isinstance(label, int) and label in (0, 1):
        return TRUTH[label]
    if label not in labels:
        raise UserError(f"{place}: label is {label!r}, none of {', '.join(labels)}")
    return label


def _copa(row, place):
    question = field(row, "question", str, place)
    if question not in COPA_QUESTIONS:
        raise UserError(f"{place}: question is {question!r}, neither cause nor effect")
    text, name = f"{field(row, 'premise', str, place)} {COPA_QUESTIONS[question]}", _name(row, place)
    second = _label(row, place)  # whether the second choice is the right one
    for number, truth in enumerate(TRUTH):
        choice = field(row, f"choice{number + 1}", str, place)
        label = None if second is None else TRUTH[second == truth]
        yield Labelled(f"{name}-{number}", text, choice, label, group=name, answer=choice)


def _multirc(row, place):
    passage, name = field(row, "passage", dict, place), _name(row, place)
    text = field(passage, "text", str, place)
    for question in field(passage, "questions", list, place):
        asked, group = field(question, "question", str, place), f"{name}-{_name(question, place)}"
        for answer in field(question, "answers", list, place):
            candidate = field(answer, "text", str, place)
            label = _label(answer, place)
            yield Labelled(f"{group}-{_name(answer, place)}", text, f"{asked} {candidate}", label, group, candidate)


def _record(row, place):
    passage = field(row, "passage", dict, place)
    text = field(passage, "text", str, place)
    names: dict[str, None] = {}  # each once, in the order of the text
    for entity in field(passage, "entities", list, place):
        start, last = field(entity, "start", int, place), field(entity, "end", int, place)
        if not 0 <= start <= last < len(text):
            raise UserError(f"{place}: characters {start} to {last} are not in the passage")
        names[text[start : last + 1]] = None
    text = _without_highlights(text)
    for query in field(row, "qas", list, place):
        asked, group = field(query, "query", str, place), _name(query, place)
        if "@placeholder" not in asked:
            raise UserError(f"{place}, query {group} has no @placeholder")
        right = None
        if query.get("answers"):
            right = {field(answer, "text", str, place) for answer in field(query, "answers", list, place)}
            if not right <= names.keys():
                raise UserError(f"{place}, query {group} has a right answer that is not among the names")
        for number, name in enumerate(names):
            label = None if right is None else TRUTH[name in right]
            yield Labelled(f"{group}-{number}", text, asked.replace("@placeholder", name), label, group, name)


def _without_highlights(passage):
    parts = [part.strip() for part in passage.split("@highlight")]
    return " ".join(part if part.endswith(SENTENCE_ENDS) else f"{part}." for part in parts if part)


def _wic(row, place):
    marked = []
    for number in (1, 2):
        sentence = field(row, f"sentence{number}", str, place)
        start, end = field(row, f"start{number}", int, place), field(row, f"end{number}", int, place)
        if not 0 <= start < end <= len(sentence):
            raise UserError(f"{place}: characters {start} to {end} are not a word of sentence{number}")
        marked.append(_marked(sentence, [(start, end, '"')]))
    yield Labelled(_name(row, place), marked[0], marked[1], _label(row, place))


def _wsc(row, place):
    text, target = field(row, "text", str, place), field(row, "target", dict, place)
    spans = []
    for number, mark in ((1, "*"), (2, "#")):
        words = field(target, f"span{number}_text", str, place)
        spans.append((*_span(text, words, field(target, f"span{number}_index", int, place), place), mark))
    yield Labelled(_name(row, place), _marked(text, spans), label=_label(row, place))


def _span(text, words, index, place):
    """Character offsets of words in a text, the first of which is the index-th by whitespace."""
    found = [match.span() for match in re.finditer(r"\S+", text)]
    if not 0 <= index < len(found) or not words.strip():
        raise UserError(f"{place}: {words!r} is not at word {index} of the text")
    start, end = found[index][0], found[min(index + len(words.split()), len(found)) - 1][1]
    inside = text[start:end].lower().find(words.lower())
    if inside >= 0:
        return start + inside, start + inside + len(words)
    return start, start + len(text[start:end].rstrip(".,;:!?"))


def _marked(text, spans):
    """A text with a mark before and after each span."""
    opening = [(start, 1, -end, mark) for start, end, mark in spans]
    closing = [(end, 0, -start, mark) for start, end, mark in spans]
    for place, _, _, mark in sorted(opening + closing, reverse=True):  # from the end, outer marks last
        text = f"{text[:place]}{mark}{text[place:]}"
    return text
