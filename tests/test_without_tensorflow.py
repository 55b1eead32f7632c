"""The package where JAX is installed and TensorFlow is not, as on many machines with a GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WITHOUT = "import sys; sys.modules['tensorflow'] = sys.modules['tensorflow_text'] = None;"
COMMAND = f"""
{WITHOUT}
from rembed_keras.cli import main
main()
import keras
import numpy as np
from rembed_keras import Encoder
encoder, ids = Encoder(9, 1, 1, 4, 4, 2), np.ones((1, 3), "int32")
outputs = encoder({{"token_ids": ids, "segment_ids": 0 * ids, "padding_mask": ids}})
print(keras.config.backend(), outputs["pooled_output"].shape)
"""
TINY = [
    *("STEPS=2", "BATCH_SIZE=4", "SEQUENCE_LENGTH=16", "WARMUP_STEPS=1", "VOCABULARY_SIZE=1500", "NUM_LAYERS=1"),
    *("modeling.Encoder.hidden_dim=16", "modeling.Encoder.num_heads=2", "modeling.Encoder.intermediate_dim=16"),
    "training.prepare.text_dir=@sample.help_folder()",
    *("declarations/tasks.ParallelText.most_lines=8", "training.retrieve.sequence_length=32"),
]


def without_tensorflow(code, *arguments, **options):
    environment = {name: value for name, value in os.environ.items() if name != "KERAS_BACKEND"}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, **options)


@pytest.mark.parametrize("named", [None, "torch"])
def test_jax_is_the_backend_unless_another_is_named(named):
    name = f"import os; os.environ['KERAS_BACKEND'] = {named!r};" if named else "import os;"
    code = f"{name} import rembed_keras; print(os.environ['KERAS_BACKEND'], 'keras' in sys.modules)"
    done = without_tensorflow(WITHOUT + code)
    assert done.stdout == f"{named or 'jax'} False\n", done.stderr  # it is set before Keras reads it


@pytest.mark.slow
def test_a_recipe_runs_to_its_scores_and_an_encoder_runs_beside_it(tmp_path):
    place = tmp_path / "run"
    recipe = str(ROOT / "recipes/options/embeddings/decoupled.gin")
    done = without_tensorflow(COMMAND, "run", recipe, *TINY, f"WORKDIR={place}", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "retrieval/udhr: P@1" in done.stdout
    assert done.stdout.splitlines()[-1] == "jax (1, 4)"
    assert json.loads((place / "environment.json").read_text())["backend"] == "jax"
