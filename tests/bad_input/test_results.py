"""Results of runs that were truncated, edited by hand, or assembled from several."""

import json

from hypothesis import given
from hypothesis import strategies as st

from tests.bad_input.attempts import attempt, attempts
from tests.bad_input.mutations import mutated, mutated_json


def score(system, seed, value, **changes):
    row = {"task": "topics", "language": "en", "metric": "accuracy", "value": value, "seed": seed, "n": 4}
    return row | {"system": system} | changes


SCORES = [
    score("pretrained", 0, 0.75),
    score("pretrained", 1, None),
    score("pretrained", 0, 0.5, language="de"),
    score("pretrained", 1, 0.25, language="de"),
    score("majority", None, 0.5),
    score("majority", None, 0.5, language="de"),
]
LEDGER = {"kept": 1000, "dropped": 500, "total": 1500}
PREDICTIONS = b"".join(b'{"id": "%d", "answer": "x", "correct": %.1f}\n' % (i, i != 2) for i in range(4))
FILES = {
    "a/scores.json": json.dumps(SCORES).encode(),
    "a/ledger.json": json.dumps(LEDGER).encode(),
    "a/predictions/topics/pretrained-seed0.en.jsonl": PREDICTIONS,
    "b/scores.json": json.dumps(SCORES[:4]).encode(),
    "b/ledger.json": json.dumps(LEDGER).encode(),
}
LOG = [
    {"stage": "pretrain", "run": "pretrain", "step": step, "loss": 7.5 - step, "unigram_entropy": 7.25, "loss/de": 7.0}
    for step in (1, 2)
]
LOG += [
    {
        "run": "evaluation",
        "step": 2,
        "loss": 6.5,
        "masks": {"title": "Masks", "columns": ["a"], "rows": [["b"]], "words": 1},
    }
]
PARTS = {"encoder": {"parameters": 1000, "kept": True}, "head": {"parameters": 500, "kept": False}}
WHOLE = {
    "a/metrics.jsonl": b"".join(json.dumps(row).encode() + b"\n" for row in LOG),
    "a/ledger.json": json.dumps(LEDGER | {"parts": PARTS, "bytes": {"kept": 4, "dropped": 2, "total": 6}}).encode(),
    "a/environment.json": json.dumps({"python": "3.11", "versions": {"keras": "3.15"}}).encode(),
    "a/config.gin": b"STEPS = 2  # batches\n",
}
REPORT = ["report", "a", "--against", "b", "--languages"]


def test_the_results_without_faults():
    assert attempt([*REPORT, "--out", "out"], FILES)[0] == 0


@attempts(135)
@given(mutated_json(SCORES))
def test_scores_with_faults_in_them(scores):
    attempt(REPORT, FILES | {"a/scores.json": scores})


@attempts(30)
@given(mutated_json(LEDGER))
def test_a_ledger_with_faults_in_it(ledger):
    attempt(REPORT, FILES | {"a/ledger.json": ledger})


@attempts(50)
@given(mutated(PREDICTIONS))
def test_predictions_with_faults_in_them(answers):
    attempt(REPORT, FILES | {"a/predictions/topics/pretrained-seed0.en.jsonl": answers})


@attempts(30)
@given(
    st.lists(st.sampled_from(["a", "b", ".", "..", "/", "a/", "c", "", "x" * 300, "\udcff"]), max_size=3), st.booleans()
)
def test_folders_that_are_not_runs(runs, has_out):
    attempt(["report", *runs, *["--out", "a/scores.json"] * has_out], FILES | {"c": b""})


def test_the_page_without_faults():
    assert attempt(["report", "a", "--html", "out"], FILES | WHOLE)[0] == 0


def lines(content):
    """The rows of a list in JSON, one a line."""
    try:
        return b"".join(json.dumps(row).encode() + b"\n" for row in json.loads(content))
    except (ValueError, TypeError):
        return content


DAMAGED = {
    "a/metrics.jsonl": mutated_json(LOG).map(lines),
    "a/ledger.json": mutated_json(json.loads(WHOLE["a/ledger.json"])),
    "a/environment.json": mutated_json(json.loads(WHOLE["a/environment.json"])),
    "a/config.gin": mutated(WHOLE["a/config.gin"]),
}


@attempts(120)
@given(st.sampled_from([*DAMAGED]).flatmap(lambda name: st.tuples(st.just(name), DAMAGED[name])))
def test_a_page_of_files_with_faults_in_them(damaged):
    name, content = damaged
    attempt(["report", "a", "--html", "out"], FILES | WHOLE | {name: content})
