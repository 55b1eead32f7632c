import inspect
import json
from contextlib import closing

import pytest

from rembed_keras.errors import UserError
from rembed_keras.tasks import Classification
from rembed_keras.tasks.kinds.examples import Labelled, Splits
from rembed_keras.tasks.suites import glue, superglue
from rembed_keras.tasks.suites.submissions import GLUE_FILES, SUPERGLUE_FILES, write_glue, write_superglue
from rembed_keras.tasks.suites.xtreme_submissions import write_labels
from rembed_keras.training.loop.workdir import Workdir
from rembed_keras.training.stages.submit import submit

TWO = [Labelled("0", "a"), Labelled("7", "b")]


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    ("task", "part", "answers", "name", "text"),
    [
        ("cola", "en", ["1", "0"], "CoLA.tsv", "index\tprediction\n0\t1\n7\t0\n"),
        ("sst2", "en", ["1", "0"], "SST-2.tsv", "index\tprediction\n0\t1\n7\t0\n"),
        ("mnli", "en", ["neutral", "entailment"], "MNLI-m.tsv", "index\tprediction\n0\tneutral\n7\tentailment\n"),
        ("mnli", "mismatched", ["neutral"] * 2, "MNLI-mm.tsv", "index\tprediction\n0\tneutral\n7\tneutral\n"),
        (
            "mnli",
            "diagnostic",
            ["contradiction"] * 2,
            "AX.tsv",
            "index\tprediction\n0\tcontradiction\n7\tcontradiction\n",
        ),
        (
            "qnli",
            "en",
            ["entailment", "not_entailment"],
            "QNLI.tsv",
            "index\tprediction\n0\tentailment\n7\tnot_entailment\n",
        ),
        ("stsb", "en", [-0.25, 5.5], "STS-B.tsv", "index\tprediction\n0\t0.000\n7\t5.000\n"),
        ("stsb", "en", [2, 3.14159], "STS-B.tsv", "index\tprediction\n0\t2.000\n7\t3.142\n"),
    ],
)
def test_glue(task, part, answers, name, text, tmp_path):
    path = write_glue(tmp_path / "new" / "folder", task, TWO, answers, part)
    assert path.name == name
    assert path.read_bytes() == text.encode()


@pytest.mark.parametrize(
    ("task", "part", "answers", "name", "labels"),
    [
        ("boolq", "en", ["true", "false"], "BoolQ.jsonl", ["true", "false"]),
        ("cb", "en", ["neutral", "entailment"], "CB.jsonl", ["neutral", "entailment"]),
        ("rte", "en", ["entailment", "not_entailment"], "RTE.jsonl", ["entailment", "not_entailment"]),
        ("rte", "AX-b", ["entailment"] * 2, "AX-b.jsonl", ["entailment"] * 2),
        ("rte", "AX-g", ["entailment"] * 2, "AX-g.jsonl", ["entailment"] * 2),
        ("wic", "en", ["true", "false"], "WiC.jsonl", ["true", "false"]),
        ("wsc", "en", ["true", "false"], "WSC.jsonl", ["True", "False"]),
    ],
)
def test_superglue(task, part, answers, name, labels, tmp_path):
    path = write_superglue(tmp_path, task, TWO, answers, part)
    assert path.name == name
    assert rows(path) == [{"idx": 0, "label": labels[0]}, {"idx": 7, "label": labels[1]}]


def candidates(*names):
    """Candidates whose ids begin with that of their question."""
    return [Labelled(name, "t", "p", None, name.rpartition("-")[0], f"says {name}é") for name in names]


def test_choices_are_numbers_and_entities_are_texts(tmp_path):
    examples, answers = candidates("0-0", "0-1", "3-0", "3-1"), ["false", "true", "true", "false"]
    assert rows(write_superglue(tmp_path, "copa", examples, answers)) == [
        {"idx": 0, "label": 1},
        {"idx": 3, "label": 0},
    ]
    path = write_superglue(tmp_path, "record", examples, answers)
    assert path.name == "ReCoRD.jsonl"
    assert rows(path) == [{"idx": 0, "label": "says 0-1é"}, {"idx": 3, "label": "says 3-0é"}]


@pytest.mark.parametrize("task", ["copa", "record"])
def test_one_candidate_of_every_question_is_chosen(task, tmp_path):
    examples = candidates("0-0", "0-1", "3-0", "3-1")
    with pytest.raises(ValueError, match="question 3 has no candidate that is true"):
        write_superglue(tmp_path, task, examples, ["false", "true", "false", "false"])
    with pytest.raises(ValueError, match="question 0 has two candidates that are true"):
        write_superglue(tmp_path, task, examples, ["true", "true", "true", "false"])


def test_answers_of_multirc_are_nested_in_questions_in_passages(tmp_path):
    examples = candidates("5-11-40", "5-11-41", "5-12-42", "6-13-43")
    assert rows(write_superglue(tmp_path, "multirc", examples, ["true", "true", "false", "false"])) == [
        {
            "idx": 5,
            "passage": {
                "questions": [
                    {"idx": 11, "answers": [{"idx": 40, "label": 1}, {"idx": 41, "label": 1}]},
                    {"idx": 12, "answers": [{"idx": 42, "label": 0}]},
                ]
            },
        },
        {"idx": 6, "passage": {"questions": [{"idx": 13, "answers": [{"idx": 43, "label": 0}]}]}},
    ]


def test_invalid_predictions_are_refused(tmp_path):
    with pytest.raises(UserError, match="the submission has no task mnl; did you mean mnli"):
        write_glue(tmp_path, "mnl", TWO, ["neutral"] * 2)
    with pytest.raises(UserError, match="rte has no test AX, but en, AX-b, AX-g"):
        write_superglue(tmp_path, "rte", TWO, ["entailment"] * 2, "AX")
    with pytest.raises(ValueError, match="there are 1 answers for 2 examples"):
        write_glue(tmp_path, "cola", TWO, ["1"])
    with pytest.raises(ValueError, match="'positive' is none of 0, 1"):
        write_glue(tmp_path, "sst2", TWO, ["positive", "1"])
    with pytest.raises(ValueError, match="must be finite"):
        write_glue(tmp_path, "stsb", TWO, [1.0, float("nan")])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("task", "examples"),
    [
        ("boolq", [Labelled("a", "t")]),
        ("wsc", [Labelled("1.5", "t")]),
        ("copa", candidates("q-0")),
        ("record", candidates("q-0")),
        ("multirc", candidates("5-x-0")),
        ("multirc", candidates("5-0")),
    ],
)
def test_ids_that_are_not_those_of_superglue_are_named(task, examples, tmp_path):
    with pytest.raises(UserError, match=r"the id '[^']+' is none of SuperGLUE's, which are numbers"):
        write_superglue(tmp_path, task, examples, ["true"])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("write", "name", "part", "said"),
    [
        (write_glue, "cola2", "en", "the submission has no task cola2; did you mean cola"),
        (write_superglue, "boolq", "de", "boolq has no test de, but en"),
        (write_labels, "nli", "de", "'nli' is none of xnli, pawsx; did you mean xnli"),
    ],
)
def test_what_has_no_place_in_a_submission_is_refused_before_training(write, name, part, said, tmp_path):
    rows = [Labelled(str(i), "a text", label=label) for i, label in enumerate(("no", "yes"))]
    task = Classification(name, Splits(rows, {}, {part: rows}))
    with closing(Workdir(str(tmp_path))) as workdir:
        workdir.is_rehearsal = True
        with pytest.raises(UserError, match=said):
            submit(workdir, task, write)


@pytest.mark.parametrize(
    ("module", "files", "others"),
    [(glue, GLUE_FILES, {"diagnostic"}), (superglue, SUPERGLUE_FILES, {"ax_b", "ax_g"})],
)
def test_every_task_has_a_submission(module, files, others):
    own = {name for name, f in inspect.getmembers(module, inspect.isfunction) if f.__module__ == module.__name__}
    assert {task for task, _ in files} | others == {name for name in own if not name.startswith("_")}
    assert len({name for name, _ in files.values()}) == len(files)
