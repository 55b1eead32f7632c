"""Presets, runs and fine-tuned models that version 0.1 wrote before its modules moved: they must load for good.

What they gave then is in `expected.npz`, by the code that wrote them.
"""

import json
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest

from rembed_keras.interop import read_model
from rembed_keras.modeling import Encoder, LateMaskedLM, MaskedLM, ReplacedTokenDetection
from rembed_keras.training import AdamW, Answerer, TrainingOptimizer, WarmupLinearDecay, lines_of
from rembed_keras.training.loop import checkpoints, restoring

FORMER = Path(__file__).parent.parent / "golden" / "format_0_1"
PRESETS = {
    "post_norm": MaskedLM,
    "pre_norm": MaskedLM,
    "late_masked": LateMaskedLM,
    "replaced_tokens": ReplacedTokenDetection,
}
ENCODER_INPUTS = ("token_ids", "segment_ids", "padding_mask")


@pytest.fixture(scope="module")
def former():
    with np.load(FORMER / "expected.npz") as arrays:
        inputs = {name.removeprefix("input/"): arrays[name] for name in arrays.files if name.startswith("input/")}
        outputs = {name.removeprefix("output/"): arrays[name] for name in arrays.files if name.startswith("output/")}
    return inputs, outputs


def encoder_inputs(inputs):
    return {name: inputs[name] for name in ENCODER_INPUTS}


def assert_close(given, expected):
    np.testing.assert_allclose(keras.ops.convert_to_numpy(given), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_load(name, former):
    inputs, expected = former
    model = PRESETS[name].from_preset(str(FORMER / name))
    given = model(inputs)
    assert_close(given["logits"] if isinstance(given, dict) else given, expected[name])
    kept = model.drop_heads()(encoder_inputs(inputs))["sequence_output"]
    assert_close(kept, expected[f"{name}/sequence_output"])
    read, _ = read_model(str(FORMER / name))
    assert isinstance(read, MaskedLM if PRESETS[name] is MaskedLM else Encoder)


def test_a_runs_checkpoint_loads(former):
    inputs, expected = former
    found = checkpoints.latest(FORMER / "run" / "checkpoints")
    assert_close(restoring.restore(found)(inputs), expected["run"])
    assert restoring.kept_encoder(found).num_layers == 1


def test_the_optimizer_of_a_former_run_goes_on():
    found = checkpoints.latest(FORMER / "run" / "checkpoints")
    optimizer, arrays = TrainingOptimizer(AdamW(WarmupLinearDecay(1e-2, 1, 9))), found.arrays("optimizer")
    optimizer.build(restoring.restore(found).trainable_variables)
    named = optimizer.named_variables()
    assert named.keys() == arrays.keys()
    checkpoints.assign_named(named, arrays, found.path)
    assert int(keras.ops.convert_to_numpy(optimizer.iterations.value)) == 3


def test_a_fine_tuned_model_loads_with_its_adapters_and_lora(former, tmp_path):
    inputs, expected = former
    folder = FORMER / "finetuned" / "finetuned" / "topic" / "pretrained-lr0.01-seed0"
    model = restoring.restore(checkpoints.latest(folder))
    assert_close(model(encoder_inputs(inputs)), expected["finetuned"])


def test_a_former_runs_task_answers(tmp_path):
    shutil.copytree(FORMER / "finetuned", tmp_path / "run")
    shutil.copy(FORMER / "run" / "corpus" / "tokenizer.model", tmp_path / "run" / "finetuned" / "topic")
    (tmp_path / "texts.tsv").write_text("text\nsave the file\nopen the table\n", encoding="utf-8")
    answerer = Answerer(str(tmp_path / "run"), None)
    lines = lines_of(answerer.answers(answerer.read(str(tmp_path / "texts.tsv"))))
    assert [json.loads(line)["answer"] in ("file", "table") for line in lines] == [True, True]
