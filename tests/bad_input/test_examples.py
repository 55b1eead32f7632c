"""Labelled files with faults: tables, JSON lines, CoNLL and SQuAD, read as a run reads them before its first stage."""

import contextlib
import json

from hypothesis import given
from hypothesis import strategies as st

from tests.bad_input.attempts import attempt, attempts
from tests.bad_input.mutations import mutated, mutated_json

RECIPE = """\
from __gin__ import dynamic_registration
from rembed_keras import tasks
from rembed_keras import training
TRAIN = "train"
TEST = "test"
training.run.stages = []
training.run.workdir = "run"
training.run.tasks = [@tasks.{kind}()]
tasks.{kind}.name = "mine"
tasks.{kind}.splits = @tasks.{source}()
tasks.{source}.train = %TRAIN
tasks.{source}.test = %TEST
"""
ROWS = [("save the file", "file"), ('open, if you can, the "table"', "table"), ("a\u2028b", "file"), ("x", "table")]
TSV = "text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in ROWS)
CSV = "id,text,label\n" + "".join(
    f'{i},"{text.replace(chr(34), chr(34) * 2)}",{label}\n' for i, (text, label) in enumerate(ROWS)
)
OBJECTS = [{"text": text, "label": label, "id": i} for i, (text, label) in enumerate(ROWS)]
JSONL = "".join(json.dumps(row) + "\n" for row in OBJECTS)
CONLL = "-DOCSTART- O\n\nOpen O\nKyiv B-LOC\n\n# O\nthe O\nNile B-LOC\nriver I-LOC\n"
CONLLU = "# text = Open it\n1-2\tOpenit\t_\t_\t_\t_\t_\t_\t_\t_\n" + "".join(
    f"{i}\t{word}\t_\t{tag}\t_\t_\t_\t_\t_\t_\n" for i, (word, tag) in enumerate([("Open", "VERB"), ("it", "PRON")], 1)
)
SQUAD = {
    "data": [
        {
            "title": "x",
            "paragraphs": [
                {
                    "context": "The Nile is a river. 😀 It is long.",
                    "qas": [
                        {"id": "1", "question": "What?", "answers": [{"text": "river", "answer_start": 14}]},
                        {"id": "2", "question": "How?", "answers": [{"text": "long", "answer_start": 29}]},
                    ],
                }
            ],
        }
    ]
}
# the file's ending, what is in it, the task's kind and its source
FORMATS = {
    "tsv": (TSV.encode(), "Classification", "labelled_files"),
    "csv": (CSV.encode(), "Classification", "labelled_files"),
    "jsonl": (JSONL.encode(), "Classification", "labelled_files"),
    "conll": (CONLL.encode(), "Tagging", "tagged_files"),
    "conllu": (CONLLU.encode(), "Tagging", "tagged_files"),
    "json": (json.dumps(SQUAD).encode(), "QuestionAnswering", "question_files"),
}


def read(ending, train, test=None):
    """Runs a recipe with no stages on a file, and on another of it as its test."""
    good, kind, source = FORMATS[ending]
    files = {"recipe.gin": RECIPE.replace("{kind}", kind).replace("{source}", source).encode()}
    files |= {f"train.{ending}": train, f"test.en.{ending}": good if test is None else test}
    return attempt(["run", "recipe.gin", f"TRAIN=train.{ending}", f"TEST=test.{{language}}.{ending}"], files)


def test_the_files_without_faults():
    for ending, (good, _, _) in FORMATS.items():
        assert read(ending, good)[0] == 0, ending


@attempts(265)
@given(st.data())
def test_files_with_faults_in_them(data):
    ending = data.draw(st.sampled_from(sorted(FORMATS)))
    spoilt = data.draw(mutated(FORMATS[ending][0]))
    read(ending, *(spoilt, None) if data.draw(st.booleans()) else (FORMATS[ending][0], spoilt))


@attempts(70)
@given(mutated_json(SQUAD))
def test_questions_with_wrong_values(squad):
    read("json", squad)


@attempts(70)
@given(mutated_json(OBJECTS))
def test_lines_with_wrong_values(rows):
    with contextlib.suppress(ValueError, TypeError, RecursionError):  # not a list any more: unchanged
        rows = b"".join(json.dumps(row).encode() + b"\n" for row in json.loads(rows))
    read("jsonl", rows)


PATHS = [
    "",
    ".",
    "/",
    "run",
    "x.tsv",
    "train.tsv",
    "x" * 300 + ".tsv",
    "{language}",
    "{language}.tsv",
    "[.tsv",
    "{",
    "train",
]
VALUES = [
    "None",
    "3",
    "[]",
    "{'en': 3}",
    "{'en': 'train.tsv'}",
    "{3: 'train.tsv'}",
    "[None]",
    "True",
    "@tasks.Tagging",
    "''",
]


@attempts(70)
@given(
    st.sampled_from(PATHS + VALUES),
    st.sampled_from(PATHS + VALUES),
    st.sampled_from(
        [
            "text",
            "pair",
            "label",
            "id",
            "delimiter",
            "numeric",
            "train_size",
            "name",
            "part",
            "train_language",
            "labels",
            "metrics",
        ]
    ),
    st.sampled_from(PATHS + VALUES),
)
def test_invalid_paths_and_settings(train, test, setting, value):
    owner = "Classification" if setting in ("name", "part", "train_language", "labels", "metrics") else "labelled_files"
    recipe = RECIPE.replace("%TRAIN", train if train in VALUES else repr(train))
    recipe = recipe.replace("%TEST", test if test in VALUES else repr(test))
    recipe = recipe.replace('TRAIN = "train"\nTEST = "test"\n', "").replace("{kind}", "Classification")
    recipe = recipe.replace("{source}", "labelled_files")
    value = value if value in VALUES else repr(value)
    recipe = recipe.replace('tasks.Classification.name = "mine"\n', "") if setting == "name" else recipe
    files = {
        "recipe.gin": f"{recipe}tasks.{owner}.{setting} = {value}\n".encode(),
        "train.tsv": TSV.encode(),
        "run": None,
    }
    attempt(["run", "recipe.gin"], files)
