import json
import resource

import pytest

from rembed_keras.analysis import environment
from rembed_keras.errors import UserError
from rembed_keras.training.distributed.processes import Processes, together
from rembed_keras.training.loop.workdir import MetricsLog, Workdir
from rembed_keras.training.sinks.sink import Sink
from rembed_keras.training.stages.run import RunRecord, in_passing, pretraining, run


def row(run, step, **values):
    return {"stage": run.split("/")[0], "run": run, "step": step} | values


def test_a_log_is_rewound_to_a_step_of_one_run(tmp_path):
    log = MetricsLog(tmp_path / "metrics.jsonl")
    rows = [row("pretrain", 1), row("pretrain", 2), row("finetune/a", 2), row("pretrain", 3)]
    for each in rows:
        log.append(each)
    with open(log.path, "a") as file:
        file.write('{"stage": "pretrain", "run": "pret')  # as a process that was killed leaves it
    assert log.rows() == rows
    assert log.rewind("pretrain", 1) == rows[:1]
    assert log.rows() == [rows[0], rows[2]]
    assert log.path.read_text().endswith("}\n")


@pytest.mark.parametrize("damaged", [b'{"stage": "pre', b"\xff", b'{"step": 2}', b"[]"])
def test_a_damaged_log_is_named_and_stays_as_it_is(damaged, tmp_path):
    log = MetricsLog(tmp_path / "metrics.jsonl")
    first, last = (json.dumps(row("pretrain", step)).encode() + b"\n" for step in (1, 3))
    log.path.write_bytes(first + damaged + b"\n" + last)
    with pytest.raises(UserError, match=r"metrics\.jsonl (is|has)"):
        log.rewind("pretrain", 2)
    assert log.path.read_bytes() == first + damaged + b"\n" + last


def test_numbers_come_back_to_the_bit(tmp_path):
    log = MetricsLog(tmp_path / "metrics.jsonl")
    value = 0.1 + 0.2
    log.append(row("pretrain", 1, loss=value))
    assert log.rows()[0]["loss"] == value


def test_curves_that_cannot_be_drawn_are_reported_with_their_place(tmp_path):
    workdir = Workdir(tmp_path)
    workdir.watch.begin("pretrain", [])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, hard))  # as on a disk that is full
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            workdir.watch.draw(row("pretrain", 1) | {f"value {number}": 1.0 for number in range(1000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        workdir.close()
    assert (caught.value.strerror, caught.value.filename) == ("File too large", str(tmp_path / "tensorboard/pretrain"))


def test_a_folder_is_held_by_one_process_at_a_time(tmp_path):
    held = Workdir(tmp_path / "run")
    with pytest.raises(UserError, match="is in use by another process"):
        Workdir(tmp_path / "run")
    held.close()
    Workdir(tmp_path / "run").close()


RECORD = RunRecord("STEPS = 3  # batches\nWORKDIR = 'a'\n", lambda: "operative", None)


def test_the_command_to_watch_a_run_can_be_typed(tmp_path, capsys):
    run([], str(tmp_path / "my run"), RECORD)
    assert capsys.readouterr().out.startswith(f"tensorboard --logdir '{tmp_path}/my run/tensorboard'\n")
    run([], str(tmp_path / "other"), RECORD, sinks=[Sink()])
    assert "tensorboard" not in capsys.readouterr().out


def test_a_run_keeps_a_record_and_is_done_once(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(environment, "commit", lambda: "of the run")
    done = []
    folder = str(tmp_path / "run")
    run([done.append], folder, RECORD)
    assert len(done) == 1
    about = json.loads((tmp_path / "run/environment.json").read_text())
    assert about["versions"].keys() >= {"rembed_keras", "keras"} and about["commit"] == "of the run"
    assert (tmp_path / "run/operative_config.gin").read_text() == "operative"
    assert capsys.readouterr().out.startswith(f"tensorboard --logdir {folder}/tensorboard\n")
    monkeypatch.setattr(environment, "commit", lambda: "another")
    run([done.append], folder, RECORD)
    assert len(done) == 1 and "is finished; nothing to do" in capsys.readouterr().out
    assert json.loads((tmp_path / "run/environment.json").read_text()) == about


def test_a_run_that_failed_goes_on_and_another_recipe_is_refused(tmp_path):
    def fail(workdir):
        (workdir.checkpoints / "step-00000001").mkdir(parents=True, exist_ok=True)
        raise OSError(28, "No space left on device", "checkpoints/x")

    folder = str(tmp_path / "run")
    with pytest.raises(UserError, match="checkpoints/x: No space left on device"):
        run([fail], folder, RECORD)
    with pytest.raises(UserError, match="is of another recipe: STEPS is 3 there and 4 here"):
        run([], folder, RunRecord("STEPS = 4  # batches\n", str, None))
    watched = "training.run.sinks = [@sinks.MLflow()]\nsinks.MLflow.experiment = 'a'\n"
    watched += "training.pretrain.profile_steps = 3\ntraining.prepare.processes = 2\n"
    watched += "more/training.pretrain.profile_steps = 5\nmore/training.pretrain.strategy = 'mirrored'\n"
    watched += "short/modeling.Encoder.dtype = 'mixed_bfloat16'\n"
    run([], folder, RunRecord(f"STEPS = 3  # other words\nWORKDIR = 'b'\n{watched}", str, None))
    assert (tmp_path / "run/finished.json").exists()


def test_an_edited_recipe_that_is_run_in_its_own_folder_is_another(tmp_path):
    run([lambda workdir: (workdir.checkpoints / "step-00000001").mkdir(parents=True)], str(tmp_path), RECORD, sinks=[])
    (tmp_path / "finished.json").unlink()
    edited = RECORD.config.replace("3", "5")
    (tmp_path / "config.gin").write_text(edited)
    with pytest.raises(UserError, match="is of another recipe: STEPS is 3 there and 5 here"):
        run([], str(tmp_path), RunRecord(edited, str, None), sinks=[])
    run([], str(tmp_path), RECORD, sinks=[])
    assert (tmp_path / "config.gin").read_text() == RECORD.config


def test_a_knob_that_says_where_a_run_is_watched_may_change(tmp_path):
    text = (
        "GROUP = {0}\nNAME = %GROUP\nsinks.MLflow.experiment = %NAME\nSIZE = {1}\nmodeling.Encoder.num_layers = %SIZE\n"
    )
    text += "training.prepare.processes = %SIZE\n"
    run(
        [lambda workdir: workdir.checkpoints.mkdir()],
        str(tmp_path),
        RunRecord(text.format("'a'", 1), str, None),
        sinks=[],
    )
    (tmp_path / "finished.json").unlink()
    (tmp_path / "checkpoints/step-00000001").mkdir()
    with pytest.raises(UserError, match="is of another recipe: SIZE is 1 there and 2 here"):
        run([], str(tmp_path), RunRecord(text.format("'a'", 2), str, None), sinks=[])
    run([], str(tmp_path), RunRecord(text.format("'b'", 1), str, None), sinks=[])


@pytest.mark.parametrize(
    ("name", "content"),
    [("config.gin", b"\xff"), ("stages.json", b'{"begun": 3}'), ("stages.json", b'{"done": [null]}')],
)
def test_a_record_that_is_damaged_is_named_before_a_stage_begins(name, content, tmp_path):
    begun: list[int] = []
    stages = [pretraining(lambda workdir, number=number: begun.append(number)) for number in range(2)]
    (tmp_path / "checkpoints/step-00000001").mkdir(parents=True)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=f"{name} is not .*: it is damaged, or of another version"):
        run(stages, str(tmp_path), RunRecord("", str))
    assert not begun


def test_a_mistake_may_be_mended_before_anything_is_learnt(tmp_path):
    def fail(workdir):
        raise UserError("the loss of pretrain is nan at step 5: lower the learning rate")

    folder = str(tmp_path / "run")
    with pytest.raises(UserError, match="lower the learning rate"):
        run([fail], folder, RunRecord("LEARNING_RATE = 1e9\n", str, None))
    run([], folder, RunRecord("LEARNING_RATE = 0.001\n", str, None))
    assert (tmp_path / "run/config.gin").read_text() == "LEARNING_RATE = 0.001\n"


def test_another_recipe_that_begins_from_step_0_is_another_run(tmp_path):
    """What a sink has of the attempt that failed is not taken for the numbers of the one after it."""

    class Named(Sink):
        def open(self, watched):
            names.append((watched.identity(), len(watched.rows())))

    def begin(text, learns=False):
        record = RunRecord(text, lambda: "")
        with pytest.raises(UserError, match="diverged"):
            run([lambda folder: fail(folder, learns)], str(tmp_path), record, sinks=[Named()])

    def fail(folder, learns):
        folder.metrics.append({"stage": "pretrain", "run": "pretrain", "step": 1, "loss": 2.0})
        if learns:
            (folder.checkpoints / "step-00000001").mkdir(parents=True)
        raise UserError("diverged")

    names = []
    begin("LEARNING_RATE = 1e30\n")
    begin('LEARNING_RATE = 1e30\nSTRATEGY = "mirrored"\n')
    begin("LEARNING_RATE = 0.1\nDTYPE = 'float32'\n", learns=True)
    begin("LEARNING_RATE = 0.1\nDTYPE = 'bfloat16'\n")
    (first, second, third, fourth), rows = zip(*names, strict=True)
    assert first == second != third == fourth
    assert rows == (0, 1, 0, 1)


LEFT = ("metrics.jsonl", "ledger.json", "initial_weights.json", "corpus.json", "operative_config.gin")


@pytest.mark.parametrize(("rate", "left"), [("1e9", LEFT), ("0.001", ())])
def test_a_mended_recipe_finds_nothing_of_the_one_before(rate, left, tmp_path):
    def fail(workdir):
        for name in LEFT:
            (workdir.path / name).write_text("")
        raise UserError("the loss of pretrain is nan at step 5: lower the learning rate")

    def find(workdir):
        found.extend(name for name in LEFT if (workdir.path / name).exists())

    found = []
    with pytest.raises(UserError, match="lower the learning rate"):
        run([fail], str(tmp_path), RunRecord("LEARNING_RATE = 1e9\nSTRATEGY = 'mirrored'\n", str, None))
    run([find], str(tmp_path), RunRecord(f"LEARNING_RATE = {rate}\nSTRATEGY = 'one_device'\n", str, None))
    assert (*found,) == left


def test_a_recipe_may_be_mended_where_folders_are_there_and_nothing_was_learnt(tmp_path):
    def fail(workdir):
        workdir.checkpoints.mkdir()
        for name in ("finetuned/topics/settings.json", "tensorboard/profile/trace"):
            (workdir.path / name).parent.mkdir(parents=True)
            (workdir.path / name).write_text("{}")
        raise UserError("no space is left")

    with pytest.raises(UserError, match="no space is left"):
        run([fail], str(tmp_path), RunRecord("BATCH_SIZE = 64\n", str, None), sinks=[])
    run([print], str(tmp_path), RunRecord("BATCH_SIZE = 32\n", str, None), sinks=[], chosen=[0])
    assert not (tmp_path / "finetuned").exists() and not (tmp_path / "tensorboard").exists()


@pytest.mark.parametrize("name", ["scores.json", "layers.json", "submission"])
def test_what_was_measured_is_of_one_recipe(name, tmp_path):
    def measure(workdir):
        (workdir.path / name).write_text("[]")

    run([measure], str(tmp_path), RunRecord("PRETRAINED = 'r1'\n", str, None), chosen=[0])
    with pytest.raises(UserError, match="is of another recipe: PRETRAINED is 'r1' there and 'r2' here"):
        run([measure], str(tmp_path), RunRecord("PRETRAINED = 'r2'\n", str, None))


def test_modules_that_one_name_stands_for_are_part_of_the_recipe(tmp_path):
    text = "from rembed_keras.training import sinks\nimport {} as parts\nmodeling.Encoder.attention = @parts.Own()\n"
    folder = str(tmp_path / "run")
    run([lambda workdir: workdir.checkpoints.mkdir()], folder, RunRecord(text.format("one"), str, None))
    with pytest.raises(UserError, match="is of another recipe: parts is one there and two here"):
        run([], folder, RunRecord(text.format("two"), str, None))
    watched = "import mine as sinks\ntraining.run.sinks = [@sinks.Own()]\n" + text.format("one").partition("\n")[2]
    run([], folder, RunRecord(watched, str, None))  # sinks alone say where it is watched


def test_in_passing_all_processes_work_in_the_folder_of_the_first(tmp_path, monkeypatch):
    said = {1: '{"result": true}', 2: '"of the first"'}  # by how deep a key is: of the chief, of an exchange
    second = Processes(1, 2, put=lambda key, text: None, get=lambda key: said[key.count("/")])
    monkeypatch.setattr("rembed_keras.training.stages.run.join", lambda strategy: second)
    folders = []
    stage = in_passing(together(lambda workdir: folders.append(workdir.path.name)))
    run([stage], str(tmp_path / "of the second"), RunRecord("", str))
    assert {*folders} == {"of the first"}


def test_a_stage_that_each_of_several_processes_would_train_alone_is_refused(tmp_path, monkeypatch):
    first, trained = Processes(0, 2, put=lambda key, text: None, get=lambda key: ""), []

    def finetune(workdir):
        trained.append(workdir)

    monkeypatch.setattr(
        "rembed_keras.training.stages.run.join", lambda strategy: first if strategy == "multi_worker" else Processes()
    )

    def train(own, asked):
        record = RunRecord("", str, strategies={0: ("training.finetune", own)})
        run([asked], str(tmp_path / str(len(trained))), record, strategy="multi_worker")

    train("one_device", finetune)  # the first alone does it
    train("multi_worker", together(finetune))
    with pytest.raises(UserError, match=r"finetune\.strategy is 'one_device', and 2 processes make this run"):
        train("one_device", together(finetune))
    assert len(trained) == 2
