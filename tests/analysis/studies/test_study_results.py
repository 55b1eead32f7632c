"""What a study's runs come to: its study.json, verdicts from scores alone, results that outlive the runs' folders."""

import json
import shutil
from pathlib import Path

import pytest

from rembed_keras.analysis.studies.definition import Hypothesis
from rembed_keras.analysis.studies.record import disagreements, read_record
from rembed_keras.analysis.studies.verdicts import derive
from tests.analysis.studies.two_arms import STUDY, record, started

H = {"name": "h", "arm": "a", "against": "b", "measure": "m", "expected": "higher", "smallest_effect": 1}
MALFORMED = {
    "format": 1,
    "arms": [],
    "measures": [],
    "runs": [],
    "scores": [],
    "hypotheses": [H | {"other": 1}],
    "verdicts": [],
    "alpha": 0.05,
}


def test_runs_whose_results_are_kept_are_not_run_again_on_another_machine(study, tmp_path):
    kept = STUDY + 'studies.Study.results = "kept"\n'
    (tmp_path / "own.gin").write_text(kept)
    assert study()[0] == 0 and len(started()) == 5
    first = record("kept")
    assert {path.name for path in Path("kept").iterdir()} == {"study.json", "study.md", "study.html", "study.png"}
    shutil.rmtree("study")
    code, shown, _ = study()
    assert code == 0 and started() == [] and "4 runs, 0 to do" in shown
    again = record("kept")
    assert {key: again[key] for key in first} == first
    assert study("SEEDS=(0, 1, 2)")[0] == 0 and started()[1:] == ["one-seed2", "wide-seed2"]
    again = record("kept")
    assert len(again["scores"]) == 18 and sum(len(row["by_language"]) for row in again["run_scores"]) == 18
    assert again["verdicts"][0]["seeds"] == 3
    Path("own.gin").write_text(kept + 'wide/studies.Arm.bindings = ["STEPS=7"]\n')
    shutil.rmtree("study")
    code, _, said = study()
    assert code == 2 and "arm wide was changed since its runs in kept/study.json" in said and started() == []


def test_a_kept_value_of_a_measure_that_is_defined_otherwise_now_does_not_count(study, tmp_path):
    kept = STUDY + 'studies.Study.results = "kept"\n'
    (tmp_path / "own.gin").write_text(kept)
    study()
    shutil.rmtree("study")
    Path("own.gin").write_text(kept + 'topics/studies.Score.without = ["en", "fr"]\n')
    code, _, said = study()
    assert code == 0
    assert "one-seed0 is not here, and what is kept of it has no value of measure topics as it is defined now\n" in said
    assert {row["measure"] for row in record("kept")["scores"]} == {"loss"}


def test_a_metric_that_is_misspelt_is_said_when_the_first_run_ends(study, tmp_path, monkeypatch):
    metric, key = 'topics/studies.Score.metric = "acuracy"\n', 'loss/studies.Logged.key = "los"\n'
    (tmp_path / "own.gin").write_text(STUDY + metric + key)
    monkeypatch.setenv("FAILS", "wide-seed1")
    code, _, said = study()
    lines = [line for line in said.splitlines() if "-seed" in line]
    assert code == 1 and lines[0].endswith("has no value of measure loss: there is no los; did you mean loss?")
    assert lines[1].endswith("wide-seed0 has no value of measure topics: there is no acuracy; did you mean accuracy?")
    assert len(lines) == 7 and "wide-seed1 failed" in lines[4]  # each once


def test_a_name_that_is_there_is_not_suggested_in_its_place(study, tmp_path):
    system, by_language = 'topics/studies.Score.system = "scratch"\n', "loss/studies.Logged.by_language = True\n"
    (tmp_path / "own.gin").write_text(STUDY + system + by_language)
    code, _, said = study("SEEDS=(0,)")
    lines = [line.partition(": ")[2] for line in said.splitlines() if line.startswith("warning: ")]
    assert code == 0 and len(lines) == 4 and not [line for line in lines if "did you mean" in line]
    assert lines[0].endswith("study/runs/wide-seed0 has no value of measure loss")


def test_where_runs_are_computed_and_watched_is_no_change_of_an_arm(study, tmp_path):
    (tmp_path / "own.gin").write_text(STUDY + 'studies.Study.results = "kept"\n')
    assert study()[0] == 0 and len(started()) == 5
    watched = "training.run.sinks=[@rembed_keras.training.sinks.MLflow()]"
    for bindings in (["STRATEGY=mirrored"], [watched, "rembed_keras.training.sinks.MLflow.experiment=a"]):
        code, _, said = study(*bindings)
        assert code == 0 and started() == [], said


DAMAGES = [
    (lambda found: [row.pop("seconds") for row in found["runs"]], "seconds of a row of its runs is missing"),
    (lambda found: found.update(runs=[1]), "name of a row of its runs is missing or of the wrong kind"),
    (lambda found: found["scores"][0].update(value=None), "value of a row of its scores is missing or of the"),
]


def test_a_damaged_study_json_is_named(study, command, tmp_path):
    assert study()[0] == 0
    whole = json.dumps(record())
    for damage, message in DAMAGES:
        found = json.loads(whole)
        damage(found)
        Path("study/study.json").write_text(json.dumps(found))
        for words in (["study", "own.gin"], ["inspect", "own.gin"], ["study", "--verify", "study/study.json"]):
            code, _, said = command(*words, cwd=tmp_path)
            shown = f"rembed: study/study.json is malformed: {message}"
            assert code == 2 and said == shown + said.partition(message)[2], message


def test_study_json_has_every_score_with_where_it_comes_from(study):
    study()
    found = record()
    rows = {
        (row["arm"], row["seed"], row["measure"], row["language"]): (row["value"], row["n"]) for row in found["scores"]
    }
    assert rows["wide", 1, "topics", "fr"] == (pytest.approx(0.71), 60)
    assert rows["one", 0, "loss", ""] == (4.7, 1)
    assert len(rows) == 2 * 2 * 3 and len(found["run_scores"]) == 2 * 2 * 2
    pretrained = next(row for row in found["run_scores"] if (row["arm"], row["system"]) == ("one", "pretrained"))
    assert pretrained["by_language"] == {"de": [0.5, 60], "fr": [0.6, 60]}
    again = read_record(Path("study/study.json"))["run_scores"]
    assert sorted(row["value"] for row in again if row["arm"] == "one") == [0.0, 0.0, 0.5, 0.5, 0.6, 0.6]
    run = next(run for run in found["runs"] if run["name"] == "one-seed1")
    assert (run["state"], run["environment"], run["failure"]) == ("finished", {"cpus": 2}, None) and run["seconds"] > 0
    assert "WORKDIR=study/runs/one-seed1" in run["command"]
    assert found["version"] and len(found["arms"][0]["checksum"]) == 64
    assert found["curves"][0]["points"] == [[1, 4.9], [2, 4.8], [3, 4.7]]


def test_verdicts_are_of_the_runs_scores(study):
    assert "wide is better: too close to call: with one seed nothing can be said; diff" in study("SEEDS=(0,)")[1]
    assert "wide is better: supported; difference 0.1033 over 3 pairs of seeds; 95%" in study("SEEDS=(0, 1, 2)")[1]
    (verdict,) = record()["verdicts"]
    assert verdict["difference"] == pytest.approx((0.1 + 0.11 + 0.1) / 3)
    assert (verdict["verdict"], verdict["seeds"], verdict["languages"]) == ("supported", 3, 2)
    text = Path("study/study.md").read_text()
    assert "| wide is better | wide higher than one on topics | supported |" in text
    assert "| wide |" in text and "0.66 ±0.01" in text


def test_verify_derives_verdicts_from_scores_alone(study, command, tmp_path):
    study()
    kept = record()
    code, shown, _ = command("study", "--verify", "study/study.json", cwd=tmp_path)
    assert code == 0 and "the verdicts follow from the scores" in shown
    for option in ("--list", "--jobs=2", "--cluster=local"):
        code, _, said = command("study", "--verify", "study/study.json", option, cwd=tmp_path)
        assert code == 2 and f"takes a study.json alone, not {option.partition('=')[0]}" in said
    for run in Path("study/runs").glob("*/scores.json"):
        run.unlink()
    assert command("study", "--verify", "study/study.json", cwd=tmp_path)[0] == 0
    kept["scores"] = [
        row | {"value": row["value"] + 0.01 * (row["language"] == "fr") * (row["arm"] == "one")}
        for row in kept["scores"]
    ]
    Path("study/study.json").write_text(json.dumps(kept))
    code, shown, _ = command("study", "--verify", "study/study.json", cwd=tmp_path)
    assert code == 1 and shown.startswith("wide is better: ")
    kept = record() | {"verdicts": []}
    Path("study/study.json").write_text(json.dumps(kept))
    assert "absent in study.json" in command("study", "--verify", "study/study.json", cwd=tmp_path)[1]


def twice(rows, **changes):
    """The rows, and before the first another of the same place with changes."""
    return [rows[0] | changes, *rows]


TWICE = [
    (
        lambda found: {"verdicts": twice(found["verdicts"], verdict="contradicted")},
        "wide is better: study.json has 2 verdicts on it\n",
    ),
    (
        lambda found: {"scores": twice(found["scores"])},
        "wide-seed0: study.json has 2 values of measure loss in no language\n",
    ),
    (
        lambda found: {"scores": twice(found["scores"][::-1])},
        "one-seed1: study.json has 2 values of measure topics in fr\n",
    ),
]


def test_verify_says_what_stands_twice(study, command, tmp_path):
    study()
    found = record()
    for change, said in TWICE:
        Path("study/study.json").write_text(json.dumps(found | change(found)))
        code, shown, _ = command("study", "--verify", "study/study.json", cwd=tmp_path)
        assert code == 1 and shown == said


OTHER_KINDS = [
    ("verdicts", {"difference": "0.1"}, "malformed: difference of a row of its verdicts is missing or of"),
    ("verdicts", {"adjusted_p": "x"}, "malformed: adjusted_p of a row of its verdicts is missing or of the wrong"),
    ("verdicts", {"p": []}, "malformed: p of a row of its verdicts is missing or of the wrong kind"),
    ("verdicts", {"other": 1}, "malformed: Verdict.__init__() got an unexpected keyword argument 'other'"),
    ("hypotheses", {"smallest_effect": "x"}, "malformed: smallest_effect of a row of its hypotheses is missing"),
]


def test_verify_refuses_values_of_other_kinds(study, command, tmp_path):
    study("SEEDS=(0, 1, 2)")
    whole = json.dumps(record())
    for place, change, message in OTHER_KINDS:
        found = json.loads(whole)
        found[place][0] |= change
        Path("study/study.json").write_text(json.dumps(found))
        code, _, said = command("study", "--verify", "study/study.json", cwd=tmp_path)
        assert code == 2 and said.startswith(f"rembed: study/study.json is {message}") and said.count("\n") == 1


def test_verify_refuses_a_level_that_no_test_has(study, command, tmp_path):
    study()
    for alpha in (0.0, 1e-300, 5.0):
        Path("study/study.json").write_text(json.dumps(record() | {"alpha": alpha}))
        code, _, said = command("study", "--verify", "study/study.json", cwd=tmp_path)
        assert code == 2 and said == f"rembed: study/study.json is malformed: its alpha is {alpha}\n"


def test_verify_names_the_value_that_differs_where_verdicts_read_alike(tmp_path):
    about = {"measure": "m", "task": "", "language": "", "n": 1}
    scores = [about | {"arm": arm, "seed": i, "value": 3.0 * (arm == "a") + i * i} for arm in "ab" for i in range(3)]
    scores[0]["value"] += 1
    verdict = derive([Hypothesis(**H)], scores)[0].to_json()
    stored = verdict | {"power": 0.25, "note": "another"}
    record = MALFORMED | {"hypotheses": [H], "scores": scores, "verdicts": [stored]}
    (tmp_path / "study.json").write_text(json.dumps(record))
    there, here = (f"power is {each['power']!r} and note is {each['note']!r}" for each in (stored, verdict))
    assert disagreements(tmp_path / "study.json") == [f"h: {there} in study.json, {here} from its scores"]


@pytest.mark.parametrize(
    "text",
    [
        *("{", "[]", "{}", json.dumps(MALFORMED), json.dumps(MALFORMED | {"scores": [3], "hypotheses": [H]})),
        json.dumps(MALFORMED | {"hypotheses": [H | {"expected": "sideways"}]}),
    ],
)
def test_verify_refuses_what_is_no_study_json(command, tmp_path, text):
    (tmp_path / "study.json").write_text(text)
    code, _, said = command("study", "--verify", "study.json", cwd=tmp_path)
    assert code == 2 and said.startswith("rembed: study.json ")
