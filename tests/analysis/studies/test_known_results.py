"""Runs that the results of a study keep, its own or another's: they are neither run again nor lost."""

import json
import shutil
from pathlib import Path

from tests.analysis.studies.two_arms import STUDY, record, started


def test_runs_that_another_study_keeps_are_not_run_again_under_another_name(study, tmp_path):
    own = STUDY + 'studies.Study.results = "kept"\n'
    (tmp_path / "own.gin").write_text(own)
    assert study()[0] == 0 and len(started()) == 5
    first = record("kept")
    shutil.rmtree("study")
    known = STUDY.replace('"wide"', '"broad"') + 'studies.Study.known_results = ["not there", "kept"]\n'
    Path("own.gin").write_text(known)
    code, shown, _ = study("SEEDS=(0, 1, 2)")
    assert code == 0 and started()[1:] == ["broad-seed2", "one-seed2"] and "6 runs, 2 to do" in shown
    found = record("study")
    assert [(row["name"], row["state"]) for row in found["runs"][:2]] == [
        ("broad-seed0", "finished"),
        ("one-seed0", "finished"),
    ]
    for key, seed in (("scores", "seed"), ("run_scores", "run_seed"), ("curves", "seed")):
        theirs = [row | {"arm": row["arm"].replace("wide", "broad")} for row in first[key]]
        assert theirs and all(row in found[key] for row in theirs), key
        assert len(found[key]) == len(theirs) * 3 // 2 and {row[seed] for row in found[key]} == {0, 1, 2}
    assert found["verdicts"][0]["seeds"] == 3
    changed = known + 'wide/studies.Arm.bindings = ["OUTPUT_EMBEDDING_DIM=256"]\n'
    Path("own.gin").write_text(changed)
    shutil.rmtree("study")
    assert study()[0] == 0 and started()[1:] == ["broad-seed0", "broad-seed1"]
    Path("own.gin").write_text(known + 'topics/studies.Score.without = ["en", "fr"]\n')
    shutil.rmtree("study")
    assert study()[0] == 0 and len(started()) == 5


def test_arms_that_are_the_same_share_what_another_study_keeps(study, tmp_path, monkeypatch):
    second = STUDY.replace("@one/studies.Arm()]", "@one/studies.Arm(), @again/studies.Arm()]")
    for knob in ("name", "recipe", "bindings"):
        line = next(line for line in STUDY.splitlines() if line.startswith(f"wide/studies.Arm.{knob}"))
        second += line.replace("wide/", "again/").replace('"wide"', '"again"') + "\n"
    (tmp_path / "own.gin").write_text(second + 'studies.Study.results = "kept"\n')
    monkeypatch.setenv("FAILS", "again-seed1")
    assert study()[0] == 1 and len(started()) == 7
    monkeypatch.delenv("FAILS")
    for text, count in ((STUDY, 4), (second, 6)):
        shutil.rmtree("study")
        Path("own.gin").write_text(text + 'studies.Study.known_results = ["kept"]\n')
        assert study()[0] == 0 and started() == []
        assert [row["state"] for row in record()["runs"]] == ["finished"] * count
        assert len(record()["scores"]) == 3 * count


CHANGES = [
    (["SEEDS=(0,)"], STUDY, "kept/study.json alone has run wide-seed1, which the study does not name any more"),
    ([], STUDY.replace('"one"', '"two"'), "kept/study.json alone has run one-seed0, which"),
    ([], STUDY.replace("@loss/studies.Logged(), ", "").replace('loss/studies.Logged.name = "loss"\n', ""),
     "kept/study.json alone has values of measure loss, which"),
]  # fmt: skip


def test_results_that_are_nowhere_else_are_not_lost(study, command, tmp_path):
    def inspected(*bindings):
        return command("inspect", "own.gin", *bindings, cwd=tmp_path)

    results = 'studies.Study.results = "kept"\n'
    (tmp_path / "own.gin").write_text(STUDY + results)
    assert study()[0] == 0
    for number, (bindings, new, message) in enumerate(CHANGES):
        before = Path("kept/study.json").read_text()
        Path("own.gin").write_text(new + results)
        shutil.rmtree("study")
        for asked in (study, inspected):
            code, _, said = asked(*bindings)
            assert code == 2 and message in said and Path("kept/study.json").read_text() == before
        started()
        known = f'studies.Study.results = "new{number}"\nstudies.Study.known_results = ["kept"]\n'
        Path("own.gin").write_text(new + known)
        assert study(*bindings)[0] == 0 and started() == [], message
        Path("own.gin").write_text(STUDY + results)
        assert study()[0] == 0 and started() == [], message
        assert record("kept")["scores"] == json.loads(before)["scores"]


def test_a_measure_that_comes_back_has_its_values_of_known_results(study, tmp_path):
    (tmp_path / "own.gin").write_text(STUDY + 'studies.Study.results = "kept"\n')
    study()
    shutil.rmtree("study")
    known = 'studies.Study.results = "new"\nstudies.Study.known_results = ["kept"]\n'
    Path("own.gin").write_text(STUDY.replace("@loss/studies.Logged(), ", "").replace("loss/", "# loss/") + known)
    assert study()[0] == 0 and {row["measure"] for row in record("new")["scores"]} == {"topics"}
    shutil.rmtree("study")
    Path("own.gin").write_text(STUDY + known)
    started()
    code, _, said = study()
    assert code == 0 and started() == [] and "has no value of measure" not in said

    def values(folder):
        return sorted(json.dumps(row) for row in record(folder)["scores"])

    assert values("new") == values("kept") and len(record("new")["curves"]) == len(record("kept")["curves"])


def test_what_is_no_study_json_of_another_study_is_refused(study, tmp_path):
    (tmp_path / "own.gin").write_text(STUDY + 'studies.Study.known_results = ["theirs"]\n')
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/study.json").write_text("[]")
    code, _, said = study()
    assert code == 2 and said.startswith("rembed: theirs/study.json ") and started() == []
