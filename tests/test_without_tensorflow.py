"""The package where JAX is installed and TensorFlow is not, as on many machines with a GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WITHOUT = "import sys; sys.modules['tensorflow'] = sys.modules['tensorflow_text'] = None;"
COMMAND = f"{WITHOUT} from rembed_keras.cli import main; main()"
TINY = [
    *("STEPS=2", "BATCH_SIZE=4", "SEQUENCE_LENGTH=16", "WARMUP_STEPS=1", "VOCABULARY_SIZE=1500", "NUM_LAYERS=1"),
    *("modeling.Encoder.hidden_dim=16", "modeling.Encoder.num_heads=2", "modeling.Encoder.intermediate_dim=16"),
    "training.prepare.text_dir=@sample.help_folder()",
]


def without_tensorflow(code, *arguments, **options):
    environment = {name: value for name, value in os.environ.items() if name != "KERAS_BACKEND"}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, **options)


def test_keras_takes_jax():
    code = (
        f"{WITHOUT} from rembed_keras import Encoder; import keras; import numpy as np;"
        "e = Encoder(9, 1, 1, 4, 4, 2); ids = np.ones((1, 3), 'int32');"
        "out = e({'token_ids': ids, 'segment_ids': 0 * ids, 'padding_mask': ids})['pooled_output'];"
        "print(keras.config.backend(), out.shape)"
    )
    done = without_tensorflow(code)
    assert done.stdout == "jax (1, 4)\n", done.stderr


def test_another_backend_is_not_replaced():
    code = "import os; os.environ['KERAS_BACKEND'] = 'torch'; import rembed_keras; print(os.environ['KERAS_BACKEND'])"
    assert without_tensorflow(WITHOUT + code).stdout == "torch\n"


@pytest.mark.slow
def test_a_recipe_runs_to_its_scores(tmp_path):
    place = tmp_path / "run"
    recipe = str(ROOT / "recipes/options/embeddings/decoupled.gin")
    done = without_tensorflow(COMMAND, "run", recipe, *TINY, f"WORKDIR={place}", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "retrieval/udhr: P@1" in done.stdout
    assert json.loads((place / "environment.json").read_text())["backend"] == "jax"
