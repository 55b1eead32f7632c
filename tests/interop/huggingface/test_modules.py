"""What sentence-transformers has after an encoder: it is not read, and said."""

import json
import shutil
from pathlib import Path

import pytest

from rembed_keras.interop.huggingface.read import read_huggingface

GOLDEN = Path(__file__).parent.parent.parent / "golden"


def with_modules(folder, kinds):
    """A recorded folder with modules of sentence-transformers, and the notes on it without."""
    shutil.copytree(GOLDEN / "bert", folder)
    modules = {"": "Transformer"} | {f"{i}_{kind}": kind for i, kind in enumerate(kinds, start=1)}
    said = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in modules.items()]
    (folder / "modules.json").write_text(json.dumps(said))
    return folder, read_huggingface(GOLDEN / "bert")[1]


@pytest.mark.any_backend
def test_layers_after_the_encoder_are_said(tmp_path):
    folder, plain = with_modules(tmp_path / "in", ["Pooling", "Dense", "Normalize"])
    assert read_huggingface(folder)[1] == plain
    (folder / "2_Dense").mkdir()
    (folder / "2_Dense/model.safetensors").touch()
    note = "left out are layers that sentence-transformers has after it: 2_Dense"
    assert read_huggingface(folder)[1] == [*plain, note]


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("modes", "note"),
    [
        ({"mean_tokens": True, "cls_token": False}, None),
        ({"mean_tokens": False, "cls_token": True}, "takes the first token for a text: encode with pooling='first'"),
        ({"lasttoken": True}, "pools by lasttoken, which encode does not"),
        ({"mean_tokens": True, "max_tokens": True}, "pools by max_tokens and mean_tokens, which encode does not"),
    ],
)
def test_another_pooling_than_the_mean_is_said(modes, note, tmp_path):
    folder, plain = with_modules(tmp_path / "in", ["Pooling"])
    (folder / "1_Pooling").mkdir()
    settings = {"word_embedding_dimension": 16} | {f"pooling_mode_{mode}": value for mode, value in modes.items()}
    (folder / "1_Pooling/config.json").write_text(json.dumps(settings))
    assert read_huggingface(folder)[1] == plain + ([] if note is None else [f"sentence-transformers {note}"])
