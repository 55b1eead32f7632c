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
