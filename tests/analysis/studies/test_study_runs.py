"""The runs of a study: what is run and what never again, what fails, what is saved. Runs are stood in for by a script.

`tests/test_study_smoke.py` does the same with real runs.
"""

import json
import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from rembed_keras.analysis.studies import processes
from rembed_keras.analysis.studies.processes import Job, is_held
from rembed_keras.interruption import Stopped
from tests.two_arms import STUDY

RUN = """\
import json, os, pathlib, signal, sys, time
bound = dict(word.split("=", 1) for word in sys.argv[2:] if "=" in word)
folder, seed = pathlib.Path(bound["WORKDIR"]), int(bound["SEED"])
folder.mkdir(parents=True, exist_ok=True)
with open("started.txt", "a") as file:
    file.write(folder.name + "\\n")
if sys.argv[1] == "budget":
    (folder / "corpus").mkdir()
    (folder / "corpus/manifest.json").write_text("{}")
    sys.exit()
assert (folder / "corpus/manifest.json").exists()
if "OTHER" in os.environ:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit((folder / "saved").write_text("x") and 75))
    (folder / "ready").touch()
    time.sleep(60)
if folder.name == os.environ.get("FAILS"):
    print("a line")
    sys.exit("rembed: it failed")
value = 0.5 + 0.1 * folder.name.startswith("wide") + 0.01 * seed * (folder.name != "one-seed1")
about = {"task": "topics", "metric": "accuracy", "system": "pretrained", "seed": seed, "n": 60}
scores = [about | {"language": language, "value": value + gain} for language, gain in (("de", 0), ("fr", 0.1))]
scores.append(scores[0] | {"system": "untrained", "value": 0.0})
(folder / "scores.json").write_text(json.dumps(scores))
rows = [{"run": "pretrain", "stage": "pretrain", "step": step, "loss": 5.0 - step / 10} for step in range(1, 4)]
(folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\\n" for row in rows))
(folder / "environment.json").write_text('{"cpus": 2}')
(folder / "writing").write_text('{"seconds_of_last_process": 1.0}')
(folder / "writing").rename(folder / "finished.json")  # whole, as a run writes it: others read it at any time
"""

H = {"name": "h", "arm": "a", "against": "b", "measure": "m", "expected": "higher", "smallest_effect": 1}
MALFORMED = {"format": 1, "runs": [], "scores": [], "hypotheses": [H | {"other": 1}], "verdicts": [], "alpha": 0.05}


@pytest.fixture
def study(tmp_path, monkeypatch, command):
    """Runs `rembed study` here, with a script in place of every run."""
    (tmp_path / "own.gin").write_text(STUDY)
    (tmp_path / "run.py").write_text(RUN)
    words = property(lambda job: [sys.executable, str(tmp_path / "run.py"), *job.command])
    monkeypatch.setattr(Job, "words", words)
    monkeypatch.setattr(processes, "POLL", 0.01)
    return lambda *bindings: command("study", "own.gin", *bindings, cwd=tmp_path)


def started():
    """The names of what was started, and forgets them."""
    names = sorted(Path("started.txt").read_text().split()) if Path("started.txt").exists() else []
    Path("started.txt").unlink(missing_ok=True)
    return names


def record():
    return json.loads(Path("study/study.json").read_text())


def test_each_run_is_run_once_and_what_is_added_alone_later(study):
    code, shown, errors = study("--jobs", "3")
    assert code == 0, (shown, errors)
    corpus, *runs = started()
    assert runs == ["one-seed0", "one-seed1", "wide-seed0", "wide-seed1"] and len(corpus) == 12
    assert study()[0] == 0 and started() == []
    assert study("SEEDS=(0, 1, 5)")[0] == 0 and started() == ["one-seed5", "wide-seed5"]
    third = STUDY.replace("@one/studies.Arm()]", "@one/studies.Arm(), @more/studies.Arm()]")
    third += 'more/studies.Arm.name = "more"\nmore/studies.Arm.recipe = "recipes/quickstart.gin"\n'
    Path("own.gin").write_text(third)
    assert study()[0] == 0 and started() == ["more-seed0", "more-seed1"]


def test_runs_whose_results_are_kept_are_not_run_again_on_another_machine(study, tmp_path):
    kept = STUDY + 'studies.Study.results = "kept"\n'
    (tmp_path / "own.gin").write_text(kept)
    assert study()[0] == 0 and len(started()) == 5
    first = json.loads(Path("kept/study.json").read_text())
    assert {path.name for path in Path("kept").iterdir()} == {"study.json", "study.md", "study.html", "study.png"}
    shutil.rmtree("study")
    code, shown, _ = study()
    assert code == 0 and started() == [] and "4 runs, 0 to do" in shown
    again = json.loads(Path("kept/study.json").read_text())
    assert {key: again[key] for key in first} == first
    assert study("SEEDS=(0, 1, 2)")[0] == 0 and started()[1:] == ["one-seed2", "wide-seed2"]
    again = json.loads(Path("kept/study.json").read_text())
    assert len(again["scores"]) == len(again["run_scores"]) == 18 and again["verdicts"][0]["seeds"] == 3
    Path("own.gin").write_text(kept + 'wide/studies.Arm.bindings = ["STEPS=7"]\n')
    shutil.rmtree("study")
    code, _, said = study()
    assert code == 2 and "arm wide was changed since its runs in kept/study.json" in said and started() == []


def test_a_kept_value_of_a_measure_that_is_defined_otherwise_now_does_not_count(study, tmp_path):
    kept = STUDY + 'studies.Study.results = "kept"\n'
    (tmp_path / "own.gin").write_text(kept)
    study()
    shutil.rmtree("study")
    Path("own.gin").write_text(kept + 'found/studies.Score.without = ["fr"]\n')
    code, _, said = study()
    assert code == 0 and "has no value of measure found" in said
    assert {row["measure"] for row in json.loads(Path("kept/study.json").read_text())["scores"]} == {"loss"}


def test_study_json_has_every_score_with_where_it_comes_from(study):
    study()
    found = record()
    rows = {
        (row["arm"], row["seed"], row["measure"], row["language"]): (row["value"], row["n"]) for row in found["scores"]
    }
    assert rows["wide", 1, "topics", "fr"] == (pytest.approx(0.71), 60)
    assert rows["one", 0, "loss", ""] == (4.7, 1)
    assert len(rows) == 2 * 2 * 3 and len(found["run_scores"]) == 2 * 2 * 3
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


def test_a_failed_run_is_reported_and_the_others_go_on(study, monkeypatch):
    monkeypatch.setenv("FAILS", "one-seed0")
    code, _, said = study()
    assert code == 1 and "one-seed0 failed: rembed: it failed" in said
    assert started()[1:] == ["one-seed0", "one-seed1", "wide-seed0", "wide-seed1"]
    assert {run["name"]: run["failure"] for run in record()["runs"] if run["state"] == "failed"} == {
        "one-seed0": "rembed: it failed"
    }
    assert "* one-seed0 failed: rembed: it failed" in Path("study/study.md").read_text()
    monkeypatch.delenv("FAILS")
    assert study()[0] == 0 and started() == ["one-seed0"]
    assert {run["state"] for run in record()["runs"]} == {"finished"}


def test_a_corpus_that_fails_fails_its_runs_alone(study, monkeypatch, tmp_path):
    other = 'more/studies.Arm.name = "more"\nmore/studies.Arm.recipe = "recipes/quickstart.gin"\n'
    other += 'more/studies.Arm.bindings = ["VOCABULARY_SIZE=4000"]\n'
    text = STUDY.replace("@one/studies.Arm()]", "@one/studies.Arm(), @more/studies.Arm()]") + other
    (tmp_path / "own.gin").write_text(text)
    script = (tmp_path / "run.py").read_text()
    (tmp_path / "run.py").write_text(
        script.replace('"budget":', '"budget":\n    assert "VOCABULARY_SIZE" not in bound')
    )
    code, _, said = study()
    assert code == 1 and "failed: AssertionError" in said
    states = {run["name"]: (run["state"], run["failure"]) for run in record()["runs"]}
    assert states["more-seed1"] == ("failed", "its corpus failed: AssertionError")
    assert [name for name, (state, _) in states.items() if state == "finished"] == [
        "wide-seed0", "one-seed0", "wide-seed1", "one-seed1"
    ]  # fmt: skip


def test_runs_that_a_scheduler_ran_are_collected(study, tmp_path):
    code, _, _ = study("SEEDS=(0,)")
    before = (tmp_path / "study/study.png").read_bytes()
    for arm in ("wide", "one"):
        shutil.copytree(tmp_path / f"study/runs/{arm}-seed0", tmp_path / f"study/runs/{arm}-seed1")
    started()
    code, _, _ = study()
    assert code == 0 and started() == []
    assert len(record()["scores"]) == 12 and (tmp_path / "study/study.png").read_bytes() != before
    assert {run["seconds"] for run in record()["runs"] if run["seed"]} == {1.0}


def test_verify_derives_verdicts_from_scores_alone(study, command, tmp_path):
    study()
    kept = record()
    code, shown, _ = command("study", "--verify", "study/study.json", cwd=tmp_path)
    assert code == 0 and "the verdicts follow from the scores" in shown
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


@pytest.mark.parametrize(
    "text", ["{", "[]", "{}", json.dumps(MALFORMED), json.dumps(MALFORMED | {"scores": [3], "hypotheses": [H]})]
)
def test_verify_refuses_what_is_no_study_json(command, tmp_path, text):
    (tmp_path / "study.json").write_text(text)
    code, _, said = command("study", "--verify", "study.json", cwd=tmp_path)
    assert code == 2 and said.startswith("rembed: study.json ")


@pytest.fixture(params=[signal.SIGTERM, signal.SIGINT])
def number(request):
    """A signal that is not ignored, as a shell has its background jobs ignore SIGINT."""
    before = signal.signal(request.param, signal.SIG_DFL)
    yield request.param
    signal.signal(request.param, before)


def test_a_signal_is_passed_on_and_the_study_ends_with_75(study, monkeypatch, number):
    monkeypatch.setenv("OTHER", "1")

    def interrupt():
        while len([*Path("study/runs").glob("*/ready")]) < 2:
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    killer = threading.Thread(target=interrupt, daemon=True)
    killer.start()
    code, _, said = study("--jobs", "2")
    assert code == 75
    assert (
        said.splitlines()[-1]
        == f"rembed: stopped by {number.name}; what was running is saved; the same command resumes"
    )
    assert len([*Path("study/runs").glob("*/saved")]) == 2 and len(started()) == 3
    monkeypatch.delenv("OTHER")
    assert study("--jobs", "2")[0] == 0 and len(started()) == 4


def test_a_run_whose_folder_is_held_waits(tmp_path, monkeypatch):
    from rembed_keras.training.loop.workdir import Workdir

    folder = Workdir(tmp_path / "run")
    looks, ended = [], []

    def look(path):
        looks.append(is_held(path))
        if len(looks) == 3:
            folder.close()
        return looks[-1]

    monkeypatch.setattr(processes, "is_held", look)
    monkeypatch.setattr(processes, "POLL", 0.001)
    job = Job("one", ["--version"], tmp_path / "run", tmp_path / "log.txt")
    processes.run_jobs([job], 1, lambda job, code, _: ended.append((job.name, code)))
    assert ended == [("one", 0)] and looks == [True, True, True, False]
    assert job.last_line.startswith("rembed, version")


def test_two_studies_do_not_share_a_folder(study, tmp_path, command):
    import fcntl

    (tmp_path / "study").mkdir()
    with open(tmp_path / "study/.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code, _, said = study()
    assert code == 2 and "study study is in use by another process" in said and started() == []


def test_stopped_studies_are_to_be_started_again():
    assert issubclass(processes.AllStopped, Stopped) and processes.AllStopped(signal.SIGINT, "x").code == 75
