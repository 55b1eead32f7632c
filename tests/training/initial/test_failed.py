"""What failed in one precision is fine-tuned again in another: that of its encoder, whatever says it."""

import json

import pytest

from rembed_keras.training.initial.encoder_start import EncoderStart
from rembed_keras.training.initial.finetuned import retry_failed
from rembed_keras.training.initial.weights import InitialWeights
from tests.modeling.test_encoder import make_encoder


@pytest.mark.any_backend
def test_what_failed_is_trained_again_in_another_precision(tmp_path, capsys):
    for name, said in (("before", {}), ("now", {"dtype": "mixed_float16"})):  # version 0.1 did not say it
        (tmp_path / name).mkdir()
        (tmp_path / name / "failed.json").write_text(json.dumps(said | {"reason": "loss is nan"}))
    for dtype, left in (("mixed_float16", ["before", "now"]), ("float32", ["before"])):
        retry_failed(tmp_path, dtype)
        assert sorted(path.name for path in tmp_path.iterdir()) == left
    assert capsys.readouterr().out == f"{tmp_path}/now failed in mixed_float16: it is fine-tuned again, in float32\n"


@pytest.mark.any_backend
def test_what_failed_of_a_task_below_another_stays(tmp_path):
    below = tmp_path / "glue" / "rte" / "scratch-lr1-seed0"
    below.mkdir(parents=True)
    (below / "failed.json").write_text(json.dumps({"reason": "loss is nan", "dtype": "mixed_float16"}))
    retry_failed(tmp_path / "glue", "float32")
    assert (below / "failed.json").exists()


def test_a_start_names_the_dtype_of_its_encoders(tmp_path):
    encoder = make_encoder(dtype="mixed_bfloat16")
    encoder.save_to_preset(str(tmp_path / "preset"))
    place = str(tmp_path / "preset")
    starts = {
        "mixed_bfloat16": [EncoderStart(tmp_path, lambda: encoder), EncoderStart(tmp_path, None, place)],
        "float32": [EncoderStart(tmp_path, lambda: encoder, dtype="float32"), EncoderStart(tmp_path, make_encoder)],
        "bfloat16": [EncoderStart(tmp_path, None, InitialWeights(place, dtype="bfloat16"))],
    }
    assert {name: {start.dtype for start in each} for name, each in starts.items()} == {name: {name} for name in starts}
