"""TensorBoard's files: what is in them, and that a run that goes on neither loses nor repeats a point."""

import json
import re
import subprocess
import sys
from dataclasses import asdict

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from own_parts.training.sink import Journal
from rembed_keras.analysis.pages.records import ledger_table
from rembed_keras.analysis.reports.tables import Table
from rembed_keras.tasks.scores import Score
from rembed_keras.training.sinks import TensorBoard, Watched
from rembed_keras.training.sinks.sink import final_numbers
from tests.analysis.studies.test_figures import trials

RECIPE = """from rembed_keras import training

STEPS = 6  # batches, not epochs
TEXT_DIR = 'a # b | c'
RATES = (0.1, 0.2)
WORKDIR = 'runs/x'

training.pretrain.steps = %STEPS
"""
LEDGER = {
    "kept": 30, "dropped": 70, "total": 100, "training_flops_per_token": {"kept": 1, "dropped": 2, "total": 3},
    "parts": {"input embedding": {"parameters": 30, "kept": True}, "head": {"parameters": 70, "kept": False}},
}  # fmt: skip
TABLE = Table("Filled", ["language", "text"], [["de", "a | b"]], words=2)
FINAL = {"pretrain/loss": 3.0, "evaluation/loss": 3.5, "topics/accuracy/pretrained": 0.5}
TUNED = [f"finetune/topics/pretrained-lr0.001-seed{seed}" for seed in (0, 1)]


def row(run, step, **values):
    return {"stage": run.split("/")[0], "run": run, "step": step, "tokens": 32 * step} | values


def pretraining(steps):
    own = {"loss/de": 2.0, "loss/fr": 3.0, "unigram_entropy": 7.5, "examples": 4, "mfu": float("nan"), "skipped": None}
    return [row("pretrain", step, loss=9.0 - step, **own) for step in steps]


def process(folder, begun, drawn):
    """What one process draws: a training of some rows goes on with others."""
    sink = TensorBoard()
    sink.open(Watched(folder, RECIPE, LEDGER, lambda: [*begun, *drawn]))
    for run in dict.fromkeys(each["run"] for each in (*begun, *drawn)):
        sink.begin(run, [each for each in begun if each["run"] == run])
    for each in drawn:
        sink.draw(each)
    sink.score([Score("topics", "de", "accuracy", 0.5, 0, 9, "pretrained")], [*begun, *drawn])
    sink.close()


def read(folder, run):
    return EventAccumulator(str(folder / "tensorboard" / run)).Reload()


def curve(folder, run, tag):
    return [(event.step, event.value) for event in read(folder, run).Scalars(tag)]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "one"
    held_out = [row("evaluation", 0, loss=9.5), row("evaluation", 6, loss=3.5, filled_masks=asdict(TABLE))]
    process(folder, [], [*pretraining((2, 4, 6)), *held_out, *(row(each, 3, loss=0.5) for each in TUNED)])
    return folder


def test_held_out_loss_and_the_unigram_entropy_are_in_the_chart_of_the_loss(drawn):
    assert curve(drawn, "pretrain", "pretrain/loss") == [(2, 7.0), (4, 5.0), (6, 3.0)]
    assert curve(drawn, "evaluation", "pretrain/loss") == [(0, 9.5), (6, 3.5)]
    assert curve(drawn, "pretrain_unigram_entropy", "pretrain/loss") == [(2, 7.5), (4, 7.5), (6, 7.5)]
    assert "pretrain/mfu" not in read(drawn, "pretrain").Tags()["scalars"]  # which is NaN here


def test_models_of_a_task_are_curves_of_one_chart_and_losses_have_other_axes(drawn):
    for tuned in TUNED:
        assert curve(drawn, tuned, "finetune/topics/loss") == [(3, 0.5)]
    assert curve(drawn, "pretrain", "by_tokens/pretrain/loss") == [(64, 7.0), (128, 5.0), (192, 3.0)]
    assert curve(drawn, "evaluation", "by_tokens/pretrain/loss") == [(0, 9.5), (192, 3.5)]
    assert {"by_examples/pretrain/loss"} <= set(read(drawn, "pretrain").Tags()["scalars"])


def text_of(folder, run, tag):
    (event,) = read(folder, run).Tensors(tag)
    return event.tensor_proto.string_val[0].decode(), event.step


def test_recipe_and_ledger_are_tables_that_are_written_once(drawn):
    recipe, _ = text_of(drawn, "recipe", "recipe")
    assert "| STEPS | 6 | batches, not epochs |" in recipe and "| TEXT_DIR | 'a # b \\| c' |  |" in recipe
    assert "| training.pretrain.steps | %STEPS |" in recipe
    ledger, _ = text_of(drawn, "recipe", "ledger")
    assert ledger == ledger_table(LEDGER).markdown() and "| head |  | 70 | 70.0% |" in ledger
    assert not read(drawn, "pretrain").Tags()["tensors"]
    assert text_of(drawn, "evaluation", "pretrain/filled_masks") == (TABLE.markdown(), 6)


def test_one_chart_has_all_languages(drawn):
    from tensorboard.plugins.custom_scalar.layout_pb2 import Layout

    (event,) = read(drawn, "recipe").Tensors("custom_scalars__config__")
    (category,) = Layout.FromString(event.tensor_proto.string_val[0]).category
    patterns = {chart.title: chart.multiline.tag[0] for chart in category.chart}
    tags = read(drawn, "pretrain").Tags()["scalars"]
    shown = {tag for tag in tags if re.match(patterns["loss by language"], tag)}
    assert shown == {"pretrain/loss/de", "pretrain/loss/fr"}


def test_the_scores_stand_beside_the_knobs(drawn):
    ((name, (settings, metrics)),) = trials(drawn / "tensorboard").items()
    assert name == "one"
    assert settings == {"STEPS": 6.0, "TEXT_DIR": "a # b | c", "RATES": "(0.1, 0.2)"}
    assert metrics == {f"final/{name}": value for name, value in FINAL.items()}


def test_a_seed_that_failed_in_one_language_is_in_no_final_score():
    values = {("de", 0): 0.9, ("fr", 0): None, ("de", 1): 0.5, ("fr", 1): 0.3}
    scores = [
        Score("stsb", language, "pearson", value, seed, 9, "pretrained") for (language, seed), value in values.items()
    ]
    assert final_numbers(scores, []) == {"final/stsb/pearson/pretrained": 0.4}
    assert not final_numbers(scores[:2], [])


def test_a_run_that_goes_on_has_each_point_once(tmp_path):
    rows = pretraining((2, 4, 6))
    process(tmp_path, [], rows[:2])  # it was killed here, after a checkpoint of step 2
    process(tmp_path, rows[:1], rows[1:])
    for run, tag in (("pretrain", "loss"), ("pretrain", "tokens"), ("pretrain_unigram_entropy", "loss")):
        assert [step for step, _ in curve(tmp_path, run, f"pretrain/{tag}")] == [2, 4, 6], (run, tag)
    assert len(read(tmp_path, "recipe").Tensors("recipe")) == 1


def test_curves_are_written_without_tensorflow(tmp_path):
    code = (
        "import json, sys\nfrom pathlib import Path\nfrom rembed_keras.training.sinks import TensorBoard, Watched\n"
        f"sink, rows = TensorBoard(), json.loads({json.dumps(json.dumps([row('pretrain', 1, loss=1.0)]))})\n"
        f"sink.open(Watched(Path({str(tmp_path)!r}), 'STEPS = 1', None, list))\n"
        "sink.begin('pretrain', rows)\nsink.score([], rows)\nsink.close()\nprint('tensorflow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
    assert curve(tmp_path, "pretrain", "pretrain/loss") == [(1, 1.0)]


def test_the_examples_sink_has_a_line_for_each_loss_that_is_known(tmp_path):
    sink, row = Journal(), {"run": "pretrain", "step": 1, "loss": 2.0}
    sink.open(Watched(tmp_path, "", None, list))
    sink.begin("pretrain", [row])
    sink.draw(row | {"step": 2, "loss": None})  # of an interval with skipped steps
    assert (tmp_path / "journal/pretrain.tsv").read_text() == "1\t2.0\n"
