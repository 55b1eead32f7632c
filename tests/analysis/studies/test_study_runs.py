"""The runs of a study: what is run and what never again, what fails, what is saved. Runs are stood in for by a script.

`tests/recipes/test_study_smoke.py` does the same with real runs.
"""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from rembed_keras.analysis import environment
from rembed_keras.analysis.studies import processes
from rembed_keras.analysis.studies.processes import Job, is_held
from rembed_keras.interruption import Stopped
from rembed_keras.training.loop.workdir import Workdir
from tests.analysis.studies.two_arms import STUDY, record, started


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


def test_inspect_says_what_study_json_does(study, monkeypatch, command, tmp_path):
    monkeypatch.setenv("FAILS", "one-seed0")
    study("SEEDS=(0,)")
    code, shown, _ = command("inspect", "own.gin", "SEEDS=(0,)", "--json", cwd=tmp_path)
    runs = json.loads(shown)["runs"]
    assert code == 0 and runs == record()["runs"] and [run["state"] for run in runs] == ["finished", "failed"]
    assert runs[1]["failure"] == "rembed: it failed" and all(run["seconds"] > 0 for run in runs)
    Path("study/runs/wide-seed0/scores.json").write_text("[{}]")
    code, _, said = command("inspect", "own.gin", "SEEDS=(0,)", "--json", cwd=tmp_path)
    assert code == 2 and said.startswith("rembed: study/runs/wide-seed0/scores.json is malformed: task of a row is")


def test_a_killed_run_is_not_blamed_on_what_it_said_last(study, tmp_path):
    script = (tmp_path / "run.py").read_text()
    killed = 'print("step 20", flush=True)\nif folder.name == "one-seed0":\n    os.kill(os.getpid(), 9)\nvalue ='
    (tmp_path / "run.py").write_text(script.replace("\nvalue =", f"\n{killed}"))
    code, _, said = study()
    assert code == 1 and "one-seed0 failed: killed by SIGKILL, as when memory runs out" in said
    failures = {run["failure"] for run in record()["runs"] if run["state"] == "failed"}
    assert failures == {"killed by SIGKILL, as when memory runs out"}


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


def test_a_corpus_that_fails_is_said_of_its_runs_where_there_are_no_others(study, tmp_path):
    (tmp_path / "run.py").write_text("raise SystemExit('rembed: there is no text')")
    code, _, said = study("SEEDS=(0,)")
    assert code == 1 and "failed: rembed: there is no text" in said
    failure = "its corpus failed: rembed: there is no text"
    assert [(run["state"], run["failure"]) for run in record()["runs"]] == [("failed", failure)] * 2
    assert f"* wide-seed0 failed: {failure}" in (tmp_path / "study/study.md").read_text()


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


def test_seconds_are_those_of_the_run_that_is_there(study, monkeypatch, tmp_path):
    monkeypatch.setenv("FAILS", "one-seed0")
    study("SEEDS=(0,)")
    monkeypatch.delenv("FAILS")
    for name in ("scores.json", "metrics.jsonl", "finished.json"):  # a scheduler runs the one that failed here
        shutil.copy(tmp_path / "study/runs/wide-seed0" / name, tmp_path / "study/runs/one-seed0")
    study("SEEDS=(0,)")
    assert record()["runs"][1]["seconds"] >= 1.0
    before = record()
    before["runs"][0]["seconds"] = 3600.0
    (tmp_path / "study/study.json").write_text(json.dumps(before))
    shutil.rmtree(tmp_path / "study/runs/wide-seed0")
    study("SEEDS=(0,)")
    assert record()["runs"][0]["state"] == "finished" and record()["runs"][0]["seconds"] < 3600


def test_figures_follow_hypotheses_that_were_changed_after_all_runs(study, tmp_path):
    study()
    figure = tmp_path / "study/study.png"
    before = figure.stat().st_mtime_ns, figure.read_bytes()
    study()
    assert (figure.stat().st_mtime_ns, figure.read_bytes()) == before  # nothing to draw again
    code, _, _ = study("h/studies.Hypothesis.expected='lower'")
    assert code == 0 and record()["verdicts"][0]["verdict"] == "contradicted"
    assert figure.read_bytes() != before[1]


def test_figures_that_could_not_be_drawn_are_drawn_the_next_time(study, tmp_path, monkeypatch):
    study("SEEDS=(0,)")
    figure = tmp_path / "study/study.png"
    before = figure.read_bytes()

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for name in ("figure.draw_study", "hparams.write_trials"):  # a kill is as good
        with monkeypatch.context() as disk:
            disk.setattr(f"rembed_keras.analysis.studies.results.{name}", full)
            assert study()[0] != 0 and len(record()["scores"]) == 12
    started()
    assert study()[0] == 0 and started() == [] and figure.read_bytes() != before
    assert {path.name for path in (tmp_path / "study/tensorboard").iterdir()} >= {"one-seed1", "wide-seed1"}


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
    assert {(run["state"], run["failure"]) for run in record()["runs"]} == {("missing", None)}
    monkeypatch.delenv("OTHER")
    code, _, said = study("--jobs", "2")
    assert code == 0 and len(started()) == 4, said


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


@pytest.mark.parametrize(
    ("at_once", "set_before", "threads"), [(1, None, None), (2, None, "4"), (9, None, "1"), (2, "3", "3")]
)
def test_processes_share_the_cores(tmp_path, monkeypatch, at_once, set_before, threads):
    for name in processes.THREADS:
        monkeypatch.delenv(name, raising=False)
    if set_before:
        monkeypatch.setenv(processes.THREADS[0], set_before)
    monkeypatch.setattr(processes, "cpu_count", lambda: 8)
    told = "import os; print(os.environ.get('TF_NUM_INTRAOP_THREADS'))"
    monkeypatch.setattr(processes.Job, "words", [sys.executable, "-c", told])
    job = processes.Job("one", [], tmp_path / "run", tmp_path / "log.txt")
    processes.start_here(job, at_once).wait()
    assert job.last_line == str(threads)


def test_two_studies_do_not_share_a_folder(study, tmp_path, command):
    import fcntl

    (tmp_path / "study").mkdir()
    with open(tmp_path / "study/.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code, _, said = study()
    assert code == 2 and "study study is in use by another process" in said and started() == []


def test_stopped_studies_are_to_be_started_again():
    assert issubclass(processes.AllStopped, Stopped) and processes.AllStopped(signal.SIGINT, "x").code == 75


def test_each_run_keeps_the_commit_that_made_it(study, tmp_path):
    (tmp_path / "own.gin").write_text(STUDY + 'studies.Study.results = "kept"\n')
    study()
    assert "Runs by commit" not in Path("kept/study.md").read_text()  # none is known
    for name in ("wide-seed0", "wide-seed1", "one-seed0"):
        Path(f"study/runs/{name}/environment.json").write_text(json.dumps({"commit": f"of {name[:3]}"}))
    for _ in ("folders that are there", "that are gone"):
        assert study()[0] == 0
        found = {run["name"]: run["environment"].get("commit") for run in record("kept")["runs"]}
        assert found == {"wide-seed0": "of wid", "wide-seed1": "of wid", "one-seed0": "of one", "one-seed1": None}
        text, page = (Path(f"kept/study.{kind}").read_text() for kind in ("md", "html"))
        for line in ("commit of wid: wide-seed0, wide-seed1", "commit of one: one-seed0", "commit unknown: one-seed1"):
            assert f"* {line}\n" in text and f"<li>{line}</li>" in page
        shutil.rmtree("study/runs", ignore_errors=True)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_commit_of_a_repository_that_the_package_is_installed_in_is_not_its_own(tmp_path, monkeypatch):
    own, installed = tmp_path / "own.py", tmp_path / ".venv/environment.py"
    installed.parent.mkdir()
    for path in (own, installed):
        path.touch()
    git = ["git", "-C", str(tmp_path), "-c", "user.name=one", "-c", "user.email=one@here"]
    for command in (["init"], ["add", "own.py"], ["commit", "-m", "own"]):
        subprocess.run([*git, *command], check=True, capture_output=True)
    found = []
    for path in (own, installed):
        monkeypatch.setattr(environment, "__file__", str(path))
        found.append(environment.commit())
    assert len(found[0]) == 40 and found[1] is None


def test_commands_that_are_shown_can_be_typed(study, command, tmp_path):
    folder = tmp_path / "my study"
    shown = study(f"WORKDIR={folder}", "SEEDS=(0,)")[1]
    assert shown.splitlines()[-1] == f"tensorboard --logdir '{folder}'"
    code, shown, _ = command("solve", "--kept", "9M", "--vocabulary", "900", "--out", "my own.gin", cwd=tmp_path)
    assert code == 0 and shown.splitlines()[-1].endswith("see rembed inspect 'my own.gin'")


def test_an_arm_that_was_changed_has_another_corpus_unless_it_has_learnt_of_that(study, tmp_path):
    link = tmp_path / "study/runs/one-seed0/corpus"
    found = []
    for knobs in ([], ["VOCABULARY_SIZE=4000"], []):
        assert study("--list", "SEEDS=(0,)", *knobs)[0] == 0
        found.append(link.readlink())
        if knobs:
            (link.parent / "checkpoints/step-00000001").mkdir(parents=True)
    assert found[0] != found[1] == found[2]
    other = tmp_path / "study/runs/wide-seed0"
    before = (other / "corpus").readlink()
    with Workdir(other):  # as a run of a study that was killed has it
        assert study("--list", "SEEDS=(0,)", "VOCABULARY_SIZE=3000")[0] == 0 and (other / "corpus").readlink() == before


def test_runs_that_a_link_has_elsewhere_find_their_corpus(study, tmp_path):
    (tmp_path / "large/disk").mkdir(parents=True)
    (tmp_path / "study").mkdir()
    (tmp_path / "study/runs").symlink_to(tmp_path / "large/disk")
    code, _, said = study("SEEDS=(0,)")
    assert code == 0, said
