"""A package outside ours with a part for each extension point: run, killed, resumed, counted, its models read back."""

import ast
import json
import math
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from rembed_keras.training.loop import checkpoints, restoring
from rembed_keras.training.loop.workdir import MEASURED
from tests.conftest import write_tiny_task
from tests.interruptions import forks
from tests.interruptions.forks import ROOT, command, copy_as_killed, finish, import_once, run_module, start, stop

pytestmark = pytest.mark.slow
PACKAGE = ROOT / "examples" / "own_parts"
RECIPE = "own_parts/recipe.gin"
STEPS = 5
SIZES = ["VOCABULARY_SIZE=900", f"STEPS={STEPS}", "CHECKPOINT_EVERY=2", "LOG_EVERY=1", "BATCH_SIZE=8"]
SIZES += [
    "EVAL_EVERY=3",
    "SEQUENCE_LENGTH=32",
    "training.pretrain.jit_compile=False",
    "training.finetune.jit_compile=False",
]
SIZES += ["OUTPUT_EMBEDDING_DIM=80", "modeling.Encoder.hidden_dim=16", "modeling.Encoder.intermediate_dim=32"]
SIZES += ["tasks.labelled_folder.train_size=8", "training.finetune.batch_size=4", "training.finetune.epochs=1"]
SIZES += ["modeling.ReplacedTokenDetection.output_embedding_dim=16", "schedule.InverseSquareRoot.warmup_steps=2"]


def given(folder):
    folders = [f"{key}.text_dir={folder / 'text'}" for key in ("training.prepare", "stage.fertility")]
    folders += [f"tasks.labelled_folder.folder={folder / 'task'}"]
    return ["--allow-import", "own_parts", *SIZES, *folders]


def main(folder):
    import_once(*forks.OF_BASELINES)
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)  # each process would trace as long as it computes
    os.chdir(PACKAGE.parent)
    output, resumed, whole, hurt = (folder / name for name in ("whole.txt", "resumed.txt", "whole", "hurt"))
    process = start(command("run", RECIPE, *given(folder), f"WORKDIR={whole}"), output)
    was_killed = copy_as_killed(process, lambda: any((whole / "checkpoints").glob("step-*")), whole, hurt)
    was_killed = was_killed and not (hurt / "finished.json").exists()
    assert finish(process) == 0, output.read_text()
    job = command("run", RECIPE, *given(folder), f"WORKDIR={hurt}")
    codes = [stop(start(job, resumed), printed(resumed, "finetune"), signal.SIGTERM), finish(start(job, resumed))]
    print(json.dumps({"was_killed": was_killed, "codes": codes, "output": resumed.read_text()}))


def printed(output, words):
    """A moment: when a process has printed some words."""
    return lambda: output.exists() and words in output.read_text(errors="replace")


@pytest.fixture(scope="module")
def runs(text_dir, tmp_path_factory):
    """A folder with the run `whole`, and `hurt`, what a kill left of it, resumed; and what the latter printed."""
    folder = tmp_path_factory.mktemp("own_parts")
    shutil.copytree(text_dir, folder / "text")
    write_tiny_task(folder / "task")
    path = os.pathsep.join([str(ROOT), str(PACKAGE.parent)])
    done = run_module(__spec__.name, folder, KERAS_BACKEND="tensorflow", PYTHONPATH=path)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return folder, json.loads(done.stdout.splitlines()[-1])


def bytes_below(folder):
    files = [file for place in ("checkpoints", "finetuned") for file in (folder / place).rglob("*")]
    return {file.relative_to(folder): file.read_bytes() for file in files if file.is_file()}


def rows_of(folder):
    rows = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [{key: value for key, value in row.items() if key not in MEASURED} for row in rows]


def test_a_run_of_own_parts_that_was_killed_and_resumed_ends_in_the_same_bits(runs):
    folder, report = runs
    assert report["was_killed"] and report["codes"][-1] == 0, report["output"]
    assert "resuming from" in report["output"]
    assert rows_of(folder / "hurt") == rows_of(folder / "whole")
    assert bytes_below(folder / "hurt") == bytes_below(folder / "whole")
    for name in ("scores.json", "fertility.json"):
        assert (folder / "hurt" / name).read_text() == (folder / "whole" / name).read_text()


def test_each_part_does_its_own(runs):
    folder, _ = runs
    rows = rows_of(folder / "whole")
    row = next(row for row in rows if row["run"] == "pretrain")
    objectives = row["masked_lm/loss"] + 0.02 * row["replaced_token_detection/loss"] + 0.1 * row["languages/loss"]
    assert row["loss"] == pytest.approx(objectives + 0.1 * row["unit_scale"], rel=1e-5)
    assert [row["step"] for row in rows if "anisotropy" in row] == [0, 3, STEPS]
    (callback,) = checkpoints.latest(folder / "whole/checkpoints").state["callbacks"]
    assert callback["class"] == "StopAtPlateau" and callback["state"]["best"] > 0
    assert (folder / "hurt/journal/pretrain.tsv").read_text() == (folder / "whole/journal/pretrain.tsv").read_text()
    lines = [line.split("\t") for line in (folder / "whole/journal/pretrain.tsv").read_text().splitlines()]
    assert [(int(step), float(loss)) for step, loss in lines] == [
        (row["step"], row["loss"]) for row in rows if row["run"] == "pretrain"
    ]
    rates = [row["learning_rate"] for row in rows if row["run"] == "pretrain" and "learning_rate" in row]
    assert rates == pytest.approx([1e-3 * min(step / 2, (2 / step) ** 0.5) for step in range(1, STEPS + 1)])
    pieces = json.loads((folder / "whole/fertility.json").read_text())
    assert 1 < pieces["en"] < pieces["de"] < 8, "of 900 pieces, which two thirds of English text made"
    metrics = {score["metric"] for score in json.loads((folder / "whole/scores.json").read_text())}
    assert metrics == {"f1"}


def test_the_ledger_counts_own_parts_as_keras_does(runs):
    folder, _ = runs
    counted = json.loads((folder / "whole/ledger.json").read_text())
    from own_parts.modeling import attention, block, coupling, input_embedding, objective, sharing
    from own_parts.training import optimizer
    from rembed_keras import Encoder, MaskedLM, ReplacedTokenDetection
    from rembed_keras.modeling.objectives import Sum

    sizes = {"vocabulary_size": 900, "num_layers": 2, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 32}
    sizes |= {"input_embedding_dim": 64, "max_sequence_length": 128}
    pattern = [attention.OneWay(), attention.OneWay(is_forward=True)]
    kinds = {"block": block.LayerScale, "attention": pattern, "input_embedding": input_embedding.Sinusoidal}
    encoder = Encoder(**sizes, **kinds)
    made = [
        lambda each: MaskedLM(each, 80, coupling=coupling.Detached),
        lambda each: ReplacedTokenDetection(each, 16, sharing=sharing.GeneratorTrained),
        lambda each: objective.LanguageIdentification(each, 25),
    ]
    model = Sum(encoder, made)
    assert "languages: language head" in counted["parts"]
    assert counted["kept"] == encoder.count_params()
    assert counted["total"] == model.count_params()
    inner = optimizer.SignMomentum()
    inner.build(model.trainable_variables)
    slots = sum(math.prod(mean.shape) for mean in inner.means)
    assert counted["optimizer_bytes"]["total"] == 4 * slots


def test_models_of_own_parts_are_read_back(runs):
    from own_parts.adaptation import method  # noqa: F401 - registered so, as the parts of the other rooms
    from own_parts.modeling import attention, block, coupling, input_embedding, objective, sharing  # noqa: F401
    from own_parts.tasks import task  # noqa: F401
    from own_parts.training import optimizer, schedule  # noqa: F401

    folder, _ = runs
    pretrained = restoring.restore(checkpoints.latest(folder / "whole/checkpoints"))
    masked_lm, detection, languages = pretrained.objectives
    assert type(masked_lm.head.output_embedding.coupling.kind) is coupling.Detached
    assert type(detection.reader.parts.embeddings) is sharing.Untrained
    assert type(languages) is objective.LanguageIdentification
    assert type(pretrained.encoder.parts.embeddings) is input_embedding.SinusoidalEmbedding
    (place,) = (folder / "whole/finetuned/topics").glob("pretrained-*")
    tuned = restoring.restore(checkpoints.latest(place))
    assert type(tuned).__name__ == "MultiLabelClassifier" and repr(tuned.methods[0]).startswith("Gains(")


def test_a_task_of_own_parts_answers_a_file_and_becomes_a_preset(runs, command, tmp_path, monkeypatch):
    from own_parts.tasks import task

    folder, _ = runs
    monkeypatch.syspath_prepend(PACKAGE.parent)
    (tmp_path / "new.tsv").write_text("text\nsave the file\nopen the table\n", encoding="utf-8")
    trusted = ("--allow-import", "own_parts")
    code, out, err = command("predict", folder / "whole", "new.tsv", *trusted, cwd=tmp_path)
    assert code == 0, err
    answers = [json.loads(line)["answer"] for line in out.splitlines()]
    words = ("--from", "run", "--task", "topics", *trusted, "--to")
    code, out, err = command("convert", folder / "whole", "made", *words, "preset", cwd=tmp_path)
    assert code == 0 and "own_parts.tasks.task.MultiLabelClassifier.from_preset('made')" in out, err
    labels = json.loads((tmp_path / "made/labels.json").read_text())
    model = task.MultiLabelClassifier.from_preset(str(tmp_path / "made"))
    logits = model.predict(["save the file", "open the table"], verbose=0)
    assert [[label for label, each in zip(labels, row, strict=True) if each > 0] for row in logits] == answers
    assert labels == ["file", "table"]
    code, _, err = command("convert", folder / "whole", "served", *words, "savedmodel", cwd=tmp_path)
    assert code == 2 and "task topics becomes no SavedModel: MultiLabel finds answers in a way of its own" in err


def test_each_part_is_one_file_of_under_60_lines():
    files = [path for path in PACKAGE.glob("*/*.py") if path.name != "__init__.py"]
    assert len(files) == 16
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert text.count("\n") < 60, path
        assert ast.get_docstring(ast.parse(text)), path


if __name__ == "__main__":
    main(Path(sys.argv[1]))
